//! What a partition's directory holds after any crash, found and put in order before anything of it is served.
//!
//! Owner: the thread that starts the partition; all of it blocks, and nothing else may touch the directory meanwhile.
//! A segment whose indexes prove that it was sealed (`indexes`) is taken by its size. Any other is read batch by
//! batch and cut, durably, where the first batch fails; then it gets its indexes and is sealed too. What was aborted
//! in a segment without a usable list comes from the replay, which then begins at a snapshot that lies before that
//! segment. A start therefore never appends to an old segment, and nothing behind a bad batch of a segment is ever
//! served.
//! Segments that do not continue the log (after a hole, or inside it) are renamed to `.damaged`, with a log line, never
//! deleted; so is a copy of what was cut from a segment that had been sealed. Where the first segment is gone, the log
//! starts later, as after a removal, but with a log line. An exchange of segments by compaction is finished or undone
//! first (`compaction`); only a cleaned segment may have gaps between its batches and batches of several epochs.
//! Failure: an error leaves the directory in a state from which recovery starts again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::path::Path;

use memmap2::Mmap;
use oncilla_shards::batch::scan::{Stop, scan};
use oncilla_shards::ids::{LeaderEpoch, Offset, TimestampMs};
use oncilla_shards::partition::{AbortedIndex, IndexedBatch, SegmentId, SegmentIndex};
use oncilla_shards::producers::AbortedTxn;

use super::indexes::{read_aborted_blocking, read_index_blocking, write_aborted_blocking, write_index_blocking};
use super::layout::{DAMAGED_SUFFIX, SegmentFile, SegmentPaths, parse_segment_file};
use super::remove_aside::{set_aside_blocking, sweep_blocking};
use super::replace::{remove_leftovers_blocking, replace_blocking, sync_parent};
use super::{DiskError, compaction, context, log_start, snapshot_file};

/// What recovery needs to know of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSpan {
    /// Its length, header included.
    pub bytes: usize,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset after its last record.
    pub next_offset: Offset,
    /// Leader epoch it was written at.
    pub leader_epoch: LeaderEpoch,
    /// Largest timestamp in it.
    pub max_timestamp: TimestampMs,
}

/// What the core says about bytes and about producers.
pub trait RecoveryRules {
    /// The batch that `bytes` starts with, if its length, magic and CRC are right; otherwise what is wrong.
    fn verify(&self, bytes: &[u8]) -> Result<BatchSpan, String> {
        verify_batch(bytes)
    }

    /// Whether a producer snapshot can be restored.
    fn is_usable_snapshot(&self, bytes: &[u8]) -> bool;

    /// Called before any batch: the producer state to begin with, `None` for none. Called again, to begin anew, if
    /// the replay finds damage.
    fn restore(&mut self, snapshot: Option<&[u8]>);

    /// Called for every batch that the snapshot does not cover, in order; gives the transaction that a marker aborted.
    fn replay(&mut self, batch: &[u8]) -> Option<AbortedTxn>;
}

/// The batch that `bytes` starts with, as the core reads it; otherwise what is wrong.
pub fn verify_batch(bytes: &[u8]) -> Result<BatchSpan, String> {
    let mut scan = scan(bytes);
    let Some((_, header)) = scan.next() else {
        return Err(match scan.stopped() {
            Some(Stop::Cut) => "a batch ends behind the file".into(),
            Some(Stop::Crc) => "a batch's checksum is wrong".into(),
            Some(Stop::Offsets) => "a batch's offsets are wrong".into(),
            Some(Stop::Zeros | Stop::Header | Stop::End) | None => "no batch begins here".into(),
        });
    };
    Ok(BatchSpan {
        bytes: header.total_bytes(),
        base_offset: header.base_offset,
        next_offset: header.next_offset(),
        leader_epoch: header.leader_epoch,
        max_timestamp: header.newest_timestamp(),
    })
}

/// A segment that is whole and sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredSegment {
    /// Which one.
    pub name: SegmentId,
    /// Its length.
    pub bytes: u64,
    /// Offset after its last record.
    pub next_offset: Offset,
    /// Largest timestamp in it.
    pub max_timestamp: TimestampMs,
    /// Its indexes.
    pub index: SegmentIndex,
    /// The aborted transactions whose markers are in it.
    pub aborted: AbortedIndex,
}

/// Bytes that recovery took out of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Of which segment.
    pub segment: SegmentId,
    /// From which byte on.
    pub position: u64,
    /// How many, without the zeros that follow a tail anyway.
    pub bytes: u64,
    /// What was wrong.
    pub reason: String,
}

/// A partition that is ready to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredPartition {
    /// Its segments, oldest first, each continuing the one before.
    pub segments: Vec<RecoveredSegment>,
    /// First offset that may be read.
    pub log_start: Offset,
    /// Offset of the next record: where the first append opens a segment.
    pub log_end: Offset,
    /// Where each leader epoch begins, oldest first.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// How far compaction has gone.
    pub cleaned_to: Offset,
    /// What was cut, for metrics and the log.
    pub cuts: Vec<Cut>,
    /// Names that were set aside as `.damaged`.
    pub set_aside: Vec<String>,
}

/// Recovers the partition in `partition`; see the module for what that does. Blocks.
pub fn recover_partition(partition: &Path, rules: &mut dyn RecoveryRules) -> Result<RecoveredPartition, DiskError> {
    remove_leftovers_blocking(partition)?;
    sweep_blocking(partition)?;
    let compaction = compaction::recover_blocking(partition)?;
    let stored_start = log_start::read_blocking(partition)?;
    let mut recovery = Recovery { partition, cuts: vec![], set_aside: vec![], unlisted: BTreeSet::new() };
    let mut segments: Vec<RecoveredSegment> = Vec::new();
    for (name, had_index) in recovery.list(stored_start)? {
        if let Some(last) = segments.last()
            && last.next_offset != name.base
        {
            let reason = format!("it starts at {}, the log before it ends at {}", name.base, last.next_offset);
            recovery.set_segment_aside(name, &reason)?;
            continue;
        }
        if let Some(segment) = recovery.segment(name, had_index, &*rules)? {
            segments.push(segment);
        }
    }
    let first = segments.first().map(|s| s.name.base);
    if first > Some(stored_start.unwrap_or_default()) {
        let starts_at = first.unwrap_or_default();
        tracing::error!(partition = %partition.display(), %starts_at, "the beginning of the log is missing");
    }
    let log_start = stored_start.max(first).unwrap_or_default();
    recovery.replay(&mut segments, log_start, rules)?;
    let log_end = log_end(&segments, log_start);
    let names: Vec<SegmentId> = segments.iter().map(|segment| segment.name).collect();
    Ok(RecoveredPartition {
        segments,
        log_start,
        log_end,
        epochs: compaction::epoch_history(&compaction.epochs, &names, log_end),
        cleaned_to: compaction.cleaned_to.min(log_end),
        cuts: recovery.cuts,
        set_aside: recovery.set_aside,
    })
}

/// A log start beyond the last segment is where the log ends: offsets are never given out again.
fn log_end(segments: &[RecoveredSegment], log_start: Offset) -> Offset {
    segments.last().map_or(log_start, |s| s.next_offset.max(log_start))
}

struct Recovery<'a> {
    partition: &'a Path,
    cuts: Vec<Cut>,
    set_aside: Vec<String>,
    /// Segments whose aborted transactions the replay has to find.
    unlisted: BTreeSet<SegmentId>,
}

impl Recovery<'_> {
    /// Segments by base and epoch, with whether they have an offset index. Removed are indexes without a log, and
    /// segments that end below the log start: a crash interrupted their removal.
    fn list(&self, log_start: Option<Offset>) -> Result<Vec<(SegmentId, bool)>, DiskError> {
        let mut found: BTreeMap<SegmentId, (bool, bool)> = BTreeMap::new();
        for entry in context("list", self.partition, fs::read_dir(self.partition))? {
            let entry = context("list", self.partition, entry)?;
            if let Some((name, kind)) = entry.file_name().to_str().and_then(parse_segment_file) {
                let (has_log, has_index) = found.entry(name).or_default();
                *has_log |= kind == SegmentFile::Log;
                *has_index |= kind == SegmentFile::Index;
            }
        }
        for (name, _) in found.iter().filter(|(_, (has_log, _))| !has_log) {
            self.remove_indexes(*name)?;
        }
        found.retain(|_, (has_log, _)| *has_log);
        let names: Vec<SegmentId> = found.keys().copied().collect();
        for pair in names.windows(2) {
            if pair[0].base < pair[1].base && log_start.is_some_and(|start| pair[1].base <= start) {
                self.remove_segment(pair[0])?;
                found.remove(&pair[0]);
            }
        }
        Ok(found.into_iter().map(|(name, (_, has_index))| (name, has_index)).collect())
    }

    /// One segment, sealed; `None` if it holds nothing and was removed.
    fn segment(
        &mut self,
        name: SegmentId,
        had_index: bool,
        rules: &dyn RecoveryRules,
    ) -> Result<Option<RecoveredSegment>, DiskError> {
        let path = name.path(self.partition, SegmentFile::Log);
        let Some(log) = map(&path)? else {
            self.remove_segment(name)?;
            return Ok(None);
        };
        if had_index {
            let last_batch = |position, last_offset| last_batch_bytes(&log, position, last_offset, rules);
            match read_index_blocking(self.partition, name, log.len() as u64, &last_batch) {
                Ok(index) => return Ok(Some(self.recovered(name, index))),
                Err(reason) => tracing::warn!(segment = %path.display(), "the indexes are rebuilt: {reason}"),
            }
        }
        self.read_segment(name, had_index, &log, rules)
    }

    /// Reads a segment batch by batch, cuts and seals it.
    fn read_segment(
        &mut self,
        name: SegmentId,
        was_sealed: bool,
        log: &[u8],
        rules: &dyn RecoveryRules,
    ) -> Result<Option<RecoveredSegment>, DiskError> {
        let mut index = SegmentIndex::new(name.base);
        let stopped = walk(log, name, rules, &mut index);
        let valid = index.end();
        if valid < log.len() as u64 {
            self.cut(name, was_sealed, log, valid, &stopped)?;
        }
        if valid == 0 {
            self.remove_segment(name)?;
            return Ok(None);
        }
        let path = name.path(self.partition, SegmentFile::Log);
        // Also where nothing was cut: a relaxed topic's bytes may be in the page cache only.
        context("sync", &path, File::open(&path).and_then(|file| file.sync_all()))?;
        write_index_blocking(&index, self.partition, name)?;
        Ok(Some(self.recovered(name, index)))
    }

    fn recovered(&mut self, name: SegmentId, index: SegmentIndex) -> RecoveredSegment {
        let max_timestamp = index.max_timestamp().expect("a segment that is kept has a batch");
        let (bytes, next_offset) = (index.end(), index.next_offset());
        let aborted = read_aborted_blocking(self.partition, name, &index).unwrap_or_else(|reason| {
            tracing::debug!(segment = %name.file(SegmentFile::Log), "aborted transactions are looked for: {reason}");
            self.unlisted.insert(name);
            AbortedIndex::default()
        });
        RecoveredSegment { name, bytes, next_offset, max_timestamp, index, aborted }
    }

    fn cut(
        &mut self,
        name: SegmentId,
        was_sealed: bool,
        log: &[u8],
        valid: u64,
        reason: &str,
    ) -> Result<(), DiskError> {
        let path = name.path(self.partition, SegmentFile::Log);
        let rest = &log[valid as usize..];
        let bytes = rest.iter().rposition(|b| *b != 0).map_or(0, |last| last as u64 + 1);
        if bytes > 0 {
            tracing::warn!(segment = %path.display(), position = valid, bytes, "the log ends here: {reason}");
            if was_sealed {
                let copy = format!("{}.{valid}{DAMAGED_SUFFIX}", name.file(SegmentFile::Log));
                replace_blocking(&self.partition.join(&copy), &rest[..bytes as usize])?;
                self.set_aside.push(copy);
            }
            self.cuts.push(Cut { segment: name, position: valid, bytes, reason: reason.into() });
        }
        // The index that said otherwise goes first: a crash in between must not leave it beside a cut segment.
        self.remove_indexes(name)?;
        let file = context("open", &path, OpenOptions::new().write(true).open(&path))?;
        context("truncate", &path, file.set_len(valid))?;
        context("sync", &path, file.sync_all())
    }

    /// Restores the newest usable snapshot and replays what it does not cover; where a segment lacks its list of
    /// aborted transactions, one that lies before it. Every batch that is replayed is verified, so a segment found bad
    /// only now is cut, and those behind it are set aside.
    fn replay(
        &mut self,
        segments: &mut Vec<RecoveredSegment>,
        log_start: Offset,
        rules: &mut dyn RecoveryRules,
    ) -> Result<(), DiskError> {
        while let Some(bad) = self.replay_all(segments, log_start, rules)? {
            self.repair_from(segments, bad, rules)?;
        }
        for segment in segments.iter().filter(|segment| self.unlisted.contains(&segment.name)) {
            write_aborted_blocking(&segment.aborted, self.partition, segment.name, segment.bytes)?;
        }
        Ok(())
    }

    /// One replay; the number of the first segment that turned out to be damaged, if any.
    fn replay_all(
        &self,
        segments: &mut [RecoveredSegment],
        log_start: Offset,
        rules: &mut dyn RecoveryRules,
    ) -> Result<Option<usize>, DiskError> {
        let end = log_end(segments, log_start);
        let first = segments.first().map_or(end, |segment| segment.name.base);
        let begin = segments.iter().find(|segment| self.unlisted.contains(&segment.name)).map(|s| s.name.base);
        let newest = |wanted, rules: &dyn RecoveryRules| {
            snapshot_file::newest_usable_blocking(self.partition, wanted, end, &|bytes| rules.is_usable_snapshot(bytes))
        };
        let latest = newest(Offset(0)..=end, rules)?;
        let mut from = latest.as_ref().map_or(Offset(0), |(offset, _)| *offset);
        let mut snapshot = latest.as_ref().map(|(_, bytes)| bytes.as_slice());
        let older;
        if let Some(begin) = begin.filter(|begin| *begin < from) {
            // Between a snapshot and what is replayed nothing may be missing: a marker that is gone would leave its
            // transaction open.
            older = newest(first..=begin, rules)?;
            match &older {
                Some((offset, bytes)) => (from, snapshot) = (*offset, Some(bytes.as_slice())),
                None => {
                    // The log alone tells what was aborted in it, but not of producers whose records are gone.
                    rules.restore(None);
                    if let Some(bad) = self.replay_from(segments, Offset(0), rules)? {
                        return Ok(Some(bad));
                    }
                }
            }
        }
        let lists: Vec<AbortedIndex> = segments.iter().map(|segment| segment.aborted.clone()).collect();
        rules.restore(snapshot);
        let bad = self.replay_from(segments, from, rules)?;
        if begin.is_some_and(|begin| begin < from) {
            segments.iter_mut().zip(lists).for_each(|(segment, list)| segment.aborted = list);
        }
        Ok(bad)
    }

    /// Replays batches from `from` on; the number of the first segment that turned out to be damaged, if any.
    fn replay_from(
        &self,
        segments: &mut [RecoveredSegment],
        from: Offset,
        rules: &mut dyn RecoveryRules,
    ) -> Result<Option<usize>, DiskError> {
        for (i, segment) in segments.iter_mut().enumerate().filter(|(_, s)| s.next_offset > from) {
            let is_unlisted = self.unlisted.contains(&segment.name);
            if is_unlisted {
                segment.aborted = AbortedIndex::default();
            }
            let path = segment.name.path(self.partition, SegmentFile::Log);
            let Some(log) = map(&path)? else { return Ok(Some(i)) };
            let mut position = segment.index.position_of(from.max(segment.name.base)) as usize;
            // Base offset and leader epoch are outside the CRC: the file's name and the batch before must vouch for
            // them. Only where the replay starts inside a segment does no batch before tell the first one's offset.
            let mut next = if position == 0 { Some(segment.name.base) } else { None };
            while position < log.len() {
                let Ok(span) = rules.verify(&log[position..]) else { return Ok(Some(i)) };
                let continues = match next {
                    Some(next) => continues(segment.name, &span, next) && has_epoch_of(segment.name, &span),
                    None => span.base_offset <= from && has_epoch_of(segment.name, &span),
                };
                if !continues {
                    return Ok(Some(i));
                }
                if span.base_offset >= from
                    && let Some(aborted) = rules.replay(&log[position..position + span.bytes])
                    && is_unlisted
                {
                    segment.aborted.push(aborted);
                }
                position += span.bytes;
                next = Some(span.next_offset);
            }
            if next != Some(segment.next_offset) {
                return Ok(Some(i));
            }
        }
        Ok(None)
    }

    fn repair_from(
        &mut self,
        segments: &mut Vec<RecoveredSegment>,
        bad: usize,
        rules: &dyn RecoveryRules,
    ) -> Result<(), DiskError> {
        let later = segments.split_off(bad + 1);
        let name = segments.pop().expect("the damaged segment is in the list").name;
        let repaired = match map(&name.path(self.partition, SegmentFile::Log))? {
            Some(log) => self.read_segment(name, true, &log, rules)?,
            None => None,
        };
        segments.extend(repaired);
        for segment in later {
            self.set_segment_aside(segment.name, "a segment before it is damaged")?;
        }
        Ok(())
    }

    fn set_segment_aside(&mut self, name: SegmentId, reason: &str) -> Result<(), DiskError> {
        let path = name.path(self.partition, SegmentFile::Log);
        tracing::error!(segment = %path.display(), "a segment does not continue the log and is set aside: {reason}");
        if set_aside_blocking(&path, DAMAGED_SUFFIX)?.is_some() {
            self.set_aside.push(format!("{}{DAMAGED_SUFFIX}", name.file(SegmentFile::Log)));
        }
        self.remove_indexes(name)
    }

    fn remove_segment(&self, name: SegmentId) -> Result<(), DiskError> {
        let path = name.path(self.partition, SegmentFile::Log);
        tracing::debug!(segment = %path.display(), "a segment that holds nothing to keep is removed");
        context("remove", &path, fs::remove_file(&path))?;
        self.remove_indexes(name)
    }

    fn remove_indexes(&self, name: SegmentId) -> Result<(), DiskError> {
        for kind in [SegmentFile::Index, SegmentFile::TimeIndex, SegmentFile::Aborted] {
            let path = name.path(self.partition, kind);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(DiskError::new("remove", &path, &error));
                }
                _ => {}
            }
        }
        sync_parent(&name.path(self.partition, SegmentFile::Index))
    }
}

/// Length of the batch at `position`, if it is right and ends with `last_offset`.
fn last_batch_bytes(log: &[u8], position: u64, last_offset: Offset, rules: &dyn RecoveryRules) -> Option<usize> {
    let span = rules.verify(log.get(position as usize..)?).ok()?;
    (span.next_offset == last_offset.plus(1)).then_some(span.bytes)
}

/// Notes every batch that is right and continues the one before; says why the first other one does not.
fn walk(log: &[u8], name: SegmentId, rules: &dyn RecoveryRules, index: &mut SegmentIndex) -> String {
    while index.end() < log.len() as u64 {
        let position = index.end();
        let rest = &log[position as usize..];
        let span = match rules.verify(rest) {
            Ok(span) => span,
            Err(reason) => return reason,
        };
        if span.bytes == 0 || span.bytes > rest.len() {
            return format!("a batch of {} bytes where {} are left", span.bytes, rest.len());
        }
        let last_offset = span.next_offset.plus(-1);
        if !continues(name, &span, index.next_offset()) {
            return format!("batch {}..{} after offset {}", span.base_offset, span.next_offset, index.next_offset());
        }
        if !has_epoch_of(name, &span) {
            return format!("a batch of leader epoch {} in a segment of epoch {}", span.leader_epoch, name.epoch);
        }
        if !index.can_hold(last_offset, position + span.bytes as u64) {
            return "the segment is larger than its indexes can say".into();
        }
        let max_timestamp = span.max_timestamp;
        index.observe(IndexedBatch { position, bytes: span.bytes, last_offset, max_timestamp });
    }
    String::new()
}

/// Whether a batch stands where the one before, which ends at `next`, lets it. Compaction leaves gaps.
fn continues(name: SegmentId, span: &BatchSpan, next: Offset) -> bool {
    let follows = if name.generation == 0 { span.base_offset == next } else { span.base_offset >= next };
    follows && span.next_offset > span.base_offset
}

/// Whether a batch is of the segment's leader epoch. A cleaned one may go on with the epochs of what it took in.
fn has_epoch_of(name: SegmentId, span: &BatchSpan) -> bool {
    if name.generation == 0 { span.leader_epoch == name.epoch } else { span.leader_epoch >= name.epoch }
}

/// The file's bytes, `None` for an empty file.
fn map(path: &Path) -> Result<Option<Mmap>, DiskError> {
    let file = context("open", path, File::open(path))?;
    if context("stat", path, file.metadata())?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the directory's lock is held and the partition is not served yet, so nothing shrinks or writes the file
    // while it is mapped, except `cut`, whose caller looks only at the part before the cut afterwards.
    context("map", path, unsafe { Mmap::map(&file) }).map(Some)
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
