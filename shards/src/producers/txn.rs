//! The transactional half of a partition's producers: markers, the last stable offset, aborted transactions.
//!
//! Contract A6 (markers), A9 (last stable offset) and A10 (what the aborted index gets). A transaction opens with the
//! first transactional batch, in `appended`, and closes with a marker, here.

use crate::batch::{BatchHeader, ControlKind, ControlRecord};
use crate::code::ErrorCode;
use crate::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};
use crate::producers::Producers;

/// One entry of the aborted index (A10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// Offset of its first record here.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub marker_offset: Offset,
    /// First offset of the oldest transaction still open, else the offset behind the marker.
    pub stable_offset: Offset,
}

impl Producers {
    /// Whether a coordinator's marker may be appended (A6.1, A6.2). `transaction_version` is that of the
    /// WriteTxnMarkers entry, 0 if it has none.
    pub fn check_marker(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        coordinator_epoch: i32,
        transaction_version: i16,
    ) -> Result<(), ErrorCode> {
        if producer_id.0 < 0 || epoch.0 < 0 || transaction_version < 0 {
            return Err(ErrorCode::InvalidRequest);
        }
        let Some(entry) = self.table.get(producer_id) else { return Ok(()) };
        let stale = if transaction_version >= 2 {
            // The producer moved on with the marker's epoch, so an equal one is this marker again, or there is no
            // higher epoch.
            let repeat = epoch.0 == entry.epoch && (!entry.has_open_txn() || epoch.0 == i16::MAX);
            epoch.0 <= entry.epoch && !repeat
        } else {
            epoch.0 < entry.epoch
        };
        if stale {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if coordinator_epoch < entry.coordinator_epoch {
            return Err(ErrorCode::TransactionCoordinatorFenced);
        }
        Ok(())
    }

    /// Takes note of a marker with its assigned offset (A6.3, A6.4). Gives the index entry of a transaction that is
    /// aborted by it and wrote here.
    pub fn marker_appended(&mut self, header: &BatchHeader, record: ControlRecord) -> Option<AbortedTxn> {
        assert!(header.attributes.is_control(), "only a control batch ends a transaction");
        self.advance(header);
        if !header.is_idempotent() {
            return None;
        }
        let at = self.take(header.producer_id);
        let entry = self.table.at(at);
        let first_offset = entry.has_open_txn().then_some(Offset(entry.txn_first_offset));
        entry.set_epoch(header.producer_epoch);
        entry.txn_first_offset = -1;
        entry.last_timestamp = header.max_timestamp.0;
        entry.coordinator_epoch = record.coordinator_epoch;
        self.put(at);
        self.verifications.ended(header.producer_id, header.producer_epoch);
        self.doubted.remove(&header.producer_id);

        let first_offset = first_offset?;
        let marker_offset = header.last_offset();
        self.ongoing.remove(&first_offset);
        self.unreplicated.insert(first_offset, marker_offset);
        let stable_offset = self.ongoing.keys().next().copied().unwrap_or(marker_offset.plus(1));
        (record.kind == ControlKind::Abort).then_some(AbortedTxn {
            producer_id: header.producer_id,
            first_offset,
            marker_offset,
            stable_offset,
        })
    }

    /// First offset of the oldest transaction that is open, or decided by a marker that is not committed itself (A9).
    #[must_use]
    pub fn first_unstable(&self) -> Option<Offset> {
        let open = self.ongoing.keys().next();
        let decided = self.unreplicated.keys().next();
        open.into_iter().chain(decided).min().copied()
    }

    /// The last stable offset: never above the high watermark, never below the log start (A9).
    #[must_use]
    pub fn last_stable(&self, high_watermark: Offset, log_start: Offset) -> Offset {
        let first_unstable = self.first_unstable().unwrap_or(high_watermark);
        first_unstable.max(log_start).min(high_watermark)
    }

    /// Markers below the high watermark are committed, and what they decided is stable.
    pub fn high_watermark_moved(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|_, marker_offset| *marker_offset >= high_watermark);
    }

    /// Markers below the log start are gone (A8). Producers and open transactions stay.
    pub fn log_start_moved(&mut self, log_start: Offset) {
        self.unreplicated.retain(|_, marker_offset| *marker_offset >= log_start);
    }

    /// Epoch of the coordinator that ended the producer's last transaction; -1 if none did.
    #[must_use]
    pub fn coordinator_epoch_of(&self, producer_id: ProducerId) -> i32 {
        self.table.get(producer_id).map_or(-1, |entry| entry.coordinator_epoch)
    }

    /// About when the oldest open transaction began: by the timestamps of its records.
    #[must_use]
    pub fn oldest_open(&self) -> Option<TimestampMs> {
        self.ongoing.values().map(|ongoing| ongoing.since).min()
    }

    /// Transactions that began below `end`, oldest first: producer, its epoch, first offset here, last offset of the
    /// producer here. Without those in doubt.
    pub fn open_below(&self, end: Offset) -> impl Iterator<Item = (ProducerId, ProducerEpoch, Offset, Offset)> + '_ {
        let open = self.ongoing.range(..end).filter(|(_, ongoing)| !self.doubted.contains(&ongoing.producer_id));
        open.filter_map(|(first, ongoing)| {
            let entry = self.table.get(ongoing.producer_id)?;
            let last = entry.batches().last().map_or(*first, |batch| Offset(batch.last_offset));
            Some((ongoing.producer_id, ProducerEpoch(entry.epoch), *first, last))
        })
    }

    /// Has every transaction that is open now confirmed by a coordinator, because the add of a partition may be lost
    /// where its first write is kept. Until then the batches of these producers are verified (A4 c does not hold).
    pub fn doubt_open(&mut self) {
        self.doubted = self.ongoing.values().map(|ongoing| ongoing.producer_id).collect();
    }

    /// Puts what is open of a producer at an epoch in doubt, because its write is here and its add has failed.
    pub fn doubt(&mut self, producer_id: ProducerId, epoch: ProducerEpoch) {
        let entry = self.table.get(producer_id);
        if entry.is_some_and(|entry| entry.has_open_txn() && entry.epoch == epoch.0) {
            self.doubted.insert(producer_id);
        }
    }

    /// Whether something is open and in doubt of an older life of a batch's producer. Its records would become part of
    /// the transaction that the batch opens, and be committed with it.
    pub(super) fn is_doubted_before(&self, header: &BatchHeader) -> bool {
        let is_older = |epoch: i16| epoch < header.producer_epoch.0;
        let entry = self.table.get(header.producer_id);
        let is_open = entry.is_some_and(|entry| entry.has_open_txn() && is_older(entry.epoch));
        is_open && self.doubted.contains(&header.producer_id)
    }

    /// Who is in doubt, and at which epoch, by ascending id.
    pub fn doubted(&self) -> impl Iterator<Item = (ProducerId, ProducerEpoch)> + '_ {
        let epoch_of = |id: ProducerId| self.table.get(id).map(|entry| (id, ProducerEpoch(entry.epoch)));
        self.doubted.iter().filter_map(move |id| epoch_of(*id))
    }

    /// A coordinator knows the open transaction of this producer.
    pub fn confirm(&mut self, producer_id: ProducerId) {
        self.doubted.remove(&producer_id);
    }

    /// Number of open transactions.
    #[must_use]
    pub fn open_transactions(&self) -> usize {
        self.ongoing.len()
    }
}
