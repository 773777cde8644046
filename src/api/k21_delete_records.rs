//! DeleteRecords (key 21), versions 0 to 2: contract K21. The new log start is durable before the answer.

use std::collections::BTreeMap;
use std::rc::Rc;

use kafka_protocol::messages::delete_records_request::DeleteRecordsRequest;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{Offset, PartitionKey};

use super::locate::locate;
use super::{Answer, Request, codec};
use crate::ctx::Ctx;
use crate::partitions::start_log_at;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    codec::serve(request, async |decoded: DeleteRecordsRequest| {
        let mut topics = Vec::with_capacity(decoded.topics.len());
        for topic in decoded.topics {
            // K21.8: of a partition named twice the last offset counts.
            let asked: BTreeMap<i32, i64> = topic.partitions.iter().map(|p| (p.partition_index, p.offset)).collect();
            let mut partitions = Vec::with_capacity(asked.len());
            for (index, offset) in asked {
                let result = delete(ctx, &topic.name, index, Offset(offset)).await;
                let partition = DeleteRecordsPartitionResult::default()
                    .with_partition_index(index)
                    .with_low_watermark(result.map_or(-1, |low| low.0))
                    .with_error_code(result.err().unwrap_or(ErrorCode::None).wire());
                partitions.push(partition);
            }
            topics.push(DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions));
        }
        DeleteRecordsResponse::default().with_topics(topics)
    })
    .await
}

async fn delete(ctx: &Rc<Ctx>, name: &str, index: i32, offset: Offset) -> Result<Offset, ErrorCode> {
    let image = ctx.image();
    let topic = image.topic(name).filter(|topic| topic.has(index)).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if topic.is_internal() {
        return Err(ErrorCode::InvalidTopicException);
    }
    let (owner, key) = locate(ctx, &image, name, index)?;
    let policy = topic.config.cleanup_policy;
    if policy.compact && !policy.delete {
        return Err(ErrorCode::PolicyViolation);
    }
    ctx.call(owner, move |ctx| async move { delete_here(&ctx, key, offset).await }).await
}

async fn delete_here(ctx: &Rc<Ctx>, key: PartitionKey, offset: Offset) -> Result<Offset, ErrorCode> {
    let (target, moves) = {
        let shard = ctx.shard.borrow();
        let partition = shard.partition(&key).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let target = partition.delete_target(offset)?;
        (target, target > partition.log_start())
    };
    if moves && let Err(error) = start_log_at(ctx, key, target).await {
        tracing::error!("DeleteRecords could not be made durable: {error}");
        return Err(ErrorCode::KafkaStorageError);
    }
    Ok(target)
}
