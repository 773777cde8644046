//! One partition: what may be appended, which offset it gets, what is durable, what may be read.
//!
//! Owned by the shard that leads it. An accepted batch waits in `pending` until the partition's writer pulls it
//! ([`Partition::take_write`]), performs one durable write of everything pending, and reports back
//! ([`Partition::wrote`]); only then does the high watermark move, so nobody reads or is told of a record that a crash can
//! take back. There is at most one write in flight.
//!
//! Limits: [`WRITE_BYTES_MAX`] bytes a write; what is pending is bounded by the admission of requests at the edge.
//! Failure: a failed write takes the partition offline for appends. What was durable before is still served; nothing
//! pending is acknowledged, and only a restart, which reads back what the disk holds, brings it back.

#[cfg(test)]
mod append_tests;
mod epochs;
mod index;
mod read;
mod rebuild;
mod segments;
mod tail;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use smallvec::SmallVec;

pub use self::epochs::{EpochEnd, EpochHistory};
pub use self::index::{IndexedBatch, SegmentIndex};
pub use self::read::{ReadPlan, Trimmed, trim};
pub use self::rebuild::Rebuild;
pub use self::segments::{Segment, SegmentId, Segments};
pub use self::tail::{Tail, TailEntry};
use crate::batch::{self, AppendRules, BatchHeader, Patch, Refused};
use crate::code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, TimestampMs};
use crate::limits::WRITE_BYTES_MAX;
use crate::producers::{Check, Producers};

/// The settings of a topic that its partitions act on.
#[derive(Clone, Debug)]
pub struct LogRules {
    /// What an append is checked against.
    pub append: AppendRules,
    /// Age in ms at which a segment is closed (`segment.ms`).
    pub segment_ms: i64,
    /// Age in ms at which a record may go (`retention.ms`); -1 keeps for ever.
    pub retention_ms: i64,
    /// Bytes above which the oldest segment may go (`retention.bytes`); -1 is no limit.
    pub retention_bytes: i64,
    /// Messages after which what was written must be durable (`flush.messages`); 1 makes every write durable.
    pub flush_messages: i64,
    /// Age in ms at which what was written must be durable (`flush.ms`).
    pub flush_ms: i64,
    /// Whether `cleanup.policy` deletes by age and size.
    pub deletes: bool,
    /// Producer ids that the partition remembers.
    pub producer_ids_max: usize,
}

/// Who waits for an append; handed back in the effect that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// Who waits for something new to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// What became of a batch that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Append {
    /// It was refused, and nothing changed.
    Refused(Box<Refusal>),
    /// It, or the original of this duplicate, becomes durable when the log reaches `end`.
    Accepted(Placed),
}

/// Where a batch is, or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Offset of its first record.
    pub base: Offset,
    /// Offset after its last record.
    pub end: Offset,
    /// Broker time under LogAppendTime, else -1.
    pub log_append_time: TimestampMs,
    /// Whether it was there before.
    pub duplicate: bool,
}

/// Why a batch was refused, with the fields a Produce answer carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: ErrorCode,
    /// Text for v8 and later.
    pub message: Option<String>,
    /// Index and text of each bad record.
    pub record_errors: Vec<(i32, Option<String>)>,
    /// Whether the answer carries the log start offset (K0.22).
    pub names_log_start: bool,
}

impl Refusal {
    /// A refusal with a code alone.
    #[must_use]
    pub fn code(code: ErrorCode, names_log_start: bool) -> Self {
        Self { code, message: None, record_errors: Vec::new(), names_log_start }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self {
            code: refused.code,
            message: refused.message.map(|text| text.into_owned()),
            record_errors: refused.record_errors.iter().map(|e| (e.index, Some(e.message.to_string()))).collect(),
            names_log_start: refused.reached_log,
        }
    }
}

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
struct Pending {
    patch: Patch,
    bytes: Bytes,
    next: Offset,
    records: i64,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    base: Offset,
    next: Offset,
    bytes: u64,
}

#[derive(Debug)]
struct Waiter {
    id: WaiterId,
    end: Offset,
}

/// One partition that this shard leads.
#[derive(Debug)]
pub struct Partition {
    rules: LogRules,
    epoch: LeaderEpoch,
    epochs: EpochHistory,
    segments: Segments,
    producers: Producers,
    log_start: Offset,
    high_watermark: Offset,
    next_offset: Offset,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    in_flight: Option<InFlight>,
    /// Headers of the batches of the write in flight, for the segment's index.
    in_flight_batches: Vec<(Offset, usize, TimestampMs)>,
    waiters: VecDeque<Waiter>,
    watches: BTreeSet<WatchId>,
    tail: Tail,
    snapshot_due: Option<(Offset, Vec<u8>)>,
    unflushed: Unflushed,
    /// Whether a writer was asked for that has not yet found nothing to do.
    has_writer: bool,
    offline: bool,
}

/// What a relaxed topic has written without making it durable.
#[derive(Clone, Copy, Debug, Default)]
struct Unflushed {
    messages: i64,
    since: Option<TimestampMs>,
}

/// What recovery found of a partition.
#[derive(Debug)]
pub struct Recovered {
    /// Its segments, oldest first.
    pub segments: Vec<Segment>,
    /// Producer state at the end of the log.
    pub producers: Producers,
    /// First offset that may be read.
    pub log_start: Offset,
    /// First offset of each leader epoch that wrote.
    pub epochs: EpochHistory,
}

impl Partition {
    /// A partition without records.
    #[must_use]
    pub fn empty(rules: LogRules, epoch: LeaderEpoch) -> Self {
        let producers = Producers::new().limited_to(rules.producer_ids_max);
        let found =
            Recovered { segments: Vec::new(), producers, log_start: Offset(0), epochs: EpochHistory::default() };
        Self::recovered(rules, epoch, found)
    }

    /// A partition as recovery found it; everything found is durable.
    #[must_use]
    pub fn recovered(rules: LogRules, epoch: LeaderEpoch, found: Recovered) -> Self {
        assert!(found.epochs.last().is_none_or(|(last, _)| last <= epoch), "leader epochs only grow");
        let end = found.segments.last().map_or(found.log_start, |last| last.next_offset()).max(found.log_start);
        Self {
            rules,
            epoch,
            epochs: found.epochs,
            segments: Segments::recovered(found.segments),
            producers: found.producers,
            log_start: found.log_start,
            high_watermark: end,
            next_offset: end,
            pending: VecDeque::new(),
            pending_bytes: 0,
            in_flight: None,
            in_flight_batches: Vec::new(),
            waiters: VecDeque::new(),
            watches: BTreeSet::new(),
            tail: Tail::default(),
            snapshot_due: None,
            unflushed: Unflushed::default(),
            has_writer: false,
            offline: false,
        }
    }

    /// Decides about one client's batch: contract A2.4, A2.5 and A5, in their order.
    pub fn append(&mut self, records: &Bytes, api_version: i16, now: TimestampMs) -> Append {
        if self.offline {
            return Append::Refused(Box::new(Refusal::code(ErrorCode::KafkaStorageError, false)));
        }
        let accepted = match batch::validate(records, api_version, &self.rules.append, now) {
            Ok(accepted) => accepted,
            Err(refused) => return Append::Refused(Box::new(refused.into())),
        };
        match self.producers.check(&accepted.header) {
            Check::Append => {}
            Check::Duplicate { base_offset, last_offset, timestamp } => {
                // The original may still be on its way to the disk: the caller waits for `end` like everybody else.
                return Append::Accepted(Placed {
                    base: base_offset,
                    end: last_offset.plus(1),
                    // A5.1: the original's largest timestamp, whoever's clock gave it.
                    log_append_time: timestamp,
                    duplicate: true,
                });
            }
            Check::Refuse(code) => return Append::Refused(Box::new(Refusal::code(code, true))),
        }
        let patch = Patch {
            base_offset: self.next_offset,
            leader_epoch: self.epoch,
            attributes: accepted.stored.attributes,
            max_timestamp: accepted.stored.max_timestamp,
            crc: accepted.stored.crc,
        };
        let placed = self.enqueue(&accepted.header, patch, records.slice(..accepted.bytes), now);
        Append::Accepted(placed)
    }

    fn enqueue(&mut self, sent: &BatchHeader, patch: Patch, bytes: Bytes, now: TimestampMs) -> Placed {
        let mut stored = *sent;
        stored.base_offset = patch.base_offset;
        stored.leader_epoch = patch.leader_epoch;
        stored.max_timestamp = patch.max_timestamp;
        self.producers.appended(&stored);
        let base = self.next_offset;
        let end = stored.next_offset();
        assert!(end > base, "a batch holds records");
        self.epochs.appended(self.epoch, base);
        self.next_offset = end;
        self.pending_bytes += bytes.len();
        let log_append_time = match self.rules.append.timestamp_type {
            batch::TimestampType::LogAppendTime => now,
            batch::TimestampType::CreateTime => TimestampMs(-1),
        };
        self.pending.push_back(Pending { patch, bytes, next: end, records: i64::from(sent.record_count) });
        Placed { base, end, log_append_time, duplicate: false }
    }

    /// Whether everything up to `end` is durable.
    #[must_use]
    pub fn is_durable(&self, end: Offset) -> bool {
        end <= self.high_watermark
    }

    /// Registers who is to be told when the log is durable up to `end`.
    pub fn wait(&mut self, end: Offset, id: WaiterId) {
        assert!(!self.is_durable(end) && !self.offline, "nothing to wait for");
        // A duplicate may wait for an earlier end than the appends before it; the list stays ordered by end.
        let at = self.waiters.iter().rposition(|waiter| waiter.end <= end).map_or(0, |at| at + 1);
        self.waiters.insert(at, Waiter { id, end });
    }

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
            if seal.is_some() {
                self.snapshot_due = Some((self.next_offset, self.producers.snapshot()));
            }
            let base = self.pending[0].patch.base_offset;
            self.segments.open(SegmentId { base, epoch: self.epoch }, now);
        }
        let active = self.segments.active().expect("a segment is open");
        let (segment, position) = (active.id, active.bytes());
        let room = (self.rules.append.segment_bytes as u64).saturating_sub(position);
        let mut batches = SmallVec::new();
        let mut bytes = 0usize;
        let mut records = 0;
        let base = self.pending[0].patch.base_offset;
        let mut next = base;
        self.in_flight_batches.clear();
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
            bytes = total;
            batches.push((front.patch, front.bytes));
        }
        self.pending_bytes -= bytes;
        self.in_flight = Some(InFlight { base, next, bytes: bytes as u64 });
        let durable = self.flush_with(records, now);
        Some(WritePlan { segment, create: roll, seal, position, batches, bytes, durable })
    }

    fn must_roll(&self, bytes: u64, now: TimestampMs) -> bool {
        let Some(active) = self.segments.active() else { return true };
        let (end, last) = (active.bytes() + bytes, self.pending[0].next.plus(-1));
        let full = end > self.rules.append.segment_bytes as u64 || !active.index.can_hold(last, end);
        active.bytes() > 0 && (full || now.0 - active.opened_at.0 >= self.rules.segment_ms)
    }

    fn flush_with(&mut self, records: i64, now: TimestampMs) -> bool {
        if self.rules.flush_messages <= 1 {
            return true;
        }
        let messages = self.unflushed.messages + records;
        let since = self.unflushed.since.unwrap_or(now);
        if messages >= self.rules.flush_messages || now.0 - since.0 >= self.rules.flush_ms {
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
        if self.snapshot_due.as_ref().is_some_and(|(offset, _)| *offset <= self.high_watermark) {
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
        self.pending.clear();
        self.pending_bytes = 0;
        let mut progress = Progress::default();
        for waiter in self.waiters.drain(..) {
            progress.done.push((waiter.id, Err(ErrorCode::KafkaStorageError)));
        }
        progress.wake.extend(std::mem::take(&mut self.watches));
        progress
    }

    /// Registers a reader to be woken by the next progress.
    pub fn watch(&mut self, id: WatchId) {
        self.watches.insert(id);
    }

    /// Forgets a reader that no longer waits.
    pub fn unwatch(&mut self, id: WatchId) {
        self.watches.remove(&id);
    }

    /// Wakes every reader, because the partition is going away.
    pub fn take_watches(&mut self) -> BTreeSet<WatchId> {
        std::mem::take(&mut self.watches)
    }

    /// Drops the oldest entry of the tail cache; returns its charge.
    pub fn evict_tail(&mut self) -> usize {
        self.tail.pop()
    }

    /// Drops the whole tail cache; returns its charge.
    pub fn clear_tail(&mut self) -> usize {
        self.tail.clear()
    }

    /// Where the log would start after DeleteRecords up to `offset`, -1 meaning the high watermark.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE above the high watermark or below -1 (K21.5).
    pub fn delete_target(&self, offset: Offset) -> Result<Offset, ErrorCode> {
        let target = if offset.0 == -1 { self.high_watermark } else { offset };
        if target.0 < 0 || target > self.high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        Ok(target.max(self.log_start))
    }

    /// Moves the log start up to `start`, which is durable as such; returns the segments whose files may go.
    pub fn set_log_start(&mut self, start: Offset) -> Vec<SegmentId> {
        assert!(start <= self.high_watermark, "only durable records are deleted");
        self.log_start = self.log_start.max(start);
        self.producers.log_start_moved(self.log_start);
        self.segments.drop_below(self.log_start)
    }

    /// Where retention by age and size wants the log to start; `None` if nothing may go.
    ///
    /// Whole segments go, oldest first; the active one goes with the rest when all its records are too old.
    #[must_use]
    pub fn retention_target(&self, now: TimestampMs) -> Option<Offset> {
        if !self.rules.deletes {
            return None;
        }
        let mut bytes_left = self.segments.bytes();
        let mut target = None;
        for segment in self.segments.all() {
            let is_active = self.segments.active().is_some_and(|active| active.id == segment.id);
            let newest = segment.max_timestamp().filter(|newest| newest.0 >= 0).unwrap_or(segment.opened_at);
            let aged = self.rules.retention_ms >= 0 && now.0 - newest.0 > self.rules.retention_ms;
            let limit = self.rules.retention_bytes;
            let surplus = limit >= 0 && !is_active && bytes_left - segment.bytes() >= limit as u64;
            let busy = is_active && (self.in_flight.is_some() || !self.pending.is_empty());
            if segment.bytes() == 0 || busy || !(aged || surplus) {
                break;
            }
            bytes_left -= segment.bytes();
            target = Some(segment.next_offset());
        }
        target.filter(|target| *target > self.log_start)
    }

    /// Closes the active segment when a retention target or the end of serving asks for it; returns its name.
    ///
    /// # Panics
    /// If a write is in flight.
    pub fn close_active(&mut self) -> Option<SegmentId> {
        assert!(self.in_flight.is_none(), "a write is in flight");
        let id = self.segments.active().map(|active| active.id);
        self.segments.close();
        id
    }

    /// Drops producers that were idle for `expiration_ms`; returns how many (contract A7).
    pub fn expire_producers(&mut self, now: TimestampMs, expiration_ms: i64) -> usize {
        self.producers.expire(now, expiration_ms)
    }

    /// Replaces the settings; they act from the next append on.
    pub fn set_rules(&mut self, rules: LogRules) {
        self.rules = rules;
    }

    /// The settings.
    #[must_use]
    pub fn rules(&self) -> &LogRules {
        &self.rules
    }

    /// Current leader epoch.
    #[must_use]
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// First offset of each leader epoch.
    #[must_use]
    pub fn epochs(&self) -> &EpochHistory {
        &self.epochs
    }

    /// First offset that may be read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// End of what is durable.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// End of what read_committed may see: the first record of an undecided transaction, at most the high watermark.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        self.producers.last_stable(self.high_watermark, self.log_start)
    }

    /// Offset that the next record gets.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Producer state.
    #[must_use]
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// Whether a failed write took it offline for appends.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.offline
    }

    /// Bytes accepted and not yet handed to the writer.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }
}
