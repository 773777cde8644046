//! Reads segments ahead of consumers that catch up: carries out what [`oncilla_shards::read_ahead`] decides.
//!
//! What a segment holds up to its known end never changes, so bytes that were read before they were asked for are as
//! good as bytes that are read now. Failure: a read ahead that fails is forgotten, and the consumer's own meets the
//! error and tells it.

use std::rc::Rc;

use bytes::Bytes;
use oncilla_shards::batch::headers;
use oncilla_shards::ids::{Offset, PartitionKey};
use oncilla_shards::partition::ReadPlan;
use oncilla_shards::read_ahead::{Found, Reader, Span, Ticket};

use super::reader::{Place, read_at};
use crate::ctx::Ctx;
use crate::rt::file::spawn_background;
use crate::rt::now_ms;

/// What is there for a read that is due.
pub(super) struct Claim {
    /// The bytes, if they were read ahead.
    pub bytes: Option<Bytes>,
    /// Whether the read follows another.
    pub follows: bool,
}

/// Looks for what was read ahead for a reader at `from`; waits while it is being read.
pub(super) async fn claim(ctx: &Ctx, place: Place, bytes: usize, from: Offset) -> Claim {
    let reader = Reader { partition: place.key, next: from };
    let span = Span { segment: place.segment, position: place.position, bytes };
    loop {
        let found = ctx.files.ahead.borrow_mut().find(reader, span);
        match found {
            Found::Unknown => return Claim { bytes: None, follows: false },
            Found::Follows => return Claim { bytes: None, follows: true },
            Found::InWork => ctx.files.ahead_ended.notified().await,
            Found::Ready(bytes) => {
                ctx.metrics.read_ahead_hits.add(1);
                return Claim { bytes: Some(bytes), follows: true };
            }
        }
    }
}

/// A reader got `batches` from a segment: remembers where it goes on, and reads ahead for one that follows.
pub(super) fn go_on(ctx: &Rc<Ctx>, key: &PartitionKey, batches: &Bytes, bytes_max: usize, follows: bool) {
    let Some(last) = headers(batches).last() else { return };
    let reader = Reader { partition: *key, next: last.next_offset() };
    let then = if follows { plan(ctx, reader, bytes_max) } else { None };
    let mut ahead = ctx.files.ahead.borrow_mut();
    let ticket = ahead.answered(reader, then.map(|(span, _)| span), now_ms());
    ctx.metrics.read_ahead_bytes.set(ahead.bytes_held() as u64);
    ctx.metrics.read_ahead_wasted_bytes.store(ahead.bytes_wasted());
    if let (Some(ticket), Some((_, segment_bytes))) = (ticket, then) {
        spawn_background(read_ahead(ctx.clone(), reader, ticket, segment_bytes));
    }
}

/// The next read of a reader, with the end of its segment; `None` if it needs no file.
fn plan(ctx: &Ctx, reader: Reader, bytes_max: usize) -> Option<(Span, u64)> {
    let shard = ctx.shard.borrow();
    let partition = shard.partition(&reader.partition)?;
    match partition.read(reader.next, partition.high_watermark(), bytes_max, true) {
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
