//! One partition as its producer sees it: what waits, what is under way, and under which sequence the next batch goes.
//!
//! `in_flight` holds every batch that has a stamp and no outcome, in the order of sequences, whether it is on a
//! connection or waits for a retry. `queue` holds the batches without a stamp, in the order of records; only the last
//! one takes more.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::{Batch, BatchId, Place, Stamp};
use super::error::Written;
use super::message::{CallId, ConnectionId, Identity};
use super::verdict::Verdict;
use crate::ids::Sequence;
use crate::limits::CLIENT_PROOF_MS;

/// Index of a lane in its machine.
pub(super) type LaneId = usize;

/// What a lane may send by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub identity: Identity,
    pub connection: ConnectionId,
    pub in_flight_max: usize,
    pub linger_ms: u64,
    pub batch_bytes: usize,
    /// Whether what waits goes out at once.
    pub hurry: bool,
    /// Whether batches without a stamp may go.
    pub fresh: bool,
}

/// What a lane does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Send the batch at this place of `in_flight`.
    Send(usize),
    /// Its epoch has to end first.
    NewEpoch,
    /// Nothing before this time, or before an answer.
    Wait(Option<u64>),
}

/// What became of a batch by an answer.
#[derive(Debug)]
pub(super) enum Settled {
    /// It waits again, or nobody asks for it any more.
    Nothing,
    /// It is in the log.
    Stored(Batch),
    /// It is given up.
    Failed(Batch, Written),
    /// It went against the order of sequences and waits for another epoch.
    Broken,
    /// It is two batches now.
    Split,
}

/// The partition.
#[derive(Debug)]
pub(super) struct Lane {
    pub topic: Arc<str>,
    pub topic_id: usize,
    pub partition: i32,
    pub leader: Option<i32>,
    pub leader_epoch: i32,
    pub queue: VecDeque<Batch>,
    pub in_flight: VecDeque<Batch>,
    /// Whose sequences these are; `None` before the first batch.
    pub identity: Option<Identity>,
    pub next: Sequence,
    /// A sequence that was given out will never be filled: no batch follows in this epoch.
    pub broken: bool,
    /// When the broker last acknowledged something of this producer id.
    proof_ms: Option<u64>,
    /// Whether the broker found a batch too large: no batch grows here any more.
    pub keeps_small: bool,
    /// Whether the partition is part of the transaction.
    pub added: bool,
    /// Whether it is on its machine's list of lanes to look at.
    pub touched: bool,
    /// Whether it waits for room on a connection.
    pub waiting: bool,
    pub timer_ms: Option<u64>,
}

impl Lane {
    pub fn new(topic: Arc<str>, topic_id: usize, partition: i32) -> Self {
        Self {
            topic,
            topic_id,
            partition,
            leader: None,
            leader_epoch: -1,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            identity: None,
            next: Sequence(0),
            broken: false,
            proof_ms: None,
            keeps_small: false,
            added: false,
            touched: false,
            waiting: false,
            timer_ms: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// Whether nothing of the lane's epoch is without a certain answer.
    fn is_settled(&self) -> bool {
        self.in_flight.iter().all(Batch::is_rejected)
    }

    /// Chooses, and stamps a batch that goes out for the first time.
    pub fn next(&mut self, now_ms: u64, rules: &Rules) -> Next {
        if self.is_settled() && self.identity != Some(rules.identity) {
            self.cross_over(rules.identity);
        }
        if self.is_settled() && self.broken {
            return if self.is_empty() { Next::Wait(None) } else { Next::NewEpoch };
        }
        if let Some(at) = self.in_flight.iter().position(|batch| !batch.is_rejected())
            && let Place::Parked { until_ms } = self.in_flight[at].place
        {
            return if until_ms <= now_ms { Next::Send(at) } else { Next::Wait(Some(until_ms)) };
        }
        self.next_fresh(now_ms, rules)
    }

    fn next_fresh(&mut self, now_ms: u64, rules: &Rules) -> Next {
        let here = rules.connection;
        let same = |batch: &Batch| matches!(batch.place, Place::Under { connection, .. } if connection == here);
        let in_order = !self.broken && self.identity == Some(rules.identity) && self.in_flight.iter().all(same);
        if !in_order || !rules.fresh || self.in_flight.len() >= self.depth(now_ms, rules) {
            return Next::Wait(None);
        }
        let Some(front) = self.queue.front() else { return Next::Wait(None) };
        let due_ms = front.created_ms.saturating_add(rules.linger_ms);
        let full = !front.is_open() || self.queue.len() > 1 || front.bytes >= rules.batch_bytes;
        if !(full || rules.hurry || due_ms <= now_ms) {
            return Next::Wait(Some(due_ms));
        }
        let mut batch = self.queue.pop_front().expect("just seen");
        batch.stamped(Stamp { identity: rules.identity, first: self.next });
        self.next = self.next.plus(batch.count());
        self.in_flight.push_back(batch);
        Next::Send(self.in_flight.len() - 1)
    }

    /// Batches that may be without an answer: one until the broker has shown that it knows the producer.
    fn depth(&mut self, now_ms: u64, rules: &Rules) -> usize {
        let old = |at: u64| now_ms.saturating_sub(at) >= CLIENT_PROOF_MS;
        if self.in_flight.is_empty() && self.proof_ms.is_some_and(old) {
            self.proof_ms = None;
        }
        if self.proof_ms.is_some() { rules.in_flight_max } else { 1 }
    }

    /// As if the broker were known to know the producer: a rule broken on purpose.
    #[cfg(test)]
    pub fn assume_proof(&mut self, now_ms: u64) {
        self.proof_ms = Some(now_ms);
    }

    /// Goes on under another identity. What was rejected goes out again as if for the first time, before what is new.
    fn cross_over(&mut self, identity: Identity) {
        if self.identity.is_none_or(|old| old.id != identity.id) {
            self.proof_ms = None;
        }
        self.identity = Some(identity);
        self.next = Sequence(0);
        self.broken = false;
        while let Some(mut batch) = self.in_flight.pop_back() {
            assert!(batch.written == Written::No, "only what is certainly not in the log gets another sequence");
            batch.stamp = None;
            batch.place = Place::Parked { until_ms: 0 };
            self.queue.push_front(batch);
        }
    }

    pub fn sent(&mut self, at: usize, connection: ConnectionId, call: CallId) {
        let as_first = self.in_flight.iter().take(at).all(Batch::is_rejected);
        let batch = &mut self.in_flight[at];
        batch.place = Place::Under { connection, call, as_first };
        batch.attempts += 1;
    }

    /// Takes the answer to one try of a batch.
    pub fn answered(&mut self, id: BatchId, call: CallId, verdict: Verdict, now_ms: u64, until_ms: u64) -> Settled {
        let Some(at) = self.in_flight.iter().position(|batch| batch.id == id) else { return Settled::Nothing };
        let Place::Under { call: last, as_first, .. } = self.in_flight[at].place else { return Settled::Nothing };
        if last != call {
            return Settled::Nothing;
        }
        match verdict {
            Verdict::Stored => {
                self.proof_ms = Some(now_ms);
                Settled::Stored(self.in_flight.remove(at).expect("just found"))
            }
            Verdict::Retry { written, .. } => {
                self.park(at, written, until_ms);
                Settled::Nothing
            }
            // Something before it has no answer yet, and may be why.
            Verdict::OutOfOrder if !as_first => {
                self.park(at, Written::No, until_ms);
                Settled::Nothing
            }
            Verdict::OutOfOrder => {
                self.broken = true;
                if self.in_flight[at].written == Written::No {
                    self.in_flight[at].place = Place::Rejected;
                    return Settled::Broken;
                }
                let batch = self.in_flight.remove(at).expect("just found");
                Settled::Failed(batch, Written::Unknown)
            }
            Verdict::Split => {
                self.in_flight[at].place = Place::Parked { until_ms: now_ms };
                Settled::Split
            }
            Verdict::Refused { written } => {
                let batch = self.give_up(at);
                let written = if written == Written::No { batch.written } else { written };
                Settled::Failed(batch, written)
            }
        }
    }

    fn park(&mut self, at: usize, written: Written, until_ms: u64) {
        let batch = &mut self.in_flight[at];
        batch.place = Place::Parked { until_ms };
        if written == Written::Unknown {
            batch.written = Written::Unknown;
        }
    }

    /// A call was lost with its connection.
    pub fn lost(&mut self, id: BatchId, call: CallId, reached: bool, until_ms: u64) {
        let under = |batch: &Batch| matches!(batch.place, Place::Under { call: last, .. } if last == call);
        if let Some(at) = self.in_flight.iter().position(|batch| batch.id == id && under(batch)) {
            self.park(at, if reached { Written::Unknown } else { Written::No }, until_ms);
        }
    }

    /// Takes a batch out for good: nothing can follow it in this epoch.
    pub fn give_up(&mut self, at: usize) -> Batch {
        self.broken = true;
        self.in_flight.remove(at).expect("a batch in flight")
    }

    /// Puts the two halves of a batch in its place; the batch itself if it cannot be halved.
    pub fn split(&mut self, id: BatchId, second: BatchId, codec: crate::batch::Codec) -> Option<Batch> {
        let at = self.in_flight.iter().position(|batch| batch.id == id)?;
        if self.in_flight[at].records.len() < 2 {
            return Some(self.give_up(at));
        }
        let (one, two) = self.in_flight.remove(at).expect("just found").split(second, codec);
        self.in_flight.insert(at, two);
        self.in_flight.insert(at, one);
        None
    }

    /// Batches older than the delivery timeout, with whether they may be in the log.
    pub fn expire(&mut self, now_ms: u64, timeout_ms: u64) -> Vec<(Batch, Written)> {
        let old = |batch: &Batch| batch.created_ms.saturating_add(timeout_ms) <= now_ms;
        let mut expired = Vec::new();
        while let Some(at) = self.in_flight.iter().position(old) {
            let batch = self.give_up(at);
            let fate = batch.fate();
            expired.push((batch, fate));
        }
        while self.queue.front().is_some_and(old) {
            expired.extend(self.queue.pop_front().map(|batch| (batch, Written::No)));
        }
        expired
    }

    /// When the oldest batch expires.
    pub fn expires_ms(&self, timeout_ms: u64) -> Option<u64> {
        let oldest = self.in_flight.iter().chain(self.queue.front()).map(|batch| batch.created_ms).min()?;
        Some(oldest.saturating_add(timeout_ms))
    }

    /// Takes out all that is not on a connection, because its transaction is aborted.
    pub fn purge(&mut self) -> Vec<(Batch, Written)> {
        let mut purged = Vec::new();
        while let Some(at) = self.in_flight.iter().position(|batch| !matches!(batch.place, Place::Under { .. })) {
            let batch = self.give_up(at);
            let fate = batch.fate();
            purged.push((batch, fate));
        }
        purged.extend(self.queue.drain(..).map(|batch| (batch, Written::No)));
        purged
    }
}
