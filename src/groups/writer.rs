//! Writes the journals of group slots. Until slots have files on this branch, an entry counts as written at once.

use std::rc::Rc;

use oncilla_shards::groups::Effects;
use oncilla_shards::ids::SlotId;

use super::carry_out;
use crate::ctx::Ctx;
use crate::rt::spawn;

/// Starts the writer of one slot.
pub fn start(ctx: &Rc<Ctx>, slot: SlotId) {
    let ctx = ctx.clone();
    spawn(async move {
        loop {
            let mut effects = Effects::new();
            {
                let mut core = ctx.groups.core.borrow_mut();
                let journal = core.journal_mut(slot).expect("the slot is ours");
                if journal.take_write().is_none() {
                    return;
                }
                journal.wrote();
                core.settled(slot, &mut effects);
            }
            carry_out(&ctx, effects);
        }
    });
}
