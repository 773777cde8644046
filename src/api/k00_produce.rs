//! Produce (key 0), versions 3 to 13: contract A2, A5 and K0.
//!
//! A request is begun in one go: every batch of this shard has its place in the log when [`begin`] returns, so requests
//! of a connection keep their order while their writes overlap. The answer leaves when all its batches are durable.
//! Limits: requests and bytes in work are bounded by the connection. Failure: each partition has its own code; only
//! what does not parse closes the connection, and any error does with acks=0 (K0.7, KC.16).

mod transactional;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oncilla_shards::batch::{self, BatchHeader, Peek};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{Offset, PartitionKey, ShardId};
use oncilla_shards::image::Image;
use oncilla_shards::partition::{Placed, Refusal, WaiterId};
use oncilla_shards::producers::Permit;
use oncilla_shards::session::TopicKey;
use oncilla_shards::shard::{Appended, Effects, Sent};
use oncilla_shards::txn::Identity;
use oncilla_shards::wire::produce::{
    self, ProduceAnswer, ProducePartition, ProducePartitionAnswer, ProduceRequest, encode,
};
use oncilla_shards::wire::{CurrentLeader, NodeEndpoint};
use slab::Slab;
use smallvec::SmallVec;

use self::transactional::{Lines, Transaction};
use super::topic_ref::{resolve, topic_key};
use super::{Answer, Request, nodes};
use crate::ctx::Ctx;
use crate::rt::{OneshotSender, now, now_ms, oneshot, spawn};

/// This API's key.
const PRODUCE: i16 = 0;

/// Client whose writes to internal topics are let through (K0.8).
const ADMIN_CLIENT: &[u8] = b"__admin_client";

/// One batch that passed the checks of the request as a whole.
#[derive(Debug)]
struct Item {
    /// Its place in the answer.
    at: usize,
    key: PartitionKey,
    records: Bytes,
    /// Who wrote it, if it has a producer id.
    producer: Option<Identity>,
    transactional: bool,
    /// What it is refused with once its transaction is known to be right (A2: rule 8 comes behind A4).
    refused: Option<ErrorCode>,
}

impl Item {
    fn new(at: usize, key: PartitionKey, records: Bytes, refused: Option<ErrorCode>) -> Self {
        let header = BatchHeader::parse(&records).ok().filter(BatchHeader::is_idempotent);
        let producer =
            header.as_ref().map(|header| Identity { producer_id: header.producer_id, epoch: header.producer_epoch });
        let transactional = header.is_some_and(|header| header.attributes.is_transactional());
        Self { at, key, records, producer, transactional, refused }
    }
}

/// A request, or the part of it that one shard serves, until all its batches are settled.
pub struct Call {
    version: i16,
    /// Set if one of its batches is of a transaction.
    transaction: Option<Transaction>,
    started: Instant,
    answers: RefCell<SmallVec<[ProducePartitionAnswer; 1]>>,
    open: Cell<usize>,
    finish: RefCell<Option<Finish>>,
}

enum Finish {
    /// Answers the client; acks=0 is answered by silence, or by closing.
    Client { slot: crate::net::AnswerSlot, acks: i16, endpoints: Vec<NodeEndpoint> },
    /// Gives the answers back to the shard that has the connection.
    Shard(OneshotSender<SmallVec<[ProducePartitionAnswer; 1]>>),
}

/// Who waits for an append to be durable.
enum Waiting {
    /// A batch of a request, by its place in the answer.
    Batch(Rc<Call>, usize),
    /// Somebody else, for a marker.
    Marker(OneshotSender<Result<(), ErrorCode>>),
}

/// Appends that wait to be durable, by waiter, and batches that wait for a coordinator.
#[derive(Default)]
pub struct ProduceWaiters {
    waiting: RefCell<Slab<Waiting>>,
    lines: Lines,
}

impl ProduceWaiters {
    /// An append is durable, or never will be.
    pub fn settle(&self, ctx: &Rc<Ctx>, waiter: WaiterId, result: Result<(), ErrorCode>) {
        let waiting = self.waiting.borrow_mut().remove(waiter.0 as usize);
        let (call, at) = match waiting {
            Waiting::Batch(call, at) => (call, at),
            Waiting::Marker(sender) => return sender.send(result),
        };
        if let Err(code) = result {
            let mut answers = call.answers.borrow_mut();
            let answer = &mut answers[at];
            *answer = ProducePartitionAnswer::refused(answer.topic.clone(), answer.index, code);
        }
        call.settled(ctx);
    }

    /// A waiter whose result `sender` takes.
    pub fn open(&self, sender: OneshotSender<Result<(), ErrorCode>>) -> WaiterId {
        WaiterId(self.waiting.borrow_mut().insert(Waiting::Marker(sender)) as u64)
    }

    /// Nothing was appended for this waiter.
    pub fn close(&self, waiter: WaiterId) {
        self.waiting.borrow_mut().remove(waiter.0 as usize);
    }
}

impl Call {
    /// One more thing has to settle before it is answered.
    fn hold(&self) {
        self.open.set(self.open.get() + 1);
    }

    fn settled(&self, ctx: &Ctx) {
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.end(ctx);
        }
    }

    fn end(&self, ctx: &Ctx) {
        let answers = self.answers.take();
        match self.finish.take().expect("a request is answered once") {
            Finish::Shard(sender) => sender.send(answers),
            Finish::Client { slot, acks, endpoints } => {
                let elapsed_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
                ctx.metrics.request(PRODUCE, elapsed_us);
                let refused = answers.iter().find(|answer| answer.code != ErrorCode::None);
                for answer in answers.iter().filter(|answer| answer.code != ErrorCode::None) {
                    ctx.metrics.error(answer.code);
                }
                let answer = match refused {
                    Some(refused) if acks == 0 => Answer::Close(format!("{:?} with acks=0", refused.code)),
                    None if acks == 0 => Answer::Silent,
                    _ => {
                        let (partitions, node_endpoints) = (&answers[..], &endpoints[..]);
                        Answer::Body(encode(
                            self.version,
                            &ProduceAnswer { partitions, node_endpoints, throttle_time_ms: 0 },
                        ))
                    }
                };
                slot.fill(answer.into());
            }
        }
    }
}

/// Begins a request; its slot is filled when everything in it is settled.
pub fn begin(ctx: &Rc<Ctx>, request: &Request, slot: crate::net::AnswerSlot) {
    let mut decoded = match produce::decode(request.version, &request.body) {
        Ok(decoded) => decoded,
        Err(error) => return slot.fill(Answer::Close(format!("a Produce request does not parse: {error}")).into()),
    };
    let image = ctx.image();
    let partitions = std::mem::take(&mut decoded.partitions);
    let mut checked = Checked { ctx, request, image: &image, answers: SmallVec::new(), endpoints: Vec::new() };
    let items = checked.items(&decoded, last_mentions(partitions));
    let acks = decoded.acks;
    let is_transactional = items.iter().any(|item| item.transactional);
    let id = decoded.transactional_id.as_deref().filter(|_| is_transactional);
    let call = Rc::new(Call {
        version: request.version,
        transaction: id.map(|id| Transaction::new(ctx, id, decoded.timeout_ms)),
        started: now(),
        answers: RefCell::new(checked.answers),
        // One more than there are batches: the request itself, until all are begun.
        open: Cell::new(items.len() + 1),
        finish: RefCell::new(Some(Finish::Client { slot, acks, endpoints: checked.endpoints })),
    });
    let (mut here, mut elsewhere) = (SmallVec::new(), BTreeMap::<ShardId, Vec<Item>>::new());
    for item in items {
        match image.topic_by_id(item.key.topic).map(|topic| image.owner(topic, item.key.index)) {
            Some(owner) if owner != ctx.id => elsewhere.entry(owner).or_default().push(item),
            _ => here.push(item),
        }
    }
    take_in(ctx, &call, here);
    for (owner, items) in elsewhere {
        pass_on(ctx, &call, owner, items);
    }
    call.settled(ctx);
}

/// Takes in the batches of a request for this shard; those of transactions may have to wait for a coordinator.
fn take_in(ctx: &Rc<Ctx>, call: &Rc<Call>, items: SmallVec<[Item; 1]>) {
    let mut of_transactions = Vec::new();
    for item in items {
        match item.producer {
            Some(producer) if item.transactional => of_transactions.push((item, producer)),
            _ => append(ctx, call, item, Permit::Unchecked),
        }
    }
    if !of_transactions.is_empty() {
        transactional::begin(ctx, call, of_transactions);
    }
}

/// Appends one batch on this shard.
fn append(ctx: &Rc<Ctx>, call: &Rc<Call>, item: Item, permit: Permit) {
    if let Some(code) = item.refused {
        refuse(ctx, &mut call.answers.borrow_mut()[item.at], Refusal::code(code, false), Offset(-1));
        return call.settled(ctx);
    }
    let fenced = item.producer.and_then(|who| ctx.txn.check_fence(who.producer_id, who.epoch).err());
    let waiter = WaiterId(ctx.produces.waiting.borrow_mut().insert(Waiting::Batch(call.clone(), item.at)) as u64);
    let mut effects = Effects::new();
    let (appended, log_start) = {
        let mut shard = ctx.shard.borrow_mut();
        let sent = Sent { records: &item.records, api_version: call.version, permit };
        let appended = match fenced {
            Some(code) => Appended::Refused(Box::new(Refusal::code(code, true))),
            None => shard.append(&item.key, sent, now_ms(), Some(waiter), &mut effects),
        };
        (appended, shard.partition(&item.key).map_or(Offset(-1), |partition| partition.log_start()))
    };
    let waits = matches!(appended, Appended::Waiting(_));
    {
        let mut answers = call.answers.borrow_mut();
        let answer = &mut answers[item.at];
        match appended {
            Appended::Durable(placed) | Appended::Waiting(placed) => place(ctx, answer, placed, log_start),
            Appended::Refused(refusal) => refuse(ctx, answer, *refusal, log_start),
        }
    }
    if waits {
        ctx.metrics.produced_bytes.add(item.records.len() as u64);
    } else {
        ctx.produces.close(waiter);
        call.settled(ctx);
    }
    ctx.carry_out(effects);
}

fn place(ctx: &Ctx, answer: &mut ProducePartitionAnswer, placed: Placed, log_start: Offset) {
    answer.base_offset = placed.base;
    answer.log_append_time_ms = placed.log_append_time;
    answer.log_start_offset = log_start;
    if placed.duplicate {
        ctx.metrics.duplicate_batches.add(1);
    } else {
        ctx.metrics.records_produced.add((placed.end.0 - placed.base.0) as u64);
    }
}

fn refuse(ctx: &Ctx, answer: &mut ProducePartitionAnswer, refusal: Refusal, log_start: Offset) {
    match refusal.code {
        ErrorCode::OutOfOrderSequenceNumber => ctx.metrics.out_of_order_batches.add(1),
        ErrorCode::InvalidProducerEpoch => ctx.metrics.fenced_batches.add(1),
        _ => {}
    }
    *answer = ProducePartitionAnswer::refused(answer.topic.clone(), answer.index, refusal.code);
    answer.record_errors = refusal.record_errors;
    answer.error_message = refusal.message.map(Into::into);
    if refusal.names_log_start {
        answer.log_start_offset = log_start;
    }
}

/// Has another shard append; the lane keeps the order of a connection's requests.
fn pass_on(ctx: &Rc<Ctx>, call: &Rc<Call>, owner: ShardId, items: Vec<Item>) {
    let (ctx, call, version, transaction) = (ctx.clone(), call.clone(), call.version, call.transaction.clone());
    spawn(async move {
        let places: Vec<usize> = items.iter().map(|item| item.at).collect();
        let seeds: SmallVec<[ProducePartitionAnswer; 1]> =
            places.iter().map(|&at| call.answers.borrow()[at].clone()).collect();
        let answers = ctx.call(owner, move |ctx| serve_part(ctx, version, transaction, seeds, items)).await;
        for (at, answer) in places.into_iter().zip(answers) {
            call.answers.borrow_mut()[at] = answer;
            call.settled(&ctx);
        }
    });
}

async fn serve_part(
    ctx: Rc<Ctx>,
    version: i16,
    transaction: Option<Transaction>,
    answers: SmallVec<[ProducePartitionAnswer; 1]>,
    items: Vec<Item>,
) -> SmallVec<[ProducePartitionAnswer; 1]> {
    let (sender, receiver) = oneshot();
    let open = Cell::new(items.len() + 1);
    let finish = RefCell::new(Some(Finish::Shard(sender)));
    let call = Rc::new(Call { version, transaction, started: now(), answers: RefCell::new(answers), open, finish });
    take_in(&ctx, &call, items.into_iter().enumerate().map(|(at, item)| Item { at, ..item }).collect());
    call.settled(&ctx);
    receiver.await.expect("every batch is settled")
}

/// The checks that come before a partition looks at its batch.
struct Checked<'a> {
    ctx: &'a Rc<Ctx>,
    request: &'a Request,
    image: &'a Image,
    answers: SmallVec<[ProducePartitionAnswer; 1]>,
    endpoints: Vec<NodeEndpoint>,
}

impl Checked<'_> {
    /// The batches that are left; the others have their answer.
    fn items(&mut self, decoded: &ProduceRequest, partitions: SmallVec<[ProducePartition; 1]>) -> SmallVec<[Item; 1]> {
        let whole = whole_request_code(&partitions, decoded);
        let mut items = SmallVec::new();
        for partition in partitions {
            let at = self.answers.len();
            let found = match whole {
                Some(code) => Err(code),
                None => self.key_of(&partition),
            };
            let mut answer = ProducePartitionAnswer::refused(
                partition.topic,
                partition.index,
                found.err().unwrap_or(ErrorCode::None),
            );
            if whole == Some(ErrorCode::CorruptMessage) {
                answer.error_message = Some("a batch has a length or a format version that does not exist".into());
            }
            self.answers.push(answer);
            if let Ok((key, is_internal)) = found {
                let refused = self.refusal(decoded.acks, is_internal);
                items.push(Item::new(at, key, partition.records.unwrap_or_default(), refused));
            }
        }
        if has_several_producers(&items) {
            self.refuse_all(&items);
            items.clear();
        }
        items.retain(|item| self.leads(item));
        items
    }

    /// A2.8: not of the request as a whole, and not before the transaction is asked for.
    fn refusal(&self, acks: i16, is_internal: bool) -> Option<ErrorCode> {
        if !(-1..=1).contains(&acks) {
            return Some(ErrorCode::InvalidRequiredAcks);
        }
        let is_admin = self.request.client_id.as_deref() == Some(ADMIN_CLIENT);
        (is_internal && !is_admin).then_some(ErrorCode::InvalidTopicException)
    }

    /// Whether this node leads the partition (A4 a); else it has its answer.
    fn leads(&mut self, item: &Item) -> bool {
        let topic = self.image.topic_by_id(item.key.topic).expect("it was found in this image");
        let owner = self.image.owner(topic, item.key.index);
        if owner == self.ctx.id || self.ctx.forwards() {
            return true;
        }
        // A plain batch meets rule 8 in its own order, 21 and 17 before 6.
        let code = item.refused.filter(|_| !item.transactional).unwrap_or(ErrorCode::NotLeaderOrFollower);
        let leader = (code == ErrorCode::NotLeaderOrFollower).then(|| self.leader(owner));
        let answer = &mut self.answers[item.at];
        (answer.code, answer.current_leader) = (code, leader);
        false
    }

    fn refuse_all(&mut self, items: &[Item]) {
        for item in items {
            let answer = &mut self.answers[item.at];
            answer.code = ErrorCode::InvalidProducerIdMapping;
            answer.error_message = Some("the request has transactional batches of more than one producer".into());
        }
    }

    /// K0.5 and K0.6: the partition, and whether its topic is internal.
    fn key_of(&self, partition: &ProducePartition) -> Result<(PartitionKey, bool), ErrorCode> {
        let topic = resolve(self.image, &partition.topic)?;
        if !topic.has(partition.index) {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        let records = partition.records.as_deref().unwrap_or_default();
        batch::check_framing(records, self.request.version).map_err(|refused| refused.code)?;
        Ok((PartitionKey { topic: topic.id, index: partition.index }, topic.is_internal()))
    }

    /// K0.9.
    fn leader(&mut self, owner: ShardId) -> CurrentLeader {
        let node = nodes::of_shard(self.ctx, self.request, owner);
        if !self.endpoints.iter().any(|endpoint| endpoint.id == node.id) {
            self.endpoints.push(nodes::endpoint(node));
        }
        CurrentLeader { leader: node.id, epoch: self.ctx.boot_epoch }
    }
}

/// A2.2: the first batch of any partition can refuse the request as a whole.
fn whole_request_code(partitions: &[ProducePartition], decoded: &ProduceRequest) -> Option<ErrorCode> {
    let peeks = || partitions.iter().map(|partition| batch::peek(partition.records.as_deref().unwrap_or_default()));
    if peeks().any(|peek: Peek| peek.corrupt) {
        return Some(ErrorCode::CorruptMessage);
    }
    let unauthorized = decoded.transactional_id.is_none() && peeks().any(|peek| peek.transactional);
    unauthorized.then_some(ErrorCode::TransactionalIdAuthorizationFailed)
}

/// A2.6.
fn has_several_producers(items: &[Item]) -> bool {
    let mut producers = items.iter().filter(|item| item.transactional).map(|item| item.producer);
    let first = producers.next();
    producers.any(|producer| Some(producer) != first)
}

/// K0.28: of a partition named twice the last one counts.
fn last_mentions(partitions: SmallVec<[ProducePartition; 1]>) -> SmallVec<[ProducePartition; 1]> {
    if partitions.len() < 2 {
        return partitions;
    }
    let mut last: HashMap<(TopicKey, i32), usize, FixedState> = HashMap::default();
    for (at, partition) in partitions.iter().enumerate() {
        last.insert((topic_key(&partition.topic), partition.index), at);
    }
    let is_last = |at: usize, partition: &ProducePartition| {
        last.get(&(topic_key(&partition.topic), partition.index)) == Some(&at)
    };
    partitions.into_iter().enumerate().filter(|(at, p)| is_last(*at, p)).map(|(_, partition)| partition).collect()
}

#[cfg(test)]
mod tests {
    use oncilla_shards::batch::BatchBuilder;
    use oncilla_shards::ids::{LeaderEpoch, NodeId, TopicId};
    use oncilla_shards::wire::TopicRef;

    use super::*;
    use crate::api::testing::ctx_of_shards;
    use crate::config::ListenerMode;

    #[test]
    fn k0_9_another_cores_partition_is_6_and_names_its_node_once() {
        let ctx = ctx_of_shards(3, ListenerMode::PerCore);
        let image = ctx.image();
        let request =
            Request { key: PRODUCE, version: 13, client_id: None, body: Bytes::new(), listener: 0, peer: None };
        let mut checked =
            Checked { ctx: &ctx, request: &request, image: &image, answers: SmallVec::new(), endpoints: Vec::new() };
        let records = Bytes::from(BatchBuilder::new().record(None, Some(b"v")).build());
        let of =
            |index: i32| ProducePartition { topic: TopicRef::Id(TopicId(1)), index, records: Some(records.clone()) };
        // Four partitions over three cores from core 1 on: 0 and 3 are core 1's, 1 is core 2's, 2 is ours.
        let partitions: SmallVec<[ProducePartition; 1]> = (0..4).map(of).collect();
        let decoded = ProduceRequest {
            version: 13,
            transactional_id: None,
            acks: -1,
            timeout_ms: 1000,
            partitions: SmallVec::new(),
        };
        let items = checked.items(&decoded, partitions);
        assert_eq!(items.iter().map(|item| item.key.index).collect::<Vec<_>>(), [2]);
        let told: Vec<_> = checked.answers.iter().map(|answer| (answer.code, answer.current_leader)).collect();
        let leader = |node: i32| Some(CurrentLeader { leader: NodeId(node), epoch: LeaderEpoch(7) });
        let refused = ErrorCode::NotLeaderOrFollower;
        let expected = [(refused, leader(1)), (refused, leader(2)), (ErrorCode::None, None), (refused, leader(1))];
        assert_eq!(told, expected);
        assert_eq!(checked.endpoints.iter().map(|endpoint| endpoint.id.0).collect::<Vec<_>>(), [1, 2]);
    }
}
