//! What is open in partitions, settled with the coordinators of this broker: by a start, and by a look now and then.
//!
//! The start asks about everything that it found open. It runs on every shard behind the load of all shards, and holds
//! the broker up for `RECONCILE_WAIT_MS` at most: a coordinator whose disk has failed must not keep it away. What is
//! not settled by then stays in doubt and goes on in the background: its batches are verified, and those of a newer
//! epoch kept out. Failure: a marker that cannot be written is tried again after a pause, until a marker of somebody
//! else ends the transaction.
//!
//! From then on every shard looks, once in `transaction.max.timeout.ms`, at what has been open since the look before, a
//! few partitions a turn. Whatever a coordinator knows is ended by then by its timeout, and `oncilla_shards::txn` tells
//! why a look never hits it even so; until then a tool that looks for hanging transactions finds them, as at Kafka.
//! What coordinators decided needs no look: markers stay in their dispatch set until they are
//! answered. Failure: a marker that cannot be written is tried again at the next look but one.

use std::rc::Rc;
use std::time::Duration;

use futures_lite::future;
use oncilla_shards::batch::ControlKind;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{PartitionKey, ProducerEpoch, ShardId};
use oncilla_shards::limits::TXN_LOOK_OPEN_MAX;
use oncilla_shards::partition::EndMarker;
use oncilla_shards::txn::{Adopt, Adopted, Identity, OpenTxn, unknown_to_all};

use super::adopt;
use crate::ctx::Ctx;
use crate::partitions::write_markers;
use crate::rt::{join_all, oneshot, sleep, spawn};

/// Longest time for which a start waits.
const RECONCILE_WAIT_MS: u64 = 5_000;

/// Pause before what could not be settled is tried again.
const PAUSE_MS: u64 = 1_000;

/// Pause between two turns of a look.
const TURN_PAUSE_MS: u64 = 10;

/// Settles what this shard's partitions found open; what takes too long goes on when this has returned.
pub async fn reconcile(ctx: &Rc<Ctx>) {
    if ctx.shard.borrow().doubted().is_empty() {
        return;
    }
    let (sender, settled) = oneshot();
    let own = ctx.clone();
    spawn(async move {
        settle_all(&own).await;
        sender.send(());
    });
    let too_long = async {
        sleep(Duration::from_millis(RECONCILE_WAIT_MS)).await;
        tracing::warn!("open transactions are not settled yet; the broker serves, and their batches are verified");
    };
    let settled = async {
        let _ = settled.await;
    };
    future::or(settled, too_long).await;
}

async fn settle_all(ctx: &Rc<Ctx>) {
    loop {
        let found = ctx.shard.borrow().doubted();
        if found.is_empty() || ctx.stopping.get() {
            return;
        }
        join_all(found.iter().map(|one| settle(ctx, one))).await;
        if ctx.shard.borrow().doubted() == found {
            sleep(Duration::from_millis(PAUSE_MS)).await;
        }
    }
}

async fn settle(ctx: &Rc<Ctx>, found: &Adopt) {
    let mut found = found.clone();
    while !found.partitions.is_empty() {
        match adopt(ctx, found.clone()).await {
            Adopted::Yes => return ctx.shard.borrow_mut().adopted(&found),
            Adopted::Abort(epoch) => return abort(ctx, &found, epoch).await,
            Adopted::LookAgain(seen) => {
                found = Adopt { partitions: still_doubted(ctx, &found), seen: Some(seen), ..found };
            }
        }
    }
}

/// The partitions where the producer has not moved on since.
fn still_doubted(ctx: &Ctx, found: &Adopt) -> Vec<PartitionKey> {
    let doubted = ctx.shard.borrow().doubted();
    let same = doubted.into_iter().filter(|now| now.producer == found.producer).flat_map(|now| now.partitions);
    same.filter(|key| found.partitions.contains(key)).collect()
}

/// Ends what nobody else will. A partition where the producer has moved on meanwhile is asked about again.
async fn abort(ctx: &Rc<Ctx>, found: &Adopt, epoch: ProducerEpoch) {
    let marker = abort_marker(ctx, Identity { epoch, ..found.producer });
    write_aborts(ctx, still_doubted(ctx, found).into_iter().map(|key| (key, marker)).collect()).await;
}

fn abort_marker(ctx: &Ctx, producer: Identity) -> EndMarker {
    EndMarker {
        producer_id: producer.producer_id,
        epoch: producer.epoch,
        coordinator_epoch: ctx.boot_epoch.0,
        transaction_version: 0,
        kind: ControlKind::Abort,
    }
}

async fn write_aborts(ctx: &Rc<Ctx>, markers: Vec<(PartitionKey, EndMarker)>) {
    let producers: Vec<i64> = markers.iter().map(|(_, marker)| marker.producer_id.0).collect();
    for (answer, producer_id) in write_markers(ctx, markers).await.into_iter().zip(producers) {
        let (partition, code) = (answer.partition, answer.code);
        match code {
            ErrorCode::None => tracing::info!(%partition, producer_id, "a lost transaction is aborted"),
            _ => tracing::warn!(%partition, producer_id, ?code, "a lost transaction is still open"),
        }
    }
}

/// Looks for lost transactions until the broker stops.
pub fn start_looking(ctx: &Rc<Ctx>) {
    let ctx = ctx.clone();
    spawn(async move {
        loop {
            let interval_ms = ctx.txn.look_interval_ms();
            sleep(Duration::from_millis(interval_ms.max(TURN_PAUSE_MS))).await;
            if ctx.stopping.get() {
                return;
            }
            look(&ctx).await;
        }
    });
}

/// One look at all partitions of this shard.
pub(super) async fn look(ctx: &Rc<Ctx>) {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (more, next) = ctx.shard.borrow_mut().look(after);
        found.extend(more);
        if found.len() >= TXN_LOOK_OPEN_MAX || next.is_none() {
            end_lost(ctx, std::mem::take(&mut found)).await;
        }
        after = next;
        if after.is_none() || ctx.stopping.get() {
            return;
        }
        sleep(Duration::from_millis(TURN_PAUSE_MS)).await;
    }
}

/// Aborts what no coordinator knows and what has not moved while they were asked.
async fn end_lost(ctx: &Rc<Ctx>, found: Vec<OpenTxn>) {
    if found.is_empty() {
        return;
    }
    let knows = |shard| {
        let asked = found.clone();
        ctx.call(ShardId(shard), async move |ctx: Rc<Ctx>| ctx.txn.knows(&asked))
    };
    let answers = join_all((0..ctx.image().shards).map(knows)).await;
    let markers = {
        let shard = ctx.shard.borrow();
        let lost = unknown_to_all(&found, &answers).into_iter().filter(|open| shard.is_still_open(open));
        lost.map(|open| (open.partition, abort_marker(ctx, open.producer))).collect()
    };
    write_aborts(ctx, markers).await;
}
