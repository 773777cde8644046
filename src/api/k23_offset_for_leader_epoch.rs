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
    let partition = shard.asked(&key)?;
    check_epoch(known, partition.epoch().0)?;
    Ok(partition.epochs().end_of(wanted, partition.epoch(), partition.high_watermark()))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderTopic;

    use super::*;
    use crate::api::codec::text;
    use crate::api::testing::{ask, ctx_of_shards};
    use crate::config::ListenerMode;

    #[test]
    fn k23_1_and_k23_2_unknown_is_3_and_another_cores_partition_is_6_whatever_the_epoch() {
        let ctx = ctx_of_shards(3, ListenerMode::PerCore);
        let of = |index: i32| OffsetForLeaderPartition::default().with_partition(index).with_current_leader_epoch(1);
        let topic = OffsetForLeaderTopic::default().with_topic(text("t").into());
        let topic = topic.with_partitions(vec![of(0), of(9)]);
        let asked = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        let answer: OffsetForLeaderEpochResponse = ask(&ctx, 23, 4, &asked);
        let told: Vec<_> =
            answer.topics[0].partitions.iter().map(|p| (p.error_code, p.leader_epoch, p.end_offset)).collect();
        assert_eq!(told, [(6, -1, -1), (3, -1, -1)]);
    }
}
