use bytes::Bytes;

use super::testing::*;
use super::*;
use crate::batch::scan::scan;
use crate::batch::{AppendRules, BatchBuilder, TimestampType};
use crate::ids::Offset;
use crate::limits::WRITE_BYTES_MAX;

fn ms(after: i64) -> TimestampMs {
    TimestampMs(NOW.0 + after)
}

fn cached(log: &Partition, from: i64, limit: Offset) -> Vec<(i64, i64)> {
    match log.read(Offset(from), limit, usize::MAX, true) {
        ReadPlan::Empty => Vec::new(),
        ReadPlan::Cached(chunks) => {
            let spans = chunks.iter().flat_map(|chunk| scan(chunk).collect::<Vec<_>>());
            spans.map(|(_, header)| (header.base_offset.0, header.next_offset().0)).collect()
        }
        plan @ ReadPlan::Disk { .. } => panic!("everything is in the tail: {plan:?}"),
    }
}

#[test]
fn offsets_ascend_without_holes() {
    let mut log = partition(rules());
    for (batch, base, end) in [(plain(3, 10), 0, 3), (plain(1, 10), 3, 4), (sequenced(9, 0, 5), 4, 9)] {
        let placed = append(&mut log, &batch);
        assert_eq!((placed.base, placed.end, placed.duplicate), (Offset(base), Offset(end), false));
    }
    assert_eq!(log.next_offset(), Offset(9));
    let (plan, _) = write(&mut log, NOW);
    let headers: Vec<_> = scan(&stored(&plan)).map(|(_, h)| (h.base_offset.0, h.leader_epoch.0)).collect();
    assert_eq!(headers, [(0, 5), (3, 5), (4, 5)], "offsets and the leader epoch are stored");
}

#[test]
fn f1_duplicate_in_flight_gets_the_same_offset() {
    let mut log = partition(rules());
    let batch = sequenced(9, 0, 4);
    append(&mut log, &plain(2, 10));
    let original = append(&mut log, &batch);
    let pending = append(&mut log, &batch);
    assert_eq!((pending.base, pending.end, pending.duplicate), (original.base, original.end, true));
    let plan = log.take_write(NOW).unwrap();
    let flying = append(&mut log, &batch);
    assert_eq!((flying.base, flying.duplicate), (original.base, true));
    assert_eq!((plan.batches.len(), log.next_offset()), (2, Offset(6)), "nothing is stored twice");
}

#[test]
fn a_duplicate_settles_with_its_original_and_not_before() {
    let mut log = partition(rules());
    let batch = sequenced(9, 0, 4);
    let original = append(&mut log, &batch);
    log.wait(original.end, WaiterId(1));
    let plan = log.take_write(NOW).unwrap();
    let later = append(&mut log, &sequenced(9, 4, 1));
    log.wait(later.end, WaiterId(2));
    let duplicate = append(&mut log, &batch);
    assert!(!log.is_durable(duplicate.end));
    log.wait(duplicate.end, WaiterId(3));
    assert_eq!(told(&log.wrote(stored(&plan), 1)), [(1, Ok(())), (3, Ok(()))]);
    let again = append(&mut log, &batch);
    assert!(log.is_durable(again.end), "from now on it is answered at once");
    assert_eq!(told(&write(&mut log, NOW).1), [(2, Ok(()))]);
}

#[test]
fn the_high_watermark_moves_only_with_a_finished_write_and_nothing_above_it_is_read() {
    let mut log = partition(rules());
    write_one(&mut log, &plain(2, 10));
    append(&mut log, &plain(3, 10));
    assert_eq!((log.high_watermark(), log.next_offset()), (Offset(2), Offset(5)));
    let plan = log.take_write(NOW).unwrap();
    assert_eq!((log.high_watermark(), log.last_stable_offset()), (Offset(2), Offset(2)));
    assert_eq!(cached(&log, 0, log.high_watermark()), [(0, 2)]);
    assert!(cached(&log, 2, log.high_watermark()).is_empty());
    assert_eq!(log.readable_bytes(Offset(2), log.high_watermark(), 1000), 0);
    log.wrote(stored(&plan), 1);
    assert_eq!(log.high_watermark(), Offset(5));
    assert_eq!(cached(&log, 2, log.high_watermark()), [(2, 5)]);
}

#[test]
#[should_panic(expected = "one write at a time")]
fn one_write_at_a_time() {
    let mut log = partition(rules());
    append(&mut log, &plain(1, 10));
    assert!(log.take_write(NOW).is_some());
    log.take_write(NOW);
}

#[test]
fn what_is_pending_goes_out_in_one_write() {
    let mut log = partition(rules());
    for waiter in 0..20 {
        let end = append(&mut log, &plain(1, 100)).end;
        log.wait(end, WaiterId(waiter));
    }
    assert!(log.take_writer() && !log.take_writer(), "one writer");
    let (plan, progress) = write(&mut log, NOW);
    assert_eq!((plan.batches.len(), plan.position, plan.create), (20, 0, true));
    assert_eq!(progress.done.len(), 20);
    assert_eq!(log.pending_bytes(), 0);
    let more = write_one(&mut log, &plain(1, 100)).0;
    assert_eq!((more.position, more.create), (plan.bytes as u64, false));
    assert!(log.take_write(NOW).is_none());
    append(&mut log, &plain(1, 100));
    assert!(log.take_writer(), "the writer before found nothing and ended");
}

#[test]
fn a_write_gathers_up_to_write_bytes_max_and_takes_one_larger_batch_alone() {
    let mut log = partition(LogRules {
        append: AppendRules { max_message_bytes: i32::MAX, ..AppendRules::default() },
        ..rules()
    });
    let part = plain(1, WRITE_BYTES_MAX / 3);
    for _ in 0..4 {
        append(&mut log, &part);
    }
    append(&mut log, &plain(1, WRITE_BYTES_MAX + 1));
    append(&mut log, &plain(1, 1));
    let mut counts = Vec::new();
    while !log.pending.is_empty() {
        let (plan, _) = write(&mut log, NOW);
        assert!(plan.bytes <= WRITE_BYTES_MAX || plan.batches.len() == 1);
        counts.push(plan.batches.len());
    }
    assert_eq!(counts, [2, 2, 1, 1]);
}

#[test]
fn a_segment_rolls_before_segment_bytes_are_passed() {
    let batch = plain(1, 100);
    let size = batch.len();
    let mut log = partition(rolling(size as i32 * 2 + 1));
    for _ in 0..5 {
        append(&mut log, &batch);
    }
    let plans: Vec<_> = (0..3).map(|_| write(&mut log, NOW).0).collect();
    let bases: Vec<_> =
        plans.iter().map(|plan| (plan.segment.base.0, plan.create, plan.seal.map(|s| s.base.0))).collect();
    assert_eq!(bases, [(0, true, None), (2, true, Some(0)), (4, true, Some(2))]);
    assert!(log.segments().all().iter().all(|segment| segment.bytes() <= size as u64 * 2 + 1));
}

#[test]
fn a_segment_rolls_when_it_is_segment_ms_old() {
    let mut log = partition(LogRules { segment_ms: 1000, ..rules() });
    let mut write_at = |after| {
        append(&mut log, &plain(1, 10));
        write(&mut log, ms(after)).0.create
    };
    assert_eq!([0, 999, 1000, 1999, 2000].map(&mut write_at), [true, false, true, false, true]);
}

#[test]
fn a_segment_rolls_before_its_indexes_cannot_name_an_offset() {
    let mut log = partition(rules());
    // Offsets this far apart do not come from appends; compaction leaves them.
    write_one(&mut log, &plain(1, 10));
    log.clear_tail();
    log.next_offset = Offset(i64::from(i32::MAX));
    append(&mut log, &plain(2, 10));
    let (plan, _) = write(&mut log, NOW);
    assert_eq!((plan.segment.base, plan.seal.map(|s| s.base)), (Offset(i64::from(i32::MAX)), Some(Offset(0))));
}

#[test]
fn a_start_never_appends_to_a_segment_it_found() {
    let id = SegmentId::new(Offset(0), LeaderEpoch(4));
    let mut segment = Segment::new(id, NOW);
    segment.grow(Offset(3), 300, NOW);
    let mut epochs = EpochHistory::default();
    epochs.appended(LeaderEpoch(4), Offset(0));
    let found = Recovered {
        segments: vec![segment],
        producers: Producers::new(),
        log_start: Offset(1),
        epochs,
        cleaned_to: Offset(0),
    };
    let mut log = Partition::recovered(rules(), LeaderEpoch(5), found);
    assert_eq!((log.log_start(), log.high_watermark()), (Offset(1), Offset(3)));
    let (plan, _) = write_one(&mut log, &plain(1, 10));
    assert_eq!(plan.segment, SegmentId::new(Offset(3), LeaderEpoch(5)));
    assert_eq!((plan.create, plan.seal, plan.position), (true, None, 0));
    assert_eq!(log.epochs().all(), [(LeaderEpoch(4), Offset(0)), (LeaderEpoch(5), Offset(3))]);
}

#[test]
fn a_snapshot_is_handed_out_when_the_log_that_it_covers_is_durable() {
    let batch = sequenced(9, 0, 1);
    let mut log = partition(rolling(batch.len() as i32));
    write_one(&mut log, &batch);
    for sequence in 1..4 {
        append(&mut log, &sequenced(9, sequence, 1));
    }
    // The second write rolls and takes the snapshot, which includes the third and the fourth batch.
    assert!(write(&mut log, NOW).1.snapshot.is_none());
    assert!(write(&mut log, NOW).1.snapshot.is_none());
    let (offset, bytes) = write(&mut log, NOW).1.snapshot.expect("covered now");
    assert_eq!(offset, Offset(4));
    assert_eq!(Producers::restore(&bytes).unwrap().end_offset(), Offset(4));
}

#[test]
fn a_snapshot_comes_even_if_every_write_rolls_and_more_is_always_pending() {
    let mut log = partition(rolling(sequenced(9, 0, 1).len() as i32));
    append(&mut log, &sequenced(9, 0, 1));
    let snapshots = (1..20).filter(|sequence| {
        append(&mut log, &sequenced(9, *sequence, 1));
        write(&mut log, NOW).1.snapshot.is_some()
    });
    assert!(snapshots.count() >= 8);
}

#[test]
fn a_relaxed_topic_hands_out_a_snapshot_only_with_a_durable_write() {
    let batch = sequenced(9, 0, 1);
    let rules = LogRules { flush_messages: 4, ..rolling(batch.len() as i32) };
    let mut log = partition(rules);
    let mut written = Vec::new();
    for sequence in 0..8 {
        let (plan, progress) = write_one(&mut log, &sequenced(9, sequence, 1));
        written.push((plan.durable, progress.snapshot.map(|(offset, _)| offset.0)));
    }
    let (no, yes) = ((false, None), |offset| (true, Some(offset)));
    assert_eq!(written, [no, no, no, yes(2), no, no, no, yes(5)]);
}

#[test]
fn a_failed_write_settles_all_with_56_and_refuses_appends_while_reads_go_on() {
    let mut log = partition(rules());
    write_one(&mut log, &sequenced(9, 0, 2));
    for (waiter, sequence) in [(1, 2), (2, 3)] {
        let end = append(&mut log, &sequenced(9, sequence, 1)).end;
        log.wait(end, WaiterId(waiter));
        if waiter == 1 {
            log.take_write(NOW).unwrap();
        }
    }
    log.watch(WatchId(7));
    let progress = log.fail();
    let storage = Err(ErrorCode::KafkaStorageError);
    assert_eq!(told(&progress), [(1, storage), (2, storage)]);
    assert_eq!(progress.wake[..], [WatchId(7)]);
    assert_eq!((log.high_watermark(), log.is_offline(), log.pending_bytes()), (Offset(2), true, 0));
    assert_eq!(cached(&log, 0, log.high_watermark()), [(0, 2)]);
    // A duplicate of what failed must not be taken for what is durable either.
    for sequence in [0, 2, 3, 4] {
        assert_eq!(refused(&mut log, &sequenced(9, sequence, 1)), ErrorCode::KafkaStorageError);
    }
    assert!(!log.take_writer() && log.take_write(NOW).is_none() && !log.take_flush(ms(i64::MAX - NOW.0)));
}

#[test]
fn flush_messages_makes_each_nth_message_durable() {
    let mut log = partition(LogRules { flush_messages: 4, ..rules() });
    let durable = [1, 2, 1, 3, 9, 1].map(|records| write_one(&mut log, &plain(records, 10)).0.durable);
    assert_eq!(durable, [false, false, true, false, true, false]);
    let mut strict = partition(rules());
    assert!(write_one(&mut strict, &plain(1, 10)).0.durable);
}

#[test]
fn flush_ms_makes_a_message_durable_when_it_is_that_old() {
    let mut log = partition(LogRules { flush_messages: 100, flush_ms: 50, ..rules() });
    let mut write_at = |after| {
        append(&mut log, &plain(1, 10));
        write(&mut log, ms(after)).0.durable
    };
    assert_eq!([0, 49, 50, 60].map(&mut write_at), [false, false, true, false]);
    assert_eq!([109, 110, 111].map(|after| log.take_flush(ms(after))), [false, true, false], "asked for once");
}

#[test]
fn k21_5_a_delete_target_lies_between_minus_one_and_the_high_watermark() {
    let mut log = partition(rules());
    write_one(&mut log, &plain(5, 10));
    append(&mut log, &plain(5, 10));
    for offset in [6, 10, i64::MAX, -2, i64::MIN] {
        assert_eq!(log.delete_target(Offset(offset)), Err(ErrorCode::OffsetOutOfRange), "{offset}");
    }
    assert_eq!(log.delete_target(Offset(5)), Ok(Offset(5)));
}

#[test]
fn k21_6_minus_one_is_the_high_watermark_and_the_log_start_never_falls() {
    let mut log = partition(rules());
    write_one(&mut log, &plain(5, 10));
    assert_eq!(log.delete_target(Offset(-1)), Ok(Offset(5)));
    assert!(log.set_log_start(Offset(3)).is_empty(), "the segment still holds records");
    assert_eq!(log.delete_target(Offset(0)), Ok(Offset(3)));
    log.set_log_start(Offset(1));
    assert_eq!(log.log_start(), Offset(3));
}

#[test]
fn retention_by_time_takes_whole_segments_and_the_active_one_with_the_rest() {
    let batch = plain(2, 10);
    let mut log = partition(LogRules { retention_ms: 1000, ..rolling(batch.len() as i32) });
    let late = Bytes::from(BatchBuilder::new().record_at(ms(500), None, Some(b"x"), &[]).build());
    write_one(&mut log, &batch);
    write_one(&mut log, &late);
    assert_eq!(log.retention_target(ms(1000)), None);
    assert_eq!(log.retention_target(ms(1001)), Some(Offset(2)));
    assert_eq!(log.retention_target(ms(1501)), Some(Offset(3)), "the active one too");
    append(&mut log, &late);
    assert_eq!(log.retention_target(ms(9999)), Some(Offset(2)), "not while something is on its way to it");
    let plan = log.take_write(NOW).unwrap();
    assert_eq!(log.retention_target(ms(1501)), Some(Offset(3)), "that write opened another one");
    log.wrote(stored(&plan), 1);
    assert_eq!(log.set_log_start(Offset(3)).len(), 2);
    assert_eq!(log.close_active(), Some(plan.segment));
    assert_eq!(log.set_log_start(Offset(4)), [plan.segment]);
    assert_eq!((log.log_start(), log.high_watermark(), log.next_offset()), (Offset(4), Offset(4), Offset(4)));
    assert_eq!(write_one(&mut log, &batch).0.segment.base, Offset(4), "offsets go on");
}

#[test]
fn retention_without_timestamps_counts_from_the_opening_of_the_segment() {
    let timeless = Bytes::from(BatchBuilder::new().record(None, Some(b"x")).build());
    let mut log = partition(LogRules { retention_ms: 1000, ..rules() });
    write_one(&mut log, &timeless);
    assert_eq!([1000, 1001].map(|after| log.retention_target(ms(after))), [None, Some(Offset(1))]);
}

#[test]
fn retention_by_size_leaves_at_least_the_limit_and_the_active_segment() {
    let batch = plain(1, 100);
    let size = batch.len();
    let mut log = partition(LogRules { retention_bytes: size as i64 * 2, ..rolling(size as i32) });
    for _ in 0..5 {
        write_one(&mut log, &batch);
    }
    assert_eq!(log.retention_target(NOW), Some(Offset(3)), "two of five segments stay");
    log.set_rules(LogRules { retention_bytes: 0, ..rolling(size as i32) });
    assert_eq!(log.retention_target(NOW), Some(Offset(4)), "never the active one");
    log.set_rules(LogRules { retention_bytes: 0, retention_ms: 0, deletes: false, ..rolling(size as i32) });
    assert_eq!(log.retention_target(ms(1 << 40)), None, "a compacted topic keeps everything");
}

#[test]
fn a_duplicate_tells_the_append_time_of_its_original() {
    let append_time = AppendRules { timestamp_type: TimestampType::LogAppendTime, ..AppendRules::default() };
    let mut log = partition(LogRules { append: append_time, ..rules() });
    let batch = sequenced(9, 0, 1);
    let placed = append(&mut log, &batch);
    assert_eq!(placed.log_append_time, NOW);
    let Append::Accepted(again) = log.append(&batch, VERSION, Permit::Unchecked, ms(77)) else {
        panic!("it is a duplicate")
    };
    assert_eq!(again.log_append_time, NOW, "a duplicate tells when the original was appended");
    assert_eq!(append(&mut partition(rules()), &batch).log_append_time, TimestampMs(-1));
}

#[test]
fn a_watch_wakes_once_and_a_withdrawn_one_never() {
    let mut log = partition(rules());
    log.watch(WatchId(1));
    log.watch(WatchId(2));
    log.unwatch(WatchId(1));
    append(&mut log, &plain(1, 10));
    assert_eq!(write(&mut log, NOW).1.wake[..], [WatchId(2)]);
    assert!(write_one(&mut log, &plain(1, 10)).1.wake.is_empty());
}

#[test]
fn case_126_a_reader_with_a_limit_of_one_byte_gets_one_whole_batch_at_a_time() {
    let mut log = partition(rules());
    for _ in 0..3 {
        append(&mut log, &plain(2, 50));
    }
    write(&mut log, NOW);
    for (from, base) in [(0, 0), (1, 0), (2, 2), (5, 4)] {
        let ReadPlan::Cached(chunks) = log.read(Offset(from), Offset(6), 1, true) else { panic!("it is cached") };
        let bases: Vec<_> = scan(&chunks[0]).map(|(_, header)| header.base_offset.0).collect();
        assert_eq!((chunks.len(), bases), (1, vec![base]));
        assert!(matches!(log.read(Offset(from), Offset(6), 1, false), ReadPlan::Empty), "another partition had one");
    }
}
