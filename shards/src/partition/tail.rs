//! The bytes of the newest writes of a partition, kept so that a consumer at the tail never waits for the disk.
//!
//! Owned by the partition; the shard bounds the bytes of all its partitions together and drops the oldest entry first.
//! Only durable bytes come in, so what is here may be served as it is.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::segments::SegmentId;
use crate::ids::Offset;

/// One write, or a part of one: whole batches that follow each other.
#[derive(Clone, Debug)]
pub struct TailEntry {
    /// Segment that holds the same bytes.
    pub segment: SegmentId,
    /// First offset.
    pub base: Offset,
    /// Offset after the last record.
    pub next: Offset,
    /// The batches as stored.
    pub bytes: Bytes,
    /// Bytes of memory that the entry holds on to.
    pub charge: usize,
}

/// Writes smaller than this are copied together, so that a 1 KiB record does not hold a whole write buffer.
const COPY_BELOW_BYTES: usize = 16 << 10;

/// Size of the blocks that small writes are copied into.
const BLOCK_BYTES: usize = 64 << 10;

/// The newest writes of one partition, oldest first, without a hole between them.
#[derive(Debug, Default)]
pub struct Tail {
    entries: VecDeque<TailEntry>,
    block: BytesMut,
}

impl Tail {
    /// Takes in a durable write; returns the bytes of memory it is charged with.
    ///
    /// `buffer_bytes` is what keeping `bytes` itself would hold on to.
    pub fn push(&mut self, segment: SegmentId, base: Offset, next: Offset, bytes: Bytes, buffer_bytes: usize) -> usize {
        assert!(self.entries.back().is_none_or(|last| last.next == base), "the tail has no holes");
        let (bytes, charge) = if bytes.len() < COPY_BELOW_BYTES {
            if self.block.capacity() < bytes.len() {
                self.block = BytesMut::with_capacity(BLOCK_BYTES);
            }
            self.block.extend_from_slice(&bytes);
            let copied = self.block.split().freeze();
            let charge = copied.len();
            (copied, charge)
        } else {
            (bytes, buffer_bytes)
        };
        self.entries.push_back(TailEntry { segment, base, next, bytes, charge });
        charge
    }

    /// Drops the oldest entry; returns its charge.
    pub fn pop(&mut self) -> usize {
        let charge = self.entries.pop_front().map_or(0, |entry| entry.charge);
        if self.entries.is_empty() {
            self.block = BytesMut::new();
        }
        charge
    }

    /// Drops every entry that begins below `end`; returns how many and their charge.
    pub fn drop_below(&mut self, end: Offset) -> (usize, usize) {
        let count = self.entries.partition_point(|entry| entry.base < end);
        (count, (0..count).map(|_| self.pop()).sum())
    }

    /// Drops everything; returns what was charged.
    pub fn clear(&mut self) -> usize {
        let charge = self.entries.iter().map(|entry| entry.charge).sum();
        *self = Self::default();
        charge
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries from the one that holds `offset` on; `None` if it is not kept.
    #[must_use]
    pub fn from(&self, offset: Offset) -> Option<impl Iterator<Item = &TailEntry>> {
        let first = self.entries.front()?;
        if offset < first.base || offset >= self.entries.back()?.next {
            return None;
        }
        let at = self.entries.partition_point(|entry| entry.next <= offset);
        Some(self.entries.range(at..))
    }
}
