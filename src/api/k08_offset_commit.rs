//! OffsetCommit (key 8), versions 2 to 10: contract G8. Topics are looked at before the group is asked.

use std::rc::Rc;

use kafka_protocol::messages::OffsetCommitResponse;
use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Commit, CommitPartition, Reply};
use oncilla_shards::ids::PartitionKey;
use oncilla_shards::image::Image;
use oncilla_shards::wire::TopicRef;
use oncilla_shards::wire::offset_commit::{self, CommittedPartition, CommittedTopic, OffsetCommitRequest};

use super::topic_ref::resolve;
use super::{Answer, Request, codec};
use crate::ctx::Ctx;
use crate::groups;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    match offset_commit::decode(request.version, &request.body) {
        Ok(asked) => codec::encode(&respond(ctx, request.version, asked).await, request),
        Err(error) => Answer::Close(format!("OffsetCommit {} does not parse: {error}", request.version)),
    }
}

async fn respond(ctx: &Rc<Ctx>, version: i16, asked: OffsetCommitRequest) -> OffsetCommitResponse {
    let image = ctx.image();
    let mut known = Vec::new();
    let mut topics: Vec<_> = asked.topics.iter().map(|topic| checked(&image, topic, &mut known)).collect();
    if known.is_empty() {
        // Nothing is left, so the group is never asked (contract G8.1, G8.15).
        return OffsetCommitResponse::default().with_topics(topics);
    }
    let count = known.len();
    let commit = Commit {
        version,
        member_id: asked.member_id.to_string(),
        generation: asked.generation,
        instance_id: asked.instance_id.map(|id| id.to_string()),
        retention_ms: asked.retention_ms,
        partitions: known,
    };
    let codes = match groups::ask(ctx, &asked.group, Ask::Commit(commit)).await {
        Ok(Reply::Commit(codes)) => codes,
        Ok(other) => unreachable!("a commit is answered with {other:?}"),
        Err(code) => vec![code; count],
    };
    // What failed above keeps its code beside those of the group (contract G8.9).
    let asked = topics.iter_mut().flat_map(|topic| &mut topic.partitions).filter(|partition| partition.error_code == 0);
    for (partition, code) in asked.zip(codes) {
        partition.error_code = code.wire();
    }
    OffsetCommitResponse::default().with_topics(topics)
}

/// The answer of a topic as far as it does not depend on the group; its partitions that exist go to `known`.
fn checked(image: &Image, asked: &CommittedTopic, known: &mut Vec<CommitPartition>) -> OffsetCommitResponseTopic {
    let topic = resolve(image, &asked.topic);
    let partition = |one: &CommittedPartition| {
        let found = match topic {
            Ok(topic) if topic.has(one.index) => Ok(PartitionKey { topic: topic.id, index: one.index }),
            Ok(_) => Err(ErrorCode::UnknownTopicOrPartition),
            Err(code) => Err(code),
        };
        if let Ok(key) = found {
            let metadata = one.metadata.as_ref().map(ToString::to_string);
            known.push(CommitPartition { key, offset: one.offset, leader_epoch: one.leader_epoch, metadata });
        }
        let code = found.err().unwrap_or_default();
        OffsetCommitResponsePartition::default().with_partition_index(one.index).with_error_code(code.wire())
    };
    let partitions = asked.partitions.iter().map(partition).collect();
    let answer = OffsetCommitResponseTopic::default().with_partitions(partitions);
    match &asked.topic {
        TopicRef::Name(name) => answer.with_name(TopicName(name.clone())),
        TopicRef::Id(id) => answer.with_topic_id(codec::uuid(*id)),
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, Bytes, BytesMut};
    use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    use kafka_protocol::messages::{GroupId, OffsetCommitRequest};

    use super::*;
    use crate::api::codec::text;
    use crate::api::testing;
    use crate::config::ListenerMode;

    fn name(name: &str) -> TopicName {
        TopicName(text(name))
    }

    /// Codes by topic for partitions 0 to 2 of each.
    fn commit(ctx: &Rc<Ctx>, version: i16, group: &str, topics: &[&str], generation: i32) -> Vec<(String, Vec<i16>)> {
        let partition =
            |index| OffsetCommitRequestPartition::default().with_partition_index(index).with_committed_offset(7);
        let topic = |topic: &&str| {
            let partitions = (0..3).map(partition).collect();
            OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(partitions)
        };
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_generation_id_or_member_epoch(generation)
            .with_topics(topics.iter().map(topic).collect());
        let answer: OffsetCommitResponse = testing::ask(ctx, 8, version, &request);
        let codes = |topic: &OffsetCommitResponseTopic| topic.partitions.iter().map(|one| one.error_code).collect();
        answer.topics.iter().map(|topic| (topic.name.to_string(), codes(topic))).collect()
    }

    #[test]
    fn g8_1_and_g8_9_unknown_topics_and_partitions_fail_beside_those_that_exist() {
        let (ctx, _dir) = testing::ctx();
        testing::create_topic(&ctx, "t", 2);
        for version in 2..=9 {
            let codes = commit(&ctx, version, "g", &["t", "no"], -1);
            assert_eq!(codes, [("t".into(), vec![0, 0, 3]), ("no".into(), vec![3, 3, 3])], "version {version}");
        }
        assert_eq!(commit(&ctx, 9, "other", &["t"], 0), [("t".into(), vec![69, 69, 3])]);
        assert_eq!(commit(&ctx, 8, "other", &["t"], 0), [("t".into(), vec![22, 22, 3])]);
    }

    #[test]
    fn g8_1_with_unknown_topics_alone_and_g8_15_with_none_the_group_is_never_asked() {
        let (ctx, _dir) = testing::ctx();
        assert_eq!(commit(&ctx, 9, "g", &["no"], 5), [("no".into(), vec![3, 3, 3])]);
        assert_eq!(commit(&ctx, 9, "g", &[], 5), []);
        let listed = testing::block_on(groups::list(&ctx, Default::default()));
        assert_eq!(listed, []);
    }

    #[test]
    fn g8_1_version_10_names_topics_by_id_and_an_unknown_or_zero_id_is_100() {
        let (ctx, _dir) = testing::ctx();
        testing::create_topic(&ctx, "t", 1);
        let id = ctx.image().topic("t").expect("created").id;
        let ids = [id.0, 0, 99];
        let mut body = BytesMut::new();
        // Group "g", generation -1, member "", no instance, topics.
        body.put_slice(&[2, b'g', 0xff, 0xff, 0xff, 0xff, 1, 0, 4]);
        for id in ids {
            body.put_u128(id);
            // Partition 0 at offset 7, epoch -1, null metadata, no tags.
            body.put_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0, 0, 0]);
        }
        body.put_u8(0);
        let answer: OffsetCommitResponse = testing::ask_bytes(&ctx, 8, 10, &body.freeze());
        let codes: Vec<_> =
            answer.topics.iter().map(|topic| (topic.topic_id.as_u128(), topic.partitions[0].error_code)).collect();
        assert_eq!(codes, [(ids[0], 0), (0, 100), (99, 100)]);
    }

    #[test]
    fn g1_5_another_cores_group_is_16_for_every_partition_that_exists() {
        let ctx = testing::ctx_of_shards(50, ListenerMode::PerCore);
        let strange = (0..).map(|n| format!("g{n}")).find(|name| {
            let slot = oncilla_shards::slot::slot_of(name.as_bytes());
            oncilla_shards::slot::owner(slot, 50) != ctx.id
        });
        let codes = commit(&ctx, 9, &strange.expect("one"), &["t", "no"], -1);
        assert_eq!(codes, [("t".into(), vec![16; 3]), ("no".into(), vec![3; 3])]);
    }

    #[test]
    fn kc_6_a_body_that_does_not_parse_closes() {
        let (ctx, _dir) = testing::ctx();
        let body = Bytes::from_static(&[0xff, 0xff]);
        let request = Request { key: 8, version: 2, client_id: None, body, listener: 0, peer: None };
        assert!(matches!(testing::block_on(handle(&ctx, &request)), Answer::Close(_)), "case 93: a null group");
    }
}
