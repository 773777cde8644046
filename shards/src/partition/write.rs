//! The write side of a partition: what the next durable write holds, when it opens a segment, and what follows from its
//! end.
//!
//! Owned by the partition. What is pending is gathered into one write (group commit) and nothing pending waits for a
//! timer. Limits: [`WRITE_BYTES_MAX`] bytes a write, a segment's size and what its indexes can express. Failure: see
//! [`Partition::fail`].

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Partition, SegmentId, WaiterId, WatchId};
use crate::batch::Patch;
use crate::code::ErrorCode;
use crate::ids::{Offset, TimestampMs};
use crate::limits::WRITE_BYTES_MAX;
use crate::producers::AbortedTxn;

/// One durable write, as data.
#[derive(Debug)]
pub struct WritePlan {
    /// The segment that takes it.
    pub segment: SegmentId,
    /// Whether the segment has to be created first.
    pub create: bool,
    /// The segment before, to be cut to its exact size and closed.
    pub seal: Option<SegmentId>,
    /// Where in the file the first batch starts.
    pub position: u64,
    /// The batches in order, with what is stored instead of what was sent.
    pub batches: SmallVec<[(Patch, Bytes); 4]>,
    /// Bytes of all batches.
    pub bytes: usize,
    /// Whether the write must be durable before it counts as done.
    pub durable: bool,
}

/// What a finished write changed.
#[derive(Debug, Default)]
pub struct Progress {
    /// Appends that are durable now, in order.
    pub done: SmallVec<[(WaiterId, Result<(), ErrorCode>); 4]>,
    /// Readers to wake.
    pub wake: SmallVec<[WatchId; 4]>,
    /// A snapshot of the producers that is covered by durable log now, with its offset.
    pub snapshot: Option<(Offset, Vec<u8>)>,
    /// Bytes of memory that the tail cache grew by.
    pub cached_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) patch: Patch,
    pub(super) bytes: Bytes,
    pub(super) next: Offset,
    pub(super) records: i64,
    pub(super) is_marker: bool,
    pub(super) aborted: Option<AbortedTxn>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) base: Offset,
    pub(super) next: Offset,
    pub(super) bytes: u64,
    pub(super) durable: bool,
}

/// What a relaxed topic has written without making it durable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unflushed {
    pub(super) messages: i64,
    pub(super) since: Option<TimestampMs>,
}

impl Partition {
    /// Whether a writer has to be started: something is pending and none is at work. Answered once for each writer.
    pub fn take_writer(&mut self) -> bool {
        let wanted = !self.has_writer && !self.pending.is_empty();
        self.has_writer |= wanted;
        wanted
    }

    /// The next write: everything pending that fits one write and one segment. With `None` the writer ends.
    ///
    /// # Panics
    /// If the write before it has not been reported.
    pub fn take_write(&mut self, now: TimestampMs) -> Option<WritePlan> {
        assert!(self.in_flight.is_none(), "one write at a time");
        if self.pending.is_empty() {
            self.has_writer = false;
            return None;
        }
        let first_bytes = self.pending[0].bytes.len() as u64;
        let roll = self.must_roll(first_bytes, now);
        let seal = if roll { self.segments.active().map(|active| active.id) } else { None };
        if roll {
            // One that waits is kept: under load with small segments a newer one would never be covered either.
            if seal.is_some() && self.snapshot_due.is_none() {
                self.snapshot_due = Some((self.next_offset, self.producers.snapshot()));
            }
            let base = self.pending[0].patch.base_offset;
            self.segments.open(SegmentId::new(base, self.epoch), now);
        }
        let active = self.segments.active().expect("a segment is open");
        let (segment, position) = (active.id, active.bytes());
        let room = (self.rules.append.segment_bytes as u64).saturating_sub(position);
        let mut batches = SmallVec::new();
        let mut bytes = 0usize;
        let mut records = 0;
        let mut has_marker = false;
        let base = self.pending[0].patch.base_offset;
        let mut next = base;
        self.in_flight_batches.clear();
        self.in_flight_aborted.clear();
        while let Some(front) = self.pending.front() {
            let total = bytes + front.bytes.len();
            let fits = total as u64 <= room && active.index.can_hold(front.next.plus(-1), position + total as u64);
            if !batches.is_empty() && (total > WRITE_BYTES_MAX || !fits) {
                break;
            }
            let front = self.pending.pop_front().expect("looked at above");
            self.in_flight_batches.push((front.next, front.bytes.len(), front.patch.max_timestamp));
            next = front.next;
            records += front.records;
            has_marker |= front.is_marker;
            self.in_flight_aborted.extend(front.aborted);
            bytes = total;
            batches.push((front.patch, front.bytes));
        }
        self.pending_bytes -= bytes;
        let durable = self.flush_with(records, has_marker, now);
        self.in_flight = Some(InFlight { base, next, bytes: bytes as u64, durable });
        Some(WritePlan { segment, create: roll, seal, position, batches, bytes, durable })
    }

    fn must_roll(&self, bytes: u64, now: TimestampMs) -> bool {
        let Some(active) = self.segments.active() else { return true };
        let (end, last) = (active.bytes() + bytes, self.pending[0].next.plus(-1));
        let full = end > self.rules.append.segment_bytes as u64 || !active.index.can_hold(last, end);
        active.bytes() > 0 && (full || now.0 - active.opened_at.0 >= self.rules.segment_ms)
    }

    fn flush_with(&mut self, records: i64, has_marker: bool, now: TimestampMs) -> bool {
        if self.rules.flush_messages <= 1 {
            return true;
        }
        let messages = self.unflushed.messages + records;
        let since = self.unflushed.since.unwrap_or(now);
        if has_marker || messages >= self.rules.flush_messages || now.0 - since.0 >= self.rules.flush_ms {
            self.unflushed = Unflushed::default();
            return true;
        }
        self.unflushed = Unflushed { messages, since: Some(since) };
        false
    }

    /// Whether a relaxed topic's written records have to be made durable now although nothing more is written.
    pub fn take_flush(&mut self, now: TimestampMs) -> bool {
        let due = !self.offline && self.unflushed.since.is_some_and(|since| now.0 - since.0 >= self.rules.flush_ms);
        if due {
            self.unflushed = Unflushed::default();
        }
        due
    }

    /// Whether a relaxed topic's partition has written records that are not durable.
    #[must_use]
    pub fn has_unflushed(&self) -> bool {
        self.unflushed.since.is_some() && !self.offline
    }

    /// The write in flight is done: the high watermark moves to its end.
    ///
    /// `stored` is what was written, for readers at the tail; `buffer_bytes` is the memory it holds on to.
    pub fn wrote(&mut self, stored: Bytes, buffer_bytes: usize) -> Progress {
        let write = self.in_flight.take().expect("a write was in flight");
        assert_eq!(stored.len() as u64, write.bytes, "what was planned was written");
        let active = self.segments.active_mut().expect("a write has a segment");
        for &(next, bytes, timestamp) in &self.in_flight_batches {
            active.grow(next, bytes, timestamp);
        }
        for aborted in self.in_flight_aborted.drain(..) {
            active.aborted.push(aborted);
        }
        let segment = active.id;
        assert!(write.next > self.high_watermark, "the high watermark only grows");
        self.high_watermark = write.next;
        self.producers.high_watermark_moved(write.next);
        let mut progress = Progress {
            cached_bytes: self.tail.push(segment, write.base, write.next, stored, buffer_bytes),
            ..Progress::default()
        };
        while self.waiters.front().is_some_and(|waiter| waiter.end <= self.high_watermark) {
            let waiter = self.waiters.pop_front().expect("looked at above");
            progress.done.push((waiter.id, Ok(())));
        }
        progress.wake.extend(std::mem::take(&mut self.watches));
        // A relaxed topic's high watermark runs ahead of the disk: a snapshot of what a crash can take back would bring
        // producers back with it.
        if write.durable && self.snapshot_due.as_ref().is_some_and(|(offset, _)| *offset <= write.next) {
            progress.snapshot = self.snapshot_due.take();
        }
        progress
    }

    /// The write in flight, or a sync, failed: nothing pending is ever acknowledged, no append is taken any more.
    pub fn fail(&mut self) -> Progress {
        self.offline = true;
        self.has_writer = false;
        self.in_flight = None;
        self.in_flight_batches.clear();
        self.in_flight_aborted.clear();
        self.pending.clear();
        self.pending_bytes = 0;
        let mut progress = Progress::default();
        for waiter in self.waiters.drain(..) {
            progress.done.push((waiter.id, Err(ErrorCode::KafkaStorageError)));
        }
        progress.wake.extend(std::mem::take(&mut self.watches));
        progress
    }
}
