//! Transactions over two shards of one broker: what a shard asks another for travels over the lanes, and what is
//! decided reaches the files of both.

use std::cell::Cell;
use std::sync::mpsc;

use bytes::Bytes;
use futures_lite::future;
use kafka_protocol::messages::describe_transactions_request::DescribeTransactionsRequest;
use kafka_protocol::messages::describe_transactions_response::DescribeTransactionsResponse;
use kafka_protocol::messages::end_txn_request::EndTxnRequest;
use kafka_protocol::messages::end_txn_response::EndTxnResponse;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use kafka_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, OffsetFetchRequest, OffsetFetchResponse, ProduceRequest, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable};
use oncilla_shards::batch::{BatchBuilder, headers};
use oncilla_shards::ids::PartitionKey;

use super::tests::{id_of, text, write};
use super::*;
use crate::api::testing;
use crate::api::testing::shards::{until, with_shards};
use crate::config::ListenerMode;
use crate::rt::Order;

const SHARDS: u16 = 2;

/// Of the topic `t`: the even ones are on shard 0, the odd ones on shard 1.
const PARTITIONS: i32 = 4;

type Producer = (i64, i16);

/// A broker as its clients see it.
struct Broker {
    /// Of the shard that the test runs on.
    ctx: Rc<Ctx>,
    /// Where all requests come in; if nothing is said, each where it belongs.
    entry: Option<ShardId>,
}

/// Runs a test on a broker with the topic `t`.
fn with_broker<F: Future<Output = ()> + 'static>(
    entry: Option<ShardId>,
    test: impl FnOnce(Broker) -> F + Send + 'static,
) {
    let change = move |config: &mut Config| {
        config.listener_mode = if entry.is_some() { ListenerMode::Shared } else { ListenerMode::PerCore };
        config.producer_id_expiration_ms = i64::MAX;
        config.add_partitions_wait_ms_max = 30_000;
    };
    with_shards(SHARDS, change, async move |ctx| {
        testing::make_topic(&ctx, "t", PARTITIONS).await;
        test(Broker { ctx, entry }).await;
    });
}

/// The first name of this kind that a shard has the slot of.
fn name_of(shard: ShardId, kind: &str) -> String {
    let mut names = (0..).map(|n| format!("{kind}{n}"));
    names.find(|name| home_of(name) == shard).expect("every shard has slots")
}

fn home_of(name: &str) -> ShardId {
    owner(slot_of(name.as_bytes()), SHARDS)
}

fn leader_of(index: i32) -> ShardId {
    ShardId(if index % 2 == 0 { 0 } else { 1 })
}

impl Broker {
    fn key(&self, index: i32) -> PartitionKey {
        let (image, shard) = (self.ctx.image(), leader_of(index));
        let topic = image.topic("t").expect("it was made");
        assert_eq!(image.owner(topic, index), shard);
        PartitionKey { topic: topic.id, index }
    }

    /// Runs a job on a shard.
    async fn on<T, F, Fut>(&self, shard: ShardId, job: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(Rc<Ctx>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        self.ctx.call(shard, job).await
    }

    /// Has a request answered that belongs to a shard.
    async fn asked<R>(&self, of: ShardId, key: i16, version: i16, request: impl Encodable + Send + 'static) -> R
    where
        R: Decodable + Send + 'static,
    {
        let ask = async move |ctx: Rc<Ctx>| testing::asked(&ctx, key, version, &request).await;
        self.on(self.entry.unwrap_or(of), ask).await
    }

    async fn init(&self, id: &str) -> Producer {
        let request =
            InitProducerIdRequest::default().with_transactional_id(Some(id_of(id))).with_transaction_timeout_ms(60_000);
        let answer: InitProducerIdResponse = self.asked(home_of(id), 22, 4, request).await;
        assert_eq!(answer.error_code, 0);
        (answer.producer_id.0, answer.producer_epoch)
    }

    /// Writes a record by Produce 12; code and offset.
    async fn produce(&self, id: &str, of: Producer, index: i32, sequence: i32) -> (i16, i64) {
        let batch = BatchBuilder::new().producer(of.0, of.1, sequence).transactional();
        let batch = Bytes::from(batch.record_at(now_ms(), None, Some(b"v"), &[]).build());
        let partition = PartitionProduceData::default().with_index(index).with_records(Some(batch));
        let topic = TopicProduceData::default().with_name(text("t").into()).with_partition_data(vec![partition]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(id_of(id)))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        let produce = async move |ctx: Rc<Ctx>| {
            let answer = testing::produced(12, &testing::producing(&ctx, 12, &request)).await;
            let partition = &answer.responses[0].partition_responses[0];
            (partition.error_code, partition.base_offset)
        };
        self.on(self.entry.unwrap_or(leader_of(index)), produce).await
    }

    /// Ends a transaction by EndTxn 5: who the producer is then.
    async fn end(&self, id: &str, of: Producer, commits: bool) -> Producer {
        let request = EndTxnRequest::default()
            .with_transactional_id(id_of(id))
            .with_producer_id(of.0.into())
            .with_producer_epoch(of.1)
            .with_committed(commits);
        let answer: EndTxnResponse = self.asked(home_of(id), 26, 5, request).await;
        assert_eq!(answer.error_code, 0);
        (answer.producer_id.0, answer.producer_epoch)
    }

    /// Name of an id's state, and the partitions of `t` that are in its transaction.
    async fn described(&self, id: &str) -> (String, Vec<i32>) {
        let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![id_of(id)]);
        let mut answer: DescribeTransactionsResponse = self.asked(home_of(id), 65, 0, request).await;
        let described = answer.transaction_states.remove(0);
        let partitions = described.topics.into_iter().filter(|topic| &**topic.topic == "t");
        (described.transaction_state.to_string(), partitions.flat_map(|topic| topic.partitions).collect())
    }

    async fn completes(&self, id: &str, state: &str) {
        until(state, async || self.described(id).await == (state.to_owned(), vec![])).await;
    }

    /// A partition from its start, for a reader at read_committed.
    async fn fetch(&self, index: i32) -> PartitionData {
        let partition = FetchPartition::default().with_partition(index).with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_topic(text("t").into()).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_isolation_level(1)
            .with_max_bytes(1 << 20)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        let mut answer: FetchResponse = self.asked(leader_of(index), 1, 12, request).await;
        answer.responses.remove(0).partitions.remove(0)
    }

    async fn stable(&self, index: i32) -> i64 {
        self.fetch(index).await.last_stable_offset
    }

    async fn is_marked(&self, index: i32, end: i64) {
        until("a marker makes everything stable", async || self.stable(index).await == end).await;
    }

    /// What is waiting at a coordinator for a transaction that is completing.
    async fn parked(&self, id: &str) -> usize {
        self.on(home_of(id), async |ctx: Rc<Ctx>| ctx.txn.core.borrow().counts().parked).await
    }

    /// Keeps what is written to a partition from its file until it is released.
    async fn hold(&self, index: i32) -> Order {
        let (key, release) = (self.key(index), Order::new());
        let released = release.clone();
        let hold = async move |ctx: Rc<Ctx>| {
            let writer = ctx.files.take_writer(&key).await.expect("it was written before");
            let own = ctx.clone();
            spawn(async move {
                released.watch().given().await;
                own.files.put_writer(key, writer);
            });
        };
        self.on(leader_of(index), hold).await;
        release
    }

    /// Commits an offset of `t` in a transaction by TxnOffsetCommit 5.
    async fn commit_offset(&self, id: &str, of: Producer, group: &str, offset: i64) {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default().with_name(text("t").into());
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id_of(id))
            .with_group_id(text(group).into())
            .with_producer_id(of.0.into())
            .with_producer_epoch(of.1)
            .with_generation_id(-1)
            .with_topics(vec![topic.with_partitions(vec![partition])]);
        let answer: TxnOffsetCommitResponse = self.asked(home_of(group), 28, 5, request).await;
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    }

    /// A group's offset for a reader that wants what is stable; 88 while it is not.
    async fn offset(&self, group: &str) -> Result<i64, i16> {
        let topic = OffsetFetchRequestTopics::default().with_name(text("t").into()).with_partition_indexes(vec![0]);
        let asked = OffsetFetchRequestGroup::default().with_group_id(text(group).into());
        let request = OffsetFetchRequest::default()
            .with_groups(vec![asked.with_topics(Some(vec![topic]))])
            .with_require_stable(true);
        let answer: OffsetFetchResponse = self.asked(home_of(group), 9, 8, request).await;
        let partition = &answer.groups[0].topics[0].partitions[0];
        if partition.error_code == 0 { Ok(partition.committed_offset) } else { Err(partition.error_code) }
    }
}

/// Offsets of all batches that a reader at read_committed is given, and who aborted what there.
fn read(data: &PartitionData) -> (Vec<i64>, Vec<(i64, i64)>) {
    let records = data.records.as_ref().expect("there are records");
    let aborted = data.aborted_transactions.iter().flatten().map(|one| (one.producer_id.0, one.first_offset));
    (headers(records).map(|header| header.base_offset.0).collect(), aborted.collect())
}

/// A transaction that commits and one that aborts, each with a record on both shards.
async fn transactions_over_both_shards(broker: &Broker, id: &str, indexes: [i32; 2]) {
    let mut of = broker.init(id).await;
    let first = of;
    for (start, commits) in [(0, true), (2, false)] {
        for index in indexes {
            assert_eq!(broker.produce(id, of, index, 0).await, (0, start), "partition {index}");
        }
        assert_eq!(broker.described(id).await, ("Ongoing".to_owned(), indexes.to_vec()));
        for index in indexes {
            assert_eq!(broker.stable(index).await, start, "nothing is decided");
        }
        of = broker.end(id, of, commits).await;
        broker.completes(id, if commits { "CompleteCommit" } else { "CompleteAbort" }).await;
        for index in indexes {
            assert_eq!(broker.stable(index).await, start + 2, "it is complete when the markers are there");
        }
    }
    assert_eq!(of, (first.0, first.1 + 2));
    for index in indexes {
        let expected = (vec![0, 1, 2, 3], vec![(first.0, 2)]);
        assert_eq!(read(&broker.fetch(index).await), expected, "partition {index}");
    }
}

#[test]
fn a4_b7_produce_asks_a_coordinator_on_another_shard_and_markers_of_both_outcomes_reach_both_shards() {
    with_broker(None, async |broker| {
        transactions_over_both_shards(&broker, &name_of(ShardId(0), "x"), [0, 1]).await;
        transactions_over_both_shards(&broker, &name_of(ShardId(1), "x"), [2, 3]).await;
    });
}

#[test]
fn in_shared_mode_all_of_it_may_come_in_on_either_shard() {
    for entry in (0..SHARDS).map(ShardId) {
        with_broker(Some(entry), async |broker| {
            transactions_over_both_shards(&broker, &name_of(ShardId(0), "x"), [0, 1]).await;
            transactions_over_both_shards(&broker, &name_of(ShardId(1), "x"), [2, 3]).await;
        });
    }
}

#[test]
fn f32_the_next_transaction_waits_on_another_shard_for_the_markers_of_the_one_before_and_goes_on() {
    with_broker(None, async |broker| {
        let id = &name_of(ShardId(0), "x");
        let of = broker.init(id).await;
        for index in [0, 1] {
            assert_eq!(broker.produce(id, of, index, 0).await, (0, 0));
        }
        let release = broker.hold(1).await;
        let of = broker.end(id, of, true).await;
        // One partition is still without its marker, the other one was in no transaction.
        let next = join_all([1, 3].map(|index| broker.produce(id, of, index, 0)));
        let release = async {
            until("both wait at the coordinator", async || broker.parked(id).await == 2).await;
            broker.is_marked(0, 2).await;
            let missing = ("PrepareCommit".to_owned(), vec![1]);
            until("one marker is missing", async || broker.described(id).await == missing).await;
            assert_eq!((broker.stable(1).await, broker.parked(id).await), (0, 2));
            release.give();
        };
        let (told, ()) = future::zip(next, release).await;
        assert_eq!(told, [(0, 2), (0, 0)], "behind the marker");
        assert_eq!(broker.described(id).await, ("Ongoing".to_owned(), vec![1, 3]));
        broker.end(id, of, true).await;
        for (index, end) in [(0, 2), (1, 4), (3, 2)] {
            broker.is_marked(index, end).await;
            assert_eq!(read(&broker.fetch(index).await), ((0..end).collect(), vec![]));
        }
    });
}

#[test]
fn f35_initproducerid_is_answered_when_the_fence_is_up_on_every_shard() {
    with_broker(None, async |broker| {
        let [id, other] = ["x", "y"].map(|kind| name_of(ShardId(0), kind));
        let old = broker.init(&id).await;
        assert_eq!(broker.produce(&id, old, 0, 0).await, (0, 0));
        let (release, released) = mpsc::channel();
        let stands_still = Order::new();
        let told = stands_still.clone();
        broker.ctx.post(ShardId(1), async move |_| {
            told.give();
            // Also when the test fails and drops the other end.
            let _ = released.recv();
        });
        until("the other shard stands still", async || stands_still.is_given()).await;
        let is_answered = Cell::new(false);
        let init = async {
            let of = broker.init(&id).await;
            is_answered.set(true);
            of
        };
        let look = async {
            let is_fenced = async || broker.ctx.txn.check_fence(ProducerId(old.0), ProducerEpoch(old.1)).is_err();
            until("the fence is up on this shard", is_fenced).await;
            until("and in the log", async || broker.ctx.txn.fences.is_durable()).await;
            // This one has nobody to fence: it is answered when its entry is durable, behind that of the other.
            assert_eq!(broker.init(&other).await.1, 0);
            assert!(!is_answered.get(), "the other shard would still take batches of the old epoch");
            release.send(()).expect("it waits for this");
        };
        let (new, ()) = future::zip(init, look).await;
        // The transaction of the old instance was aborted before, at an epoch of its own.
        assert_eq!(new, (old.0, old.1 + 2));
        assert_eq!(broker.produce(&id, old, 3, 0).await, (47, -1), "a partition that has never seen the producer");
        assert_eq!(broker.produce(&id, new, 3, 0).await, (0, 0));
    });
}

#[test]
fn c3_c4_offsets_of_a_group_on_another_shard_land_when_all_partitions_have_their_markers() {
    with_broker(None, async |broker| {
        for (home, indexes) in [(ShardId(0), [0, 1]), (ShardId(1), [3, 2])] {
            let (id, group) = (&name_of(home, "x"), &name_of(ShardId(1 - home.0), "g"));
            let mut of = broker.init(id).await;
            for (start, commits, offset) in [(0, true, 7), (2, false, 9)] {
                for index in indexes {
                    assert_eq!(broker.produce(id, of, index, 0).await, (0, start));
                }
                broker.commit_offset(id, of, group, offset).await;
                let release = broker.hold(indexes[1]).await;
                of = broker.end(id, of, commits).await;
                broker.is_marked(indexes[0], start + 2).await;
                assert_eq!(broker.offset(group).await, Err(88), "the other partition has no marker yet");
                release.give();
                until("the offsets are decided", async || broker.offset(group).await.is_ok()).await;
                assert_eq!(broker.stable(indexes[1]).await, start + 2);
                assert_eq!(broker.offset(group).await, Ok(7));
                broker.completes(id, if commits { "CompleteCommit" } else { "CompleteAbort" }).await;
            }
        }
    });
}

#[test]
fn a_look_asks_the_coordinators_of_all_shards() {
    with_broker(None, async |broker| {
        let [mine, theirs] = [0, 1].map(|home| name_of(ShardId(home), "x"));
        for (id, index) in [(&mine, 1), (&theirs, 3)] {
            let of = broker.init(id).await;
            assert_eq!(broker.produce(id, of, index, 0).await, (0, 0));
        }
        let lost = broker.key(1);
        broker.on(ShardId(1), async move |ctx: Rc<Ctx>| write(&ctx, lost, (77_777, 3), 0).await).await;
        for _ in 0..2 {
            broker.on(ShardId(1), async |ctx: Rc<Ctx>| reconcile::look(&ctx).await).await;
        }
        let open = async move |ctx: Rc<Ctx>| {
            let shard = ctx.shard.borrow();
            let partition = shard.partition(&lost).expect("it is open");
            (partition.producers().open_transactions(), partition.high_watermark().0)
        };
        assert_eq!(broker.on(ShardId(1), open).await, (1, 3), "the lost one has its marker, the other one is known");
        assert_eq!((broker.stable(1).await, broker.stable(3).await), (0, 0));
    });
}
