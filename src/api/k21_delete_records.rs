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
        let partition = shard.asked(&key)?;
        let target = partition.delete_target(offset)?;
        (target, target > partition.log_start())
    };
    if moves && let Err(error) = start_log_at(ctx, key, target).await {
        tracing::error!("DeleteRecords could not be made durable: {error}");
        return Err(ErrorCode::KafkaStorageError);
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
    use kafka_protocol::messages::{DeleteRecordsResponse, TopicName};
    use kafka_protocol::protocol::StrBytes;
    use oncilla_shards::image::Change;

    use super::*;
    use crate::api::{metadata_update, testing};
    use crate::config::ListenerMode;
    use crate::topics_writer;

    fn delete(ctx: &Rc<Ctx>, topic: &str, index: i32, offset: i64) -> (i16, i64) {
        let partition = DeleteRecordsPartition::default().with_partition_index(index).with_offset(offset);
        let name = TopicName(StrBytes::from_string(topic.to_owned()));
        let topic = DeleteRecordsTopic::default().with_name(name).with_partitions(vec![partition]);
        let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(1000);
        let answer: DeleteRecordsResponse = testing::ask(ctx, 21, 2, &request);
        let result = &answer.topics[0].partitions[0];
        (result.error_code, result.low_watermark)
    }

    #[test]
    fn k21_1_an_unknown_topic_or_partition_answers_3() {
        let (ctx, _dir) = testing::ctx();
        testing::create_topic(&ctx, "t", 1);
        assert_eq!(delete(&ctx, "other", 0, 0), (3, -1));
        assert_eq!(delete(&ctx, "t", 1, 0), (3, -1));
    }

    #[test]
    fn k21_3_another_cores_partition_answers_6() {
        let ctx = testing::ctx_of_shards(3, ListenerMode::PerCore);
        assert_eq!(delete(&ctx, "t", 0, 0), (6, -1));
    }

    #[test]
    fn k21_4_a_topic_that_is_only_compacted_keeps_its_records() {
        let (ctx, _dir) = testing::ctx();
        for (name, policy, code) in [("c", "compact", 44), ("both", "compact,delete", 0), ("d", "delete", 0)] {
            let change = Change::CreateTopic {
                id: metadata_update::new_topic_id(),
                name: name.to_owned(),
                partitions: 1,
                placement: 0,
                overrides: [("cleanup.policy".to_owned(), policy.to_owned())].into(),
            };
            testing::block_on(topics_writer::update(&ctx, |_| (vec![change], ()))).expect("written");
            assert_eq!(delete(&ctx, name, 0, 0).0, code, "{policy}");
        }
    }
}
