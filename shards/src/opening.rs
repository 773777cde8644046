//! The partitions of a shard that are on its disk and not open yet: a start opens them while it serves already, and
//! those first that somebody asks for.
//!
//! Owner: the shard. A partition waits, is in work, and then is open, or has failed for as long as the broker runs. Who
//! asks for one before is told NOT_LEADER_OR_FOLLOWER, which every client tries again and a coordinator's marker too;
//! UNKNOWN_TOPIC_OR_PARTITION would say that its records are gone. Limits: what it holds are the shard's partitions;
//! how many are in work at a time is for the edge that does the work.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::batch::BatchHeader;
use crate::code::ErrorCode;
use crate::ids::PartitionKey;
use crate::producers::FirstBatches;

/// What is not open yet.
#[derive(Debug, Default)]
pub struct Opening {
    waiting: BTreeSet<PartitionKey>,
    /// Those of the waiting that were asked for. A cell, because whoever looks for a partition asks for it.
    wanted: RefCell<BTreeSet<PartitionKey>>,
    in_work: BTreeSet<PartitionKey>,
    failed: BTreeSet<PartitionKey>,
    /// Batches that were refused for now.
    refused: BTreeMap<PartitionKey, FirstBatches>,
}

impl Opening {
    /// Notes a partition that is on the disk.
    pub fn expect(&mut self, key: PartitionKey) {
        assert!(!self.knows(&key), "{key} is opened once");
        self.waiting.insert(key);
    }

    /// The next one to open: one that was asked for, if there is any.
    pub fn take(&mut self) -> Option<PartitionKey> {
        let key = self.wanted.get_mut().pop_first().or_else(|| self.waiting.first().copied())?;
        assert!(self.waiting.remove(&key), "only what waits is wanted");
        self.in_work.insert(key);
        Some(key)
    }

    /// The one that was taken is open; false if it was given up meanwhile.
    pub fn opened(&mut self, key: &PartitionKey) -> bool {
        self.in_work.remove(key)
    }

    /// The one that was taken cannot be opened; false if it was given up meanwhile.
    pub fn failed(&mut self, key: PartitionKey) -> bool {
        let is_ours = self.in_work.remove(&key);
        if is_ours {
            self.failed.insert(key);
        }
        is_ours
    }

    /// What to answer to a batch for a partition that is not open, as [`Opening::code`]. Once it is open, what was sent
    /// behind this batch must not be taken before it.
    pub fn refuse(&mut self, key: &PartitionKey, records: &[u8]) -> ErrorCode {
        let code = self.code(key);
        if code == ErrorCode::NotLeaderOrFollower
            && let Ok(header) = BatchHeader::parse(records)
        {
            self.refused.entry(*key).or_default().refused(&header);
        }
        code
    }

    /// What was refused of a partition that is open now.
    pub fn take_refused(&mut self, key: &PartitionKey) -> FirstBatches {
        self.refused.remove(key).unwrap_or_default()
    }

    /// Its topic was deleted.
    pub fn forget(&mut self, key: &PartitionKey) {
        self.refused.remove(key);
        self.waiting.remove(key);
        self.wanted.get_mut().remove(key);
        self.in_work.remove(key);
        self.failed.remove(key);
    }

    /// Whether the partition is on the disk and not open.
    #[must_use]
    pub fn knows(&self, key: &PartitionKey) -> bool {
        self.waiting.contains(key) || self.in_work.contains(key) || self.failed.contains(key)
    }

    /// What to answer for a partition that is not open; one that waits is opened before the others from now on.
    #[must_use]
    pub fn code(&self, key: &PartitionKey) -> ErrorCode {
        if self.waiting.contains(key) {
            self.wanted.borrow_mut().insert(*key);
            return ErrorCode::NotLeaderOrFollower;
        }
        if self.in_work.contains(key) {
            return ErrorCode::NotLeaderOrFollower;
        }
        if self.failed.contains(key) { ErrorCode::KafkaStorageError } else { ErrorCode::UnknownTopicOrPartition }
    }

    /// How many are still to come, those in work included.
    #[must_use]
    pub fn left(&self) -> usize {
        self.waiting.len() + self.in_work.len()
    }
}

#[cfg(test)]
#[path = "opening_tests.rs"]
mod tests;
