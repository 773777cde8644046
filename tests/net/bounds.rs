//! What clients can make a shard hold.

use std::io::{Read, Write};
use std::time::Duration;

use oncilla::net::NetSettings;

use crate::toy::{FETCH, LARGE, PRODUCE, Server, frame, settings};

fn rss_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
    statm.split(' ').nth(1).expect("a second field").parse::<usize>().expect("a number") * 4096
}

#[test]
fn requests_beyond_the_budget_stay_with_their_clients() {
    let server =
        Server::start_alone(NetSettings { shard_bytes_max: 8 << 20, connection_bytes_max: 4 << 20, ..settings() });
    let before = rss_bytes();
    // 1,000 requests of 1 MiB over ten connections, each answered (with itself) after 5 ms.
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = server.connect();
            std::thread::spawn(move || {
                let request = frame(PRODUCE, 1, 5, &vec![3; 1 << 20]);
                let mut sending = client.stream.try_clone().expect("a second handle");
                let sender = std::thread::spawn(move || {
                    (0..100).for_each(|_| sending.write_all(&request).expect("open"));
                });
                for _ in 0..100 {
                    assert_eq!(client.receive().1.len(), 1 << 20);
                }
                sender.join().expect("sent");
            })
        })
        .collect();
    let mut most = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        most = most.max(rss_bytes().saturating_sub(before));
        std::thread::sleep(Duration::from_millis(5));
    }
    clients.into_iter().for_each(|client| client.join().expect("all answered"));
    // The clients of this process hold 2 MiB each, and answers of 1 MiB wait beside the 8 MiB budget.
    assert!(most < 100 << 20, "{} MiB for a budget of 8 MiB", most >> 20);
    assert!(server.counters.budget_waits.get() > 0, "the budget was never used up");
}

#[test]
fn a_frame_larger_than_the_budget_still_passes() {
    let server =
        Server::start_alone(NetSettings { shard_bytes_max: 1 << 20, connection_bytes_max: 1 << 20, ..settings() });
    let mut client = server.connect();
    let mut other = server.connect();
    for k in 0..3 {
        client.send(&frame(FETCH, k, 0, &vec![5; 10 << 20]));
        assert_eq!(client.receive().1.len(), 10 << 20);
        other.send(&frame(FETCH, k, 0, b"small"));
        assert_eq!(other.receive(), (k, b"small".to_vec()));
    }
}

#[test]
fn case_117_a_length_alone_allocates_next_to_nothing() {
    let server = Server::start_alone(settings());
    let mut clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    let before = rss_bytes();
    for client in &mut clients {
        client.send(&(100i32 << 20).to_be_bytes());
    }
    let mut other = server.connect();
    other.send(&frame(FETCH, 1, 0, b"served"));
    assert_eq!(other.receive(), (1, b"served".to_vec()));
    let grown = rss_bytes().saturating_sub(before);
    assert!(grown < 30 << 20, "{} MiB for 300 lengths of 100 MiB", grown >> 20);
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let server = Server::start_alone(settings());
    let before = rss_bytes();
    let mut client = server.connect();
    let mut sending = client.stream.try_clone().expect("a second handle");
    // 300 answers of 4 MiB, 1.2 GiB in all, which nobody reads for a while.
    let sender = std::thread::spawn(move || {
        (0..300).for_each(|k| sending.write_all(&frame(LARGE, k, 4 << 20, &[0; 30_000])).expect("open"));
    });
    std::thread::sleep(Duration::from_millis(500));
    let grown = rss_bytes().saturating_sub(before);
    assert!(grown < 60 << 20, "{} MiB of answers held", grown >> 20);
    assert!(server.counters.slow_reader_stops.get() > 0);
    let mut buffer = vec![0; 1 << 20];
    let mut left = 300 * ((4 << 20) + 8);
    while left > 0 {
        let received = client.stream.read(&mut buffer).expect("open");
        assert!(received > 0, "ended with {left} bytes to come");
        left -= received;
    }
    sender.join().expect("sent");
}

#[test]
fn a_thousand_connections_are_served_and_cost_little_when_idle() {
    let server = Server::start_alone(settings());
    let before = rss_bytes();
    let mut clients: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    for round in 0..3 {
        for client in &mut clients {
            client.send(&frame(FETCH, round, 0, &[9; 1000]));
        }
        for client in &mut clients {
            assert_eq!(client.receive(), (round, vec![9; 1000]));
        }
    }
    let each = rss_bytes().saturating_sub(before) / 1000;
    println!("{each} bytes for an idle connection");
    assert!(each < 16 << 10, "{each} bytes for an idle connection");
    assert_eq!(server.counters.connections.get(), 1000);
}
