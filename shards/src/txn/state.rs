//! What the coordinator knows of one transactional id.
//!
//! [`Head`] is the state of contract B1 without the partitions, small enough to be kept twice: as it is durable and as
//! it is decided. [`Members`] are the partitions and groups of the transaction, each with the journal position from
//! which on its membership is durable, so that one set serves both views.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ask::{Identity, Outcome};
use crate::ids::{PartitionKey, ProducerEpoch, ProducerId, TimestampMs};
use crate::slot::Position;

/// The last epoch that a producer id has, which only server aborts and markers reach: epochs from the one before it
/// count as exhausted (contract B2).
pub const EPOCH_LAST: i16 = i16::MAX;

/// States of contract B1; Dead and PrepareEpochFence are steps here, never states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No transaction since the last InitProducerId.
    Empty,
    /// Open.
    Ongoing,
    /// Committed, not all markers are written.
    PrepareCommit,
    /// Aborted, not all markers are written.
    PrepareAbort,
    /// Committed everywhere.
    CompleteCommit,
    /// Aborted everywhere.
    CompleteAbort,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
    ];

    /// Kafka's name (contract B9).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    pub(super) fn prepared(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Commit => Self::PrepareCommit,
            Outcome::Abort => Self::PrepareAbort,
        }
    }

    /// How the transaction ends whose markers are being written.
    pub(super) fn completing(self) -> Option<Outcome> {
        match self {
            Self::PrepareCommit => Some(Outcome::Commit),
            Self::PrepareAbort => Some(Outcome::Abort),
            _ => None,
        }
    }

    pub(super) fn completed(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Commit => Self::CompleteCommit,
            Outcome::Abort => Self::CompleteAbort,
        }
    }

    /// Whether no transaction is open or completing.
    pub(super) fn is_idle(self) -> bool {
        matches!(self, Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
    }
}

/// One transactional id without its partitions (contract B1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// PID.
    pub producer_id: ProducerId,
    /// prevPID: what it was before the last transition.
    pub prev_producer_id: ProducerId,
    /// nextPID: what it is once the transaction is complete, -1 if the same.
    pub next_producer_id: ProducerId,
    /// E.
    pub epoch: ProducerEpoch,
    /// lastE: which epoch a repeated request may still name, -1 if none. Durable here, so that a retry works after a
    /// restart as well (better than Kafka, F42).
    pub last_epoch: ProducerEpoch,
    /// How long a transaction may stay open; `i32::MAX`: for ever.
    pub timeout_ms: i32,
    /// Where it is.
    pub state: State,
    /// startMs, -1 if no transaction began since the last InitProducerId.
    pub start: TimestampMs,
    /// updateMs.
    pub update: TimestampMs,
    /// clientTV: 2 if the last step was one of path B, else 0.
    pub client_version: i8,
    /// Transactions that were decided so far: tells markers of one from those of the next at the same epoch.
    pub sequence: u64,
}

impl Head {
    /// Who the producer is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity { producer_id: self.producer_id, epoch: self.epoch }
    }

    /// Who the producer is once nothing is completing any more: what EndTxn tells it.
    #[must_use]
    pub fn next_identity(&self) -> Identity {
        match self.next_producer_id {
            ProducerId::NONE => self.identity(),
            producer_id => Identity { producer_id, epoch: ProducerEpoch(0) },
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.epoch.0 >= EPOCH_LAST - 1
    }

    pub(super) fn is_overdue(&self, now: TimestampMs) -> bool {
        let bounded = self.timeout_ms != i32::MAX;
        self.state == State::Ongoing && bounded && self.start.0.saturating_add(i64::from(self.timeout_ms)) < now.0
    }
}

/// What a transaction touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    pub(super) partitions: BTreeMap<PartitionKey, Position>,
    pub(super) groups: BTreeMap<Arc<str>, Position>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.partitions.len() + self.groups.len()
    }

    pub(super) fn has_all(&self, partitions: &[PartitionKey], groups: &[Arc<str>]) -> bool {
        partitions.iter().all(|key| self.partitions.contains_key(key))
            && groups.iter().all(|group| self.groups.contains_key(group))
    }

    pub(super) fn clear(&mut self) {
        self.partitions.clear();
        self.groups.clear();
    }

    /// Members that are not in yet, each once.
    pub(super) fn missing(&self, partitions: &[PartitionKey], groups: &[Arc<str>]) -> Joining {
        let mut joining = Joining {
            partitions: partitions.iter().filter(|key| !self.partitions.contains_key(*key)).copied().collect(),
            groups: groups.iter().filter(|group| !self.groups.contains_key(*group)).cloned().collect(),
        };
        joining.partitions.sort_unstable();
        joining.partitions.dedup();
        joining.groups.sort_unstable();
        joining.groups.dedup();
        joining
    }
}

/// Members that join by one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    pub(super) partitions: Vec<PartitionKey>,
    pub(super) groups: Vec<Arc<str>>,
}

impl Joining {
    pub(super) fn len(&self) -> usize {
        self.partitions.len() + self.groups.len()
    }
}
