//! What is remembered of one producer in one partition (contract A1).
//!
//! Many of these exist (`limits::PARTITION_PRODUCERS_MAX`), so the fields are bare integers in an order without gaps
//! and "none" is -1. What is asked of every batch stands in front of the window of past batches.

use crate::batch::BatchHeader;
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::PRODUCER_BATCHES_MAX;

/// "No entry" in the links between entries.
pub(super) const NO_LINK: u32 = u32::MAX;

/// One past batch. Its first sequence and offset follow from the last ones and the delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cached {
    pub(super) last_offset: i64,
    pub(super) max_timestamp: i64,
    pub(super) last_sequence: i32,
    pub(super) offset_delta: i32,
}

const UNUSED: Cached = Cached { last_offset: -1, max_timestamp: -1, last_sequence: -1, offset_delta: 0 };

/// One producer.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) producer_id: i64,
    pub(super) last_timestamp: i64,
    pub(super) txn_first_offset: i64,
    pub(super) coordinator_epoch: i32,
    /// The entry used before this one, among those without an open transaction.
    pub(super) older: u32,
    /// The entry used after this one, likewise.
    pub(super) newer: u32,
    pub(super) epoch: i16,
    len: u8,
    batches: [Cached; PRODUCER_BATCHES_MAX],
}

const _: () = assert!(size_of::<Entry>() == 160, "an entry grew; limits::PARTITION_PRODUCERS_MAX counts on its size");

impl Entry {
    pub(super) fn new(producer_id: ProducerId) -> Self {
        Self {
            producer_id: producer_id.0,
            last_timestamp: -1,
            txn_first_offset: -1,
            coordinator_epoch: -1,
            older: NO_LINK,
            newer: NO_LINK,
            epoch: ProducerEpoch::NONE.0,
            len: 0,
            batches: [UNUSED; PRODUCER_BATCHES_MAX],
        }
    }

    /// The remembered batches, oldest first.
    pub(super) fn batches(&self) -> &[Cached] {
        &self.batches[..usize::from(self.len)]
    }

    pub(super) fn has_open_txn(&self) -> bool {
        self.txn_first_offset >= 0
    }

    /// The last sequence at this epoch; the one before 0 if there is no batch yet (A3).
    #[inline]
    pub(super) fn last_sequence(&self) -> Sequence {
        self.batches().last().map_or(Sequence::NONE, |cached| Sequence(cached.last_sequence))
    }

    /// The remembered batch with exactly these sequences (A5.1).
    #[inline]
    pub(super) fn duplicate_of(&self, header: &BatchHeader) -> Option<&Cached> {
        let last_sequence = header.last_sequence().0;
        self.batches()
            .iter()
            .rev()
            .find(|cached| cached.last_sequence == last_sequence && cached.offset_delta == header.last_offset_delta)
    }

    /// Takes an epoch; past batches count within their own epoch only.
    pub(super) fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch.0 {
            self.epoch = epoch.0;
            self.len = 0;
        }
    }

    /// Remembers an appended batch (A5.9).
    pub(super) fn push(&mut self, header: &BatchHeader) {
        self.set_epoch(header.producer_epoch);
        self.last_timestamp = header.max_timestamp.0;
        self.push_cached(Cached {
            last_offset: header.last_offset().0,
            max_timestamp: header.max_timestamp.0,
            last_sequence: header.last_sequence().0,
            offset_delta: header.last_offset_delta,
        });
    }

    pub(super) fn push_cached(&mut self, cached: Cached) {
        if usize::from(self.len) == PRODUCER_BATCHES_MAX {
            self.batches.copy_within(1.., 0);
            self.len -= 1;
        }
        self.batches[usize::from(self.len)] = cached;
        self.len += 1;
    }

    pub(super) fn is_expired(&self, now: TimestampMs, expiration_ms: i64) -> bool {
        !self.has_open_txn() && now.0.saturating_sub(self.last_timestamp) >= expiration_ms
    }
}

impl Cached {
    pub(super) fn base_offset(&self) -> Offset {
        Offset(self.last_offset - i64::from(self.offset_delta))
    }
}
