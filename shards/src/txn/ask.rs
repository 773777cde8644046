//! What transactional ids are asked and what they answer: the requests of the APIs without their encodings.
//!
//! An API file turns its request into an [`Ask`] and a [`Reply`] into its answer. Codes are those of the newest
//! versions: where an old version says INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED, or Produce translates (A4),
//! the API file does. Access rules and unknown partitions are its business too: they come before the coordinator.

use std::sync::Arc;

use crate::code::ErrorCode;
use crate::ids::{PartitionKey, ProducerEpoch, ProducerId, TimestampMs};

/// A request to one transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What is asked.
    pub request: Request,
    /// Until when the request may wait for a transaction that is completing, on the clock that never jumps; then it is
    /// answered CONCURRENT_TRANSACTIONS.
    pub until_ms: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// InitProducerId with a transactional id (contract B2).
    Init(Init),
    /// AddPartitionsToTxn, AddOffsetsToTxn, and the implicit add of Produce 12 and TxnOffsetCommit 5 (B3, B5, A4).
    Add(Add),
    /// The check of Produce 11 and TxnOffsetCommit 4 and below (B4).
    Verify(Verify),
    /// EndTxn (B6).
    End(End),
    /// A transaction that a partition or a group found open when it was loaded. Refused with CONCURRENT_TRANSACTIONS,
    /// it is asked again: until there is an answer the partition serves this producer id nothing but markers.
    Adopt(Adopt),
    /// DescribeTransactions (B9).
    Describe,
}

/// A producer id at an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Who.
    pub producer_id: ProducerId,
    /// Which of its lives.
    pub epoch: ProducerEpoch,
}

impl Identity {
    /// What InitProducerId gives for "none".
    pub const NONE: Self = Self { producer_id: ProducerId::NONE, epoch: ProducerEpoch::NONE };
}

/// An InitProducerId request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// How long a transaction may stay open.
    pub timeout_ms: i32,
    /// What the producer was before; -1 twice if it is new.
    pub given: Identity,
    /// Version 6: transactions without a timeout.
    pub two_phase: bool,
    /// Version 6: go on with the open transaction, which no broker serves (0.8).
    pub keep_prepared: bool,
}

/// What joins a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// Whose.
    pub producer: Identity,
    /// Partitions that exist.
    pub partitions: Vec<PartitionKey>,
    /// Groups whose offsets are committed: Kafka adds a partition of __consumer_offsets for them.
    pub groups: Vec<Arc<str>>,
    /// Who adds.
    pub by: AddBy,
}

/// Who adds to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddBy {
    /// The client: AddPartitionsToTxn 0 to 3 and AddOffsetsToTxn.
    Client,
    /// The broker on the client's behalf: Produce 12, TxnOffsetCommit 5, AddPartitionsToTxn 4 and 5. With `early`
    /// there may be an [`super::Effect::Granted`] before the answer.
    Broker {
        /// Whether the first write may start before the add is durable.
        early: bool,
    },
}

/// Whether partitions and groups are in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// Whose.
    pub producer: Identity,
    /// Which.
    pub partitions: Vec<PartitionKey>,
    /// And which groups, for TxnOffsetCommit.
    pub groups: Vec<Arc<str>>,
}

/// An EndTxn request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Whose.
    pub producer: Identity,
    /// How.
    pub outcome: Outcome,
    /// By version 5 or later: every end takes a new epoch (path B); else path A.
    pub bumps: bool,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its records and offsets become visible.
    Commit,
    /// They never do.
    Abort,
}

/// What is open at partitions and groups of the asking shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopt {
    /// Whose it is there.
    pub producer: Identity,
    /// Partitions.
    pub partitions: Vec<PartitionKey>,
    /// Groups with pending offsets.
    pub groups: Vec<Arc<str>>,
    /// What [`Adopted::LookAgain`] told before the asker looked; none at first.
    pub seen: Option<u64>,
}

/// An answer of one transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Request::Init`]: what the producer is from now on.
    Init(Identity),
    /// To [`Request::Add`].
    Added,
    /// To [`Request::Verify`]: a code for each partition and then for each group, in their order.
    Verified(Vec<ErrorCode>),
    /// To [`Request::End`]: what the producer is from now on; version 5 tells it.
    Ended(Identity),
    /// To [`Request::Adopt`].
    Adopted(Adopted),
    /// To [`Request::Describe`].
    Described(Description),
}

/// What to do about an open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// It is the coordinator's: a marker will come, when it is decided.
    Yes,
    /// Nobody will ever end it: write an abort marker with this epoch and transaction version 0.
    Abort(ProducerEpoch),
    /// It would join the transaction behind so many decided ones, but one of them may have ended it since the asker
    /// looked: what is open still is asked about again, with this number.
    LookAgain(u64),
}

/// A transactional id for DescribeTransactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name of its state.
    pub state: &'static str,
    /// Who it is now.
    pub producer: Identity,
    /// How long its transactions may stay open.
    pub timeout_ms: i32,
    /// When the transaction began; -1 if none has since the last InitProducerId.
    pub start: TimestampMs,
    /// Partitions that are in it, without those that have their marker.
    pub partitions: Vec<PartitionKey>,
    /// Groups that are in it.
    pub groups: Vec<Arc<str>>,
}
