//! DescribeProducers (key 61), version 0: contract B9.

use std::rc::Rc;

use kafka_protocol::messages::ProducerId as WireProducerId;
use kafka_protocol::messages::describe_producers_request::DescribeProducersRequest;
use kafka_protocol::messages::describe_producers_response::{
    DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::image::names;
use oncilla_shards::producers::ProducerView;

use super::locate::locate;
use super::{Answer, Request, codec};
use crate::ctx::Ctx;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    codec::serve(request, async |decoded: DescribeProducersRequest| {
        let mut topics = Vec::with_capacity(decoded.topics.len());
        for topic in decoded.topics {
            let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
            for &index in &topic.partition_indexes {
                let found = find(ctx, &topic.name, index).await;
                let code = found.as_ref().err().copied().unwrap_or(ErrorCode::None);
                let producers = found.unwrap_or_default().into_iter().map(state).collect();
                let partition = PartitionResponse::default()
                    .with_partition_index(index)
                    .with_error_code(code.wire())
                    .with_active_producers(producers);
                partitions.push(partition);
            }
            topics.push(TopicResponse::default().with_name(topic.name).with_partitions(partitions));
        }
        DescribeProducersResponse::default().with_topics(topics)
    })
    .await
}

async fn find(ctx: &Rc<Ctx>, topic: &str, index: i32) -> Result<Vec<ProducerView>, ErrorCode> {
    if names::check(topic).is_err() {
        return Err(ErrorCode::InvalidTopicException);
    }
    let (owner, key) = locate(ctx, &ctx.image(), topic, index)?;
    ctx.call(owner, move |ctx| async move {
        let shard = ctx.shard.borrow();
        let partition = shard.asked(&key)?;
        Ok(partition.producers().describe().collect())
    })
    .await
}

fn state(view: ProducerView) -> ProducerState {
    ProducerState::default()
        .with_producer_id(WireProducerId(view.producer_id.0))
        .with_producer_epoch(i32::from(view.epoch.0))
        .with_last_sequence(view.last_sequence.0)
        .with_last_timestamp(view.last_timestamp.0)
        .with_coordinator_epoch(view.coordinator_epoch)
        .with_current_txn_start_offset(view.txn_start_offset.map_or(-1, |offset| offset.0))
}
