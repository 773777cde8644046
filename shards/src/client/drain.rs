//! From waiting batches to Produce requests: one batch of a partition in a request, requests of a connection in order.

use std::collections::BTreeMap;

use super::batch::{Batch, BatchId};
use super::error::{ClientFailure, Reason, Written};
use super::lane::{LaneId, Next, Rules};
use super::machine::{Call, Machine, Purpose};
use super::message::{CallId, ConnectionId, Identity, Output, ProducePart, Request};
use crate::ids::ProducerEpoch;

/// A Produce request in the making.
#[derive(Debug)]
struct Draft {
    call: CallId,
    parts: Vec<ProducePart>,
    members: Vec<(LaneId, BatchId)>,
    bytes: usize,
}

type Drafts = BTreeMap<ConnectionId, Draft>;

impl Machine {
    /// Sends a request; its answer comes back under the number.
    pub(super) fn call(&mut self, node: i32, purpose: Purpose, request: Request) -> CallId {
        let connection = self.nodes.connection(node).expect("requests go to known nodes");
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.put(connection, call, purpose, request);
        call
    }

    fn put(&mut self, connection: ConnectionId, call: CallId, purpose: Purpose, request: Request) {
        let (ticket, address) = self.nodes.ticket(connection);
        let until_ms = self.now_ms + self.settings.request_timeout_ms;
        self.calls.insert(call, Call { connection, purpose, until_ms });
        self.outputs.push(Output::Send { connection, address, ticket, call, request });
    }

    /// Looks at every touched partition, until none has anything to send.
    pub(super) fn drain(&mut self) {
        while !self.touched.is_empty() && self.dead.is_none() {
            let mut drafts = Drafts::new();
            for lane in std::mem::take(&mut self.touched) {
                self.lanes[lane].touched = false;
                self.expire(lane);
                if self.txn_purges() {
                    self.purge(lane);
                }
                self.offer(lane, &mut drafts);
            }
            for (connection, draft) in drafts {
                self.produce(connection, draft);
            }
        }
        if self.dead.is_some() {
            self.touched.clear();
        }
    }

    fn produce(&mut self, connection: ConnectionId, draft: Draft) {
        let tv2 = self.txn.as_ref().is_some_and(|txn| txn.tv2);
        let transactional_id = self.settings.transactional_id.clone();
        if let Some(txn) = &mut self.txn {
            txn.reached |= txn.tv2;
        }
        let request = Request::Produce { transactional_id, tv2, parts: draft.parts };
        self.put(connection, draft.call, Purpose::Produce(draft.members), request);
    }

    /// Puts the next batch of a partition into its connection's request, or sets the time to look again.
    fn offer(&mut self, id: LaneId, drafts: &mut Drafts) {
        let lane = &self.lanes[id];
        if lane.is_empty() {
            self.arm(id, None);
            return;
        }
        let topic = lane.topic_id;
        let Some(connection) = lane.leader.and_then(|leader| self.nodes.connection(leader)) else {
            self.want_metadata(topic);
            self.arm(id, None);
            return;
        };
        let Some(identity) = self.identity else {
            self.want_identity();
            self.arm(id, None);
            return;
        };
        let node = self.nodes.get_mut(connection.node).expect("it has a connection");
        if node.until_ms > self.now_ms {
            let until_ms = node.until_ms;
            self.arm(id, Some(until_ms));
            return;
        }
        let full = drafts.get(&connection).is_some_and(|draft| draft.bytes >= self.settings.request_bytes_max);
        if full || !drafts.contains_key(&connection) && node.produces >= self.settings.in_flight_max {
            if !self.lanes[id].waiting {
                self.lanes[id].waiting = true;
                node.waiting.push_back(id);
            }
            self.arm(id, None);
            return;
        }
        let rules = self.rules(id, identity, connection);
        match self.lanes[id].next(self.now_ms, &rules) {
            Next::Send(at) => self.draft(id, at, connection, drafts),
            Next::NewEpoch => self.end_epoch(id, identity),
            Next::Wait(until_ms) => self.arm(id, until_ms),
        }
    }

    fn rules(&mut self, id: LaneId, identity: Identity, connection: ConnectionId) -> Rules {
        let hurry = self.flushes > 0 || self.closed || self.memory_used * 2 > self.settings.memory_bytes;
        let ending = self.txn.as_ref().is_some_and(|txn| txn.is_committing());
        Rules {
            identity,
            connection,
            in_flight_max: self.settings.in_flight_max,
            linger_ms: self.settings.linger_ms,
            batch_bytes: self.settings.batch_bytes,
            hurry: hurry || ending,
            fresh: self.txn_admits(id),
        }
    }

    fn draft(&mut self, id: LaneId, at: usize, connection: ConnectionId, drafts: &mut Drafts) {
        let draft = drafts.entry(connection).or_insert_with(|| {
            self.next_call += 1;
            self.nodes.get_mut(connection.node).expect("it has a connection").produces += 1;
            Draft { call: CallId(self.next_call), parts: Vec::new(), members: Vec::new(), bytes: 0 }
        });
        let lane = &mut self.lanes[id];
        lane.sent(at, connection, draft.call);
        let batch = &lane.in_flight[at];
        // As the records came: how far they compress is known when the batch is put on its connection.
        draft.bytes += batch.bytes;
        draft.members.push((id, batch.id));
        draft.parts.push(ProducePart {
            topic: lane.topic.clone(),
            partition: lane.partition,
            records: batch.wire().clone(),
        });
        // There may be more of it, for the next request.
        self.touch(id);
    }

    /// The next epoch, by ourselves: the leader of a partition takes any higher one that begins at 0 (contract 0.6).
    /// Another partition may have moved on already; then this one only follows.
    fn end_epoch(&mut self, id: LaneId, identity: Identity) {
        if self.txn.is_some() {
            // The transaction ends first, and with it the epoch.
            self.arm(id, None);
            return;
        }
        self.identity = match identity.epoch {
            ProducerEpoch(i16::MAX) => None,
            ProducerEpoch(epoch) => Some(Identity { epoch: ProducerEpoch(epoch + 1), ..identity }),
        };
        self.touch(id);
    }

    /// Sets when to look at a partition again: at this time, or when its oldest batch expires.
    fn arm(&mut self, id: LaneId, until_ms: Option<u64>) {
        let lane = &mut self.lanes[id];
        let expiry = lane.expires_ms(self.settings.delivery_timeout_ms);
        let at_ms = until_ms.into_iter().chain(expiry).min();
        if lane.timer_ms == at_ms {
            return;
        }
        if let Some(old_ms) = lane.timer_ms {
            self.timers.remove(&(old_ms, id));
        }
        lane.timer_ms = at_ms;
        self.timers.extend(at_ms.map(|at_ms| (at_ms, id)));
    }

    fn expire(&mut self, id: LaneId) {
        let expired = self.lanes[id].expire(self.now_ms, self.settings.delivery_timeout_ms);
        self.give_up(expired, &Reason::DeliveryTimeout);
    }

    fn purge(&mut self, id: LaneId) {
        let purged = self.lanes[id].purge();
        self.give_up(purged, &Reason::TransactionAborted);
    }

    fn give_up(&mut self, batches: Vec<(Batch, Written)>, reason: &Reason) {
        for (batch, written) in batches {
            let failure = ClientFailure::new(reason.clone(), written, self.next_of_records());
            self.fail(batch, failure);
            self.txn_failed(reason.clone());
        }
    }
}
