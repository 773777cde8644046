//! Reads the batches of a partition from its tail cache or its files.

use std::rc::Rc;

use bytes::Bytes;
use oncilla_shards::batch::headers;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{Offset, PartitionKey};
use oncilla_shards::partition::{Partition, ReadPlan, SegmentId, Trimmed, trim};
use oncilla_shards::producers::AbortedTxn;
use oncilla_shards::read_ahead::Span;
use smallvec::SmallVec;

use super::ahead;
use super::writer::is_gone;
use crate::ctx::Ctx;
use crate::disk::layout::{SegmentFile, SegmentPaths};

/// Whole batches from `from` on, below `limit` and about `bytes_max` bytes; the first one whole with `first_whole`.
///
/// # Errors
/// KAFKA_STORAGE_ERROR if the disk fails or a file is damaged, UNKNOWN_TOPIC_OR_PARTITION if the partition goes away,
/// OFFSET_OUT_OF_RANGE if retention overtakes the reader.
pub async fn read(
    ctx: &Rc<Ctx>,
    key: &PartitionKey,
    from: Offset,
    limit: Offset,
    bytes_max: usize,
    first_whole: bool,
) -> Result<SmallVec<[Bytes; 2]>, ErrorCode> {
    loop {
        let plan = {
            let shard = ctx.shard.borrow();
            let partition = shard.asked(key)?;
            partition.read(from, limit, bytes_max, first_whole)
        };
        let ReadPlan::Disk { segment, position, bytes, segment_bytes } = plan else {
            let ReadPlan::Cached(slices) = plan else { return Ok(SmallVec::new()) };
            ctx.metrics.cache_hits.add(1);
            return Ok(slices.into_iter().collect());
        };
        ctx.metrics.cache_misses.add(1);
        let claim = ahead::claim(ctx, key, Span { segment, position, bytes }, from).await;
        let (position, bytes) = match claim.position {
            // The batches before it need not be read.
            Some(exact) => (exact, ahead::exact_bytes(bytes_max)),
            None => (position, bytes),
        };
        let place = Place { key: *key, segment, position, segment_bytes };
        let cut = |read: &Bytes| trim(read, from, limit, bytes_max, first_whole);
        match read_file(ctx, place, bytes, claim.bytes, from, cut).await {
            Ok(None) => return Ok(SmallVec::new()),
            Ok(Some((batches, end))) => {
                ahead::go_on(ctx, key, &batches, (segment, end), bytes_max, claim.follows);
                return Ok([batches].into_iter().filter(|batches| !batches.is_empty()).collect());
            }
            Err(Unread::Code(code)) => return Err(code),
            // The cleaned one is there before its sources are removed: the next plan finds it.
            Err(Unread::Replaced) => {}
        }
    }
}

/// The same for a read_committed reader, with the aborted transactions that it has to know (contract A10).
///
/// Both are of one state of the log (case 168): where a cleaned segment took the place of others meanwhile, it is read
/// again, because the list may have gone with the data.
///
/// # Errors
/// As those of [`read`].
pub async fn read_committed(
    ctx: &Rc<Ctx>,
    key: &PartitionKey,
    from: Offset,
    limit: Offset,
    bytes_max: usize,
    first_whole: bool,
) -> Result<(SmallVec<[Bytes; 2]>, Vec<AbortedTxn>), ErrorCode> {
    let on_partition = |look: &dyn Fn(&Partition) -> (u64, Offset)| {
        let shard = ctx.shard.borrow();
        shard.asked(key).map(look)
    };
    let state = |partition: &Partition| (partition.exchanges(), partition.log_start());
    loop {
        let (before, _) = on_partition(&state)?;
        let records = read(ctx, key, from, limit, bytes_max, first_whole).await?;
        let (after, log_start) = on_partition(&state)?;
        if before != after {
            continue;
        }
        if log_start > from {
            // The segments that held the list may be gone.
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let end = records.last().and_then(|chunk| headers(chunk).last()).map(|header| header.next_offset());
        let Some(upper) = end else { return Ok((records, Vec::new())) };
        let shard = ctx.shard.borrow();
        let partition = shard.asked(key)?;
        return Ok((records, partition.aborted(from, upper)));
    }
}

/// Why a segment was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// What the client is told.
    Code(ErrorCode),
    /// A cleaned segment took its place before it was opened.
    Replaced,
}

/// Where in a segment to read.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The partition.
    pub key: PartitionKey,
    /// The segment.
    pub segment: SegmentId,
    /// Start of a batch.
    pub position: u64,
    /// Where the segment's batches end.
    pub segment_bytes: u64,
}

/// Reads from `place` until `cut` is content with what was read; gives it with the position of its end, `None` at the
/// segment's end. `first` is what was read of it before.
async fn read_file(
    ctx: &Rc<Ctx>,
    mut place: Place,
    mut bytes: usize,
    mut first: Option<Bytes>,
    from: Offset,
    cut: impl Fn(&Bytes) -> Trimmed,
) -> Result<Option<(Bytes, u64)>, Unread> {
    loop {
        let left = usize::try_from(place.segment_bytes - place.position).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(None);
        }
        let read = match first.take() {
            Some(read) => read,
            None => read_at(ctx, place, bytes.min(left), from).await?,
        };
        match cut(&read) {
            Trimmed::Batches(batches) => {
                let end = batches.as_ptr_range().end as usize - read.as_ptr() as usize;
                return Ok(Some((batches, place.position + end as u64)));
            }
            Trimmed::More(more) if more > read.len() && more <= left => bytes = more,
            Trimmed::Skip(skip) if skip > 0 => place.position += skip as u64,
            Trimmed::More(_) | Trimmed::Skip(_) | Trimmed::Damaged => {
                tracing::error!(partition = %place.key, segment = %place.segment.base, "a segment is damaged");
                return Err(Unread::Code(ErrorCode::KafkaStorageError));
            }
        }
    }
}

/// Exactly these bytes of a segment, for a reader at `from`.
pub(super) async fn read_at(ctx: &Rc<Ctx>, place: Place, bytes: usize, from: Offset) -> Result<Bytes, Unread> {
    let gone = Unread::Code(ErrorCode::UnknownTopicOrPartition);
    let directory = ctx.files.directory(ctx, &place.key).ok_or(gone)?;
    let path = place.segment.path(&directory, SegmentFile::Log);
    let read = ctx.files.readers.read(&path, place.position, bytes).await;
    ctx.metrics.segment_read_bytes.store(ctx.files.readers.read_bytes());
    if is_gone(ctx, &place.key) {
        // It may have been opened after the deletion had closed what was open.
        ctx.files.readers.forget(&path);
    }
    read.map_err(|error| {
        let shard = ctx.shard.borrow();
        match shard.partition(&place.key) {
            None => gone,
            Some(partition) if partition.log_start() > from => Unread::Code(ErrorCode::OffsetOutOfRange),
            Some(partition) if partition.segments().all().iter().all(|known| known.id != place.segment) => {
                Unread::Replaced
            }
            Some(_) => {
                tracing::error!("a read failed: {error}");
                Unread::Code(ErrorCode::KafkaStorageError)
            }
        }
    })
}

/// Most bytes that one step of a scan reads.
const SCAN_BYTES: usize = 256 << 10;

/// The whole batches of a segment from `place` on, one step of a scan; empty at its end.
///
/// # Errors
/// As those of [`read`], and that the segment was replaced: whatever is scanned begins anew.
pub async fn scan_step(ctx: &Rc<Ctx>, place: Place) -> Result<Bytes, Unread> {
    let all = Offset(i64::MAX);
    // No offset is asked for, so none can be out of range.
    let found =
        read_file(ctx, place, SCAN_BYTES, None, all, |read| trim(read, Offset(-1), all, SCAN_BYTES, true)).await?;
    Ok(found.map(|(batches, _)| batches).unwrap_or_default())
}
