//! The commit of a transaction over four partitions: decode, the coordinator's decision, the entry in the slot's
//! journal, and what follows when it is durable: the answer, and the plan of the markers.
//!
//! The transaction is begun before, and its markers are answered after what is measured.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ProducerId as WireProducerId;
use kafka_protocol::messages::end_txn_request::EndTxnRequest;
use kafka_protocol::messages::end_txn_response::EndTxnResponse;
use kafka_protocol::protocol::{Decodable, Encodable};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::Now;
use oncilla_shards::ids::{ProducerEpoch, ProducerId};
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::{Journal, slot_of};
use oncilla_shards::txn::{
    Add, AddBy, Ask, Effect, Effects, End, Identity, Init, MarkerAnswer, MarkerBatch, Outcome, Reply, Request,
    Transactions, TxnSettings,
};
use oncilla_shards::wire::{Body, schema};

use crate::frame::Frame;
use crate::{NOW, Path, image, key, split, write_journal};

/// Its key.
const END_TXN: i16 = 26;

/// Newest version; every end takes a new epoch.
const VERSION: i16 = 5;

const ID: &str = "settlement-eu1";
const TIMEOUT_MS: i32 = 60_000;
const CLOCK: Now = Now { wall: NOW, mono_ms: 0 };

/// Partitions of a transaction.
const PARTITIONS: i32 = 4;

/// Producer ids at hand: one is used up each 32,000 commits.
const PRODUCER_IDS: i64 = 100;

/// A transactional producer and its coordinator.
#[derive(Debug)]
pub struct EndTxn {
    coordinator: Transactions,
    producer: Identity,
    /// What the coordinator wants, and what it wanted before that.
    effects: [Effects; 2],
    markers: Vec<MarkerBatch>,
}

impl Default for EndTxn {
    fn default() -> Self {
        let mut coordinator = Transactions::new(TxnSettings::default(), 1, image());
        let mut effects = [Effects::with_capacity(8), Effects::with_capacity(8)];
        coordinator.insert(slot_of(ID.as_bytes()), Journal::default(), [], CLOCK, &mut effects[0]);
        coordinator.stock((1..=PRODUCER_IDS).map(ProducerId));
        let mut path = Self { coordinator, producer: Identity::NONE, effects, markers: Vec::new() };
        let given = Identity::NONE;
        let init = Init { timeout_ms: TIMEOUT_MS, given, two_phase: false, keep_prepared: false };
        match path.ask(Request::Init(init)) {
            Reply::Init(producer) => path.producer = producer,
            other => panic!("{other:?}"),
        }
        path
    }
}

impl EndTxn {
    /// Asks the coordinator, and carries out what it wants until it has answered.
    fn ask(&mut self, request: Request) -> Reply {
        let [wanted, now] = &mut self.effects;
        let ask = Ask { request, until_ms: 1_000 };
        self.coordinator.ask(ID, ask, WaiterId(0), CLOCK, wanted);
        let mut reply = None;
        while !wanted.is_empty() {
            std::mem::swap(wanted, now);
            for effect in now.drain(..) {
                match effect {
                    Effect::Reply(_, answer) => reply = Some(answer.expect("success")),
                    Effect::StartWriter(slot) => {
                        write_journal(self.coordinator.journal_mut(slot).expect("owned"));
                        self.coordinator.settled(slot, CLOCK, wanted);
                    }
                    Effect::SendMarkers(batch) => self.markers.push(batch),
                    Effect::Fence { slot, id, .. } => self.coordinator.fenced(slot, id, CLOCK, wanted),
                    Effect::Granted(_) | Effect::WantProducerIds => {}
                    Effect::QueueMarkers(_) | Effect::OffsetsHook(_) => panic!("nothing is elsewhere: {effect:?}"),
                }
            }
        }
        reply.expect("an answer")
    }

    /// Says of the markers that they are written: the transaction is complete.
    fn complete(&mut self) {
        let wanted = &mut self.effects[0];
        for marker in self.markers.drain(..).flat_map(|batch| batch.markers) {
            let answer =
                |partition: &_| MarkerAnswer { partition: *partition, code: ErrorCode::None, coordinator_epoch: -1 };
            let answers: Vec<MarkerAnswer> = marker.partitions.iter().map(answer).collect();
            self.coordinator.marked(&marker.txn, &answers, CLOCK, wanted);
        }
        assert!(wanted.is_empty(), "Complete waits for company: {wanted:?}");
    }
}

impl Path for EndTxn {
    type Input = Bytes;

    fn prepare(&mut self) -> Bytes {
        self.complete();
        let add = Add {
            producer: self.producer,
            partitions: (0..PARTITIONS).map(key).collect(),
            groups: Vec::new(),
            by: AddBy::Broker { early: false },
        };
        assert_eq!(self.ask(Request::Add(add)), Reply::Added);
        let Identity { producer_id, epoch } = self.producer;
        let frame = Frame::new(END_TXN, VERSION, 64).text(ID).i64(producer_id.0).i16(epoch.0).i8(1);
        frame.no_tags().finish()
    }

    fn serve(&mut self, frame: &mut Bytes) -> Body {
        let (header, body) = split(frame);
        let mut body = schema::checked(header.api_key, header.api_version, &body).expect("a valid body");
        let asked = EndTxnRequest::decode(&mut body, VERSION).expect("a valid body");
        let producer =
            Identity { producer_id: ProducerId(asked.producer_id.0), epoch: ProducerEpoch(asked.producer_epoch) };
        let outcome = if asked.committed { Outcome::Commit } else { Outcome::Abort };
        let reply = self.ask(Request::End(End { producer, outcome, bumps: true }));
        let Reply::Ended(next) = reply else { panic!("{reply:?}") };
        let sent: usize = self.markers.iter().flat_map(|batch| &batch.markers).map(|m| m.partitions.len()).sum();
        assert_eq!(sent, PARTITIONS as usize, "the markers leave with the answer");
        self.producer = next;
        let response = EndTxnResponse::default()
            .with_producer_id(WireProducerId(next.producer_id.0))
            .with_producer_epoch(next.epoch.0);
        let mut bytes = BytesMut::with_capacity(response.compute_size(VERSION).expect("a size"));
        response.encode(&mut bytes, VERSION).expect("it encodes");
        Body::from(bytes.freeze())
    }
}
