//! Checkpoints: a slot written anew as a whole, beside the writes that go on.
//!
//! What the slot is at one moment is encoded and written on the helper thread; the writer goes on in a new journal
//! meanwhile. When the checkpoint is durable the journals before that one go. Taking the entries is one turn of the
//! shard, which others wait for: it costs as much as copying the slot.
//! Failure: it is logged, the journals stay, and it is tried again when they have grown as much again.

use std::rc::Rc;

use oncilla_shards::ids::SlotId;
use oncilla_shards::slot::Journal;

use super::Kind;
use crate::ctx::Ctx;
use crate::disk::slot_files::checkpoint_blocking;
use crate::rt::file::blocking;
use crate::rt::spawn;

/// Starts a checkpoint of a slot that has no write in flight and no other checkpoint.
pub(super) fn start<K: Kind>(ctx: &Rc<Ctx>, kind: &K, slot: SlotId) {
    let (ctx, kind) = (ctx.clone(), kind.clone());
    kind.files(&ctx).task_begins(slot);
    // The task runs at once up to its first wait: what the slot is now is what it writes.
    spawn(async move {
        write(&ctx, &kind, slot).await;
        kind.files(&ctx).task_ends(slot);
    });
}

/// Writes a checkpoint of a slot that has no write in flight and no other checkpoint.
pub(super) async fn write<K: Kind>(ctx: &Rc<Ctx>, kind: &K, slot: SlotId) {
    let entries = kind.snapshot(ctx, slot);
    let position = kind.with_journal(ctx, slot, Journal::checkpoint_started);
    let files = kind.files(ctx);
    let (directory, first_kept) = (files.directory().to_path_buf(), files.next(slot));
    let written = blocking(move || checkpoint_blocking(&directory, position, &entries, first_kept)).await;
    match written {
        Ok(bytes) => {
            ctx.metrics.slot_checkpoints.add(1);
            kind.with_journal(ctx, slot, |journal| journal.checkpointed(bytes));
        }
        Err(error) => {
            tracing::warn!(slot = slot.0, "a checkpoint could not be written and is tried again later: {error}");
            kind.with_journal(ctx, slot, Journal::checkpoint_failed);
        }
    }
}
