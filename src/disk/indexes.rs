//! The index files of sealed segments: written when a segment is sealed, read back by recovery.
//!
//! Owner: whoever seals or recovers the segment; blocks. The offset index is written last: it is the one that says
//! "sealed". Failure: files that are missing or damaged are reported with the reason, and recovery rebuilds them.

use std::path::{Path, PathBuf};

use oncilla_shards::ids::Offset;
use oncilla_shards::partition::{AbortedIndex, Segment, SegmentId, SegmentIndex};

use super::DiskError;
use super::layout::{SegmentFile, SegmentPaths};
use super::replace::{read_blocking, replace_blocking, replace_each_blocking};

/// Writes all index files of a sealed segment, durably. Blocks.
pub fn write_indexes_blocking(segment: &Segment, partition: &Path) -> Result<(), DiskError> {
    let id = segment.id;
    let aborted = segment.aborted.encode(id.base, segment.bytes());
    let [times, offsets] = index_files(&segment.index, partition, id);
    // One sync of the directory: a crash that leaves some of the names leaves a segment whose indexes are rebuilt.
    replace_each_blocking(&[(id.path(partition, SegmentFile::Aborted), aborted), times, offsets])
}

/// Writes offset and time index of a segment, durably. Blocks.
pub fn write_index_blocking(index: &SegmentIndex, partition: &Path, segment: SegmentId) -> Result<(), DiskError> {
    replace_each_blocking(&index_files(index, partition, segment))
}

fn index_files(index: &SegmentIndex, partition: &Path, segment: SegmentId) -> [(PathBuf, Vec<u8>); 2] {
    assert_eq!(segment.base, index.base());
    let path = |kind| segment.path(partition, kind);
    [(path(SegmentFile::TimeIndex), index.encode_times()), (path(SegmentFile::Index), index.encode_offsets())]
}

/// Writes the aborted transactions of a segment of `log_bytes`, durably. Blocks.
pub fn write_aborted_blocking(
    aborted: &AbortedIndex,
    partition: &Path,
    segment: SegmentId,
    log_bytes: u64,
) -> Result<(), DiskError> {
    replace_blocking(&segment.path(partition, SegmentFile::Aborted), &aborted.encode(segment.base, log_bytes))
}

/// Reads offset and time index of a sealed segment; an error says why they must be rebuilt. Blocks.
pub fn read_index_blocking(
    partition: &Path,
    segment: SegmentId,
    log_bytes: u64,
    batch_bytes: &dyn Fn(u64, Offset) -> Option<usize>,
) -> Result<SegmentIndex, &'static str> {
    let read = |kind| read_blocking(&segment.path(partition, kind)).map_err(|_| "an index file cannot be read");
    let offsets = read(SegmentFile::Index)?.ok_or("there is no offset index")?;
    let times = read(SegmentFile::TimeIndex)?.ok_or("there is no time index")?;
    SegmentIndex::decode(segment.base, &offsets, &times, log_bytes, batch_bytes)
}

/// Reads the aborted transactions of the segment with this index; an error says why they must be found anew. Blocks.
pub fn read_aborted_blocking(
    partition: &Path,
    segment: SegmentId,
    index: &SegmentIndex,
) -> Result<AbortedIndex, &'static str> {
    let read = read_blocking(&segment.path(partition, SegmentFile::Aborted));
    let bytes = read.map_err(|_| "the aborted index cannot be read")?.ok_or("there is no aborted index")?;
    AbortedIndex::decode(&bytes, index.end(), segment.base, index.next_offset())
}
