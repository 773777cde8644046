//! Markers, the last stable offset and the aborted list, by the cases of the contract.

use bytes::Bytes;

use super::super::testing::{NOW, VERSION, partition, plain, rolling, rules, write};
use super::super::{AbortedIndex, Append, LogRules, Partition, Placed, WaiterId, WatchId};
use super::*;
use crate::batch::{AppendRules, BatchBuilder, TimestampType};
use crate::ids::{Offset, Sequence};
use crate::partition::testing::{append, refused, stored, told, write_one};
use crate::producers::{Permit, Verify};

const P: i64 = 7;
const Q: i64 = 8;
const FENCED: ErrorCode = ErrorCode::InvalidProducerEpoch;
const ZOMBIE: ErrorCode = ErrorCode::TransactionCoordinatorFenced;

/// A batch of a transaction.
fn txn(producer: i64, epoch: i16, sequence: i32, records: usize) -> Bytes {
    let batch = BatchBuilder::new().producer(producer, epoch, sequence).transactional();
    Bytes::from((0..records).fold(batch, |batch, _| batch.record_at(NOW, None, Some(b"v"), &[])).build())
}

fn end(producer: i64, epoch: i16, kind: ControlKind) -> EndMarker {
    EndMarker {
        producer_id: ProducerId(producer),
        epoch: ProducerEpoch(epoch),
        coordinator_epoch: 2,
        transaction_version: 0,
        kind,
    }
}

fn abort(log: &mut Partition, producer: i64, epoch: i16) -> Placed {
    log.append_marker(&end(producer, epoch, ControlKind::Abort), NOW).expect("taken")
}

fn commit(log: &mut Partition, producer: i64, epoch: i16) -> Placed {
    log.append_marker(&end(producer, epoch, ControlKind::Commit), NOW).expect("taken")
}

/// Code of a marker at these epochs, and what becomes of it.
fn marked(log: &mut Partition, epoch: i16, coordinator_epoch: i32, version: i16) -> Result<(), ErrorCode> {
    let marker = EndMarker { coordinator_epoch, transaction_version: version, ..end(P, epoch, ControlKind::Abort) };
    let answer = log.append_marker(&marker, NOW).map(|_| ()).map_err(|refusal| refusal.code);
    if answer.is_ok() {
        write(log, NOW);
    }
    answer
}

fn write_all(log: &mut Partition) {
    while let Some(plan) = log.take_write(NOW) {
        let bytes = stored(&plan);
        log.wrote(bytes, 1);
    }
}

fn stable(log: &Partition) -> i64 {
    log.last_stable_offset().0
}

/// Producer, first offset and marker of what a reader from `from` to `upper` is told.
fn listed(log: &Partition, from: i64, upper: i64) -> Vec<(i64, i64, i64)> {
    let aborted = log.aborted(Offset(from), Offset(upper));
    aborted.iter().map(|a| (a.producer_id.0, a.first_offset.0, a.marker_offset.0)).collect()
}

/// A log with an open transaction of `P` at epoch 5.
fn open_at_5() -> Partition {
    let mut log = partition(rules());
    write_one(&mut log, &txn(P, 5, 0, 3));
    log
}

#[test]
fn f19_a_marker_of_path_a_needs_the_epoch_of_the_producer_or_a_higher_one() {
    for version in [0, 1] {
        assert_eq!(marked(&mut open_at_5(), 4, 2, version), Err(FENCED));
        assert_eq!([5, 6].map(|epoch| marked(&mut open_at_5(), epoch, 2, version)), [Ok(()); 2]);
    }
}

#[test]
fn f20_a_marker_of_path_b_needs_a_higher_epoch_and_may_come_again() {
    for version in [2, 3, 127] {
        let mut log = open_at_5();
        assert_eq!(marked(&mut log, 5, 2, version), Err(FENCED));
        assert_eq!([6, 6].map(|epoch| marked(&mut log, epoch, 2, version)), [Ok(()); 2], "case 138: again is no error");
        assert_eq!(listed(&log, 0, 9), [(P, 0, 3)], "one entry");
        assert_eq!(marked(&mut log, 5, 2, version), Err(FENCED));
        assert_eq!(log.next_offset(), Offset(5));
    }
}

#[test]
fn a6_1_at_the_last_epoch_there_is_a_marker_of_path_b_may_be_equal() {
    let mut log = partition(rules());
    write_one(&mut log, &txn(P, i16::MAX, 0, 1));
    assert_eq!(marked(&mut log, i16::MAX, 2, 2), Ok(()));
    assert_eq!(stable(&log), 2);
}

#[test]
fn a6_1_negative_numbers_write_nothing() {
    let mut log = open_at_5();
    let sent = end(P, 6, ControlKind::Abort);
    for bad in [
        EndMarker { producer_id: ProducerId(-1), ..sent },
        EndMarker { epoch: ProducerEpoch(-1), ..sent },
        EndMarker { transaction_version: -1, ..sent },
    ] {
        assert_eq!(log.append_marker(&bad, NOW).map_err(|refusal| refusal.code), Err(ErrorCode::InvalidRequest));
    }
    assert_eq!((log.next_offset(), stable(&log)), (Offset(3), 0));
}

#[test]
fn f21_a_zombie_coordinator_is_52_and_learns_who_came_after_it() {
    for version in [0, 2] {
        let mut log = open_at_5();
        assert_eq!(marked(&mut log, 6, 2, version), Ok(()));
        for epoch in [6, 7] {
            assert_eq!(marked(&mut log, epoch, 1, version), Err(ZOMBIE), "also when nothing is open");
        }
        assert_eq!(marked(&mut log, 4, 1, version), Err(FENCED), "epochs come first");
        let zombie = EndMarker { coordinator_epoch: 1, ..end(P, 6, ControlKind::Abort) };
        let refusal = MarkerRefusal { code: ZOMBIE, coordinator_epoch: 2 };
        assert_eq!(log.append_marker(&zombie, NOW), Err(refusal));
        write_one(&mut log, &txn(P, 6, 0, 1));
        assert_eq!(marked(&mut log, 7, 1, version), Err(ZOMBIE), "with something open too");
    }
}

#[test]
fn f22_a_marker_of_an_unknown_producer_fences_it_and_lists_nothing() {
    let mut log = partition(rules());
    abort(&mut log, P, 5);
    write(&mut log, NOW);
    assert_eq!((listed(&log, 0, 1), stable(&log)), (vec![], 1), "case 24, case 67");
    assert_eq!(refused(&mut log, &txn(P, 4, 0, 1)), FENCED);
    assert_eq!(refused(&mut log, &txn(P, 5, 17, 1)), ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(append(&mut log, &txn(P, 5, 0, 1)).base, Offset(1));
}

#[test]
fn f23_after_a_commit_of_path_a_sequences_go_on_and_a_resent_batch_is_a_duplicate() {
    let mut log = open_at_5();
    commit(&mut log, P, 5);
    let Append::Accepted(again) = log.append(&txn(P, 5, 0, 3), VERSION, Permit::Unchecked, NOW) else {
        panic!("a duplicate")
    };
    assert!(again.duplicate && again.base == Offset(0));
    assert_eq!(append(&mut log, &txn(P, 5, 3, 1)).base, Offset(4));
}

#[test]
fn f24_a9_the_stable_offset_waits_for_each_transaction_and_for_its_marker_to_be_durable() {
    let mut log = partition(rules());
    write_one(&mut log, &plain(10, 1));
    write_one(&mut log, &txn(P, 0, 0, 10));
    write_one(&mut log, &txn(Q, 0, 0, 10));
    assert_eq!((stable(&log), log.high_watermark()), (10, Offset(30)));
    assert_eq!(commit(&mut log, P, 0).base, Offset(30));
    assert_eq!(stable(&log), 10, "the marker is not durable");
    write(&mut log, NOW);
    assert_eq!((stable(&log), log.high_watermark()), (20, Offset(31)));
    write_one(&mut log, &plain(9, 1));
    commit(&mut log, Q, 0);
    assert_eq!(stable(&log), 20);
    write(&mut log, NOW);
    assert_eq!(stable(&log), 41);
}

#[test]
fn f25_a9_a_log_start_inside_a_transaction_is_where_it_is_stable_and_the_transaction_goes_on() {
    let mut log = partition(rules());
    write_one(&mut log, &txn(P, 0, 0, 10));
    log.set_log_start(Offset(5));
    assert_eq!(stable(&log), 5);
    write_one(&mut log, &txn(P, 0, 10, 2));
    assert_eq!(stable(&log), 5);
    abort(&mut log, P, 0);
    write(&mut log, NOW);
    assert_eq!((stable(&log), listed(&log, 5, 13)), (13, vec![(P, 0, 12)]), "with its old first offset");
    log.set_log_start(Offset(13));
    assert_eq!((stable(&log), log.producers().len()), (13, 1), "case 80");
}

#[test]
fn f26_a10_an_aborted_transaction_over_three_segments_is_listed_up_to_its_marker() {
    let batch = txn(P, 0, 0, 4);
    let mut log = partition(rolling(batch.len() as i32));
    for round in 0..3 {
        write_one(&mut log, &txn(P, 0, round * 4, 4));
    }
    write_one(&mut log, &plain(1, 1));
    abort(&mut log, P, 0);
    write(&mut log, NOW);
    write_one(&mut log, &plain(1, 1));
    assert!(log.segments().all().len() >= 5, "a segment each");
    for from in 0..=13 {
        assert_eq!(listed(&log, from, from + 1), [(P, 0, 13)], "from {from}");
    }
    assert_eq!(listed(&log, 14, 15), []);
    assert_eq!(listed(&log, 0, 0), [], "nothing before it began");
}

#[test]
fn f27_a10_what_the_producer_committed_after_its_abort_is_not_hidden() {
    let mut log = partition(rules());
    write_one(&mut log, &txn(P, 0, 0, 10));
    abort(&mut log, P, 0);
    write_one(&mut log, &txn(P, 0, 10, 9));
    commit(&mut log, P, 0);
    write(&mut log, NOW);
    assert_eq!(listed(&log, 10, 21), [(P, 0, 10)], "case 68: the marker's own offset");
    assert_eq!(listed(&log, 11, 21), []);
}

#[test]
fn a10_a_transaction_inside_another_open_one_is_listed_once_the_outer_one_ends() {
    let mut log = partition(rules());
    write_one(&mut log, &txn(P, 0, 0, 1));
    write_one(&mut log, &txn(Q, 0, 0, 1));
    abort(&mut log, Q, 0);
    abort(&mut log, P, 0);
    write_all(&mut log);
    assert_eq!(listed(&log, 0, 1), [(P, 0, 3)], "the search does not stop at the inner one");
    assert_eq!(listed(&log, 0, 2), [(Q, 1, 2), (P, 0, 3)], "case 82, in the order of the markers");
    assert_eq!(listed(&log, 3, 4), [(P, 0, 3)]);
}

#[test]
fn f33_an_abort_between_verification_and_append_leaves_nothing_open() {
    let mut log = partition(rules());
    let batch = txn(P, 0, 0, 1);
    let Verify::Ask(guard) = log.verify(&batch, false, NOW) else { panic!("it is not open") };
    abort(&mut log, P, 0);
    let Append::Refused(refusal) = log.append(&batch, VERSION, Permit::Asked(guard), NOW) else {
        panic!("its verification is over")
    };
    assert_eq!((refusal.code, refusal.names_log_start), (ErrorCode::InvalidTxnState, true));
    assert_eq!((log.producers().open_transactions(), log.next_offset()), (0, Offset(1)));
}

#[test]
fn a4_a_batch_of_no_transaction_needs_no_verification_and_one_that_is_none_is_left_to_the_append() {
    let mut log = partition(rules());
    let anonymous = BatchBuilder::new().transactional().record(None, Some(b"v")).build();
    for batch in [&plain(1, 1)[..], &anonymous, b"", b"no batch at all"] {
        assert_eq!(log.verify(batch, true, NOW), Verify::Open);
    }
    assert_eq!(log.producers().open_verifications(), 0);
    assert_eq!(log.verify(&txn(P, 0, 0, 1)[..61], true, NOW), log.verify(&txn(P, 0, 0, 1), true, NOW), "a header");
}

#[test]
fn a6_a_marker_passes_max_message_bytes_and_carries_the_brokers_clock() {
    for (clock, attributes) in [(TimestampType::CreateTime, 0x30), (TimestampType::LogAppendTime, 0x38)] {
        let append =
            AppendRules { max_message_bytes: 10, segment_bytes: 10, timestamp_type: clock, ..AppendRules::default() };
        let mut log = partition(LogRules { append, ..rules() });
        let at = TimestampMs(NOW.0 + 5);
        let placed = log.append_marker(&end(P, 3, ControlKind::Commit), at).expect("taken");
        let (plan, _) = write(&mut log, at);
        let bytes = stored(&plan);
        let header = BatchHeader::parse(&bytes).expect("a batch");
        assert_eq!((bytes.len(), header.attributes.0, header.base_offset), (78, attributes, placed.base));
        assert_eq!((header.max_timestamp, header.leader_epoch), (at, log.epoch()));
        assert_eq!((header.base_sequence, header.producer_epoch), (Sequence::NONE, ProducerEpoch(3)));
        assert!(crate::batch::crc_matches(&bytes));
        let record = ControlRecord { kind: ControlKind::Commit, coordinator_epoch: 2 };
        assert_eq!(ControlRecord::of_batch(&bytes), Some(record));
    }
}

#[test]
fn a6_markers_that_are_due_together_are_one_write_which_is_durable_even_on_a_relaxed_topic() {
    let mut log = partition(LogRules { flush_messages: 1000, ..rules() });
    for producer in [P, Q] {
        assert!(!write_one(&mut log, &txn(producer, 0, 0, 1)).0.durable);
    }
    for (waiter, producer) in [(1, P), (2, Q)] {
        let placed = commit(&mut log, producer, 0);
        log.wait(placed.end, WaiterId(waiter));
    }
    assert_eq!(stable(&log), 0);
    let (plan, progress) = write(&mut log, NOW);
    assert_eq!((plan.batches.len(), plan.durable), (2, true));
    assert_eq!(told(&progress), [(1, Ok(())), (2, Ok(()))]);
    assert_eq!(stable(&log), 4);
    assert!(!write_one(&mut log, &plain(1, 1)).0.durable);
}

#[test]
fn case_160_readers_wake_when_the_stable_offset_moves() {
    let mut log = open_at_5();
    log.watch(WatchId(1));
    commit(&mut log, P, 5);
    assert_eq!(write(&mut log, NOW).1.wake[..], [WatchId(1)]);
    assert_eq!(stable(&log), 4);
}

#[test]
fn a_marker_whose_write_fails_is_56_decides_nothing_and_no_other_is_taken() {
    let mut log = open_at_5();
    let placed = abort(&mut log, P, 5);
    log.wait(placed.end, WaiterId(1));
    log.take_write(NOW).expect("pending");
    assert_eq!(told(&log.fail()), [(1, Err(ErrorCode::KafkaStorageError))]);
    assert_eq!((stable(&log), listed(&log, 0, 3)), (0, vec![]));
    let refusal = log.append_marker(&end(P, 6, ControlKind::Abort), NOW).expect_err("the disk has failed");
    assert_eq!(refusal.code, ErrorCode::KafkaStorageError);
}

#[test]
fn case_162_empty_and_committed_transactions_cost_no_entry() {
    let mut log = partition(rules());
    for round in 0..100 {
        abort(&mut log, P, round);
        append(&mut log, &txn(Q, 0, i32::from(round), 1));
        commit(&mut log, Q, 0);
    }
    write_all(&mut log);
    assert!(log.segments().all().iter().all(|segment| segment.aborted == AbortedIndex::default()));
}
