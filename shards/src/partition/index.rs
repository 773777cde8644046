//! The sparse offset and time index of one segment, in memory and in Kafka's own file formats.
//!
//! Owner: the segment, which tells it about every durable batch. One entry for each `INDEX_INTERVAL_BYTES` of log
//! (KT.11), plus one for the last batch when the segment is sealed. That last entry is what tells a sealed segment
//! from one that was being written in a crash: the batch it points at must end exactly where the file ends.
//! Limits: positions and relative offsets are 31 bits, so a segment is rolled before [`SegmentIndex::can_hold`] is
//! false. Failure: bytes that are not such an index are refused as a whole, and the edges rebuild it from the log.
//!
//! `.index`: entries of i32 offset relative to the base, i32 position. `.timeindex`: i64 timestamp, i32 relative
//! offset. Big-endian, strictly ascending.

use crate::ids::{Offset, TimestampMs};
use crate::limits::INDEX_INTERVAL_BYTES;

const OFFSET_ENTRY_BYTES: usize = 8;
const TIME_ENTRY_BYTES: usize = 12;

/// What the index needs to know of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedBatch {
    /// Where it starts in the segment.
    pub position: u64,
    /// Its length.
    pub bytes: usize,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Largest timestamp in it.
    pub max_timestamp: TimestampMs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OffsetEntry {
    relative: i32,
    position: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimeEntry {
    timestamp: i64,
    relative: i32,
}

/// Both indexes of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentIndex {
    base: Offset,
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
    newest: Option<TimeEntry>,
    last: Option<OffsetEntry>,
    next_entry_at: u64,
    end: u64,
}

impl SegmentIndex {
    /// The index of an empty segment.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self {
            base,
            offsets: vec![],
            times: vec![],
            newest: None,
            last: None,
            next_entry_at: INDEX_INTERVAL_BYTES,
            end: 0,
        }
    }

    /// Whether the formats can express a batch that ends with `last_offset` and at byte `end`.
    #[must_use]
    pub fn can_hold(&self, last_offset: Offset, end: u64) -> bool {
        i32::try_from(last_offset.0 - self.base.0).is_ok() && i32::try_from(end).is_ok()
    }

    /// Notes the next batch of the segment.
    pub fn observe(&mut self, batch: IndexedBatch) {
        assert_eq!(batch.position, self.end, "batches of segment {} are noted in order", self.base);
        self.end += batch.bytes as u64;
        assert!(self.can_hold(batch.last_offset, self.end), "segment {} is rolled in time", self.base);
        let relative = (batch.last_offset.0 - self.base.0) as i32;
        let entry = OffsetEntry { relative, position: batch.position as i32 };
        assert!(self.last.is_none_or(|last| last.relative < relative), "offsets of segment {} ascend", self.base);
        self.last = Some(entry);
        if self.newest.is_none_or(|newest| newest.timestamp < batch.max_timestamp.0) {
            self.newest = Some(TimeEntry { timestamp: batch.max_timestamp.0, relative });
        }
        if batch.position >= self.next_entry_at {
            self.next_entry_at = batch.position + INDEX_INTERVAL_BYTES;
            self.offsets.push(entry);
            self.push_time();
        }
    }

    fn push_time(&mut self) {
        if let Some(newest) = self.newest
            && self.times.last().is_none_or(|last| last.timestamp < newest.timestamp)
        {
            self.times.push(newest);
        }
    }

    /// First offset of the segment.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Bytes of the batches noted so far.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Offset after the last batch noted; the base while there is none.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.last.map_or(self.base, |last| self.base.plus(i64::from(last.relative) + 1))
    }

    /// Largest timestamp noted.
    #[must_use]
    pub fn max_timestamp(&self) -> Option<TimestampMs> {
        self.newest.map(|newest| TimestampMs(newest.timestamp))
    }

    /// About the timestamp of its first batch: the largest of what lies before the second index entry.
    #[must_use]
    pub fn first_timestamp(&self) -> Option<TimestampMs> {
        self.times.first().copied().or(self.newest).map(|first| TimestampMs(first.timestamp))
    }

    /// Last offset of the batch that brought the largest timestamp: a batch with that timestamp ends there.
    #[must_use]
    pub fn max_timestamp_offset(&self) -> Option<Offset> {
        self.newest.map(|newest| self.base.plus(i64::from(newest.relative)))
    }

    /// Start of a batch at or before the one that holds `offset`: reading forward from there finds it.
    #[must_use]
    pub fn position_of(&self, offset: Offset) -> u64 {
        let after = self.offsets.partition_point(|entry| self.base.plus(i64::from(entry.relative)) <= offset);
        after.checked_sub(1).map_or(0, |i| self.offsets[i].position as u64)
    }

    /// The first indexed batch start beyond `position`, or the end: how far a read from `position` must go at most to
    /// come past the batch that [`SegmentIndex::position_of`] promised.
    #[must_use]
    pub fn position_after(&self, position: u64) -> u64 {
        let after = self.offsets.partition_point(|entry| entry.position as u64 <= position);
        self.offsets.get(after).map_or(self.end, |entry| entry.position as u64)
    }

    /// Start of a batch at or before the first one with a timestamp of at least `timestamp`.
    #[must_use]
    pub fn position_of_timestamp(&self, timestamp: TimestampMs) -> u64 {
        let after = self.times.partition_point(|entry| entry.timestamp < timestamp.0);
        after.checked_sub(1).map_or(0, |i| self.position_of(self.base.plus(i64::from(self.times[i].relative))))
    }

    /// The `.index` file of the sealed segment.
    #[must_use]
    pub fn encode_offsets(&self) -> Vec<u8> {
        let last = self.last.filter(|last| self.offsets.last() != Some(last));
        let entries = self.offsets.iter().copied().chain(last);
        entries.flat_map(|e| [e.relative.to_be_bytes(), e.position.to_be_bytes()]).flatten().collect()
    }

    /// The `.timeindex` file of the sealed segment.
    #[must_use]
    pub fn encode_times(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity((self.times.len() + 1) * TIME_ENTRY_BYTES);
        let newest = self.newest.filter(|newest| self.times.last() != Some(newest));
        for entry in self.times.iter().copied().chain(newest) {
            out.extend_from_slice(&entry.timestamp.to_be_bytes());
            out.extend_from_slice(&entry.relative.to_be_bytes());
        }
        out
    }

    /// The index of a sealed segment of `log_bytes` from its two files. `batch_bytes` tells, from the log, how long
    /// the batch at a position is if its last offset is the given one: it decides whether the log ends where the
    /// index says.
    pub fn decode(
        base: Offset,
        offsets: &[u8],
        times: &[u8],
        log_bytes: u64,
        batch_bytes: &dyn Fn(u64, Offset) -> Option<usize>,
    ) -> Result<Self, &'static str> {
        let offsets = decode_offsets(offsets)?;
        let last = *offsets.last().ok_or("the offset index is empty")?;
        let times = decode_times(times, last.relative)?;
        let newest = *times.last().ok_or("the time index is empty")?;
        let bytes = batch_bytes(last.position as u64, base.plus(i64::from(last.relative)))
            .ok_or("the batch of its last entry is not in the log")?;
        if last.position as u64 + bytes as u64 != log_bytes {
            return Err("the log does not end with the batch of its last entry");
        }
        let next_entry_at = log_bytes;
        Ok(Self { base, offsets, times, newest: Some(newest), last: Some(last), next_entry_at, end: log_bytes })
    }
}

fn decode_offsets(bytes: &[u8]) -> Result<Vec<OffsetEntry>, &'static str> {
    if !bytes.len().is_multiple_of(OFFSET_ENTRY_BYTES) {
        return Err("the offset index ends within an entry");
    }
    let entries: Vec<_> = bytes
        .chunks_exact(OFFSET_ENTRY_BYTES)
        .map(|e| OffsetEntry { relative: be_i32(&e[..4]), position: be_i32(&e[4..]) })
        .collect();
    let is_sane = entries.iter().all(|e| e.relative >= 0 && e.position >= 0)
        && entries.is_sorted_by(|a, b| a.relative < b.relative && a.position < b.position);
    if is_sane { Ok(entries) } else { Err("the offset index does not ascend") }
}

fn decode_times(bytes: &[u8], relative_max: i32) -> Result<Vec<TimeEntry>, &'static str> {
    if !bytes.len().is_multiple_of(TIME_ENTRY_BYTES) {
        return Err("the time index ends within an entry");
    }
    let entries: Vec<_> = bytes
        .chunks_exact(TIME_ENTRY_BYTES)
        .map(|e| TimeEntry {
            timestamp: i64::from_be_bytes(e[..8].try_into().expect("eight bytes")),
            relative: be_i32(&e[8..]),
        })
        .collect();
    let is_sane = entries.iter().all(|e| (0..=relative_max).contains(&e.relative))
        && entries.is_sorted_by(|a, b| a.relative < b.relative && a.timestamp < b.timestamp);
    if is_sane { Ok(entries) } else { Err("the time index does not ascend within the segment") }
}

fn be_i32(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
