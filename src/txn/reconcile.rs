//! What partitions found open when they were loaded, settled with the coordinators of this broker.
//!
//! Runs on every shard behind the load of all shards, and holds the start up for `RECONCILE_WAIT_MS` at most: a
//! coordinator whose disk has failed must not keep the broker away. What is not settled by then stays in doubt, so its
//! batches are verified, and goes on in the background. Failure: a marker that cannot be written is tried again after a
//! pause, until a marker of somebody else ends the transaction.

use std::rc::Rc;
use std::time::Duration;

use futures_lite::future;
use oncilla_shards::batch::ControlKind;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{PartitionKey, ProducerEpoch};
use oncilla_shards::partition::EndMarker;
use oncilla_shards::txn::{Adopt, Adopted};

use super::adopt;
use crate::ctx::Ctx;
use crate::partitions::write_markers;
use crate::rt::{join_all, oneshot, sleep, spawn};

/// Longest time for which a start waits.
const RECONCILE_WAIT_MS: u64 = 5_000;

/// Pause before what could not be settled is tried again.
const PAUSE_MS: u64 = 1_000;

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
    match adopt(ctx, found.clone()).await {
        Adopted::Yes => ctx.shard.borrow_mut().adopted(found),
        Adopted::Abort(epoch) => abort(ctx, found, epoch).await,
    }
}

/// Ends what nobody else will. A partition where the producer has moved on meanwhile is asked about again.
async fn abort(ctx: &Rc<Ctx>, found: &Adopt, epoch: ProducerEpoch) {
    let producer_id = found.producer.producer_id;
    let marker = EndMarker {
        producer_id,
        epoch,
        coordinator_epoch: ctx.boot_epoch.0,
        transaction_version: 0,
        kind: ControlKind::Abort,
    };
    let still: Vec<PartitionKey> = {
        let doubted = ctx.shard.borrow().doubted();
        let same = doubted.into_iter().filter(|now| now.producer == found.producer).flat_map(|now| now.partitions);
        same.filter(|key| found.partitions.contains(key)).collect()
    };
    for answer in write_markers(ctx, still.into_iter().map(|key| (key, marker)).collect()).await {
        let (partition, code) = (answer.partition, answer.code);
        match code {
            ErrorCode::None => tracing::info!(%partition, producer_id = producer_id.0, "a lost transaction is aborted"),
            _ => tracing::warn!(%partition, producer_id = producer_id.0, ?code, "a lost transaction is still open"),
        }
    }
}
