//! The partitions of one Fetch that live on one shard, read within what the request may still take.
//!
//! What the tail cache holds is there at once. Reads of segments wait for the disk, and a consumer that catches up asks
//! for many partitions, so up to `FETCH_READS_AT_ONCE_MAX` of them are under way together; each has its bytes set aside
//! beforehand, so that together they read no more than the request takes.

use std::rc::Rc;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{LeaderEpoch, PartitionKey};
use oncilla_shards::producers::AbortedTxn;
use oncilla_shards::session::FetchPartition;
use oncilla_shards::wire::fetch::{AbortedTransaction, EpochEnd, FetchPartitionAnswer};

use crate::api::locate::check_epoch;
use crate::api::topic_ref::topic_ref;
use crate::ctx::Ctx;
use crate::partitions::{read, read_committed};

/// One partition to read, on its owner.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its place in the request.
    pub at: usize,
    pub key: PartitionKey,
    pub asked: FetchPartition,
}

/// Bytes that a request may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub left: usize,
    /// Whether the next batch comes whatever its size.
    pub first_whole: bool,
}

pub(super) async fn read_group(
    ctx: &Rc<Ctx>,
    items: Vec<Item>,
    mut budget: Budget,
    committed: bool,
) -> (Vec<(usize, FetchPartitionAnswer)>, Budget) {
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let answer = read_one(ctx, &item, &mut budget, committed).await;
        answers.push((item.at, answer));
    }
    (answers, budget)
}

async fn read_one(ctx: &Rc<Ctx>, item: &Item, budget: &mut Budget, committed: bool) -> FetchPartitionAnswer {
    let topic = topic_ref(&item.asked.topic);
    let mut answer = match check(ctx, item) {
        Ok(answer) => answer,
        Err(code) => return FetchPartitionAnswer::refused(topic, item.asked.index, code),
    };
    if committed {
        answer.aborted = Some(Vec::new());
    }
    if answer.diverging.is_some() {
        return answer;
    }
    let limit = if committed { answer.last_stable_offset } else { answer.high_watermark };
    let most = usize::try_from(item.asked.bytes_max).unwrap_or(0).min(budget.left);
    let (key, from) = (&item.key, item.asked.offset);
    let found = if committed {
        let found = read_committed(ctx, key, from, limit, most, budget.first_whole).await;
        found.map(|(records, aborted)| (records, Some(aborted.iter().map(aborted_on_wire).collect())))
    } else {
        read(ctx, key, from, limit, most, budget.first_whole).await.map(|records| (records, None))
    };
    match found {
        Ok((records, aborted)) => {
            answer.aborted = aborted;
            let bytes: usize = records.iter().map(bytes::Bytes::len).sum();
            budget.left = budget.left.saturating_sub(bytes);
            budget.first_whole &= bytes == 0;
            answer.records = records;
            answer
        }
        Err(code) => FetchPartitionAnswer::refused(topic, item.asked.index, code),
    }
}

fn aborted_on_wire(aborted: &AbortedTxn) -> AbortedTransaction {
    AbortedTransaction { producer_id: aborted.producer_id, first_offset: aborted.first_offset }
}

/// The checks of C1 in their order, and the fields that an answer without records has.
fn check(ctx: &Ctx, item: &Item) -> Result<FetchPartitionAnswer, ErrorCode> {
    let shard = ctx.shard.borrow();
    let partition = shard.partition(&item.key).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let asked = &item.asked;
    // C1: Fetch takes every negative epoch as none, the requests that ask for offsets only -1.
    check_epoch(asked.current_epoch.max(-1), partition.epoch().0)?;
    let end = partition.high_watermark();
    let mut answer = FetchPartitionAnswer::refused(topic_ref(&asked.topic), asked.index, ErrorCode::None);
    answer.high_watermark = end;
    answer.last_stable_offset = partition.last_stable_offset();
    answer.log_start_offset = partition.log_start();
    if asked.last_fetched_epoch >= 0 {
        let last = LeaderEpoch(asked.last_fetched_epoch);
        if last > partition.epoch() {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let known = partition.epochs().end_of(last, partition.epoch(), end);
        if known.epoch != last || known.end < asked.offset {
            answer.diverging = Some(EpochEnd { epoch: known.epoch, end_offset: known.end });
            return Ok(answer);
        }
    }
    if asked.offset < partition.log_start() || asked.offset > partition.next_offset() {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    if asked.bytes_max < 0 {
        return Err(ErrorCode::UnknownServerError);
    }
    Ok(answer)
}
