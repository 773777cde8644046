//! A segment that compaction writes: whole blocks at a time, cut to its exact length and synced at the end.
//!
//! Owner: one clean. It has no name of a segment until it counts (`disk::compaction`). Limit: one write's bytes in
//! memory, plus one batch. Failure: the first error ends the clean, and the file is removed.

use std::path::PathBuf;

use oncilla_shards::batch::BatchHeader;
use oncilla_shards::ids::TimestampMs;
use oncilla_shards::limits::CLEAN_WRITE_BYTES;
use oncilla_shards::partition::{Segment, SegmentId};
use oncilla_shards::producers::AbortedTxn;

use crate::disk::DiskError;
use crate::rt::file::{Access, AlignedBuffer, BLOCK_BYTES, DurableFile, FileMode, FileOptions, blocking};

/// The file and what is known of it.
pub struct CleanedFile {
    file: DurableFile,
    path: PathBuf,
    segment: Segment,
    /// Batches behind the last whole block that was written.
    pending: Vec<u8>,
    written: u64,
}

impl CleanedFile {
    /// Creates the file at `path`; one that an earlier clean of this process left there is replaced.
    pub async fn create(
        path: PathBuf,
        id: SegmentId,
        opened_at: TimestampMs,
        mode: FileMode,
    ) -> Result<Self, DiskError> {
        let leftover = path.clone();
        // An error shows when the file is created.
        let _ = blocking(move || std::fs::remove_file(leftover)).await;
        let options = FileOptions { mode, durable: false, faults: None };
        let file = DurableFile::open(&path, Access::Create, &options).await?;
        Ok(Self { file, path, segment: Segment::new(id, opened_at), pending: Vec::new(), written: 0 })
    }

    /// Appends a whole batch, with the transaction that it aborted if it is a marker.
    pub async fn push(&mut self, batch: &[u8], aborted: Option<AbortedTxn>) -> Result<(), DiskError> {
        let header = BatchHeader::parse(batch).expect("compaction makes whole batches");
        let (last, end) = (header.last_offset(), self.segment.bytes() + batch.len() as u64);
        if !self.segment.index.can_hold(last, end) {
            // Delete horizons make times longer: a segment near 2 GiB of such records may grow beyond its indexes.
            return Err(DiskError::invalid("clean", &self.path, "the segment would become larger than 2 GiB"));
        }
        self.segment.grow(header.next_offset(), batch.len(), header.newest_timestamp());
        if let Some(aborted) = aborted {
            self.segment.aborted.push(aborted);
        }
        self.pending.extend_from_slice(batch);
        if self.pending.len() >= CLEAN_WRITE_BYTES {
            self.write(self.pending.len() / BLOCK_BYTES * BLOCK_BYTES).await?;
        }
        Ok(())
    }

    /// Writes the first `bytes` of what is pending, padded with zeros to whole blocks.
    async fn write(&mut self, bytes: usize) -> Result<(), DiskError> {
        let buffer = AlignedBuffer::filled(bytes, |out| out.copy_from_slice(&self.pending[..bytes]));
        self.file.write_aligned(buffer, self.written).await?;
        self.written += bytes as u64;
        self.pending.drain(..bytes);
        Ok(())
    }

    /// Bytes of batches so far.
    pub fn bytes(&self) -> u64 {
        self.segment.bytes()
    }

    /// Writes the rest and makes the file durable; its name is the caller's to make so.
    pub async fn finish(mut self) -> Result<Segment, DiskError> {
        if !self.pending.is_empty() {
            self.write(self.pending.len()).await?;
        }
        self.file.truncate(self.segment.bytes()).await?;
        self.file.sync().await?;
        self.file.close().await?;
        Ok(self.segment)
    }

    /// Removes the file, which is not needed.
    pub async fn discard(self) {
        let path = self.path.clone();
        drop(self.file.close().await);
        // What stays is removed by the next clean or the next start.
        let _ = blocking(move || std::fs::remove_file(path)).await;
    }
}
