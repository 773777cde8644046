//! One request of each hot kind through the core alone, from its bytes to the bytes of its answer.
//!
//! The benches time these paths, `perf/counts` counts their instructions, and the tests here count their allocations:
//! all three look at the same work. A path calls the core in the order in which `src/api` does, says of each write that
//! it is durable, and encodes the answer. What only the edge does is not in it: sockets, tasks, files, metrics.
//!
//! One request is in flight at a time, so each pays for a write of its own; group commit only makes it cheaper. Nothing
//! is random and no clock is read, so the same build does the same work each time. Failure: a path panics if the core
//! answers anything but success. `native_send` is the other side: a record through the native producer's core.

pub mod allocations;
pub mod end_txn;
pub mod fetch;
pub mod frame;
pub mod native_send;
pub mod offset_commit;
pub mod produce;

use std::sync::Arc;

use bytes::Bytes;
use oncilla_shards::ids::{BrokerId, PartitionKey, TimestampMs, TopicId};
use oncilla_shards::image::{BrokerSettings, Change, Image};
use oncilla_shards::slot::Journal;
use oncilla_shards::wire::{Body, ParsedHeader, RequestHeader, parse_header};

use self::end_txn::EndTxn;
use self::fetch::Fetch;
use self::native_send::NativeSend;
use self::offset_commit::OffsetCommit;
use self::produce::Produce;

/// What the clock says.
pub const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

/// The topic that all requests are about.
pub const TOPIC: TopicId = TopicId(7);

/// Its name.
pub const TOPIC_NAME: &str = "orders-eu1";

/// Its partitions.
pub const PARTITIONS: i32 = 16;

/// Requests after which tables, buffers and caches have the size that they keep.
pub const WARM_UP_REQUESTS: usize = 2_048;

/// Requests of one kind, served one after the other by one shard.
pub trait Path {
    /// What comes in from outside for one request: the frame, and the buffer that its write is made in.
    type Input;

    /// The next request. Not part of what is measured.
    fn prepare(&mut self) -> Self::Input;

    /// Serves it: everything that the core does from the frame to the answer.
    fn serve(&mut self, input: &mut Self::Input) -> Body;
}

/// Something that is done to the paths one after the other.
pub trait Visit {
    /// Does it to one path.
    fn visit<P: Path>(&mut self, name: &'static str, path: P);
}

/// Names of all paths.
pub const NAMES: [&str; 5] = ["produce", "fetch", "end_txn", "offset_commit", "native_send"];

/// Has the path of this name visited; says whether there is one.
pub fn visit(name: &str, visitor: &mut impl Visit) -> bool {
    match name {
        "produce" => visitor.visit("produce", Produce::default()),
        "fetch" => visitor.visit("fetch", Fetch::default()),
        "end_txn" => visitor.visit("end_txn", EndTxn::default()),
        "offset_commit" => visitor.visit("offset_commit", OffsetCommit::default()),
        "native_send" => visitor.visit("native_send", NativeSend::default()),
        _ => return false,
    }
    true
}

/// Serves requests whose cost is of no interest, until the path is in its steady state.
pub fn warm_up(path: &mut impl Path) {
    for _ in 0..WARM_UP_REQUESTS {
        let mut input = path.prepare();
        path.serve(&mut input);
    }
}

/// A partition of the topic.
#[must_use]
pub fn key(index: i32) -> PartitionKey {
    PartitionKey { topic: TOPIC, index }
}

/// A broker of one shard with the topic.
#[must_use]
pub fn image() -> Arc<Image> {
    let create = Change::CreateTopic {
        id: TOPIC,
        name: TOPIC_NAME.to_owned(),
        partitions: PARTITIONS,
        placement: 0,
        overrides: Default::default(),
    };
    let empty = Image::new("paths", BrokerId(0), 1, BrokerSettings::default());
    Arc::new(empty.apply(&[create]))
}

/// Header of a frame, and its body, as a connection takes them apart.
fn split(frame: &Bytes) -> (RequestHeader, Bytes) {
    let mut body = frame.clone();
    match parse_header(&mut body) {
        Ok(ParsedHeader::Served(header)) => (header, body),
        other => panic!("not a request that is served: {other:?}"),
    }
}

/// The writer of a slot: everything pending becomes durable, and the buffer of each write is used again.
fn write_journal(journal: &mut Journal) {
    while let Some(write) = journal.take_write() {
        journal.wrote();
        journal.reuse(write.bytes);
    }
}
