//! How connections end (contract KC.1, KC.11 to KC.14; cases 117 and 120).

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use oncilla::net::{ConnectionQuota, NetSettings};
use rustix::net::sockopt::set_socket_linger;

use crate::toy::{Client, FETCH, PARKED, Server, frame, settings};

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// Closes with a RST instead of a FIN.
fn reset(client: Client) {
    set_socket_linger(&client.stream, Some(Duration::ZERO)).expect("linger");
}

#[test]
fn kc_1_kc_11_garbage_is_closed_with_a_fin_and_without_a_byte() {
    let server = Server::start(settings());
    let garbage: [&[u8]; 7] = [
        &[0, 0, 0, 0],
        &[0xff; 4],
        &[0x7f, 0xff, 0xff, 0xff],
        &(104_857_601i32).to_be_bytes(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03],
        &[0, 0, 0, 2, 0, 0],
    ];
    for bytes in garbage {
        let mut client = server.connect();
        client.send(bytes);
        client.expect_fin();
    }
    assert_eq!(server.counters.refusals.get(), 7);
}

#[test]
fn kc_12_closing_is_a_fin_also_with_200_kb_unread() {
    let server = Server::start(settings());
    let mut client = server.connect();
    let mut packet = frame(FETCH, 1, 100, b"answered");
    packet.extend([0xff; 4]);
    packet.extend(vec![1; 200_000]);
    client.send(&packet);
    assert_eq!(client.receive(), (1, b"answered".to_vec()));
    client.expect_fin();
    client.stream.shutdown(Shutdown::Write).expect("half-closed");
    server.eventually("closed", || server.counters.connections.get() == 0);
}

#[test]
fn a_client_that_never_closes_is_let_go_after_the_linger_time() {
    let server = Server::start(settings());
    let mut client = server.connect();
    client.send(&[0xff; 4]);
    client.expect_fin();
    server.eventually("closed", || server.counters.connections.get() == 0);
}

#[test]
fn case_117_ten_thousand_garbage_connections_leave_nothing() {
    let server = Server::start_alone(settings());
    let fds = open_fds();
    for k in 0..10_000u32 {
        let mut client = server.connect();
        client.send(&(0x8000_0000 | k).to_be_bytes());
        if k % 100 == 0 {
            client.expect_fin();
        }
    }
    server.eventually("closed", || server.counters.connections.get() == 0);
    server.eventually("descriptors are back", || open_fds() <= fds + 20);
}

#[test]
fn kc_13_silence_ends_a_connection_but_neither_slow_bytes_nor_a_request_in_work_do() {
    let server = Server::start(NetSettings { idle_ms: Some(300), ..settings() });
    let mut silent = server.connect();
    let mut half = server.connect();
    let mut working = server.connect();
    let started = Instant::now();
    working.send(&frame(FETCH, 1, 900, b"late"));
    for byte in &frame(FETCH, 2, 0, b"slow")[..12] {
        half.send(&[*byte]);
        std::thread::sleep(Duration::from_millis(80));
    }
    half.send(&frame(FETCH, 2, 0, b"slow")[12..]);
    assert_eq!(half.receive(), (2, b"slow".to_vec()));
    assert_eq!(working.receive(), (1, b"late".to_vec()));
    assert!(started.elapsed() >= Duration::from_millis(900));
    silent.expect_fin();
    working.expect_fin();
    half.expect_fin();
    assert_eq!(server.counters.idle_cut.get(), 3);
}

#[test]
fn kc_14_a_connection_too_many_is_accepted_and_closed_without_a_byte() {
    let server = Server::start_with(settings(), ConnectionQuota::new(100, 2), 1000);
    let mut first = server.connect();
    let _second = server.connect();
    server.eventually("both served", || server.counters.connections.get() == 2);
    server.connect().expect_fin();
    assert_eq!(server.counters.refused.get(), 1);
    server.quota.set(100, 3);
    let mut third = server.connect();
    third.send(&frame(FETCH, 1, 0, b"now"));
    assert_eq!(third.receive(), (1, b"now".to_vec()));
    first.send(&frame(FETCH, 1, 0, b"still"));
    assert_eq!(first.receive(), (1, b"still".to_vec()));
}

#[test]
fn case_120_resets_and_half_closes_with_parked_requests_give_descriptors_back() {
    let server = Server::start_alone(settings());
    let fds = open_fds();
    for _ in 0..300 {
        let mut client = server.connect();
        client.send(&frame(PARKED, 1, 0, b""));
        reset(client);
        // Reads nothing at the moment of the reset: its FIN came first.
        let mut client = server.connect();
        client.send(&frame(PARKED, 1, 0, b""));
        client.stream.shutdown(Shutdown::Write).expect("half-closed");
        reset(client);
    }
    server.eventually("parked requests are told", || server.seen.told_gone.load(Ordering::Relaxed) == 600);
    server.eventually("descriptors are back", || open_fds() <= fds);
    assert_eq!(server.counters.connections.get(), 0);
    assert_eq!(server.counters.lost_in_work.get(), 600);
}

#[test]
fn case_120_an_answer_is_still_delivered_after_a_half_close() {
    let server = Server::start(settings());
    let mut client = server.connect();
    client.send(&frame(FETCH, 1, 300, b"late"));
    client.stream.shutdown(Shutdown::Write).expect("half-closed");
    assert_eq!(client.receive(), (1, b"late".to_vec()));
    client.expect_fin();
}

#[test]
fn a_drain_answers_what_is_in_work_and_cuts_off_what_does_not_end() {
    let server = Server::start_with(settings(), ConnectionQuota::new(100, 100), 600);
    let (mut working, mut parked, mut idle) = (server.connect(), server.connect(), server.connect());
    working.send(&frame(FETCH, 1, 200, b"done"));
    parked.send(&frame(PARKED, 1, 0, b""));
    server.eventually("both in work", || server.counters.requests.get() == 2);
    let ordered = Instant::now();
    server.order_shutdown();
    idle.expect_fin();
    assert!(ordered.elapsed() < Duration::from_millis(200), "an idle connection is closed at once");
    assert_eq!(working.receive(), (1, b"done".to_vec()));
    working.expect_fin();
    drop((idle, working));
    parked.expect_fin();
    assert!(ordered.elapsed() >= Duration::from_millis(600));
    let mut late = std::net::TcpStream::connect(server.address);
    assert!(late.is_err() || late.as_mut().is_ok_and(|stream| stream.write_all(b"x").is_err()), "still accepting");
}
