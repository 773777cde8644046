use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::OffsetFetchRequest;
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use oncilla_shards::groups::{Commit, CommitPartition};

use super::*;
use crate::api::testing;
use crate::config::ListenerMode;

/// A shard with the topic `t` of three partitions, and offset 7 with metadata committed for partition 1.
fn committed() -> (Rc<Ctx>, tempfile::TempDir) {
    let (ctx, dir) = testing::ctx();
    testing::create_topic(&ctx, "t", 3);
    let key = PartitionKey { topic: ctx.image().topic("t").expect("created").id, index: 1 };
    let partition = CommitPartition { key, offset: 7, leader_epoch: 2, metadata: Some("m".into()) };
    let commit =
        Commit { version: 9, generation: -1, retention_ms: -1, partitions: vec![partition], ..Commit::default() };
    let reply = testing::block_on(groups::ask(&ctx, "g", Ask::Commit(commit)));
    assert_eq!(reply, Ok(Reply::Commit(vec![ErrorCode::None])));
    (ctx, dir)
}

/// Code of the group, and (topic, index, offset, leader epoch, metadata, code) of every partition.
type Told = (i16, Vec<(String, i32, i64, i32, String, i16)>);

fn told_old(answer: &OffsetFetchResponse) -> Told {
    let partitions = answer.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |one| (topic, one)));
    let row = |(topic, one): (&OffsetFetchResponseTopic, &OffsetFetchResponsePartition)| {
        let metadata = one.metadata.as_deref().unwrap_or("null").to_owned();
        let epoch = one.committed_leader_epoch;
        (topic.name.to_string(), one.partition_index, one.committed_offset, epoch, metadata, one.error_code)
    };
    (answer.error_code, partitions.map(row).collect())
}

fn told(group: &OffsetFetchResponseGroup) -> Told {
    let partitions = group.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |one| (topic, one)));
    let row = |(topic, one): (&OffsetFetchResponseTopics, &OffsetFetchResponsePartitions)| {
        let metadata = one.metadata.as_deref().unwrap_or("null").to_owned();
        let epoch = one.committed_leader_epoch;
        (topic.name.to_string(), one.partition_index, one.committed_offset, epoch, metadata, one.error_code)
    };
    (group.error_code, partitions.map(row).collect())
}

/// One group at any version with names; `None` for all topics.
fn fetch(ctx: &Rc<Ctx>, version: i16, group: &str, topics: Option<&[(&str, &[i32])]>) -> Told {
    let name = |name: &str| TopicName(text(name));
    if version < GROUPS_FROM {
        let topic = |(topic, indexes): &(&str, &[i32])| {
            OffsetFetchRequestTopic::default().with_name(name(topic)).with_partition_indexes(indexes.to_vec())
        };
        let topics = topics.map(|topics| topics.iter().map(topic).collect());
        let request = OffsetFetchRequest::default().with_group_id(GroupId(text(group))).with_topics(topics);
        return told_old(&testing::ask(ctx, 9, version, &request));
    }
    let topic = |(topic, indexes): &(&str, &[i32])| {
        OffsetFetchRequestTopics::default().with_name(name(topic)).with_partition_indexes(indexes.to_vec())
    };
    let topics = topics.map(|topics| topics.iter().map(topic).collect());
    let asked = OffsetFetchRequestGroup::default().with_group_id(GroupId(text(group))).with_topics(topics);
    let answer: OffsetFetchResponse =
        testing::ask(ctx, 9, version, &OffsetFetchRequest::default().with_groups(vec![asked]));
    assert_eq!(answer.groups[0].group_id.as_str(), group);
    told(&answer.groups[0])
}

fn nothing(topic: &str, index: i32, code: i16) -> (String, i32, i64, i32, String, i16) {
    (topic.to_owned(), index, -1, -1, String::new(), code)
}

#[test]
fn g9_1_to_g9_4_what_is_committed_and_what_is_not_at_every_version_with_names() {
    let (ctx, _dir) = committed();
    for version in 1..=9 {
        // Before version 5 an answer has no epoch.
        let epoch = if version < 5 { -1 } else { 2 };
        let seven = ("t".to_owned(), 1, 7, epoch, "m".to_owned(), 0);
        let asked: &[(&str, &[i32])] = &[("no", &[0]), ("t", &[2, 1, 9])];
        let expected = vec![nothing("no", 0, 0), nothing("t", 2, 0), seven.clone(), nothing("t", 9, 0)];
        assert_eq!(fetch(&ctx, version, "g", Some(asked)), (0, expected), "version {version}");
        assert_eq!(fetch(&ctx, version, "absent", Some(&[("t", &[1])])), (0, vec![nothing("t", 1, 0)]), "case 94");
        if version >= 2 {
            assert_eq!(fetch(&ctx, version, "g", None), (0, vec![seven]));
            assert_eq!(fetch(&ctx, version, "absent", None), (0, vec![]));
        }
    }
}

#[test]
fn g9_4_version_10_names_topics_by_id_and_an_unknown_or_zero_id_is_100() {
    let (ctx, _dir) = committed();
    let id = ctx.image().topic("t").expect("created").id.0;
    let mut body = BytesMut::new();
    // Two groups: "g" without member for three topics, and "g" again for all; not only stable ones.
    body.put_slice(&[3, 2, b'g', 0, 0xff, 0xff, 0xff, 0xff, 4]);
    for id in [id, 0, 99] {
        body.put_u128(id);
        body.put_slice(&[2, 0, 0, 0, 1, 0]);
    }
    body.put_slice(&[0, 2, b'g', 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let answer: OffsetFetchResponse = testing::ask_bytes(&ctx, 9, 10, &body.freeze());
    let ids =
        |group: usize| -> Vec<u128> { answer.groups[group].topics.iter().map(|t| t.topic_id.as_u128()).collect() };
    assert_eq!((ids(0), ids(1)), (vec![id, 0, 99], vec![id]));
    let seven = (String::new(), 1, 7, 2, "m".to_owned(), 0);
    assert_eq!(told(&answer.groups[0]), (0, vec![seven.clone(), nothing("", 1, 100), nothing("", 1, 100)]));
    assert_eq!(told(&answer.groups[1]), (0, vec![seven]));
}

#[test]
fn g9_8_groups_of_a_batch_are_answered_in_order_repeated_ones_too() {
    let (ctx, _dir) = committed();
    let group = |id: &str| OffsetFetchRequestGroup::default().with_group_id(GroupId(text(id))).with_topics(None);
    let request = OffsetFetchRequest::default().with_groups(vec![group("g"), group("absent"), group("g")]);
    let answer: OffsetFetchResponse = testing::ask(&ctx, 9, 9, &request);
    let told: Vec<_> = answer.groups.iter().map(|one| (one.group_id.to_string(), one.topics.len())).collect();
    assert_eq!(told, [("g".to_owned(), 1), ("absent".to_owned(), 0), ("g".to_owned(), 1)]);
    let none: OffsetFetchResponse = testing::ask(&ctx, 9, 8, &OffsetFetchRequest::default());
    assert!(none.groups.is_empty());
}

#[test]
fn g9_9_a_code_of_the_group_stands_where_the_version_has_a_place_for_it() {
    let ctx = testing::ctx_of_shards(50, ListenerMode::PerCore);
    let strange = (0..).map(|n| format!("g{n}")).find(|name| {
        let slot = oncilla_shards::slot::slot_of(name.as_bytes());
        oncilla_shards::slot::owner(slot, 50) != ctx.id
    });
    let strange = strange.expect("one");
    let asked: Option<&[(&str, &[i32])]> = Some(&[("t", &[0, 1])]);
    assert_eq!(fetch(&ctx, 1, &strange, asked), (0, vec![nothing("t", 0, 16), nothing("t", 1, 16)]));
    for version in 2..=9 {
        assert_eq!(fetch(&ctx, version, &strange, asked), (16, vec![]), "version {version}");
    }
}
