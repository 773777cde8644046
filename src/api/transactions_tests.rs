//! What clients and administrators see of transactions on partitions, through the APIs: Fetch and ListOffsets at both
//! isolation levels, DescribeProducers, WriteTxnMarkers.

use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_lite::future;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, FetchRequest, FetchResponse, ListOffsetsRequest,
    ListOffsetsResponse, WriteTxnMarkersResponse,
};
use kafka_protocol::protocol::Decodable;
use oncilla_shards::batch::{BatchBuilder, headers};
use oncilla_shards::ids::{PartitionKey, TimestampMs};
use oncilla_shards::shard::{Appended, Effects, Sent};

use super::codec::text;
use super::testing::{self, block_on, create_topic, ctx};
use super::*;
use crate::rt::{now_ms, sleep};

const P: i64 = 7;

/// A shard with the topic `t` of two partitions.
fn with_topic<F: Future<Output = ()>>(test: impl FnOnce(Rc<Ctx>) -> F) {
    let (ctx, _dir) = ctx();
    fs::create_dir_all(ctx.files.data.topics()).expect("creatable");
    create_topic(&ctx, "t", 2);
    block_on(test(ctx.clone()));
}

fn key(ctx: &Ctx) -> PartitionKey {
    PartitionKey { topic: ctx.image().topic("t").expect("it was made").id, index: 0 }
}

/// Writes a batch of a transaction to the first partition, durably.
async fn write(ctx: &Rc<Ctx>, epoch: i16, sequence: i32, at: i64) {
    let batch = BatchBuilder::new().producer(P, epoch, sequence).transactional();
    let batch = Bytes::from(batch.record_at(TimestampMs(now_ms().0 + at), None, Some(b"v"), &[]).build());
    let mut effects = Effects::new();
    let key = key(ctx);
    let appended = ctx.shard.borrow_mut().append(&key, Sent::unchecked(&batch, 13), now_ms(), None, &mut effects);
    assert!(matches!(appended, Appended::Waiting(_)), "{appended:?}");
    ctx.carry_out(effects);
    ctx.files.writing_ended(&[key]).await;
}

async fn answered<R: Decodable>(ctx: &Rc<Ctx>, key: i16, version: i16, body: Bytes, decoded_as: i16) -> R {
    let request = Request { key, version, client_id: None, body, listener: 0, peer: None };
    match dispatch(ctx, &request).await {
        Answer::Body(body) => R::decode(&mut body.to_bytes(), decoded_as).expect("an answer of this version"),
        other => panic!("no answer to key {key}: {other:?}"),
    }
}

/// One marker of a WriteTxnMarkers request.
#[derive(Clone, Copy)]
struct Sending {
    version: i16,
    producer: i64,
    epoch: i16,
    coordinator_epoch: i32,
    transaction_version: i8,
    commits: bool,
}

const ABORT: Sending =
    Sending { version: 1, producer: P, epoch: 5, coordinator_epoch: 2, transaction_version: 0, commits: false };

/// Bytes of a request with these markers for partitions of one topic.
fn body(markers: &[Sending], topic: &str, indexes: &[i32]) -> Bytes {
    let mut out = vec![markers.len() as u8 + 1];
    for marker in markers {
        out.extend(marker.producer.to_be_bytes());
        out.extend(marker.epoch.to_be_bytes());
        out.extend([u8::from(marker.commits), 2, topic.len() as u8 + 1]);
        out.extend(topic.as_bytes());
        out.push(indexes.len() as u8 + 1);
        out.extend(indexes.iter().flat_map(|index| index.to_be_bytes()));
        out.push(0);
        out.extend(marker.coordinator_epoch.to_be_bytes());
        if marker.version >= 2 {
            out.push(marker.transaction_version as u8);
        }
        out.push(0);
    }
    out.push(0);
    out.into()
}

/// Index and code of each partition of the answer.
async fn send(ctx: &Rc<Ctx>, markers: &[Sending], topic: &str, indexes: &[i32]) -> Vec<(i32, i16)> {
    let version = markers.first().map_or(1, |marker| marker.version);
    let answer: WriteTxnMarkersResponse = answered(ctx, 27, version, body(markers, topic, indexes), 1).await;
    let topics = answer.markers.into_iter().flat_map(|marker| marker.topics);
    let partitions = topics.flat_map(|topic| topic.partitions);
    partitions.map(|partition| (partition.partition_index, partition.error_code)).collect()
}

async fn code(ctx: &Rc<Ctx>, marker: Sending) -> i16 {
    let codes = send(ctx, &[marker], "t", &[0]).await;
    assert_eq!(codes.len(), 1, "{codes:?}");
    codes[0].1
}

async fn fetch(ctx: &Rc<Ctx>, level: i8, from: i64, wait_ms: i32, session: (i32, i32)) -> FetchResponse {
    let partition = FetchPartition::default().with_fetch_offset(from).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(text("t").into()).with_partitions(vec![partition]);
    let asked = FetchRequest::default()
        .with_isolation_level(level)
        .with_max_bytes(1 << 20)
        .with_min_bytes(1)
        .with_max_wait_ms(wait_ms)
        .with_session_id(session.0)
        .with_session_epoch(session.1)
        .with_topics(vec![topic]);
    testing::asked(ctx, 1, 12, &asked).await
}

async fn fetched(ctx: &Rc<Ctx>, level: i8, from: i64) -> PartitionData {
    fetch(ctx, level, from, 0, (0, -1)).await.responses.remove(0).partitions.remove(0)
}

/// Base offsets of the batches, and producer and first offset of what was aborted.
fn told(data: &PartitionData) -> (Vec<i64>, Option<Vec<(i64, i64)>>) {
    let records = data.records.clone().expect("case 78: never null");
    let bases = headers(&records).map(|header| header.base_offset.0).collect();
    let aborted = data.aborted_transactions.as_ref();
    let aborted = aborted.map(|all| all.iter().map(|a| (a.producer_id.0, a.first_offset)).collect());
    (bases, aborted)
}

async fn listed(ctx: &Rc<Ctx>, level: i8, timestamp: i64) -> (i16, i64) {
    let partition = ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(-1);
    let topic = ListOffsetsTopic::default().with_name(text("t").into()).with_partitions(vec![partition]);
    let asked = ListOffsetsRequest::default().with_replica_id((-1).into()).with_isolation_level(level);
    let answer: ListOffsetsResponse = testing::asked(ctx, 2, 7, &asked.with_topics(vec![topic])).await;
    let told = &answer.topics[0].partitions[0];
    (told.error_code, told.offset)
}

async fn producers(ctx: &Rc<Ctx>) -> Vec<ProducerState> {
    let topic = TopicRequest::default().with_name(text("t").into()).with_partition_indexes(vec![0]);
    let asked = DescribeProducersRequest::default().with_topics(vec![topic]);
    let mut answer: DescribeProducersResponse = testing::asked(ctx, 61, 0, &asked).await;
    answer.topics.remove(0).partitions.remove(0).active_producers
}

#[test]
fn b7_f19_an_administrators_marker_needs_an_epoch_that_is_not_below_the_partitions() {
    with_topic(|ctx| async move {
        write(&ctx, 5, 0, 0).await;
        let of_path_b = |epoch, version| Sending { version: 2, epoch, transaction_version: version, ..ABORT };
        for version in [1, 2] {
            assert_eq!(code(&ctx, Sending { version, epoch: 4, ..ABORT }).await, 47);
        }
        assert_eq!(code(&ctx, of_path_b(5, 2)).await, 47, "f20: an equal epoch with something open");
        assert_eq!(code(&ctx, Sending { epoch: 4, coordinator_epoch: -9, ..ABORT }).await, 47, "47 before 52");
        assert_eq!(code(&ctx, ABORT).await, 0);
        assert_eq!(code(&ctx, ABORT).await, 0, "also with nothing open");
        assert_eq!(code(&ctx, of_path_b(5, 2)).await, 0, "f20: this marker again");
        for (epoch, version) in [(5, 0), (6, 2), (6, 3)] {
            let zombie = Sending { coordinator_epoch: 1, ..of_path_b(epoch, version) };
            assert_eq!(code(&ctx, zombie).await, 52, "f21");
        }
        let end = ctx.partition_view(&key(&ctx)).expect("open").end.0;
        for bad in [
            Sending { producer: -1, ..ABORT },
            Sending { epoch: -1, ..ABORT },
            Sending { version: 2, transaction_version: -1, ..ABORT },
        ] {
            assert_eq!(code(&ctx, bad).await, 42);
        }
        assert_eq!(
            (end, ctx.partition_view(&key(&ctx)).expect("open").end.0),
            (4, 4),
            "what is refused writes nothing"
        );
    });
}

#[test]
fn b7_each_partition_answers_once_and_those_that_are_not_there_with_3() {
    with_topic(|ctx| async move {
        assert_eq!(send(&ctx, &[ABORT], "t", &[0, 9, 1, 0, -1]).await, [(-1, 3), (0, 0), (1, 0), (9, 3)]);
        assert_eq!(send(&ctx, &[ABORT], "no such topic", &[0]).await, [(0, 3)]);
        assert_eq!(send(&ctx, &[ABORT], "__consumer_offsets", &[0]).await, [(0, 3)], "nobody has it here");
        assert_eq!(send(&ctx, &[], "t", &[]).await, [], "no markers, an empty answer");
        assert_eq!(send(&ctx, &[ABORT, ABORT], "t", &[0]).await, [(0, 0)], "entries of one producer are merged");
        let other = Sending { producer: 1, ..ABORT };
        assert_eq!(send(&ctx, &[ABORT, other], "t", &[0]).await, [(0, 0), (0, 0)]);
    });
}

#[test]
fn f79_a_hanging_transaction_is_found_and_aborted_by_an_administrator() {
    with_topic(|ctx| async move {
        write(&ctx, 5, 0, 0).await;
        write(&ctx, 5, 1, 0).await;
        let hanging = producers(&ctx).await.remove(0);
        assert_eq!((hanging.producer_id.0, hanging.producer_epoch, hanging.last_sequence), (P, 5, 1));
        assert_eq!((hanging.current_txn_start_offset, hanging.coordinator_epoch), (0, -1));
        assert_eq!(listed(&ctx, 1, -1).await, (0, 0));
        assert_eq!(code(&ctx, Sending { coordinator_epoch: 0, ..ABORT }).await, 0);
        let ended = producers(&ctx).await.remove(0);
        assert_eq!((ended.current_txn_start_offset, ended.coordinator_epoch, ended.last_sequence), (-1, 0, 1));
        assert!(ended.last_timestamp >= hanging.last_timestamp);
        assert_eq!(listed(&ctx, 1, -1).await, (0, 3));
    });
}

#[test]
fn c1_case_63_levels_see_what_is_theirs() {
    with_topic(|ctx| async move {
        write(&ctx, 5, 0, 0).await;
        let open = fetched(&ctx, 1, 0).await;
        assert_eq!((open.high_watermark, open.last_stable_offset), (1, 0), "case 62");
        assert_eq!(told(&open), (vec![], Some(vec![])), "case 60");
        assert_eq!(told(&fetched(&ctx, 0, 0).await), (vec![0], None));
        assert_eq!(told(&fetched(&ctx, 1, 1).await), (vec![], Some(vec![])), "case 77: between stable and high");
        code(&ctx, ABORT).await;
        write(&ctx, 5, 1, 0).await;
        code(&ctx, Sending { commits: true, ..ABORT }).await;
        let all = fetched(&ctx, 1, 0).await;
        assert_eq!((all.high_watermark, all.last_stable_offset), (4, 4));
        assert_eq!(told(&all), (vec![0, 1, 2, 3], Some(vec![(P, 0)])), "control batches are data too");
        assert_eq!(told(&fetched(&ctx, 1, 1).await), (vec![1, 2, 3], Some(vec![(P, 0)])), "case 68");
        assert_eq!(told(&fetched(&ctx, 1, 2).await), (vec![2, 3], Some(vec![])), "f27");
        assert_eq!(told(&fetched(&ctx, 0, 0).await).1, None);
    });
}

#[test]
fn f28_case_160_a_parked_fetch_ends_with_the_transaction_and_tells_that_it_was_aborted() {
    with_topic(|ctx| async move {
        write(&ctx, 5, 0, 0).await;
        let wait_ms = 20_000;
        // An answer at once opens the session: there is something to tell of a partition that is new in it.
        let first = fetch(&ctx, 1, 0, 0, (0, 0)).await;
        for (session, bases) in [((0, -1), vec![0, 1]), ((first.session_id, 1), vec![0, 1, 2, 3])] {
            let began = Instant::now();
            let abort = async {
                sleep(Duration::from_millis(30)).await;
                assert_eq!(ctx.metrics.parked_fetches.get(), 1, "it waits");
                code(&ctx, ABORT).await
            };
            let from = if session.1 == -1 { 0 } else { 2 };
            let parked = fetch(&ctx, 1, from, wait_ms, session);
            let (answer, ended) = future::zip(parked, abort).await;
            assert_eq!(ended, 0);
            assert!(began.elapsed() < Duration::from_millis(wait_ms as u64 / 2), "it did not wait for its time");
            let data = &answer.responses[0].partitions[0];
            let (seen, aborted) = told(data);
            let first = seen[0];
            assert_eq!(seen, bases[bases.len() - 2..], "the data and its marker");
            assert_eq!(aborted, Some(vec![(P, first)]));
            assert_eq!(data.last_stable_offset, data.high_watermark);
            write(&ctx, 5, first as i32 / 2 + 1, 0).await;
        }
    });
}

#[test]
fn f29_c2_offsets_end_where_the_level_does() {
    with_topic(|ctx| async move {
        let late = now_ms().0 + 50_000;
        write(&ctx, 5, 0, 0).await;
        code(&ctx, Sending { commits: true, ..ABORT }).await;
        write(&ctx, 5, 1, 60_000).await;
        for (timestamp, uncommitted, committed) in [(-1, 3, 2), (-2, 0, 0), (-3, 2, -1), (late, 2, -1), (0, 0, 0)] {
            assert_eq!(listed(&ctx, 0, timestamp).await, (0, uncommitted), "{timestamp}");
            assert_eq!(listed(&ctx, 1, timestamp).await, (0, committed), "{timestamp}");
        }
        code(&ctx, ABORT).await;
        for timestamp in [-3, late] {
            assert_eq!(listed(&ctx, 1, timestamp).await, (0, 2), "aborted data counts");
        }
        assert_eq!(listed(&ctx, 1, -1).await, (0, 4));
    });
}
