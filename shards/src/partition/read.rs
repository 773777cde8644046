//! What a reader gets: whole batches from its offset on, from the tail cache or from a place in a segment.
//!
//! A batch is never split. The first batch comes whole even above the byte limit where the caller asks for progress
//! (contract C1, sizes), so a consumer with tiny limits still moves.

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Partition, SegmentId};
use crate::batch::BatchHeader;
use crate::ids::Offset;
use crate::limits::INDEX_INTERVAL_BYTES;

/// How to get the batches from an offset on.
#[derive(Clone, Debug)]
pub enum ReadPlan {
    /// Nothing to read below the limit.
    Empty,
    /// They are in memory.
    Cached(SmallVec<[Bytes; 4]>),
    /// They are in a file: read `bytes` from `position`, then [`trim`].
    Disk {
        /// The file.
        segment: SegmentId,
        /// Where to start; the start of a batch.
        position: u64,
        /// How much to read.
        bytes: usize,
        /// Where the segment's batches end.
        segment_bytes: u64,
    },
}

/// What is left of bytes that were read from a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trimmed {
    /// Whole batches that hold or follow the offset.
    Batches(Bytes),
    /// The first batch does not end in what was read: this many bytes from the same position would hold it.
    More(usize),
    /// Everything read lies before the offset: go on at this distance from the position.
    Skip(usize),
    /// The bytes are no batches: the file is damaged.
    Damaged,
}

impl Partition {
    /// Plans a read of the batches from `from` up to `limit`, about `bytes_max` bytes of them.
    ///
    /// With `first_whole` the first batch comes even if it is larger. The caller has checked the offset's range.
    #[must_use]
    pub fn read(&self, from: Offset, limit: Offset, bytes_max: usize, first_whole: bool) -> ReadPlan {
        assert!(limit <= self.high_watermark, "only durable records are read");
        if from >= limit || (bytes_max == 0 && !first_whole) {
            return ReadPlan::Empty;
        }
        if let Some(plan) = self.read_tail(from, limit, bytes_max, first_whole) {
            return plan;
        }
        let Some(segment) = self.segments.holding(from) else { return ReadPlan::Empty };
        if segment.id.base >= limit {
            return ReadPlan::Empty;
        }
        let position = segment.index.position_of(from);
        let left = usize::try_from(segment.bytes() - position).unwrap_or(usize::MAX);
        let bytes = left.min(bytes_max.saturating_add(INDEX_INTERVAL_BYTES as usize));
        ReadPlan::Disk { segment: segment.id, position, bytes, segment_bytes: segment.bytes() }
    }

    /// Whether there are records from `from` on and they are no longer in the tail cache.
    #[must_use]
    pub fn is_behind_tail(&self, from: Offset) -> bool {
        from < self.high_watermark && self.tail.from(from).is_none()
    }

    fn read_tail(&self, from: Offset, limit: Offset, bytes_max: usize, first_whole: bool) -> Option<ReadPlan> {
        let mut slices = SmallVec::new();
        let mut room = bytes_max;
        let mut first = true;
        for entry in self.tail.from(from)? {
            if entry.base >= limit {
                break;
            }
            let whole = !first && entry.next <= limit && entry.bytes.len() <= room;
            let slice = if whole {
                entry.bytes.clone()
            } else {
                match trim(&entry.bytes, from, limit, room, first && first_whole) {
                    Trimmed::Batches(slice) => slice,
                    Trimmed::More(_) | Trimmed::Skip(_) => break,
                    Trimmed::Damaged => panic!("the tail cache holds what was written"),
                }
            };
            if slice.is_empty() {
                break;
            }
            let reaches_end = slice.as_ptr_range().end == entry.bytes.as_ptr_range().end;
            room = room.saturating_sub(slice.len());
            slices.push(slice);
            first = false;
            if !reaches_end || room == 0 {
                break;
            }
        }
        if slices.is_empty() { Some(ReadPlan::Empty) } else { Some(ReadPlan::Cached(slices)) }
    }

    /// Bytes of batches from `from` up to `limit`, at most about `bytes_max`: what a long poll counts.
    ///
    /// Exact at the tail, where long polls wait; an upper bound elsewhere.
    #[must_use]
    pub fn readable_bytes(&self, from: Offset, limit: Offset, bytes_max: usize) -> usize {
        if from >= limit {
            return 0;
        }
        match self.read(from, limit, bytes_max, true) {
            ReadPlan::Empty => 0,
            ReadPlan::Cached(slices) => slices.iter().map(Bytes::len).sum::<usize>(),
            ReadPlan::Disk { bytes, .. } => bytes.min(bytes_max.max(1)),
        }
    }
}

/// Cuts bytes that start at a batch down to the whole batches that hold or follow `from`, below `limit`.
///
/// At most `bytes_max` bytes, but with `first_whole` at least one batch.
#[must_use]
pub fn trim(bytes: &Bytes, from: Offset, limit: Offset, bytes_max: usize, first_whole: bool) -> Trimmed {
    let mut at = 0;
    let mut start = None;
    while at < bytes.len() {
        let Ok(header) = BatchHeader::parse(&bytes[at..]) else {
            // A header cut by the end of what was read; damage only if a whole header was there.
            if bytes.len() - at >= crate::limits::BATCH_HEADER_BYTES {
                return start.map_or(Trimmed::Damaged, |start| Trimmed::Batches(bytes.slice(start..at)));
            }
            return start.map_or(Trimmed::More(at + crate::limits::BATCH_HEADER_BYTES), |start| {
                Trimmed::Batches(bytes.slice(start..at))
            });
        };
        let end = at + header.total_bytes();
        if header.next_offset() <= from {
            at = end;
            continue;
        }
        let first = *start.get_or_insert(at);
        let fits = end - first <= bytes_max || (first == at && first_whole);
        if header.base_offset >= limit || header.next_offset() > limit || !fits {
            return Trimmed::Batches(bytes.slice(first..at));
        }
        if end > bytes.len() {
            return if first == at { Trimmed::More(end) } else { Trimmed::Batches(bytes.slice(first..at)) };
        }
        at = end;
    }
    start.map_or(Trimmed::Skip(at), |start| Trimmed::Batches(bytes.slice(start..at.min(bytes.len()))))
}
