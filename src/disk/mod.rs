//! Everything that is on the volume: segments, indexes, snapshots, slots, and the small files that are replaced as a
//! whole.
//!
//! Owner: the shard that owns the partition; at start, before anything is served, the thread that recovers it.
//! Rule of the folder: a call without `async` blocks and belongs to start-up or to `rt::file::blocking`.
//! Failure: every error is a [`DiskError`] with operation and path, and is never retried over.

pub mod append_file;
pub mod boot;
pub mod compaction;
pub mod indexes;
pub mod layout;
pub mod log_start;
pub mod recovery;
pub mod remove_aside;
pub mod replace;
pub mod segment_reader;
pub mod segment_writer;
pub mod slot_files;
pub mod snapshot_file;

pub use crate::rt::file::FileError as DiskError;

use std::path::Path;

/// Turns an error of the standard library into one that says what was tried where.
pub(crate) fn context<T>(operation: &'static str, path: &Path, result: std::io::Result<T>) -> Result<T, DiskError> {
    result.map_err(|error| DiskError::new(operation, path, &error))
}
