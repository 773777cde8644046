//! The log start offset of a partition, durable: what DeleteRecords and retention moved it to.
//!
//! Owner: the partition's shard. It is replaced before any segment below it is removed, so that neither deleted
//! records come back nor offsets start over when every segment is gone. Failure: a damaged file is an error, never 0.

use std::path::{Path, PathBuf};

use oncilla_shards::ids::Offset;
use serde::{Deserialize, Serialize};

use super::DiskError;
use super::layout::LOG_START_NAME;
use super::replace::{read_json_blocking, replace_json, replace_json_blocking};

#[derive(Serialize, Deserialize)]
struct Stored {
    log_start_offset: Offset,
}

fn path(partition: &Path) -> PathBuf {
    partition.join(LOG_START_NAME)
}

/// The stored log start, `None` if none was ever stored; blocks.
pub fn read_blocking(partition: &Path) -> Result<Option<Offset>, DiskError> {
    let stored = read_json_blocking::<Stored>(&path(partition))?.map(|s| s.log_start_offset);
    match stored {
        Some(offset) if offset.0 < 0 => {
            Err(DiskError::invalid("read", &path(partition), format!("log start {offset} is negative")))
        }
        other => Ok(other),
    }
}

/// Stores a log start, durably; blocks.
pub fn write_blocking(partition: &Path, log_start_offset: Offset) -> Result<(), DiskError> {
    replace_json_blocking(&path(partition), &Stored { log_start_offset })
}

/// Stores a log start, durably, on the helper thread.
pub async fn write(partition: &Path, log_start_offset: Offset) -> Result<(), DiskError> {
    replace_json(path(partition), &Stored { log_start_offset }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stored_log_start_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_blocking(dir.path()).unwrap(), None);
        write_blocking(dir.path(), Offset(7)).unwrap();
        crate::rt::file::test_block_on(write(dir.path(), Offset(9))).unwrap();
        assert_eq!(read_blocking(dir.path()).unwrap(), Some(Offset(9)));
    }

    #[test]
    fn a_damaged_log_start_is_an_error_and_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        for damage in ["", "{}", "{\"log_start_offset\":-5}", "{\"log_start_offset\":5"] {
            std::fs::write(dir.path().join(LOG_START_NAME), damage).unwrap();
            assert!(read_blocking(dir.path()).is_err(), "{damage}");
        }
    }
}
