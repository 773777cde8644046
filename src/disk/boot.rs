//! The first things of a start: the directory is ours alone, this start has an epoch of its own, the cluster has an id.
//!
//! Owner: the main thread, before any shard exists; blocks. The boot epoch is durable before anything is written under
//! it: it is the leader epoch in the names of all segments of this run, so no two runs write one file.
//! Failure: a directory in use, a damaged or missing epoch file beside existing topics: the start is refused with the
//! reason, never guessed around.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use oncilla_shards::ids::{LeaderEpoch, TopicId};
use serde::{Deserialize, Serialize};

use super::layout::DataDir;
use super::remove_aside::sweep_blocking;
use super::replace::{create_directory_blocking, read_json_blocking, remove_leftovers_blocking, replace_json_blocking};
use super::{DiskError, context};

/// The directory's exclusive lock, held until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// What a start knows before it looks at any topic.
#[derive(Debug)]
pub struct Boot {
    /// Keeps other brokers out; hold it as long as the process runs.
    pub lock: DirectoryLock,
    /// Larger than that of every earlier start.
    pub epoch: LeaderEpoch,
    /// The cluster's id, made at the first start.
    pub cluster_id: String,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    boot_epoch: LeaderEpoch,
    cluster_id: String,
}

/// Takes the data directory over for this process; blocks. At the first start `first` runs before the first epoch is
/// stored: what it creates exists whenever an epoch does, so its absence later means that it was lost.
pub fn boot_blocking(data: &DataDir, first: impl FnOnce(&DataDir) -> Result<(), DiskError>) -> Result<Boot, DiskError> {
    create_directory_blocking(data.root())?;
    let lock = lock_directory(&data.lock_file())?;
    for directory in [data.topics(), data.cluster(), data.producer_ids_dir()] {
        create_directory_blocking(&directory)?;
        remove_leftovers_blocking(&directory)?;
    }
    sweep_blocking(&data.topics())?;
    let path = data.epoch();
    let stored = match read_json_blocking::<Stored>(&path)? {
        Some(stored) if stored.boot_epoch.0 < 0 || stored.cluster_id.is_empty() => {
            return Err(DiskError::invalid("read", &path, format!("boot epoch {} is not one", stored.boot_epoch)));
        }
        Some(stored) => stored,
        None if holds_topics(data)? => {
            let message = "it is missing although there are topics: restore it, or the epochs of segments would repeat";
            return Err(DiskError::invalid("read", &path, message));
        }
        None => {
            first(data)?;
            Stored { boot_epoch: LeaderEpoch(0), cluster_id: new_cluster_id() }
        }
    };
    let next = stored.boot_epoch.0.checked_add(1);
    let next = next.ok_or_else(|| DiskError::invalid("raise the boot epoch", &path, "there is no higher one"))?;
    let stored = Stored { boot_epoch: LeaderEpoch(next), ..stored };
    replace_json_blocking(&path, &stored)?;
    Ok(Boot { lock, epoch: stored.boot_epoch, cluster_id: stored.cluster_id })
}

/// 22 characters of base64 of a random UUID, as Kafka makes them: none starts with `-`, which command lines would take
/// for an option.
#[must_use]
pub fn new_cluster_id() -> String {
    loop {
        let id = TopicId(uuid::Uuid::new_v4().as_u128()).to_base64();
        if !id.starts_with('-') {
            return id;
        }
    }
}

fn lock_directory(path: &Path) -> Result<DirectoryLock, DiskError> {
    let open = File::options().create(true).truncate(false).write(true).open(path);
    let file = context("open", path, open)?;
    match file.try_lock() {
        Ok(()) => Ok(DirectoryLock { _file: file }),
        Err(TryLockError::WouldBlock) => {
            Err(DiskError::invalid("lock", path, "another broker uses this data directory"))
        }
        Err(TryLockError::Error(error)) => Err(DiskError::new("lock", path, &error)),
    }
}

fn holds_topics(data: &DataDir) -> Result<bool, DiskError> {
    let topics = data.topics();
    Ok(context("list", &topics, fs::read_dir(&topics))?.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &DataDir) -> Result<(), DiskError> {
        Ok(())
    }

    #[test]
    fn what_the_first_start_prepares_is_there_whenever_an_epoch_is() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let failing = |data: &DataDir| Err(DiskError::invalid("prepare", data.root(), "no"));
        assert!(boot_blocking(&data, failing).is_err());
        assert!(!data.epoch().exists());
        let mut prepared = 0;
        for _ in 0..3 {
            let boot = boot_blocking(&data, |_| {
                prepared += 1;
                Ok(())
            });
            boot.unwrap();
        }
        assert_eq!(prepared, 1);
    }

    #[test]
    fn every_start_has_a_higher_epoch_and_the_same_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path().join("new/data"));
        let first = boot_blocking(&data, nothing).unwrap();
        let cluster_id = first.cluster_id.clone();
        assert_eq!((first.epoch, cluster_id.len()), (LeaderEpoch(1), 22));
        drop(first);
        for epoch in 2..5 {
            let boot = boot_blocking(&data, nothing).unwrap();
            assert_eq!((boot.epoch, &boot.cluster_id), (LeaderEpoch(epoch), &cluster_id));
        }
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let boot = boot_blocking(&data, nothing).unwrap();
        let error = boot_blocking(&data, nothing).unwrap_err();
        assert!(error.to_string().contains("another broker"), "{error}");
        assert_eq!(boot.epoch, LeaderEpoch(1));
    }

    #[test]
    fn a_damaged_or_lost_epoch_is_refused_and_never_starts_over() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        drop(boot_blocking(&data, nothing).unwrap());
        fs::create_dir_all(data.topics().join("t")).unwrap();
        for damage in
            ["", "{", "{\"boot_epoch\":-1,\"cluster_id\":\"x\"}", "{\"boot_epoch\":2147483647,\"cluster_id\":\"x\"}"]
        {
            fs::write(data.epoch(), damage).unwrap();
            assert!(boot_blocking(&data, nothing).is_err(), "{damage}");
        }
        fs::remove_file(data.epoch()).unwrap();
        let error = boot_blocking(&data, nothing).unwrap_err();
        assert!(error.to_string().contains("epoch.json"), "{error}");
    }

    #[test]
    fn cluster_ids_never_look_like_options() {
        for _ in 0..1000 {
            let id = new_cluster_id();
            assert!(id.len() == 22 && !id.starts_with('-'), "{id}");
        }
    }
}
