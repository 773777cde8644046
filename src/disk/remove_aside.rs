//! Removal of topics and segments: renamed aside durably, then taken apart by a thread that nothing waits for.
//!
//! Owner: the broker has one [`Remover`]. A crash leaves only names that end in `.deleted`, which the next start
//! removes. Failure: what cannot be removed is logged and stays under its `.deleted` name until the next start.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use oncilla_shards::partition::SegmentId;

use super::layout::{DELETED_SUFFIX, SegmentFile, SegmentPaths};
use super::replace::sync_parent;
use super::{DiskError, context};
use crate::rt::file::blocking;

/// The way to the removing thread; clones lead to the same one, which ends after the last of them.
#[derive(Clone, Debug)]
pub struct Remover(Sender<PathBuf>);

impl Remover {
    /// Starts the thread.
    pub fn start() -> Result<Self, DiskError> {
        let (sender, receiver) = channel::<PathBuf>();
        let thread = thread::Builder::new().name("remover".into()).spawn(move || {
            for path in receiver {
                remove_now(&path);
            }
        });
        context("start a thread to remove", Path::new("topics"), thread)?;
        Ok(Self(sender))
    }

    /// Renames a directory or file aside, durably, on the helper thread, and has it removed. Nothing there is fine:
    /// an earlier attempt got that far.
    pub async fn remove(&self, path: PathBuf) -> Result<(), DiskError> {
        if let Some(aside) = blocking(move || set_aside_blocking(&path, DELETED_SUFFIX)).await? {
            // The thread lives as long as this sender does.
            let _ = self.0.send(aside);
        }
        Ok(())
    }

    /// Has a segment's files removed. Its log start must be durable first (`log_start`): a crash may leave the files,
    /// and only the log start says that they are no more.
    pub fn remove_segment(&self, partition: &Path, segment: SegmentId) {
        for kind in SegmentFile::ALL {
            let _ = self.0.send(segment.path(partition, kind));
        }
    }
}

/// Renames `path` to itself plus `suffix`, durably; `None` if there is no such name. Blocks.
pub fn set_aside_blocking(path: &Path, suffix: &str) -> Result<Option<PathBuf>, DiskError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(suffix);
    let aside = PathBuf::from(aside);
    match fs::rename(path, &aside) {
        Ok(()) => sync_parent(path).map(|()| Some(aside)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DiskError::new("rename aside", path, &error)),
    }
}

/// Removes what an earlier process renamed aside in `directory` and did not finish; says how many. Blocks.
pub fn sweep_blocking(directory: &Path) -> Result<usize, DiskError> {
    let mut swept = 0;
    for entry in context("list", directory, fs::read_dir(directory))? {
        let entry = context("list", directory, entry)?;
        if entry.file_name().to_string_lossy().ends_with(DELETED_SUFFIX) {
            remove_now(&entry.path());
            swept += 1;
        }
    }
    Ok(swept)
}

fn remove_now(path: &Path) {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "deleted data stays until the next start");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::file::test_block_on;

    #[test]
    fn case_28_a_topic_is_gone_at_once_and_its_files_soon_after() {
        let dir = tempfile::tempdir().unwrap();
        let topic = dir.path().join("t.x");
        fs::create_dir_all(topic.join("0")).unwrap();
        test_block_on(async {
            let remover = Remover::start().unwrap();
            remover.remove(topic.clone()).await.unwrap();
            assert!(!topic.exists());
            remover.remove(topic.clone()).await.unwrap();
        });
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while fs::read_dir(dir.path()).unwrap().count() > 0 {
            assert!(std::time::Instant::now() < deadline, "the remover did not get to it");
            thread::yield_now();
        }
    }

    #[test]
    fn case_28_a_crash_in_a_removal_leaves_only_what_the_next_start_removes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("gone/0")).unwrap();
        fs::create_dir_all(dir.path().join("kept/0")).unwrap();
        set_aside_blocking(&dir.path().join("gone"), DELETED_SUFFIX).unwrap().unwrap();
        assert!(!dir.path().join("gone").exists());
        assert_eq!(sweep_blocking(dir.path()).unwrap(), 1);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
    }
}
