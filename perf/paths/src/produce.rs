//! Produce of one batch to one partition with acks=all by an idempotent producer: decode, checks, dedupe, append, the
//! write's plan and its end, the answer.

use bytes::{Bytes, BytesMut};
use oncilla_shards::batch::{AppendRules, BatchBuilder, write_patched};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{LeaderEpoch, Offset, PartitionKey};
use oncilla_shards::partition::{LogRules, Partition, WaiterId, WritePlan};
use oncilla_shards::session::Sessions;
use oncilla_shards::shard::{Appended, Effect, Effects, Sent, Shard};
use oncilla_shards::wire::produce::{ProduceAnswer, ProducePartitionAnswer, ProduceRequest, decode, encode};
use oncilla_shards::wire::{Body, apis};
use smallvec::SmallVec;

use crate::frame::Frame;
use crate::{NOW, Path, TOPIC, TOPIC_NAME, key, split};

/// Newest version; it names topics by id.
pub const VERSION: i16 = 13;

/// The partition that is written.
const INDEX: i32 = 3;

/// Memory of the tail cache. It is full after the warm-up, so every write evicts an older one.
const TAIL_BYTES: usize = 256 << 10;

/// What a batch holds.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Records of a batch.
    pub records: usize,
    /// Bytes of the value of each.
    pub value_bytes: usize,
}

/// Rules of a topic with Kafka's defaults.
#[must_use]
pub fn rules() -> LogRules {
    LogRules {
        append: AppendRules::default(),
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        flush_messages: 1,
        flush_ms: i64::MAX,
        deletes: true,
        compaction: None,
        producer_ids_max: 100,
    }
}

/// A shard with these partitions of the topic.
#[must_use]
pub fn shard(indexes: impl IntoIterator<Item = i32>, tail_bytes: usize) -> Shard {
    let mut shard = Shard::new(tail_bytes, Sessions::new(10, 1));
    for index in indexes {
        shard.insert(key(index), Partition::empty(rules(), LeaderEpoch(1)));
    }
    shard
}

/// A batch of the one producer, beginning at this sequence.
#[must_use]
pub fn batch(sequence: i32, load: Load) -> Vec<u8> {
    let value = vec![7; load.value_bytes];
    let start = BatchBuilder::new().producer(9, 0, sequence).base_timestamp(NOW);
    (0..load.records).fold(start, |batch, _| batch.record(None, Some(&value))).build()
}

/// A request of one partition with these bytes as its batch.
#[must_use]
pub fn frame(version: i16, batch: &[u8]) -> Bytes {
    let frame = Frame::new(apis::PRODUCE, version, batch.len()).null().i16(-1).i32(30_000).count(1);
    let frame = if version >= VERSION { frame.topic_id(TOPIC) } else { frame.text(TOPIC_NAME) };
    frame.count(1).i32(INDEX).payload(batch).no_tags().no_tags().no_tags().finish()
}

/// A buffer with room for a write. That it is shared already spares the core's clones the allocation that sharing is.
#[must_use]
pub fn write_buffer(bytes: usize) -> BytesMut {
    let mut whole = BytesMut::zeroed(2 * bytes);
    whole.split_to(bytes)
}

/// Makes what is stored out of what was sent.
pub fn fill(plan: &WritePlan, buffer: &mut BytesMut) -> Bytes {
    let mut out = buffer.split_to(plan.bytes);
    let mut at = 0;
    for (patch, sent) in &plan.batches {
        write_patched(sent, patch, &mut out[at..at + sent.len()]);
        at += sent.len();
    }
    out.freeze()
}

/// A producer and the shard that it writes to.
#[derive(Debug)]
pub struct Produce {
    shard: Shard,
    load: Load,
    group: usize,
    sequence: i32,
    effects: Effects,
    answers: Vec<ProducePartitionAnswer>,
}

/// Requests that one write makes durable, with the buffer of the write.
#[derive(Debug)]
pub struct Requests {
    frames: SmallVec<[Bytes; 1]>,
    buffer: BytesMut,
}

impl Default for Produce {
    fn default() -> Self {
        Self::new(Load { records: 1, value_bytes: 1024 }, 1)
    }
}

impl Produce {
    /// A path whose writes carry `group` requests each, of one batch.
    #[must_use]
    pub fn new(load: Load, group: usize) -> Self {
        let shard = shard([INDEX], TAIL_BYTES);
        let (effects, answers) = (Effects::with_capacity(2 * group + 2), Vec::with_capacity(group));
        Self { shard, load, group, sequence: 0, effects, answers }
    }

    fn append(&mut self, frame: &Bytes, waiter: WaiterId) -> ProducePartitionAnswer {
        let (header, body) = split(frame);
        let request: ProduceRequest = decode(header.api_version, &body).expect("a valid body");
        let [partition] = request.partitions.into_inner().expect("one partition");
        let records = partition.records.as_ref().expect("records");
        let sent = Sent::unchecked(records, header.api_version);
        let appended = self.shard.append(&key(partition.index), sent, NOW, Some(waiter), &mut self.effects);
        let Appended::Waiting(placed) = appended else { panic!("not taken: {appended:?}") };
        assert!(!placed.duplicate, "every sequence is new");
        let mut answer = ProducePartitionAnswer::refused(partition.topic, partition.index, ErrorCode::None);
        answer.base_offset = placed.base;
        answer.log_append_time_ms = placed.log_append_time;
        answer.log_start_offset = self.log_start();
        answer
    }

    fn log_start(&self) -> Offset {
        self.shard.partition(&key(INDEX)).expect("owned").log_start()
    }
}

impl Path for Produce {
    type Input = Requests;

    fn prepare(&mut self) -> Requests {
        let (load, from) = (self.load, self.sequence);
        let sequences = (0..self.group).map(|n| from + (n * load.records) as i32);
        let frames: SmallVec<[Bytes; 1]> = sequences.map(|sequence| frame(VERSION, &batch(sequence, load))).collect();
        self.sequence += (self.group * load.records) as i32;
        let buffer = write_buffer(frames.iter().map(Bytes::len).sum());
        Requests { frames, buffer }
    }

    fn serve(&mut self, requests: &mut Requests) -> Body {
        for (waiter, frame) in requests.frames.iter().enumerate() {
            let answer = self.append(frame, WaiterId(waiter as u64));
            self.answers.push(answer);
        }
        let settled = write(&mut self.shard, key(INDEX), &mut requests.buffer, &mut self.effects);
        assert_eq!(settled, requests.frames.len());
        let mut last = Body::default();
        for answer in self.answers.drain(..) {
            let partitions = std::slice::from_ref(&answer);
            last = encode(VERSION, &ProduceAnswer { partitions, node_endpoints: &[], throttle_time_ms: 0 });
        }
        last
    }
}

/// The writer of a partition, for as long as something is pending; tells how many waiters it settled.
pub fn write(shard: &mut Shard, key: PartitionKey, buffer: &mut BytesMut, effects: &mut Effects) -> usize {
    while let Some(plan) = shard.take_write(&key, NOW) {
        let stored = fill(&plan, buffer);
        let buffer_bytes = stored.len();
        shard.wrote(&key, stored, buffer_bytes, effects);
    }
    let settled = effects.iter().filter(|effect| matches!(effect, Effect::Settled(_, Ok(())))).count();
    effects.clear();
    settled
}
