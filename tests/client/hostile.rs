//! Peers that are no brokers: nothing hangs, nothing panics, no memory is taken on their word, and every record has its
//! outcome in time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oncilla::client::native::{Producer, Record};
use oncilla_shards::client::Written;

/// An answer to ApiVersions 3 with these versions of each API: correlation id 0, no error, no tags.
fn versions(apis: &[(i16, i16, i16)]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, 0, 0, u8::try_from(apis.len() + 1).expect("few")];
    for (key, min, max) in apis {
        for number in [key, min, max] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        body.push(0);
    }
    body.extend_from_slice(&[0, 0, 0, 0, 0]);
    framed(&body)
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len()).expect("short").to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

const ALL: &[(i16, i16, i16)] = &[(0, 3, 12), (3, 1, 12), (10, 1, 3), (18, 0, 3), (22, 0, 5)];

/// Sends these answers, one for each read, then stays silent or closes.
fn peer(answers: Vec<Vec<u8>>, silent: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answers = answers.clone();
            std::thread::spawn(move || talk(&mut stream, &answers, silent));
        }
    });
    address
}

fn talk(stream: &mut TcpStream, answers: &[Vec<u8>], silent: bool) {
    let mut buffer = [0; 4096];
    for answer in answers {
        if stream.read(&mut buffer).unwrap_or(0) == 0 || stream.write_all(answer).is_err() {
            return;
        }
    }
    while silent && stream.read(&mut buffer).unwrap_or(0) > 0 {}
}

fn outcome_of(address: &str) -> Written {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let producer = Producer::builder()
            .set("bootstrap.servers", address)
            .set("linger.ms", 0)
            .set("retry.backoff.ms", 5)
            .set("request.timeout.ms", 100)
            .set("delivery.timeout.ms", 400)
            .build()
            .expect("a producer");
        let delivery = producer.send(Record::to("t").value("value")).expect("taken");
        let limit = std::time::Duration::from_secs(20);
        let outcome = tokio::time::timeout(limit, delivery).await.expect("it has its outcome in time");
        outcome.expect_err("nobody stored it").written
    })
}

#[test]
fn whatever_a_peer_does_every_record_has_its_outcome() {
    let hello = versions(ALL);
    let peers: &[(&str, Vec<Vec<u8>>, bool)] = &[
        ("dies at accept", vec![], false),
        ("is silent", vec![], true),
        ("says half a frame", vec![vec![0, 0, 0, 50, 1, 2]], true),
        ("promises two gigabytes", vec![vec![0x7f, 0xff, 0xff, 0xff, 1, 2]], true),
        ("promises less than nothing", vec![vec![0xff, 0xff, 0xff, 0xff, 1, 2]], true),
        ("answers another request", vec![framed(&[0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0])], true),
        ("speaks no version", vec![versions(&[])], true),
        ("speaks versions of the future", vec![versions(&[(0, 90, 99), (3, 90, 99), (22, 90, 99)])], true),
        ("says what nobody asked", vec![[hello.clone(), framed(&[0, 0, 0, 1])].concat()], true),
        ("is well until metadata", vec![hello.clone()], true),
        ("closes at metadata", vec![hello.clone(), vec![]], false),
        (
            "answers metadata with noise",
            vec![hello.clone(), framed(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff])],
            true,
        ),
        ("answers metadata with little", vec![hello, framed(&[0, 0, 0, 1, 0])], true),
    ];
    for (what, answers, silent) in peers {
        let written = outcome_of(&peer(answers.clone(), *silent));
        assert_eq!(written, Written::No, "a peer that {what}: no record was ever sent to it");
    }
}

#[test]
fn a_peer_that_answers_at_once_and_wrongly_is_not_asked_without_pause() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let over = Arc::new(AtomicBool::new(false));
    let counted = std::thread::spawn({
        let over = over.clone();
        move || {
            let accepted = listener.incoming().flatten().take_while(|_| !over.load(Ordering::SeqCst)).count();
            drop(listener);
            accepted
        }
    });
    outcome_of(&address);
    over.store(true, Ordering::SeqCst);
    let _ = TcpStream::connect(&address);
    let connections = counted.join().expect("it counts");
    assert!((2..200).contains(&connections), "{connections} connections in less than a second");
}
