//! Batches on their way into a partition, as `k00_produce` takes them in: the coordinator is asked first, the batches
//! that follow stand in line, and what is written before its add is durable waits for that.

use std::collections::VecDeque;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{Offset, PartitionKey, ProducerId};
use oncilla_shards::partition::WaiterId;
use oncilla_shards::producers::{Guard, Permit, Verify};
use oncilla_shards::shard::{Appended, Effects, Sent};
use oncilla_shards::txn::{Add, AddBy, Reply, Request as Control, Verify as Ask};

use super::edges::Wait;
use super::messages::{Answer, NAMES, SIDE, Sending, key};
use super::world::{Mutation, World};

/// First version that adds its partitions to the transaction.
const ADDS_FROM: i16 = 12;

/// How long Produce 12 waits for a transaction that is completing.
const ADD_WAIT_MS: u64 = 100;

/// One batch at work.
#[derive(Clone, Debug)]
pub struct Call {
    at: usize,
    client: usize,
    link: u64,
    batch: Sending,
    /// What has to settle before it is answered.
    open: usize,
    result: Result<i64, ErrorCode>,
}

impl Call {
    fn place(&self) -> (PartitionKey, ProducerId) {
        (key(self.batch.partition), self.batch.producer.producer_id)
    }
}

/// What keeps the later batches of a producer from being written and answered at once.
#[derive(Clone, Debug, Default)]
pub struct Line {
    asks: bool,
    waiting: VecDeque<u64>,
    /// Ticket of the add that is not durable.
    adding: Option<u64>,
}

impl World {
    pub fn take_in(&mut self, at: usize, client: usize, link: u64, batch: Sending) {
        let number = self.fresh();
        let is_plain = batch.partition == SIDE;
        let call = Call { at, client, link, batch, open: 1, result: Ok(-1) };
        let place = call.place();
        self.calls.insert(number, call);
        if is_plain {
            return self.append(number, Permit::Unchecked);
        }
        match self.nodes[at].lines.get_mut(&place) {
            Some(line) if line.asks => line.waiting.push_back(number),
            _ => drop(self.decide(number)),
        }
    }

    /// A4 b to d; whether the coordinator is asked.
    fn decide(&mut self, number: u64) -> bool {
        let call = self.calls[&number].clone();
        let (at, place, adds) = (call.at, call.place(), call.batch.version >= ADDS_FROM);
        match self.nodes[at].shard.verify(&place.0, &call.batch.bytes, adds, self.now.wall) {
            Verify::Ask(guard) => {
                self.nodes[at].lines.entry(place).or_default().asks = true;
                let ticket = self.fresh();
                self.waiting.insert(ticket, Wait::Batch { at, call: number, guard, is_granted: false });
                let (producer, partitions, groups) = (call.batch.producer, vec![place.0], Vec::new());
                let (request, wait_ms) = match adds {
                    true => {
                        let by = AddBy::Broker { early: true };
                        (Control::Add(Add { producer, partitions, groups, by }), ADD_WAIT_MS)
                    }
                    false => (Control::Verify(Ask { producer, partitions, groups }), 0),
                };
                self.ask(at, ticket, NAMES[self.clients[call.client].name], request, wait_ms);
                true
            }
            Verify::Refuse(code) => {
                self.keep_out(number, code);
                false
            }
            Verify::Open => {
                let adding = self.nodes[at].lines.get(&place).and_then(|line| line.adding);
                if let Some(ticket) = adding {
                    self.follow(ticket, number);
                }
                self.append(number, Permit::Open);
                false
            }
        }
    }

    fn follow(&mut self, ticket: u64, number: u64) {
        if self.mutation != Some(Mutation::EarlyAdd) {
            self.calls.get_mut(&number).expect("it is at work").open += 1;
            self.followers.entry(ticket).or_default().push(number);
        }
    }

    fn append(&mut self, number: u64, permit: Permit) {
        let Call { at, batch, .. } = self.calls[&number].clone();
        let ticket = self.fresh();
        let fenced = self.nodes[at].fences.check(batch.producer.producer_id, batch.producer.epoch);
        let mut effects = Effects::new();
        let appended = fenced.map(|()| {
            let sent = Sent { records: &batch.bytes, api_version: batch.version, permit };
            let waiter = Some(WaiterId(ticket));
            self.nodes[at].shard.append(&key(batch.partition), sent, self.now.wall, waiter, &mut effects)
        });
        match appended {
            Ok(Appended::Waiting(placed)) => {
                self.placed(number, placed.base, placed.duplicate);
                self.waiting.insert(ticket, Wait::Append(number));
            }
            Ok(Appended::Durable(placed)) => {
                self.placed(number, placed.base, placed.duplicate);
                self.release(number);
            }
            Ok(Appended::Refused(refusal)) => self.keep_out(number, refusal.code),
            Err(code) => self.keep_out(number, code),
        }
        self.carry_out_shard(effects);
    }

    fn placed(&mut self, number: u64, base: Offset, is_duplicate: bool) {
        let call = self.calls.get_mut(&number).expect("it is at work");
        call.result = Ok(base.0);
        self.totals.duplicates += usize::from(is_duplicate);
        let producer = call.batch.producer;
        let fence = self.told_fences.get(&producer.producer_id).copied().unwrap_or(0);
        let is_fenced = producer.epoch.0 < fence;
        assert!(is_duplicate || !is_fenced, "a batch of {producer:?} is taken behind a fence below {fence}");
    }

    fn keep_out(&mut self, number: u64, code: ErrorCode) {
        self.calls.get_mut(&number).expect("it is at work").result = Err(code);
        self.release(number);
    }

    /// An append is durable, or never will be.
    pub fn appended(&mut self, number: u64, result: Result<(), ErrorCode>) {
        if let Err(code) = result {
            self.calls.get_mut(&number).expect("it is at work").result = Err(code);
        }
        self.release(number);
    }

    fn release(&mut self, number: u64) {
        let call = self.calls.get_mut(&number).expect("it is at work");
        call.open -= 1;
        if call.open == 0 {
            let Call { at, client, link, batch, result, .. } = self.calls.remove(&number).expect("just seen");
            let (partition, sequence) = (batch.partition, batch.sequence);
            self.answer(at, client, link, Answer::Produced { partition, sequence, result });
        }
    }

    /// An add is decided: the write begins.
    pub fn granted(&mut self, ticket: u64) {
        let Some(Wait::Batch { at, call, guard, is_granted }) = self.waiting.get_mut(&ticket) else {
            unreachable!("only batches are granted")
        };
        *is_granted = true;
        let (at, number, guard) = (*at, *call, *guard);
        let place = self.calls[&number].place();
        self.nodes[at].lines.get_mut(&place).expect("it asks").adding = Some(ticket);
        self.followers.insert(ticket, Vec::new());
        self.follow(ticket, number);
        self.append(number, Permit::Asked(guard));
        self.go_on(at, place);
    }

    /// The coordinator has answered for a batch; if its write has begun, the add is durable, or never will be.
    pub fn batch_told(
        &mut self,
        at: usize,
        ticket: u64,
        (number, guard, is_granted): (u64, Guard, bool),
        answer: Result<Reply, ErrorCode>,
    ) {
        if is_granted {
            return self.added(at, ticket, answer.err().unwrap_or(ErrorCode::None));
        }
        let code = match answer {
            Ok(Reply::Added) => ErrorCode::None,
            Ok(Reply::Verified(codes)) => codes[0],
            Ok(other) => unreachable!("a batch was answered with {other:?}"),
            Err(code) => code,
        };
        let place = self.calls[&number].place();
        match code {
            ErrorCode::None => self.append(number, Permit::Asked(guard)),
            code => {
                let code = translate(code, self.calls[&number].batch.version);
                self.keep_out(number, code);
            }
        }
        self.go_on(at, place);
    }

    fn added(&mut self, at: usize, ticket: u64, code: ErrorCode) {
        let followers = self.followers.remove(&ticket).unwrap_or_default();
        if !code.is_none() {
            for Sending { partition, producer, .. } in followers.iter().map(|number| &self.calls[number].batch) {
                self.nodes[at].shard.doubt(&key(*partition), *producer);
            }
        }
        self.nodes[at].lines.retain(|_, line| {
            line.adding.take_if(|adding| *adding == ticket);
            line.asks || line.adding.is_some()
        });
        for number in followers {
            let call = self.calls.get_mut(&number).expect("it waits for this");
            if !code.is_none() && call.result.is_ok() {
                call.result = Err(translate(code, call.batch.version));
            }
            self.release(number);
        }
    }

    /// Takes in who stands in line, up to the next one that has to ask.
    fn go_on(&mut self, at: usize, place: (PartitionKey, ProducerId)) {
        loop {
            let line = self.nodes[at].lines.get_mut(&place).expect("it asks");
            let Some(number) = line.waiting.pop_front() else {
                line.asks = false;
                if line.adding.is_none() {
                    self.nodes[at].lines.remove(&place);
                }
                return;
            };
            if self.decide(number) {
                return;
            }
        }
    }
}

/// What the coordinator's code becomes (A4's table).
fn translate(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::ConcurrentTransactions if version < ADDS_FROM => ErrorCode::NotEnoughReplicas,
        ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable => {
            ErrorCode::NotEnoughReplicas
        }
        other => other,
    }
}
