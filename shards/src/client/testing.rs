//! What tests of the machine share: a script that plays the cluster, one answer at a time.

use std::collections::{BTreeMap, VecDeque};

use super::message::{
    Answer, CallId, ConnectionId, Delivered, Identity, MetadataAnswer, NewRecord, OpId, Output, PartitionMetadata,
    ProduceAnswer, RecordId, Request, TopicMetadata,
};
use super::{ClientFailure, Machine, SendError, Settings};
use crate::batch::BatchHeader;
use crate::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};

/// A request that waits for its answer.
#[derive(Clone, Debug)]
pub struct Asked {
    pub connection: ConnectionId,
    pub call: CallId,
    pub request: Request,
}

/// One batch of a Produce request: partition, epoch, first sequence, records.
pub type Part = (i32, i16, i32, i32);

pub struct Script {
    pub machine: Machine,
    pub now_ms: u64,
    pub asked: VecDeque<Asked>,
    pub delivered: BTreeMap<u64, Delivered>,
    pub failed: BTreeMap<u64, ClientFailure>,
    pub done: BTreeMap<u64, Result<(), ClientFailure>>,
    pub closed: Vec<ConnectionId>,
}

pub fn settings() -> Settings {
    Settings {
        linger_ms: 0,
        retry_backoff_ms: 10,
        request_timeout_ms: 1000,
        delivery_timeout_ms: 10_000,
        ..Settings::default()
    }
}

pub fn identity(epoch: i16) -> Identity {
    Identity { id: ProducerId(7), epoch: ProducerEpoch(epoch) }
}

impl Script {
    pub fn new(settings: Settings) -> Self {
        let mut script = Self {
            machine: Machine::new(settings, &["seed:1".to_owned()]),
            now_ms: 0,
            asked: VecDeque::new(),
            delivered: BTreeMap::new(),
            failed: BTreeMap::new(),
            done: BTreeMap::new(),
            closed: Vec::new(),
        };
        script.wait(1);
        script
    }

    /// A producer that knows topic `t` with its leaders, and has its identity.
    pub fn ready(settings: Settings, leaders: &[i32]) -> Self {
        let mut script = Self::new(settings);
        // Only what the topic is not yet known for.
        script.send(0);
        while script.delivered.is_empty() {
            match script.asked.pop_front() {
                Some(asked) => script.serve(&asked, leaders),
                None => script.wait(1),
            }
        }
        script
    }

    /// Answers Metadata and InitProducerId; acknowledges a Produce.
    pub fn serve(&mut self, asked: &Asked, leaders: &[i32]) {
        match &asked.request {
            Request::Metadata { .. } => self.answer(asked, Answer::Metadata(metadata(leaders))),
            Request::InitProducerId { .. } => {
                self.answer(asked, Answer::Identity { code: 0, identity: Some(identity(0)) });
            }
            Request::Produce { .. } => self.acknowledge(asked),
            other => panic!("not expected: {other:?}"),
        }
    }

    pub fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        self.machine.poll(self.now_ms);
        for output in self.machine.take_outputs() {
            match output {
                Output::Send { connection, call, request, .. } => {
                    self.asked.push_back(Asked { connection, call, request });
                }
                Output::Close(connection) => self.closed.push(connection),
                Output::Delivered { records, place } => {
                    self.delivered.extend(records.iter().map(|id| (id.0, place.clone())));
                }
                Output::Failed { records, failure } => {
                    self.failed.extend(records.iter().map(|id| (id.0, failure.clone())));
                }
                Output::Done { op, result } => {
                    self.done.insert(op.0, result);
                }
            }
        }
    }

    pub fn try_send(&mut self, partition: i32) -> Result<RecordId, SendError> {
        let record = NewRecord {
            topic: "t",
            partition: Some(partition),
            value: Some(b"value"),
            timestamp: TimestampMs(1),
            ..NewRecord::default()
        };
        self.machine.send(self.now_ms, &record)
    }

    /// Takes a record and looks at once, so that it becomes a batch of its own if anything may be sent.
    pub fn send(&mut self, partition: i32) -> u64 {
        let id = self.try_send(partition).expect("the record is taken");
        self.wait(0);
        id.0
    }

    pub fn answer(&mut self, asked: &Asked, answer: Answer) {
        self.machine.answered(self.now_ms, asked.call, answer);
        self.wait(0);
    }

    /// The oldest Produce request without an answer, with its batches.
    pub fn produce(&mut self) -> (Asked, Vec<Part>) {
        let at = self.asked.iter().position(|asked| matches!(asked.request, Request::Produce { .. }));
        let asked = self.asked.remove(at.expect("a Produce request")).expect("just found");
        let parts = parts(&asked);
        (asked, parts)
    }

    pub fn has_produce(&self) -> bool {
        self.asked.iter().any(|asked| matches!(asked.request, Request::Produce { .. }))
    }

    pub fn acknowledge(&mut self, asked: &Asked) {
        let codes: Vec<i16> = parts(asked).iter().map(|_| 0).collect();
        self.answer_codes(asked, &codes);
    }

    pub fn answer_codes(&mut self, asked: &Asked, codes: &[i16]) {
        let answer = |(part, code): (&Part, &i16)| ProduceAnswer {
            topic: "t".into(),
            partition: part.0,
            code: *code,
            base_offset: Offset(if *code == 0 { i64::from(part.2) } else { -1 }),
            timestamp: TimestampMs(-1),
            leader: None,
        };
        let parts = parts(asked);
        assert_eq!(parts.len(), codes.len());
        self.answer(asked, Answer::Produce(parts.iter().zip(codes).map(answer).collect()));
    }

    pub fn lose(&mut self, connection: ConnectionId) {
        self.asked.retain(|asked| asked.connection != connection);
        self.machine.lost(self.now_ms, connection, true);
        self.wait(0);
    }

    /// Answers whatever metadata is asked for, now and after pauses, until a Produce request is there.
    pub fn until_produce(&mut self, leaders: &[i32]) -> (Asked, Vec<Part>) {
        for _ in 0..200 {
            while let Some(at) = self.asked.iter().position(|asked| matches!(asked.request, Request::Metadata { .. })) {
                let asked = self.asked.remove(at).expect("just found");
                self.answer(&asked, Answer::Metadata(metadata(leaders)));
            }
            if self.has_produce() {
                return self.produce();
            }
            self.wait(10);
        }
        panic!("nothing is produced");
    }
}

pub fn metadata(leaders: &[i32]) -> MetadataAnswer {
    let partitions = leaders.iter().enumerate();
    let partitions = partitions.map(|(at, leader)| PartitionMetadata {
        index: i32::try_from(at).expect("few partitions"),
        leader: *leader,
        leader_epoch: -1,
    });
    let topic = TopicMetadata { name: "t".into(), code: 0, partitions: partitions.collect() };
    let node = |id: &i32| (*id, format!("node:{id}"));
    MetadataAnswer { nodes: [1, 2].iter().map(node).collect(), topics: vec![topic] }
}

pub fn parts(asked: &Asked) -> Vec<Part> {
    let Request::Produce { parts, .. } = &asked.request else { panic!("no Produce: {asked:?}") };
    let part = |part: &super::ProducePart| {
        let header = BatchHeader::parse(part.records.bytes()).expect("a batch");
        (part.partition, header.producer_epoch.0, header.base_sequence.0, header.record_count)
    };
    parts.iter().map(part).collect()
}

/// A call of the user.
pub fn op(number: u64) -> OpId {
    OpId(number)
}
