//! What is open in partitions, settled with the coordinators as `txn::reconcile` does it: by a start, and by a look.

use std::sync::Arc;

use oncilla_shards::batch::ControlKind;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{PartitionKey, ProducerEpoch};
use oncilla_shards::limits::TXN_PARK_MS;
use oncilla_shards::partition::EndMarker;
use oncilla_shards::txn::{Adopt, Adopted, Identity, OpenTxn, Reply, Request as Control, unknown_to_all};

use super::edges::{GatheredFor, Wait};
use super::messages::{Message, Peer};
use super::world::{Mutation, SHARDS, World};

/// Pause before a partition asks again about an open transaction whose id is busy.
const ADOPT_PAUSE_MS: u64 = 20;

/// Pause before what could not be settled is tried again.
const PAUSE_MS: u64 = 1_000;

/// Longest time for which a shard that has started keeps its clients waiting (`txn::reconcile`).
const RECONCILE_WAIT_MS: u64 = 5_000;

/// Starts whose coordinators take longer to answer than clients are kept waiting, and longest time for which they do.
const SLOW_STARTS_PERCENT: usize = 50;
const SLOW_START_MS: usize = 2_000;

/// Longest time between two looks: short, so that many cross with an end.
const LOOK_INTERVAL_MS: usize = 100;

/// Longest time that a question takes, and that an answer takes: long enough for the transaction to end and the next
/// one to begin.
const QUESTION_MS: usize = 300;
const ANSWER_MS: usize = 1_000;

/// What happens later.
#[derive(Clone, Debug)]
pub enum Timer {
    Adopt(Arc<str>, Adopt),
    Round,
    Look,
    /// A question arrives, or its answer, by its ticket. They travel on no lane, so answers to markers may overtake
    /// them.
    Knows(u64, Vec<OpenTxn>),
    Known(u64, Option<Vec<bool>>),
    /// The next partition is opened, and the one that was taken is open.
    Take,
    Open(PartitionKey),
}

/// An open transaction that is asked about.
#[derive(Clone, Debug)]
pub enum Finding {
    /// Shards have to say whose it is.
    Owner { found: Adopt, missing: usize, owner: Option<Arc<str>> },
    /// Its coordinator has to say what becomes of it.
    Asked(Arc<str>, Adopt),
}

impl World {
    pub fn fire(&mut self, at: usize, timer: Timer) {
        match timer {
            Timer::Adopt(id, found) => self.ask_about(at, id, found),
            Timer::Round => self.begin_round(at),
            // Looks send nothing, so there is nothing to arrive: that would change the schedule of everything else.
            Timer::Look => return self.look(at),
            Timer::Knows(ticket, asked) => {
                let (known, ms) = (self.nodes[at].txns.knows(&asked), self.look_rng.below(ANSWER_MS) as u64);
                return self.later(at, ms, Timer::Known(ticket, known));
            }
            Timer::Known(ticket, known) => return self.looked(ticket, known),
            Timer::Take => return self.take(at),
            Timer::Open(key) => self.take_over(at, key),
        }
        self.arrive();
    }

    pub fn later(&mut self, at: usize, ms: u64, timer: Timer) {
        let number = self.fresh();
        self.timers.insert((self.now.mono_ms + ms, number), (at, timer));
    }

    /// A start asks about what it found open, now and then only when clients are served already. Where partitions are
    /// opened late it does so when all are open.
    pub fn begin_reconcile(&mut self, opens_late: bool) {
        let is_slow = self.rng.percent(SLOW_STARTS_PERCENT);
        self.patience_ms = if is_slow || opens_late { 0 } else { RECONCILE_WAIT_MS };
        for at in 0..SHARDS {
            match is_slow {
                _ if opens_late => {}
                true => {
                    let ms = self.rng.below(SLOW_START_MS) as u64;
                    self.later(at, ms, Timer::Round);
                }
                false => self.begin_round(at),
            }
            self.begin_looking(at);
        }
    }

    /// Asks about everything that is in doubt on a shard.
    pub fn begin_round(&mut self, at: usize) {
        let found = self.nodes[at].shard.doubted();
        if self.mutation == Some(Mutation::NoReconcile) {
            found.iter().for_each(|one| self.nodes[at].shard.adopted(one));
            return;
        }
        self.nodes[at].round = (found.clone(), found.len());
        for found in found {
            let (ticket, producer_id) = (self.fresh(), found.producer.producer_id);
            let finding = Finding::Owner { found, missing: SHARDS, owner: None };
            self.waiting.insert(ticket, Wait::Finding { at, finding });
            for to in 0..SHARDS {
                self.send(Peer::Shard(at), Peer::Shard(to), Message::OwnerOf(ticket, producer_id));
            }
        }
    }

    pub fn owned_by(&mut self, ticket: u64, told: Option<Arc<str>>) {
        let Some(Wait::Finding { at, finding: Finding::Owner { found, missing, owner } }) =
            self.waiting.get_mut(&ticket)
        else {
            unreachable!("it waits for owners")
        };
        *missing -= 1;
        *owner = owner.take().or(told);
        if *missing > 0 {
            return;
        }
        let (at, found, owner) = (*at, found.clone(), owner.take());
        self.waiting.remove(&ticket);
        match owner {
            Some(id) => self.ask_about(at, id, found),
            None => self.give_up(at, &found, found.producer.epoch),
        }
    }

    fn ask_about(&mut self, at: usize, id: Arc<str>, found: Adopt) {
        let ticket = self.fresh();
        let finding = Finding::Asked(id.clone(), found.clone());
        self.waiting.insert(ticket, Wait::Finding { at, finding });
        self.ask(at, ticket, &id, Control::Adopt(found), TXN_PARK_MS);
    }

    pub fn finding_told(&mut self, at: usize, finding: Finding, answer: Result<Reply, ErrorCode>) {
        let Finding::Asked(id, found) = finding else { unreachable!("owners are no coordinators") };
        match answer {
            Ok(Reply::Adopted(Adopted::Yes)) => {
                self.totals.adopted += 1;
                self.nodes[at].shard.adopted(&found);
                self.settled(at);
            }
            Ok(Reply::Adopted(Adopted::Abort(epoch))) => self.give_up(at, &found, epoch),
            Ok(Reply::Adopted(Adopted::LookAgain(seen))) => {
                let partitions = self.still_doubted(at, &found);
                if partitions.is_empty() {
                    self.totals.ended_meanwhile += 1;
                    return self.settled(at);
                }
                self.ask_about(at, id, Adopt { partitions, seen: Some(seen), ..found });
            }
            Ok(other) => unreachable!("a finding was answered with {other:?}"),
            Err(_) => self.later(at, ADOPT_PAUSE_MS, Timer::Adopt(id, found)),
        }
    }

    /// Ends what nobody else will.
    fn give_up(&mut self, at: usize, found: &Adopt, epoch: ProducerEpoch) {
        self.totals.given_up += 1;
        let marker = self.abort_marker(Identity { epoch, ..found.producer });
        let still = self.still_doubted(at, found).into_iter().map(|key| (key, marker)).collect();
        self.write_markers(at, GatheredFor::Reconcile, still);
    }

    /// The partitions where the producer has not moved on since.
    fn still_doubted(&self, at: usize, found: &Adopt) -> Vec<PartitionKey> {
        let doubted = self.nodes[at].shard.doubted();
        let same = doubted.into_iter().filter(|now| now.producer == found.producer).flat_map(|now| now.partitions);
        same.filter(|key| found.partitions.contains(key)).collect()
    }

    /// One of the shard's findings is settled.
    pub fn settled(&mut self, at: usize) {
        self.nodes[at].round.1 -= 1;
        if self.nodes[at].round.1 > 0 {
            return;
        }
        let left = self.nodes[at].shard.doubted();
        if left.is_empty() {
            return;
        }
        let pause_ms = if left == self.nodes[at].round.0 { PAUSE_MS } else { 0 };
        self.later(at, pause_ms, Timer::Round);
    }

    fn abort_marker(&self, producer: Identity) -> EndMarker {
        EndMarker {
            producer_id: producer.producer_id,
            epoch: producer.epoch,
            coordinator_epoch: self.boot_epoch(),
            transaction_version: 0,
            kind: ControlKind::Abort,
        }
    }

    /// Has a shard look at what is open for long when some time has passed.
    pub fn begin_looking(&mut self, at: usize) {
        let ms = 1 + self.look_rng.below(LOOK_INTERVAL_MS) as u64;
        self.later(at, ms, Timer::Look);
    }

    fn look(&mut self, at: usize) {
        self.begin_looking(at);
        let (asked, after) = self.nodes[at].shard.look(None);
        assert!(after.is_none(), "there are few partitions");
        if asked.is_empty() {
            return;
        }
        self.totals.looked_at += asked.len();
        let ticket = self.fresh();
        self.waiting.insert(ticket, Wait::Look { at, asked: asked.clone(), answers: Vec::new() });
        for to in 0..SHARDS {
            let ms = self.look_rng.below(QUESTION_MS) as u64;
            self.later(to, ms, Timer::Knows(ticket, asked.clone()));
        }
    }

    /// A shard has told what it knows. Nothing is ever lost here, but what the answer comes too late for seems to be.
    pub fn looked(&mut self, ticket: u64, known: Option<Vec<bool>>) {
        let Some(Wait::Look { at, asked, answers }) = self.waiting.get_mut(&ticket) else {
            unreachable!("it waits for what shards know")
        };
        answers.push(known);
        if answers.len() < SHARDS {
            return;
        }
        let (at, unknown) = (*at, unknown_to_all(asked, answers));
        self.waiting.remove(&ticket);
        self.totals.crossed += unknown.len();
        let shard = &self.nodes[at].shard;
        let is_trusted = |open: &OpenTxn| self.mutation == Some(Mutation::LateLook) || shard.is_still_open(open);
        let lost: Vec<OpenTxn> = unknown.into_iter().filter(is_trusted).collect();
        assert!(self.mutation.is_some() || lost.is_empty(), "a coordinator must know of {lost:?}");
        let markers = lost.iter().map(|open| (open.partition, self.abort_marker(open.producer))).collect();
        self.write_markers(at, GatheredFor::Look, markers);
    }
}
