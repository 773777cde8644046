//! Slots of groups as `crate::slots` carries them: their journals are in the core, their files under `group_state`.

use std::rc::Rc;

use oncilla_shards::groups::{Effects, Entry};
use oncilla_shards::ids::SlotId;
use oncilla_shards::slot::Journal;

use super::carry_out;
use crate::ctx::Ctx;
use crate::slots::{Files, Kind};

/// Directory of the slots' files.
pub const DIRECTORY: &str = "group_state";

/// The slots of groups.
#[derive(Clone, Copy, Debug)]
pub struct GroupSlots;

impl Kind for GroupSlots {
    type Entry = Entry;

    fn files<'a>(&'a self, ctx: &'a Ctx) -> &'a Files {
        &ctx.groups.files
    }

    fn with_journal<T>(&self, ctx: &Ctx, slot: SlotId, job: impl FnOnce(&mut Journal) -> T) -> T {
        job(ctx.groups.core.borrow_mut().journal_mut(slot).expect("a slot of this shard"))
    }

    fn restore(&self, ctx: &Ctx, slot: SlotId, journal: Journal, entries: Vec<Entry>) {
        ctx.groups.core.borrow_mut().insert(slot, journal, entries, ctx.groups.now());
    }

    fn snapshot(&self, ctx: &Ctx, slot: SlotId) -> Vec<Entry> {
        ctx.groups.core.borrow().snapshot(slot)
    }

    fn settled(&self, ctx: &Rc<Ctx>, slot: SlotId) {
        let mut effects = Effects::new();
        ctx.groups.core.borrow_mut().settled(slot, &mut effects);
        carry_out(ctx, effects);
    }

    fn failed(&self, ctx: &Rc<Ctx>, slot: SlotId) {
        self.settled(ctx, slot);
        ctx.groups.lost(slot);
    }
}
