//! The segments of one partition as the core knows them: what covers which offsets, how long each is, and where in it a
//! reader has to start.
//!
//! Owned by the partition. Nothing here touches a file: the edges report what recovery found and what each write made
//! durable.

use super::aborted::AbortedIndex;
use super::index::{IndexedBatch, SegmentIndex};
use crate::ids::{LeaderEpoch, Offset, TimestampMs};
use crate::producers::AbortedTxn;

/// Name of a segment: the file is `<20-digit base>.<leader epoch>.log`, with `.<generation>` before `.log` once it was
/// cleaned. A name never stands for two contents, so who reads a segment that is being replaced reads the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Offset of the first record that was written to it.
    pub base: Offset,
    /// Leader epoch that opened it.
    pub epoch: LeaderEpoch,
    /// How often compaction has rewritten it; 0 for what was appended. Only cleaned segments have gaps between their
    /// batches, or batches of more than one leader epoch.
    pub generation: u32,
}

impl SegmentId {
    /// The segment that is appended to from `base` on.
    #[must_use]
    pub const fn new(base: Offset, epoch: LeaderEpoch) -> Self {
        Self { base, epoch, generation: 0 }
    }
}

/// What is known of one segment: its index says what it holds and how long it is.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its name.
    pub id: SegmentId,
    /// Broker time of its first write, which `segment.ms` counts from.
    pub opened_at: TimestampMs,
    /// What was written to it.
    pub index: SegmentIndex,
    /// The aborted transactions whose markers are in it.
    pub aborted: AbortedIndex,
}

impl Segment {
    /// An empty segment that starts at `id.base`.
    #[must_use]
    pub fn new(id: SegmentId, opened_at: TimestampMs) -> Self {
        Self { id, opened_at, index: SegmentIndex::new(id.base), aborted: AbortedIndex::default() }
    }

    /// Takes in one batch that was written at the end.
    pub fn grow(&mut self, next: Offset, bytes: usize, max_timestamp: TimestampMs) {
        let last_offset = next.plus(-1);
        self.index.observe(IndexedBatch { position: self.bytes(), bytes, last_offset, max_timestamp });
    }

    /// Bytes of batches that are written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.index.end()
    }

    /// Offset after its last record.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.index.next_offset()
    }

    /// Largest record timestamp; `None` while empty.
    #[must_use]
    pub fn max_timestamp(&self) -> Option<TimestampMs> {
        self.index.max_timestamp()
    }

    fn is_empty(&self) -> bool {
        self.bytes() == 0
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
        assert!(list.windows(2).all(|w| w[0].next_offset() <= w[1].id.base), "segments do not overlap");
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
        assert!(self.list.last().is_none_or(|last| last.next_offset() <= id.base), "a segment starts at the log's end");
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
        let at = self.list.partition_point(|segment| segment.next_offset() <= offset);
        self.list[at..].iter().find(|segment| !segment.is_empty())
    }

    /// The segment after the one named.
    #[must_use]
    pub fn after(&self, id: SegmentId) -> Option<&Segment> {
        let at = self.list.partition_point(|segment| segment.id <= id);
        self.list[at..].iter().find(|segment| !segment.is_empty())
    }

    /// The first segment that has a record at or after `timestamp`.
    #[must_use]
    pub fn holding_time(&self, timestamp: TimestampMs) -> Option<&Segment> {
        self.list.iter().find(|segment| segment.max_timestamp() >= Some(timestamp))
    }

    /// Largest timestamp of the partition; `None` for an empty log.
    #[must_use]
    pub fn max_timestamp(&self) -> Option<TimestampMs> {
        self.list.iter().filter_map(Segment::max_timestamp).max()
    }

    /// Aborted transactions with a marker at `from` or behind it and data before `upper`, in the order of the markers
    /// (A10).
    #[must_use]
    pub fn aborted(&self, from: Offset, upper: Offset) -> Vec<AbortedTxn> {
        let at = self.list.partition_point(|segment| segment.next_offset() <= from);
        let mut found = Vec::new();
        for entry in self.list[at..].iter().flat_map(|segment| segment.aborted.since(from)) {
            if entry.first_offset < upper {
                found.push(*entry);
            }
            // Whatever was decided later began there or behind it.
            if entry.stable_offset >= upper {
                break;
            }
        }
        found
    }

    /// The transaction that the marker at `offset` aborted.
    #[must_use]
    pub fn aborted_at(&self, offset: Offset) -> Option<AbortedTxn> {
        self.holding(offset)?.aborted.ended_at(offset)
    }

    /// Bytes of all batches.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(Segment::bytes).sum()
    }

    /// Puts a cleaned segment in the place of those that it was made of. One of them may have gone meanwhile, because
    /// the log start moved; with all of them gone so is their place, and this says false.
    pub fn replace(&mut self, old: &[SegmentId], new: Segment) -> bool {
        let Some(at) = self.list.iter().position(|segment| old.contains(&segment.id)) else { return false };
        let count = self.list[at..].iter().take_while(|segment| old.contains(&segment.id)).count();
        assert!(!self.open || at + count < self.list.len(), "the active segment is never cleaned");
        let end = self.list[at + count - 1].next_offset();
        assert!(new.next_offset() == end, "a cleaned segment ends where the last of its sources did");
        self.list.splice(at..at + count, [new]);
        true
    }

    /// Drops whole segments below `start` and returns their names. The active one stays unless `start` is past it.
    pub fn drop_below(&mut self, start: Offset) -> Vec<SegmentId> {
        let keep_last = self.open;
        let mut count = self.list.partition_point(|segment| segment.next_offset() <= start);
        if keep_last {
            count = count.min(self.list.len().saturating_sub(1));
        }
        self.list.drain(..count).map(|segment| segment.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(base: i64, batches: &[(i64, usize, i64)]) -> Segment {
        let mut s = Segment::new(SegmentId::new(Offset(base), LeaderEpoch(1)), TimestampMs(0));
        for &(count, bytes, timestamp) in batches {
            s.grow(s.next_offset().plus(count), bytes, TimestampMs(timestamp));
        }
        s
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
        segments.open(SegmentId::new(Offset(5), LeaderEpoch(2)), TimestampMs(0));
        assert_eq!(segments.drop_below(Offset(5)).len(), 1);
        assert_eq!(segments.all().len(), 1);
        segments.close();
        assert_eq!(segments.drop_below(Offset(5)).len(), 1);
        assert!(segments.all().is_empty());
    }
}
