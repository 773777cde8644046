use oncilla_shards::batch::BatchBuilder;
use oncilla_shards::partition::{Segment, SegmentIndex};
use oncilla_shards::producers::AbortedTxn;

use super::*;
use crate::disk::indexes::write_indexes_blocking;
use crate::disk::recovery::{RecoveredPartition, RecoveryRules, recover_partition};
use crate::disk::{log_start, snapshot_file};

/// Offsets of the batches that are replayed.
#[derive(Default)]
struct Rules(Vec<i64>);

impl RecoveryRules for Rules {
    fn is_usable_snapshot(&self, _: &[u8]) -> bool {
        true
    }

    fn restore(&mut self, _: Option<&[u8]>) {
        self.0.clear();
    }

    fn replay(&mut self, batch: &[u8]) -> Option<AbortedTxn> {
        self.0.push(i64::from_be_bytes(batch[..8].try_into().expect("a batch")));
        None
    }
}

fn recover(dir: &Path) -> (RecoveredPartition, Vec<i64>) {
    let mut rules = Rules::default();
    let found = recover_partition(dir, &mut rules).expect("recovers");
    (found, rules.0)
}

fn batch(base: i64, records: i32, epoch: i32) -> Vec<u8> {
    BatchBuilder::new().base_offset(Offset(base)).leader_epoch(LeaderEpoch(epoch)).records(records).build()
}

fn id(base: i64, epoch: i32, generation: u32) -> SegmentId {
    SegmentId { base: Offset(base), epoch: LeaderEpoch(epoch), generation }
}

/// Writes a sealed segment of batches (base, records, epoch); `suffix` behind the name of its log.
fn write(dir: &Path, id: SegmentId, batches: &[(i64, i32, i32)], suffix: &str) -> SegmentIndex {
    let mut segment = Segment::new(id, oncilla_shards::ids::TimestampMs(0));
    let mut log = Vec::new();
    for &(base, records, epoch) in batches {
        let bytes = batch(base, records, epoch);
        segment.grow(Offset(base + i64::from(records)), bytes.len(), oncilla_shards::ids::TimestampMs(-1));
        log.extend(bytes);
    }
    fs::write(dir.join(format!("{}{suffix}", id.file(SegmentFile::Log))), log).expect("written");
    write_indexes_blocking(&segment, dir).expect("written");
    segment.index
}

const CLEANED: (i64, i32, u32) = (0, 1, 1);

fn exchange() -> Exchange {
    let (base, epoch, generation) = CLEANED;
    Exchange { cleaned: id(base, epoch, generation), sources: vec![id(0, 1, 0), id(10, 2, 0)] }
}

/// Three segments: 0..10 and 10..20, which become 3..4 and 18..20 in one, and 20..30.
fn three(dir: &Path) {
    write(dir, id(0, 1, 0), &[(0, 3, 1), (3, 1, 1), (4, 6, 1)], "");
    write(dir, id(10, 2, 0), &[(10, 8, 2), (18, 2, 2)], "");
    write(dir, id(20, 3, 0), &[(20, 10, 3)], "");
}

fn write_cleaned(dir: &Path) {
    write(dir, exchange().cleaned, &[(3, 1, 1), (18, 2, 2)], CLEANED_SUFFIX);
}

fn commit(dir: &Path) {
    let epochs = vec![(LeaderEpoch(1), Offset(0)), (LeaderEpoch(2), Offset(10))];
    write_blocking(dir, &Compaction { cleaned_to: Offset(5), epochs, exchange: Some(exchange()) }).expect("written");
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("listed")
        .map(|e| e.expect("entry").file_name().into_string().expect("text"))
        .collect();
    names.retain(|name| name.contains(".log"));
    names.sort();
    names
}

const OLD: [i64; 6] = [0, 3, 4, 10, 18, 20];
const NEW: [i64; 3] = [3, 18, 20];

/// What must hold after a start whatever happened before it, and after the start behind that one.
fn check(dir: &Path, batches: &[i64]) {
    for _ in 0..2 {
        let (found, replayed) = recover(dir);
        assert_eq!(replayed, batches);
        assert_eq!((found.log_start, found.log_end), (Offset(0), Offset(30)));
        let epochs: Vec<_> = found.epochs.iter().map(|(epoch, start)| (epoch.0, start.0)).collect();
        assert_eq!(epochs, [(1, 0), (2, 10), (3, 20)], "K23 answers as before");
        assert!(found.cuts.is_empty() && found.set_aside.is_empty());
        let names = names(dir);
        assert_eq!(names.len(), found.segments.len(), "nothing is left over: {names:?}");
    }
}

#[test]
fn a10_a_crash_before_the_exchange_counts_undoes_it() {
    let dir = tempfile::tempdir().expect("a directory");
    three(dir.path());
    check(dir.path(), &OLD);
    // Half of the cleaned segment, without indexes.
    let unfinished = unfinished_path(dir.path(), exchange().cleaned);
    fs::write(&unfinished, &batch(3, 1, 1)[..40]).expect("written");
    check(dir.path(), &OLD);
    // All of it, with indexes, which stand under their own names.
    write_cleaned(dir.path());
    check(dir.path(), &OLD);
    assert!(!unfinished.exists() && !exchange().cleaned.path(dir.path(), SegmentFile::Index).exists());
}

#[test]
fn a10_a_crash_after_the_exchange_counts_finishes_it() {
    // How far it got: the name, then each file of the sources in the order of their removal.
    for steps in 0..=7 {
        let dir = tempfile::tempdir().expect("a directory");
        three(dir.path());
        write_cleaned(dir.path());
        commit(dir.path());
        if steps > 0 {
            put_in_place_blocking(dir.path(), &exchange()).expect("renamed");
        }
        let files = exchange()
            .sources
            .into_iter()
            .flat_map(|source| SegmentFile::ALL.map(|kind| source.path(dir.path(), kind)));
        for file in files.take(steps - steps.min(1)) {
            fs::remove_file(file).expect("there");
        }
        check(dir.path(), &NEW);
        let (found, _) = recover(dir.path());
        assert_eq!(found.cleaned_to, Offset(5));
        assert_eq!(found.segments[0].name, exchange().cleaned);
        assert_eq!(found.segments[0].next_offset, Offset(20), "as far as the last source");
    }
}

#[test]
fn a10_a_start_that_is_interrupted_itself_goes_on_where_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    three(dir.path());
    write_cleaned(dir.path());
    commit(dir.path());
    recover_blocking(dir.path()).expect("finished");
    recover_blocking(dir.path()).expect("again without harm");
    check(dir.path(), &NEW);
}

#[test]
fn a_finished_exchange_is_no_harm_when_its_segment_is_gone_below_the_log_start() {
    let dir = tempfile::tempdir().expect("a directory");
    three(dir.path());
    write_cleaned(dir.path());
    commit(dir.path());
    recover_blocking(dir.path()).expect("finished");
    log_start::write_blocking(dir.path(), Offset(20)).expect("written");
    let (found, _) = recover(dir.path());
    assert_eq!((found.log_start, found.log_end, found.segments.len()), (Offset(20), Offset(30), 1));
    assert_eq!(found.epochs, [(LeaderEpoch(3), Offset(20))], "what ended before is no part of the log");
    let (found, _) = recover(dir.path());
    assert_eq!(found.log_end, Offset(30));
}

#[test]
fn sources_are_not_removed_for_a_cleaned_segment_that_is_not_there() {
    let dir = tempfile::tempdir().expect("a directory");
    three(dir.path());
    commit(dir.path());
    assert_eq!(recover(dir.path()).1, OLD);
}

#[test]
fn a_cleaned_segment_without_indexes_is_read_with_its_gaps_and_its_epochs() {
    let dir = tempfile::tempdir().expect("a directory");
    three(dir.path());
    write_cleaned(dir.path());
    commit(dir.path());
    recover(dir.path());
    let cleaned = exchange().cleaned;
    fs::remove_file(cleaned.path(dir.path(), SegmentFile::Index)).expect("there");
    check(dir.path(), &NEW);
    // Of what was appended neither is right.
    write(dir.path(), id(30, 4, 0), &[(30, 1, 4), (32, 1, 4)], "");
    fs::remove_file(id(30, 4, 0).path(dir.path(), SegmentFile::Index)).expect("there");
    assert_eq!(recover(dir.path()).0.log_end, Offset(31));
}

#[test]
fn a8_a_snapshot_inside_of_a_cleaned_segment_is_taken_up_there() {
    let dir = tempfile::tempdir().expect("a directory");
    three(dir.path());
    write_cleaned(dir.path());
    commit(dir.path());
    snapshot_file::write_blocking(dir.path(), Offset(10), b"state").expect("written");
    assert_eq!(recover(dir.path()).1, [18, 20], "the snapshot covers the rest, whose offsets may be gone");
}

#[test]
fn a_damaged_state_is_an_error_and_not_an_empty_one() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(read_blocking(dir.path()).expect("none"), Compaction::default());
    commit(dir.path());
    assert_eq!(read_blocking(dir.path()).expect("read").exchange, Some(exchange()));
    let whole = fs::read_to_string(dir.path().join(COMPACTION_NAME)).expect("read");
    for damage in [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        whole.replace(".1.1.log", ".1.log"),
        whole.replace("\"cleaned_to\": 5", "\"cleaned_to\": -5"),
    ] {
        assert_ne!(damage, whole);
        fs::write(dir.path().join(COMPACTION_NAME), damage).expect("written");
        assert!(read_blocking(dir.path()).is_err());
    }
}
