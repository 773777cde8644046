//! Compaction as the partition sees it: what is dirty, whether a clean is due, which segments become one, and what
//! follows when they have.
//!
//! Owned by the partition. Never cleaned are the active segment, what is not wholly below the last stable offset, and
//! what is younger than `min.compaction.lag.ms`. Only decides: the edges read and write, and report a cleaned segment
//! when its files are in place.

use super::{Partition, Segment, SegmentId};
use crate::compaction::CompactionRules;
use crate::ids::{Offset, TimestampMs};

/// The part of a log that a clean would go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dirty {
    /// Offset up to which the log is clean.
    pub from: Offset,
    /// Where the segments that may be cleaned end.
    pub end: Offset,
    /// Bytes before `from`.
    pub clean_bytes: u64,
    /// Bytes from there to the end.
    pub dirty_bytes: u64,
    /// Whether a record in it is older than `max.compaction.lag.ms`.
    pub is_overdue: bool,
}

impl Dirty {
    /// Share of the dirty bytes.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let all = self.clean_bytes + self.dirty_bytes;
        if all == 0 { 0.0 } else { self.dirty_bytes as f64 / all as f64 }
    }

    /// Whether a clean is due.
    #[must_use]
    pub fn is_due(&self, rules: &CompactionRules) -> bool {
        self.is_overdue || self.ratio() > rules.min_dirty_ratio
    }
}

/// A segment that is read by a clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Which.
    pub id: SegmentId,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Offset behind its last batch.
    pub next: Offset,
    /// When it was opened.
    pub opened_at: TimestampMs,
}

impl Partition {
    /// What is dirty; `None` if nothing is, or the topic is not compacted, or the disk has failed.
    #[must_use]
    pub fn dirty(&self, now: TimestampMs) -> Option<Dirty> {
        let rules = self.rules.compaction.filter(|_| !self.offline)?;
        let from = self.cleaned_to.max(self.log_start);
        let mut dirty = Dirty { from, end: from, clean_bytes: 0, dirty_bytes: 0, is_overdue: false };
        for segment in self.cleanable(now, &rules) {
            let clean_bytes = match segment.next_offset() {
                next if next <= from => segment.bytes(),
                _ => segment.index.position_of(from.max(segment.id.base)),
            };
            dirty.clean_bytes += clean_bytes;
            if segment.next_offset() > from {
                dirty.dirty_bytes += segment.bytes() - clean_bytes;
                dirty.end = segment.next_offset();
                let first = segment.index.first_timestamp().filter(|first| first.0 >= 0).unwrap_or(segment.opened_at);
                dirty.is_overdue |= now.0.saturating_sub(first.0) > rules.max_lag_ms;
            }
        }
        (dirty.end > from).then_some(dirty)
    }

    /// The segments that may be cleaned now, oldest first.
    fn cleanable(&self, now: TimestampMs, rules: &CompactionRules) -> impl Iterator<Item = &Segment> {
        let stable = self.last_stable_offset();
        let active = self.segments.active().map(|active| active.id);
        let (cleaned_to, min_lag_ms) = (self.cleaned_to, rules.min_lag_ms);
        self.segments.all().iter().take_while(move |segment| {
            let newest = segment.max_timestamp().filter(|newest| newest.0 >= 0).unwrap_or(segment.opened_at);
            let is_young = min_lag_ms > 0 && now.0.saturating_sub(newest.0) < min_lag_ms;
            let may = segment.next_offset() <= cleaned_to || !is_young;
            active != Some(segment.id) && segment.bytes() > 0 && segment.next_offset() <= stable && may
        })
    }

    /// What the first pass of a clean reads: the segments with something from `from` on, below `end`.
    #[must_use]
    pub fn sources(&self, from: Offset, end: Offset) -> Vec<Source> {
        let holds = |segment: &&Segment| segment.next_offset() > from && segment.id.base < end;
        self.segments.all().iter().filter(holds).map(source).collect()
    }

    /// What the second pass reads: all segments with something below `end`, in groups that become one segment each, of
    /// at most `segment.bytes` before anything is dropped.
    #[must_use]
    pub fn clean_groups(&self, end: Offset) -> Vec<Vec<Source>> {
        let bytes_max = u64::try_from(self.rules.append.segment_bytes).unwrap_or(0);
        let mut groups: Vec<Vec<Source>> = Vec::new();
        let mut bytes = 0;
        for source in self.sources(self.log_start, end) {
            let base = groups.last().map(|group| group[0].id.base);
            let fits = base.is_some_and(|base| i32::try_from(source.next.0 - base.0).is_ok());
            match groups.last_mut() {
                Some(group) if fits && bytes + source.bytes <= bytes_max => {
                    bytes += source.bytes;
                    group.push(source);
                }
                _ => {
                    bytes = source.bytes;
                    groups.push(vec![source]);
                }
            }
        }
        groups
    }

    /// A cleaned segment has taken the place of its sources on the disk, for good. Says whether it did here too: the
    /// log start may have passed them all meanwhile. The tail cache forgets what it has of them, `drop_tail_below`.
    pub fn cleaned(&mut self, sources: &[SegmentId], segment: Segment) -> bool {
        let is_in_place = self.segments.replace(sources, segment);
        self.exchanges += u64::from(is_in_place);
        is_in_place
    }

    /// How often a cleaned segment took the place of others: who read across one knows aborted transactions that were
    /// there before it, or after it.
    #[must_use]
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// Drops the part of the tail cache that begins below `end`; returns the number of entries and their charge.
    pub fn drop_tail_below(&mut self, end: Offset) -> (usize, usize) {
        self.tail.drop_below(end)
    }

    /// A clean is done: the log is clean up to `end`, and durably known to be.
    pub fn set_cleaned_to(&mut self, end: Offset) {
        assert!(end <= self.high_watermark, "only durable records are cleaned");
        self.cleaned_to = self.cleaned_to.max(end);
    }

    /// End of what compaction has gone through.
    #[must_use]
    pub fn cleaned_to(&self) -> Offset {
        self.cleaned_to
    }
}

fn source(segment: &Segment) -> Source {
    Source { id: segment.id, bytes: segment.bytes(), next: segment.next_offset(), opened_at: segment.opened_at }
}

#[cfg(test)]
#[path = "clean_tests.rs"]
mod tests;
