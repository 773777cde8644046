//! The segments of one partition as the core knows them: what covers which offsets, how long each is, and where in it a
//! reader has to start.
//!
//! Owned by the partition. Positions are bytes from the start of a segment file. Nothing here touches a file: the edges
//! report what recovery found and what each write made durable. The sparse index costs one entry for each
//! [`INDEX_INTERVAL_BYTES`] of log, so a terabyte is 16 million entries of 24 bytes.

use crate::ids::{LeaderEpoch, Offset, TimestampMs};
use crate::limits::INDEX_INTERVAL_BYTES;

/// Name of a segment: the file is `<20-digit base>.<leader epoch>.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Offset of the first record.
    pub base: Offset,
    /// Leader epoch that opened it.
    pub epoch: LeaderEpoch,
}

/// One entry of the sparse index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// First offset of the batch at `position`.
    pub offset: Offset,
    /// Start of that batch in the file.
    pub position: u64,
    /// Largest timestamp of all batches before it in the segment.
    pub max_timestamp_before: TimestampMs,
}

/// What is known of one segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its name.
    pub id: SegmentId,
    /// Bytes of batches that are written.
    pub bytes: u64,
    /// Offset after its last record.
    pub next_offset: Offset,
    /// Largest record timestamp; -1 while empty.
    pub max_timestamp: TimestampMs,
    /// Broker time of its first write, which `segment.ms` counts from.
    pub opened_at: TimestampMs,
    /// Sparse index, ascending.
    pub index: Vec<IndexEntry>,
}

impl Segment {
    /// An empty segment that starts at `id.base`.
    #[must_use]
    pub fn new(id: SegmentId, opened_at: TimestampMs) -> Self {
        Self { id, bytes: 0, next_offset: id.base, max_timestamp: TimestampMs(-1), opened_at, index: Vec::new() }
    }

    /// Takes in one batch that was written at the end.
    pub fn grow(&mut self, base: Offset, next: Offset, bytes: u64, max_timestamp: TimestampMs) {
        assert!(base >= self.next_offset && next > base, "batches ascend: {base} after {}", self.next_offset);
        let due = self.index.last().is_none_or(|last| self.bytes - last.position >= INDEX_INTERVAL_BYTES);
        if due {
            let entry = IndexEntry { offset: base, position: self.bytes, max_timestamp_before: self.max_timestamp };
            self.index.push(entry);
        }
        self.bytes += bytes;
        self.next_offset = next;
        self.max_timestamp = self.max_timestamp.max(max_timestamp);
    }

    /// Position of a batch at or before the one that holds `offset`.
    #[must_use]
    pub fn seek(&self, offset: Offset) -> u64 {
        let after = self.index.partition_point(|entry| entry.offset <= offset);
        if after == 0 { 0 } else { self.index[after - 1].position }
    }

    /// Position from which a reader meets the first record at or after `timestamp`.
    #[must_use]
    pub fn seek_time(&self, timestamp: TimestampMs) -> u64 {
        let after = self.index.partition_point(|entry| entry.max_timestamp_before < timestamp);
        if after == 0 { 0 } else { self.index[after - 1].position }
    }
}

/// All segments of a partition, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    list: Vec<Segment>,
    /// Whether the last one takes appends; what recovery found never does.
    open: bool,
}

impl Segments {
    /// The segments that recovery found, oldest first; none of them takes appends.
    #[must_use]
    pub fn recovered(list: Vec<Segment>) -> Self {
        assert!(list.windows(2).all(|w| w[0].next_offset <= w[1].id.base), "segments do not overlap");
        Self { list, open: false }
    }

    /// All of them, oldest first.
    #[must_use]
    pub fn all(&self) -> &[Segment] {
        &self.list
    }

    /// The one that takes appends.
    #[must_use]
    pub fn active(&self) -> Option<&Segment> {
        if self.open { self.list.last() } else { None }
    }

    /// The one that takes appends.
    pub fn active_mut(&mut self) -> Option<&mut Segment> {
        if self.open { self.list.last_mut() } else { None }
    }

    /// Opens the next segment; the one before takes no more appends.
    pub fn open(&mut self, id: SegmentId, now: TimestampMs) {
        assert!(self.list.last().is_none_or(|last| last.next_offset <= id.base), "a segment starts at the log's end");
        self.list.push(Segment::new(id, now));
        self.open = true;
    }

    /// Closes the active segment, if there is one.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// The segment that holds `offset`, or the first one after it when offsets are missing between.
    #[must_use]
    pub fn holding(&self, offset: Offset) -> Option<&Segment> {
        let at = self.list.partition_point(|segment| segment.next_offset <= offset);
        self.list[at..].iter().find(|segment| segment.bytes > 0)
    }

    /// The segment after the one named.
    #[must_use]
    pub fn after(&self, id: SegmentId) -> Option<&Segment> {
        let at = self.list.partition_point(|segment| segment.id <= id);
        self.list[at..].iter().find(|segment| segment.bytes > 0)
    }

    /// The first segment that has a record at or after `timestamp`.
    #[must_use]
    pub fn holding_time(&self, timestamp: TimestampMs) -> Option<&Segment> {
        self.list.iter().find(|segment| segment.bytes > 0 && segment.max_timestamp >= timestamp)
    }

    /// Largest timestamp of the partition; `None` for an empty log.
    #[must_use]
    pub fn max_timestamp(&self) -> Option<TimestampMs> {
        self.list.iter().filter(|segment| segment.bytes > 0).map(|segment| segment.max_timestamp).max()
    }

    /// Bytes of all batches.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|segment| segment.bytes).sum()
    }

    /// Drops whole segments below `start` and returns their names. The active one stays unless `start` is past it.
    pub fn drop_below(&mut self, start: Offset) -> Vec<SegmentId> {
        let keep_last = self.open;
        let mut count = self.list.partition_point(|segment| segment.next_offset <= start);
        if keep_last {
            count = count.min(self.list.len().saturating_sub(1));
        }
        self.list.drain(..count).map(|segment| segment.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(base: i64, batches: &[(i64, u64, i64)]) -> Segment {
        let mut s = Segment::new(SegmentId { base: Offset(base), epoch: LeaderEpoch(1) }, TimestampMs(0));
        for &(count, bytes, timestamp) in batches {
            let base = s.next_offset;
            s.grow(base, base.plus(count), bytes, TimestampMs(timestamp));
        }
        s
    }

    #[test]
    fn seek_never_lands_after_the_batch_that_holds_the_offset() {
        let s = segment(100, &[(10, 40_000, 5), (10, 40_000, 9), (10, 40_000, 7), (10, 40_000, 20)]);
        assert_eq!(s.seek(Offset(100)), 0);
        assert_eq!(s.seek(Offset(119)), 0);
        assert_eq!(s.seek(Offset(120)), 80_000);
        assert_eq!(s.seek(Offset(139)), 80_000);
    }

    #[test]
    fn seek_time_starts_before_the_first_record_that_is_late_enough() {
        let s = segment(0, &[(1, 70_000, 5), (1, 70_000, 9), (1, 70_000, 7), (1, 70_000, 20)]);
        assert_eq!(s.seek_time(TimestampMs(5)), 0);
        assert_eq!(s.seek_time(TimestampMs(6)), 70_000);
        assert_eq!(s.seek_time(TimestampMs(9)), 70_000);
        assert_eq!(s.seek_time(TimestampMs(10)), 210_000);
    }

    #[test]
    fn an_offset_in_a_hole_is_held_by_the_next_segment() {
        let segments = Segments::recovered(vec![segment(0, &[(5, 100, 1)]), segment(8, &[(2, 100, 2)])]);
        assert_eq!(segments.holding(Offset(6)).unwrap().id.base, Offset(8));
        assert_eq!(segments.holding(Offset(4)).unwrap().id.base, Offset(0));
        assert!(segments.holding(Offset(10)).is_none());
    }

    #[test]
    fn the_active_segment_survives_a_log_start_at_its_end() {
        let mut segments = Segments::recovered(vec![segment(0, &[(5, 100, 1)])]);
        segments.open(SegmentId { base: Offset(5), epoch: LeaderEpoch(2) }, TimestampMs(0));
        assert_eq!(segments.drop_below(Offset(5)).len(), 1);
        assert_eq!(segments.all().len(), 1);
        segments.close();
        assert_eq!(segments.drop_below(Offset(5)).len(), 1);
        assert!(segments.all().is_empty());
    }
}
