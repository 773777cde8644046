//! Markers and the ends of offsets on their way to their shards and back: one message a shard, whatever is in it.
//!
//! A shard answers everything that it was sent, also what failed. What is sent to this shard is begun at once.

use std::rc::Rc;

use oncilla_shards::txn::{MarkerBatch, OffsetsHook};

use super::{micros_since, step};
use crate::ctx::Ctx;
use crate::groups;
use crate::partitions;
use crate::rt::{now, spawn};

/// Sends markers, and tells the coordinator what became of them.
pub(super) fn send(ctx: &Rc<Ctx>, batch: MarkerBatch) {
    let ctx = ctx.clone();
    spawn(async move {
        let started = now();
        let MarkerBatch { to, markers } = batch;
        let answers = ctx.call(to, async move |ctx: Rc<Ctx>| partitions::append_markers(&ctx, markers).await).await;
        ctx.metrics.txn_markers_us.observe(micros_since(started));
        step(&ctx, |core, now, effects| {
            answers.iter().for_each(|(txn, answers)| core.marked(txn, answers, now, effects));
        });
    });
}

/// Ends pending offsets, and tells the coordinator.
pub(super) fn send_hook(ctx: &Rc<Ctx>, hook: OffsetsHook) {
    let (ctx, txn) = (ctx.clone(), hook.txn.clone());
    spawn(async move {
        let started = now();
        let to = hook.to;
        let answers = ctx.call(to, async move |ctx: Rc<Ctx>| groups::settle_transaction(&ctx, hook).await).await;
        ctx.metrics.txn_offsets_us.observe(micros_since(started));
        step(&ctx, |core, now, effects| core.hooked(&txn, &answers, now, effects));
    });
}
