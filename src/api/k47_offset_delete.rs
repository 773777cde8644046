//! OffsetDelete (key 47), version 0: contract G10.1 to G10.5.

use std::rc::Rc;

use kafka_protocol::messages::offset_delete_request::OffsetDeleteRequest;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Reply};
use oncilla_shards::ids::PartitionKey;

use super::{Answer, Request, codec};
use crate::ctx::Ctx;
use crate::groups;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    codec::serve(request, async |asked: OffsetDeleteRequest| {
        respond(ctx, asked).await.unwrap_or_else(|code| OffsetDeleteResponse::default().with_error_code(code.wire()))
    })
    .await
}

async fn respond(ctx: &Rc<Ctx>, asked: OffsetDeleteRequest) -> Result<OffsetDeleteResponse, ErrorCode> {
    if asked.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let image = ctx.image();
    let mut known = Vec::new();
    let mut topics = Vec::with_capacity(asked.topics.len());
    for asked in asked.topics {
        let topic = image.topic(&asked.name);
        let partitions = asked.partitions.iter().map(|one| {
            let index = one.partition_index;
            let found = topic.filter(|topic| topic.has(index));
            known.extend(found.map(|topic| PartitionKey { topic: topic.id, index }));
            let code = if found.is_some() { ErrorCode::None } else { ErrorCode::UnknownTopicOrPartition };
            OffsetDeleteResponsePartition::default().with_partition_index(index).with_error_code(code.wire())
        });
        let partitions = partitions.collect();
        topics.push(OffsetDeleteResponseTopic::default().with_name(asked.name).with_partitions(partitions));
    }
    // Also with nothing left: whether the group is there is told whatever else is asked.
    let codes = match groups::ask(ctx, &asked.group_id, Ask::DeleteOffsets(known)).await? {
        Reply::DeleteOffsets(codes) => codes?,
        other => unreachable!("a deletion of offsets is answered with {other:?}"),
    };
    let asked = topics.iter_mut().flat_map(|topic| &mut topic.partitions).filter(|partition| partition.error_code == 0);
    for (partition, code) in asked.zip(codes) {
        partition.error_code = code.wire();
    }
    Ok(OffsetDeleteResponse::default().with_topics(topics))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
    use kafka_protocol::messages::{GroupId, TopicName};
    use oncilla_shards::groups::{Commit, CommitPartition, FetchOffsets};

    use super::*;
    use crate::api::codec::text;
    use crate::api::testing;

    fn delete(ctx: &Rc<Ctx>, group: &str, topics: &[(&str, &[i32])]) -> (i16, Vec<Vec<i16>>) {
        let topic = |(name, indexes): &(&str, &[i32])| {
            let partition = |index: &i32| OffsetDeleteRequestPartition::default().with_partition_index(*index);
            OffsetDeleteRequestTopic::default()
                .with_name(TopicName(text(*name)))
                .with_partitions(indexes.iter().map(partition).collect())
        };
        let request = OffsetDeleteRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_topics(topics.iter().map(topic).collect());
        let answer: OffsetDeleteResponse = testing::ask(ctx, 47, 0, &request);
        let codes = |topic: &OffsetDeleteResponseTopic| topic.partitions.iter().map(|one| one.error_code).collect();
        (answer.error_code, answer.topics.iter().map(codes).collect())
    }

    #[test]
    fn g10_1_an_empty_id_is_24_and_an_absent_group_69_whatever_else_is_asked() {
        let (ctx, _dir) = testing::ctx();
        assert_eq!(delete(&ctx, "", &[("no", &[0])]), (24, vec![]));
        assert_eq!(delete(&ctx, "g", &[("no", &[0])]), (69, vec![]));
        assert_eq!(delete(&ctx, "g", &[]), (69, vec![]));
    }

    #[test]
    fn g10_3_partitions_are_deleted_one_by_one_and_unknown_ones_are_3() {
        let (ctx, _dir) = testing::ctx();
        testing::create_topic(&ctx, "t", 3);
        let topic = ctx.image().topic("t").expect("created").id;
        let partition =
            |index| CommitPartition { key: PartitionKey { topic, index }, offset: 1, leader_epoch: -1, metadata: None };
        let partitions = (0..2).map(partition).collect();
        let commit = Commit { version: 9, generation: -1, retention_ms: -1, partitions, ..Commit::default() };
        testing::block_on(groups::ask(&ctx, "g", Ask::Commit(commit))).expect("accepted");
        let codes = delete(&ctx, "g", &[("no", &[0]), ("t", &[0, 2, 3])]);
        assert_eq!(codes, (0, vec![vec![3], vec![0, 0, 3]]));
        let all = FetchOffsets { member_id: None, member_epoch: -1, require_stable: false, partitions: None };
        let left = testing::block_on(groups::ask(&ctx, "g", Ask::FetchOffsets(all)));
        let Ok(Reply::FetchOffsets(left)) = left else { panic!("{left:?}") };
        assert_eq!(left.partitions.iter().map(|one| one.key.index).collect::<Vec<_>>(), [1]);
    }
}
