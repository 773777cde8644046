//! The machine one answer at a time: the ways in which producers are known to duplicate, reorder, lose and hang.

use super::testing::{Script, identity, op, settings};
use super::{NewRecord, Next, Reason, SendError, Settings, Written};
use crate::code::ErrorCode;
use crate::ids::{ProducerEpoch, Sequence};

const NOT_ENOUGH: i16 = ErrorCode::NotEnoughReplicas as i16;
const NOT_LEADER: i16 = ErrorCode::NotLeaderOrFollower as i16;
const TOO_LARGE: i16 = ErrorCode::MessageTooLarge as i16;
const INVALID: i16 = ErrorCode::InvalidRecord as i16;
const OUT_OF_ORDER: i16 = ErrorCode::OutOfOrderSequenceNumber as i16;

fn unknown(script: &Script, record: u64) -> bool {
    script.failed.get(&record).is_some_and(|failure| failure.written == Written::Unknown)
}

fn failed(script: &Script, record: u64) -> bool {
    script.failed.get(&record).is_some_and(|failure| failure.written == Written::No)
}

#[test]
fn batches_are_pipelined_once_the_broker_knows_the_producer() {
    let mut script = Script::new(settings());
    script.send(0);
    while !script.has_produce() {
        let asked = script.asked.pop_front().expect("something is asked");
        script.serve(&asked, &[1]);
    }
    let (first, parts) = script.produce();
    assert_eq!(parts, [(0, 0, 0, 1)]);
    script.send(0);
    assert!(!script.has_produce(), "a broker that does not know the producer takes any first sequence (A5.6)");
    script.acknowledge(&first);
    for sequence in 1..=5 {
        if sequence > 1 {
            script.send(0);
        }
        assert_eq!(script.produce().1, [(0, 0, sequence, 1)]);
    }
    script.send(0);
    assert!(!script.has_produce(), "five are under way");
}

#[test]
fn a_lost_answer_is_asked_for_again_under_the_same_sequence_and_in_order() {
    let mut script = Script::ready(settings(), &[1]);
    script.send(0);
    script.send(0);
    let (first, _) = script.produce();
    script.send(0);
    script.lose(first.connection);
    let (again, parts) = script.until_produce(&[1]);
    assert_eq!(parts, [(0, 0, 1, 1)]);
    assert_ne!(again.connection, first.connection);
    script.wait(500);
    assert!(!script.has_produce(), "only the first without an answer is sent again");
    script.acknowledge(&again);
    assert_eq!(script.until_produce(&[1]).1, [(0, 0, 2, 1)]);
    assert_eq!(script.machine.identity(), Some(identity(0)), "a lost answer alone ends no epoch");
}

/// Scenario B: partition 1 waits for the answer of what may be written, partition 0 ends the epoch.
#[test]
fn what_may_be_written_keeps_its_epoch_when_another_partition_ends_it() {
    let mut script = Script::ready(settings(), &[1, 2]);
    let b0 = script.send(1);
    let (asked, _) = script.produce();
    script.acknowledge(&asked);
    let b1 = script.send(1);
    let (lost, parts) = script.produce();
    assert_eq!(parts, [(1, 0, 1, 1)]);
    script.send(0);
    let (refused, _) = script.produce();
    script.lose(lost.connection);
    script.answer_codes(&refused, &[INVALID]);
    script.send(0);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (asked, parts) = script.until_produce(&[1, 2]);
        seen.extend(parts);
        script.acknowledge(&asked);
    }
    seen.sort_unstable();
    assert_eq!(seen, [(0, 1, 0, 1), (1, 0, 1, 1)], "the broker tells b1 from its repetition");
    assert!(script.delivered.contains_key(&b0) && script.delivered.contains_key(&b1));
    script.send(1);
    assert_eq!(script.until_produce(&[1, 2]).1, [(1, 1, 0, 1)], "and crosses over when nothing is open");
}

/// Scenario C: partition 0 has a refused batch that waits; partition 1 ends the epoch; a newer batch must not overtake.
#[test]
fn nothing_new_overtakes_a_batch_that_waits_for_its_retry() {
    let mut script = Script::ready(settings(), &[1, 2]);
    script.send(1);
    let (other, _) = script.produce();
    script.acknowledge(&other);
    script.send(0);
    let (refused, _) = script.produce();
    script.answer_codes(&refused, &[NOT_ENOUGH]);
    script.send(1);
    let (other, _) = script.produce();
    script.answer_codes(&other, &[INVALID]);
    script.send(1);
    script.send(0);
    let mut of_zero = Vec::new();
    for _ in 0..3 {
        let (asked, parts) = script.until_produce(&[1, 2]);
        of_zero.extend(parts.into_iter().filter(|part| part.0 == 0));
        script.acknowledge(&asked);
    }
    assert_eq!(of_zero, [(0, 0, 1, 1), (0, 1, 0, 1)]);
}

/// Scenario D: the cluster has no leader for a while.
#[test]
fn a_partition_without_a_leader_only_waits() {
    let mut script = Script::ready(settings(), &[1]);
    let record = script.send(0);
    let (asked, _) = script.produce();
    script.lose(asked.connection);
    for _ in 0..30 {
        while let Some(asked) = script.asked.pop_front() {
            script.serve(&asked, &[-1]);
        }
        script.wait(100);
    }
    assert!(script.failed.is_empty());
    let (again, parts) = script.until_produce(&[2]);
    assert_eq!((again.connection.node, parts), (2, vec![(0, 0, 1, 1)]));
    script.acknowledge(&again);
    assert!(script.delivered.contains_key(&record));
}

/// Scenario E: one request, one partition written and one refused.
#[test]
fn a_retry_is_of_the_batch_and_not_of_the_request() {
    let mut script = Script::ready(settings(), &[1, 1]);
    script.send(1);
    let (asked, _) = script.produce();
    script.acknowledge(&asked);
    let (x, y) = (script.try_send(0).expect("taken").0, script.try_send(1).expect("taken").0);
    script.wait(0);
    let (both, parts) = script.produce();
    assert_eq!(parts.len(), 2);
    script.answer_codes(&both, &[0, NOT_ENOUGH]);
    assert!(script.delivered.contains_key(&x) && !script.delivered.contains_key(&y));
    let (again, parts) = script.until_produce(&[1, 1]);
    assert_eq!(parts, [(1, 0, 1, 1)]);
    script.answer_codes(&again, &[INVALID]);
    assert!(failed(&script, y) && script.delivered.contains_key(&x), "one's error is not the other's");
}

/// Scenario F: what was given up is fenced off by the next batch.
#[test]
fn after_a_timeout_the_same_producer_goes_on_at_the_next_epoch() {
    let mut script = Script::ready(Settings { delivery_timeout_ms: 1000, ..settings() }, &[1]);
    let z1 = script.send(0);
    let (asked, _) = script.produce();
    script.lose(asked.connection);
    for _ in 0..20 {
        script.asked.clear();
        script.wait(100);
    }
    assert!(unknown(&script, z1));
    script.lose(super::ConnectionId { node: 1, generation: 1 });
    script.send(0);
    let (_, parts) = script.until_produce(&[1]);
    assert_eq!(parts, [(0, 1, 0, 1)], "same id, next epoch, from 0, and no request for it (contract 0.6)");
}

/// KAFKA-14034: a batch fails for good while the one before it has no answer.
#[test]
fn a_batch_without_an_answer_keeps_its_stamp_when_a_later_one_fails() {
    let mut script = Script::ready(settings(), &[1]);
    let records: Vec<u64> = (0..3).map(|_| script.send(0)).collect();
    let asked: Vec<_> = (0..3).map(|_| script.produce().0).collect();
    script.answer_codes(&asked[0], &[ErrorCode::RequestTimedOut.wire()]);
    script.answer_codes(&asked[1], &[INVALID]);
    script.answer_codes(&asked[2], &[OUT_OF_ORDER]);
    let (first, parts) = script.until_produce(&[1]);
    assert_eq!(parts, [(0, 0, 1, 1)]);
    script.acknowledge(&first);
    let (third, parts) = script.until_produce(&[1]);
    assert_eq!(parts, [(0, 0, 3, 1)], "tried once more, now that nothing is open before it");
    script.answer_codes(&third, &[OUT_OF_ORDER]);
    let (third, parts) = script.until_produce(&[1]);
    assert_eq!(parts, [(0, 1, 0, 1)], "refused for certain each time, so it may go out at the next epoch");
    script.acknowledge(&third);
    assert!(script.delivered.contains_key(&records[0]) && script.delivered.contains_key(&records[2]));
    assert!(failed(&script, records[1]));
}

#[test]
fn what_may_be_written_is_never_sent_under_another_epoch() {
    let mut script = Script::ready(settings(), &[1]);
    let records: Vec<u64> = (0..2).map(|_| script.send(0)).collect();
    let asked: Vec<_> = (0..2).map(|_| script.produce().0).collect();
    script.answer_codes(&asked[0], &[INVALID]);
    script.answer_codes(&asked[1], &[ErrorCode::RequestTimedOut.wire()]);
    let (second, _) = script.until_produce(&[1]);
    script.answer_codes(&second, &[OUT_OF_ORDER]);
    assert!(failed(&script, records[0]) && unknown(&script, records[1]));
    script.send(0);
    assert_eq!(script.until_produce(&[1]).1, [(0, 1, 0, 1)]);
}

/// KAFKA-13794: batches of two epochs with the same sequence.
#[test]
fn a_late_answer_is_nothing_to_a_newer_batch_of_the_same_sequence() {
    let mut script = Script::ready(Settings { delivery_timeout_ms: 1000, ..settings() }, &[1]);
    let (old, new);
    {
        old = script.send(0);
        let (asked, _) = script.produce();
        script.wait(999);
        script.wait(1);
        assert!(unknown(&script, old));
        new = script.send(0);
        let (newer, parts) = script.until_produce(&[1]);
        assert_eq!(parts, [(0, 1, 0, 1)]);
        script.acknowledge(&asked);
        assert!(!script.delivered.contains_key(&new) && unknown(&script, old));
        script.acknowledge(&newer);
    }
    assert!(script.delivered.contains_key(&new));
}

#[test]
fn two_partitions_that_fail_end_the_epoch_once() {
    let mut script = Script::ready(settings(), &[1, 1]);
    script.send(1);
    let (asked, _) = script.produce();
    script.acknowledge(&asked);
    for partition in 0..2 {
        script.try_send(partition).expect("taken");
    }
    script.wait(0);
    let (both, _) = script.produce();
    script.answer_codes(&both, &[INVALID, INVALID]);
    for partition in 0..2 {
        script.send(partition);
        let (asked, parts) = script.until_produce(&[1, 1]);
        assert_eq!(parts, [(partition, 1, 0, 1)]);
        script.acknowledge(&asked);
    }
}

#[test]
fn an_epoch_that_cannot_go_up_is_followed_by_a_new_producer_id() {
    let mut script = Script::ready(settings(), &[1]);
    script.machine.identity = Some(super::Identity { epoch: ProducerEpoch(i16::MAX), ..identity(0) });
    script.send(0);
    let (asked, parts) = script.produce();
    assert_eq!(parts, [(0, i16::MAX, 0, 1)]);
    script.answer_codes(&asked, &[INVALID]);
    script.send(0);
    let asked = script.asked.pop_front().expect("an identity is asked for");
    assert!(matches!(asked.request, super::Request::InitProducerId { identity: None, .. }), "{asked:?}");
}

/// Case 5.
#[test]
fn a_sequence_wraps_to_zero() {
    let mut script = Script::ready(settings(), &[1]);
    script.machine.lanes[0].next = Sequence(i32::MAX - 1);
    for (records, first) in [(3, i32::MAX - 1), (1, 1)] {
        for _ in 0..records {
            script.try_send(0).expect("taken");
        }
        script.wait(0);
        let (asked, parts) = script.produce();
        assert_eq!(parts, [(0, 0, first, records)]);
        script.acknowledge(&asked);
    }
}

#[test]
fn what_expires_before_it_was_sent_leaves_no_hole() {
    let mut script = Script::ready(Settings { delivery_timeout_ms: 1000, ..settings() }, &[1]);
    // Five under way; the sixth waits.
    let records: Vec<u64> = (0..5).map(|_| script.send(0)).collect();
    let asked: Vec<_> = (0..5).map(|_| script.produce().0).collect();
    script.wait(500);
    let late = script.send(0);
    for asked in &asked {
        script.machine.answered(script.now_ms, asked.call, super::Answer::Produce(Vec::new()));
    }
    assert!(script.failed.is_empty());
    script.asked.clear();
    script.wait(600);
    assert!(records.iter().all(|record| unknown(&script, *record)), "an answer without its partition is none");
    script.wait(500);
    assert!(!script.delivered.contains_key(&late));
}

#[test]
fn nothing_that_never_left_may_be_written() {
    let mut script = Script::ready(Settings { delivery_timeout_ms: 1000, ..settings() }, &[1]);
    let record = script.send(0);
    let (asked, _) = script.produce();
    script.machine.lost(script.now_ms, asked.connection, false);
    for _ in 0..11 {
        script.wait(100);
        while let Some(asked) = script.asked.pop_front() {
            script.machine.lost(script.now_ms, asked.connection, false);
        }
    }
    assert!(failed(&script, record), "no connection was ever made: {:?}", script.failed);
}

#[test]
fn an_oversized_batch_is_halved_and_an_oversized_record_is_told() {
    let mut script = Script::ready(settings(), &[1]);
    let records: Vec<u64> = (0..3).map(|_| script.try_send(0).expect("taken").0).collect();
    script.wait(0);
    let (whole, parts) = script.produce();
    assert_eq!(parts, [(0, 0, 1, 3)]);
    script.answer_codes(&whole, &[TOO_LARGE]);
    let (half, parts) = script.produce();
    assert_eq!(parts, [(0, 0, 1, 1)]);
    script.answer_codes(&half, &[TOO_LARGE]);
    assert_eq!(script.failed[&records[0]].reason, Reason::RecordTooLarge);
    assert!(failed(&script, records[0]));
    let (half, parts) = script.until_produce(&[1]);
    assert_eq!(parts, [(0, 0, 2, 2)], "the other half keeps its sequences until it is refused under them");
    script.answer_codes(&half, &[OUT_OF_ORDER]);
    let (half, parts) = script.until_produce(&[1]);
    assert_eq!(parts, [(0, 1, 0, 2)]);
    script.acknowledge(&half);
    assert!(records[1..].iter().all(|record| script.delivered.contains_key(record)));
}

#[test]
fn a_definite_no_of_a_former_leader_ends_no_epoch() {
    let mut script = Script::ready(settings(), &[1]);
    script.send(0);
    let (asked, _) = script.produce();
    script.answer_codes(&asked, &[NOT_LEADER]);
    let (again, parts) = script.until_produce(&[2]);
    assert_eq!((again.connection.node, parts), (2, vec![(0, 0, 1, 1)]));
    script.acknowledge(&again);
    assert_eq!(script.machine.identity(), Some(identity(0)));
}

#[test]
fn a_silent_request_costs_the_connection() {
    let mut script = Script::ready(settings(), &[1]);
    script.send(0);
    let (silent, _) = script.produce();
    script.wait(999);
    assert!(script.closed.is_empty());
    script.wait(1);
    assert_eq!(script.closed, [silent.connection]);
    assert_eq!(script.until_produce(&[1]).1, [(0, 0, 1, 1)]);
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let mut script = Script::ready(Settings { memory_bytes: 100, ..settings() }, &[1]);
    script.send(0);
    script.send(0);
    assert_eq!(script.try_send(0), Err(SendError::Full));
    let (asked, _) = script.produce();
    script.acknowledge(&asked);
    assert!(script.try_send(0).is_ok());
}

#[test]
fn a_record_for_a_partition_that_is_not_there_is_told() {
    let mut script = Script::ready(settings(), &[1]);
    assert!(matches!(script.try_send(3), Err(SendError::NoPartition { partition: 3, .. })));
    let mut script = Script::new(settings());
    let early = script.send(3);
    while let Some(asked) = script.asked.pop_front() {
        script.serve(&asked, &[1]);
    }
    assert!(failed(&script, early));
}

#[test]
fn a_topic_that_never_appears_fails_its_records_in_time() {
    let mut script = Script::new(Settings { delivery_timeout_ms: 1000, ..settings() });
    let record = script.send(0);
    script.wait(999);
    assert!(script.failed.is_empty());
    script.wait(1);
    assert!(failed(&script, record));
    assert_eq!(script.failed[&record].reason, Reason::DeliveryTimeout);
}

#[test]
fn answers_that_cannot_be_are_no_answers() {
    let mut script = Script::new(settings());
    let record = script.send(0);
    for index in [i32::MAX, -1, 5] {
        let mut lie = super::testing::metadata(&[1]);
        lie.topics[0].partitions[0].index = index;
        let asked = script.asked.pop_front().expect("metadata is asked for");
        script.answer(&asked, super::Answer::Metadata(lie));
        script.asked.retain(|asked| matches!(asked.request, super::Request::Metadata { .. }));
        for _ in 0..100 {
            assert!(script.asked.len() < 2, "it does not ask without a pause");
            script.wait(1);
        }
    }
    let (asked, _) = loop {
        match script.asked.iter().position(|asked| matches!(asked.request, super::Request::Produce { .. })) {
            Some(_) => break script.produce(),
            None => match script.asked.pop_front() {
                Some(asked) => script.serve(&asked, &[1]),
                None => script.wait(10),
            },
        }
    };
    let lie = super::ProduceAnswer {
        topic: "t".into(),
        partition: 0,
        code: 0,
        base_offset: crate::ids::Offset(i64::MAX),
        timestamp: crate::ids::TimestampMs(i64::MIN),
        leader: Some((99, i32::MAX)),
    };
    script.answer(&asked, super::Answer::Produce(vec![lie]));
    assert_eq!(script.delivered[&record].base_offset, None);
}

#[test]
fn flush_waits_for_the_records_before_it_and_for_no_other() {
    let mut script = Script::ready(Settings { linger_ms: 1000, ..settings() }, &[1]);
    script.send(0);
    assert!(!script.has_produce(), "it lingers");
    script.machine.flush(op(1));
    script.wait(0);
    let (asked, _) = script.produce();
    script.send(0);
    assert!(script.done.is_empty());
    script.acknowledge(&asked);
    assert_eq!(script.done.get(&1), Some(&Ok(())));
}

#[test]
fn linger_gathers_records_until_its_end_or_a_full_batch() {
    let mut script = Script::ready(Settings { linger_ms: 5, batch_bytes: 150, ..settings() }, &[1]);
    script.send(0);
    script.wait(4);
    assert!(!script.has_produce());
    script.wait(1);
    assert_eq!(script.produce().1, [(0, 0, 1, 1)]);
    for _ in 0..3 {
        script.send(0);
    }
    assert_eq!(script.produce().1, [(0, 0, 2, 2)], "a full batch does not wait");
}

#[test]
fn records_without_a_key_stay_together_and_then_move_on() {
    let mut script = Script::ready(Settings { batch_bytes: 200, linger_ms: 50, ..settings() }, &[1, 1, 1]);
    for _ in 0..30 {
        let record = NewRecord { topic: "t", value: Some(b"value"), ..NewRecord::default() };
        script.machine.send(script.now_ms, &record).expect("taken");
    }
    let mut of_each: Vec<usize> = script.machine.lanes.iter().map(|lane| lane.queue.len()).collect();
    of_each.sort_unstable();
    assert!(of_each[0] >= 1 && of_each[2] - of_each[0] <= 2, "{of_each:?}");
}

#[test]
fn records_behind_batches_that_wait_wake_nobody_and_leave_all_the_same() {
    let mut script = Script::ready(Settings { batch_bytes: 150, in_flight_max: 1, ..settings() }, &[1]);
    script.send(0);
    for _ in 0..5 {
        script.send(0);
    }
    for _ in 0..50 {
        script.try_send(0).expect("taken");
        assert!(!script.machine.is_due(), "the batch in front is full and waits for an answer");
    }
    let mut records = Vec::new();
    while script.has_produce() {
        let (asked, parts) = script.produce();
        records.push(parts[0].3);
        script.acknowledge(&asked);
    }
    assert_eq!(records, [1, 2, 53], "one alone, a full batch, and the one behind it has grown");
    assert_eq!(script.delivered.len(), 57, "with the one of the beginning");
}

#[test]
fn a_batch_that_waits_grows_for_a_while_and_not_where_a_large_one_was_refused() {
    let mut script = Script::ready(Settings { batch_bytes: 150, in_flight_max: 1, ..settings() }, &[1]);
    script.send(0);
    let (first, _) = script.produce();
    for _ in 0..6 {
        script.try_send(0).expect("taken");
    }
    script.wait(999);
    script.try_send(0).expect("taken");
    script.now_ms += 1;
    for _ in 0..2 {
        script.try_send(0).expect("taken");
    }
    let of_each = |script: &Script| -> Vec<usize> {
        script.machine.lanes[0].queue.iter().map(|batch| batch.records.len()).collect()
    };
    assert_eq!(of_each(&script), [2, 5, 2], "the second one is too old for more");
    script.acknowledge(&first);
    let (full, _) = script.produce();
    script.answer_codes(&full, &[TOO_LARGE]);
    for _ in 0..6 {
        script.try_send(0).expect("taken");
    }
    assert_eq!(of_each(&script), [5, 2, 2, 2, 2], "the refused one is halves now, and what is new stays small");
}

#[test]
fn a_closed_producer_tells_every_record_and_takes_no_other() {
    let mut script = Script::ready(settings(), &[1]);
    let sent = script.send(0);
    script.machine.shut();
    script.wait(0);
    assert!(unknown(&script, sent));
    let Err(SendError::Refused(failure)) = script.try_send(0) else { panic!("taken") };
    assert_eq!((failure.reason, failure.next), (Reason::Closed, Next::Close));
}
