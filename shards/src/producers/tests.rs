use super::*;
use crate::batch::{Attributes, BatchBuilder, ControlKind};

const P: i64 = 7;

/// A partition's log as far as producers see it: batches are checked, and appended when they pass.
struct Log {
    producers: Producers,
    next: i64,
    /// Everything in the log, to replay it.
    batches: Vec<(BatchHeader, Option<ControlRecord>)>,
}

fn header(pid: i64, epoch: i16, sequence: i32, count: i32) -> BatchHeader {
    let batch = BatchBuilder::new().producer(pid, epoch, sequence);
    let batch = batch.record_count(count).last_offset_delta(count - 1);
    BatchHeader::parse(&batch.build()).expect("a header")
}

fn in_txn(mut header: BatchHeader) -> BatchHeader {
    header.attributes = header.attributes.with_transactional(true);
    header
}

fn refused(code: ErrorCode) -> Check {
    Check::Refuse(code)
}

const GAP: Check = Check::Refuse(ErrorCode::OutOfOrderSequenceNumber);
const STALE: Check = Check::Refuse(ErrorCode::InvalidProducerEpoch);

impl Log {
    fn new() -> Self {
        Self { producers: Producers::new(), next: 0, batches: Vec::new() }
    }

    fn send(&mut self, header: BatchHeader) -> Check {
        self.send_at(header, 1000)
    }

    fn send_at(&mut self, mut header: BatchHeader, timestamp: i64) -> Check {
        let check = self.producers.check(&header, Permit::Unchecked);
        if check == Check::Append {
            header.base_offset = Offset(self.next);
            header.max_timestamp = TimestampMs(timestamp);
            self.producers.appended(&header);
            self.push(header, None);
        }
        check
    }

    fn plain(&mut self, epoch: i16, sequence: i32, count: i32) -> Check {
        self.send(header(P, epoch, sequence, count))
    }

    fn push(&mut self, header: BatchHeader, control: Option<ControlRecord>) {
        self.next = header.next_offset().0;
        self.batches.push((header, control));
    }

    fn end(&mut self, pid: i64, epoch: i16, kind: ControlKind) -> Option<AbortedTxn> {
        self.marker(pid, epoch, kind, 0, 0).expect("the marker is right")
    }

    fn marker(
        &mut self,
        pid: i64,
        epoch: i16,
        kind: ControlKind,
        coordinator_epoch: i32,
        version: i16,
    ) -> Result<Option<AbortedTxn>, ErrorCode> {
        let (id, producer_epoch) = (ProducerId(pid), ProducerEpoch(epoch));
        self.producers.check_marker(id, producer_epoch, coordinator_epoch, version)?;
        let mut marker = header(pid, epoch, -1, 1);
        marker.attributes = Attributes(0x30);
        marker.base_offset = Offset(self.next);
        marker.max_timestamp = TimestampMs(2000);
        let record = ControlRecord { kind, coordinator_epoch };
        let aborted = self.producers.marker_appended(&marker, record);
        self.push(marker, Some(record));
        Ok(aborted)
    }

    fn view(&self, pid: i64) -> Option<ProducerView> {
        self.producers.describe().find(|view| view.producer_id.0 == pid)
    }

    /// What comes back from `snapshot` and the log behind it.
    fn recovered(&self, snapshot: Option<&[u8]>) -> Producers {
        let mut producers = match snapshot {
            Some(bytes) => Producers::restore(bytes).expect("a right snapshot"),
            None => Producers::new(),
        };
        for (header, control) in &self.batches {
            producers.replay(header, *control);
        }
        producers
    }
}

fn duplicate(base: i64, count: i64) -> Check {
    Check::Duplicate { base_offset: Offset(base), last_offset: Offset(base + count - 1), timestamp: TimestampMs(1000) }
}

#[test]
fn f1_each_of_the_last_five_batches_is_a_duplicate_at_its_offset() {
    let mut log = Log::new();
    for n in 0..5 {
        assert_eq!(log.plain(0, n, 1), Check::Append);
    }
    for n in 0..5 {
        assert_eq!(log.plain(0, n, 1), duplicate(i64::from(n), 1), "case_1");
    }
    assert_eq!(log.next, 5, "nothing is appended");
}

#[test]
fn f2_the_sixth_newest_batch_is_out_of_order() {
    let mut log = Log::new();
    for n in 0..6 {
        assert_eq!(log.plain(0, n, 1), Check::Append);
    }
    assert_eq!(log.plain(0, 0, 1), GAP);
    for n in 1..6 {
        assert_eq!(log.plain(0, n, 1), duplicate(i64::from(n), 1));
    }
}

#[test]
fn f3_a_partial_overlap_is_no_duplicate() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, 0, 2), Check::Append);
    assert_eq!(log.plain(0, 2, 3), Check::Append);
    for (sequence, count) in [(2, 2), (3, 3), (4, 1), (2, 4), (1, 4), (0, 5)] {
        assert_eq!(log.plain(0, sequence, count), GAP, "{count} records from {sequence}");
    }
    assert_eq!(log.plain(0, 2, 3), duplicate(2, 3));
}

#[test]
fn f4_a_gap_is_refused_and_the_right_batch_then_accepted() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, 0, 10), Check::Append);
    assert_eq!(log.plain(0, 11, 1), GAP);
    assert_eq!(log.next, 10);
    assert_eq!(log.plain(0, 10, 1), Check::Append);
}

#[test]
fn f5_zero_and_nothing_else_follows_the_largest_sequence() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, i32::MAX, 1), Check::Append);
    assert_eq!(log.plain(0, 1, 1), GAP);
    assert_eq!(log.plain(0, 0, 1), Check::Append, "case_5");
}

#[test]
fn f6_a_batch_may_wrap_inside() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, i32::MAX - 10, 21), Check::Append);
    assert_eq!(log.view(P).map(|view| view.last_sequence), Some(Sequence(9)));
    assert_eq!(log.plain(0, 10, 1), Check::Append);
    assert_eq!(log.plain(0, i32::MAX - 10, 21), duplicate(0, 21), "case_5");
}

#[test]
fn f7_a_new_epoch_starts_at_zero_and_fences_the_old_one() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, 0, 3), Check::Append);
    assert_eq!(log.plain(1, 5, 1), GAP);
    assert_eq!(log.plain(1, 0, 1), Check::Append);
    assert_eq!(log.plain(0, 3, 1), STALE);
    assert_eq!(log.plain(0, 0, 3), STALE, "case_9: duplicates count within an epoch");
    assert_eq!(log.plain(i16::MAX, 0, 1), Check::Append, "contract 0.6: up to the largest epoch");
}

#[test]
fn f8_an_unknown_producer_begins_anywhere() {
    let mut log = Log::new();
    assert_eq!(log.plain(4, 17, 2), Check::Append);
    assert_eq!(log.plain(4, 20, 1), GAP);
    assert_eq!(log.plain(4, 19, 1), Check::Append, "case_3: strict again afterwards");
}

#[test]
fn case_7_the_next_sequence_counts_records_and_not_batches() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, 0, 3), Check::Append);
    assert_eq!(log.plain(0, 1, 1), GAP);
    assert_eq!(log.plain(0, 4, 1), GAP);
    assert_eq!(log.plain(0, 3, 1), Check::Append);
}

#[test]
fn case_10_after_a_lost_batch_the_later_ones_wait_for_it() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, 0, 1), Check::Append);
    for n in 2..5 {
        assert_eq!(log.plain(0, n, 1), GAP, "1 was lost on the way");
    }
    for n in 1..5 {
        assert_eq!(log.plain(0, n, 1), Check::Append);
    }
    assert_eq!(log.next, 5);
}

#[test]
fn f12_a_plain_batch_inside_an_open_transaction_is_refused_in_the_order_of_a5() {
    let mut log = Log::new();
    assert_eq!(log.send(in_txn(header(P, 3, 0, 2))), Check::Append);
    assert_eq!(log.plain(3, 2, 1), refused(ErrorCode::InvalidTxnState));
    assert_eq!(log.plain(3, 3, 1), GAP);
    assert_eq!(log.plain(3, 0, 2), duplicate(0, 2), "the transactional bit does not count");
    assert_eq!(log.plain(4, 0, 1), refused(ErrorCode::InvalidTxnState));
    assert_eq!(log.plain(4, 1, 1), GAP);
    assert_eq!(log.plain(2, 0, 1), STALE);
}

#[test]
fn a_batch_without_a_producer_is_always_new() {
    let mut log = Log::new();
    for _ in 0..3 {
        assert_eq!(log.send(header(-1, -1, -1, 4)), Check::Append);
        assert_eq!(log.send(in_txn(header(-2, 0, 0, 1))), Check::Append);
    }
    assert!(log.producers.is_empty());
    assert_eq!((log.producers.end_offset(), log.producers.first_unstable()), (Offset(15), None));
}

#[test]
fn f14_idle_producers_expire_and_those_with_open_transactions_do_not() {
    let mut log = Log::new();
    assert_eq!(log.send_at(header(1, 0, 0, 1), 100), Check::Append);
    assert_eq!(log.send_at(in_txn(header(2, 0, 0, 1)), 100), Check::Append);
    assert_eq!(log.send_at(header(3, 0, 0, 1), 101), Check::Append);
    assert_eq!(
        log.producers.check(&header(1, 0, 0, 1), Permit::Unchecked),
        Check::Duplicate { base_offset: Offset(0), last_offset: Offset(0), timestamp: TimestampMs(100) }
    );
    assert_eq!(log.producers.expire(TimestampMs(1099), 1000), 0);
    assert_eq!(log.producers.expire(TimestampMs(1100), 1000), 1, "a duplicate does not renew");
    assert_eq!(log.producers.describe().map(|view| view.producer_id.0).collect::<Vec<_>>(), [2, 3]);
    // The marker's timestamp counts from then on.
    log.end(2, 0, ControlKind::Commit);
    assert_eq!(log.producers.expire(TimestampMs(2999), 1000), 1);
    assert_eq!(log.producers.expire(TimestampMs(3000), 1000), 1);
    assert!(log.producers.is_empty());
    assert_eq!(log.send(header(1, -1 + 1, 55, 1)), Check::Append, "any sequence is accepted again");
    assert_eq!(log.producers.expire(TimestampMs(i64::MIN), 1000), 0, "clocks far apart do not overflow");
}

#[test]
fn f15_a_restart_restores_sequences_transactions_and_coordinators() {
    let mut log = Log::new();
    for n in 0..4 {
        assert_eq!(log.plain(2, n * 2, 2), Check::Append);
    }
    assert_eq!(log.send(in_txn(header(8, 1, 0, 1))), Check::Append);
    log.marker(9, 6, ControlKind::Commit, 12, 0).expect("right");
    let snapshot = log.producers.snapshot();
    assert_eq!(log.plain(2, 8, 2), Check::Append);
    assert_eq!(log.send(in_txn(header(8, 1, 1, 1))), Check::Append);

    log.producers = log.recovered(Some(&snapshot));
    for n in 0..5 {
        assert_eq!(log.plain(2, n * 2, 2), duplicate([0, 2, 4, 6, 10][n as usize], 2), "case_13: all five");
    }
    assert_eq!(log.producers.first_unstable(), Some(Offset(8)), "the transaction is still open");
    assert_eq!(log.view(9).map(|view| (view.epoch.0, view.coordinator_epoch)), Some((6, 12)));
    assert_eq!(log.send(in_txn(header(8, 1, 2, 1))), Check::Append);
    let aborted = log.end(8, 1, ControlKind::Abort).expect("it wrote here");
    assert_eq!((aborted.first_offset, aborted.marker_offset), (Offset(8), Offset(14)));
}

#[test]
fn f16_without_a_usable_snapshot_the_log_gives_the_same_state() {
    let mut log = Log::new();
    for n in 0..7 {
        assert_eq!(log.plain(0, n, 1), Check::Append);
    }
    let mut snapshot = log.producers.snapshot();
    snapshot[4] ^= 1;
    assert_eq!(Producers::restore(&snapshot).err(), Some(SnapshotError::Unknown), "unknown version");
    snapshot[4] ^= 1;
    snapshot.pop();
    assert_eq!(Producers::restore(&snapshot).err(), Some(SnapshotError::Damaged), "cut");
    let recovered = log.recovered(None);
    assert_eq!(recovered.snapshot(), log.producers.snapshot());
    assert_eq!(recovered.check(&header(P, 0, 2, 1), Permit::Unchecked), duplicate(2, 1), "five are cached again");
}

#[test]
fn f17_a_log_cut_below_a_transaction_has_none_open() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, 0, 1), Check::Append);
    assert_eq!(log.send(in_txn(header(P, 0, 1, 1))), Check::Append);
    log.batches.truncate(1);
    let recovered = log.recovered(None);
    assert_eq!((recovered.first_unstable(), recovered.end_offset()), (None, Offset(1)));
    assert_eq!(recovered.last_stable(Offset(1), Offset(0)), Offset(1));
}

#[test]
fn f18_a_moved_log_start_keeps_producers() {
    let mut log = Log::new();
    assert_eq!(log.plain(0, 0, 1), Check::Append);
    log.producers.log_start_moved(Offset(1));
    assert_eq!(log.plain(0, 0, 1), duplicate(0, 1), "case_4");
    assert_eq!(log.plain(0, 1, 1), Check::Append);
}

#[test]
fn f19_a_marker_of_transaction_version_0_or_1_needs_an_epoch_not_below() {
    for version in [0, 1] {
        for (epoch, fits) in [(4, false), (5, true), (6, true)] {
            let mut log = Log::new();
            assert_eq!(log.send(in_txn(header(P, 5, 0, 1))), Check::Append);
            let outcome = log.marker(P, epoch, ControlKind::Commit, 0, version);
            assert_eq!(outcome.err(), (!fits).then_some(ErrorCode::InvalidProducerEpoch), "epoch {epoch}");
        }
    }
}

#[test]
fn f20_a_marker_of_transaction_version_2_needs_a_higher_epoch_and_may_repeat() {
    let mut log = Log::new();
    assert_eq!(log.send(in_txn(header(P, 5, 0, 1))), Check::Append);
    let mut mark = |epoch| log.marker(P, epoch, ControlKind::Abort, 0, 2).map(|aborted| aborted.is_some());
    assert_eq!(mark(5), Err(ErrorCode::InvalidProducerEpoch));
    assert_eq!(mark(6), Ok(true));
    assert_eq!(mark(6), Ok(false), "a repeat, without a second index entry");
    assert_eq!(mark(5), Err(ErrorCode::InvalidProducerEpoch));
    // There is no epoch above the largest, so there an equal one ends even an open transaction.
    let mut log = Log::new();
    assert_eq!(log.send(in_txn(header(P, i16::MAX, 0, 1))), Check::Append);
    assert!(log.marker(P, i16::MAX, ControlKind::Commit, 0, 3).is_ok(), "versions above 2 act as 2");
}

#[test]
fn f21_an_older_coordinator_is_fenced_after_the_epoch_is_looked_at() {
    let mut log = Log::new();
    log.marker(P, 3, ControlKind::Commit, 2, 0).expect("right");
    for (epoch, version, code) in [
        (3, 0, ErrorCode::TransactionCoordinatorFenced),
        (4, 0, ErrorCode::TransactionCoordinatorFenced),
        (4, 2, ErrorCode::TransactionCoordinatorFenced),
        (2, 0, ErrorCode::InvalidProducerEpoch),
        (2, 2, ErrorCode::InvalidProducerEpoch),
        (-1, 0, ErrorCode::InvalidRequest),
    ] {
        assert_eq!(log.marker(P, epoch, ControlKind::Commit, 1, version).err(), Some(code));
    }
    assert!(log.marker(P, 3, ControlKind::Commit, 3, 0).is_ok());
}

#[test]
fn f22_a_marker_for_an_unknown_producer_fences_it() {
    let mut log = Log::new();
    assert_eq!(log.end(P, 4, ControlKind::Abort), None, "nothing was written here, nothing is indexed");
    assert_eq!(log.plain(3, 0, 1), STALE);
    assert_eq!(log.plain(4, 17, 1), GAP);
    assert_eq!(log.plain(4, 0, 1), Check::Append);
}

#[test]
fn f23_a_marker_at_the_same_epoch_continues_the_sequence() {
    let mut log = Log::new();
    assert_eq!(log.send(in_txn(header(P, 0, 0, 2))), Check::Append);
    log.end(P, 0, ControlKind::Commit);
    assert_eq!(log.send(in_txn(header(P, 0, 0, 2))), duplicate(0, 2));
    assert_eq!(log.send(in_txn(header(P, 0, 2, 1))), Check::Append);
    // At a higher epoch the window is cleared.
    log.end(P, 1, ControlKind::Commit);
    assert_eq!(log.send(in_txn(header(P, 1, 3, 1))), GAP);
    assert_eq!(log.send(in_txn(header(P, 1, 0, 1))), Check::Append);
}

#[test]
fn f24_the_last_stable_offset_waits_for_markers_to_be_committed() {
    let mut log = Log::new();
    assert_eq!(log.send(header(-1, -1, -1, 10)), Check::Append);
    assert_eq!(log.send(in_txn(header(1, 0, 0, 10))), Check::Append);
    assert_eq!(log.send(in_txn(header(2, 0, 0, 10))), Check::Append);
    let aborted = log.end(1, 0, ControlKind::Abort).expect("it wrote here");
    assert_eq!(
        aborted,
        AbortedTxn {
            producer_id: ProducerId(1),
            first_offset: Offset(10),
            marker_offset: Offset(30),
            stable_offset: Offset(20),
        }
    );
    let stable = |log: &mut Log, high_watermark| {
        log.producers.high_watermark_moved(Offset(high_watermark));
        log.producers.last_stable(Offset(high_watermark), Offset(0)).0
    };
    assert_eq!(stable(&mut log, 25), 10);
    assert_eq!(stable(&mut log, 30), 10, "the marker itself is not below the high watermark");
    assert_eq!(stable(&mut log, 31), 20);
    assert_eq!(log.send(header(-1, -1, -1, 9)), Check::Append);
    assert_eq!(log.end(2, 0, ControlKind::Commit), None);
    assert_eq!(stable(&mut log, 40), 20);
    assert_eq!(stable(&mut log, 41), 41);
}

#[test]
fn f25_the_last_stable_offset_is_never_below_the_log_start() {
    let mut log = Log::new();
    assert_eq!(log.send(in_txn(header(P, 0, 0, 10))), Check::Append);
    log.producers.log_start_moved(Offset(6));
    assert_eq!(log.producers.last_stable(Offset(10), Offset(6)), Offset(6));
    assert_eq!(log.send(in_txn(header(P, 0, 10, 1))), Check::Append, "transaction and sequences go on");
    assert_eq!(log.end(P, 0, ControlKind::Abort).map(|aborted| aborted.first_offset), Some(Offset(0)));
    log.producers.log_start_moved(Offset(12));
    assert_eq!(log.producers.first_unstable(), None, "a8: the marker is gone with the log");
}

#[test]
fn a6_what_compaction_left_of_a_marker_is_ignored() {
    let mut log = Log::new();
    assert_eq!(log.send(in_txn(header(P, 0, 0, 1))), Check::Append);
    let mut empty = header(P, 0, -1, 0);
    empty.attributes = Attributes(0x30);
    (empty.base_offset, empty.last_offset_delta) = (Offset(1), 0);
    assert_eq!(log.producers.replay(&empty, None), None);
    assert_eq!((log.producers.open_transactions(), log.producers.end_offset()), (1, Offset(2)));
}

#[test]
fn a8_replay_does_not_count_what_the_snapshot_holds_twice() {
    let mut log = Log::new();
    assert_eq!(log.send(in_txn(header(P, 0, 0, 1))), Check::Append);
    log.end(P, 0, ControlKind::Abort);
    log.producers.high_watermark_moved(Offset(2));
    let snapshot = log.producers.snapshot();
    let recovered = log.recovered(Some(&snapshot));
    assert_eq!(recovered.snapshot(), snapshot);
}

#[test]
fn a8_replay_gives_the_aborted_index_again() {
    let mut log = Log::new();
    assert_eq!(log.send(in_txn(header(P, 0, 0, 1))), Check::Append);
    let live = log.end(P, 0, ControlKind::Abort);
    let mut rebuilt = Producers::new();
    let entries: Vec<_> = log.batches.iter().filter_map(|(header, control)| rebuilt.replay(header, *control)).collect();
    assert_eq!(entries, live.into_iter().collect::<Vec<_>>());
    assert_eq!(entries.len(), 1);
}

#[test]
fn case_161_the_producer_unused_for_longest_is_forgotten_and_open_transactions_never() {
    let mut log = Log::new();
    log.producers = Producers::new().limited_to(3);
    assert_eq!(log.send(in_txn(header(1, 0, 0, 1))), Check::Append);
    for pid in [2, 3] {
        assert_eq!(log.send(header(pid, 0, 0, 1)), Check::Append);
    }
    assert_eq!(log.send(header(2, 0, 1, 1)), Check::Append);
    assert_eq!(log.send(header(4, 0, 0, 1)), Check::Append);
    let known = |log: &Log| log.producers.describe().map(|view| view.producer_id.0).collect::<Vec<_>>();
    assert_eq!(known(&log), [1, 2, 4], "3 was unused for longest");
    for pid in [5, 6, 7] {
        assert_eq!(log.send(in_txn(header(pid, 0, 0, 1))), Check::Append);
    }
    assert_eq!(known(&log), [1, 5, 6, 7], "open transactions go above the limit");
    assert_eq!(log.producers.forget_oldest(), None);
    for pid in [6, 1] {
        log.end(pid, 0, ControlKind::Commit);
    }
    assert_eq!(log.send(header(8, 0, 0, 1)), Check::Append);
    assert_eq!(known(&log), [5, 7, 8], "closed ones count by their markers");
}

#[test]
fn describe_shows_what_describe_producers_asks_for() {
    let mut log = Log::new();
    assert_eq!(log.send_at(in_txn(header(9, 2, 5, 3)), 777), Check::Append);
    log.marker(4, 1, ControlKind::Commit, 6, 0).expect("right");
    assert_eq!(
        log.producers.describe().collect::<Vec<_>>(),
        [
            ProducerView {
                producer_id: ProducerId(4),
                epoch: ProducerEpoch(1),
                last_sequence: Sequence(-1),
                last_timestamp: TimestampMs(2000),
                coordinator_epoch: 6,
                txn_start_offset: None,
            },
            ProducerView {
                producer_id: ProducerId(9),
                epoch: ProducerEpoch(2),
                last_sequence: Sequence(7),
                last_timestamp: TimestampMs(777),
                coordinator_epoch: -1,
                txn_start_offset: Some(Offset(0)),
            },
        ]
    );
}

#[test]
fn a_producer_takes_about_two_hundred_bytes() {
    let mut producers = Producers::new();
    let entries = 100_000;
    for pid in 0..entries {
        let mut header = header(pid, 0, 0, 1);
        header.base_offset = Offset(pid);
        producers.appended(&header);
    }
    let each = producers.memory_bytes() / entries as usize;
    assert!((160..=220).contains(&each), "{each} bytes a producer");
    producers.expire(TimestampMs(i64::MAX), 0);
    assert!(producers.memory_bytes() < 4096, "expiry gives memory back");
}
