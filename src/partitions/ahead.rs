//! Reads segments ahead of consumers that catch up: carries out what [`oncilla_shards::read_ahead`] decides.
//!
//! What a segment holds up to its known end never changes, so bytes that were read before they were asked for are as
//! good as bytes that are read now. Failure: a read ahead that fails is forgotten, and the consumer's own meets the
//! error and tells it.

use std::rc::Rc;

use bytes::Bytes;
use oncilla_shards::batch::headers;
use oncilla_shards::ids::{Offset, PartitionKey};
use oncilla_shards::limits::INDEX_INTERVAL_BYTES;
use oncilla_shards::partition::{ReadPlan, SegmentId};
use oncilla_shards::read_ahead::{Found, Reader, Span, Ticket};

use super::reader::{Place, read_at};
use crate::ctx::Ctx;
use crate::rt::file::spawn_background;
use crate::rt::now_ms;

/// How much to read for `bytes_max` bytes of batches from the start of one: small reads cost as much as this.
pub(super) fn exact_bytes(bytes_max: usize) -> usize {
    bytes_max.max(INDEX_INTERVAL_BYTES as usize)
}

/// What is there for a read that is due.
pub(super) struct Claim {
    /// Where the batch at the offset starts, if that is known.
    pub position: Option<u64>,
    /// The bytes there, if they were read ahead.
    pub bytes: Option<Bytes>,
    /// Whether the read follows another.
    pub follows: bool,
}

/// Looks for what was read ahead for a reader at `from`; waits while it is being read.
pub(super) async fn claim(ctx: &Ctx, key: &PartitionKey, span: Span, from: Offset) -> Claim {
    let reader = Reader { partition: *key, next: from };
    loop {
        let found = ctx.files.ahead.borrow_mut().find(reader, span);
        match found {
            Found::Unknown => return Claim { position: None, bytes: None, follows: false },
            Found::Follows(known) => {
                return Claim { position: known.map(|span| span.position), bytes: None, follows: true };
            }
            Found::InWork => ctx.files.ahead_ended.notified().await,
            Found::Ready(bytes, span) => {
                ctx.metrics.read_ahead_hits.add(1);
                return Claim { position: Some(span.position), bytes: Some(bytes), follows: true };
            }
        }
    }
}

/// A reader got `batches` of a segment, which end at `end` in it: remembers where it goes on, and reads ahead of one
/// that follows.
pub(super) fn go_on(
    ctx: &Rc<Ctx>,
    key: &PartitionKey,
    batches: &Bytes,
    end: (SegmentId, u64),
    bytes_max: usize,
    follows: bool,
) {
    let Some(last) = headers(batches).last() else { return };
    let reader = Reader { partition: *key, next: last.next_offset() };
    let then = plan(ctx, reader, end, bytes_max);
    let mut ahead = ctx.files.ahead.borrow_mut();
    let ticket = then.and_then(|(span, _)| ahead.answered(reader, span, follows, now_ms()));
    ctx.metrics.read_ahead_bytes.set(ahead.bytes_held() as u64);
    ctx.metrics.read_ahead_wasted_bytes.store(ahead.bytes_wasted());
    if let (Some(ticket), Some((_, segment_bytes))) = (ticket, then) {
        spawn_background(read_ahead(ctx.clone(), reader, ticket, segment_bytes));
    }
}

/// The next read of a reader whose last one ended at `end`, and where its segment ends; `None` if it needs no file.
fn plan(ctx: &Ctx, reader: Reader, end: (SegmentId, u64), bytes_max: usize) -> Option<(Span, u64)> {
    let shard = ctx.shard.borrow();
    let partition = shard.partition(&reader.partition)?;
    match partition.read(reader.next, partition.high_watermark(), bytes_max, true) {
        ReadPlan::Disk { segment, segment_bytes, .. } if segment == end.0 => {
            let left = usize::try_from(segment_bytes - end.1).unwrap_or(usize::MAX);
            let bytes = exact_bytes(bytes_max).min(left);
            Some((Span { segment, position: end.1, bytes }, segment_bytes))
        }
        ReadPlan::Disk { segment, position, bytes, segment_bytes } => {
            Some((Span { segment, position, bytes }, segment_bytes))
        }
        ReadPlan::Empty | ReadPlan::Cached(_) => None,
    }
}

async fn read_ahead(ctx: Rc<Ctx>, reader: Reader, ticket: Ticket, segment_bytes: u64) {
    let Span { segment, position, bytes } = ticket.span();
    let place = Place { key: reader.partition, segment, position, segment_bytes };
    let read = read_at(&ctx, place, bytes, reader.next).await;
    ctx.files.ahead.borrow_mut().ended(ticket, read.ok(), now_ms());
    ctx.files.ahead_ended.notify();
}
