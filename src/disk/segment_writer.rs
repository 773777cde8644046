//! The one writer of one segment: an [`AppendFile`] that is sealed, with its indexes, when it is full.
//!
//! Owner: the partition's writer task. Failure: as for the file; the first failed write, sync or abandoned append
//! poisons the writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncilla_shards::ids::{LeaderEpoch, Offset};
use oncilla_shards::partition::{Segment, SegmentId};

use super::DiskError;
pub use super::append_file::Written;
use super::append_file::{AppendFile, AppendOptions};
use super::indexes::write_indexes_blocking;
use super::layout::{SegmentFile, SegmentPaths};
use crate::rt::file::{FaultPlan, FileMode, blocking};

/// How a segment is written.
#[derive(Clone, Debug)]
pub struct SegmentOptions {
    /// Past the page cache or through it.
    pub mode: FileMode,
    /// Whether each append is durable when it returns; otherwise [`SegmentWriter::sync`] decides.
    pub durable: bool,
    /// The topic's segment.bytes: nothing is zeroed beyond.
    pub segment_bytes: u64,
    /// Faults to inject; `None` outside tests.
    pub faults: Option<Arc<FaultPlan>>,
}

/// Writer of one segment.
pub struct SegmentWriter {
    file: AppendFile,
    partition: PathBuf,
    segment: SegmentId,
}

impl SegmentWriter {
    /// Creates the segment's file in a partition's directory, its name durable.
    pub async fn create(
        partition: &Path,
        base: Offset,
        epoch: LeaderEpoch,
        options: SegmentOptions,
    ) -> Result<Self, DiskError> {
        let segment = SegmentId::new(base, epoch);
        let SegmentOptions { mode, durable, segment_bytes, faults } = options;
        let options = AppendOptions { mode, durable, file_bytes: segment_bytes, faults };
        let file = AppendFile::create(&segment.path(partition, SegmentFile::Log), options).await?;
        Ok(Self { file, partition: partition.to_path_buf(), segment })
    }

    /// Which segment this is.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Whether each append is durable when it returns.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.file.is_durable()
    }

    /// Where the log file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes appended so far.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.file.end()
    }

    /// Appends `len` bytes that `fill` puts into a buffer of that length, as one write.
    pub async fn append_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Written, DiskError> {
        self.file.append_with(len, fill).await
    }

    /// Makes every append before it durable; needed only where appends are not.
    pub async fn sync(&mut self) -> Result<(), DiskError> {
        self.file.sync().await
    }

    /// Cuts the file to what was appended and writes its indexes, all durable; returns the segment's bytes.
    /// An index that cannot be written is logged, not an error: the segment is whole, and the next start rebuilds it.
    pub async fn seal(mut self, segment: &Segment) -> Result<u64, DiskError> {
        self.file.check()?;
        assert_eq!(segment.id, self.segment, "a segment is sealed as itself");
        assert_eq!(segment.bytes(), self.end(), "the index of {} covers all of it", self.path().display());
        let end = self.file.cut().await?;
        if end > 0 {
            let (segment, partition) = (segment.clone(), self.partition.clone());
            if let Err(error) = blocking(move || write_indexes_blocking(&segment, &partition)).await {
                tracing::warn!(%error, "a sealed segment has no index: the next start reads all of it");
            }
        }
        self.file.close().await?;
        Ok(end)
    }
}

#[cfg(test)]
#[path = "segment_writer_tests.rs"]
mod tests;
