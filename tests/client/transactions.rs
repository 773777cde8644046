//! Transactions in both protocols, with the broker killed in between: what was committed is there once, what was
//! aborted is not, and offsets go with their transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kafka_protocol::messages::UpdateFeaturesRequest;
use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::protocol::StrBytes;
use oncilla::client::native::{GroupMember, OffsetToCommit, Producer, Record};
use oncilla_shards::client::{ClientFailure, Next, Reason, Written};
use oncilla_shards::ids::Offset;

use crate::broker::Broker;
use crate::proxy::seeds;
use crate::read::committed;

const TRANSACTIONS: i64 = 30;
const PARTITIONS: i32 = 3;

fn producer(address: &str) -> Producer {
    Producer::builder()
        .set("bootstrap.servers", address)
        .set("transactional.id", "tx")
        .set("linger.ms", 0)
        .set("retry.backoff.ms", 20)
        .set("request.timeout.ms", 10_000)
        .set("delivery.timeout.ms", 60_000)
        .build()
        .expect("a producer")
}

fn protocol_1(broker: &Broker) {
    let mut client = broker.client();
    let update = FeatureUpdateKey::default()
        .with_feature(StrBytes::from_static_str("transaction.version"))
        .with_max_version_level(1)
        .with_upgrade_type(2);
    let node = client.cluster().controller;
    let request = UpdateFeaturesRequest::default().with_timeout_ms(10_000).with_feature_updates(vec![update]);
    let answer = client.call(node, &request, 1).expect("features are changed");
    assert_eq!(answer.error_code, 0, "{answer:?}");
}

/// One transaction, which sets the group's offset to its number; whether it ended as wanted.
async fn transaction(producer: &Producer, number: i64, commit: bool) -> Result<(), ClientFailure> {
    producer.begin_transaction()?;
    let mut sent = Vec::new();
    for record in 0..4 {
        let partition = (record + i32::try_from(number).expect("few")) % PARTITIONS;
        let record = Record::to("out").partition(partition).value(format!("{number:04}-{record}"));
        match producer.send(record) {
            Ok(delivery) => sent.push(delivery),
            Err(oncilla::client::native::SendError::Refused(failure)) => return Err(failure),
            Err(other) => panic!("{other}"),
        }
    }
    let offset = OffsetToCommit { topic: "in".into(), partition: 0, offset: Offset(number) };
    producer.send_offsets(GroupMember::simple("g"), vec![offset]).await?;
    if commit {
        again(async || producer.commit_transaction().await).await?;
        for delivery in sent {
            delivery.await.expect("what is committed was delivered");
        }
        return Ok(());
    }
    again(async || producer.abort_transaction().await).await
}

/// Makes a call until it has a result.
async fn again(call: impl AsyncFn() -> Result<(), ClientFailure>) -> Result<(), ClientFailure> {
    loop {
        match call().await {
            Err(failure) if failure.reason == Reason::BlockTimeout => {}
            result => return result,
        }
    }
}

async fn initialized(address: &str) -> Producer {
    let producer = producer(address);
    again(async || producer.init_transactions().await).await.expect("initialized");
    producer
}

/// Commits two of three. What had to be aborted is begun again until it is through. `landed` says whether a transaction
/// is in the log.
async fn run(address: &str, mut meanwhile: impl FnMut(i64), landed: impl Fn(i64) -> bool) {
    let mut producer = initialized(address).await;
    for number in 0..TRANSACTIONS {
        meanwhile(number);
        for attempt in 0.. {
            match transaction(&producer, number, number % 3 != 2).await {
                Ok(()) => break,
                Err(failure) => {
                    println!("transaction {number}, attempt {attempt}: {failure}");
                    assert!(attempt < 10, "transaction {number}: {failure}");
                    if failure.next == Next::Abort && again(async || producer.abort_transaction().await).await.is_ok() {
                        continue;
                    }
                    // In protocol 1 a request of before may arrive in this transaction and end it, and a repeated
                    // InitProducerId may even fence us. A producer at its end is followed by another one.
                    producer = initialized(address).await;
                    if failure.written == Written::Unknown && landed(number) {
                        break;
                    }
                }
            }
        }
    }
    producer.close().await.expect("closed");
}

fn is_committed(broker: &Broker, number: i64) -> bool {
    let of_it = |(_, value): &(i64, String)| value.starts_with(&format!("{number:04}-"));
    committed(&mut broker.client(), "out").values().flatten().any(of_it)
}

fn check(broker: &Broker) {
    let mut client = broker.client();
    let mut expected: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for number in (0..TRANSACTIONS).filter(|number| number % 3 != 2) {
        for record in 0..4 {
            let partition = (record + i32::try_from(number).expect("few")) % PARTITIONS;
            expected.entry(partition).or_default().push(format!("{number:04}-{record}"));
        }
    }
    for (partition, records) in committed(&mut client, "out") {
        let values: Vec<String> = records.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, expected[&partition], "partition {partition}");
    }
    let last = (0..TRANSACTIONS).rfind(|number| number % 3 != 2).expect("some are committed");
    let offsets = client.committed("g").expect("the group has offsets");
    assert_eq!(offsets.iter().map(|one| one.offset).collect::<Vec<_>>(), [last]);
}

fn make_topics(broker: &Broker) {
    for (topic, partitions) in [("in", 1), ("out", PARTITIONS)] {
        broker.client().create_topic(topic, partitions, 1, &[]).expect("the topic is made");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn survive_kills(prepare: impl FnOnce(&Broker)) {
    let broker = Broker::start();
    prepare(&broker);
    make_topics(&broker);
    let address = broker.address();
    let broker = Arc::new(Mutex::new(broker));
    let mut restarts = Vec::new();
    let meanwhile = |number| {
        if number % 10 == 5 {
            let broker = broker.clone();
            restarts.push(std::thread::spawn(move || broker.lock().expect("no panic").restart()));
        }
    };
    runtime().block_on(run(&address, meanwhile, |number| is_committed(&broker.lock().expect("no panic"), number)));
    for restart in restarts {
        restart.join().expect("the broker starts again");
    }
    check(&broker.lock().expect("no panic"));
}

fn survive_cuts(prepare: impl Fn(&Broker)) {
    for seed in seeds() {
        let (broker, proxy) = Broker::behind_proxy(seed);
        prepare(&broker);
        make_topics(&broker);
        proxy.storm();
        let landed = |number| {
            proxy.calm();
            let landed = is_committed(&broker, number);
            proxy.storm();
            landed
        };
        runtime().block_on(run(&broker.address(), |_| {}, landed));
        proxy.calm();
        assert!(proxy.ends() >= 3, "seed {seed}: {} connections ended", proxy.ends());
        check(&broker);
    }
}

#[test]
fn protocol_2_transactions_survive_a_killed_broker() {
    survive_kills(|_| {});
}

#[test]
fn protocol_1_transactions_survive_a_killed_broker() {
    survive_kills(protocol_1);
}

#[test]
fn protocol_2_transactions_survive_connections_that_end_in_every_way() {
    survive_cuts(|_| {});
}

#[test]
fn protocol_1_transactions_survive_connections_that_end_in_every_way() {
    survive_cuts(protocol_1);
}

#[test]
fn a_newer_producer_of_the_same_id_ends_the_older_one() {
    let broker = Broker::start();
    broker.client().create_topic("out", 1, 1, &[]).expect("the topic is made");
    runtime().block_on(async {
        let old = producer(&broker.address());
        old.init_transactions().await.expect("initialized");
        old.begin_transaction().expect("begun");
        old.send(Record::to("out").value("old")).expect("taken").await.expect("delivered");
        let new = producer(&broker.address());
        new.init_transactions().await.expect("initialized, and the open transaction is aborted");
        let failure = old.commit_transaction().await.expect_err("fenced");
        assert_eq!(failure.next, Next::Close, "{failure}");
        new.begin_transaction().expect("begun");
        new.send(Record::to("out").value("new")).expect("taken");
        new.commit_transaction().await.expect("committed");
    });
    let seen = committed(&mut broker.client(), "out");
    assert_eq!(seen[&0].iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["new"]);
}
