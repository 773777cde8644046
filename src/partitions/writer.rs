//! The writer of one partition: takes what is pending, makes it durable in one write, reports, and goes on until
//! nothing is pending.
//!
//! It runs while there is something to write, so batches that arrive during a write are gathered into the next one
//! without a timer. Failure: the first failed write or sync ends it and takes the partition offline; nothing of that
//! write is acknowledged.

use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use oncilla_shards::batch::write_patched;
use oncilla_shards::ids::PartitionKey;
use oncilla_shards::partition::{SegmentId, WritePlan};
use oncilla_shards::shard::Effects;

use crate::ctx::Ctx;
use crate::disk::DiskError;
use crate::disk::replace::create_directory_blocking;
use crate::disk::segment_writer::{SegmentOptions, SegmentWriter};
use crate::rt::file::{BLOCK_BYTES, blocking};
use crate::rt::{now, now_ms, spawn};

/// Starts the writer of a partition that has something pending.
pub fn start_writer(ctx: &Rc<Ctx>, key: PartitionKey) {
    let ctx = ctx.clone();
    ctx.files.writing_begins(key);
    spawn(async move {
        write_all(&ctx, key).await;
        ctx.files.writing_ends(&key);
    });
}

/// Whether the topic of a partition was deleted meanwhile.
pub fn is_gone(ctx: &Ctx, key: &PartitionKey) -> bool {
    ctx.shard.borrow().partition(key).is_none()
}

/// Puts a writer back; that of a deleted topic is closed, for nobody would close it later.
fn give_back(ctx: &Ctx, key: PartitionKey, writer: SegmentWriter) {
    if is_gone(ctx, &key) {
        ctx.files.forget(&key);
    } else {
        ctx.files.put_writer(key, writer);
    }
}

async fn write_all(ctx: &Rc<Ctx>, key: PartitionKey) {
    loop {
        let plan = ctx.shard.borrow_mut().take_write(&key, now_ms());
        let Some(plan) = plan else { return };
        let started = now();
        let batches = plan.batches.len();
        let mut effects = Effects::new();
        match write(ctx, key, &plan).await {
            Ok(stored) => {
                note_write(ctx, started, batches, stored.len());
                let buffer_bytes = stored.len().next_multiple_of(BLOCK_BYTES);
                ctx.shard.borrow_mut().wrote(&key, stored, buffer_bytes, &mut effects);
                ctx.metrics.cache_bytes.set(ctx.shard.borrow().tail_bytes() as u64);
                ctx.carry_out(effects);
            }
            Err(error) => {
                go_offline(ctx, key, &error);
                return;
            }
        }
    }
}

fn note_write(ctx: &Ctx, started: Instant, batches: usize, bytes: usize) {
    let elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    ctx.metrics.durable_write_us.observe(elapsed_us);
    ctx.metrics.durable_write_bytes.add(bytes as u64);
    ctx.metrics.group_commit_batches.observe(batches as u64);
}

/// Takes a partition offline whose disk failed.
pub fn go_offline(ctx: &Rc<Ctx>, key: PartitionKey, error: &DiskError) {
    let mut effects = Effects::new();
    ctx.files.forget(&key);
    let known = ctx.shard.borrow().partition(&key).is_some();
    if known {
        let image = ctx.image();
        let topic = image.topic_by_id(key.topic).map_or("?", |topic| &topic.name);
        tracing::error!(
            topic,
            partition = key.index,
            "the partition takes no more appends until the broker is restarted: {error}"
        );
        ctx.metrics.partitions_offline.add(1);
    }
    ctx.shard.borrow_mut().write_failed(&key, &mut effects);
    ctx.carry_out(effects);
}

async fn write(ctx: &Rc<Ctx>, key: PartitionKey, plan: &WritePlan) -> Result<Bytes, DiskError> {
    let before = ctx.files.take_writer(&key).await;
    let mut writer = if plan.create {
        if let (Some(mut before), Some(sealed)) = (before, plan.seal) {
            // A relaxed topic's next segment may become durable at once; it must not do so before this one.
            if !before.is_durable() {
                before.sync().await?;
            }
            seal_behind(ctx, key, before, sealed);
        }
        open(ctx, key, plan).await?
    } else {
        before.ok_or_else(|| DiskError::invalid("append", ctx.files.data.root(), "the segment was closed"))?
    };
    let written = writer.append_with(plan.bytes, |out| copy_batches(plan, out)).await?;
    if plan.durable && !writer.is_durable() {
        writer.sync().await?;
    }
    assert_eq!(written.position, plan.position, "the core and the file agree on where the segment ends");
    give_back(ctx, key, writer);
    Ok(written.buffer)
}

fn copy_batches(plan: &WritePlan, out: &mut [u8]) {
    let mut at = 0;
    for (patch, sent) in &plan.batches {
        write_patched(sent, patch, &mut out[at..at + sent.len()]);
        at += sent.len();
    }
    assert_eq!(at, out.len(), "the batches of a write fill it: what is left unset would be old memory on the disk");
}

async fn open(ctx: &Rc<Ctx>, key: PartitionKey, plan: &WritePlan) -> Result<SegmentWriter, DiskError> {
    let gone = || DiskError::invalid("open", ctx.files.data.root(), "the topic was deleted");
    let directory = ctx.files.directory(ctx, &key).ok_or_else(gone)?;
    let (flush_messages, segment_bytes) = {
        let shard = ctx.shard.borrow();
        let rules = shard.partition(&key).ok_or_else(gone)?.rules();
        (rules.flush_messages, rules.append.segment_bytes)
    };
    if plan.segment.base.0 == 0 || !directory.exists() {
        let made = directory.clone();
        blocking(move || {
            if let Some(topic) = made.parent() {
                create_directory_blocking(topic)?;
            }
            create_directory_blocking(&made)
        })
        .await?;
    }
    let options = SegmentOptions {
        mode: ctx.files.mode,
        durable: flush_messages <= 1,
        segment_bytes: u64::try_from(segment_bytes).unwrap_or(0),
        faults: None,
    };
    SegmentWriter::create(&directory, plan.segment.base, plan.segment.epoch, options).await
}

/// Cuts the segment before to its size and writes its index, behind the appends that go on.
fn seal_behind(ctx: &Rc<Ctx>, key: PartitionKey, writer: SegmentWriter, sealed: SegmentId) {
    let segment = {
        let shard = ctx.shard.borrow();
        let segments = shard.partition(&key).map(|partition| partition.segments().all());
        segments.and_then(|all| all.iter().find(|segment| segment.id == sealed)).cloned()
    };
    // Retention may have removed it meanwhile: then there is nothing to seal.
    let Some(segment) = segment else { return };
    let ctx = ctx.clone();
    spawn(async move {
        if let Err(error) = writer.seal(&segment).await
            && !is_gone(&ctx, &key)
        {
            tracing::warn!(%error, "a full segment could not be sealed; the next start reads it as a whole");
        }
    });
}

/// Seals the active segment of a partition, so that the next start need not read it. Does nothing if a write waits for
/// the segment: it is not at its end then.
pub async fn seal_now(ctx: &Rc<Ctx>, key: PartitionKey) -> Result<(), DiskError> {
    let Some(writer) = ctx.files.take_writer(&key).await else { return Ok(()) };
    if ctx.shard.borrow().partition(&key).is_some_and(|partition| partition.is_writing()) {
        ctx.files.put_writer(key, writer);
        return Ok(());
    }
    ctx.files.forget(&key);
    let segment = {
        let mut shard = ctx.shard.borrow_mut();
        let Some(partition) = shard.partition_mut(&key) else { return Ok(()) };
        let Some(sealed) = partition.close_active() else { return Ok(()) };
        let all = partition.segments().all();
        all.iter().find(|segment| segment.id == sealed).cloned()
    };
    if let Some(segment) = segment {
        writer.seal(&segment).await?;
    }
    Ok(())
}

/// Makes what a relaxed topic has written durable.
pub async fn sync_now(ctx: &Rc<Ctx>, key: PartitionKey) -> Result<(), DiskError> {
    let Some(mut writer) = ctx.files.take_writer(&key).await else { return Ok(()) };
    let synced = writer.sync().await;
    give_back(ctx, key, writer);
    synced
}
