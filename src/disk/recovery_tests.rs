use std::path::PathBuf;

use oncilla_shards::producers::AbortedTxn;
use proptest::prelude::*;

use super::*;
use crate::disk::segment_writer::{SegmentOptions, SegmentWriter};
use crate::rt::file::{FileMode, test_block_on};

const HEADER: usize = 61;

/// A v2 batch with `payload` bytes of records that recovery does not look into.
fn batch(base: i64, records: i32, epoch: i32, payload: usize) -> Vec<u8> {
    let mut out = vec![0; HEADER + payload];
    out[0..8].copy_from_slice(&base.to_be_bytes());
    out[8..12].copy_from_slice(&((HEADER - 12 + payload) as i32).to_be_bytes());
    out[12..16].copy_from_slice(&epoch.to_be_bytes());
    out[16] = 2;
    out[23..27].copy_from_slice(&(records - 1).to_be_bytes());
    out[35..43].copy_from_slice(&(1_000 + base).to_be_bytes());
    out[57..61].copy_from_slice(&records.to_be_bytes());
    out[HEADER..].fill(0xab);
    let crc = crc32c::crc32c(&out[21..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    out
}

/// Collects what is replayed.
#[derive(Default)]
struct Rules {
    snapshot: Option<Vec<u8>>,
    replayed: Vec<i64>,
}

fn int<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

impl RecoveryRules for Rules {
    fn is_usable_snapshot(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(b"snapshot")
    }

    fn restore(&mut self, snapshot: Option<&[u8]>) {
        self.replayed.clear();
        self.snapshot = snapshot.map(<[u8]>::to_vec);
    }

    fn replay(&mut self, batch: &[u8]) -> Option<AbortedTxn> {
        self.replayed.push(i64::from_be_bytes(int(batch, 0)));
        None
    }
}

fn name(base: i64, epoch: i32) -> SegmentId {
    SegmentId::new(Offset(base), LeaderEpoch(epoch))
}

fn log_path(dir: &Path, base: i64, epoch: i32) -> PathBuf {
    name(base, epoch).path(dir, SegmentFile::Log)
}

/// Batches of `records` records each, in a segment of their own that is not sealed: followed by zeros.
fn write_unsealed(dir: &Path, base: i64, epoch: i32, records: &[i32], payload: usize) -> Vec<u8> {
    let mut next = base;
    let mut log = Vec::new();
    for count in records {
        log.extend(batch(next, *count, epoch, payload));
        next += i64::from(*count);
    }
    let mut file = log.clone();
    file.resize(log.len().next_multiple_of(4096) + 8192, 0);
    fs::write(log_path(dir, base, epoch), file).unwrap();
    log
}

fn recover(dir: &Path) -> (RecoveredPartition, Rules) {
    let mut rules = Rules::default();
    let recovered = recover_partition(dir, &mut rules).unwrap();
    (recovered, rules)
}

/// Three sealed segments of two batches each: 0..10, 10..20, 20..30.
fn three_sealed(dir: &Path) {
    for (i, base) in [0, 10, 20].into_iter().enumerate() {
        write_unsealed(dir, base, 1 + i as i32, &[4, 6], 500);
        assert_eq!(recover(dir).0.log_end, Offset(base + 10));
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn ends(recovered: &RecoveredPartition) -> Vec<(i64, i64)> {
    recovered.segments.iter().map(|s| (s.name.base.0, s.next_offset.0)).collect()
}

#[test]
fn an_empty_directory_is_an_empty_log() {
    let dir = tempfile::tempdir().unwrap();
    let (recovered, rules) = recover(dir.path());
    assert_eq!((recovered.log_start, recovered.log_end), (Offset(0), Offset(0)));
    assert!(recovered.segments.is_empty() && recovered.cuts.is_empty() && rules.replayed.is_empty());
}

#[test]
fn an_unsealed_segment_is_cut_behind_its_last_batch_and_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_unsealed(dir.path(), 5, 3, &[1, 2, 3], 100);
    let (recovered, rules) = recover(dir.path());
    assert_eq!(ends(&recovered), [(5, 11)]);
    assert_eq!((recovered.log_start, recovered.log_end), (Offset(5), Offset(11)));
    assert_eq!(recovered.epochs, [(LeaderEpoch(3), Offset(5))]);
    assert_eq!(recovered.segments[0].max_timestamp, TimestampMs(1008));
    assert!(recovered.cuts.is_empty(), "zeros behind the tail are no damage");
    assert_eq!(rules.replayed, [5, 6, 8]);
    assert_eq!(fs::read(log_path(dir.path(), 5, 3)).unwrap(), log);
    let again = recover(dir.path()).0;
    assert_eq!(again.segments[0].index.encode_offsets(), recovered.segments[0].index.encode_offsets());
    assert_eq!((ends(&again), again.segments[0].bytes), (ends(&recovered), recovered.segments[0].bytes));
}

#[test]
fn a_flipped_byte_at_every_position_of_the_last_batch_cuts_only_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_unsealed(dir.path(), 0, 1, &[2, 3], 40);
    let path = log_path(dir.path(), 0, 1);
    let whole = fs::read(&path).unwrap();
    let last = HEADER + 40;
    for at in last..log.len() {
        for entry in fs::read_dir(dir.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        fs::write(&path, &whole).unwrap();
        flip(&path, at);
        let (recovered, rules) = recover(dir.path());
        assert_eq!(recovered.log_end, Offset(2), "byte {at}");
        assert_eq!(rules.replayed, [0], "byte {at}");
        assert_eq!(fs::read(&path).unwrap(), log[..last], "byte {at}");
        assert_eq!((recovered.cuts.len(), recovered.cuts[0].position), (1, last as u64), "byte {at}");
        assert!(recovered.set_aside.is_empty(), "a torn tail is not worth keeping");
    }
}

#[test]
fn a_tear_at_every_position_of_the_last_batch_cuts_only_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_unsealed(dir.path(), 0, 1, &[2, 3], 40);
    let path = log_path(dir.path(), 0, 1);
    let last = HEADER + 40;
    for at in last..log.len() {
        for zeros in [0, 4096] {
            let mut torn = log[..at].to_vec();
            torn.resize(at + zeros, 0);
            fs::write(&path, torn).unwrap();
            let (recovered, _) = recover(dir.path());
            assert_eq!(recovered.log_end, Offset(2), "byte {at}");
            assert_eq!(fs::read(&path).unwrap(), log[..last], "byte {at}");
        }
    }
}

#[test]
fn a_segment_whose_first_batch_is_torn_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    write_unsealed(dir.path(), 0, 1, &[5], 100);
    recover(dir.path());
    let torn = batch(5, 1, 2, 100);
    fs::write(log_path(dir.path(), 5, 2), &torn[..80]).unwrap();
    fs::write(log_path(dir.path(), 5, 3), b"").unwrap();
    let (recovered, _) = recover(dir.path());
    assert_eq!(ends(&recovered), [(0, 5)]);
    assert!(!log_path(dir.path(), 5, 2).exists() && !log_path(dir.path(), 5, 3).exists());
}

#[test]
fn the_log_goes_on_after_a_recovery_in_a_segment_of_the_next_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let options = SegmentOptions { mode: FileMode::Direct, durable: true, segment_bytes: 1 << 20, faults: None };
    let mut expected = Vec::new();
    for epoch in 1..=4 {
        let (recovered, rules) = recover(dir.path());
        assert_eq!(rules.replayed, expected);
        let end = recovered.log_end;
        test_block_on(async {
            let epoch = LeaderEpoch(epoch);
            let mut writer = SegmentWriter::create(dir.path(), end, epoch, options.clone()).await.unwrap();
            for i in 0..20 {
                let bytes = batch(end.0 + i, 1, epoch.0, 900);
                writer.append_with(bytes.len(), |out| out.copy_from_slice(&bytes)).await.unwrap();
                expected.push(end.0 + i);
            }
            // Dropped without a seal: the process died.
        });
    }
    let (recovered, _) = recover(dir.path());
    assert_eq!(ends(&recovered), [(0, 20), (20, 40), (40, 60), (60, 80)]);
    let epochs: Vec<_> = recovered.epochs.iter().map(|(e, o)| (e.0, o.0)).collect();
    assert_eq!(epochs, [(1, 0), (2, 20), (3, 40), (4, 60)]);
}

#[test]
fn a_copy_taken_at_any_moment_recovers_to_at_least_what_was_acknowledged() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = SegmentOptions { mode: FileMode::Direct, durable: true, segment_bytes: 8 << 20, faults: None };
    test_block_on(async {
        let mut writer = SegmentWriter::create(dir.path(), Offset(0), LeaderEpoch(1), options).await.unwrap();
        for i in 0..40 {
            let bytes = batch(i, 1, 1, 700 * (i as usize % 30 + 1));
            writer.append_with(bytes.len(), |out| out.copy_from_slice(&bytes)).await.unwrap();
            let to = copy.path().join(i.to_string());
            fs::create_dir(&to).unwrap();
            fs::copy(writer.path(), log_path(&to, 0, 1)).unwrap();
            // The next append is on its way while the copy is taken.
            let next = batch(i + 1, 1, 1, 700);
            let log = fs::read(writer.path()).unwrap();
            let mut ahead = log[..writer.end() as usize].to_vec();
            ahead.extend(&next[..next.len() * (i as usize) / 40]);
            let torn = copy.path().join(format!("{i}-torn"));
            fs::create_dir(&torn).unwrap();
            fs::write(log_path(&torn, 0, 1), ahead).unwrap();
        }
    });
    for i in 0..40 {
        for copy in [copy.path().join(i.to_string()), copy.path().join(format!("{i}-torn"))] {
            let (recovered, rules) = recover(&copy);
            assert_eq!(recovered.log_end, Offset(i + 1));
            assert_eq!(rules.replayed, (0..=i).collect::<Vec<_>>());
        }
    }
}

#[test]
fn sealed_segments_are_taken_by_size_and_rebuilt_when_an_index_is_lost_or_damaged() {
    let dir = tempfile::tempdir().unwrap();
    three_sealed(dir.path());
    snapshot_file::write_blocking(dir.path(), Offset(30), b"snapshot").unwrap();
    let (before, rules) = recover(dir.path());
    assert_eq!(ends(&before), [(0, 10), (10, 20), (20, 30)]);
    assert!(rules.replayed.is_empty());
    for kind in [SegmentFile::Index, SegmentFile::TimeIndex] {
        let path = name(10, 2).path(dir.path(), kind);
        let good = fs::read(&path).unwrap();
        for damage in 0..good.len() + 2 {
            match damage.checked_sub(good.len()) {
                None => flip(&path, damage),
                Some(0) => fs::remove_file(&path).unwrap(),
                Some(_) => fs::write(&path, &good[..good.len() - 1]).unwrap(),
            }
            let (after, _) = recover(dir.path());
            assert_eq!(ends(&after), ends(&before));
            assert!(after.cuts.is_empty() && after.set_aside.is_empty());
            if kind == SegmentFile::Index || damage >= good.len() {
                assert_eq!(fs::read(&path).unwrap(), good, "rebuilt after damage {damage}");
            }
            fs::write(&path, &good).unwrap();
        }
    }
}

#[test]
fn a_sealed_segment_that_lost_its_end_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    three_sealed(dir.path());
    let path = log_path(dir.path(), 20, 3);
    let log = fs::read(&path).unwrap();
    fs::write(&path, &log[..log.len() - 1]).unwrap();
    let (recovered, _) = recover(dir.path());
    assert_eq!(ends(&recovered), [(0, 10), (10, 20), (20, 24)]);
    assert_eq!(recovered.set_aside.len(), 1, "what was cut from a sealed segment is kept aside");
}

#[test]
fn damage_inside_a_sealed_segment_ends_the_log_there_and_keeps_the_rest_aside() {
    let dir = tempfile::tempdir().unwrap();
    three_sealed(dir.path());
    snapshot_file::write_blocking(dir.path(), Offset(20), b"snapshot").unwrap();
    // In the second batch of the first segment; its index is gone, so it is read.
    let path = log_path(dir.path(), 0, 1);
    let rest = fs::read(&path).unwrap()[561..].to_vec();
    flip(&path, 600);
    fs::remove_file(name(0, 1).path(dir.path(), SegmentFile::Index)).unwrap();
    fs::write(name(0, 1).path(dir.path(), SegmentFile::Index), b"bad").unwrap();
    let (recovered, rules) = recover(dir.path());
    assert_eq!(ends(&recovered), [(0, 4)]);
    assert_eq!(recovered.log_end, Offset(4));
    assert_eq!((rules.snapshot, rules.replayed), (None, vec![0]), "the snapshot covers what is not there");
    assert_eq!(recovered.set_aside.len(), 3);
    for aside in &recovered.set_aside {
        assert!(dir.path().join(aside).exists(), "{aside}");
    }
    let kept = fs::read(dir.path().join(&recovered.set_aside[0])).unwrap();
    assert_eq!(kept.len(), rest.len());
    assert_eq!(ends(&recover(dir.path()).0), [(0, 4)]);
}

#[test]
fn damage_that_only_the_replay_meets_ends_the_log_too() {
    let dir = tempfile::tempdir().unwrap();
    three_sealed(dir.path());
    flip(&log_path(dir.path(), 10, 2), 100);
    let (recovered, rules) = recover(dir.path());
    assert_eq!(ends(&recovered), [(0, 10)]);
    assert_eq!(rules.replayed, [0, 4]);
    assert_eq!(recovered.set_aside.len(), 2);
    assert!(!log_path(dir.path(), 20, 3).exists());
}

#[test]
fn a_hole_in_the_log_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    three_sealed(dir.path());
    fs::remove_file(log_path(dir.path(), 10, 2)).unwrap();
    let (recovered, _) = recover(dir.path());
    assert_eq!(ends(&recovered), [(0, 10)]);
    assert_eq!(recovered.set_aside, ["00000000000000000020.3.log.damaged"]);
}

#[test]
fn a_snapshot_spares_the_replay_of_what_it_covers() {
    let dir = tempfile::tempdir().unwrap();
    three_sealed(dir.path());
    snapshot_file::write_blocking(dir.path(), Offset(14), b"snapshot 14").unwrap();
    snapshot_file::write_blocking(dir.path(), Offset(20), b"torn").unwrap();
    let (_, rules) = recover(dir.path());
    assert_eq!(rules.snapshot.as_deref(), Some(&b"snapshot 14"[..]));
    assert_eq!(rules.replayed, [14, 20, 24]);
    for (_, path) in snapshot_file::list_blocking(dir.path()).unwrap() {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(recover(dir.path()).1.replayed, [0, 4, 10, 14, 20, 24]);
}

#[test]
fn case_28_an_interrupted_removal_below_the_log_start_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    three_sealed(dir.path());
    log_start::write_blocking(dir.path(), Offset(22)).unwrap();
    fs::remove_file(log_path(dir.path(), 10, 2)).unwrap();
    let (recovered, _) = recover(dir.path());
    assert_eq!(ends(&recovered), [(20, 30)]);
    assert_eq!((recovered.log_start, recovered.log_end), (Offset(22), Offset(30)));
    assert!(recovered.set_aside.is_empty());
    assert!(!log_path(dir.path(), 0, 1).exists());
    assert!(!name(10, 2).path(dir.path(), SegmentFile::Index).exists());
}

#[test]
fn case_28_offsets_never_start_over_when_every_segment_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    log_start::write_blocking(dir.path(), Offset(700)).unwrap();
    let (recovered, _) = recover(dir.path());
    assert_eq!((recovered.log_start, recovered.log_end), (Offset(700), Offset(700)));
}

#[test]
fn a_batch_of_another_epoch_or_out_of_order_is_not_served() {
    for second in [batch(4, 1, 2, 10), batch(5, 1, 1, 10), batch(3, 1, 1, 10), batch(4, 0, 1, 10)] {
        let dir = tempfile::tempdir().unwrap();
        let mut log = batch(0, 4, 1, 10);
        log.extend(second);
        fs::write(log_path(dir.path(), 0, 1), log).unwrap();
        let (recovered, _) = recover(dir.path());
        assert_eq!((recovered.log_end, recovered.cuts.len()), (Offset(4), 1));
    }
}

#[test]
fn foreign_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    three_sealed(dir.path());
    for foreign in ["lost+found", "notes.txt", "00000000000000000000.log"] {
        fs::write(dir.path().join(foreign), b"mine").unwrap();
    }
    recover(dir.path());
    for foreign in ["lost+found", "notes.txt", "00000000000000000000.log"] {
        assert_eq!(fs::read(dir.path().join(foreign)).unwrap(), b"mine");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_happens_to_the_files_the_log_is_an_unbroken_part_of_what_was_written(
        damage in prop::collection::vec((0usize..3, 0usize..3, any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        three_sealed(dir.path());
        for (segment, kind, at, value) in damage {
            let file = [SegmentFile::Log, SegmentFile::Index, SegmentFile::TimeIndex][kind];
            let path = name(segment as i64 * 10, segment as i32 + 1).path(dir.path(), file);
            let mut bytes = fs::read(&path).unwrap();
            if value % 4 == 0 || bytes.is_empty() {
                bytes.truncate(at.index(bytes.len() + 1));
            } else {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            fs::write(&path, bytes).unwrap();
        }
        let (recovered, rules) = recover(dir.path());
        // Only where a whole first segment is gone does the log begin later.
        let all = [0, 4, 10, 14, 20, 24];
        let begin = all.iter().position(|base| rules.replayed.first() == Some(base)).unwrap_or(0);
        let end = begin + rules.replayed.len();
        prop_assert!(begin % 2 == 0);
        prop_assert_eq!(&rules.replayed[..], &all[begin..end]);
        // Of a log whose beginning is missing and whose rest is damaged, where it began is all that is left.
        let log_end = if end == begin { recovered.log_start.0 } else { all.get(end).copied().unwrap_or(30) };
        prop_assert_eq!(recovered.log_end.0, log_end);
        let (again, _) = recover(dir.path());
        prop_assert_eq!(ends(&again), ends(&recovered));
        prop_assert!(again.cuts.is_empty());
    }
}
