//! Fetch of ten partitions in a session, each with data in the tail cache: decode, the session, the checks and reads of
//! each partition, what the session notes, the answer, which references the records.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::Offset;
use oncilla_shards::partition::{ReadPlan, WaiterId};
use oncilla_shards::session::{Begun, FetchPartition, Outcome, SessionId, SessionRequest, TopicKey};
use oncilla_shards::shard::{Effects, Sent, Shard};
use oncilla_shards::wire::fetch::{FetchAnswer, FetchPartitionAnswer, decode, encode};
use oncilla_shards::wire::{Body, TopicRef, apis};

use crate::frame::Frame;
use crate::produce::{Load, batch, shard, write, write_buffer};
use crate::{NOW, Path, TOPIC, TOPIC_NAME, key, split};

/// Newest version; it names topics by id.
pub const VERSION: i16 = 18;

/// Partitions of a request.
pub const PARTITIONS: i32 = 10;

/// Batches of a partition; together about 64 KiB.
const BATCHES: i32 = 8;
const BATCH: Load = Load { records: 8, value_bytes: 1000 };

/// Most bytes that are asked of one partition, and of all of them.
const PARTITION_BYTES_MAX: i32 = 1 << 20;
const BYTES_MAX: i32 = 50 << 20;

/// Answers for ten partitions, with these records each, for the encoder alone.
#[must_use]
pub fn answers(topic: &TopicRef, records: &Bytes) -> Vec<FetchPartitionAnswer> {
    let answer = |index| {
        let mut answer = FetchPartitionAnswer::refused(topic.clone(), index, ErrorCode::None);
        answer.high_watermark = Offset(1000);
        answer.last_stable_offset = Offset(1000);
        answer.log_start_offset = Offset(0);
        answer.records.push(records.clone());
        answer
    };
    (0..PARTITIONS).map(answer).collect()
}

/// The topic as a version of Fetch names it.
#[must_use]
pub fn topic_at(version: i16) -> TopicRef {
    if version >= 13 { TopicRef::Id(TOPIC) } else { TopicRef::Name(StrBytes::from_static_str(TOPIC_NAME)) }
}

/// A consumer with a session, and a shard whose partitions have what it reads.
#[derive(Debug)]
pub struct Fetch {
    shard: Shard,
    session: SessionId,
    epoch: i32,
}

impl Default for Fetch {
    fn default() -> Self {
        let mut shard = shard(0..PARTITIONS, 4 << 20);
        let mut effects = Effects::new();
        for index in 0..PARTITIONS {
            let batches: Vec<Bytes> = (0..BATCHES).map(|n| batch(n * BATCH.records as i32, BATCH).into()).collect();
            let mut buffer = write_buffer(batches.iter().map(Bytes::len).sum());
            for sent in &batches {
                let sent = Sent::unchecked(sent, 13);
                shard.append(&key(index), sent, NOW, Some(WaiterId(0)), &mut effects);
            }
            assert_eq!(write(&mut shard, key(index), &mut buffer, &mut effects), batches.len());
        }
        let mut path = Self { shard, session: SessionId(0), epoch: 0 };
        let mut first = path.prepare();
        path.serve(&mut first);
        path
    }
}

impl Fetch {
    /// Answer of one partition from what is in memory.
    fn read(&self, asked: &FetchPartition) -> FetchPartitionAnswer {
        let TopicKey::Id(topic) = asked.topic else { panic!("asked by id") };
        let partition = self.shard.partition(&key(asked.index)).expect("owned");
        let (end, start) = (partition.high_watermark(), partition.log_start());
        assert!(asked.offset >= start && asked.offset <= partition.next_offset());
        let mut answer = FetchPartitionAnswer::refused(TopicRef::Id(topic), asked.index, ErrorCode::None);
        answer.high_watermark = end;
        answer.last_stable_offset = partition.last_stable_offset();
        answer.log_start_offset = start;
        let bytes_max = usize::try_from(asked.bytes_max).expect("not negative");
        let plan = partition.read(asked.offset, end, bytes_max, true);
        let ReadPlan::Cached(slices) = plan else { panic!("not in memory: {plan:?}") };
        answer.records = slices.into_iter().collect();
        answer
    }
}

impl Path for Fetch {
    type Input = Bytes;

    fn prepare(&mut self) -> Bytes {
        let frame = Frame::new(apis::FETCH, VERSION, 1024).i32(500).i32(1).i32(BYTES_MAX).i8(0);
        let frame = frame.i32(self.session.0).i32(self.epoch).count(1).topic_id(TOPIC).count(PARTITIONS as usize);
        let partition =
            |frame: Frame, index| frame.i32(index).i32(-1).i64(0).i32(-1).i64(-1).i32(PARTITION_BYTES_MAX).no_tags();
        let frame = (0..PARTITIONS).fold(frame, partition).no_tags();
        // Nothing forgotten, no rack.
        frame.count(0).text("").no_tags().finish()
    }

    fn serve(&mut self, frame: &mut Bytes) -> Body {
        let (header, body) = split(frame);
        let request = decode(header.api_version, &body).expect("a valid body");
        let asked = request.partitions.iter().map(|partition| FetchPartition {
            topic: TopicKey::Id(partition.topic.id().expect("asked by id")),
            index: partition.index,
            offset: partition.fetch_offset,
            current_epoch: partition.current_leader_epoch.0,
            last_fetched_epoch: partition.last_fetched_epoch.0,
            bytes_max: partition.max_bytes,
        });
        let session = SessionRequest { id: SessionId(request.session_id), epoch: request.session_epoch, by_id: true };
        let begun = self.shard.sessions.begin(session, asked.collect(), &[], NOW);
        let (partitions, id) = match begun {
            Begun::Full { partitions, id } | Begun::Incremental { partitions, id } => (partitions, id),
            Begun::Refused(code) => panic!("{code:?}"),
        };
        let mut told = Vec::with_capacity(partitions.len());
        for asked in &partitions {
            let answer = self.read(asked);
            let outcome = Outcome {
                notable: false,
                bytes: answer.records.iter().map(Bytes::len).sum(),
                high_watermark: answer.high_watermark,
                log_start: answer.log_start_offset,
            };
            assert!(self.shard.sessions.note(id, asked, outcome), "it has records");
            told.push(answer);
        }
        (self.session, self.epoch) = (id, self.epoch + 1);
        let (code, partitions) = (ErrorCode::None, &told[..]);
        encode(VERSION, &FetchAnswer { throttle_time_ms: 0, code, session_id: id.0, partitions, node_endpoints: &[] })
    }
}
