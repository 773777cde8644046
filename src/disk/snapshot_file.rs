//! Files with a partition's producer state: `<20-digit offset>.snapshot` covers every batch below that offset.
//!
//! Owner: the partition's shard, which writes one whenever it seals a segment, even of no producers: recovery replays
//! only what follows the newest usable one. Failure: a missing or damaged snapshot costs a longer replay, nothing else,
//! because no segment is deleted that none covers.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use oncilla_shards::ids::Offset;
use oncilla_shards::limits::SNAPSHOTS_KEPT;

use super::layout::{parse_snapshot_name, snapshot_name};
use super::replace::{read_blocking, replace, replace_blocking};
use super::{DiskError, context};
use crate::rt::file::blocking;

/// Writes the snapshot that covers everything below `offset`, durably, on the helper thread, and drops all but
/// the newest `SNAPSHOTS_KEPT`.
pub async fn write(partition: &Path, offset: Offset, bytes: Vec<u8>) -> Result<(), DiskError> {
    replace(partition.join(snapshot_name(offset)), bytes).await?;
    let partition = partition.to_path_buf();
    blocking(move || drop_old_blocking(&partition)).await
}

/// The same, blocking.
pub fn write_blocking(partition: &Path, offset: Offset, bytes: &[u8]) -> Result<(), DiskError> {
    replace_blocking(&partition.join(snapshot_name(offset)), bytes)?;
    drop_old_blocking(partition)
}

/// Whether a snapshot covers everything below `end`; looked up on the helper thread.
pub async fn covers(partition: &Path, end: Offset) -> Result<bool, DiskError> {
    let partition = partition.to_path_buf();
    let newest = blocking(move || list_blocking(&partition)).await?.into_iter().next();
    Ok(newest.is_some_and(|(offset, _)| offset >= end))
}

/// Snapshots of a partition, newest first; blocks.
pub fn list_blocking(partition: &Path) -> Result<Vec<(Offset, PathBuf)>, DiskError> {
    let mut found = Vec::new();
    for entry in context("list", partition, fs::read_dir(partition))? {
        let entry = context("list", partition, entry)?;
        if let Some(offset) = entry.file_name().to_str().and_then(parse_snapshot_name) {
            found.push((offset, entry.path()));
        }
    }
    found.sort_by_key(|(offset, _)| std::cmp::Reverse(*offset));
    Ok(found)
}

/// The newest snapshot that `is_usable` accepts and whose offset is one of `wanted`. Those beyond `log_end` are
/// removed, for they describe batches that are not there; so are damaged ones. Blocks.
pub fn newest_usable_blocking(
    partition: &Path,
    wanted: RangeInclusive<Offset>,
    log_end: Offset,
    is_usable: &dyn Fn(&[u8]) -> bool,
) -> Result<Option<(Offset, Vec<u8>)>, DiskError> {
    for (offset, path) in list_blocking(partition)? {
        let mut reason = "it covers more than the log holds";
        if offset <= log_end && !wanted.contains(&offset) {
            continue;
        }
        if offset <= log_end {
            match read_blocking(&path)? {
                Some(bytes) if is_usable(&bytes) => return Ok(Some((offset, bytes))),
                _ => reason = "its content is damaged",
            }
        }
        tracing::warn!(path = %path.display(), %log_end, "producer snapshot is dropped: {reason}");
        context("remove", &path, fs::remove_file(&path))?;
    }
    Ok(None)
}

fn drop_old_blocking(partition: &Path) -> Result<(), DiskError> {
    for (_, path) in list_blocking(partition)?.into_iter().skip(SNAPSHOTS_KEPT) {
        context("remove", &path, fs::remove_file(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(dir: &Path) -> Vec<i64> {
        list_blocking(dir).unwrap().into_iter().map(|(offset, _)| offset.0).collect()
    }

    #[test]
    fn the_newest_usable_snapshot_within_the_log_wins_and_newer_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        for (offset, bytes) in [(10, b"good"), (20, b"good"), (30, b"torn"), (40, b"good")] {
            replace_blocking(&dir.path().join(snapshot_name(Offset(offset))), bytes).unwrap();
        }
        let newest =
            newest_usable_blocking(dir.path(), Offset(0)..=Offset(35), Offset(35), &|bytes| bytes == b"good").unwrap();
        assert_eq!(newest, Some((Offset(20), b"good".to_vec())));
        assert_eq!(offsets(dir.path()), [20, 10]);
        let older = |wanted| newest_usable_blocking(dir.path(), wanted, Offset(35), &|bytes| bytes == b"good").unwrap();
        assert_eq!(older(Offset(0)..=Offset(19)).map(|(offset, _)| offset), Some(Offset(10)));
        assert_eq!(older(Offset(11)..=Offset(19)), None);
        assert_eq!(offsets(dir.path()), [20, 10], "what is newer than wanted stays");
    }

    #[test]
    fn only_the_newest_two_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        crate::rt::file::test_block_on(async {
            for offset in 1..=5 {
                write(dir.path(), Offset(offset), vec![1]).await.unwrap();
            }
        });
        write_blocking(dir.path(), Offset(6), &[1]).unwrap();
        assert_eq!(offsets(dir.path()), [6, 5]);
    }
}
