//! The load and its groups against brokers of a few words, the odd and the hostile among them.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use oncilla::client::Client;

use super::commit::Commit;
use super::groups::Groups;
use super::lane::{ANSWER_WAIT_NS, Lane};
use super::load::Load;
use super::peer::{API_VERSIONS, Asked, DELETE_GROUPS, FIND_COORDINATOR, METADATA, OFFSET_COMMIT, Peer, Say};
use crate::load::clock::{Clock, Monotonic};
use crate::load::recorder::{Measured, Recorder, Window};
use crate::load::sender::Pace;
use crate::target::Topic;

const MS: u64 = 1_000_000;

type Script = Box<dyn FnMut(&Asked, &str) -> Say + Send>;

fn lanes(address: &str, count: usize, partitions: i32) -> Vec<Lane> {
    let lane = |number| {
        let topic = Topic { name: "t".into(), partitions };
        let stream = TcpStream::connect(address).expect("a peer");
        Lane::new(Commit { group: format!("g{number}"), topic }, address.into(), 9, stream).expect("a lane")
    };
    (0..count).map(lane).collect()
}

/// What a load gave, and its first refusal; the error in whole if it could not be run.
fn loaded(lanes: &[Lane], pace: Pace, seconds: f64, stop: bool) -> Result<(Measured, Option<String>), String> {
    let clock = Monotonic::begin();
    let window = Window::after(clock.now_ns(), 0.0, seconds);
    let recorder = Arc::new(Recorder::new("offset_commit", window, false));
    let stop = AtomicBool::new(stop);
    let load = Load { clock, recorder: &recorder, lanes, pace, begin_ns: window.begin_ns, readers: 2, stop: &stop };
    load.run().map_err(|error| format!("{error:#}"))?;
    Ok((recorder.finish(clock.now_ns()), recorder.failures().map(|(_, first)| first)))
}

#[test]
fn commits_are_out_together_and_each_counts_from_its_own_time() {
    let peer = Peer::start(20, |asked, _| asked.committed("t", &[0, 0]));
    let (measured, refusal) = loaded(&lanes(&peer.address, 1, 2), Pace::Rate(1000.0), 0.3, false).expect("a run");
    assert_eq!((refusal, measured.quantity.failed), (None, 0));
    assert_eq!(measured.quantity.count, 300);
    assert!(peer.held.load(Ordering::SeqCst) >= 20, "nobody waits for an answer");
    // The first of twenty was due 19 ms before the last of them, which all of them waited for.
    assert!(measured.total.max() >= 19 * MS, "{}", measured.total.max());
}

#[test]
fn saturation_keeps_so_many_commits_of_each_group_out() {
    let peer = Peer::start(3, |asked, _| asked.committed("t", &[0]));
    let (measured, refusal) = loaded(&lanes(&peer.address, 4, 1), Pace::Saturate(3), 1.0, false).expect("a run");
    assert_eq!(refusal, None);
    assert!(measured.quantity.count > 12, "every answer sends the next: {}", measured.quantity.count);
    assert_eq!(peer.held.load(Ordering::SeqCst), 3, "and not one more");
}

#[test]
fn a_commit_that_is_refused_is_a_failed_operation_and_the_run_goes_on() {
    let mut count = 0;
    let peer = Peer::start(1, move |asked, _| {
        count += 1;
        asked.committed("t", if count % 4 == 0 { &[0, 16] } else { &[0, 0] })
    });
    let (measured, refusal) = loaded(&lanes(&peer.address, 3, 2), Pace::Rate(500.0), 0.2, false).expect("a run");
    assert_eq!((measured.quantity.count, measured.quantity.failed), (75, 25));
    let refusal = refusal.expect("a refusal");
    assert!(refusal.starts_with("commit t-1 for group g") && refusal.ends_with("NotCoordinator (16)"), "{refusal}");
}

#[test]
fn a_coordinator_that_closes_ends_the_run() {
    let mut count = 0;
    let peer = Peer::start(1, move |asked, _| {
        count += 1;
        if count == 3 { Say::Close } else { asked.committed("t", &[0]) }
    });
    let error = loaded(&lanes(&peer.address, 1, 1), Pace::Saturate(1), 20.0, false).err().expect("it ends");
    let expected = "group g0 at ADDRESS: the coordinator closed the connection with 1 commits without an answer";
    assert_eq!(error, expected.replace("ADDRESS", &peer.address));
}

#[test]
fn what_is_no_answer_ends_the_run() {
    let twice = |asked: &Asked| match asked.committed("t", &[0]) {
        Say::Bytes(bytes) => Say::Bytes(bytes.repeat(2)),
        Say::Close => Say::Close,
    };
    let other = |asked: &Asked| Asked { correlation_id: 77, body: asked.body.clone(), ..*asked }.committed("t", &[0]);
    let scripts: [(&str, Script); 5] = [
        ("no Kafka broker", Box::new(|_, _| Say::Bytes(b"HTTP/1.1 400 Bad Request\r\n".to_vec()))),
        ("request 77 instead of 0", Box::new(move |asked, _| other(asked))),
        ("nobody asked for", Box::new(move |asked, _| twice(asked))),
        ("cannot be read", Box::new(|_, _| Say::Bytes(b"\0\0\0\x04\0\0\0\0".to_vec()))),
        ("about 2 partitions to a commit of 1", Box::new(|asked, _| asked.committed("t", &[0, 0]))),
    ];
    for (words, script) in scripts {
        let peer = Peer::start(1, script);
        let error = loaded(&lanes(&peer.address, 1, 1), Pace::Rate(1.0), 0.5, false).err().expect("it ends");
        assert!(error.starts_with("group g0 at 127.0.0.1:") && error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_coordinator_that_says_nothing_is_not_waited_for_for_ever() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let lane = &lanes(&silent.local_addr().expect("bound").to_string(), 1, 1)[0];
    lane.overdue(u64::MAX).expect("nothing is out");
    lane.send(5, 100).expect("sent");
    lane.send(6, 200).expect("sent");
    lane.overdue(100 + ANSWER_WAIT_NS).expect("there is time");
    let error = lane.overdue(101 + ANSWER_WAIT_NS).expect_err("there is none").to_string();
    assert_eq!(error, "the coordinator has been silent for 30 s with 2 commits without an answer");
}

#[test]
fn an_interrupt_ends_the_sending_and_not_the_waiting() {
    for pace in [Pace::Rate(1000.0), Pace::Saturate(2)] {
        let peer = Peer::start(1, |asked, _| asked.committed("t", &[0]));
        let lanes = lanes(&peer.address, 1, 1);
        let (measured, _) = loaded(&lanes, pace, 60.0, true).expect("a run");
        let begun = if pace == Pace::Saturate(2) { 2 } else { 0 };
        assert_eq!((measured.quantity.count, lanes[0].without_answer()), (begun, 0), "{pace:?}");
    }
}

/// Groups `a` and `b` at a peer: what came of them, and the keys of what it was asked about them.
fn opened(
    keep: bool,
    find_max: i16,
    mut script: impl FnMut(&Asked, usize, &str) -> Option<Say> + Send + 'static,
) -> (Groups, Result<usize, String>, Arc<Mutex<Vec<i16>>>) {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let noted = keys.clone();
    let peer = Peer::start(1, move |asked, address| {
        let mut keys = noted.lock().expect("no panic");
        let before = keys.iter().filter(|key| **key == asked.key).count();
        if ![METADATA, API_VERSIONS].contains(&asked.key) {
            keys.push(asked.key);
        }
        let ordinary = || match asked.key {
            OFFSET_COMMIT => asked.committed("t", &[0]),
            _ => asked.ordinary(address, find_max),
        };
        script(asked, before, address).unwrap_or_else(ordinary)
    });
    let mut groups = Groups::new(&peer.address, keep);
    let mut client = Client::connect(&peer.address).expect("a peer");
    let names = ["a", "b"].map(str::to_owned);
    let lanes = groups.open(&mut client, &names, &Topic { name: "t".into(), partitions: 1 });
    (groups, lanes.map(|lanes| lanes.len()).map_err(|error| format!("{error:#}")), keys)
}

#[test]
fn coordinators_are_looked_for_again_until_each_group_has_committed() {
    let (_groups, lanes, keys) = opened(true, 4, |asked, before, address| match (asked.key, before) {
        (FIND_COORDINATOR, 0) => Some(asked.coordinator(address, 15)),
        (OFFSET_COMMIT, 0) => Some(asked.committed("t", &[16])),
        _ => None,
    });
    assert_eq!(lanes, Ok(2));
    let again = [FIND_COORDINATOR, FIND_COORDINATOR, OFFSET_COMMIT, FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_COMMIT];
    assert_eq!(*keys.lock().expect("no panic"), again);
}

#[test]
fn what_does_not_settle_is_an_error_at_once() {
    let refused = |asked: &Asked, _, _: &str| (asked.key == OFFSET_COMMIT).then(|| asked.committed("t", &[24]));
    let error = opened(true, 4, refused).1.expect_err("it is refused");
    assert!(error.contains("the first commit at 127.0.0.1:") && error.contains("(24)"), "{error}");
    let nowhere = |asked: &Asked, _, at: &str| (asked.key == FIND_COORDINATOR).then(|| asked.coordinator(at, 24));
    let error = opened(true, 4, nowhere).1.expect_err("it is refused");
    assert!(error.contains("coordinator of group a") && error.contains("(24)"), "{error}");
    let error = opened(true, 3, |_, _, _| None).1.expect_err("it is too old");
    assert!(error.contains("FindCoordinator 4 or later is needed"), "{error}");
}

#[test]
fn groups_go_with_the_run_unless_they_are_kept() {
    for keep in [false, true] {
        let gone = Arc::new(Mutex::new(Vec::new()));
        let noted = gone.clone();
        let (groups, lanes, _) = opened(keep, 4, move |asked, _, _| {
            if asked.key == DELETE_GROUPS {
                noted.lock().expect("no panic").extend(asked.deleted());
            }
            None
        });
        assert_eq!(lanes, Ok(2));
        drop(groups);
        let expected: &[&str] = if keep { &[] } else { &["a", "b"] };
        assert_eq!(*gone.lock().expect("no panic"), expected);
    }
}

#[test]
fn a_group_that_cannot_go_is_named_and_one_that_is_gone_is_no_fault() {
    for (code, says) in [(69, None), (68, Some("delete group a: NonEmptyGroup (68)"))] {
        let script = move |asked: &Asked, _, _: &str| (asked.key == DELETE_GROUPS).then(|| asked.deletion(code));
        let (groups, _, _) = opened(true, 4, script);
        assert_eq!(groups.delete().err().map(|error| error.to_string()).as_deref(), says);
    }
}
