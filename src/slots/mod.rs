//! The slots of one shard and their files: loaded at start, written while they change, closed at the end.
//!
//! The core in `oncilla_shards` decides and keeps each slot's [`Journal`]; this module carries it out on the disk for
//! any [`Kind`] of slot. Whoever appends asks `Journal::take_writer` and starts a writer where it says so; the writer
//! tells the kind after every durable write. A slot that is never written has no file.
//! Failure: a slot whose disk fails goes offline and says why, the others serve on; at start a slot that is not all
//! there refuses the start. A checkpoint that fails is logged and costs a longer journal, nothing else.

mod checkpoint;
mod files;
#[cfg(test)]
mod tests;
mod writer;

use std::rc::Rc;

use oncilla_shards::ids::SlotId;
use oncilla_shards::limits::SLOTS;
use oncilla_shards::slot::{Journal, owner};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::files::Files;
pub use self::writer::start_writer;
use crate::ctx::Ctx;
use crate::disk::DiskError;
use crate::disk::slot_files::{list_blocking, recover_blocking};

/// A kind of slot: what is in them, and where their state is.
///
/// A value of it is cheap to clone and never borrows the core across a call. Every method may be called for any slot of
/// the shard once [`load_all`] has restored it.
pub trait Kind: Clone + 'static {
    /// One change of a slot.
    type Entry: Serialize + DeserializeOwned + Send + 'static;

    /// The files of this kind on the shard, made with the kind's directory name.
    fn files<'a>(&'a self, ctx: &'a Ctx) -> &'a Files;

    /// Runs `job` on a slot's journal.
    fn with_journal<T>(&self, ctx: &Ctx, slot: SlotId, job: impl FnOnce(&mut Journal) -> T) -> T;

    /// Takes over a slot at start: its journal, and the entries that rebuild it in their order; none for a new slot.
    fn restore(&self, ctx: &Ctx, slot: SlotId, journal: Journal, entries: Vec<Self::Entry>);

    /// Entries that rebuild the slot as it is at the end of its journal.
    fn snapshot(&self, ctx: &Ctx, slot: SlotId) -> Vec<Self::Entry>;

    /// A write is durable: what waited for it may be answered. May append.
    fn settled(&self, ctx: &Rc<Ctx>, slot: SlotId);

    /// The slot is offline: whoever waits is to be told.
    fn failed(&self, ctx: &Rc<Ctx>, slot: SlotId);
}

/// The slots that this shard owns.
fn owned(ctx: &Ctx) -> impl Iterator<Item = SlotId> + use<> {
    let (id, shards) = (ctx.id, ctx.image().shards);
    (0..SLOTS).map(SlotId).filter(move |slot| owner(*slot, shards) == id)
}

/// Restores every slot of this shard from its files. Runs before anything is served, and blocks.
///
/// # Errors
/// If the files of a slot cannot be read or are not all there.
pub fn load_all<K: Kind>(ctx: &Ctx, kind: &K) -> Result<(), DiskError> {
    let files = kind.files(ctx);
    let shards = ctx.image().shards;
    let found = list_blocking(files.directory(), |slot| owner(slot, shards) == ctx.id)?;
    for slot in owned(ctx) {
        match found.get(&slot) {
            None => kind.restore(ctx, slot, Journal::default(), Vec::new()),
            Some(of_slot) => {
                let recovered = recover_blocking(files.directory(), slot, of_slot, files.epoch())?;
                kind.restore(ctx, slot, recovered.journal, recovered.entries);
            }
        }
    }
    Ok(())
}

/// Waits until everything appended is durable, and closes the files. Nothing may append any more.
pub async fn close_all<K: Kind>(ctx: &Rc<Ctx>, kind: &K) {
    let files = kind.files(ctx);
    for slot in owned(ctx) {
        files.idle(slot).await;
        if kind.with_journal(ctx, slot, |journal| journal.checkpoint_due()) {
            checkpoint::write(ctx, kind, slot).await;
        }
        if let Some(file) = files.take(slot)
            && let Err(error) = file.close().await
        {
            tracing::warn!(%error, "a slot's journal could not be closed and will be cut at the next start");
        }
    }
}
