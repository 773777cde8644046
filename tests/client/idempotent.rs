//! Records of one producer, without transactions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use oncilla::client::native::{ClientFailure, Delivery, Outcomes, Place, Producer, Record};

use crate::broker::Broker;
use crate::proxy::seeds;
use crate::read::committed;

const PARTITIONS: i32 = 6;
const RECORDS: usize = 6000;
/// Connections of a burst that have to end, and the most records it goes on for until they have.
const ENDS_MIN: usize = 10;
const RECORDS_MAX: usize = 200_000;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn producer(address: &str) -> Producer {
    Producer::builder()
        .set("bootstrap.servers", address)
        .set("linger.ms", 1)
        .set("batch.size", 2000)
        .set("retry.backoff.ms", 20)
        .set("request.timeout.ms", 10_000)
        .set("delivery.timeout.ms", 90_000)
        .build()
        .expect("a producer")
}

/// Partition, offset and value of every record, once all are delivered. `goes_on` is asked before each with its number.
fn burst(address: &str, mut goes_on: impl FnMut(usize) -> bool) -> Vec<(i32, Option<i64>, String)> {
    runtime().block_on(async {
        let producer = producer(address);
        let mut sent: Vec<(i32, String, Delivery)> = Vec::new();
        for number in (0..).take_while(|number| goes_on(*number)) {
            let partition = i32::try_from(number).expect("few records") % PARTITIONS;
            let value = format!("{number:08}");
            let record = Record::to("burst").partition(partition).value(value.clone());
            sent.push((partition, value, producer.send_when_room(record).await.expect("taken")));
            if number % 20 == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        producer.flush().await.expect("flushed");
        let mut places = Vec::new();
        for (partition, value, delivery) in sent {
            let place = delivery.await.expect("every record is delivered");
            assert_eq!(place.partition, partition);
            places.push((partition, place.offset, value));
        }
        producer.close().await.expect("closed");
        places
    })
}

/// Every record is there once, in the order of its partition, and where it was told to be.
fn check(broker: &Broker, sent: &[(i32, Option<i64>, String)]) {
    let mut expected: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for (partition, _, value) in sent {
        expected.entry(*partition).or_default().push(value.clone());
    }
    let log = committed(&mut broker.client(), "burst");
    for (partition, records) in &log {
        let values: Vec<String> = records.iter().map(|(_, value)| value.clone()).collect();
        assert_eq!(values, expected[partition], "partition {partition}: each once, in order");
    }
    for (partition, offset, value) in sent {
        // The answer to a repetition may leave the offset out, but may not lie.
        let found = log[partition].iter().find(|(at, _)| Some(*at) == *offset);
        assert!(offset.is_none() || found.is_some_and(|(_, found)| found == value), "{value} is not at {offset:?}");
    }
}

/// The burst of the second seed: 6 of 6, once and in order, over a broker that dies in the middle, twice.
#[test]
fn a_burst_over_six_partitions_survives_a_killed_broker() {
    let broker = Broker::start();
    let address = broker.address();
    broker.client().create_topic("burst", PARTITIONS, 1, &[]).expect("the topic is made");
    let broker = Arc::new(Mutex::new(broker));
    let mut restarts = Vec::new();
    let sent = burst(&address, |number| {
        if number == RECORDS / 3 || number == RECORDS * 2 / 3 {
            let broker = broker.clone();
            restarts.push(std::thread::spawn(move || broker.lock().expect("no panic").restart()));
        }
        number < RECORDS
    });
    for restart in restarts {
        restart.join().expect("the broker starts again");
    }
    check(&broker.lock().expect("no panic"), &sent);
}

#[test]
fn a_burst_survives_connections_that_end_in_every_way() {
    for seed in seeds() {
        let (broker, proxy) = Broker::behind_proxy(seed);
        broker.client().create_topic("burst", PARTITIONS, 1, &[]).expect("the topic is made");
        proxy.storm();
        // A connection ends after some requests, and how many records make a request is the producer's affair.
        let is_long = |number| number >= RECORDS && proxy.ends() >= ENDS_MIN || number >= RECORDS_MAX;
        let sent = burst(&broker.address(), |number| !is_long(number));
        proxy.calm();
        assert!(proxy.ends() >= ENDS_MIN, "seed {seed}: {} connections ended", proxy.ends());
        check(&broker, &sent);
    }
}

#[test]
fn every_codec_is_taken_and_keys_go_where_they_belong() {
    let broker = Broker::start();
    broker.client().create_topic("codecs", 3, 1, &[]).expect("the topic is made");
    runtime().block_on(async {
        for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
            let producer = Producer::builder()
                .set("bootstrap.servers", broker.address())
                .set("compression.type", codec)
                .build()
                .expect("a producer");
            let mut sent = Vec::new();
            for number in 0..50 {
                let record = Record::to("codecs").key("foobar").value(format!("{codec}{number}")).header("h", "v");
                sent.push(producer.send(record).expect("taken"));
            }
            producer.flush().await.expect("flushed");
            for delivery in sent {
                // murmur2 of this key is -790332482, as the Java client has it.
                assert_eq!(delivery.await.expect("delivered").partition, (-790_332_482_i32 & 0x7fff_ffff) % 3);
            }
        }
    });
    let seen: usize = committed(&mut broker.client(), "codecs").values().map(Vec::len).sum();
    assert_eq!(seen, 250);
}

#[test]
fn nothing_hangs_without_a_broker() {
    runtime().block_on(async {
        let producer = Producer::builder()
            .set("bootstrap.servers", "127.0.0.1:1")
            .set("linger.ms", 0)
            .set("request.timeout.ms", 100)
            .set("delivery.timeout.ms", 300)
            .set("buffer.memory", 100)
            .set("max.block.ms", 50)
            .build()
            .expect("a producer");
        let first = producer.send(Record::to("t").value("value")).expect("taken");
        let second = producer.send(Record::to("t").value("value")).expect("taken");
        let full = producer.send_when_room(Record::to("t").value("value")).await;
        assert!(matches!(full, Err(oncilla::client::native::SendError::Full)));
        for delivery in [first, second] {
            let failure = delivery.await.expect_err("nobody is there");
            assert_eq!(failure.written, oncilla_shards::client::Written::No, "nothing ever left");
        }
        let third = producer.send_when_room(Record::to("t").value("value")).await.expect("there is room again");
        drop(producer);
        assert!(third.await.is_err(), "a dropped producer tells every record");
    });
}

/// Notes outcomes, and sends a further record from within each of the first ones.
#[derive(Default)]
struct Noted {
    places: Mutex<BTreeMap<u64, Result<Place, ClientFailure>>>,
    again: Mutex<Option<(Producer, Arc<Self>)>>,
}

const FIRST: u64 = 50;

impl Outcomes for Noted {
    fn outcome(&self, token: u64, outcome: Result<Place, ClientFailure>) {
        if token < FIRST
            && let Some((producer, this)) = &*self.again.lock().expect("no panic")
        {
            let noted: Arc<dyn Outcomes> = this.clone();
            let record = Record::to("told").partition(0).value(format!("{:03}", token + FIRST));
            producer.send_to(&record, token + FIRST, &noted).expect("a producer can be called from an outcome");
        }
        assert!(self.places.lock().expect("no panic").insert(token, outcome).is_none(), "{token} is told once");
    }
}

#[test]
fn outcomes_that_are_told_carry_their_token_and_may_send_more() {
    let broker = Broker::start();
    broker.client().create_topic("told", 1, 1, &[]).expect("the topic is made");
    let noted = Arc::new(Noted::default());
    runtime().block_on(async {
        *noted.again.lock().expect("no panic") = Some((producer(&broker.address()), noted.clone()));
        let outcomes: Arc<dyn Outcomes> = noted.clone();
        let mut record = Record::to("told").partition(0);
        for token in 0..FIRST {
            record.value = Some(format!("{token:03}").into_bytes());
            let again = noted.again.lock().expect("no panic");
            again.as_ref().expect("just set").0.send_to(&record, token, &outcomes).expect("taken");
        }
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while noted.places.lock().expect("no panic").len() < 2 * usize::try_from(FIRST).expect("few") {
            assert!(std::time::Instant::now() < until, "{:?}", noted.places);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let (producer, _) = noted.again.lock().expect("no panic").take().expect("it is there");
        producer.close().await.expect("closed");
    });
    let log = committed(&mut broker.client(), "told");
    let places = noted.places.lock().expect("no panic");
    assert_eq!(log[&0].len(), places.len());
    for (offset, value) in &log[&0] {
        let place = places[&value.parse().expect("a token")].as_ref().expect("every record is delivered");
        assert_eq!(place.offset, Some(*offset), "{value}");
    }
}
