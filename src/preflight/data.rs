//! Checks of the data directory: there, writable, roomy, on a disk that keeps what it is given, and nobody else's.
//!
//! A directory that does not exist yet is judged by the nearest one above it, where the start will create it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{NFS_SUPER_MAGIC, OFlags, statfs, statvfs};

use super::Finding;
use crate::config::IoMode;

/// Name of the lock file in a data directory.
const LOCK: &str = "meta.lock";

/// Free space below which the next segments may not fit.
const FREE_GOOD_BYTES: u64 = 2 << 30;

/// Free space below which not even the broker's own files fit.
const FREE_MIN_BYTES: u64 = 16 << 20;

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const OVERLAY: i64 = 0x794c_7630;
const BTRFS: i64 = 0x9123_683e;

/// All checks of this file but the lock.
pub fn findings(dir: &Path, io_mode: IoMode) -> Vec<Finding> {
    let there = match nearest(dir) {
        Ok(there) => there,
        Err(finding) => return vec![finding],
    };
    let mut all = vec![writable(dir, &there, io_mode)];
    match statvfs(&there) {
        Ok(stat) => all.push(space(&there, stat.f_bavail.saturating_mul(stat.f_frsize))),
        Err(error) => all.push(Finding::warn("free space", format!("{} does not say: {error}.", there.display()))),
    }
    match statfs(&there) {
        Ok(stat) => all.push(file_system(&there, stat.f_type)),
        Err(error) => all.push(Finding::warn("file system", format!("{} does not say: {error}.", there.display()))),
    }
    all
}

/// The directory itself, or the nearest one above it that exists.
fn nearest(dir: &Path) -> Result<PathBuf, Finding> {
    let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let found = whole.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if found.is_dir() {
        return Ok(found.to_path_buf());
    }
    let (found, wanted) = (found.display(), dir.display());
    let sentence = format!("{found} is a file; choose another directory than {wanted} with: --data DIR");
    Err(Finding::stop("data directory", sentence))
}

fn writable(dir: &Path, there: &Path, io_mode: IoMode) -> Finding {
    let check = "data directory";
    let (wanted, shown) = (dir.display(), there.display());
    let probe = match tempfile::Builder::new().prefix(".oncilla-check-").tempfile_in(there) {
        Ok(probe) => probe,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mend = format!("sudo mkdir -p {wanted} && sudo chown -R $(id -u):$(id -g) {wanted}");
            return Finding::stop(check, format!("{shown} is not writable for this user; give it away with: {mend}"));
        }
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            let mend = format!("sudo mount -o remount,rw $(findmnt -no TARGET -T {shown})");
            return Finding::stop(check, format!("{shown} is mounted read-only; change it with: {mend}"));
        }
        Err(error) => {
            return Finding::stop(check, format!("No file can be made in {shown}: {error}; see: df -h -i {shown}"));
        }
    };
    let direct = || {
        let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags fit");
        OpenOptions::new().write(true).custom_flags(flags).open(probe.path())
    };
    match (io_mode, io_mode == IoMode::Direct && direct().is_err()) {
        (IoMode::Direct, true) => {
            Finding::stop(check, format!("The file system of {shown} has no O_DIRECT; start with: -X log.io=buffered"))
        }
        _ if dir.exists() => Finding::ok(check, format!("{wanted} is writable.")),
        _ => Finding::ok(check, format!("{wanted} can be created.")),
    }
}

fn space(there: &Path, free: u64) -> Finding {
    let check = "free space";
    let (there, mib) = (there.display(), free >> 20);
    if free < FREE_MIN_BYTES {
        Finding::stop(
            check,
            format!("{mib} MiB are free; make room, and see what uses it with: du -xh {there} | sort -h"),
        )
    } else if free < FREE_GOOD_BYTES {
        Finding::warn(check, format!("Only {mib} MiB are free; see what uses them with: du -xh {there} | sort -h"))
    } else {
        Finding::ok(check, format!("{mib} MiB are free."))
    }
}

fn file_system(there: &Path, magic: i64) -> Finding {
    let check = "file system";
    let shown = there.display();
    match magic {
        TMPFS | RAMFS => Finding::warn(
            check,
            format!("{shown} is in memory, so nothing on it outlives a reboot; choose a disk with: --data DIR"),
        ),
        OVERLAY => Finding::warn(
            check,
            format!(
                "{shown} is a container's layer and goes with the container; mount a volume with: -v oncilla:{shown}"
            ),
        ),
        BTRFS => Finding::warn(
            check,
            format!(
                "{shown} is on btrfs, which writes several blocks of its own for each durable write, so that \
                 acknowledgements take many times longer; choose a directory on ext4 or XFS with: --data DIR"
            ),
        ),
        magic if magic == NFS_SUPER_MAGIC => Finding::warn(
            check,
            format!(
                "{shown} is on NFS, where a hang of the server stops the broker and locks need NFS 4; choose a local \
                 disk with: --data DIR"
            ),
        ),
        _ => Finding::ok(check, "Local."),
    }
}

/// Whether another broker holds the directory. Takes the lock for a moment, so it is not part of a start.
pub fn lock(dir: &Path) -> Finding {
    let check = "directory lock";
    let path = dir.join(LOCK);
    let shown = path.display();
    match File::open(&path).map_err(TryLockError::Error).and_then(|file| file.try_lock()) {
        Ok(()) => Finding::ok(check, "Free."),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::NotFound => {
            Finding::ok(check, "No broker was here before.")
        }
        Err(TryLockError::WouldBlock) => Finding::stop(
            check,
            format!(
                "Another broker has this directory; choose another with --data DIR, or find it with: fuser -v {shown}"
            ),
        ),
        Err(TryLockError::Error(error)) => {
            Finding::stop(check, format!("{shown} cannot be locked: {error}; see: ls -l {shown}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn temp() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_judged_by_the_one_above() {
        let dir = temp();
        let finding = &findings(&dir.path().join("a/b"), IoMode::Buffered)[0];
        assert_eq!(finding.verdict, Verdict::Ok);
        assert!(finding.sentence.ends_with("can be created."), "{}", finding.sentence);
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0, "a check leaves nothing behind");
    }

    #[test]
    fn a_file_in_the_way_stops_a_start() {
        let dir = temp();
        std::fs::write(dir.path().join("data"), "x").expect("written");
        let all = findings(&dir.path().join("data/sub"), IoMode::Buffered);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].verdict, Verdict::Stop);
    }

    #[test]
    fn a_place_where_no_file_can_be_made_stops_a_start() {
        // Even root makes no file in /proc.
        let finding = writable(Path::new("/proc/oncilla"), Path::new("/proc"), IoMode::Buffered);
        assert_eq!(finding.verdict, Verdict::Stop, "{}", finding.sentence);
    }

    #[test]
    fn memory_btrfs_nfs_and_container_layers_are_warnings() {
        for magic in [TMPFS, RAMFS, OVERLAY, BTRFS, NFS_SUPER_MAGIC] {
            assert_eq!(file_system(Path::new("/d"), magic).verdict, Verdict::Warn);
        }
        assert_eq!(file_system(Path::new("/d"), 0xef53).verdict, Verdict::Ok, "ext4");
    }

    #[test]
    fn too_little_space_warns_and_none_stops() {
        assert_eq!(space(Path::new("/d"), 1 << 20).verdict, Verdict::Stop);
        assert_eq!(space(Path::new("/d"), 1 << 30).verdict, Verdict::Warn);
        assert_eq!(space(Path::new("/d"), 1 << 40).verdict, Verdict::Ok);
    }

    #[test]
    fn a_lock_that_another_holds_stops_a_start_and_a_free_one_stays_free() {
        let dir = temp();
        assert_eq!(lock(dir.path()).verdict, Verdict::Ok, "no lock file yet");
        let held = File::create(dir.path().join(LOCK)).expect("made");
        held.try_lock().expect("nobody has it");
        assert_eq!(lock(dir.path()).verdict, Verdict::Stop);
        drop(held);
        assert_eq!(lock(dir.path()).verdict, Verdict::Ok);
        File::open(dir.path().join(LOCK)).expect("there").try_lock().expect("the check gave it back");
    }
}
