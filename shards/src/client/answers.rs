//! Answers, lost connections and answers that do not come.

use super::batch::BatchId;
use super::error::{ClientFailure, Next, Reason, Written};
use super::lane::{LaneId, Settled};
use super::machine::{Call, Machine, Purpose};
use super::message::{
    Answer, CallId, ConnectionId, Delivered, Identity, Output, PartitionMetadata, ProduceAnswer, Request,
};
use super::verdict::{self, Asked, Control, Verdict};
use crate::ids::{Offset, TimestampMs};

impl Machine {
    /// Takes an answer. One that nobody waits for any more is nothing.
    pub fn answered(&mut self, now_ms: u64, id: CallId, answer: Answer) {
        self.now_ms = self.now_ms.max(now_ms);
        let Some(call) = self.calls.remove(&id) else { return };
        self.nodes.answered(call.connection.node);
        match (call.purpose, answer) {
            (Purpose::Metadata(asked), Answer::Metadata(answer)) => self.metadata_answered(&asked, answer),
            (Purpose::Identity, Answer::Identity { code, identity }) => self.identity_answered(code, identity),
            (Purpose::Produce(members), Answer::Produce(parts)) => {
                self.produced(id, call.connection, &members, &parts);
            }
            (Purpose::Control(asked), answer) => self.control_answered(asked, answer),
            (purpose, answer) => panic!("{purpose:?} was answered with {answer:?}"),
        }
    }

    /// A connection is gone. `reached` says whether it ever was one: if not, nothing that was put on it was sent.
    pub fn lost(&mut self, now_ms: u64, connection: ConnectionId, reached: bool) {
        self.now_ms = self.now_ms.max(now_ms);
        self.drop_connection(connection, reached);
    }

    /// Gives a connection up with all its calls.
    pub(super) fn drop_connection(&mut self, connection: ConnectionId, reached: bool) {
        let settings = &self.settings;
        if !self.nodes.lost(connection, |failures| settings.backoff_ms(failures), self.now_ms) {
            return;
        }
        self.outputs.push(Output::Close(connection));
        let of_it = |(_, call): &(&CallId, &Call)| call.connection == connection;
        let lost: Vec<CallId> = self.calls.iter().filter(of_it).map(|(id, _)| *id).collect();
        for id in lost {
            let call = self.calls.remove(&id).expect("just listed");
            match call.purpose {
                Purpose::Metadata(_) => self.metadata_lost(),
                Purpose::Identity => self.identity_lost(),
                Purpose::Produce(members) => self.produce_lost(id, connection, &members, reached),
                Purpose::Control(asked) => self.control_lost(asked, reached),
            }
        }
    }

    pub(super) fn time_out_calls(&mut self) {
        // What comes behind the silent request on its connection could overtake a repetition elsewhere.
        while let Some(call) = self.calls.values().next()
            && call.until_ms <= self.now_ms
        {
            self.drop_connection(call.connection, true);
        }
    }

    fn produce_lost(&mut self, id: CallId, connection: ConnectionId, members: &[(LaneId, BatchId)], reached: bool) {
        for (lane, batch) in members {
            let until_ms = self.now_ms + self.backoff_of(*lane, *batch);
            self.lanes[*lane].lost(*batch, id, reached, until_ms);
            self.want_metadata(self.lanes[*lane].topic_id);
            self.touch(*lane);
        }
        self.produce_ended(connection);
    }

    /// One request less on a connection: others have room.
    fn produce_ended(&mut self, connection: ConnectionId) {
        let node = self.nodes.get_mut(connection.node).expect("nodes are never forgotten");
        node.produces -= 1;
        for lane in std::mem::take(&mut node.waiting) {
            self.lanes[lane].waiting = false;
            self.touch(lane);
        }
    }

    fn backoff_of(&self, lane: LaneId, batch: BatchId) -> u64 {
        let found = self.lanes[lane].in_flight.iter().find(|known| known.id == batch);
        self.settings.backoff_ms(found.map_or(1, |batch| batch.attempts))
    }

    fn produced(
        &mut self,
        id: CallId,
        connection: ConnectionId,
        members: &[(LaneId, BatchId)],
        parts: &[ProduceAnswer],
    ) {
        for (at, (lane, batch)) in members.iter().enumerate() {
            let known = &self.lanes[*lane];
            let of_it = |part: &&ProduceAnswer| part.partition == known.partition && part.topic == *known.topic;
            // Answers come in the order of the question, as far as any broker is known.
            let part = parts.get(at).filter(of_it).or_else(|| parts.iter().find(of_it));
            match part {
                Some(part) => self.part_answered(id, *lane, *batch, part),
                None => {
                    let until_ms = self.now_ms + self.backoff_of(*lane, *batch);
                    self.lanes[*lane].lost(*batch, id, true, until_ms);
                }
            }
            self.touch(*lane);
        }
        self.produce_ended(connection);
    }

    fn part_answered(&mut self, id: CallId, lane: LaneId, batch: BatchId, part: &ProduceAnswer) {
        let verdict = verdict::of_produce(part.code);
        let mut pause_ms = self.backoff_of(lane, batch);
        let topic = self.lanes[lane].topic_id;
        if let Some((leader, leader_epoch)) = part.leader.filter(|(leader, _)| self.nodes.get(*leader).is_some()) {
            let newer = leader_epoch > self.lanes[lane].leader_epoch;
            self.led(topic, &PartitionMetadata { index: part.partition, leader, leader_epoch });
            pause_ms = if newer { 0 } else { pause_ms };
        } else if matches!(verdict, Verdict::Retry { moved: true, .. }) {
            self.want_metadata(topic);
        }
        let until_ms = self.now_ms + pause_ms;
        match self.lanes[lane].answered(batch, id, verdict, self.now_ms, until_ms) {
            Settled::Nothing => {}
            Settled::Stored(batch) => {
                // An offset that cannot be is as good as none.
                let last = part.base_offset.0.checked_add(i64::from(batch.count()));
                let base_offset = Some(part.base_offset).filter(|base| *base >= Offset(0) && last.is_some());
                let timestamp = Some(part.timestamp).filter(|at| *at >= TimestampMs(0));
                let place = Delivered {
                    topic: self.lanes[lane].topic.clone(),
                    partition: part.partition,
                    base_offset,
                    timestamp,
                };
                self.deliver(batch, place);
            }
            Settled::Failed(batch, written) => self.refused(batch, part.code, written),
            Settled::Broken => self.txn_failed(Reason::Code(part.code)),
            Settled::Split => self.split(lane, batch),
        }
    }

    fn refused(&mut self, batch: super::batch::Batch, code: i16, written: Written) {
        let identity = batch.stamp.map(|stamp| stamp.identity);
        let failure = ClientFailure::new(Reason::Code(code), written, self.next_of_records());
        self.fail(batch, failure);
        if self.txn.is_some() && verdict::ends_producer(code) {
            self.die(ClientFailure::new(Reason::Code(code), Written::Unknown, Next::Close));
            return;
        }
        self.txn_failed(Reason::Code(code));
        // Somebody else has this producer id at a higher epoch: there is no way on with it.
        let fenced = code == crate::code::ErrorCode::InvalidProducerEpoch.wire();
        if fenced && self.txn.is_none() && identity == self.identity {
            self.identity = None;
        }
    }

    fn split(&mut self, lane: LaneId, batch: BatchId) {
        let second = BatchId(self.next_batch);
        self.next_batch += 1;
        self.lanes[lane].keeps_small = true;
        if let Some(whole) = self.lanes[lane].split(batch, second, self.settings.codec) {
            let written = whole.written;
            let failure = ClientFailure::new(Reason::RecordTooLarge, written, self.next_of_records());
            self.fail(whole, failure);
            self.txn_failed(Reason::RecordTooLarge);
        }
    }

    pub(super) fn want_identity(&mut self) {
        // A transactional producer has it from its initialization, and from nowhere else.
        self.identity_asking.wanted = self.txn.is_none();
    }

    pub(super) fn ask_identity(&mut self) {
        let asking = &self.identity_asking;
        if !asking.wanted || asking.call.is_some() || asking.until_ms > self.now_ms || self.dead.is_some() {
            return;
        }
        match self.nodes.any(self.now_ms) {
            Ok(node) => {
                let request = Request::InitProducerId { transactional_id: None, timeout_ms: i32::MAX, identity: None };
                self.identity_asking.call = Some(self.call(node, Purpose::Identity, request));
            }
            Err(until_ms) => self.identity_asking.until_ms = until_ms,
        }
    }

    fn identity_lost(&mut self) {
        let asking = &mut self.identity_asking;
        asking.call = None;
        asking.attempts += 1;
        asking.until_ms = self.now_ms + self.settings.backoff_ms(asking.attempts);
    }

    fn identity_answered(&mut self, code: i16, identity: Option<Identity>) {
        match (verdict::of_control(Asked::Init, code), identity) {
            (Control::Done, Some(identity)) => {
                self.identity = Some(identity);
                self.identity_asking = super::machine::Asking::default();
                self.touch_all();
            }
            (Control::Done | Control::Retry { .. }, _) => self.identity_lost(),
            (Control::Abort | Control::Fatal, _) => {
                self.die(ClientFailure::new(Reason::Code(code), Written::No, Next::Close));
            }
        }
    }
}
