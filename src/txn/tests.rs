//! Transactions from request to disk, and the short forms of requests that tests of the APIs share.

use bytes::Bytes;
use kafka_protocol::messages::add_offsets_to_txn_request::AddOffsetsToTxnRequest;
use kafka_protocol::messages::add_offsets_to_txn_response::AddOffsetsToTxnResponse;
use kafka_protocol::messages::describe_transactions_request::DescribeTransactionsRequest;
use kafka_protocol::messages::describe_transactions_response::DescribeTransactionsResponse;
use kafka_protocol::messages::end_txn_request::EndTxnRequest;
use kafka_protocol::messages::end_txn_response::EndTxnResponse;
use kafka_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use kafka_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use kafka_protocol::messages::{GroupId, ProducerId as WireProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::batch::BatchBuilder;
use oncilla_shards::ids::{PartitionKey, TimestampMs};
use oncilla_shards::shard::Sent;
use oncilla_shards::txn::{Add, AddBy, End, Identity, Init, Outcome};

use super::*;
use crate::api::testing::{self, block_on};
use crate::config::ListenerMode;
use crate::partitions;

/// A string of a request.
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A transactional id of a request.
pub fn id_of(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

/// Whether another core has the slot of an id.
pub fn is_of_another_shard(ctx: &Ctx, id: &str) -> bool {
    owner_of(ctx, id) != ctx.id
}

/// A new instance of a transactional id: producer id and epoch.
#[track_caller]
pub fn init(ctx: &Rc<Ctx>, id: &str) -> (i64, i16) {
    let request =
        InitProducerIdRequest::default().with_transactional_id(Some(id_of(id))).with_transaction_timeout_ms(60_000);
    let answer: InitProducerIdResponse = testing::ask(ctx, 22, 4, &request);
    assert_eq!(answer.error_code, 0);
    (answer.producer_id.0, answer.producer_epoch)
}

/// Adds a group to a transaction; the code.
pub fn add_offsets(ctx: &Rc<Ctx>, id: &str, producer: (i64, i16), group: &str) -> i16 {
    let request = AddOffsetsToTxnRequest::default()
        .with_transactional_id(id_of(id))
        .with_producer_id(WireProducerId(producer.0))
        .with_producer_epoch(producer.1)
        .with_group_id(GroupId(text(group)));
    let answer: AddOffsetsToTxnResponse = testing::ask(ctx, 25, 4, &request);
    answer.error_code
}

/// Ends a transaction: the code, and from version 5 on who the producer is then.
pub fn end(ctx: &Rc<Ctx>, version: i16, id: &str, producer: (i64, i16), commits: bool) -> (i16, i64, i16) {
    let request = EndTxnRequest::default()
        .with_transactional_id(id_of(id))
        .with_producer_id(WireProducerId(producer.0))
        .with_producer_epoch(producer.1)
        .with_committed(commits);
    let answer: EndTxnResponse = testing::ask(ctx, 26, version, &request);
    (answer.error_code, answer.producer_id.0, answer.producer_epoch)
}

/// Name of an id's state once what is durable is all there is.
pub fn state(ctx: &Rc<Ctx>, id: &str) -> String {
    block_on(idle(ctx));
    let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![id_of(id)]);
    let answer: DescribeTransactionsResponse = testing::ask(ctx, 65, 0, &request);
    answer.transaction_states[0].transaction_state.to_string()
}

/// Waits until everything decided is durable.
async fn idle(ctx: &Rc<Ctx>) {
    step(ctx, |core, now, effects| core.tick(now, effects));
    let slots: Vec<_> = ctx.txn.core.borrow().slot_ids().collect();
    for slot in slots {
        ctx.txn.files.idle(slot).await;
    }
    step(ctx, |core, now, effects| core.tick(now, effects));
    let slots: Vec<_> = ctx.txn.core.borrow().slot_ids().collect();
    for slot in slots {
        ctx.txn.files.idle(slot).await;
    }
}

fn producer((id, epoch): (i64, i16)) -> Identity {
    Identity { producer_id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

fn add(of: (i64, i16), partitions: Vec<PartitionKey>, early: bool) -> Add {
    Add { producer: producer(of), partitions, groups: Vec::new(), by: AddBy::Broker { early } }
}

#[test]
fn b1_ids_of_other_cores_are_16_where_cores_are_nodes() {
    let ctx = testing::ctx_of_shards(2, ListenerMode::PerCore);
    let id = (0..).map(|n| format!("t{n}")).find(|id| is_of_another_shard(&ctx, id)).expect("one");
    let describe = |id: &str| block_on(ask(&ctx, id, Request::Describe, deadline()));
    assert_eq!(describe(&id), Err(ErrorCode::NotCoordinator));
    let own = (0..).map(|n| format!("t{n}")).find(|id| !is_of_another_shard(&ctx, id)).expect("one");
    assert_eq!(describe(&own), Err(ErrorCode::TransactionalIdNotFound));
}

#[test]
fn a_granted_add_is_answered_when_it_is_durable() {
    let (ctx, _dir) = testing::ctx();
    testing::create_topic(&ctx, "t", 1);
    let key = PartitionKey { topic: ctx.image().topic("t").expect("created").id, index: 0 };
    let of = init(&ctx, "x");
    block_on(async {
        let begun = begin_add(&ctx, "x", add(of, vec![key], true), deadline()).await;
        let Begun::Granted(early) = begun else { panic!("nothing is in its way") };
        assert_eq!(early.answer().await, Ok(Reply::Added));
        let late = begin_add(&ctx, "x", add(of, vec![key], false), deadline()).await;
        assert!(matches!(late, Begun::Answered(Ok(Reply::Added))));
        let refused = begin_add(&ctx, "x", add((of.0, of.1 + 1), vec![key], true), deadline()).await;
        assert!(matches!(refused, Begun::Answered(Err(ErrorCode::ProducerFenced))));
        let forgotten = begin_add(&ctx, "x", add(of, vec![key], true), deadline()).await;
        drop(forgotten);
    });
    assert!(ctx.txn.early.borrow().is_empty() && ctx.txn.waiting() == 0);
}

#[test]
fn f39_what_was_open_is_there_after_a_start_and_a_decided_transaction_is_completed_by_it() {
    let (ctx, _dir) = testing::ctx();
    testing::create_topic(&ctx, "t", 1);
    let key = PartitionKey { topic: ctx.image().topic("t").expect("created").id, index: 0 };
    let of = init(&ctx, "x");
    block_on(async {
        let added = ask(&ctx, "x", Request::Add(add(of, vec![key], false)), deadline()).await;
        assert_eq!(added, Ok(Reply::Added));
    });
    let ctx = testing::restarted(&ctx);
    partitions::open_all_blocking(&ctx).expect("opened");
    assert_eq!(state(&ctx, "x"), "Ongoing");
    assert_eq!(end(&ctx, 4, "x", of, true).0, 0);
    // Complete was not waited for: the next start finds the decision and sends the markers again.
    let ctx = testing::restarted(&ctx);
    partitions::open_all_blocking(&ctx).expect("opened");
    assert!(["PrepareCommit", "CompleteCommit"].contains(&&*state_at_once(&ctx, "x")));
    assert_eq!(init(&ctx, "x"), (of.0, of.1 + 1));
}

fn state_at_once(ctx: &Rc<Ctx>, id: &str) -> String {
    match block_on(ask(ctx, id, Request::Describe, deadline())) {
        Ok(Reply::Described(described)) => described.state.to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn f64_a_transaction_that_is_open_for_too_long_is_aborted_and_counted() {
    let (ctx, _dir) = testing::ctx();
    ctx.metrics.serving.set(1);
    let init = Init { timeout_ms: 60_000, given: Identity::NONE, two_phase: false, keep_prepared: false };
    let Ok(Reply::Init(of)) = block_on(ask(&ctx, "x", Request::Init(init), deadline())) else { panic!("begun") };
    let of = (of.producer_id.0, of.epoch.0);
    assert_eq!(add_offsets(&ctx, "x", of, "g"), 0);
    block_on(async { tick(&ctx) });
    assert_eq!((ctx.metrics.txn_ids.get(), ctx.metrics.txn_open.get()), (1, 1));
    let aborts = async {
        while ctx.metrics.txn_timed_out.get() == 0 {
            sleep(Duration::from_millis(5)).await;
            // A look as if it were two minutes later.
            let later = |core: &mut Transactions, now: Now, effects: &mut Effects| {
                let wall = TimestampMs(now.wall.0 + 120_000);
                core.tick(Now { mono_ms: now.mono_ms + 120_000, wall }, effects);
            };
            step(&ctx, later);
            tick(&ctx);
        }
    };
    block_on(aborts);
    assert_eq!(state(&ctx, "x"), "CompleteAbort");
    let end = Request::End(End { producer: producer(of), outcome: Outcome::Commit, bumps: false });
    assert_eq!(block_on(ask(&ctx, "x", end, deadline())), Err(ErrorCode::ProducerFenced));
    assert_eq!(ctx.metrics.txn_fenced_requests.get(), 1);
}

#[test]
fn adopt_is_an_abort_where_nobody_knows_the_producer() {
    let (ctx, _dir) = testing::ctx();
    testing::create_topic(&ctx, "t", 1);
    let key = PartitionKey { topic: ctx.image().topic("t").expect("created").id, index: 0 };
    let of = init(&ctx, "x");
    let found = |producer, seen| Adopt { producer, partitions: vec![key], groups: Vec::new(), seen };
    assert_eq!(block_on(adopt(&ctx, found(producer((of.0 + 1000, 3)), None))), Adopted::Abort(ProducerEpoch(3)));
    assert_eq!(block_on(adopt(&ctx, found(producer(of), None))), Adopted::LookAgain(0));
    assert_eq!(block_on(adopt(&ctx, found(producer(of), Some(0)))), Adopted::Yes);
    assert_eq!(state(&ctx, "x"), "Ongoing", "a write whose add was lost");
}

/// Writes a record of a transaction without asking anybody.
pub async fn write(ctx: &Rc<Ctx>, key: PartitionKey, (id, epoch): (i64, i16), sequence: i32) {
    let batch = BatchBuilder::new().producer(id, epoch, sequence).transactional();
    let batch = Bytes::from(batch.record_at(now_ms(), None, Some(b"v"), &[]).build());
    let mut effects = Vec::new();
    ctx.shard.borrow_mut().append(&key, Sent::unchecked(&batch, 12), now_ms(), None, &mut effects);
    ctx.carry_out(effects);
    ctx.files.writing_ended(&[key]).await;
}

#[test]
fn a_look_aborts_what_nobody_knows_and_nothing_else() {
    let (ctx, _dir) = testing::ctx();
    testing::create_topic(&ctx, "t", 2);
    let topic = ctx.image().topic("t").expect("created").id;
    let [mine, lost] = [0, 1].map(|index| PartitionKey { topic, index });
    let of = init(&ctx, "x");
    let open = || [mine, lost].map(|key| ctx.shard.borrow().partition(&key).unwrap().producers().open_transactions());
    block_on(async {
        let begun = begin_add(&ctx, "x", add(of, vec![mine], true), deadline()).await;
        assert!(matches!(begun, Begun::Granted(_)));
        write(&ctx, mine, of, 0).await;
        write(&ctx, lost, (77_777, 3), 0).await;
        reconcile::look(&ctx).await;
        assert_eq!(open(), [1, 1], "they may have begun just now");
        reconcile::look(&ctx).await;
        assert_eq!(open(), [1, 0]);
    });
    let stable = ctx.shard.borrow().partition(&lost).unwrap().last_stable_offset();
    assert_eq!(stable.0, 2, "readers go on behind the marker");
    assert_eq!(end(&ctx, 4, "x", of, true).0, 0);
}
