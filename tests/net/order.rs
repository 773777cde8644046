//! Order and pipelining (contract KC.7 to KC.10; cases 119 and 120).

use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::toy::{CLOSE, DROPPED, FETCH, LARGE, PRODUCE, SILENT, Server, frame, settings};

#[test]
fn kc_8_answers_leave_in_request_order_also_behind_slow_ones() {
    let server = Server::start(settings());
    let mut client = server.connect();
    let requests = [(FETCH, 100), (FETCH, 0), (PRODUCE, 80), (PRODUCE, 20), (PRODUCE, 40), (FETCH, 0), (PRODUCE, 0)];
    let mut packet = Vec::new();
    for (k, (key, delay)) in (0..).zip(requests) {
        packet.extend(frame(key, -k, delay, &[k as u8; 3]));
    }
    client.send(&packet);
    for k in 0..7 {
        assert_eq!(client.receive(), (-k, vec![k as u8; 3]));
    }
    assert_eq!(server.seen.overlapping_high.load(Ordering::Relaxed), 3, "the three produces overlap");
    assert_eq!(server.seen.beside_others.load(Ordering::Relaxed), 0, "a fetch runs alone");
}

#[test]
fn kc_8_one_byte_at_a_time_is_the_same() {
    let server = Server::start(settings());
    let mut client = server.connect();
    client.stream.set_nodelay(true).expect("nodelay");
    for k in 0..3 {
        for byte in frame(FETCH, k, 0, b"slowly") {
            client.send(&[byte]);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(client.receive(), (k, b"slowly".to_vec()));
    }
}

#[test]
fn kc_10_two_hundred_requests_before_a_fin_are_all_answered_in_order() {
    let server = Server::start(settings());
    for key in [FETCH, PRODUCE] {
        let mut client = server.connect();
        let packet: Vec<u8> = (0..200).flat_map(|k| frame(key, k, (k % 3) as u32, &k.to_be_bytes())).collect();
        client.send(&packet);
        client.stream.shutdown(Shutdown::Write).expect("half-closed");
        for k in 0..200i32 {
            assert_eq!(client.receive(), (k, k.to_be_bytes().to_vec()));
        }
        client.expect_fin();
    }
    server.eventually("connections are closed", || server.counters.connections.get() == 0);
}

#[test]
fn many_pipelined_requests_cost_few_writes() {
    let server = Server::start(settings());
    let mut client = server.connect();
    let packet: Vec<u8> = (0..10_000).flat_map(|k| frame(PRODUCE, k, 0, b"0123456789")).collect();
    let mut sending = client.stream.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut sending, &packet).expect("open"));
    for k in 0..10_000 {
        assert_eq!(client.receive().0, k);
    }
    sender.join().expect("sent");
    let writes = server.counters.writes.get();
    assert!(writes < 1_000, "{writes} writes for 10,000 answers");
}

#[test]
fn kc_16_a_silent_request_sends_nothing_and_keeps_the_connection() {
    let server = Server::start(settings());
    let mut client = server.connect();
    client.send(&[frame(SILENT, 1, 0, b""), frame(FETCH, 2, 0, b"x")].concat());
    assert_eq!(client.receive(), (2, b"x".to_vec()));
}

#[test]
fn kc_9_what_follows_a_request_that_closes_is_never_seen() {
    let server = Server::start(settings());
    for closing in [CLOSE, crate::toy::BROKEN] {
        let served = server.seen.served.load(Ordering::Relaxed);
        let mut client = server.connect();
        client.send(&[frame(FETCH, 1, 50, b"first"), frame(closing, 2, 0, b""), frame(FETCH, 3, 0, b"")].concat());
        assert_eq!(client.receive(), (1, b"first".to_vec()));
        client.expect_fin();
        let seen = server.seen.served.load(Ordering::Relaxed) - served;
        assert_eq!(seen, if closing == CLOSE { 2 } else { 1 });
    }
}

#[test]
fn answers_and_requests_of_many_megabytes_arrive_whole() {
    let server = Server::start(settings());
    let mut client = server.connect();
    client.send(&frame(LARGE, 1, 30 << 20, b""));
    assert_eq!(client.receive(), (1, vec![7; 30 << 20]));
    let rest: Vec<u8> = (0..20u32 << 20).map(|k| ((k * 7) >> 3) as u8).collect();
    client.send(&frame(FETCH, 2, 0, &rest));
    assert!(client.receive() == (2, rest), "the echo of 20 MiB differs");
}

#[test]
fn a_busy_connection_does_not_starve_another() {
    let server = Server::start(settings());
    let mut busy = server.connect();
    let packet: Vec<u8> = (0..100_000).flat_map(|k| frame(PRODUCE, k, 0, b"0123456789")).collect();
    let mut sending = busy.stream.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut sending, &packet).expect("open"));
    let receiver = std::thread::spawn(move || (0..100_000).for_each(|k| assert_eq!(busy.receive().0, k)));
    let mut other = server.connect();
    let mut worst = Duration::ZERO;
    for k in 0..50 {
        let asked = Instant::now();
        other.send(&frame(FETCH, k, 0, b""));
        other.receive();
        worst = worst.max(asked.elapsed());
    }
    sender.join().expect("sent");
    receiver.join().expect("received");
    assert!(worst < Duration::from_millis(90), "waited {worst:?} beside a busy connection");
}

#[test]
fn a_request_dropped_without_an_answer_closes_instead_of_hanging_its_client() {
    let server = Server::start(settings());
    let mut client = server.connect();
    client.send(&frame(DROPPED, 1, 0, b""));
    client.expect_fin();
}
