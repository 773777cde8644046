//! One partition: what may be appended, which offset it gets, what is durable, what may be read.
//!
//! Owned by the shard that leads it. An accepted batch waits in `pending` until the partition's writer pulls it
//! ([`Partition::take_write`]), performs one durable write of everything pending, and reports back
//! ([`Partition::wrote`]); only then does the high watermark move, so nobody reads or is told of a record that a crash
//! can take back. There is at most one write in flight.
//!
//! Limits: [`crate::limits::WRITE_BYTES_MAX`] bytes a write; what is pending is bounded by the admission of requests at
//! the edge. Failure: a failed write takes the partition offline for appends. What was durable before is still served;
//! nothing pending is acknowledged, and only a restart, which reads back what the disk holds, brings it back.

mod aborted;
#[cfg(test)]
mod append_tests;
mod clean;
mod epochs;
mod index;
mod marker;
mod read;
mod rebuild;
mod retention;
mod segments;
mod tail;
mod write;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod txn_model_tests;

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

pub use self::aborted::AbortedIndex;
pub use self::clean::{Dirty, Source};
pub use self::epochs::{EpochEnd, EpochHistory};
pub use self::index::{IndexedBatch, SegmentIndex};
pub use self::marker::{EndMarker, MarkerRefusal};
pub use self::read::{ReadPlan, Trimmed, trim};
pub use self::rebuild::Rebuild;
pub use self::segments::{Segment, SegmentId, Segments};
pub use self::tail::{Tail, TailEntry};
use self::write::{InFlight, Pending, Unflushed};
pub use self::write::{Progress, WritePlan};
use crate::batch::{self, AppendRules, BatchHeader, ControlRecord, Patch, Refused};
use crate::code::ErrorCode;
use crate::compaction::CompactionRules;
use crate::ids::{LeaderEpoch, Offset, PartitionKey, ProducerEpoch, ProducerId, TimestampMs};
use crate::producers::{AbortedTxn, Check, FirstBatches, Permit, Producers, Verify};
use crate::txn::{Identity, OpenTxn};

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
    /// How `cleanup.policy` compacts, if it does.
    pub compaction: Option<CompactionRules>,
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

/// What is enqueued.
#[derive(Clone, Copy, Debug)]
enum Enqueue {
    Data,
    Marker(ControlRecord),
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
    /// End of what compaction has gone through.
    cleaned_to: Offset,
    /// How often a cleaned segment took the place of others.
    exchanges: u64,
    high_watermark: Offset,
    next_offset: Offset,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    in_flight: Option<InFlight>,
    /// Headers of the batches of the write in flight, for the segment's index.
    in_flight_batches: Vec<(Offset, usize, TimestampMs)>,
    /// What the markers of the write in flight aborted, for the segment's list.
    in_flight_aborted: Vec<AbortedTxn>,
    waiters: VecDeque<Waiter>,
    watches: BTreeSet<WatchId>,
    tail: Tail,
    snapshot_due: Option<(Offset, Vec<u8>)>,
    unflushed: Unflushed,
    /// Where the log ended when open transactions were looked at last.
    looked_end: Offset,
    /// Whether a writer was asked for that has not yet found nothing to do.
    has_writer: bool,
    offline: bool,
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
    /// End of what compaction has gone through.
    pub cleaned_to: Offset,
}

impl Partition {
    /// A partition without records.
    #[must_use]
    pub fn empty(rules: LogRules, epoch: LeaderEpoch) -> Self {
        let producers = Producers::new().limited_to(rules.producer_ids_max);
        let found = Recovered {
            segments: Vec::new(),
            producers,
            log_start: Offset(0),
            epochs: EpochHistory::default(),
            cleaned_to: Offset(0),
        };
        Self::recovered(rules, epoch, found)
    }

    /// A partition as recovery found it; everything found is durable.
    #[must_use]
    pub fn recovered(rules: LogRules, epoch: LeaderEpoch, mut found: Recovered) -> Self {
        assert!(found.epochs.last().is_none_or(|(last, _)| last <= epoch), "leader epochs only grow");
        let end = found.segments.last().map_or(found.log_start, |last| last.next_offset()).max(found.log_start);
        found.producers.doubt_open();
        Self {
            rules,
            epoch,
            epochs: found.epochs,
            segments: Segments::recovered(found.segments),
            producers: found.producers,
            log_start: found.log_start,
            cleaned_to: found.cleaned_to.min(end),
            exchanges: 0,
            high_watermark: end,
            next_offset: end,
            pending: VecDeque::new(),
            pending_bytes: 0,
            in_flight: None,
            in_flight_batches: Vec::new(),
            in_flight_aborted: Vec::new(),
            waiters: VecDeque::new(),
            watches: BTreeSet::new(),
            tail: Tail::default(),
            snapshot_due: None,
            unflushed: Unflushed::default(),
            looked_end: Offset(0),
            has_writer: false,
            offline: false,
        }
    }

    /// What a client's batch needs before its append: contract A4 b to d, ahead of all checks of the batch itself,
    /// which the append makes. `adds`: the request adds the partition to the transaction by writing to it (Produce 12
    /// and later). A batch of no transaction needs nothing.
    pub fn verify(&mut self, records: &[u8], adds: bool, now: TimestampMs) -> Verify {
        match BatchHeader::parse(records) {
            Ok(header) if header.attributes.is_transactional() && header.is_idempotent() => {
                self.producers.verify(&header, adds, now)
            }
            _ => Verify::Open,
        }
    }

    /// Takes over which batches were refused before it was open.
    pub fn begin_with(&mut self, first: FirstBatches) {
        self.producers.begin_with(first);
    }

    /// Decides about one client's batch: contract A2.4, A2.5 and A5, in their order.
    pub fn append(&mut self, records: &Bytes, api_version: i16, permit: Permit, now: TimestampMs) -> Append {
        if self.offline {
            return Append::Refused(Box::new(Refusal::code(ErrorCode::KafkaStorageError, false)));
        }
        let accepted = match batch::validate(records, api_version, &self.rules.append, now) {
            Ok(accepted) => accepted,
            Err(refused) => return Append::Refused(Box::new(refused.into())),
        };
        match self.producers.check(&accepted.header, permit) {
            Check::Append => {}
            Check::Duplicate { base_offset, last_offset, timestamp } => {
                self.producers.repeated(&accepted.header);
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
        let placed = self.enqueue(&accepted.header, patch, records.slice(..accepted.bytes), Enqueue::Data, now);
        Append::Accepted(placed)
    }

    fn enqueue(&mut self, sent: &BatchHeader, patch: Patch, bytes: Bytes, what: Enqueue, now: TimestampMs) -> Placed {
        let mut stored = *sent;
        stored.base_offset = patch.base_offset;
        stored.leader_epoch = patch.leader_epoch;
        stored.max_timestamp = patch.max_timestamp;
        let aborted = match what {
            Enqueue::Data => {
                self.producers.appended(&stored);
                None
            }
            Enqueue::Marker(record) => self.producers.marker_appended(&stored, record),
        };
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
        let is_marker = matches!(what, Enqueue::Marker(_));
        let records = i64::from(sent.record_count);
        self.pending.push_back(Pending { patch, bytes, next: end, records, is_marker, aborted });
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

    /// The aborted transactions that a read_committed reader of the records from `from` up to `upper` has to know: none
    /// whose marker lies before `from`, which it would never meet (A10).
    #[must_use]
    pub fn aborted(&self, from: Offset, upper: Offset) -> Vec<AbortedTxn> {
        self.segments.aborted(from, upper)
    }

    /// Transactions that no coordinator has confirmed: found open at the start, or their add has failed since.
    pub fn doubted(&self) -> impl Iterator<Item = (ProducerId, ProducerEpoch)> + '_ {
        self.producers.doubted()
    }

    /// The add of this producer's open transaction has failed.
    pub fn doubt(&mut self, producer: Identity) {
        self.producers.doubt(producer.producer_id, producer.epoch);
    }

    /// A coordinator knows this producer's open transaction and will end it.
    pub fn confirm(&mut self, producer_id: ProducerId) {
        self.producers.confirm(producer_id);
    }

    /// The oldest transactions that are open since before the last look, which this is from now on.
    pub fn look(&mut self, key: PartitionKey, most: usize) -> Vec<OpenTxn> {
        let before = std::mem::replace(&mut self.looked_end, self.next_offset);
        if self.offline {
            return Vec::new();
        }
        let open = |(producer_id, epoch, first, last)| {
            let producer = Identity { producer_id, epoch };
            OpenTxn { partition: key, producer, first, last }
        };
        self.producers.open_below(before).take(most).map(open).collect()
    }

    /// Whether a transaction is still the one that was looked at, and has no more records.
    #[must_use]
    pub fn is_still_open(&self, looked_at: &OpenTxn) -> bool {
        let of = looked_at.producer;
        let now = (of.producer_id, of.epoch, looked_at.first, looked_at.last);
        self.producers.open_below(looked_at.first.plus(1)).any(|open| open == now)
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

    /// Whether a write is in flight.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Bytes accepted and not yet handed to the writer.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }
}
