//! Slots of transactional ids as `crate::slots` carries them: their journals are in the core, their files under
//! `txn_state`.

use std::rc::Rc;

use oncilla_shards::ids::SlotId;
use oncilla_shards::slot::Journal;
use oncilla_shards::txn::Entry;

use super::step;
use crate::ctx::Ctx;
use crate::slots::{Files, Kind};

/// Directory of the slots' files.
pub const DIRECTORY: &str = "txn_state";

/// The slots of transactional ids.
#[derive(Clone, Copy, Debug)]
pub struct TxnSlots;

impl Kind for TxnSlots {
    type Entry = Entry;

    fn files<'a>(&'a self, ctx: &'a Ctx) -> &'a Files {
        &ctx.txn.files
    }

    fn with_journal<T>(&self, ctx: &Ctx, slot: SlotId, job: impl FnOnce(&mut Journal) -> T) -> T {
        job(ctx.txn.core.borrow_mut().journal_mut(slot).expect("a slot of this shard"))
    }

    fn restore(&self, ctx: &Ctx, slot: SlotId, journal: Journal, entries: Vec<Entry>) {
        let host = &ctx.txn;
        host.core.borrow_mut().insert(slot, journal, entries, host.now(), &mut host.owed.borrow_mut());
    }

    fn snapshot(&self, ctx: &Ctx, slot: SlotId) -> Vec<Entry> {
        ctx.txn.core.borrow().snapshot(slot)
    }

    fn settled(&self, ctx: &Rc<Ctx>, slot: SlotId) {
        step(ctx, |core, now, effects| core.settled(slot, now, effects));
    }

    fn failed(&self, ctx: &Rc<Ctx>, slot: SlotId) {
        // The core sees that the journal is offline and tells whoever waits.
        self.settled(ctx, slot);
    }
}
