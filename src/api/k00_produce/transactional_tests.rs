//! Contract A4 and A2.6 from the bytes of a Produce request to its answer, with the coordinator of the same broker.

use std::fs;

use bytes::Bytes;
use futures_lite::future;
use kafka_protocol::messages::TransactionalId;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use kafka_protocol::messages::incremental_alter_configs_response::IncrementalAlterConfigsResponse;
use kafka_protocol::messages::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use oncilla_shards::batch::BatchBuilder;
use oncilla_shards::ids::{ProducerEpoch, SlotId};
use oncilla_shards::limits::SLOTS;
use oncilla_shards::txn::Adopted;

use super::*;
use crate::api::codec::text;
use crate::api::testing::{self, block_on};
use crate::disk::layout::JournalId;
use crate::net::Answers;
use crate::partitions;
use crate::txn::tests::{end, init, state};
use crate::txn::{adopt, ask as ask_coordinator, deadline, reconcile};

type Producer = (i64, i16);

/// A shard with the topic `t` of three partitions.
fn shard() -> (Rc<Ctx>, tempfile::TempDir) {
    let (ctx, dir) = testing::ctx();
    fs::create_dir_all(ctx.files.data.topics()).expect("creatable");
    testing::create_topic(&ctx, "t", 3);
    (ctx, dir)
}

fn key(ctx: &Ctx, index: i32) -> PartitionKey {
    PartitionKey { topic: ctx.image().topic("t").expect("it was made").id, index }
}

fn batch(of: Producer, sequence: i32) -> Bytes {
    let batch = BatchBuilder::new().producer(of.0, of.1, sequence).transactional();
    Bytes::from(batch.record(None, Some(b"v")).build())
}

/// Begins a request with these batches for partitions of `t`.
fn begin_request(ctx: &Rc<Ctx>, version: i16, id: &str, batches: &[(i32, Bytes)]) -> Rc<Answers> {
    begin_with_acks(ctx, version, id, batches, -1)
}

fn begin_with_acks(ctx: &Rc<Ctx>, version: i16, id: &str, batches: &[(i32, Bytes)], acks: i16) -> Rc<Answers> {
    let data = |(index, records): &(i32, Bytes)| {
        PartitionProduceData::default().with_index(*index).with_records(Some(records.clone()))
    };
    let partitions = batches.iter().map(data).collect();
    let topic = TopicProduceData::default().with_name(text("t").into()).with_partition_data(partitions);
    let asked = ProduceRequest::default()
        .with_transactional_id(Some(TransactionalId(text(id))))
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic]);
    testing::producing(ctx, version, &asked)
}

/// What a partition was answered.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    code: i16,
    base: i64,
    log_start: i64,
    has_message: bool,
}

async fn told(version: i16, answers: &Answers) -> Vec<Told> {
    let answer = testing::produced(version, answers).await;
    let tell = |one: &kafka_protocol::messages::produce_response::PartitionProduceResponse| Told {
        code: one.error_code,
        base: one.base_offset,
        log_start: one.log_start_offset,
        has_message: one.error_message.is_some(),
    };
    answer.responses.iter().flat_map(|topic| topic.partition_responses.iter().map(tell)).collect()
}

fn produce(ctx: &Rc<Ctx>, version: i16, id: &str, batches: &[(i32, Bytes)]) -> Vec<Told> {
    block_on(async { told(version, &begin_request(ctx, version, id, batches)).await })
}

fn code(ctx: &Rc<Ctx>, version: i16, id: &str, batches: &[(i32, Bytes)]) -> i16 {
    let told = produce(ctx, version, id, batches);
    assert_eq!(told.len(), 1);
    assert!(told[0].code == 0 || told[0].base == -1);
    told[0].code
}

/// The same with the heartbeat that ends the wait of a request.
fn code_while_time_passes(ctx: &Rc<Ctx>, version: i16, id: &str, batches: &[(i32, Bytes)]) -> i16 {
    ctx.metrics.serving.set(1);
    let heartbeat = async {
        loop {
            crate::rt::sleep(Duration::from_millis(1)).await;
            crate::txn::tick(ctx);
        }
    };
    block_on(future::or(async { told(version, &begin_request(ctx, version, id, batches)).await[0].code }, heartbeat))
}

fn identity(of: Producer) -> Identity {
    Identity { producer_id: ProducerId(of.0), epoch: ProducerEpoch(of.1) }
}

/// Adds a partition as old clients do.
fn add(ctx: &Rc<Ctx>, id: &str, of: Producer, index: i32) {
    let partitions = vec![key(ctx, index)];
    let add = Add { producer: identity(of), partitions, groups: Vec::new(), by: AddBy::Client };
    let answer = block_on(ask_coordinator(ctx, id, TxnRequest::Add(add), deadline()));
    assert_eq!(answer, Ok(Reply::Added));
}

/// Waits until the markers of an ended transaction are written.
fn complete(ctx: &Rc<Ctx>, id: &str, expected: &str) {
    let began = now();
    while state(ctx, id) != expected {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", state(ctx, id));
        block_on(crate::rt::sleep(Duration::from_millis(2)));
    }
}

fn is_open(ctx: &Ctx, index: i32) -> bool {
    let shard = ctx.shard.borrow();
    let partition = shard.partition(&key(ctx, index)).expect("open");
    partition.last_stable_offset() < partition.high_watermark()
}

#[test]
fn a4_produce_12_adds_its_partitions_and_they_are_ended_by_markers() {
    let (ctx, _dir) = shard();
    let of = init(&ctx, "x");
    let told = produce(&ctx, 12, "x", &[(0, batch(of, 0)), (1, batch(of, 0))]);
    assert!(told.iter().all(|one| (one.code, one.base, one.log_start) == (0, 0, 0)), "{told:?}");
    assert_eq!(state(&ctx, "x"), "Ongoing");
    assert_eq!(code(&ctx, 12, "x", &[(0, batch(of, 1))]), 0, "it is open here");
    assert!(is_open(&ctx, 0) && is_open(&ctx, 1) && !is_open(&ctx, 2));
    let (ended, _, epoch) = end(&ctx, 5, "x", of, true);
    assert_eq!((ended, epoch), (0, of.1 + 1));
    complete(&ctx, "x", "CompleteCommit");
    assert!(!is_open(&ctx, 0) && !is_open(&ctx, 1));
    assert_eq!(code(&ctx, 12, "x", &[(0, batch(of, 2))]), 47, "f35: the epoch is over");
    assert_eq!(code(&ctx, 12, "x", &[(0, batch((of.0, epoch), 0))]), 0);
    assert!(ctx.produces.lines.0.borrow().is_empty());
}

#[test]
fn a4_batches_behind_one_that_asks_keep_their_order() {
    let (ctx, _dir) = shard();
    let of = init(&ctx, "x");
    block_on(async {
        let begun: Vec<_> = (0..5).map(|n| begin_request(&ctx, 12, "x", &[(0, batch(of, n))])).collect();
        for (base, answers) in (0..).zip(&begun) {
            let told = told(12, answers).await;
            assert_eq!((told[0].code, told[0].base), (0, base), "{told:?}");
        }
    });
    assert!(ctx.produces.lines.0.borrow().is_empty());
}

#[test]
fn f30_a_partition_that_is_not_added_is_120_or_48_and_one_that_is_takes_the_batch() {
    let (ctx, _dir) = shard();
    let of = init(&ctx, "x");
    add(&ctx, "x", of, 1);
    for (version, expected) in [(11, 120), (10, 48), (3, 48)] {
        let told = produce(&ctx, version, "x", &[(0, batch(of, 0)), (1, batch(of, 0))]);
        assert_eq!((told[0].code, told[0].log_start, told[1].code), (expected, -1, 0), "{version}");
        assert_eq!(told[0].has_message, version == 10, "{version}");
    }
    assert!(!is_open(&ctx, 0) && is_open(&ctx, 1));
}

#[test]
fn f31_codes_of_the_coordinator_become_those_of_produce() {
    let (ctx, _dir) = shard();
    let of = init(&ctx, "x");
    for version in [10, 11, 12] {
        assert_eq!(code(&ctx, version, "no", &[(0, batch(of, 0))]), 49, "{version}");
        assert_eq!(code(&ctx, version, "x", &[(0, batch((of.0 + 100, 0), 0))]), 49, "{version}");
        assert_eq!(code(&ctx, version, "x", &[(0, batch((of.0, of.1 + 1), 0))]), 47, "{version}");
    }
    let table = [
        (ErrorCode::ConcurrentTransactions, [51, 19, 19]),
        (ErrorCode::TransactionAbortable, [120, 120, 48]),
        (ErrorCode::NotCoordinator, [19, 19, 19]),
        (ErrorCode::CoordinatorLoadInProgress, [19, 19, 19]),
        (ErrorCode::CoordinatorNotAvailable, [19, 19, 19]),
        (ErrorCode::UnknownTopicOrPartition, [3, 3, 3]),
    ];
    for (coordinator, expected) in table {
        assert_eq!([12, 11, 10].map(|version| translate(coordinator, version).wire()), expected, "{coordinator:?}");
    }
}

#[test]
fn f36_batches_of_two_producers_are_49_for_every_partition() {
    let (ctx, _dir) = shard();
    let of = init(&ctx, "x");
    for other in [(of.0 + 1, of.1), (of.0, of.1 + 1)] {
        let told = produce(&ctx, 12, "x", &[(0, batch(of, 0)), (1, batch(other, 0))]);
        assert!(told.iter().all(|one| one.code == 49 && one.has_message), "{told:?}");
    }
    assert_eq!(state(&ctx, "x"), "Empty");
}

#[test]
fn a2_8_acks_that_do_not_exist_are_told_after_the_transaction() {
    let (ctx, _dir) = shard();
    let old = init(&ctx, "x");
    let of = init(&ctx, "x");
    let ask = |version, batch| {
        let told = block_on(async { told(version, &begin_with_acks(&ctx, version, "x", &[(0, batch)], 2)).await });
        (told[0].code, told[0].log_start, state(&ctx, "x"))
    };
    let plain = Bytes::from(BatchBuilder::new().record(None, Some(b"v")).build());
    assert_eq!(ask(12, plain), (21, -1, "Empty".into()));
    assert_eq!(ask(12, batch(old, 0)), (47, -1, "Empty".into()));
    assert_eq!(ask(11, batch(of, 0)), (120, -1, "Empty".into()));
    assert_eq!(ask(12, batch(of, 0)), (21, -1, "Ongoing".into()), "it was added before");
    assert!(!is_open(&ctx, 0));
}

#[test]
fn a_fenced_producer_writes_nowhere_not_even_plain_batches() {
    let (ctx, _dir) = shard();
    let of = init(&ctx, "x");
    assert_eq!(code(&ctx, 12, "x", &[(0, batch(of, 0))]), 0);
    let plain = Bytes::from(BatchBuilder::new().producer(of.0, of.1, 0).record(None, Some(b"v")).build());
    assert_eq!(code(&ctx, 9, "x", &[(1, plain.clone())]), 0);
    assert_eq!(init(&ctx, "x").0, of.0);
    complete(&ctx, "x", "Empty");
    for batch in [batch(of, 1), plain.clone()] {
        assert_eq!(code(&ctx, 12, "x", &[(2, batch)]), 47);
    }
    assert_eq!(code(&ctx, 9, "x", &[(1, plain)]), 47, "the fence comes before the duplicate");
}

/// Lets the first write to a partition fail, which takes it offline.
fn break_disk(ctx: &Ctx, index: i32) {
    let id = ctx.image().topic("t").expect("it was made").id;
    let directory = ctx.files.data.partition("t", id, index);
    fs::create_dir_all(directory.parent().expect("its topic's")).expect("creatable");
    if directory.exists() {
        fs::remove_dir_all(&directory).expect("removable");
    }
    fs::write(&directory, b"in its way").expect("writable");
}

#[test]
fn f32_produce_12_waits_a_while_for_the_transaction_before_and_then_says_51() {
    let (ctx, _dir) = shard();
    let of = init(&ctx, "x");
    assert_eq!(code(&ctx, 12, "x", &[(0, batch(of, 0))]), 0);
    let (_, id, epoch) = end(&ctx, 5, "x", of, true);
    let of = (id, epoch);
    assert_eq!(code(&ctx, 12, "x", &[(0, batch(of, 0))]), 0, "its markers come first");
    // A partition without its disk takes no marker: the transaction stays where it is.
    break_disk(&ctx, 2);
    assert_eq!(code(&ctx, 12, "x", &[(2, batch(of, 0))]), 56);
    let (ended, id, epoch) = end(&ctx, 5, "x", of, true);
    assert_eq!(ended, 0);
    let began = now();
    assert_eq!(code_while_time_passes(&ctx, 12, "x", &[(0, batch((id, epoch), 0))]), 51);
    // Deadlines are whole milliseconds of the shard's clock.
    assert!(began.elapsed() + Duration::from_millis(1) >= Duration::from_millis(ctx.config.add_partitions_wait_ms_max));
    for version in [3, 11] {
        assert_eq!(code(&ctx, version, "x", &[(1, batch((id, epoch), 0))]), 19, "{version}");
    }
    assert_eq!(state(&ctx, "x"), "PrepareCommit");
    assert!(ctx.produces.lines.0.borrow().is_empty());
}

#[test]
fn f37_verification_that_is_off_asks_nobody_and_produce_12_adds_all_the_same() {
    let (ctx, _dir) = shard();
    let set = |value: &'static str| {
        let config = AlterableConfig::default().with_name(text("transaction.partition.verification.enable"));
        let configs = vec![config.with_value(Some(text(value)))];
        let resource = AlterConfigsResource::default().with_resource_type(4).with_resource_name(text("0"));
        let asked = IncrementalAlterConfigsRequest::default().with_resources(vec![resource.with_configs(configs)]);
        let answer: IncrementalAlterConfigsResponse = testing::ask(&ctx, 44, 1, &asked);
        assert_eq!(answer.responses[0].error_code, 0);
    };
    let of = init(&ctx, "x");
    set("false");
    assert_eq!(code(&ctx, 11, "x", &[(0, batch(of, 7))]), 0);
    assert_eq!((state(&ctx, "x"), is_open(&ctx, 0)), ("Empty".into(), true));
    assert_eq!(code(&ctx, 12, "x", &[(1, batch(of, 0))]), 0);
    assert_eq!(state(&ctx, "x"), "Ongoing");
    set("true");
    assert_eq!(code(&ctx, 11, "x", &[(2, batch(of, 0))]), 120);
}

#[test]
fn a_write_whose_add_fails_is_not_acknowledged_and_the_next_start_adopts_it() {
    let (ctx, _dir) = shard();
    let of = init(&ctx, "x");
    let ctx = testing::restarted(&ctx);
    partitions::open_all_blocking(&ctx).expect("opened");
    // The first entry after a start needs a new journal.
    let slots = ctx.files.data.slots("txn_state");
    let journals: Vec<_> =
        (0..SLOTS).map(|slot| JournalId { slot: SlotId(slot), epoch: ctx.boot_epoch, roll: 0 }.file()).collect();
    journals.iter().for_each(|name| fs::create_dir_all(slots.join(name)).expect("creatable"));
    let told = produce(&ctx, 12, "x", &[(0, batch(of, 0))]);
    assert_eq!((told[0].code, told[0].base, told[0].has_message), (19, -1, true));
    let told = produce(&ctx, 12, "x", &[(0, batch(of, 1)), (1, batch(of, 0))]);
    assert!(told.iter().all(|one| one.code == 19), "nobody could say that it belongs to a transaction: {told:?}");
    assert_eq!(code(&ctx, 12, "x", &[(0, batch(of, 0))]), 19, "nor that what was written does");
    assert!(ctx.produces.lines.0.borrow().is_empty());
    journals.iter().for_each(|name| fs::remove_dir(slots.join(name)).expect("it is empty"));
    let next = testing::restarted(&ctx);
    partitions::open_all_blocking(&next).expect("opened");
    block_on(reconcile(&next));
    assert_eq!(state(&next, "x"), "Ongoing");
    assert_eq!(code(&next, 12, "x", &[(0, batch(of, 0))]), 0, "the retry is a duplicate");
    assert_eq!(end(&next, 5, "x", of, true).0, 0);
    complete(&next, "x", "CompleteCommit");
    assert!(!is_open(&next, 0));
}

#[test]
fn a8_a_start_adopts_what_is_the_coordinators_and_aborts_what_is_nobodys() {
    let (ctx, _dir) = shard();
    let (of, lost) = (init(&ctx, "x"), (77_777, 3));
    assert_eq!(code(&ctx, 12, "x", &[(0, batch(of, 0))]), 0);
    // Written without a coordinator, as if its log had been lost.
    let end_of_log = block_on(async {
        let sent = oncilla_shards::shard::Sent::unchecked;
        let mut effects = Vec::new();
        let batch = batch(lost, 0);
        ctx.shard.borrow_mut().append(&key(&ctx, 1), sent(&batch, 12), now_ms(), None, &mut effects);
        ctx.carry_out(effects);
        ctx.files.writing_ended(&[key(&ctx, 1)]).await;
        ctx.shard.borrow().partition(&key(&ctx, 1)).expect("open").high_watermark()
    });
    assert_eq!(end_of_log, Offset(1));
    let next = testing::restarted(&ctx);
    partitions::open_all_blocking(&next).expect("opened");
    assert_eq!(next.shard.borrow().doubted().len(), 2);
    let found = next.shard.borrow().doubted();
    assert_eq!(block_on(adopt(&next, found[0].clone())), Adopted::Abort(ProducerEpoch(3)));
    block_on(reconcile(&next));
    assert_eq!(next.shard.borrow().doubted(), []);
    assert!(is_open(&next, 0) && !is_open(&next, 1));
    assert_eq!(code(&next, 12, "x", &[(0, batch(of, 1))]), 0);
    assert_eq!(end(&next, 4, "x", of, false).0, 0);
    complete(&next, "x", "CompleteAbort");
    assert!(!is_open(&next, 0));
}
