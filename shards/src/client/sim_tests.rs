//! The machine against the broker's own dedupe (`crate::producers`), over a network that loses, delays and delivers
//! late, with leaders that move and brokers that crash. A seed repeats its run: `ONCILLA_CLIENT_SEED=17`.
//!
//! Checked in every run: an acknowledged record is in the log once, at the offset that was told, and stays there; the
//! log of a partition is in the order of `send` and holds nothing twice; what failed for certain is not in it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::batch::Place;
use super::message::{
    Answer, CallId, ConnectionId, Identity, MetadataAnswer, NewRecord, OpId, Output, PartitionMetadata, ProduceAnswer,
    RecordId, Request, TopicMetadata,
};
use super::{Machine, Settings, Written};
use crate::batch::BatchHeader;
use crate::batch::records::Records;
use crate::code::ErrorCode;
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::producers::{Check, Permit, Producers};

const PARTITIONS: usize = 3;
const NODES: usize = 2;
const STEPS: usize = 600;
/// Records in a batch that a broker takes; more and it answers MESSAGE_TOO_LARGE.
const BATCH_RECORDS_MAX: i32 = 6;

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// A rule of the machine that is broken from outside, to see that the simulation would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// A sequence given up is given out again in the same epoch.
    ReuseSequence,
    /// Every partition restarts at once when one of them ends the epoch: what may be written goes out again.
    RestartAll,
    /// What is behind a hole goes out under the next epoch, although it may be written.
    RestampUnknown,
    /// Several batches are under way before the broker knows the producer.
    NoProof,
}

/// A request that a broker has not looked at.
struct Arrived {
    call: CallId,
    request: Request,
}

/// One connection, for as long as a broker may find something on it.
#[derive(Default)]
struct Wire {
    requests: VecDeque<Arrived>,
    /// Answers in the order of requests; `None` until there is one.
    answers: VecDeque<(CallId, Option<Answer>)>,
    open: bool,
}

struct Log {
    batches: Vec<(BatchHeader, Vec<u64>)>,
    durable: usize,
    producers: Producers,
    leader: usize,
    epoch: i32,
}

impl Log {
    fn new(leader: usize) -> Self {
        Self { batches: Vec::new(), durable: 0, producers: Producers::new(), leader, epoch: 0 }
    }

    fn next_offset(&self) -> Offset {
        self.batches.last().map_or(Offset(0), |(header, _)| header.next_offset())
    }

    /// What was not durable is gone.
    fn cut(&mut self) {
        self.batches.truncate(self.durable);
        self.producers = Producers::new();
        for (header, _) in &self.batches {
            self.producers.replay(header, None);
        }
    }

    fn values(&self) -> Vec<u64> {
        self.batches.iter().flat_map(|(_, values)| values.iter().copied()).collect()
    }
}

/// A Produce request that waits for the disk.
struct Waiting {
    connection: ConnectionId,
    call: CallId,
    node: usize,
    parts: Vec<ProduceAnswer>,
}

#[derive(Debug, Default)]
struct Totals {
    delivered: usize,
    unknown: usize,
    failed: usize,
    bumps: usize,
    duplicates: usize,
    out_of_order: usize,
    splits: usize,
    crashes: usize,
    moves: usize,
    late: usize,
}

enum Fate {
    Delivered(Option<Offset>),
    Failed(Written),
}

struct World {
    rng: Rng,
    now_ms: u64,
    machine: Machine,
    mutation: Mutation,
    wires: BTreeMap<ConnectionId, Wire>,
    logs: Vec<Log>,
    waiting: Vec<Waiting>,
    /// Partition and value of every record taken.
    sent: HashMap<RecordId, (usize, u64)>,
    fates: HashMap<RecordId, Fate>,
    next_value: u64,
    next_pid: i64,
    calm: bool,
    totals: Totals,
}

impl World {
    fn new(seed: u64, mutation: Mutation) -> Self {
        let mut rng = Rng(seed);
        let settings = Settings {
            linger_ms: [0, 5][rng.below(2)],
            batch_bytes: 100 + rng.below(400),
            in_flight_max: 1 + rng.below(5),
            retry_backoff_ms: 10,
            retry_backoff_ms_max: 100,
            request_timeout_ms: 300,
            delivery_timeout_ms: [1000, 4000][rng.below(2)],
            metadata_age_ms_max: 2000,
            ..Settings::default()
        };
        let machine = Machine::new(settings, &["seed:1".to_owned()]);
        Self {
            rng,
            now_ms: 1,
            machine,
            mutation,
            wires: BTreeMap::new(),
            logs: (0..PARTITIONS).map(|at| Log::new(at % NODES)).collect(),
            waiting: Vec::new(),
            sent: HashMap::new(),
            fates: HashMap::new(),
            next_value: 0,
            next_pid: 100,
            calm: false,
            totals: Totals::default(),
        }
    }

    fn run(mut self) -> Result<Totals, String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.calm = true;
        for _ in 0..20_000 {
            if self.machine.outstanding == 0 {
                break;
            }
            self.now_ms += 1;
            self.poll()?;
            self.process_any();
            self.flush_disk();
            self.answer_all()?;
        }
        if self.machine.outstanding > 0 {
            return Err(format!("{} records have no outcome", self.machine.outstanding));
        }
        // What is still under way somewhere arrives after all.
        while self.wires.values().any(|wire| !wire.requests.is_empty()) {
            self.process_any();
        }
        self.check()?;
        Ok(self.totals)
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..30 => self.send(),
            30..55 => self.process_any(),
            55..65 => self.flush_disk(),
            65..80 => self.answer_all()?,
            80..93 => self.now_ms += self.rng.below(8) as u64,
            93..95 => self.now_ms += self.rng.below(700) as u64,
            95..97 => self.cut_any()?,
            97 => self.move_leader(),
            98 => self.crash()?,
            _ => self.machine.flush(OpId(0)),
        }
        self.poll()
    }

    fn send(&mut self) {
        for _ in 0..=self.rng.below(5) {
            let partition = self.rng.below(PARTITIONS);
            let value = self.next_value;
            let bytes = value.to_be_bytes();
            let record = NewRecord {
                topic: "t",
                partition: Some(partition as i32),
                value: Some(&bytes),
                timestamp: TimestampMs(1000),
                ..NewRecord::default()
            };
            if let Ok(id) = self.machine.send(self.now_ms, &record) {
                self.sent.insert(id, (partition, value));
                self.next_value += 1;
            }
        }
    }

    fn poll(&mut self) -> Result<(), String> {
        let before = self.machine.identity();
        let heads: Vec<_> = self.machine.lanes.iter().map(|lane| first_of(lane.in_flight.front())).collect();
        self.machine.poll(self.now_ms);
        self.mutate(&heads);
        if let (Some(old), Some(new)) = (before, self.machine.identity()) {
            self.totals.bumps += usize::from(old != new);
        }
        for output in self.machine.take_outputs() {
            self.carry_out(output)?;
        }
        Ok(())
    }

    fn mutate(&mut self, heads: &[Option<Sequence>]) {
        let (now_ms, identity) = (self.now_ms, self.machine.identity);
        for (at, lane) in self.machine.lanes.iter_mut().enumerate() {
            let behind = lane.broken && lane.in_flight.iter().all(|b| !matches!(b.place, Place::Under { .. }));
            match self.mutation {
                Mutation::None => {}
                Mutation::ReuseSequence if lane.broken && lane.in_flight.is_empty() => {
                    if let Some(first) = heads.get(at).copied().flatten() {
                        lane.broken = false;
                        lane.next = first;
                    }
                }
                Mutation::RestartAll if lane.identity.is_some() && lane.identity != identity => {
                    for batch in &mut lane.in_flight {
                        (batch.written, batch.place) = (Written::No, Place::Rejected);
                    }
                }
                Mutation::RestampUnknown if behind => {
                    for batch in &mut lane.in_flight {
                        (batch.written, batch.place) = (Written::No, Place::Rejected);
                    }
                }
                Mutation::NoProof => lane.assume_proof(now_ms),
                _ => {}
            }
        }
        if self.mutation != Mutation::None {
            self.machine.touch_all();
            self.machine.poll(now_ms);
        }
    }

    fn carry_out(&mut self, output: Output) -> Result<(), String> {
        match output {
            Output::Send { connection, ticket, call, request, .. } => {
                let wire = self.wires.entry(connection).or_insert_with(|| Wire { open: true, ..Wire::default() });
                let expected = (wire.requests.len() + wire.answers.len()) as u64;
                assert!(ticket >= expected, "request {ticket} overtakes on its connection");
                wire.requests.push_back(Arrived { call, request });
            }
            Output::Close(connection) => self.abandon(connection),
            Output::Delivered { records, place } => {
                for (at, id) in records.into_iter().enumerate() {
                    let offset = place.base_offset.map(|base| base.plus(at as i64));
                    self.settle(id, Fate::Delivered(offset))?;
                }
            }
            Output::Failed { records, failure } => {
                for id in records {
                    self.settle(id, Fate::Failed(failure.written))?;
                }
            }
            Output::Done { .. } => {}
        }
        Ok(())
    }

    fn settle(&mut self, id: RecordId, fate: Fate) -> Result<(), String> {
        match fate {
            Fate::Delivered(_) => self.totals.delivered += 1,
            Fate::Failed(Written::Unknown) => self.totals.unknown += 1,
            Fate::Failed(Written::No) => self.totals.failed += 1,
        }
        let before = self.fates.insert(id, fate);
        if before.is_some() { Err(format!("{id:?} has two outcomes")) } else { Ok(()) }
    }

    /// The client's side of a connection ends. What it has sent may be lost, in part, or arrive later.
    fn abandon(&mut self, connection: ConnectionId) {
        let keep = self.rng.percent(50);
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        wire.open = false;
        if !keep {
            let left = self.rng.below(wire.requests.len() + 1);
            wire.requests.truncate(left);
        }
    }

    fn cut_any(&mut self) -> Result<(), String> {
        let open: Vec<_> = self.wires.iter().filter(|(_, wire)| wire.open).map(|(id, _)| *id).collect();
        if open.is_empty() {
            return Ok(());
        }
        let connection = open[self.rng.below(open.len())];
        self.machine.lost(self.now_ms, connection, true);
        self.abandon(connection);
        Ok(())
    }

    fn process_any(&mut self) {
        let ready: Vec<_> =
            self.wires.iter().filter(|(_, wire)| !wire.requests.is_empty()).map(|(id, _)| *id).collect();
        if ready.is_empty() {
            return;
        }
        let connection = ready[self.rng.below(ready.len())];
        let wire = self.wires.get_mut(&connection).expect("just listed");
        let Arrived { call, request } = wire.requests.pop_front().expect("not empty");
        let late = !wire.open;
        self.totals.late += usize::from(late);
        wire.answers.push_back((call, None));
        let node = usize::try_from(connection.node).unwrap_or(0);
        let answer = match request {
            Request::Metadata { .. } => Answer::Metadata(self.metadata()),
            Request::InitProducerId { .. } => {
                self.next_pid += 1;
                let identity = Identity { id: ProducerId(self.next_pid), epoch: ProducerEpoch(0) };
                Answer::Identity { code: 0, identity: Some(identity) }
            }
            Request::Produce { parts, .. } => {
                let parts = parts.iter().map(|part| self.produce(node, part.partition, part.records.bytes())).collect();
                self.waiting.push(Waiting { connection, call, node, parts });
                return;
            }
            other => panic!("{other:?} is of transactions"),
        };
        self.answer(connection, call, answer);
    }

    fn answer(&mut self, connection: ConnectionId, call: CallId, answer: Answer) {
        let wire = self.wires.get_mut(&connection).expect("answers go to connections");
        let slot = wire.answers.iter_mut().find(|(id, _)| *id == call);
        slot.expect("every request has its place").1 = Some(answer);
    }

    fn metadata(&mut self) -> MetadataAnswer {
        let stale = !self.calm && self.rng.percent(20);
        let nodes = (0..NODES).map(|node| (node as i32, format!("n:{node}"))).collect();
        let partitions = self.logs.iter().enumerate().map(|(at, log)| {
            let (leader, epoch) =
                if stale && log.epoch > 0 { (1 - log.leader, log.epoch - 1) } else { (log.leader, log.epoch) };
            PartitionMetadata { index: at as i32, leader: leader as i32, leader_epoch: epoch }
        });
        MetadataAnswer {
            nodes,
            topics: vec![TopicMetadata { name: "t".into(), code: 0, partitions: partitions.collect() }],
        }
    }

    fn produce(&mut self, node: usize, partition: i32, records: &[u8]) -> ProduceAnswer {
        let mut answer = ProduceAnswer {
            topic: "t".into(),
            partition,
            code: 0,
            base_offset: Offset(-1),
            timestamp: TimestampMs(-1),
            leader: None,
        };
        let log = &mut self.logs[partition as usize];
        let hint = self.rng.percent(50);
        let header = BatchHeader::parse(records).expect("a batch");
        let fault = if self.calm { 99 } else { self.rng.below(100) };
        answer.code = if log.leader != node {
            answer.leader = hint.then_some((log.leader as i32, log.epoch));
            ErrorCode::NotLeaderOrFollower.wire()
        } else if header.record_count > BATCH_RECORDS_MAX {
            self.totals.splits += 1;
            ErrorCode::MessageTooLarge.wire()
        } else if fault < 4 {
            ErrorCode::NotEnoughReplicas.wire()
        } else if fault < 6 {
            ErrorCode::InvalidRecord.wire()
        } else {
            match append(log, &header, records, &mut self.totals) {
                Ok(base_offset) => answer.base_offset = base_offset,
                Err(code) => answer.code = code,
            }
            // Appended, but its answer says something else.
            if answer.code == 0 && fault < 9 { ErrorCode::RequestTimedOut.wire() } else { answer.code }
        };
        answer
    }

    fn flush_disk(&mut self) {
        for log in &mut self.logs {
            log.durable = log.batches.len();
        }
        for done in std::mem::take(&mut self.waiting) {
            self.answer(done.connection, done.call, Answer::Produce(done.parts));
        }
    }

    fn answer_all(&mut self) -> Result<(), String> {
        let open: Vec<_> = self.wires.iter().filter(|(_, wire)| wire.open).map(|(id, _)| *id).collect();
        for connection in open {
            while let Some(wire) = self.wires.get_mut(&connection)
                && wire.open
                && let Some((call, Some(_))) = wire.answers.front()
            {
                let call = *call;
                let (_, answer) = wire.answers.pop_front().expect("just seen");
                self.machine.answered(self.now_ms, call, answer.expect("just seen"));
                if !self.calm && self.rng.percent(20) {
                    break;
                }
            }
        }
        self.poll()
    }

    /// Another node leads; it may not have what was not durable.
    fn move_leader(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        let log = &mut self.logs[partition];
        if self.rng.percent(50) {
            log.cut();
        }
        log.durable = log.batches.len();
        log.leader = 1 - log.leader;
        log.epoch += 1;
        self.totals.moves += 1;
        for waiting in &mut self.waiting {
            for part in waiting.parts.iter_mut().filter(|part| part.partition == partition as i32) {
                part.code = ErrorCode::NotLeaderOrFollower.wire();
            }
        }
    }

    fn crash(&mut self) -> Result<(), String> {
        let node = self.rng.below(NODES);
        self.totals.crashes += 1;
        self.waiting.retain(|waiting| waiting.node != node);
        for log in self.logs.iter_mut().filter(|log| log.leader == node) {
            log.cut();
        }
        let dead: Vec<_> = self.wires.keys().filter(|id| id.node == node as i32).copied().collect();
        for connection in dead {
            if self.wires.remove(&connection).is_some_and(|wire| wire.open) {
                self.machine.lost(self.now_ms, connection, true);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.fates.len() != self.sent.len() {
            return Err(format!("{} outcomes of {} records", self.fates.len(), self.sent.len()));
        }
        let logs: Vec<Vec<u64>> = self.logs.iter().map(Log::values).collect();
        for (partition, values) in logs.iter().enumerate() {
            if let Some(pair) = values.windows(2).find(|pair| pair[0] >= pair[1]) {
                return Err(format!("partition {partition} holds {} in front of {}", pair[0], pair[1]));
            }
        }
        for (id, fate) in &self.fates {
            let (partition, value) = self.sent[id];
            let at = logs[partition].binary_search(&value).ok();
            match fate {
                Fate::Delivered(None) if at.is_some() => {}
                Fate::Delivered(Some(offset)) if at == usize::try_from(offset.0).ok() => {}
                Fate::Delivered(told) => {
                    return Err(format!("{value} was told to be at {told:?} of {partition}, and is at {at:?}"));
                }
                Fate::Failed(Written::No) if at.is_some() => {
                    return Err(format!("{value} failed for certain, and is at {at:?} of {partition}"));
                }
                Fate::Failed(_) => {}
            }
        }
        Ok(())
    }
}

fn first_of(batch: Option<&super::batch::Batch>) -> Option<Sequence> {
    batch.and_then(|batch| batch.stamp).map(|stamp| stamp.first)
}

fn append(log: &mut Log, header: &BatchHeader, records: &[u8], totals: &mut Totals) -> Result<Offset, i16> {
    match log.producers.check(header, Permit::Unchecked) {
        Check::Append => {
            let header = BatchHeader { base_offset: log.next_offset(), ..*header };
            log.producers.appended(&header);
            let opened = Records::open(records).expect("a batch");
            let value = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
            let values = opened.iter().map(|record| value(record.expect("a record").value.expect("a value")));
            log.batches.push((header, values.collect()));
            Ok(header.base_offset)
        }
        Check::Duplicate { base_offset, .. } => {
            totals.duplicates += 1;
            Ok(base_offset)
        }
        Check::Refuse(code) => {
            totals.out_of_order += usize::from(code == ErrorCode::OutOfOrderSequenceNumber);
            Err(code.wire())
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("ONCILLA_CLIENT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ONCILLA_CLIENT_SEEDS").unwrap_or(2000),
    }
}

#[test]
fn every_record_is_there_once_and_in_order_whatever_the_network_does() {
    let mut sum = Totals::default();
    for seed in seeds() {
        match World::new(seed, Mutation::None).run() {
            Ok(one) => {
                sum.delivered += one.delivered;
                sum.unknown += one.unknown;
                sum.failed += one.failed;
                sum.bumps += one.bumps;
                sum.duplicates += one.duplicates;
                sum.out_of_order += one.out_of_order;
                sum.splits += one.splits;
                sum.crashes += one.crashes;
                sum.moves += one.moves;
                sum.late += one.late;
            }
            Err(what) => panic!("ONCILLA_CLIENT_SEED={seed}: {what}"),
        }
    }
    // A simulation that never reaches the hard cases proves nothing.
    if seeds().count() > 100 {
        assert!(sum.delivered > 0 && sum.unknown > 0 && sum.failed > 0 && sum.bumps > 0, "{sum:?}");
        assert!(sum.duplicates > 0 && sum.out_of_order > 0 && sum.splits > 0, "{sum:?}");
        assert!(sum.crashes > 0 && sum.moves > 0 && sum.late > 0, "{sum:?}");
    }
}

/// The simulation finds each of the faults that producers are known for.
#[test]
fn a_broken_rule_is_noticed() {
    for mutation in [Mutation::ReuseSequence, Mutation::RestartAll, Mutation::RestampUnknown, Mutation::NoProof] {
        let noticed = (0..2000).find_map(|seed| World::new(seed, mutation).run().err());
        let what = noticed.unwrap_or_else(|| panic!("{mutation:?} went unnoticed"));
        assert!(what.contains(" holds ") || what.contains(" is at "), "{mutation:?} is noticed by its log: {what}");
    }
}
