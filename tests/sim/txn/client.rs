//! A transactional producer as clients are: batches in flight and sent again in order, an abort after what failed, a
//! new instance after what is fatal, and requests repeated as they were when a connection is lost.
//!
//! On path A a request that was lost on its way may arrive in the next transaction, which has the same epoch: Kafka's
//! weakness. Its client goes on only behind a new epoch then, as the Java client does.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use oncilla_shards::batch::BatchBuilder;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::TimestampMs;
use oncilla_shards::txn::{Add, AddBy, End, Identity, Init, Outcome, Reply, Request as Control};

use super::messages::{Answer, GROUPS, NAMES, PARTITIONS, Request, SIDE, Sending, key};
use super::truth::{Truth, value};
use crate::client::IN_FLIGHT_MAX;
use crate::rng::Rng;

/// How long a transaction may stay open.
pub const TIMEOUT_MS: i32 = 4_000;

/// Most transactions follow each other after a multiple of this.
const REST_MS: u64 = 100;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Coordinator,
    Partition(i32),
    Group(usize),
}

#[derive(Clone, Debug)]
struct Batch {
    sequence: i32,
    records: Vec<u32>,
    bytes: Bytes,
    is_sent: bool,
}

/// One partition as the producer sees it.
#[derive(Clone, Debug, Default)]
struct Lane {
    next_sequence: i32,
    /// Records of this transaction so far.
    records: u32,
    in_flight: VecDeque<Batch>,
    /// Path A: whether it is in the transaction.
    is_joined: bool,
}

/// Offsets of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offsets {
    None,
    Wanted,
    Sent,
    Done,
}

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    pub name: usize,
    pub is_path_b: bool,
    /// Number of its connection; answers of another one do not reach it.
    pub link: u64,
    pub identity: Option<Identity>,
    /// Number of the open transaction.
    pub txn: Option<usize>,
    lanes: BTreeMap<i32, Lane>,
    offsets: Offsets,
    is_group_joined: bool,
    control: Option<Control>,
    is_control_sent: bool,
    has_failed: bool,
    /// Path A: something may still arrive at this epoch.
    needs_epoch: bool,
    /// Whether something may be in the transaction.
    has_begun: bool,
    side_sequence: i32,
    rests_until_ms: u64,
}

impl Client {
    pub fn new(name: usize, is_path_b: bool) -> Self {
        Self {
            name,
            is_path_b,
            link: 0,
            identity: None,
            txn: None,
            lanes: BTreeMap::new(),
            offsets: Offsets::None,
            is_group_joined: false,
            control: None,
            is_control_sent: false,
            has_failed: false,
            needs_epoch: false,
            has_begun: false,
            side_sequence: 0,
            rests_until_ms: 0,
        }
    }

    /// The process is gone; another one takes its place after a while.
    pub fn restart(&mut self, link: u64, rests_until_ms: u64) {
        *self = Self { link, rests_until_ms, ..Self::new(self.name, self.is_path_b) };
    }

    /// The connection is gone, and with `is_broker_gone` all that the broker was doing.
    pub fn disconnected(&mut self, link: u64, is_broker_gone: bool) {
        self.link = link;
        let waits = self.offsets == Offsets::Sent || self.in_flight().any(|batch| batch.is_sent);
        if waits && !self.is_path_b && !is_broker_gone {
            (self.has_failed, self.needs_epoch) = (true, true);
        }
        self.is_control_sent = false;
        for lane in self.lanes.values_mut() {
            lane.in_flight.iter_mut().for_each(|batch| batch.is_sent = false);
        }
        if self.offsets == Offsets::Sent {
            self.offsets = Offsets::Wanted;
        }
    }

    fn in_flight(&self) -> impl Iterator<Item = &Batch> {
        self.lanes.values().flat_map(|lane| &lane.in_flight)
    }

    /// What it sends next, if anything.
    pub fn act(
        &mut self,
        rng: &mut Rng,
        now: TimestampMs,
        mono_ms: u64,
        truth: &mut Truth,
    ) -> Option<(Target, Request)> {
        if mono_ms < self.rests_until_ms {
            return None;
        }
        if self.control.is_some() {
            return self.send_control();
        }
        let Some(producer) = self.identity else { return self.ask(Control::Init(init(Identity::NONE))) };
        if rng.percent(5) {
            return Some(self.write_aside(producer, now));
        }
        let Some(txn) = self.txn else {
            if rng.percent(60) {
                self.begin(truth.begin(self.name, producer));
            }
            return None;
        };
        if self.has_failed {
            return self.end(producer, Outcome::Abort, truth);
        }
        match rng.below(100) {
            0..40 => self.produce(producer, txn, rng, now),
            40..75 => self.send_unsent(producer, rng),
            75..85 => self.commit_offsets(producer, txn, truth),
            85..97 => self.end(producer, Outcome::Commit, truth),
            _ => self.end(producer, Outcome::Abort, truth),
        }
    }

    fn begin(&mut self, txn: usize) {
        self.txn = Some(txn);
        (self.offsets, self.is_group_joined, self.has_failed, self.has_begun) = (Offsets::None, false, false, false);
        for lane in self.lanes.values_mut() {
            (lane.records, lane.is_joined) = (0, false);
            assert!(lane.in_flight.is_empty(), "an ended transaction has nothing in flight");
        }
    }

    fn ask(&mut self, control: Control) -> Option<(Target, Request)> {
        self.control = Some(control);
        self.is_control_sent = false;
        self.send_control()
    }

    fn send_control(&mut self) -> Option<(Target, Request)> {
        if std::mem::replace(&mut self.is_control_sent, true) {
            return None;
        }
        self.control.clone().map(|control| (Target::Coordinator, Request::Control(control)))
    }

    /// A plain batch to the partition that no transaction touches.
    fn write_aside(&mut self, producer: Identity, now: TimestampMs) -> (Target, Request) {
        let Identity { producer_id, epoch } = producer;
        let sequence = self.side_sequence;
        let batch = BatchBuilder::new().producer(producer_id.0, epoch.0, sequence).base_timestamp(now);
        let bytes = Bytes::from(batch.record(None, Some(b"aside")).build());
        (Target::Partition(SIDE), Request::Produce(Sending { version: 11, producer, partition: SIDE, sequence, bytes }))
    }

    fn produce(&mut self, who: Identity, txn: usize, rng: &mut Rng, now: TimestampMs) -> Option<(Target, Request)> {
        let any = rng.below(PARTITIONS as usize);
        let partition = if rng.percent(50) { any as i32 } else { self.name as i32 };
        let is_path_b = self.is_path_b;
        let lane = self.lanes.entry(partition).or_default();
        if lane.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        if !is_path_b && !lane.is_joined {
            let other = rng.below(PARTITIONS as usize) as i32;
            self.has_begun = true;
            return self.ask(Control::Add(Add {
                producer: who,
                partitions: vec![key(partition), key(other)],
                groups: Vec::new(),
                by: AddBy::Client,
            }));
        }
        let count = 1 + rng.below(4) as u32;
        let records: Vec<u32> = (lane.records..lane.records + count).collect();
        let (id, epoch) = (who.producer_id.0, who.epoch.0);
        let mut batch = BatchBuilder::new().producer(id, epoch, lane.next_sequence).base_timestamp(now).transactional();
        for record in &records {
            batch = batch.record(None, Some(&value(txn, partition, *record).to_be_bytes()));
        }
        let bytes = Bytes::from(batch.build());
        lane.in_flight.push_back(Batch { sequence: lane.next_sequence, records, bytes, is_sent: false });
        lane.next_sequence += count as i32;
        lane.records += count;
        self.send_next(who, partition)
    }

    fn send_unsent(&mut self, producer: Identity, rng: &mut Rng) -> Option<(Target, Request)> {
        self.send_next(producer, rng.below(PARTITIONS as usize) as i32)
    }

    /// Sends the first batch that is not sent, once no later one is out.
    fn send_next(&mut self, producer: Identity, partition: i32) -> Option<(Target, Request)> {
        let version = if self.is_path_b { 12 } else { 11 };
        let lane = self.lanes.get_mut(&partition)?;
        let at = lane.in_flight.iter().position(|batch| !batch.is_sent)?;
        if lane.in_flight.iter().skip(at).any(|batch| batch.is_sent) {
            return None;
        }
        let batch = &mut lane.in_flight[at];
        batch.is_sent = true;
        self.has_begun = true;
        let (sequence, bytes) = (batch.sequence, batch.bytes.clone());
        Some((
            Target::Partition(partition),
            Request::Produce(Sending { version, producer, partition, sequence, bytes }),
        ))
    }

    /// The group of this client's offsets.
    pub fn group(&self) -> usize {
        self.name % GROUPS.len()
    }

    fn commit_offsets(&mut self, producer: Identity, txn: usize, truth: &mut Truth) -> Option<(Target, Request)> {
        if matches!(self.offsets, Offsets::Sent | Offsets::Done) {
            return None;
        }
        if !self.is_path_b && !self.is_group_joined {
            let groups = vec![GROUPS[self.group()].into()];
            self.has_begun = true;
            return self.ask(Control::Add(Add { producer, partitions: Vec::new(), groups, by: AddBy::Client }));
        }
        self.offsets = Offsets::Sent;
        self.has_begun = true;
        truth.told[txn].offsets_sent = true;
        Some((Target::Group(self.group()), Request::Commit { adds: self.is_path_b, producer, txn }))
    }

    fn end(&mut self, producer: Identity, outcome: Outcome, truth: &mut Truth) -> Option<(Target, Request)> {
        let txn = self.txn.expect("only what was begun ends");
        let is_waiting = self.offsets == Offsets::Sent || self.in_flight().any(|batch| batch.is_sent);
        let is_open = self.offsets == Offsets::Wanted || self.in_flight().next().is_some();
        if is_waiting || is_open && outcome == Outcome::Commit {
            return None;
        }
        if is_open {
            self.needs_epoch = true;
            self.lanes.values_mut().for_each(|lane| lane.in_flight.clear());
        }
        if !self.has_begun {
            self.txn = None;
            return None;
        }
        truth.told[txn].commits |= outcome == Outcome::Commit;
        self.ask(Control::End(End { producer, outcome, bumps: self.is_path_b }))
    }

    /// Takes an answer in; `false` if the process ends of it.
    pub fn hear(&mut self, answer: Answer, mono_ms: u64, truth: &mut Truth) -> bool {
        match answer {
            Answer::Control(reply) => self.told(reply, mono_ms, truth),
            Answer::Produced { partition: SIDE, result, .. } => {
                // An answer of the epoch before may come late.
                self.side_sequence += i32::from(result.is_ok());
                true
            }
            Answer::Produced { partition, sequence, result } => self.produced(partition, sequence, result, truth),
            Answer::Committed(Ok(())) => {
                self.offsets = Offsets::Done;
                truth.told[self.txn.expect("it waits for this")].offsets_acknowledged = true;
                true
            }
            Answer::Committed(Err(code)) => {
                self.offsets = Offsets::Wanted;
                self.refused(code)
            }
        }
    }

    /// An error of a batch or of offsets; `false` if it is fatal.
    fn refused(&mut self, code: ErrorCode) -> bool {
        match code {
            code if is_retriable(code) => true,
            ErrorCode::InvalidProducerEpoch
            | ErrorCode::InvalidTxnState
            | ErrorCode::TransactionAbortable
            | ErrorCode::OutOfOrderSequenceNumber => {
                self.has_failed = true;
                true
            }
            ErrorCode::InvalidProducerIdMapping | ErrorCode::ProducerFenced => false,
            code => panic!("{} was refused with {code:?}", NAMES[self.name]),
        }
    }

    fn produced(&mut self, partition: i32, sequence: i32, result: Result<i64, ErrorCode>, truth: &mut Truth) -> bool {
        let lane = self.lanes.get_mut(&partition).expect("it sent there");
        let at = lane.in_flight.iter().position(|batch| batch.sequence == sequence && batch.is_sent);
        let at = at.expect("a batch in flight is kept");
        match result {
            Ok(_) => {
                let batch = lane.in_flight.remove(at).expect("just found");
                let told = &mut truth.told[self.txn.expect("it waits for this")];
                told.acknowledged.extend(batch.records.iter().map(|record| (partition, *record)));
                true
            }
            Err(code) => {
                lane.in_flight[at].is_sent = false;
                // The one before it was refused.
                let is_late = code == ErrorCode::OutOfOrderSequenceNumber && at > 0;
                is_late || self.refused(code)
            }
        }
    }

    fn told(&mut self, reply: Result<Reply, ErrorCode>, mono_ms: u64, truth: &mut Truth) -> bool {
        let control = self.control.take().expect("it waits for this");
        match (control, reply) {
            (control, Err(code)) if is_retriable(code) => {
                (self.control, self.is_control_sent, self.rests_until_ms) = (Some(control), false, mono_ms + 20);
                true
            }
            (Control::Init(_), Ok(Reply::Init(identity))) => {
                self.becomes(identity);
                self.txn = None;
                true
            }
            (Control::Add(add), Ok(Reply::Added)) => {
                for key in add.partitions {
                    self.lanes.entry(key.index).or_default().is_joined = true;
                }
                self.is_group_joined |= !add.groups.is_empty();
                true
            }
            (Control::Add(_), Err(ErrorCode::TransactionAbortable)) => {
                self.has_failed = true;
                true
            }
            (Control::End(end), reply) => {
                self.rests_until_ms = mono_ms + REST_MS * (self.txn.expect("it ends") as u64 % 4);
                self.ended(end, reply, truth)
            }
            (_, Err(ErrorCode::ProducerFenced | ErrorCode::InvalidProducerIdMapping)) => false,
            (control, reply) => panic!("{control:?} was answered with {reply:?}"),
        }
    }

    fn ended(&mut self, end: End, reply: Result<Reply, ErrorCode>, truth: &mut Truth) -> bool {
        let told = &mut truth.told[self.txn.expect("it ends")];
        match reply {
            Ok(Reply::Ended(identity)) => {
                told.verdict = Some(end.outcome);
                self.txn = None;
                if self.is_path_b {
                    self.becomes(identity);
                } else if std::mem::take(&mut self.needs_epoch) {
                    self.control = Some(Control::Init(init(identity)));
                    self.is_control_sent = false;
                }
                true
            }
            // The broker aborted it (B6), and only it can have.
            Err(ErrorCode::InvalidTxnState) if end.bumps && end.outcome == Outcome::Commit => {
                told.verdict = Some(Outcome::Abort);
                false
            }
            Err(ErrorCode::ProducerFenced | ErrorCode::InvalidProducerIdMapping | ErrorCode::InvalidTxnState) => false,
            other => panic!("{end:?} was answered with {other:?}"),
        }
    }

    fn becomes(&mut self, identity: Identity) {
        self.identity = Some(identity);
        self.lanes.clear();
        self.side_sequence = 0;
        (self.has_failed, self.needs_epoch) = (false, false);
    }
}

fn init(given: Identity) -> Init {
    Init { timeout_ms: TIMEOUT_MS, given, two_phase: false, keep_prepared: false }
}

/// What a client tries again.
fn is_retriable(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ConcurrentTransactions
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::KafkaStorageError
            | ErrorCode::NotLeaderOrFollower
    )
}
