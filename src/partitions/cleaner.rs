//! The cleaner of one shard: compacts the partition that needs it most, again and again, a little at a time.
//!
//! The core says what is dirty and what becomes of each batch (`oncilla_shards::compaction`); this task reads, writes
//! and exchanges segments (`disk::compaction`). One partition is cleaned at a time. Limits: the shard's part of
//! `log.cleaner.dedupe.buffer.size` and of `log.cleaner.io.max.bytes.per.second`, and `CLEAN_TURN_BYTES_MAX` bytes
//! before others get their turn.
//! Failure: a partition whose clean fails is logged, counted and left alone until the next start; it serves on, and
//! what was exchanged before stays. A clean that is interrupted by the end of the broker, of the topic or of its
//! policy is done again later.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use oncilla_shards::batch::records::BadRecords;
use oncilla_shards::batch::{BatchHeader, ControlRecord, crc_matches, headers};
use oncilla_shards::compaction::{CompactionRules, Filter, HashSecret, Kept, Latest, Step};
use oncilla_shards::ids::{Offset, PartitionKey};
use oncilla_shards::limits::CLEAN_TURN_BYTES_MAX;
use oncilla_shards::partition::{Dirty, Partition, Segment, SegmentId, Source};
use oncilla_shards::producers::AbortedTxn;

use super::cleaned_file::CleanedFile;
use super::reader::{Place, Unread, scan_step};
use crate::ctx::Ctx;
use crate::disk::DiskError;
use crate::disk::compaction::{self, Compaction, Exchange};
use crate::disk::indexes::write_indexes_blocking;
use crate::disk::layout::{SegmentFile, SegmentPaths};
use crate::rt::file::blocking;
use crate::rt::{now, now_ms, sleep, spawn, yield_by_timer};

/// Why a clean did not come to its end.
#[derive(Debug)]
enum Ended {
    /// Its partition or the broker is going away, or is not compacted any more.
    Interrupted,
    /// Something is wrong.
    Failed(String),
}

impl From<DiskError> for Ended {
    fn from(error: DiskError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<BadRecords> for Ended {
    fn from(error: BadRecords) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Partitions of a shard that are left alone because their clean failed.
pub(super) type Failed = RefCell<std::collections::BTreeSet<PartitionKey>>;

/// Starts the cleaner of a shard.
pub fn start_cleaner(ctx: &Rc<Ctx>) {
    if !ctx.config.cleaner_enable {
        return;
    }
    let ctx = ctx.clone();
    spawn(async move {
        let failed = Failed::default();
        while !ctx.stopping.get() {
            if !clean_dirtiest(&ctx, &failed).await {
                sleep(Duration::from_millis(ctx.config.cleaner_backoff_ms)).await;
            }
        }
    });
}

/// Cleans the partition that needs it most; says whether one did and went well.
pub(super) async fn clean_dirtiest(ctx: &Rc<Ctx>, failed: &Failed) -> bool {
    let Some((key, dirty, rules)) = dirtiest(ctx, failed) else { return false };
    match clean(ctx, key, dirty, rules).await {
        Ok(cleaned_to) => {
            ctx.metrics.cleaner_runs.add(1);
            tracing::debug!(partition = %key, from = %dirty.from, %cleaned_to, "a log was compacted");
            cleaned_to > dirty.from
        }
        Err(Ended::Interrupted) => false,
        Err(Ended::Failed(_)) if super::writer::is_gone(ctx, &key) => false,
        Err(Ended::Failed(why)) => {
            ctx.metrics.cleaner_failures.add(1);
            failed.borrow_mut().insert(key);
            let image = ctx.image();
            let topic = image.topic_by_id(key.topic).map_or("?", |topic| &topic.name);
            tracing::error!(topic, partition = key.index, "the log is not compacted until the next start: {why}");
            false
        }
    }
}

/// The partition with the largest dirty share of those that are due; overdue ones first.
fn dirtiest(ctx: &Rc<Ctx>, failed: &Failed) -> Option<(PartitionKey, Dirty, CompactionRules)> {
    let (shard, now) = (ctx.shard.borrow(), now_ms());
    let (mut found, mut ratio_max): (Option<(PartitionKey, Dirty, CompactionRules)>, f64) = (None, 0.0);
    for key in shard.keys() {
        let Some(partition) = shard.partition(&key) else { continue };
        let (Some(dirty), Some(rules)) = (partition.dirty(now), partition.rules().compaction) else { continue };
        ratio_max = ratio_max.max(dirty.ratio());
        let rank = |dirty: &Dirty| (dirty.is_overdue, dirty.ratio());
        let is_first = found.as_ref().is_none_or(|(_, best, _)| rank(&dirty) > rank(best));
        if dirty.is_due(&rules) && is_first && !failed.borrow().contains(&key) {
            found = Some((key, dirty, rules));
        }
    }
    ctx.metrics.cleaner_dirty_percent_max.set((ratio_max * 100.0) as u64);
    found
}

/// Cleans one partition, whatever its share of dirty bytes; says up to where. For tests and tools.
pub async fn clean_now(ctx: &Rc<Ctx>, key: PartitionKey) -> Result<Option<Offset>, String> {
    let found = {
        let shard = ctx.shard.borrow();
        let partition = shard.partition(&key);
        partition.and_then(|partition| Some((partition.dirty(now_ms())?, partition.rules().compaction?)))
    };
    let Some((dirty, rules)) = found else { return Ok(None) };
    match clean(ctx, key, dirty, rules).await {
        Ok(end) => Ok(Some(end)),
        Err(Ended::Interrupted) => Ok(None),
        Err(Ended::Failed(why)) => Err(why),
    }
}

async fn clean(ctx: &Rc<Ctx>, key: PartitionKey, dirty: Dirty, rules: CompactionRules) -> Result<Offset, Ended> {
    let directory = ctx.files.directory(ctx, &key).ok_or(Ended::Interrupted)?;
    let mut run = Run { ctx, key, directory, pace: Pace::new(ctx), turn_bytes: 0 };
    let bytes_max = ctx.config.cleaner_dedupe_bytes / usize::from(ctx.config.shards);
    let mut latest = Latest::new(dirty.from, dirty.end, bytes_max, secret());
    run.first_pass(&mut latest, dirty).await?;
    if latest.end() <= dirty.from {
        return Ok(dirty.from);
    }
    let mut filter = Filter::new(latest, now_ms(), rules.delete_retention_ms);
    let end = filter.end();
    let groups = run.on_partition(|partition| partition.clean_groups(end))?;
    let mut is_kept = false;
    for (n, group) in groups.iter().enumerate() {
        // The log is clean up to `end` as soon as the last exchange counts.
        let cleaned_to = (n + 1 == groups.len()).then_some(end);
        is_kept = run.second_pass(&mut filter, group, cleaned_to).await? && cleaned_to.is_some();
    }
    if !is_kept {
        run.keep(Compaction { cleaned_to: end, epochs: run.epochs(end)?, exchange: None }).await?;
    }
    if let Some(partition) = ctx.shard.borrow_mut().partition_mut(&key) {
        partition.set_cleaned_to(end);
    }
    Ok(end)
}

/// Nobody may know which keys collide.
fn secret() -> HashSecret {
    let state = RandomState::new();
    HashSecret([state.hash_one(0), state.hash_one(1)])
}

/// How fast a clean may go.
struct Pace {
    began: Instant,
    bytes: u64,
    bytes_per_second_max: Option<u64>,
}

impl Pace {
    fn new(ctx: &Ctx) -> Self {
        let shards = u64::from(ctx.config.shards);
        let bytes_per_second_max = ctx.config.cleaner_io_bytes_per_second_max.map(|all| (all / shards).max(1));
        Self { began: now(), bytes: 0, bytes_per_second_max }
    }

    /// How long to wait after `bytes` more.
    fn after(&mut self, bytes: u64) -> Option<Duration> {
        self.bytes += bytes;
        let seconds = self.bytes as f64 / self.bytes_per_second_max? as f64;
        // Far beyond any sensible rate; a sleep looks for the end of the broker once in a while anyway.
        let due = Duration::from_secs_f64(seconds.min(1e9));
        due.checked_sub(self.began.elapsed()).filter(|wait| !wait.is_zero())
    }
}

/// One clean of one partition.
struct Run<'a> {
    ctx: &'a Rc<Ctx>,
    key: PartitionKey,
    directory: PathBuf,
    pace: Pace,
    turn_bytes: usize,
}

/// Where a look ahead is.
struct Ahead {
    source: Option<Source>,
    position: u64,
}

impl Run<'_> {
    fn on_partition<T>(&self, look: impl FnOnce(&Partition) -> T) -> Result<T, Ended> {
        let shard = self.ctx.shard.borrow();
        let partition = shard.partition(&self.key).filter(|partition| {
            partition.rules().compaction.is_some() && !partition.is_offline() && !self.ctx.stopping.get()
        });
        partition.map(look).ok_or(Ended::Interrupted)
    }

    /// The next whole batches of a segment; `None` at its end.
    async fn read(&mut self, source: &Source, position: u64) -> Result<Option<Bytes>, Ended> {
        self.on_partition(|_| ())?;
        let place = Place { key: self.key, segment: source.id, position, segment_bytes: source.bytes };
        let batches = match scan_step(self.ctx, place).await {
            Ok(batches) => batches,
            // Only this task exchanges segments, so the log start has passed it.
            Err(Unread::Replaced | Unread::Code(oncilla_shards::code::ErrorCode::UnknownTopicOrPartition)) => {
                return Err(Ended::Interrupted);
            }
            Err(Unread::Code(code)) => {
                return Err(Ended::Failed(format!("segment {} could not be read: {code:?}", source.id.base)));
            }
        };
        self.ctx.metrics.cleaner_read_bytes.add(batches.len() as u64);
        self.wait(batches.len() as u64).await?;
        Ok((!batches.is_empty()).then_some(batches))
    }

    /// Keeps to the rate.
    async fn wait(&mut self, bytes: u64) -> Result<(), Ended> {
        const LONGEST: Duration = Duration::from_millis(500);
        while let Some(wait) = self.pace.after(0) {
            sleep(wait.min(LONGEST)).await;
            self.on_partition(|_| ())?;
        }
        self.pace.after(bytes);
        Ok(())
    }

    /// Gives others their turn after enough work.
    async fn worked(&mut self, bytes: usize) {
        self.turn_bytes += bytes;
        if self.turn_bytes >= CLEAN_TURN_BYTES_MAX {
            self.turn_bytes = 0;
            yield_by_timer().await;
        }
    }

    async fn first_pass(&mut self, latest: &mut Latest, dirty: Dirty) -> Result<(), Ended> {
        let mut ahead: Option<Ahead> = None;
        for source in self.on_partition(|partition| partition.sources(dirty.from, dirty.end))? {
            let mut position = 0;
            while let Some(batches) = self.read(&source, position).await? {
                position += batches.len() as u64;
                for (batch, header) in each(&batches) {
                    if !crc_matches(&batch) {
                        return Err(damaged(&source));
                    }
                    if latest.needs_look_ahead(&header) {
                        self.look_ahead(latest, &header, ahead.get_or_insert_with(Ahead::new), dirty.from).await?;
                    }
                    if latest.add(&batch)? == Step::Full {
                        return Ok(());
                    }
                    self.worked(batch.len()).await;
                }
            }
        }
        Ok(())
    }

    /// Shows what lies ahead until the fate of `header`'s transaction is known: its marker is below the high watermark.
    async fn look_ahead(
        &mut self,
        latest: &mut Latest,
        header: &BatchHeader,
        ahead: &mut Ahead,
        from: Offset,
    ) -> Result<(), Ended> {
        while latest.needs_look_ahead(header) {
            let source = match ahead.source {
                Some(source) => source,
                None => {
                    let next = latest.looked_to().max(from);
                    let sources = self.on_partition(|partition| {
                        let end = partition.high_watermark();
                        partition.sources(next, end).into_iter().next()
                    })?;
                    let undecided = || Ended::Failed("a transaction below the stable offset has no marker".into());
                    let source = sources.ok_or_else(undecided)?;
                    (ahead.source, ahead.position) = (Some(source), 0);
                    source
                }
            };
            let Some(batches) = self.read(&source, ahead.position).await? else {
                ahead.source = None;
                continue;
            };
            ahead.position += batches.len() as u64;
            for (batch, ahead) in each(&batches).filter(|(_, header)| header.next_offset() > from) {
                latest.look_ahead(&ahead, ControlRecord::of_batch(&batch));
            }
            self.worked(batches.len()).await;
        }
        Ok(())
    }

    /// Writes what stays of a group of segments as one and puts it in their place, which says so. One segment in which
    /// nothing changes is left alone.
    async fn second_pass(
        &mut self,
        filter: &mut Filter,
        group: &[Source],
        cleaned_to: Option<Offset>,
    ) -> Result<bool, Ended> {
        let mut out = None;
        let filtered = self.filter(filter, group, &mut out).await;
        let Some(file) = out else { return filtered.map(|()| false) };
        self.ctx.metrics.cleaner_written_bytes.add(file.bytes());
        if let Err(ended) = filtered {
            file.discard().await;
            return Err(ended);
        }
        let segment = file.finish().await?;
        self.exchange(group, segment, cleaned_to).await?;
        Ok(true)
    }

    /// Copies what stays, into a file that is there only if something goes or changes, or if segments become one.
    async fn filter(
        &mut self,
        filter: &mut Filter,
        group: &[Source],
        out: &mut Option<CleanedFile>,
    ) -> Result<(), Ended> {
        let end = group.last().expect("a group has segments").next;
        for source in group {
            let mut position = 0;
            while let Some(batches) = self.read(source, position).await? {
                let mut before = out.as_ref().map_or(0, CleanedFile::bytes);
                for (batch, header) in each(&batches) {
                    if !crc_matches(&batch) {
                        return Err(damaged(source));
                    }
                    let is_last = header.next_offset() == end;
                    let (kept, aborted) = self.on_partition(|partition| {
                        let kept = filter.batch(&batch, is_last, partition.producers(), partition.high_watermark())?;
                        Ok::<_, BadRecords>((kept, aborted_by(partition, &header)))
                    })??;
                    if out.is_none() && (group.len() > 1 || kept != Kept::Same) {
                        self.begin_copy(group, position, out).await?;
                        before = position;
                    }
                    position += batch.len() as u64;
                    match (kept, out.as_mut()) {
                        (Kept::Same, Some(out)) => out.push(&batch, aborted).await?,
                        (Kept::Rewritten(batch), Some(out)) => {
                            // A list entry without its marker would hide what the producer committed later.
                            let aborted = aborted.filter(|_| ControlRecord::of_batch(&batch).is_some());
                            out.push(&batch, aborted).await?;
                        }
                        (Kept::Gone, _) | (_, None) => {}
                    }
                    self.worked(batch.len()).await;
                }
                self.wait(out.as_ref().map_or(0, CleanedFile::bytes) - before).await?;
            }
        }
        Ok(())
    }

    /// Creates what takes the place of a group, with the first `unchanged` bytes of its first segment as they are.
    async fn begin_copy(
        &mut self,
        group: &[Source],
        unchanged: u64,
        out: &mut Option<CleanedFile>,
    ) -> Result<(), Ended> {
        let first = &group[0];
        let newest = group.iter().map(|source| source.id.generation).max().expect("a group has segments");
        let cleaned = SegmentId { generation: newest + 1, ..first.id };
        let opened_at = group.iter().map(|source| source.opened_at).max().expect("a group has segments");
        let path = compaction::unfinished_path(&self.directory, cleaned);
        let out = out.insert(CleanedFile::create(path, cleaned, opened_at, self.ctx.files.mode).await?);
        while out.bytes() < unchanged {
            let before = out.bytes();
            let Some(batches) = self.read(first, before).await? else { return Err(damaged(first)) };
            for (batch, header) in each(&batches) {
                if out.bytes() == unchanged {
                    break;
                }
                if !crc_matches(&batch) {
                    return Err(damaged(first));
                }
                let aborted = self.on_partition(|partition| aborted_by(partition, &header))?;
                out.push(&batch, aborted).await?;
                self.worked(batch.len()).await;
            }
            self.wait(out.bytes() - before).await?;
        }
        Ok(())
    }

    /// Makes the cleaned segment count, and with it `cleaned_to` if it is the last one of its clean.
    async fn exchange(&mut self, group: &[Source], segment: Segment, cleaned_to: Option<Offset>) -> Result<(), Ended> {
        let sources: Vec<SegmentId> = group.iter().map(|source| source.id).collect();
        let exchange = Exchange { cleaned: segment.id, sources };
        let before = self.on_partition(|partition| partition.cleaned_to())?;
        let cleaned_to = cleaned_to.unwrap_or(before);
        let epochs = self.epochs(segment.next_offset().max(cleaned_to))?;
        let (directory, indexed) = (self.directory.clone(), segment.clone());
        let id = segment.id;
        blocking(move || write_indexes_blocking(&indexed, &directory)).await?;
        self.keep(Compaction { cleaned_to, epochs, exchange: Some(exchange.clone()) }).await?;
        self.blocking(&exchange, compaction::put_in_place_blocking).await?;
        let is_in_place = self.ctx.shard.borrow_mut().cleaned(&self.key, &exchange.sources, segment);
        self.ctx.metrics.cache_bytes.set(self.ctx.shard.borrow().tail_bytes() as u64);
        for source in &exchange.sources {
            self.ctx.files.readers.forget(&source.path(&self.directory, SegmentFile::Log));
        }
        self.blocking(&exchange, compaction::remove_sources_blocking).await?;
        if !is_in_place {
            self.ctx.remover.remove_segment(&self.directory, id);
        }
        Ok(())
    }

    async fn blocking(
        &self,
        exchange: &Exchange,
        step: fn(&std::path::Path, &Exchange) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let (directory, exchange) = (self.directory.clone(), exchange.clone());
        blocking(move || step(&directory, &exchange)).await
    }

    /// The leader epochs that begin below `end`, or in what was cleaned before.
    fn epochs(&self, end: Offset) -> Result<Vec<(oncilla_shards::ids::LeaderEpoch, Offset)>, Ended> {
        self.on_partition(|partition| {
            let end = end.max(partition.cleaned_to());
            partition.epochs().all().iter().copied().filter(|(_, start)| *start < end).collect()
        })
    }

    async fn keep(&self, state: Compaction) -> Result<(), Ended> {
        let directory = self.directory.clone();
        Ok(blocking(move || compaction::write_blocking(&directory, &state)).await?)
    }
}

impl Ahead {
    fn new() -> Self {
        Self { source: None, position: 0 }
    }
}

fn each(batches: &Bytes) -> impl Iterator<Item = (Bytes, BatchHeader)> + '_ {
    let mut at = 0;
    headers(batches).map(move |header| {
        let batch = batches.slice(at..at + header.total_bytes());
        at += header.total_bytes();
        (batch, header)
    })
}

/// The transaction that a marker aborted.
fn aborted_by(partition: &Partition, header: &BatchHeader) -> Option<AbortedTxn> {
    header.attributes.is_control().then(|| partition.segments().aborted_at(header.base_offset)).flatten()
}

fn damaged(source: &Source) -> Ended {
    Ended::Failed(format!("a batch of segment {} has a wrong checksum", source.id.base))
}
