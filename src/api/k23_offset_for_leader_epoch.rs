//! OffsetForLeaderEpoch (key 23), versions 2 to 4: contract K23.

use std::rc::Rc;

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{LeaderEpoch, PartitionKey};
use oncilla_shards::partition::EpochEnd;

use super::locate::{check_epoch, locate};
use super::{Answer, Request, codec};
use crate::ctx::Ctx;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    codec::serve(request, async |decoded: OffsetForLeaderEpochRequest| {
        let mut topics = Vec::with_capacity(decoded.topics.len());
        for topic in decoded.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in &topic.partitions {
                let found = find(ctx, &topic.topic, asked).await;
                let code = found.err().unwrap_or(ErrorCode::None);
                let end = found.map_or((-1, -1), |end| (end.epoch.0, end.end.0));
                let partition = EpochEndOffset::default()
                    .with_partition(asked.partition)
                    .with_error_code(code.wire())
                    .with_leader_epoch(end.0)
                    .with_end_offset(end.1);
                partitions.push(partition);
            }
            topics.push(OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions));
        }
        OffsetForLeaderEpochResponse::default().with_topics(topics)
    })
    .await
}

async fn find(ctx: &Rc<Ctx>, topic: &str, asked: &OffsetForLeaderPartition) -> Result<EpochEnd, ErrorCode> {
    let (owner, key) = locate(ctx, &ctx.image(), topic, asked.partition)?;
    let (known, wanted) = (asked.current_leader_epoch, LeaderEpoch(asked.leader_epoch));
    ctx.call(owner, move |ctx| async move { find_here(&ctx, key, known, wanted) }).await
}

fn find_here(ctx: &Ctx, key: PartitionKey, known: i32, wanted: LeaderEpoch) -> Result<EpochEnd, ErrorCode> {
    let shard = ctx.shard.borrow();
    let partition = shard.partition(&key).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check_epoch(known, partition.epoch().0)?;
    Ok(partition.epochs().end_of(wanted, partition.epoch(), partition.high_watermark()))
}
