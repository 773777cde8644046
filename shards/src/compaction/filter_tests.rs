use super::super::testing::{Log, header};
use crate::batch::Attributes;
use crate::batch::BatchBuilder;
use crate::batch::ControlKind::{Abort, Commit};
use crate::ids::{Offset, TimestampMs};

const MANY: usize = 1000;

/// Appends something unrelated and rolls, so that a next clean has something to do and a last batch of its own.
fn more(log: &mut Log) {
    let key = format!("filler {}", log.next);
    log.put(&[(&key, Some("x"))]);
    log.roll();
}

fn clean(log: &mut Log) {
    more(log);
    log.clean(MANY, MANY);
}

fn values(log: &Log, key: &str) -> Vec<Option<String>> {
    let text = |value: Vec<u8>| String::from_utf8(value).expect("text");
    log.committed().into_iter().filter(|seen| seen.1 == key.as_bytes()).map(|seen| seen.2.map(text)).collect()
}

fn markers(log: &Log) -> Vec<i64> {
    let offset = |batch: &Vec<u8>| header(batch).base_offset.0;
    log.batches().filter(|batch| header(batch).attributes.is_control()).map(offset).collect()
}

#[test]
fn only_the_newest_value_of_a_key_stays_and_offsets_do_not_change() {
    let mut log = Log::new();
    log.put(&[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]);
    log.put(&[("b", Some("2")), ("", Some("empty keys are keys"))]);
    log.roll();
    clean(&mut log);
    assert_eq!(log.offsets(), [2, 3, 4, 5]);
    assert_eq!((log.end(), log.cleaned_to), (Offset(6), Offset(6)));
}

#[test]
fn records_without_a_key_go() {
    let mut log = Log::new();
    log.append(BatchBuilder::new().record(None, Some(b"v")).record(Some(b"k"), Some(b"v")).build());
    clean(&mut log);
    assert_eq!(log.offsets(), [1, 2]);
}

#[test]
fn a10_tombstones_stay_for_delete_retention_from_the_first_clean_that_saw_them() {
    let mut log = Log::new();
    log.put(&[("k", Some("1"))]);
    log.put(&[("k", None)]);
    log.now = TimestampMs(log.now.0 + 1_000_000);
    clean(&mut log);
    assert_eq!(values(&log, "k"), [None], "old when it was seen, yet it has its time from now on");
    let horizon = header(log.batches().next().expect("a batch")).delete_horizon();
    assert_eq!(horizon, Some(TimestampMs(log.now.0 + log.delete_retention_ms)));
    log.now = TimestampMs(log.now.0 + log.delete_retention_ms - 1);
    clean(&mut log);
    assert_eq!(values(&log, "k"), [None]);
    log.now = TimestampMs(log.now.0 + 1);
    clean(&mut log);
    assert_eq!(values(&log, "k"), []);
}

#[test]
fn a10_a_tombstone_loses_to_a_newer_value_at_once() {
    let mut log = Log::new();
    log.put(&[("k", None)]);
    log.put(&[("k", Some("new"))]);
    log.roll();
    clean(&mut log);
    assert_eq!(values(&log, "k"), [Some("new".to_owned())]);
}

#[test]
fn case_104_markers_are_no_records_of_one_key_and_aborted_data_stays_hidden() {
    let mut log = Log::new();
    log.put_in_txn(1, 0, "bad", Some("aborted"));
    log.end_txn(1, 0, Abort);
    log.put_in_txn(2, 0, "k2", Some("aborted"));
    log.end_txn(2, 0, Abort);
    for n in 0..50 {
        log.put_in_txn(3, n, &format!("c{}", n % 5), Some("committed"));
        log.end_txn(3, 0, Commit);
        log.roll();
        clean(&mut log);
        assert!(values(&log, "bad").is_empty() && values(&log, "k2").is_empty(), "after {n}");
        log.now = TimestampMs(log.now.0 + 300);
        let (producers, _) = log.replayed();
        assert_eq!(producers.open_transactions(), 0, "data is never left without its marker");
    }
    assert_eq!(log.committed().iter().filter(|seen| seen.1.starts_with(b"c")).count(), 5);
}

#[test]
fn case_105_an_aborted_value_does_not_take_the_place_of_a_committed_one() {
    let mut log = Log::new();
    log.put_in_txn(1, 0, "k", Some("v1"));
    log.end_txn(1, 0, Commit);
    log.put_in_txn(1, 1, "k", Some("v2"));
    log.end_txn(1, 0, Abort);
    log.roll();
    clean(&mut log);
    assert_eq!(values(&log, "k"), [Some("v1".to_owned())]);
    assert!(!log.offsets().contains(&2), "the aborted record is gone");
}

#[test]
fn case_105_nothing_at_or_above_the_stable_offset_is_cleaned() {
    let mut log = Log::new();
    log.put(&[("k", Some("v1"))]);
    log.roll();
    log.put_in_txn(1, 0, "k", Some("v3"));
    log.roll();
    clean(&mut log);
    assert_eq!(log.offsets()[..2], [0, 1]);
    assert_eq!(log.cleaned_to, Offset(1));
    log.end_txn(1, 0, Commit);
    log.roll();
    clean(&mut log);
    assert_eq!(values(&log, "k"), [Some("v3".to_owned())]);
}

#[test]
fn case_107_a_marker_stays_until_all_data_of_its_transaction_is_gone_and_its_time_is_over() {
    let mut log = Log::new();
    log.put_in_txn(1, 0, "a", Some("1"));
    for n in 1..4 {
        log.roll();
        log.put_in_txn(1, n, "b", Some("1"));
    }
    log.roll();
    let marker = log.end_txn(1, 0, Commit);
    log.roll();
    // The producer goes on elsewhere and is forgotten here, so nothing has to be kept for its sequences.
    log.producers.expire(TimestampMs(i64::MAX), 0);
    for _ in 0..3 {
        more(&mut log);
        log.clean(MANY, 1);
        log.now = TimestampMs(log.now.0 + log.delete_retention_ms + 1);
        assert!(markers(&log).contains(&marker.0), "a=1 and b=1 are there");
    }
    log.put(&[("a", Some("2")), ("b", Some("2"))]);
    log.roll();
    clean(&mut log);
    assert!(markers(&log).contains(&marker.0), "this clean has still seen data of it");
    clean(&mut log);
    assert!(markers(&log).contains(&marker.0), "without data: its time begins");
    log.now = TimestampMs(log.now.0 + log.delete_retention_ms - 1);
    clean(&mut log);
    assert!(markers(&log).contains(&marker.0));
    log.now = TimestampMs(log.now.0 + 1);
    clean(&mut log);
    assert!(!markers(&log).contains(&marker.0));
    assert_eq!((values(&log, "a").len(), values(&log, "b").len()), (1, 1));
}

#[test]
fn case_108_the_end_of_what_was_cleaned_can_be_reached() {
    let mut log = Log::new();
    log.put(&[("k", Some("1"))]);
    log.put(&[("gone", None)]);
    log.put_in_txn(1, 0, "t", Some("1"));
    let marker = log.end_txn(1, 0, Abort);
    log.roll();
    log.producers.expire(TimestampMs(i64::MAX), 0);
    for _ in 0..4 {
        log.now = TimestampMs(log.now.0 + log.delete_retention_ms + 1);
        log.cleaned_to = Offset(0);
        log.clean(MANY, MANY);
        assert_eq!(log.end(), marker.plus(1), "the log end stays where it was");
    }
    let last = header(log.batches().last().expect("a batch"));
    assert_eq!((last.record_count, last.attributes, last.is_idempotent()), (0, Attributes(0), false));
    assert_eq!(log.offsets(), [0]);
}

#[test]
fn case_113_a_marker_without_data_does_not_hide_what_the_producer_commits_later() {
    let mut log = Log::new();
    log.put_in_txn(1, 0, "x", Some("aborted"));
    log.end_txn(1, 0, Abort);
    log.roll();
    log.put_in_txn(1, 1, "y", Some("committed"));
    log.end_txn(1, 0, Commit);
    log.roll();
    clean(&mut log);
    assert_eq!((markers(&log), values(&log, "x").len()), (vec![1, 3], 0));
    assert_eq!(values(&log, "y"), [Some("committed".to_owned())]);
}

#[test]
fn a10_the_last_batch_of_a_producer_stays_without_its_records() {
    let mut log = Log::new();
    for sequence in 0..3 {
        let batch = BatchBuilder::new().producer(8, 4, sequence).record(Some(b"k"), Some(b"v"));
        log.append(batch.build());
    }
    log.put(&[("k", Some("from somebody else"))]);
    log.roll();
    clean(&mut log);
    let empty: Vec<_> = log.batches().map(|batch| header(batch)).filter(|h| h.record_count == 0).collect();
    assert_eq!(empty.iter().map(|h| (h.base_offset.0, h.base_sequence.0)).collect::<Vec<_>>(), [(2, 2)]);
    let (producers, _) = log.replayed();
    let view = producers.describe().next().expect("a8: a start from the log alone knows it");
    assert_eq!((view.last_sequence.0, view.epoch.0), (2, 4));
    log.producers.expire(TimestampMs(i64::MAX), 0);
    clean(&mut log);
    assert!(log.batches().all(|batch| header(batch).record_count > 0), "nobody asks for it any more");
}

#[test]
fn a10_a_marker_that_is_the_last_thing_of_a_producer_stays() {
    let mut log = Log::new();
    log.put_in_txn(1, 0, "k", Some("aborted"));
    log.end_txn(1, 1, Abort);
    log.roll();
    for _ in 0..3 {
        clean(&mut log);
        log.now = TimestampMs(log.now.0 + log.delete_retention_ms + 1);
    }
    assert_eq!(markers(&log), [1]);
    let view = log.replayed().0.describe().next().expect("known");
    assert_eq!((view.epoch.0, view.coordinator_epoch), (1, 3), "the epoch that the marker brought still fences");
}

#[test]
fn a_full_key_map_ends_the_clean_and_the_next_one_goes_on() {
    let mut log = Log::new();
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    for round in ["1", "2"] {
        let records: Vec<_> = keys.iter().map(|key| (key.as_str(), Some(round))).collect();
        log.put(&records);
        log.roll();
    }
    let state = log.state();
    let mut ends = vec![];
    while log.cleaned_to < log.end() && ends.len() < 100 {
        log.clean(10, 2);
        ends.push(log.cleaned_to.0);
        assert_eq!(log.state(), state);
    }
    assert_eq!(ends, [9, 18, 27, 36, 45, 54, 63, 72, 80], "nine keys at a time, inside of batches too");
    assert_eq!(log.offsets(), (40..80).collect::<Vec<_>>());
}
