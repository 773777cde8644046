//! What `oncilla-perf` refuses, as whoever calls it sees it: one sentence and an exit code, without a broker.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

fn perf(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncilla-perf")).args(args).output().expect("it runs")
}

/// Exit code and what was said about it.
fn said(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = perf(args);
    assert_eq!(String::from_utf8_lossy(&stdout), "", "nothing was measured");
    (status.code(), String::from_utf8(stderr).expect("text"))
}

/// Refused with one line that has all of these words.
fn refused(args: &[&str], words: &[&str]) {
    let (code, text) = said(args);
    assert_eq!(code, Some(1), "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn every_mode_explains_itself() {
    let help = String::from_utf8(perf(&["--help"]).stdout).expect("text");
    for mode in ["produce", "fetch", "e2e", "txn", "offsets", "connections", "partitions", "recovery", "floor"] {
        assert!(help.contains(&format!("\n  {mode} ")), "{mode}: {help}");
        let own = perf(&[mode, "--help"]);
        assert!(own.status.success() && own.stdout.len() > 200, "{mode}");
    }
}

#[test]
fn wrong_arguments_are_named_with_exit_code_2() {
    for (args, word) in [
        (&["produce", "--bootstrap", "127.0.0.1:1"][..], "--rate"),
        (&["produce", "--rate", "1"], "--bootstrap"),
        (&["e2e", "--bootstrap", "127.0.0.1:1", "--rate", "-1"], "-1"),
        (&["txn", "--bootstrap", "127.0.0.1:1", "--saturate", "--producers", "0"], "--producers"),
        (&["fetch", "--bootstrap", "127.0.0.1:1", "--tail", "--once"], "--once"),
        (&["recovery", "--bootstrap", "127.0.0.1:1"], "--command"),
    ] {
        let (code, text) = said(args);
        assert_eq!(code, Some(2), "{args:?}: {text}");
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn what_cannot_be_run_is_one_sentence_and_exit_code_1() {
    // A port that nobody listens on: bound, and not accepting.
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = held.local_addr().expect("its address").to_string();
    drop(held);
    let at = |mode, more: &[&'static str]| [&[mode, "--bootstrap", &nobody], more].concat();
    refused(&at("produce", &["--rate", "1"]), &["no broker is reached", &nobody]);
    refused(&at("produce", &["--rate", "1", "-X", "bootstrap.servers=a:1"]), &["bootstrap.servers", "set by"]);
    refused(&at("produce", &["--rate", "1", "--seconds", "inf"]), &["--seconds"]);
    refused(&at("recovery", &["--command", "exit 3"]), &["exit status: 3", &nobody]);
    refused(&at("recovery", &["--command", "true", "--record-bytes", "8"]), &["--record-bytes 8", "24"]);
}

#[test]
fn what_is_no_broker_is_named_so() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        // Read first, so that closing does not cut the answer off.
        let _ = peer.read(&mut [0; 1024]);
        let _ = peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    refused(&["produce", "--bootstrap", &address, "--saturate"], &["no broker is reached", "is no Kafka broker"]);
    server.join().expect("no panic");
}

#[test]
fn a_turn_that_does_not_end_is_killed_and_named() {
    // The kernel takes the connection, nobody ever answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("its address").to_string();
    let (code, text) =
        said(&["compare", "--a", &at, "--b", &at, "--turn-seconds-max", "1", "--", "produce", "--rate", "1"]);
    assert_eq!(code, Some(1), "{text}");
    for words in ["pair 1, A", "did not end within 1 s", "--turn-seconds-max"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
