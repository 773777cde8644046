//! What goes between a producer's machine and its edge: requests and answers without a wire format, and outcomes.

use std::sync::Arc;

use super::error::ClientFailure;
use super::payload::Payload;
use crate::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};

/// A record that was taken; counts up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u64);

/// A request that was sent; counts up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call of the producer's user; the edge gives the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// One connection to one node. The next one to the same node has the next generation, and no request moves to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The node; negative for addresses given to begin with.
    pub node: i32,
    /// Counts the connections to it.
    pub generation: u64,
}

/// Who produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The producer id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
}

/// A record to be produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition; by key or in turn without it.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
    /// Its time.
    pub timestamp: TimestampMs,
}

/// One batch of a Produce request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducePart {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The batch.
    pub records: Payload,
}

/// A consumer, as TxnOffsetCommit names it; of a simple consumer generation -1 and no member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The group.
    pub group: String,
    /// Its generation, or the member's epoch.
    pub generation: i32,
    /// The member.
    pub member: String,
    /// Its instance id.
    pub instance: Option<String>,
}

impl GroupMember {
    /// A group without a member: whoever commits last wins.
    #[must_use]
    pub fn simple(group: &str) -> Self {
        Self { group: group.to_owned(), generation: -1, member: String::new(), instance: None }
    }
}

/// An offset that becomes the group's when the transaction commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetToCommit {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: Offset,
}

/// A request. `tv2` stands for the protocol of KIP-890 (contract D3), else that of D4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Leaders of these topics.
    Metadata {
        /// The topics.
        topics: Vec<Arc<str>>,
    },
    /// A producer id, or the next epoch of one.
    InitProducerId {
        /// Whose.
        transactional_id: Option<String>,
        /// How long its transactions may be open.
        timeout_ms: i32,
        /// What it has, to be bumped.
        identity: Option<Identity>,
    },
    /// Batches, one for a partition, acks=all.
    Produce {
        /// Whose transaction.
        transactional_id: Option<String>,
        /// Which protocol.
        tv2: bool,
        /// The batches.
        parts: Vec<ProducePart>,
    },
    /// Who coordinates a transactional id.
    FindTransactionCoordinator {
        /// The id.
        transactional_id: String,
    },
    /// Who coordinates a group.
    FindGroupCoordinator {
        /// The group.
        group: String,
    },
    /// Makes partitions part of the transaction.
    AddPartitions {
        /// Whose.
        transactional_id: String,
        /// Under which identity.
        identity: Identity,
        /// The partitions.
        partitions: Vec<(Arc<str>, i32)>,
    },
    /// Makes a group part of the transaction.
    AddOffsets {
        /// Whose.
        transactional_id: String,
        /// Under which identity.
        identity: Identity,
        /// The group.
        group: String,
    },
    /// Stages offsets.
    CommitOffsets {
        /// Whose.
        transactional_id: String,
        /// Under which identity.
        identity: Identity,
        /// Which protocol.
        tv2: bool,
        /// For whom.
        member: GroupMember,
        /// The offsets.
        offsets: Vec<OffsetToCommit>,
    },
    /// Ends the transaction.
    EndTxn {
        /// Whose.
        transactional_id: String,
        /// Under which identity.
        identity: Identity,
        /// Which protocol.
        tv2: bool,
        /// Commit or abort.
        commit: bool,
    },
}

/// One partition in an answer to Produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceAnswer {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Kafka's code.
    pub code: i16,
    /// Offset of the first record, -1 when the broker does not say.
    pub base_offset: Offset,
    /// The broker's time, -1 under CreateTime.
    pub timestamp: TimestampMs,
    /// Leader and leader epoch, when the broker knows better than the client.
    pub leader: Option<(i32, i32)>,
}

/// One partition in an answer to TxnOffsetCommit or AddPartitionsToTxn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAnswer {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Kafka's code.
    pub code: i16,
}

/// One partition in an answer to Metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// Its index.
    pub index: i32,
    /// Its leader, -1 if there is none.
    pub leader: i32,
    /// The leader's epoch, -1 if the broker does not say.
    pub leader_epoch: i32,
}

/// One topic in an answer to Metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Its name.
    pub name: String,
    /// Kafka's code.
    pub code: i16,
    /// Its partitions.
    pub partitions: Vec<PartitionMetadata>,
}

/// An answer to Metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataAnswer {
    /// Nodes and their addresses.
    pub nodes: Vec<(i32, String)>,
    /// The topics that were asked for.
    pub topics: Vec<TopicMetadata>,
}

/// What a node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To Metadata.
    Metadata(MetadataAnswer),
    /// To InitProducerId, and to EndTxn: the identity from now on, if it came with one.
    Identity {
        /// Kafka's code.
        code: i16,
        /// The identity.
        identity: Option<Identity>,
    },
    /// To Produce.
    Produce(Vec<ProduceAnswer>),
    /// To FindCoordinator.
    Coordinator {
        /// Kafka's code.
        code: i16,
        /// The node.
        node: i32,
        /// Its address.
        address: String,
    },
    /// To AddPartitionsToTxn and TxnOffsetCommit.
    Partitions(Vec<PartitionAnswer>),
    /// To AddOffsetsToTxn.
    Code(i16),
}

/// Where a batch of records is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// Offset of the first record; `None` when the broker only says that it has them.
    pub base_offset: Option<Offset>,
    /// The broker's time, under LogAppendTime.
    pub timestamp: Option<TimestampMs>,
}

/// What the edge has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Put a request on a connection, which is opened when its first request comes.
    Send {
        /// Which connection.
        connection: ConnectionId,
        /// Where to.
        address: Arc<str>,
        /// Number of the request on its connection, from 0: they are sent in this order.
        ticket: u64,
        /// What the answer is brought back under.
        call: CallId,
        /// The request.
        request: Request,
    },
    /// Give a connection up. Its calls are lost already.
    Close(ConnectionId),
    /// The broker has these records, in this order from the base offset on.
    Delivered {
        /// The records.
        records: Vec<RecordId>,
        /// Where they are.
        place: Delivered,
    },
    /// These records failed.
    Failed {
        /// The records.
        records: Vec<RecordId>,
        /// Why, and whether they are in the log.
        failure: ClientFailure,
    },
    /// A user's call has its result.
    Done {
        /// The call.
        op: OpId,
        /// How it ended.
        result: Result<(), ClientFailure>,
    },
}
