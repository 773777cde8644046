//! What one partition remembers of its producers, so that each batch is stored exactly once (contract A1, A3, A5-A10).
//!
//! Owner: the partition, on its core. A batch is remembered when its offset is assigned, before it is durable; a
//! duplicate of it is answered when the original is durable, which is the partition's business. The state is lost with
//! the process and comes back from a snapshot and the log behind it; when appended batches did not reach the log, the
//! whole state is thrown away and rebuilt the same way. Limits: five batches a producer, and
//! `limits::PARTITION_PRODUCERS_MAX` producers.

mod entry;
mod first;
mod snapshot;
mod table;
mod txn;
mod verification;

use std::collections::{BTreeMap, BTreeSet};

use crate::batch::{BatchHeader, ControlRecord};
use crate::code::ErrorCode;
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::PARTITION_PRODUCERS_MAX;
use crate::producers::entry::Entry;
use crate::producers::table::Table;
use crate::producers::verification::Verifications;

pub use first::FirstBatches;
pub use snapshot::SnapshotError;
pub use txn::AbortedTxn;
pub use verification::{Guard, Permit, Verify};

/// What is to happen with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It is new: append it and report [`Producers::appended`].
    Append,
    /// It was stored before: answer success with the original's fields, once `last_offset` is durable.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// Offset of its last record.
        last_offset: Offset,
        /// Its largest timestamp, the answer's log append time under LogAppendTime.
        timestamp: TimestampMs,
    },
    /// It is answered with this code.
    Refuse(ErrorCode),
}

/// The last thing that a producer left in the log, as far as compaction has to keep it (contract A10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastOf {
    /// A data batch that ends with this offset.
    Data(Offset),
    /// A marker, which brought this epoch; there is no data at it.
    Marker(ProducerEpoch),
}

/// One producer as DescribeProducers shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerView {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record at that epoch, -1 if there is none.
    pub last_sequence: Sequence,
    /// Largest timestamp of its last batch, or that of its last marker.
    pub last_timestamp: TimestampMs,
    /// Epoch of the coordinator that wrote its last marker, -1 if there is none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction.
    pub txn_start_offset: Option<Offset>,
}

/// A transaction that is open.
#[derive(Clone, Copy, Debug)]
struct Ongoing {
    producer_id: ProducerId,
    /// Largest timestamp of its first batch; of its last one before the snapshot, if it comes from one.
    since: TimestampMs,
}

/// The producers of one partition.
#[derive(Clone, Debug)]
pub struct Producers {
    table: Table,
    /// Open transactions by their first offset.
    ongoing: BTreeMap<Offset, Ongoing>,
    /// Decided transactions by their first offset, with the offset of a marker not yet below the high watermark.
    unreplicated: BTreeMap<Offset, Offset>,
    /// Producers that have asked whether their transaction may write here.
    verifications: Verifications,
    /// Producers whose open transactions are not confirmed by a coordinator: found by a start, or the add failed.
    doubted: BTreeSet<ProducerId>,
    /// Producers that were refused before this state was there.
    first: FirstBatches,
    /// Offset behind the last batch this state includes.
    end: Offset,
    entries_max: usize,
}

impl Default for Producers {
    fn default() -> Self {
        Self::new()
    }
}

impl Producers {
    /// The state of an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self {
            table: Table::new(),
            ongoing: BTreeMap::new(),
            unreplicated: BTreeMap::new(),
            verifications: Verifications::default(),
            doubted: BTreeSet::new(),
            first: FirstBatches::default(),
            end: Offset(0),
            entries_max: PARTITION_PRODUCERS_MAX,
        }
    }

    /// The same state, which remembers at most `entries_max` producers from the next new one on.
    #[must_use]
    pub fn limited_to(mut self, entries_max: usize) -> Self {
        assert!(entries_max > 0, "a producer has to be remembered while its batch is appended");
        self.entries_max = entries_max;
        self
    }

    /// Takes over who was refused while nothing of this was there.
    pub fn begin_with(&mut self, first: FirstBatches) {
        self.first = first;
    }

    /// Decides about a client's batch (A5); a transactional one needs what [`Producers::verify`] asked for.
    #[inline]
    #[must_use]
    pub fn check(&self, header: &BatchHeader, permit: Permit) -> Check {
        if !header.is_idempotent() {
            return Check::Append;
        }
        if !self.first.admits(header) {
            return Check::Refuse(ErrorCode::OutOfOrderSequenceNumber);
        }
        let entry = self.table.get(header.producer_id);
        let epoch = header.producer_epoch.0;
        let follows = entry.is_some_and(|entry| entry.last_sequence().is_followed_by(header.base_sequence));
        // What follows the last batch is not among the last five, which would have to span all 2^31 sequences; so the
        // usual case does not look through them.
        if let Some(entry) = entry
            && epoch == entry.epoch
            && !follows
            && let Some(cached) = entry.duplicate_of(header)
        {
            return Check::Duplicate {
                base_offset: cached.base_offset(),
                last_offset: Offset(cached.last_offset),
                timestamp: TimestampMs(cached.max_timestamp),
            };
        }
        let transactional = header.attributes.is_transactional();
        let opens = transactional && !entry.is_some_and(|entry| entry.has_open_txn() && entry.epoch == epoch);
        if entry.is_some_and(|entry| epoch < entry.epoch) {
            return Check::Refuse(ErrorCode::InvalidProducerEpoch);
        }
        if opens && self.is_doubted_before(header) {
            return Check::Refuse(ErrorCode::NotEnoughReplicas);
        }
        if opens && !self.permits(header.producer_id, permit) {
            return Check::Refuse(ErrorCode::InvalidTxnState);
        }
        if !self.admits_sequence(header, entry.is_some_and(|entry| !entry.batches().is_empty())) {
            return Check::Refuse(ErrorCode::OutOfOrderSequenceNumber);
        }
        // A producer nobody remembers may begin anywhere: it may have been forgotten (A5.6).
        let Some(entry) = entry else { return Check::Append };
        let in_sequence = if epoch > entry.epoch { header.base_sequence == Sequence(0) } else { follows };
        if !in_sequence {
            return Check::Refuse(ErrorCode::OutOfOrderSequenceNumber);
        }
        if entry.has_open_txn() && !transactional {
            return Check::Refuse(ErrorCode::InvalidTxnState);
        }
        Check::Append
    }

    /// Takes note of a batch that was found to be a duplicate.
    pub fn repeated(&mut self, header: &BatchHeader) {
        self.first.begun(header.producer_id);
    }

    /// Takes note of a data batch that [`Producers::check`] let through, with its assigned base offset and the largest
    /// timestamp as stored. Batches without a producer are reported too: they move the end.
    pub fn appended(&mut self, header: &BatchHeader) {
        assert!(!header.attributes.is_control(), "markers are reported as such");
        self.advance(header);
        if header.is_idempotent() {
            self.remember(header);
            if header.attributes.is_transactional() {
                self.verifications.appended(header.producer_id);
            }
        }
    }

    /// Takes note of a batch found in the log. `control` is the content of a control batch, if it has any. Batches
    /// below [`Producers::end_offset`] are known already. Gives the aborted transaction that a marker ended.
    pub fn replay(&mut self, header: &BatchHeader, control: Option<ControlRecord>) -> Option<AbortedTxn> {
        if header.base_offset < self.end {
            return None;
        }
        match control {
            Some(record) if header.attributes.is_control() => self.marker_appended(header, record),
            // What compaction left of a control batch says nothing (A6).
            _ if header.attributes.is_control() => {
                self.advance(header);
                None
            }
            _ => {
                self.appended(header);
                None
            }
        }
    }

    /// Offset behind the last batch this state includes; where a replay has to go on.
    #[must_use]
    pub fn end_offset(&self) -> Offset {
        self.end
    }

    /// Forgets producers without an open transaction whose last timestamp is `expiration_ms` ago (A7); how many.
    pub fn expire(&mut self, now: TimestampMs, expiration_ms: i64) -> usize {
        self.verifications.expire(now, expiration_ms);
        let before = self.table.len();
        // From the end, because a removal moves the last entry into the gap.
        for at in (0..before as u32).rev() {
            if self.table.at(at).is_expired(now, expiration_ms) {
                self.table.unlink(at);
                self.table.remove(at);
            }
        }
        before - self.table.len()
    }

    /// Forgets the producer unused for longest, unless all have open transactions.
    pub fn forget_oldest(&mut self) -> Option<ProducerId> {
        let at = self.table.oldest()?;
        let id = ProducerId(self.table.at(at).producer_id);
        self.table.unlink(at);
        self.table.remove(at);
        Some(id)
    }

    /// The last thing that a producer left below `durable_end`; `None` if it is not remembered.
    #[must_use]
    pub fn last_of(&self, producer_id: ProducerId, durable_end: Offset) -> Option<LastOf> {
        let entry = self.table.get(producer_id)?;
        if entry.batches().is_empty() {
            return Some(LastOf::Marker(ProducerEpoch(entry.epoch)));
        }
        let durable = entry.batches().iter().rev().find(|cached| cached.last_offset < durable_end.0)?;
        Some(LastOf::Data(Offset(durable.last_offset)))
    }

    /// Number of producers remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no producer is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Memory taken by the producers, without the open transactions' own.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Every producer, by ascending id.
    pub fn describe(&self) -> impl ExactSizeIterator<Item = ProducerView> + use<> {
        let mut views: Vec<_> = self.table.entries().iter().map(view).collect();
        views.sort_unstable_by_key(|view| view.producer_id);
        views.into_iter()
    }

    fn advance(&mut self, header: &BatchHeader) {
        assert!(header.base_offset >= self.end, "batches are appended behind each other");
        self.end = header.next_offset();
    }

    fn remember(&mut self, header: &BatchHeader) {
        self.first.begun(header.producer_id);
        let at = self.take(header.producer_id);
        let entry = self.table.at(at);
        entry.push(header);
        if header.attributes.is_transactional() && !entry.has_open_txn() {
            entry.txn_first_offset = header.base_offset.0;
            let ongoing = Ongoing { producer_id: header.producer_id, since: header.max_timestamp };
            self.ongoing.insert(header.base_offset, ongoing);
        }
        self.put(at);
    }

    /// The producer's entry, made if missing, off the list of use until [`Producers::put`].
    fn take(&mut self, producer_id: ProducerId) -> u32 {
        if let Some(at) = self.table.find(producer_id) {
            if !self.table.at(at).has_open_txn() {
                self.table.unlink(at);
            }
            return at;
        }
        while self.table.len() >= self.entries_max && self.forget_oldest().is_some() {}
        self.table.insert(Entry::new(producer_id))
    }

    fn put(&mut self, at: u32) {
        if !self.table.at(at).has_open_txn() {
            self.table.link_newest(at);
        }
    }
}

fn view(entry: &Entry) -> ProducerView {
    ProducerView {
        producer_id: ProducerId(entry.producer_id),
        epoch: ProducerEpoch(entry.epoch),
        last_sequence: entry.last_sequence(),
        last_timestamp: TimestampMs(entry.last_timestamp),
        coordinator_epoch: entry.coordinator_epoch,
        txn_start_offset: entry.has_open_txn().then_some(Offset(entry.txn_first_offset)),
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
