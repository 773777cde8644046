//! Readers behind the tail cache, with what is read ahead of them.

use std::rc::Rc;

use bytes::Bytes;
use oncilla_shards::batch::build::BatchBuilder;
use oncilla_shards::batch::headers;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::Offset;
use oncilla_shards::limits::INDEX_INTERVAL_BYTES;
use oncilla_shards::shard::{Effects, Sent};

use super::read;
use super::tests::{KEY, delete, nothing_is_left, with_topic};
use crate::ctx::Ctx;
use crate::rt::now_ms;

const BATCHES: i64 = 40;
const VALUE_BYTES: usize = 1000;
/// Two of the batches and a part of the third.
const READ_BYTES_MAX: usize = 2500;

/// Batches of one record that tell from each other.
async fn append_all(ctx: &Rc<Ctx>) {
    for at in 0..BATCHES {
        append_one(ctx, &[u8::try_from(at).expect("few"); VALUE_BYTES]);
    }
    ctx.files.writing_ended(&[KEY]).await;
}

/// Hands over a batch of one record.
fn append_one(ctx: &Rc<Ctx>, value: &[u8]) {
    let batch = Bytes::from(BatchBuilder::new().record(None, Some(value)).build());
    let mut effects = Effects::new();
    ctx.shard.borrow_mut().append(&KEY, Sent::unchecked(&batch, 9), now_ms(), None, &mut effects);
    ctx.carry_out(effects);
}

async fn read_from(ctx: &Rc<Ctx>, from: Offset, bytes_max: usize) -> Result<Vec<u8>, ErrorCode> {
    let limit = Offset(BATCHES);
    read(ctx, &KEY, from, limit, bytes_max, true).await.map(|chunks| chunks.concat())
}

/// Everything from `from` on, in steps that each begin where the last one ended.
async fn read_in_steps(ctx: &Rc<Ctx>, mut from: Offset) -> Vec<u8> {
    let mut all = Vec::new();
    while from < Offset(BATCHES) {
        let step = read_from(ctx, from, READ_BYTES_MAX).await.expect("readable");
        from = headers(&step).last().expect("progress").next_offset();
        all.extend_from_slice(&step);
    }
    all
}

#[test]
fn a_reader_that_goes_on_gets_what_one_read_of_everything_gives() {
    with_topic(|ctx, _root| async move {
        append_all(&ctx).await;
        let whole = read_from(&ctx, Offset(0), usize::MAX).await.expect("readable");
        assert_eq!(ctx.metrics.read_ahead_hits.get(), 0, "one read follows none");
        assert!(read_in_steps(&ctx, Offset(0)).await == whole);
        // Of 20 reads the first follows none and the second had nothing read ahead of it.
        assert_eq!(ctx.metrics.read_ahead_hits.get(), 18);
        assert_eq!(ctx.files.ahead.borrow().bytes_held(), 0, "behind the end there is nothing to read ahead");
    });
}

#[test]
fn batches_larger_than_the_interval_of_the_index_are_read_once() {
    with_topic(|ctx, _root| async move {
        const LARGE_BYTES: usize = 3 * INDEX_INTERVAL_BYTES as usize;
        for _ in 0..8 {
            append_one(&ctx, &vec![7; LARGE_BYTES]);
            ctx.files.writing_ended(&[KEY]).await;
        }
        let mut from = Offset(0);
        while from < Offset(8) {
            let step = read(&ctx, &KEY, from, Offset(8), LARGE_BYTES + 1000, true).await.expect("readable").concat();
            from = headers(&step).last().expect("progress").next_offset();
            assert_eq!(step.len() / LARGE_BYTES, 1);
        }
        let read_bytes = ctx.files.readers.read_bytes();
        // The first is read from where the index says, and a piece of the second with it.
        let most = (8 * (LARGE_BYTES + 1000) + 2 * INDEX_INTERVAL_BYTES as usize) as u64;
        assert!(read_bytes <= most, "{read_bytes} bytes were read, {most} are enough");
    });
}

#[test]
fn two_readers_at_one_place_get_the_same() {
    with_topic(|ctx, _root| async move {
        append_all(&ctx).await;
        let whole = read_from(&ctx, Offset(0), usize::MAX).await.expect("readable");
        let both = crate::rt::join_all([read_in_steps(&ctx, Offset(0)), read_in_steps(&ctx, Offset(0))]).await;
        assert!(both.iter().all(|all| *all == whole));
    });
}

#[test]
fn a_topic_that_is_deleted_while_it_is_read_ahead_leaves_nothing_open() {
    with_topic(|ctx, root| async move {
        append_all(&ctx).await;
        let mut from = Offset(0);
        for _ in 0..3 {
            let step = read_from(&ctx, from, READ_BYTES_MAX).await.expect("readable");
            from = headers(&step).last().expect("progress").next_offset();
        }
        assert!(ctx.files.ahead.borrow().bytes_held() > 0, "the next step is read or being read");
        delete(&ctx).await;
        assert_eq!(read_from(&ctx, from, READ_BYTES_MAX).await, Err(ErrorCode::UnknownTopicOrPartition));
        nothing_is_left(&root).await;
    });
}
