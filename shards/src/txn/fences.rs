//! The fence table of one shard: which epochs of which producer ids may not write any more, on any of its partitions.
//!
//! Looked at before every append of a producer with an id; markers pass it. It covers partitions that the producer has
//! not touched yet and those opened later, whatever number there is. The broker's fence log holds the same entries.
//! Limit: `FENCES_MAX`. Beyond it the one set longest ago is forgotten: its producer then meets the epochs of each
//! partition and the coordinator's, which refuse it wherever it had written or asks to.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::markers::Fence;
use crate::code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::limits::{FENCES_LOG_SLACK, FENCES_MAX};

/// A line of the fence log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceEntry {
    /// Whose batches.
    pub producer_id: ProducerId,
    /// Epochs below it are refused.
    pub below: i32,
}

impl From<Fence> for FenceEntry {
    fn from(fence: Fence) -> Self {
        Self { producer_id: fence.producer_id, below: fence.below }
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Fences {
    below: HashMap<ProducerId, (i32, u64), FixedState>,
    /// Producer ids by when their fence was set last.
    by_age: BTreeMap<u64, ProducerId>,
    next: u64,
    /// Entries in the log, as far as this table knows.
    logged: usize,
}

impl Fences {
    /// Puts a fence up; `false` if it, or a higher one, was up already and need not be logged. It never goes down.
    pub fn set(&mut self, fence: Fence) -> bool {
        let before = self.below.get(&fence.producer_id).copied();
        if before.is_some_and(|(below, _)| below >= fence.below) {
            return false;
        }
        if let Some((_, age)) = before {
            self.by_age.remove(&age);
        }
        self.next += 1;
        self.below.insert(fence.producer_id, (fence.below, self.next));
        self.by_age.insert(self.next, fence.producer_id);
        self.logged += 1;
        if self.below.len() > FENCES_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.below.remove(&oldest);
        }
        true
    }

    /// Whether a batch may be written: Produce refuses with INVALID_PRODUCER_EPOCH (0.4).
    ///
    /// # Errors
    /// If a fence is up against it.
    pub fn check(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> Result<(), ErrorCode> {
        match self.below.get(&producer_id) {
            Some((below, _)) if i32::from(epoch.0) < *below => Err(ErrorCode::InvalidProducerEpoch),
            _ => Ok(()),
        }
    }

    /// Takes a log in, in its order.
    pub fn restore(&mut self, entries: impl IntoIterator<Item = FenceEntry>) {
        for FenceEntry { producer_id, below } in entries {
            if !self.set(Fence { producer_id, below }) {
                self.logged += 1;
            }
        }
    }

    /// All fences, the one set longest ago first: what a compacted log holds.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = FenceEntry> + '_ {
        self.by_age
            .values()
            .map(|producer_id| FenceEntry { producer_id: *producer_id, below: self.below[producer_id].0 })
    }

    /// Whether the log has outgrown what is alive in it.
    #[must_use]
    pub fn compaction_due(&self) -> bool {
        self.logged > 2 * self.below.len() + FENCES_LOG_SLACK
    }

    /// The log now holds [`Fences::entries`] alone.
    pub fn compacted(&mut self) {
        self.logged = self.below.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(producer_id: i64, below: i32) -> Fence {
        Fence { producer_id: ProducerId(producer_id), below }
    }

    fn refused(fences: &Fences, producer_id: i64, epoch: i16) -> bool {
        fences.check(ProducerId(producer_id), ProducerEpoch(epoch)).is_err()
    }

    #[test]
    fn f35_epochs_below_a_fence_are_refused_and_it_never_goes_down() {
        let mut fences = Fences::default();
        assert!(!refused(&fences, 7, 0));
        assert!(fences.set(fence(7, 3)));
        assert!(!fences.set(fence(7, 2)) && !fences.set(fence(7, 3)));
        assert!(refused(&fences, 7, 2) && !refused(&fences, 7, 3) && !refused(&fences, 8, 0));
        assert_eq!(fences.check(ProducerId(7), ProducerEpoch(0)), Err(ErrorCode::InvalidProducerEpoch));
    }

    #[test]
    fn a_rotated_producer_id_is_refused_at_every_epoch() {
        let mut fences = Fences::default();
        fences.set(fence(7, i32::from(i16::MAX) + 1));
        assert!(refused(&fences, 7, i16::MAX));
    }

    #[test]
    fn what_is_logged_restores_the_table_and_the_log_is_compacted_when_it_outgrows_it() {
        let mut fences = Fences::default();
        let mut log = Vec::new();
        for below in 1..=2000 {
            let set = fence(i64::from(below % 3), below);
            if fences.set(set) {
                log.push(FenceEntry::from(set));
            }
        }
        assert!(fences.compaction_due());
        let mut restored = Fences::default();
        restored.restore(log);
        assert!(restored.entries().eq(fences.entries()));
        assert_eq!(restored.entries().len(), 3);
        assert!(restored.compaction_due());
        restored.compacted();
        assert!(!restored.compaction_due());
    }

    #[test]
    fn beyond_its_limit_the_fence_set_longest_ago_is_forgotten() {
        let mut fences = Fences::default();
        for producer_id in 0..FENCES_MAX as i64 {
            fences.set(fence(producer_id, 1));
        }
        fences.set(fence(0, 2));
        fences.set(fence(-5, 1));
        assert_eq!(fences.entries().len(), FENCES_MAX);
        assert!(refused(&fences, 0, 1) && refused(&fences, -5, 0) && refused(&fences, 2, 0));
        assert!(!refused(&fences, 1, 0), "1 was the oldest, since 0 was set again");
    }
}
