//! OffsetFetch (key 9), versions 1 to 10: contract G9. Groups of a batch are asked one by one, in their order.

use std::rc::Rc;

use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{GroupId, OffsetFetchResponse, TopicName};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, FetchOffsets, FetchedOffset, Reply};
use oncilla_shards::ids::PartitionKey;
use oncilla_shards::image::Image;
use oncilla_shards::wire::TopicRef;
use oncilla_shards::wire::offset_fetch::{self, FetchedGroup, GROUPS_FROM, TOPIC_IDS_FROM};

use super::codec::{text, uuid};
use super::topic_ref::resolve;
use super::{Answer, Request, codec};
use crate::ctx::Ctx;
use crate::groups;

/// First version with a code for the whole group.
const GROUP_CODE_FROM: i16 = 2;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    let asked = match offset_fetch::decode(request.version, &request.body) {
        Ok(asked) => asked,
        Err(error) => return Answer::Close(format!("OffsetFetch {} does not parse: {error}", request.version)),
    };
    let mut groups = Vec::with_capacity(asked.groups.len());
    for group in asked.groups {
        let found = fetch(ctx, request.version, &group, asked.require_stable).await;
        groups.push((group, found));
    }
    codec::encode(&response(request.version, groups), request)
}

/// What a group answers for a partition.
#[derive(Clone, Debug)]
struct Found {
    index: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: String,
    code: ErrorCode,
}

impl Found {
    fn nothing(index: i32, code: ErrorCode) -> Self {
        Self { index, offset: -1, leader_epoch: -1, metadata: String::new(), code }
    }
}

impl From<FetchedOffset> for Found {
    fn from(one: FetchedOffset) -> Self {
        let FetchedOffset { key, offset, leader_epoch, metadata, code } = one;
        Self { index: key.index, offset, leader_epoch, metadata, code }
    }
}

/// Partitions by topic, each in the order of the answer.
type Topics = Vec<(TopicRef, Vec<Found>)>;

async fn fetch(ctx: &Rc<Ctx>, version: i16, asked: &FetchedGroup, require_stable: bool) -> Result<Topics, ErrorCode> {
    let image = ctx.image();
    let known = asked.topics.as_ref().map(|topics| {
        let keys = topics.iter().filter_map(|(topic, indexes)| Some((resolve(&image, topic).ok()?.id, indexes)));
        keys.flat_map(|(topic, indexes)| indexes.iter().map(move |index| PartitionKey { topic, index: *index }))
            .collect()
    });
    let fetch = FetchOffsets {
        member_id: asked.member_id.as_ref().map(ToString::to_string),
        member_epoch: asked.member_epoch,
        require_stable,
        partitions: known,
    };
    let fetched = match groups::ask(ctx, &asked.group, Ask::FetchOffsets(fetch)).await? {
        Reply::FetchOffsets(fetched) => fetched,
        other => unreachable!("a fetch of offsets is answered with {other:?}"),
    };
    if fetched.code != ErrorCode::None {
        return Err(fetched.code);
    }
    Ok(match &asked.topics {
        Some(topics) => as_asked(&image, topics, fetched.partitions),
        None => all(&image, fetched.partitions, version >= TOPIC_IDS_FROM),
    })
}

/// The partitions asked for. To unknown names nothing is committed; unknown ids have a code of their own (contract
/// G9.4).
fn as_asked(image: &Image, asked: &[(TopicRef, Vec<i32>)], fetched: Vec<FetchedOffset>) -> Topics {
    let mut fetched = fetched.into_iter();
    let topic = |(topic, indexes): &(TopicRef, Vec<i32>)| {
        let found = match resolve(image, topic) {
            Ok(_) => fetched.by_ref().take(indexes.len()).map(Found::from).collect(),
            Err(code) => {
                let code = if topic.id().is_some() { code } else { ErrorCode::None };
                indexes.iter().map(|index| Found::nothing(*index, code)).collect()
            }
        };
        (topic.clone(), found)
    };
    asked.iter().map(topic).collect()
}

/// All that the group has, without topics that are just being deleted.
fn all(image: &Image, fetched: Vec<FetchedOffset>, by_id: bool) -> Topics {
    let mut topics = Topics::new();
    let mut last = None;
    for one in fetched {
        let id = one.key.topic;
        let Some(topic) = image.topic_by_id(id) else { continue };
        if last != Some(id) {
            let named = if by_id { TopicRef::Id(id) } else { TopicRef::Name(text(&*topic.name)) };
            topics.push((named, Vec::new()));
            last = Some(id);
        }
        topics.last_mut().expect("just pushed").1.push(one.into());
    }
    topics
}

fn response(version: i16, mut groups: Vec<(FetchedGroup, Result<Topics, ErrorCode>)>) -> OffsetFetchResponse {
    if version >= GROUPS_FROM {
        let groups = groups.into_iter().map(|(asked, found)| group(asked, found)).collect();
        return OffsetFetchResponse::default().with_groups(groups);
    }
    let (asked, found) = groups.pop().expect("old versions ask for one group");
    let code = found.as_ref().err().copied().unwrap_or_default();
    let topics = match found {
        Ok(topics) => topics,
        Err(code) if version < GROUP_CODE_FROM => refused(asked, code),
        Err(_) => Vec::new(),
    };
    let code = if version < GROUP_CODE_FROM { ErrorCode::None } else { code };
    OffsetFetchResponse::default().with_error_code(code.wire()).with_topics(topics.into_iter().map(old_topic).collect())
}

/// Version 1 has no place for a code of the group but the partitions (contract G9.9).
fn refused(asked: FetchedGroup, code: ErrorCode) -> Topics {
    let topic = |(topic, indexes): (TopicRef, Vec<i32>)| {
        (topic, indexes.into_iter().map(|index| Found::nothing(index, code)).collect())
    };
    asked.topics.into_iter().flatten().map(topic).collect()
}

fn group(asked: FetchedGroup, found: Result<Topics, ErrorCode>) -> OffsetFetchResponseGroup {
    let code = found.as_ref().err().copied().unwrap_or_default();
    let topic = |(topic, found): (TopicRef, Vec<Found>)| {
        let partitions = found.into_iter().map(partition).collect();
        let answer = OffsetFetchResponseTopics::default().with_partitions(partitions);
        match topic {
            TopicRef::Name(name) => answer.with_name(TopicName(name)),
            TopicRef::Id(id) => answer.with_topic_id(uuid(id)),
        }
    };
    OffsetFetchResponseGroup::default()
        .with_group_id(GroupId(asked.group))
        .with_error_code(code.wire())
        .with_topics(found.into_iter().flatten().map(topic).collect())
}

fn partition(one: Found) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions::default()
        .with_partition_index(one.index)
        .with_committed_offset(one.offset)
        .with_committed_leader_epoch(one.leader_epoch)
        .with_metadata(Some(text(one.metadata)))
        .with_error_code(one.code.wire())
}

fn old_topic((topic, found): (TopicRef, Vec<Found>)) -> OffsetFetchResponseTopic {
    let TopicRef::Name(name) = topic else { unreachable!("old versions name topics") };
    let partition = |one: Found| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(one.index)
            .with_committed_offset(one.offset)
            .with_committed_leader_epoch(one.leader_epoch)
            .with_metadata(Some(text(one.metadata)))
            .with_error_code(one.code.wire())
    };
    OffsetFetchResponseTopic::default()
        .with_name(TopicName(name))
        .with_partitions(found.into_iter().map(partition).collect())
}

#[cfg(test)]
#[path = "k09_offset_fetch_tests.rs"]
mod tests;
