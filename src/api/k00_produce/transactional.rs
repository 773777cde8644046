//! Batches of transactions on their way into a partition (contract A4): the coordinator is asked first, once a request
//! for all partitions of this shard that need it.
//!
//! While a producer's batch asks for a partition, the batches that follow it there stand in line, so their sequences
//! stay in order. Produce 12 adds the partitions: their write begins when the add is decided, and every batch that is
//! written before the add is durable waits for it, because nobody may hear of a record whose transaction a crash would
//! take back. Older versions only ask whether the partitions are in the transaction.
//! Limits: requests in work are bounded by their connections. Failure: what is not let in has its code, without the log
//! start; the other batches of the request go on.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{Offset, PartitionKey, ProducerId};
use oncilla_shards::image::Image;
use oncilla_shards::partition::Refusal;
use oncilla_shards::producers::{Guard, Permit, Verify};
use oncilla_shards::txn::{Add, AddBy, Identity, Reply, Request as TxnRequest, Verify as Ask};
use oncilla_shards::wire::apis::TRANSACTIONS_SERVED;
use oncilla_shards::wire::produce::ProducePartitionAnswer;

use super::{Call, Item, append, refuse};
use crate::ctx::Ctx;
use crate::rt::{now, now_ms, spawn};
use crate::txn::{Begun, Early, ask_owner, begin_add};

/// First version that adds its partitions to the transaction.
const ADDS_FROM: i16 = 12;
/// First version that knows TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 11;

/// The transaction that a request names.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    id: Arc<str>,
    /// Until when a transaction that is completing is waited for.
    deadline: Instant,
}

impl Transaction {
    pub fn new(ctx: &Ctx, id: &str, timeout_ms: i32) -> Self {
        let timeout_ms = u64::try_from(timeout_ms).unwrap_or(0);
        let wait_ms = ctx.config.add_partitions_wait_ms_max.min(timeout_ms);
        Self { id: id.into(), deadline: now() + Duration::from_millis(wait_ms) }
    }
}

/// A producer at a partition.
type Place = (PartitionKey, ProducerId);

/// Batches that are written and wait for the add of their partition, each holding its request.
type Followers = Rc<RefCell<Vec<(Rc<Call>, usize)>>>;

/// What keeps the later batches of a producer from being written and answered at once.
#[derive(Default)]
struct Line {
    /// Whether the first batch asks; the others stand behind it.
    asks: bool,
    waiting: VecDeque<(Rc<Call>, Item)>,
    /// Who waits for the add, while it is not durable.
    adding: Option<Followers>,
}

/// The lines of one shard.
#[derive(Default)]
pub(super) struct Lines(RefCell<HashMap<Place, Line, FixedState>>);

impl Lines {
    /// Puts a batch behind one that asks; gives it back if none does.
    fn stand_behind(&self, place: Place, call: &Rc<Call>, item: Item) -> Option<Item> {
        match self.0.borrow_mut().get_mut(&place) {
            Some(line) if line.asks => {
                line.waiting.push_back((call.clone(), item));
                None
            }
            _ => Some(item),
        }
    }

    fn adding(&self, place: Place) -> Option<Followers> {
        self.0.borrow().get(&place).and_then(|line| line.adding.clone())
    }

    /// The next in line; there is no line any more if nobody stands in it.
    fn next(&self, place: Place) -> Option<(Rc<Call>, Item)> {
        let mut lines = self.0.borrow_mut();
        let line = lines.get_mut(&place).expect("it asks");
        let next = line.waiting.pop_front();
        if next.is_none() {
            line.asks = false;
            if line.adding.is_none() {
                lines.remove(&place);
            }
        }
        next
    }

    fn start_adding(&self, place: Place, followers: &Followers) {
        self.0.borrow_mut().get_mut(&place).expect("it asks").adding = Some(followers.clone());
    }

    fn added(&self, place: Place, followers: &Followers) {
        let mut lines = self.0.borrow_mut();
        let Some(line) = lines.get_mut(&place) else { return };
        if line.adding.as_ref().is_some_and(|adding| Rc::ptr_eq(adding, followers)) {
            line.adding = None;
            if !line.asks {
                lines.remove(&place);
            }
        }
    }
}

/// A batch for which the coordinator has to be asked.
struct Asking {
    item: Item,
    producer: Identity,
    guard: Guard,
}

impl Asking {
    fn place(&self) -> Place {
        (self.item.key, self.producer.producer_id)
    }
}

/// Takes in the transactional batches of a request for this shard.
pub(super) fn begin(ctx: &Rc<Ctx>, call: &Rc<Call>, items: Vec<(Item, Identity)>) {
    let mut asking = Vec::new();
    for (item, producer) in items {
        let place = (item.key, producer.producer_id);
        let Some(item) = ctx.produces.lines.stand_behind(place, call, item) else { continue };
        if let Some(asked) = decide(ctx, call, item, producer) {
            ctx.produces.lines.0.borrow_mut().entry(place).or_default().asks = true;
            asking.push(asked);
        }
    }
    if !asking.is_empty() {
        let (ctx, call) = (ctx.clone(), call.clone());
        spawn(async move { ask_and_append(&ctx, &call, asking).await });
    }
}

/// A4 b to d: appends or refuses the batch, or says that the coordinator has to be asked.
fn decide(ctx: &Rc<Ctx>, call: &Rc<Call>, item: Item, producer: Identity) -> Option<Asking> {
    let adds = call.version >= ADDS_FROM;
    if !adds && !verifies(ctx, &ctx.image()) {
        append(ctx, call, item, Permit::Unchecked);
        return None;
    }
    let verify = ctx.shard.borrow_mut().verify(&item.key, &item.records, adds, now_ms());
    match verify {
        Verify::Ask(guard) => return Some(Asking { item, producer, guard }),
        Verify::Refuse(code) => keep_out(ctx, call, item.at, code, None),
        Verify::Open => {
            if let Some(adding) = ctx.produces.lines.adding((item.key, producer.producer_id)) {
                call.hold();
                adding.borrow_mut().push((call.clone(), item.at));
            }
            append(ctx, call, item, Permit::Open);
        }
    }
    None
}

/// `transaction.partition.verification.enable`. A broker that serves no transactions has none that could be open.
fn verifies(ctx: &Ctx, image: &Image) -> bool {
    let value = image.broker.value("transaction.partition.verification.enable", Some(ctx.node()));
    !TRANSACTIONS_SERVED || value.as_deref() != Some("false")
}

async fn ask_and_append(ctx: &Rc<Ctx>, call: &Rc<Call>, asking: Vec<Asking>) {
    let (codes, early) = ask(ctx, call, &asking).await;
    let places: Vec<Place> = asking.iter().map(Asking::place).collect();
    // All batches of a request are of one producer (A2.6).
    let producer = asking[0].producer;
    let followers = Followers::default();
    for (Asking { item, guard, .. }, code) in asking.into_iter().zip(codes) {
        if code != ErrorCode::None {
            keep_out(ctx, call, item.at, translate(code, call.version), Some(code));
            continue;
        }
        if early.is_some() {
            ctx.produces.lines.start_adding((item.key, producer.producer_id), &followers);
            call.hold();
            followers.borrow_mut().push((call.clone(), item.at));
        }
        append(ctx, call, item, Permit::Asked(guard));
    }
    for place in &places {
        go_on(ctx, *place);
    }
    if let Some(early) = early {
        let code = early.answer().await.err().unwrap_or(ErrorCode::None);
        for place in &places {
            if code != ErrorCode::None {
                ctx.shard.borrow_mut().doubt(&place.0, producer);
            }
            ctx.produces.lines.added(*place, &followers);
        }
        for (call, at) in followers.take() {
            added(ctx, &call, at, code);
        }
    }
}

/// Takes in who stands in line, up to the next one that has to ask.
fn go_on(ctx: &Rc<Ctx>, place: Place) {
    while let Some((call, item)) = ctx.produces.lines.next(place) {
        let producer = item.producer.expect("only batches of producers stand in line");
        if let Some(asked) = decide(ctx, &call, item, producer) {
            let ctx = ctx.clone();
            spawn(async move { ask_and_append(&ctx, &call, vec![asked]).await });
            return;
        }
    }
}

/// A code for each batch. With an add that is decided and not durable all are let in.
async fn ask(ctx: &Rc<Ctx>, call: &Call, asking: &[Asking]) -> (Vec<ErrorCode>, Option<Early>) {
    let Transaction { id, deadline } = call.transaction.clone().expect("a transactional batch has an id (A2.2)");
    // All batches of a request are of one producer (A2.6).
    let producer = asking[0].producer;
    let partitions: Vec<PartitionKey> = asking.iter().map(|asked| asked.item.key).collect();
    let all = |code| vec![code; asking.len()];
    let answer = if call.version >= ADDS_FROM {
        let add = Add { producer, partitions, groups: Vec::new(), by: AddBy::Broker { early: true } };
        match begin_add(ctx, &id, add, deadline).await {
            Begun::Granted(early) => return (all(ErrorCode::None), Some(early)),
            Begun::Answered(answer) => answer,
        }
    } else {
        let verify = TxnRequest::Verify(Ask { producer, partitions, groups: Vec::new() });
        ask_owner(ctx, &id, verify, deadline).await
    };
    let codes = match answer {
        Ok(Reply::Added) => all(ErrorCode::None),
        Ok(Reply::Verified(codes)) => codes,
        Ok(other) => unreachable!("the coordinator answered another request: {other:?}"),
        Err(code) => all(code),
    };
    (codes, None)
}

/// What the coordinator's code becomes (A4's table).
fn translate(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if version < ABORTABLE_FROM => ErrorCode::InvalidTxnState,
        ErrorCode::ConcurrentTransactions if version < ADDS_FROM => ErrorCode::NotEnoughReplicas,
        ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable => {
            ErrorCode::NotEnoughReplicas
        }
        other => other,
    }
}

/// What the client reads beside a code that says something else than the coordinator did.
fn message(code: ErrorCode, cause: Option<ErrorCode>) -> Option<String> {
    let is_told = [ErrorCode::NotEnoughReplicas, ErrorCode::InvalidTxnState].contains(&code);
    let cause = cause.filter(|_| is_told)?;
    Some(format!("whether the transaction may write to this partition could not be verified: {cause:?}"))
}

/// Answers a batch that never reached its log.
fn keep_out(ctx: &Ctx, call: &Call, at: usize, code: ErrorCode, cause: Option<ErrorCode>) {
    let refusal = Refusal { message: message(code, cause), ..Refusal::code(code, false) };
    refuse(ctx, &mut call.answers.borrow_mut()[at], refusal, Offset(-1));
    call.settled(ctx);
}

/// The add behind a batch is durable, or never will be.
fn added(ctx: &Ctx, call: &Call, at: usize, code: ErrorCode) {
    if code != ErrorCode::None {
        let mut answers = call.answers.borrow_mut();
        let answer = &mut answers[at];
        if answer.code == ErrorCode::None {
            let told = translate(code, call.version);
            *answer = ProducePartitionAnswer::refused(answer.topic.clone(), answer.index, told);
            answer.error_message = message(told, Some(code)).map(Into::into);
        }
    }
    call.settled(ctx);
}

#[cfg(test)]
#[path = "transactional_tests.rs"]
mod tests;
