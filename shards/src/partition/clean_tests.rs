use bytes::Bytes;

use super::super::testing::{NOW, VERSION, append as append_batch, partition, plain, rolling, write};
use super::super::{Append, LogRules};
use super::*;
use crate::batch::{AppendRules, BatchBuilder};
use crate::code::ErrorCode;
use crate::producers::Permit;

const RULES: CompactionRules =
    CompactionRules { min_dirty_ratio: 0.5, min_lag_ms: 0, max_lag_ms: i64::MAX, delete_retention_ms: 0 };

fn at(after_ms: i64) -> TimestampMs {
    TimestampMs(NOW.0 + after_ms)
}

/// A log of `count` segments of one record each; the last one is active.
fn log(count: usize, compaction: CompactionRules) -> (Partition, u64) {
    let batch: Bytes = plain(1, 100);
    let rules = LogRules { compaction: Some(compaction), ..rolling(batch.len() as i32) };
    let mut log = partition(rules);
    for _ in 0..count {
        append_batch(&mut log, &batch);
        write(&mut log, NOW);
    }
    (log, batch.len() as u64)
}

#[test]
fn the_active_segment_is_never_dirty() {
    assert_eq!(log(1, RULES).0.dirty(NOW), None);
    let (mut log, bytes) = log(4, RULES);
    let dirty = log.dirty(NOW).expect("three are closed");
    assert_eq!((dirty.from, dirty.end), (Offset(0), Offset(3)));
    assert_eq!((dirty.clean_bytes, dirty.dirty_bytes), (0, 3 * bytes));
    assert!(dirty.is_due(&RULES));
    log.set_rules(LogRules { compaction: None, ..rolling(1000) });
    assert_eq!(log.dirty(NOW), None, "KT.1: not compacted");
}

#[test]
fn kt_20_a_clean_is_due_above_the_dirty_ratio() {
    let (mut log, bytes) = log(5, RULES);
    log.set_cleaned_to(Offset(2));
    let dirty = log.dirty(NOW).expect("two are dirty");
    assert_eq!((dirty.clean_bytes, dirty.dirty_bytes), (2 * bytes, 2 * bytes));
    assert!(!dirty.is_due(&RULES), "exactly half is not above half");
    assert!(dirty.is_due(&CompactionRules { min_dirty_ratio: 0.49, ..RULES }));
    log.set_cleaned_to(Offset(4));
    assert_eq!(log.dirty(NOW), None);
}

#[test]
fn kt_21_a_young_segment_and_what_is_behind_it_wait() {
    let lagging = CompactionRules { min_lag_ms: 1000, ..RULES };
    let (log, _) = log(3, lagging);
    assert_eq!(log.dirty(at(999)), None);
    assert_eq!(log.dirty(at(1000)).map(|dirty| dirty.end), Some(Offset(2)));
}

#[test]
fn kt_15_an_old_record_makes_a_clean_due_whatever_the_ratio() {
    let impatient = CompactionRules { max_lag_ms: 1000, min_dirty_ratio: 1.0, ..RULES };
    let (log, _) = log(3, impatient);
    assert!(!log.dirty(at(1000)).expect("dirty").is_due(&impatient));
    assert!(log.dirty(at(1001)).expect("dirty").is_due(&impatient));
}

#[test]
fn what_deleterecords_took_is_neither_clean_nor_dirty() {
    let (mut log, bytes) = log(4, RULES);
    log.set_log_start(Offset(2));
    let dirty = log.dirty(NOW).expect("one is left");
    assert_eq!((dirty.from, dirty.clean_bytes, dirty.dirty_bytes), (Offset(2), 0, bytes));
}

#[test]
fn small_segments_are_grouped_up_to_a_segments_bytes() {
    let (mut log, bytes) = log(6, RULES);
    let append = AppendRules { segment_bytes: 2 * bytes as i32 + 1, ..AppendRules::default() };
    log.set_rules(LogRules { append, compaction: Some(RULES), ..rolling(1) });
    let groups = log.clean_groups(Offset(5));
    let bases: Vec<Vec<i64>> = groups.iter().map(|g| g.iter().map(|source| source.id.base.0).collect()).collect();
    assert_eq!(bases, [vec![0, 1], vec![2, 3], vec![4]]);
}

#[test]
fn a_cleaned_segment_takes_the_place_of_its_sources_unless_all_of_them_are_gone() {
    let segment = || {
        let id = SegmentId { generation: 1, ..SegmentId::new(Offset(0), crate::ids::LeaderEpoch(5)) };
        let mut segment = Segment::new(id, NOW);
        segment.grow(Offset(2), 70, NOW);
        segment
    };
    let (mut log, _) = log(4, RULES);
    let sources: Vec<_> = log.clean_groups(Offset(2)).concat().iter().map(|source| source.id).collect();
    let mut passed = log_start_moved(2);
    assert!(!passed.cleaned(&sources, segment()), "nothing to take the place of");
    let mut reached = log_start_moved(1);
    assert!(reached.cleaned(&sources, segment()), "one of them is there");
    assert!(log.cleaned(&sources, segment()));
    for log in [&log, &reached] {
        let bases: Vec<_> = log.segments().all().iter().map(|s| (s.id.base.0, s.id.generation)).collect();
        assert_eq!(bases, [(0, 1), (2, 0), (3, 0)]);
        assert_eq!(log.next_offset(), Offset(4));
    }
}

fn log_start_moved(start: i64) -> Partition {
    let (mut log, _) = log(4, RULES);
    log.set_log_start(Offset(start));
    log
}

#[test]
fn case_111_a_batch_of_a_transaction_with_a_keyless_record_is_refused_and_nothing_happened() {
    let append = AppendRules { compacted: true, ..AppendRules::default() };
    let mut log = partition(LogRules { append, compaction: Some(RULES), ..rolling(1000) });
    let batch = |keys: &[Option<&[u8]>]| {
        let start = BatchBuilder::new().producer(1, 0, 0).transactional();
        Bytes::from(keys.iter().fold(start, |batch, key| batch.record_at(NOW, *key, Some(b"v"), &[])).build())
    };
    let Append::Refused(refusal) =
        log.append(&batch(&[Some(b"k1"), None, Some(b"k2")]), VERSION, Permit::Unchecked, NOW)
    else {
        panic!("a record has no key");
    };
    assert_eq!(refusal.code, ErrorCode::InvalidRecord);
    assert_eq!(refusal.record_errors.iter().map(|error| error.0).collect::<Vec<_>>(), [1]);
    assert_eq!((log.next_offset(), log.producers().open_transactions()), (Offset(0), 0));
    let placed = append_batch(&mut log, &batch(&[Some(b"k1")]));
    assert_eq!(placed.base, Offset(0), "the same sequence is free");
}
