//! The producer's machine: what it knows, how records come in, and how it is driven.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::batch::{Batch, BatchId, record_bytes};
use super::error::{ClientFailure, Next, Reason, SendError, Written};
use super::lane::{Lane, LaneId};
use super::message::{CallId, ConnectionId, Delivered, Identity, NewRecord, Output, RecordId};
use super::nodes::Nodes;
use super::ops::Op;
use super::settings::Settings;
use super::topic::{Topic, Unplaced};
use super::txn::Txn;
use super::verdict::Asked;
use crate::limits::{CLIENT_GROWTH_BYTES_MAX, CLIENT_GROWTH_MS};

/// Part of the producer's memory that it keeps of ended batches.
const SPARE_PART: usize = 8;

/// What a request without an answer was for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Of these topics.
    Metadata(Vec<usize>),
    Identity,
    Produce(Vec<(LaneId, BatchId)>),
    Control(Asked),
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Call {
    pub connection: ConnectionId,
    pub purpose: Purpose,
    pub until_ms: u64,
}

/// Something that is asked of the cluster when it is needed, with pauses between tries.
#[derive(Debug, Default)]
pub(super) struct Asking {
    pub wanted: bool,
    pub call: Option<CallId>,
    pub until_ms: u64,
    pub attempts: u32,
}

/// The producer.
#[derive(Debug)]
pub struct Machine {
    pub(super) settings: Settings,
    pub(super) now_ms: u64,
    pub(super) lanes: Vec<Lane>,
    pub(super) topics: Vec<Topic>,
    pub(super) topic_ids: HashMap<Arc<str>, usize>,
    /// The topic of the last record: the next one mostly is of the same.
    last_topic: usize,
    /// Records of topics whose partitions are not known.
    pub(super) unplaced: usize,
    pub(super) nodes: Nodes,
    /// By number, so also by the time at which they are given up.
    pub(super) calls: BTreeMap<CallId, Call>,
    pub(super) identity: Option<Identity>,
    pub(super) identity_asking: Asking,
    pub(super) metadata_asking: Asking,
    pub(super) metadata_ms: u64,
    /// Partitions to look at.
    pub(super) touched: VecDeque<LaneId>,
    /// Partitions to look at later.
    pub(super) timers: BTreeSet<(u64, LaneId)>,
    pub(super) outputs: Vec<Output>,
    pub(super) memory_used: usize,
    /// Memory of batches that have ended, for the next ones.
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
    /// Records without an outcome.
    pub(super) outstanding: usize,
    pub(super) next_record: u64,
    pub(super) next_batch: u64,
    pub(super) next_call: u64,
    pub(super) ops: Vec<Op>,
    pub(super) flushes: usize,
    pub(super) txn: Option<Txn>,
    /// Newest finalized transaction.version, and the epoch under which a broker told it (contract D1).
    pub(super) feature: (i64, i16),
    pub(super) closed: bool,
    pub(super) dead: Option<ClientFailure>,
}

impl Machine {
    /// A producer that knows nothing but where to ask.
    #[must_use]
    pub fn new(settings: Settings, bootstrap: &[String]) -> Self {
        let txn = settings.transactional_id.clone().map(Txn::new);
        Self {
            settings,
            now_ms: 0,
            lanes: Vec::new(),
            topics: Vec::new(),
            topic_ids: HashMap::new(),
            last_topic: 0,
            unplaced: 0,
            nodes: Nodes::new(bootstrap),
            calls: BTreeMap::new(),
            identity: None,
            identity_asking: Asking::default(),
            metadata_asking: Asking { wanted: true, ..Asking::default() },
            metadata_ms: 0,
            touched: VecDeque::new(),
            timers: BTreeSet::new(),
            outputs: Vec::new(),
            memory_used: 0,
            spare: Vec::new(),
            spare_bytes: 0,
            outstanding: 0,
            next_record: 0,
            next_batch: 0,
            next_call: 0,
            ops: Vec::new(),
            flushes: 0,
            txn,
            feature: (-1, 0),
            closed: false,
            dead: None,
        }
    }

    /// What the edge has to do, in order.
    #[must_use]
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Whether a record of these bytes would be taken, as far as memory goes.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.memory_used == 0 || self.memory_used + bytes <= self.settings.memory_bytes
    }

    /// Bytes that a record takes of the producer's memory.
    #[must_use]
    pub fn charge(record: &NewRecord<'_>) -> usize {
        record_bytes(record)
    }

    /// Who produces now.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Takes note of the finalized transaction.version that a broker told with its versions; an epoch that is not newer
    /// says nothing (contract D1, F82).
    pub fn learn_feature(&mut self, epoch: i64, transaction_version: i16) {
        if epoch > self.feature.0 {
            self.feature = (epoch, transaction_version);
        }
    }

    /// Takes a record. Its outcome follows as an output, once, whatever happens.
    pub fn send(&mut self, now_ms: u64, record: &NewRecord<'_>) -> Result<RecordId, SendError> {
        self.now_ms = self.now_ms.max(now_ms);
        self.takes_records().map_err(SendError::Refused)?;
        let bytes = record_bytes(record);
        if bytes > self.settings.request_bytes_max {
            return Err(SendError::TooLarge { bytes });
        }
        if !self.has_room(bytes) {
            return Err(SendError::Full);
        }
        let topic = self.topic_of(record.topic);
        let id = RecordId(self.next_record);
        if self.topics[topic].lanes.is_empty() {
            self.topics[topic].unplaced.push_back(Unplaced::new(id, record, self.now_ms));
            self.unplaced += 1;
            self.want_metadata(topic);
        } else {
            self.place(topic, id, record, self.now_ms)?;
        }
        self.next_record += 1;
        self.outstanding += 1;
        self.memory_used += bytes;
        Ok(id)
    }

    fn takes_records(&self) -> Result<(), ClientFailure> {
        if let Some(failure) = &self.dead {
            return Err(failure.clone());
        }
        if self.closed {
            return Err(ClientFailure::new(Reason::Closed, Written::No, Next::Close));
        }
        self.txn.as_ref().map_or(Ok(()), Txn::takes_records)
    }

    fn topic_of(&mut self, name: &str) -> usize {
        if self.topics.get(self.last_topic).is_some_and(|topic| *topic.name == *name) {
            return self.last_topic;
        }
        self.last_topic = self.topic_ids.get(name).copied().unwrap_or_else(|| {
            let topic = Topic::new(name);
            self.topic_ids.insert(topic.name.clone(), self.topics.len());
            self.topics.push(topic);
            self.topics.len() - 1
        });
        self.last_topic
    }

    /// Puts a record into the batch that is open in its partition, or into a new one.
    pub(super) fn place(
        &mut self,
        topic: usize,
        id: RecordId,
        record: &NewRecord<'_>,
        created_ms: u64,
    ) -> Result<(), SendError> {
        let lanes = &self.lanes;
        let usable = |lane: LaneId| lanes[lane].leader.is_some();
        let Some(index) = self.topics[topic].place(record, self.settings.batch_bytes, usable) else {
            let partition = record.partition.unwrap_or(-1);
            return Err(SendError::NoPartition { topic: record.topic.to_owned(), partition });
        };
        let lane_id = self.topics[topic].lanes[index];
        let lane = &self.lanes[lane_id];
        let bytes = record_bytes(record);
        let settings = &self.settings;
        // What stands behind a full batch cannot leave now. It grows instead of becoming many: then a broker that is
        // slow to answer, because each batch costs it a write, gets fewer of them.
        let grows = |batch: &Batch| {
            let young = created_ms.saturating_sub(batch.created_ms) < CLIENT_GROWTH_MS;
            lane.queue.len() > 1 && !lane.keeps_small && young
        };
        let grown_bytes = settings.batch_bytes.max(settings.request_bytes_max.min(CLIENT_GROWTH_BYTES_MAX));
        let bytes_max = |batch: &Batch| if grows(batch) { grown_bytes } else { settings.batch_bytes };
        let fits = |batch: &Batch| batch.is_open() && batch.bytes + bytes <= bytes_max(batch);
        // The batch in front is looked at when it is new, and when it becomes full. Before that its linger has to end,
        // and after that it waits for what will have it looked at anyway, whatever comes behind it.
        let waits_full = lane.queue.len() > 1;
        let mut look = lane.timer_ms.is_none();
        let fits = lane.queue.back().is_some_and(fits);
        let lane = &mut self.lanes[lane_id];
        if !fits {
            let id = BatchId(self.next_batch);
            self.next_batch += 1;
            let transactional = self.txn.is_some();
            let memory = self.spare.pop().unwrap_or_default();
            self.spare_bytes -= memory.capacity();
            lane.queue.push_back(Batch::new(id, self.settings.codec, transactional, created_ms, memory));
            look = true;
        }
        let batch = lane.queue.back_mut().expect("just put there");
        batch.push(id, record);
        if (look || batch.bytes >= self.settings.batch_bytes) && !waits_full {
            self.touch(lane_id);
        }
        Ok(())
    }

    pub(super) fn touch(&mut self, lane: LaneId) {
        if !self.lanes[lane].touched {
            self.lanes[lane].touched = true;
            self.touched.push_back(lane);
        }
    }

    pub(super) fn touch_all(&mut self) {
        for lane in 0..self.lanes.len() {
            self.touch(lane);
        }
    }

    /// Whether something came in that [`Machine::poll`] should look at before the time it named.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let ask = |asking: &Asking| asking.wanted && asking.call.is_none() && asking.until_ms <= self.now_ms;
        !self.touched.is_empty() || !self.outputs.is_empty() || ask(&self.metadata_asking)
    }

    /// Does everything that is due, and says when it wants to be asked again at the latest.
    pub fn poll(&mut self, now_ms: u64) -> Option<u64> {
        self.now_ms = self.now_ms.max(now_ms);
        self.time_out_calls();
        self.time_out_ops();
        self.fire_timers();
        self.expire_unplaced();
        loop {
            self.ask_metadata();
            self.ask_identity();
            self.drain();
            self.drive_txn();
            if self.touched.is_empty() {
                break;
            }
        }
        // What the partitions found missing is asked for at once.
        self.ask_metadata();
        self.ask_identity();
        self.deadline()
    }

    fn fire_timers(&mut self) {
        while let Some(&(at_ms, lane)) = self.timers.first() {
            if at_ms > self.now_ms {
                return;
            }
            self.timers.pop_first();
            self.lanes[lane].timer_ms = None;
            self.touch(lane);
        }
    }

    fn deadline(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at_ms, _)| *at_ms);
        let call = self.calls.values().next().map(|call| call.until_ms);
        let ops = self.ops.iter().map(|op| op.until_ms).filter(|at_ms| *at_ms != u64::MAX).min();
        let ask = |asking: &Asking| (asking.wanted && asking.call.is_none()).then_some(asking.until_ms);
        let txn = self.txn.as_ref().and_then(|txn| txn.until_ms(self.now_ms));
        let unplaced = self.unplaced_until_ms();
        let all = [timer, call, ops, ask(&self.identity_asking), ask(&self.metadata_asking), txn, unplaced];
        all.into_iter().flatten().min()
    }

    /// Tells the outcome of a batch that is in the log.
    pub(super) fn deliver(&mut self, batch: Batch, place: Delivered) {
        self.memory_used -= batch.bytes - crate::limits::BATCH_HEADER_BYTES;
        self.count_down(&batch.records);
        let (records, memory) = batch.ended();
        self.outputs.push(Output::Delivered { records, place });
        let fits = |memory: &Vec<u8>| self.spare_bytes + memory.capacity() <= self.settings.memory_bytes / SPARE_PART;
        if let Some(memory) = memory.filter(fits) {
            self.spare_bytes += memory.capacity();
            self.spare.push(memory);
        }
    }

    /// Tells the outcome of a batch that is given up.
    pub(super) fn fail(&mut self, batch: Batch, failure: ClientFailure) {
        self.memory_used -= batch.bytes - crate::limits::BATCH_HEADER_BYTES;
        self.count_down(&batch.records);
        self.outputs.push(Output::Failed { records: batch.records, failure });
    }

    pub(super) fn fail_unplaced(&mut self, record: &Unplaced, failure: ClientFailure) {
        self.unplaced -= 1;
        self.memory_used -= record.bytes;
        self.count_down(&[record.id]);
        self.outputs.push(Output::Failed { records: vec![record.id], failure });
    }

    /// Nothing works any more: everything fails, and whatever comes.
    pub(super) fn die(&mut self, failure: ClientFailure) {
        for lane in 0..self.lanes.len() {
            self.lanes[lane].broken = true;
            while let Some(batch) = self.lanes[lane].in_flight.pop_front() {
                let written = batch.fate();
                self.fail(batch, ClientFailure { written, ..failure.clone() });
            }
            while let Some(batch) = self.lanes[lane].queue.pop_front() {
                self.fail(batch, ClientFailure { written: Written::No, ..failure.clone() });
            }
        }
        for topic in 0..self.topics.len() {
            while let Some(record) = self.topics[topic].unplaced.pop_front() {
                self.fail_unplaced(&record, ClientFailure { written: Written::No, ..failure.clone() });
            }
        }
        let end_sent = self.txn.as_ref().is_some_and(|txn| txn.end_sent);
        let written = if end_sent { Written::Unknown } else { failure.written };
        self.finish_all(&ClientFailure { written, ..failure.clone() });
        self.dead.get_or_insert(failure);
    }
}
