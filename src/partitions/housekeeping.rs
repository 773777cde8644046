//! What a shard does for its partitions beside requests: retention, expiry of producers, syncs of relaxed topics, what
//! metrics tell of transactions, and the orderly end.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use oncilla_shards::ids::{Offset, PartitionKey};
use oncilla_shards::limits::METRICS_TRANSACTIONS_PERIOD_MS;
use oncilla_shards::partition::Partition;
use oncilla_shards::shard::Effects;

use super::writer::{go_offline, seal_now, sync_now};
use crate::ctx::Ctx;
use crate::disk::layout::{SegmentFile, SegmentPaths};
use crate::disk::{DiskError, log_start, snapshot_file};
use crate::rt::{now, now_ms, sleep, spawn};

/// Period at which relaxed topics are looked at: the grain of `flush.ms`.
const FLUSH_TICK_MS: u64 = 50;

/// Longest wait for what stands behind segments that are to be deleted to be durable.
const COVER_WAIT_MS: u64 = 5_000;

/// Starts the periodic work of a shard.
pub fn start_housekeeping(ctx: &Rc<Ctx>) {
    repeat(ctx, ctx.config.retention_check_interval_ms, |ctx| async move { retain_all(&ctx).await });
    repeat(ctx, ctx.config.producer_id_expiration_check_interval_ms, |ctx| async move { expire_all(&ctx) });
    repeat(ctx, METRICS_TRANSACTIONS_PERIOD_MS, |ctx| async move { note_transactions(&ctx) });
    repeat(ctx, FLUSH_TICK_MS, |ctx| async move { flush_all(&ctx).await });
}

fn repeat<F: Future<Output = ()> + 'static>(ctx: &Rc<Ctx>, period_ms: u64, work: impl Fn(Rc<Ctx>) -> F + 'static) {
    let ctx = ctx.clone();
    spawn(async move {
        while !ctx.stopping.get() {
            sleep(Duration::from_millis(period_ms.max(1))).await;
            work(ctx.clone()).await;
        }
    });
}

async fn retain_all(ctx: &Rc<Ctx>) {
    let keys = ctx.shard.borrow().keys();
    for key in keys {
        let target = {
            let shard = ctx.shard.borrow();
            shard.partition(&key).and_then(|partition| partition.retention_target(now_ms()))
        };
        if let Some(target) = target
            && let Err(error) = start_log_at(ctx, key, target).await
        {
            tracing::error!("retention failed and is tried again later: {error}");
        }
    }
}

/// Moves the log start of a partition: durable first, then visible, then the files go.
pub async fn start_log_at(ctx: &Rc<Ctx>, key: PartitionKey, start: Offset) -> Result<(), DiskError> {
    let Some(directory) = ctx.files.directory(ctx, &key) else { return Ok(()) };
    if !directory.exists() {
        return Ok(());
    }
    let ends_active = |partition: &Partition| {
        let active = partition.segments().active();
        active.is_some_and(|active| active.bytes() > 0 && active.next_offset() <= start)
    };
    cover_below(ctx, key, &directory, start).await?;
    log_start::write(&directory, start).await?;
    let ends_active = ctx.shard.borrow().partition(&key).is_some_and(ends_active);
    if ends_active {
        seal_now(ctx, key).await?;
    }
    let mut effects = Effects::new();
    let gone = ctx.shard.borrow_mut().set_log_start(&key, start, &mut effects);
    ctx.carry_out(effects);
    for segment in gone {
        ctx.files.readers.forget(&segment.path(&directory, SegmentFile::Log));
        ctx.remover.remove_segment(&directory, segment);
    }
    Ok(())
}

/// Makes sure that a snapshot covers the segments that end below `start`: once they are gone a start cannot replay what
/// they say of producers (contract A7, A8). None covers the active one, and that of a roll may have failed.
async fn cover_below(ctx: &Rc<Ctx>, key: PartitionKey, directory: &Path, start: Offset) -> Result<(), DiskError> {
    let gone_end = {
        let shard = ctx.shard.borrow();
        let Some(partition) = shard.partition(&key) else { return Ok(()) };
        let ends = partition.segments().all().iter().map(|segment| segment.next_offset());
        ends.filter(|end| *end <= start).max()
    };
    let Some(gone_end) = gone_end else { return Ok(()) };
    if snapshot_file::covers(directory, gone_end).await? {
        return Ok(());
    }
    let state = {
        let shard = ctx.shard.borrow();
        shard.partition(&key).map(|partition| (partition.next_offset(), partition.producers().snapshot()))
    };
    let Some((offset, snapshot)) = state else { return Ok(()) };
    let began = now();
    // A crash could take back the batches on their way to the disk, and a start drops what tells of them.
    while ctx.shard.borrow().partition(&key).is_some_and(|partition| !partition.is_durable(offset)) {
        if began.elapsed() > Duration::from_millis(COVER_WAIT_MS) {
            return Err(DiskError::invalid(
                "delete segments",
                directory,
                "the batches behind them are not durable yet",
            ));
        }
        sleep(Duration::from_millis(1)).await;
    }
    snapshot_file::write(directory, offset, snapshot).await
}

fn expire_all(ctx: &Rc<Ctx>) {
    let expiration_ms = expiration_ms(ctx);
    let mut left = 0;
    let keys = ctx.shard.borrow().keys();
    for key in keys {
        if let Some(partition) = ctx.shard.borrow_mut().partition_mut(&key) {
            partition.expire_producers(now_ms(), expiration_ms);
            left += partition.producers().len();
        }
    }
    ctx.metrics.producer_ids.set(left as u64);
}

/// Looks at the transactions that are open on the partitions of this shard, for the metrics.
pub(super) fn note_transactions(ctx: &Ctx) {
    let (mut open, mut lag_max, mut oldest) = (0, 0, None);
    let shard = ctx.shard.borrow();
    for partition in shard.keys().iter().filter_map(|key| shard.partition(key)) {
        open += partition.producers().open_transactions();
        lag_max = lag_max.max(partition.high_watermark().0 - partition.last_stable_offset().0);
        oldest = partition.producers().oldest_open().into_iter().chain(oldest).min();
    }
    let age_ms = oldest.map_or(0, |oldest| now_ms().0.saturating_sub(oldest.0));
    ctx.metrics.open_transactions.set(open as u64);
    ctx.metrics.open_transaction_age_ms_max.set(u64::try_from(age_ms).unwrap_or(0));
    ctx.metrics.last_stable_offset_lag_max.set(u64::try_from(lag_max).unwrap_or(0));
}

/// `producer.id.expiration.ms` as set at run time or at the start.
fn expiration_ms(ctx: &Ctx) -> i64 {
    let image = ctx.image();
    image.broker.number("producer.id.expiration.ms", Some(ctx.node())).unwrap_or(ctx.config.producer_id_expiration_ms)
}

async fn flush_all(ctx: &Rc<Ctx>) {
    let now = now_ms();
    let due: Vec<PartitionKey> = {
        let mut shard = ctx.shard.borrow_mut();
        shard.take_flushes(now)
    };
    for key in due {
        if let Err(error) = sync_now(ctx, key).await {
            go_offline(ctx, key, &error);
        }
    }
}

/// Seals every segment and writes the producers' state, so that the next start reads nothing again.
pub async fn close_all(ctx: &Rc<Ctx>) {
    let keys = ctx.shard.borrow().keys();
    for key in keys {
        if let Err(error) = close_one(ctx, key).await {
            tracing::warn!("a partition could not be closed and will be recovered at the next start: {error}");
        }
    }
}

async fn close_one(ctx: &Rc<Ctx>, key: PartitionKey) -> Result<(), DiskError> {
    // Nobody waits for records of acks=0: some may still be on their way to the disk.
    ctx.files.writing_ended(&[key]).await;
    let state = {
        let shard = ctx.shard.borrow();
        let open = shard.partition(&key).filter(|p| p.segments().active().is_some() && !p.is_offline());
        open.map(|partition| (partition.next_offset(), partition.producers().snapshot()))
    };
    let (Some((offset, snapshot)), Some(directory)) = (state, ctx.files.directory(ctx, &key)) else { return Ok(()) };
    seal_now(ctx, key).await?;
    snapshot_file::write(&directory, offset, snapshot).await
}
