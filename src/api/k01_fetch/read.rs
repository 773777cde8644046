//! The partitions of one Fetch that live on one shard, read within what the request may still take.
//!
//! What the tail cache holds is there at once. Reads of segments wait for the disk, and a consumer that catches up asks
//! for many partitions, so up to `FETCH_READS_AT_ONCE_MAX` of them are under way together; each has its bytes set aside
//! beforehand, so that together they read no more than the request takes.

use std::rc::Rc;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{LeaderEpoch, PartitionKey};
use oncilla_shards::limits::FETCH_READS_AT_ONCE_MAX;
use oncilla_shards::producers::AbortedTxn;
use oncilla_shards::session::FetchPartition;
use oncilla_shards::wire::fetch::{AbortedTransaction, EpochEnd, FetchPartitionAnswer};

use crate::api::locate::check_epoch;
use crate::api::topic_ref::topic_ref;
use crate::ctx::Ctx;
use crate::partitions::{read, read_committed};
use crate::rt::join_all;

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

impl Budget {
    /// Counts what a partition's answer holds.
    fn take(&mut self, answer: &FetchPartitionAnswer) {
        let bytes: usize = answer.records.iter().map(bytes::Bytes::len).sum();
        self.left = self.left.saturating_sub(bytes);
        self.first_whole &= bytes == 0;
    }
}

/// Reads every item, and gives back what is left of the budget.
pub(super) async fn read_group(
    ctx: &Rc<Ctx>,
    items: Vec<Item>,
    mut budget: Budget,
    committed: bool,
) -> (Vec<(usize, FetchPartitionAnswer)>, Budget) {
    let mut answers = Vec::with_capacity(items.len());
    // Only the first of them may come whole, whatever its size.
    let mut waiting: Vec<(&Item, Budget)> = Vec::new();
    let mut set_aside = 0;
    for item in &items {
        // A batch that came whole may have been larger than what was left.
        let left = bytes_max(item).min(budget.left.saturating_sub(set_aside));
        let own = Budget { left, first_whole: budget.first_whole && waiting.is_empty() };
        if !is_on_disk(ctx, item) {
            let answer = read_one(ctx, item, own, committed).await;
            budget.take(&answer);
            answers.push((item.at, answer));
            continue;
        }
        set_aside += own.left;
        waiting.push((item, own));
        if waiting.len() == FETCH_READS_AT_ONCE_MAX || set_aside >= budget.left {
            read_together(ctx, &mut waiting, &mut budget, committed, &mut answers).await;
            set_aside = 0;
        }
    }
    read_together(ctx, &mut waiting, &mut budget, committed, &mut answers).await;
    (answers, budget)
}

/// Reads what waits for the disk.
async fn read_together(
    ctx: &Rc<Ctx>,
    waiting: &mut Vec<(&Item, Budget)>,
    budget: &mut Budget,
    committed: bool,
    answers: &mut Vec<(usize, FetchPartitionAnswer)>,
) {
    let read = join_all(waiting.iter().map(|(item, own)| read_one(ctx, item, *own, committed))).await;
    for ((item, own), mut answer) in waiting.drain(..).zip(read) {
        if budget.first_whole && !own.first_whole {
            // Those before it had nothing after all.
            let left = bytes_max(item).min(budget.left);
            answer = read_one(ctx, item, Budget { left, ..*budget }, committed).await;
        }
        budget.take(&answer);
        answers.push((item.at, answer));
    }
}

fn bytes_max(item: &Item) -> usize {
    usize::try_from(item.asked.bytes_max).unwrap_or(0)
}

/// Whether a segment has to be read, as far as can be told now.
fn is_on_disk(ctx: &Ctx, item: &Item) -> bool {
    let shard = ctx.shard.borrow();
    shard.partition(&item.key).is_some_and(|partition| partition.is_behind_tail(item.asked.offset))
}

async fn read_one(ctx: &Rc<Ctx>, item: &Item, budget: Budget, committed: bool) -> FetchPartitionAnswer {
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
    let (key, from) = (&item.key, item.asked.offset);
    let found = if committed {
        let found = read_committed(ctx, key, from, limit, budget.left, budget.first_whole).await;
        found.map(|(records, aborted)| (records, Some(aborted.iter().map(aborted_on_wire).collect())))
    } else {
        read(ctx, key, from, limit, budget.left, budget.first_whole).await.map(|records| (records, None))
    };
    match found {
        Ok((records, aborted)) => {
            answer.aborted = aborted;
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
    let partition = shard.asked(&item.key)?;
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use oncilla_shards::batch::build::BatchBuilder;
    use oncilla_shards::ids::{Offset, TopicId};
    use oncilla_shards::image::Change;
    use oncilla_shards::session::TopicKey;
    use oncilla_shards::shard::{Effects, Sent};

    use super::*;
    use crate::api::testing::ctx_with;
    use crate::rt::file::test_block_on;
    use crate::rt::now_ms;
    use crate::topics_writer;

    const TOPIC: TopicId = TopicId(7);
    const PARTITIONS: usize = FETCH_READS_AT_ONCE_MAX + 4;

    fn key(at: usize) -> PartitionKey {
        PartitionKey { topic: TOPIC, index: i32::try_from(at).expect("few") }
    }

    fn batch() -> Bytes {
        Bytes::from(BatchBuilder::new().record(None, Some(&[7; 1000])).build())
    }

    /// A topic whose partitions hold two batches each, except for the empty ones.
    async fn with_batches(ctx: &Rc<Ctx>, empty: &[usize]) {
        let partitions = i32::try_from(PARTITIONS).expect("few");
        let create = Change::CreateTopic {
            id: TOPIC,
            name: "t".into(),
            partitions,
            placement: 0,
            overrides: Default::default(),
        };
        topics_writer::update(ctx, |_| (vec![create], ())).await.expect("written");
        for at in (0..PARTITIONS).filter(|at| !empty.contains(at)) {
            for _ in 0..2 {
                let mut effects = Effects::new();
                let sent = batch();
                let sent = Sent::unchecked(&sent, 9);
                ctx.shard.borrow_mut().append(&key(at), sent, now_ms(), None, &mut effects);
                ctx.carry_out(effects);
            }
            ctx.files.writing_ended(&[key(at)]).await;
        }
    }

    fn items(bytes_max: usize) -> Vec<Item> {
        let bytes_max = i32::try_from(bytes_max).expect("few");
        let asked = |at: usize| FetchPartition {
            topic: TopicKey::Name("t".into()),
            index: key(at).index,
            offset: Offset(0),
            current_epoch: -1,
            last_fetched_epoch: -1,
            bytes_max,
        };
        (0..PARTITIONS).map(|at| Item { at, key: key(at), asked: asked(at) }).collect()
    }

    /// How many batches each partition gave, and what is left.
    fn batches(empty: &'static [usize], left: usize, bytes_max: usize, cache_bytes: usize) -> (Vec<usize>, Budget) {
        let (ctx, _dir) = ctx_with(|config| config.log_cache_bytes = cache_bytes);
        test_block_on(async {
            with_batches(&ctx, empty).await;
            let budget = Budget { left, first_whole: true };
            let (answers, rest) = read_group(&ctx, items(bytes_max), budget, false).await;
            let mut given = vec![usize::MAX; PARTITIONS];
            for (at, answer) in answers {
                assert_eq!(answer.code, ErrorCode::None);
                let bytes: usize = answer.records.iter().map(Bytes::len).sum();
                assert_eq!(bytes % batch().len(), 0, "whole batches");
                given[at] = bytes / batch().len();
            }
            (given, rest)
        })
    }

    #[test]
    fn reads_that_are_made_together_give_what_each_gives_alone() {
        for cache_bytes in [0, 1 << 20] {
            let (given, rest) = batches(&[3], 1 << 20, 1 << 20, cache_bytes);
            let all: Vec<usize> = (0..PARTITIONS).map(|at| if at == 3 { 0 } else { 2 }).collect();
            assert_eq!(given, all);
            assert_eq!((rest.left, rest.first_whole), ((1 << 20) - 2 * (PARTITIONS - 1) * batch().len(), false));
        }
    }

    #[test]
    fn c1_together_they_read_no_more_than_the_request_takes() {
        for cache_bytes in [0, 1 << 20] {
            let (given, rest) = batches(&[], 7 * batch().len() + 10, 2 * batch().len(), cache_bytes);
            assert_eq!(given.iter().sum::<usize>(), 7, "{given:?}");
            assert_eq!(given[..4], [2, 2, 2, 1], "in the order of the request");
            assert_eq!(rest.left, 10);
        }
    }

    #[test]
    fn c1_only_the_first_batch_comes_whole_whatever_its_size() {
        for cache_bytes in [0, 1 << 20] {
            for left in [0, 1, batch().len() - 1] {
                let (given, rest) = batches(&[0, 1], left, 1 << 20, cache_bytes);
                assert_eq!(given[..3], [0, 0, 1]);
                assert_eq!(given.iter().sum::<usize>(), 1, "{given:?}");
                assert!(!rest.first_whole);
            }
        }
    }
}
