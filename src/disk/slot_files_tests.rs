use oncilla_shards::slot::line::write_line;

use super::*;
use crate::rt::file::test_block_on;

const SLOT: SlotId = SlotId(7);
const ANY_EPOCH: LeaderEpoch = LeaderEpoch(100);

fn id(epoch: i32, roll: u32) -> JournalId {
    JournalId { slot: SLOT, epoch: LeaderEpoch(epoch), roll }
}

fn lines(positions: std::ops::RangeInclusive<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    positions.for_each(|position| write_line(Position(position), &format!("entry {position}"), &mut bytes));
    bytes
}

fn entries(count: u64) -> Vec<String> {
    (1..=count).map(|position| format!("entry {position}")).collect()
}

fn recover(directory: &Path) -> Result<RecoveredSlot<String>, DiskError> {
    let files = list_blocking(directory, |slot| slot == SLOT)?.remove(&SLOT).unwrap_or_default();
    recover_blocking(directory, SLOT, &files, ANY_EPOCH)
}

/// Recovers twice: the second time finds what the first one left, and the same slot.
fn recovered(directory: &Path) -> Vec<String> {
    let first = recover(directory).unwrap();
    let second = recover(directory).unwrap();
    assert_eq!(first.entries, second.entries);
    assert_eq!(first.journal.end().0, first.entries.len() as u64);
    assert_eq!(second.journal.durable(), first.journal.durable());
    first.entries
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn options(faults: Option<Arc<FaultPlan>>) -> JournalOptions {
    JournalOptions { mode: FileMode::Direct, file_bytes: 1 << 20, faults }
}

#[test]
fn what_journals_of_several_starts_hold_is_recovered_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("__cluster/group_state");
    assert!(list_blocking(&directory, |_| true).unwrap().is_empty(), "slots without files cost nothing");
    test_block_on(async {
        for (epoch, roll, positions) in [(2, 0, 1..=2), (2, 10, 3..=3), (2, 9, 3..=3), (10, 0, 4..=300)] {
            let mut journal = JournalFile::create(&directory, id(epoch, roll), options(None)).await.unwrap();
            // The tenth roll comes after the ninth, whatever the names sort like.
            if (epoch, roll) == (2, 10) {
                continue;
            }
            for position in positions {
                journal.append(&lines(position..=position)).await.unwrap();
            }
            if epoch == 2 {
                journal.close().await.unwrap();
                let bytes = fs::read(directory.join(id(2, roll).file())).unwrap();
                assert_eq!(bytes.last(), Some(&b'\n'), "a closed journal is cut to its lines");
            }
        }
    });
    assert_eq!(recovered(&directory), entries(300));
    assert_eq!(names(&directory), ["slot-07.10.0.journal", "slot-07.2.0.journal", "slot-07.2.9.journal"]);
    let expected = lines(4..=300);
    assert_eq!(fs::read(directory.join(id(10, 0).file())).unwrap(), expected, "the zeros ahead are cut off");
}

#[test]
fn a_write_torn_at_any_byte_leaves_what_was_acknowledged_and_the_next_start_goes_on_there() {
    let (acknowledged, last) = (lines(1..=3), lines(4..=6));
    for torn in 0..=last.len() {
        for zeros in [0, 4096] {
            let dir = tempfile::tempdir().unwrap();
            let mut bytes = [&acknowledged[..], &last[..torn]].concat();
            bytes.resize(bytes.len() + zeros, 0);
            fs::write(dir.path().join(id(1, 0).file()), bytes).unwrap();
            let whole = 3 + last[..torn].iter().filter(|byte| **byte == b'\n').count() as u64;
            assert_eq!(recovered(dir.path()), entries(whole), "torn at {torn}, {zeros} zeros");
            fs::write(dir.path().join(id(2, 0).file()), lines(whole + 1..=8)).unwrap();
            assert_eq!(recovered(dir.path()), entries(8), "torn at {torn}, {zeros} zeros");
        }
    }
}

#[test]
fn a_flipped_byte_in_the_last_write_ends_the_journal_and_a_copy_of_what_is_cut_stays() {
    let (acknowledged, last) = (lines(1..=3), lines(4..=6));
    for at in 0..last.len() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = [&acknowledged[..], &last].concat();
        bytes[acknowledged.len() + at] ^= 0x20;
        fs::write(dir.path().join(id(1, 0).file()), &bytes).unwrap();
        let whole = 3 + last[..at].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(recovered(dir.path()), entries(whole as u64), "flipped at {at}");
        let end = lines(1..=whole as u64).len();
        let copy = format!("slot-07.1.0.journal.{end}.damaged");
        assert_eq!(fs::read(dir.path().join(copy)).unwrap(), bytes[end..], "flipped at {at}");
    }
}

#[test]
fn a_journal_without_a_whole_line_goes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(id(1, 0).file()), [0; 4096]).unwrap();
    fs::write(dir.path().join(id(2, 0).file()), b"").unwrap();
    assert_eq!(recovered(dir.path()), entries(0));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_checkpoint_replaces_the_journals_before_it_and_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    for (journal, positions) in [(id(1, 0), 1..=2), (id(2, 0), 3..=4), (id(2, 1), 5..=6)] {
        fs::write(dir.path().join(journal.file()), lines(positions)).unwrap();
    }
    fs::write(dir.path().join("slot-08.1.0.journal"), b"another slot's").unwrap();
    fs::write(dir.path().join("notes"), b"not ours").unwrap();
    let bytes = checkpoint_blocking(dir.path(), Position(4), &entries(4), id(2, 1)).unwrap();
    assert_eq!(names(dir.path()), ["notes", "slot-07.2.1.journal", "slot-07.json", "slot-08.1.0.journal"]);
    assert_eq!(bytes, fs::metadata(dir.path().join("slot-07.json")).unwrap().len());
    assert_eq!(recovered(dir.path()), entries(6));
}

#[test]
fn a_crash_between_the_checkpoint_and_the_removal_of_any_journals_applies_nothing_twice() {
    // The checkpoint covers an entry that was pending when the third journal began.
    let journals = [(id(1, 0), 1..=2), (id(2, 0), 3..=4), (id(2, 1), 5..=7)];
    for kept in 0..4_u32 {
        let dir = tempfile::tempdir().unwrap();
        checkpoint_blocking(dir.path(), Position(5), &entries(5), id(0, 0)).unwrap();
        for (index, (journal, positions)) in journals.iter().enumerate() {
            if index == 2 || kept & 1 << index != 0 {
                fs::write(dir.path().join(journal.file()), lines(positions.clone())).unwrap();
            }
        }
        assert_eq!(recovered(dir.path()), entries(7), "removed: all but {kept:b}");
    }
}

#[test]
fn leftovers_of_an_interrupted_checkpoint_go_and_those_of_other_slots_are_their_owners() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(id(1, 0).file()), lines(1..=2)).unwrap();
    fs::write(dir.path().join("slot-07.json.tmp-12-3"), b"{\"crc32c\"").unwrap();
    fs::write(dir.path().join("slot-08.json.tmp-12-4"), b"{").unwrap();
    assert_eq!(recovered(dir.path()), entries(2));
    assert_eq!(names(dir.path()), ["slot-07.1.0.journal", "slot-08.json.tmp-12-4"]);
}

fn refused(directory: &Path, file: &str, reason: &str) {
    let before: Vec<_> = names(directory).iter().map(|name| fs::read(directory.join(name)).unwrap()).collect();
    let error = recover(directory).unwrap_err().to_string();
    let path = directory.join(file).display().to_string();
    for part in [&path, reason, "restore slot-07.json and every slot-07.*.journal", "move all of them away"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let after: Vec<_> = names(directory).iter().map(|name| fs::read(directory.join(name)).unwrap()).collect();
    assert_eq!(before, after, "what is refused is left as it was found");
}

#[test]
fn a_damaged_checkpoint_is_refused_with_the_path_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slot-07.json");
    fs::write(dir.path().join(id(1, 0).file()), [lines(1..=6), b"torn".to_vec()].concat()).unwrap();
    checkpoint_blocking(dir.path(), Position(4), &entries(4), id(0, 0)).unwrap();
    let whole = fs::read(&path).unwrap();
    for (bytes, reason) in [
        (whole[..whole.len() - 1].to_vec(), "cut"),
        (Vec::new(), "cut"),
        (String::from_utf8(whole.clone()).unwrap().replace("entry 3", "entry 9").into_bytes(), "checksum"),
    ] {
        fs::write(&path, bytes).unwrap();
        refused(dir.path(), "slot-07.json", reason);
    }
}

#[test]
fn missing_entries_and_two_histories_are_refused_and_never_guessed_around() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(id(1, 0).file()), lines(1..=4)).unwrap();
    fs::write(dir.path().join(id(2, 0).file()), lines(6..=6)).unwrap();
    refused(dir.path(), "slot-07.2.0.journal", "entries from 5 on are missing");
    fs::write(dir.path().join(id(2, 0).file()), lines(4..=6)).unwrap();
    refused(dir.path(), "slot-07.2.0.journal", "two histories");
    // Damage inside an older journal shows in the one that follows.
    let mut damaged = lines(1..=4);
    damaged[20] ^= 1;
    fs::write(dir.path().join(id(1, 0).file()), damaged).unwrap();
    fs::write(dir.path().join(id(2, 0).file()), lines(5..=6)).unwrap();
    refused(dir.path(), "slot-07.2.0.journal", "entries from 1 on are missing");
}

#[test]
fn a_journal_of_this_start_or_a_later_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(id(100, 0).file()), lines(1..=1)).unwrap();
    let error = recover(dir.path()).unwrap_err().to_string();
    assert!(error.contains("slot-07.100.0.journal") && error.contains("epoch.json"), "{error}");
}

#[test]
fn a_failed_append_is_not_followed_by_another() {
    let dir = tempfile::tempdir().unwrap();
    test_block_on(async {
        let plan = Arc::new(FaultPlan::default());
        let mut journal = JournalFile::create(dir.path(), id(1, 0), options(Some(plan.clone()))).await.unwrap();
        journal.append(&lines(1..=1)).await.unwrap();
        plan.fail_write_after(0, 0);
        assert!(journal.append(&lines(2..=2)).await.is_err());
        assert!(journal.append(&lines(2..=2)).await.is_err());
    });
    assert_eq!(recovered(dir.path()), entries(1));
}
