//! The writer of one slot: takes what is pending, makes it durable in one write, reports, and goes on until nothing is
//! pending.
//!
//! It runs while there is something to write, so entries that are appended during a write are gathered into the next
//! one without a timer. Failure: the first failed write ends it and takes the slot offline; nothing of that write, and
//! nothing after it, is acknowledged.

use std::rc::Rc;

use oncilla_shards::ids::SlotId;
use oncilla_shards::limits::SLOT_WRITE_BYTES_MAX;
use oncilla_shards::slot::{Journal, JournalWrite};

use super::{Kind, checkpoint};
use crate::ctx::Ctx;
use crate::disk::DiskError;
use crate::rt::{now, spawn};

/// Starts the writer of a slot, because `Journal::take_writer` asked for one. No borrow of the core may be held: the
/// first write is taken at once.
pub fn start_writer<K: Kind>(ctx: &Rc<Ctx>, kind: &K, slot: SlotId) {
    let (ctx, kind) = (ctx.clone(), kind.clone());
    kind.files(&ctx).task_begins(slot);
    spawn(async move {
        write_all(&ctx, &kind, slot).await;
        kind.files(&ctx).task_ends(slot);
    });
}

async fn write_all<K: Kind>(ctx: &Rc<Ctx>, kind: &K, slot: SlotId) {
    while let Some(taken) = kind.with_journal(ctx, slot, Journal::take_write) {
        let started = now();
        if let Err(error) = write(ctx, kind, slot, &taken).await {
            go_offline(ctx, kind, slot, &error);
            return;
        }
        let elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        ctx.metrics.slot_write_us.observe(elapsed_us);
        ctx.metrics.slot_journal_bytes.add(taken.bytes.len() as u64);
        let is_due = kind.with_journal(ctx, slot, |journal| {
            journal.wrote();
            journal.reuse(taken.bytes);
            journal.checkpoint_due()
        });
        kind.settled(ctx, slot);
        if is_due {
            checkpoint::start(ctx, kind, slot);
        }
    }
}

async fn write<K: Kind>(ctx: &Rc<Ctx>, kind: &K, slot: SlotId, taken: &JournalWrite) -> Result<(), DiskError> {
    let files = kind.files(ctx);
    // A journal that is rolled over goes with its checkpoint, and until then recovery cuts it: it is only closed.
    let mut journal = match files.take(slot).filter(|_| !taken.roll) {
        Some(journal) => journal,
        None => {
            let bytes_max = kind.with_journal(ctx, slot, |journal| journal.journal_bytes_max());
            files.create(slot, bytes_max + SLOT_WRITE_BYTES_MAX as u64).await?
        }
    };
    journal.append(&taken.bytes).await?;
    files.put(slot, journal);
    Ok(())
}

fn go_offline<K: Kind>(ctx: &Rc<Ctx>, kind: &K, slot: SlotId, error: &DiskError) {
    tracing::error!(slot = slot.0, "the slot answers nothing more until the broker is restarted: {error}");
    ctx.metrics.slots_offline.add(1);
    kind.with_journal(ctx, slot, Journal::fail);
    kind.failed(ctx, slot);
}
