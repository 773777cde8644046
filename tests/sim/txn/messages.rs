//! What travels: requests and answers between clients and shards, and what shards tell each other.
//!
//! A lane is first in, first out, as a connection and a lane of the mesh are. Which lane moves next is chance.

use std::sync::Arc;

use bytes::Bytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{PartitionKey, ProducerId, SlotId, TopicId};
use oncilla_shards::txn::{self, Fence, FenceId, Identity, Marker, MarkerAnswer, OffsetsHook, TxnKey};

/// Names of the transactional ids. Their slots are on both shards.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Groups: one of each shard.
pub const GROUPS: [&str; 2] = ["g", "h"];

/// Partitions for transactions.
pub const PARTITIONS: i32 = 4;

/// The partition behind them takes plain batches only.
pub const SIDE: i32 = PARTITIONS;

/// The topic of all partitions.
pub const TOPIC: TopicId = TopicId(1);

/// Key of a partition.
pub fn key(index: i32) -> PartitionKey {
    PartitionKey { topic: TOPIC, index }
}

/// One end of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    Shard(usize),
    Client(usize),
}

/// A batch that a client sends.
#[derive(Clone, Debug)]
pub struct Sending {
    pub version: i16,
    pub producer: Identity,
    pub partition: i32,
    pub sequence: i32,
    pub bytes: Bytes,
}

/// A request of a client.
#[derive(Clone, Debug)]
pub enum Request {
    /// To the coordinator of its id.
    Control(txn::Request),
    Produce(Sending),
    /// Offsets of a transaction, by its number in this run.
    Commit {
        adds: bool,
        producer: Identity,
        txn: usize,
    },
}

/// An answer to a client.
#[derive(Clone, Debug)]
pub enum Answer {
    Control(Result<txn::Reply, ErrorCode>),
    Produced { partition: i32, sequence: i32, result: Result<i64, ErrorCode> },
    Committed(Result<(), ErrorCode>),
}

/// What a lane carries. A ticket names what waits for the answer.
#[derive(Clone, Debug)]
pub enum Message {
    /// A request on a connection, by its number.
    Request(u64, Request),
    Answer(u64, Answer),
    Ask {
        ticket: u64,
        id: Arc<str>,
        request: txn::Request,
        until_ms: u64,
    },
    Granted(u64),
    Told(u64, Result<txn::Reply, ErrorCode>),
    Markers(Vec<Marker>),
    Marked(Vec<(TxnKey, Vec<MarkerAnswer>)>),
    Hook(OffsetsHook),
    Hooked(TxnKey, Vec<(Arc<str>, ErrorCode)>),
    Fence(SlotId, FenceId, Fence),
    Fenced(SlotId, FenceId),
    OwnerOf(u64, ProducerId),
    Owner(u64, Option<Arc<str>>),
}
