//! DescribeLogDirs 1-5 (contract K35): one directory, with the partitions of the node that was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use oncilla_shards::ids::{PartitionKey, ShardId, TopicId};
use oncilla_shards::image::Image;
use oncilla_shards::wire::Body;

use super::codec::{serve, text};
use super::{Answer, Request};
use crate::config::ListenerMode;
use crate::ctx::Ctx;

/// First version that tells whether a directory takes no new partitions.
const CORDONED_FROM: i16 = 5;
/// What stands behind the last field of the only directory: its tag section and that of the answer, both empty.
const TAGS_BEHIND: [u8; 2] = [0, 0];

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    match serve(request, async |asked: DescribeLogDirsRequest| respond(ctx, asked).await).await {
        Answer::Body(body) if request.version >= CORDONED_FROM => Answer::Body(with_cordoned(&body)),
        answer => answer,
    }
}

/// K35.2: an answer of version 4 as version 5, where the directory ends in `is_cordoned`; this one never is.
fn with_cordoned(version_4: &Body) -> Body {
    let bytes = version_4.to_bytes();
    let fields = bytes.strip_suffix(&TAGS_BEHIND).expect("an answer of a flexible version without tags");
    let mut out = BytesMut::with_capacity(bytes.len() + 1);
    out.put_slice(fields);
    out.put_u8(u8::from(false));
    out.put_slice(&TAGS_BEHIND);
    Body::from(out.freeze())
}

async fn respond(ctx: &Rc<Ctx>, asked: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let image = ctx.image();
    let mut by_shard: BTreeMap<ShardId, Vec<PartitionKey>> = BTreeMap::new();
    for key in wanted(&image, &asked) {
        let topic = image.topic_by_id(key.topic).expect("only topics of the image are wanted");
        let owner = image.owner(topic, key.index);
        if ctx.config.listener_mode == ListenerMode::Shared || owner == ctx.id {
            by_shard.entry(owner).or_default().push(key);
        }
    }
    let mut partitions: BTreeMap<TopicId, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for (shard, keys) in by_shard {
        for (key, size_bytes) in ctx.call(shard, |ctx| async move { sizes(&ctx, keys) }).await {
            let partition = DescribeLogDirsPartition::default().with_partition_index(key.index);
            partitions.entry(key.topic).or_default().push(partition.with_partition_size(size_bytes));
        }
    }
    let topic = |(id, mut partitions): (TopicId, Vec<DescribeLogDirsPartition>)| {
        partitions.sort_unstable_by_key(|partition| partition.partition_index);
        let name = image.topic_by_id(id).map(|topic| text(&*topic.name)).unwrap_or_default();
        DescribeLogDirsTopic::default().with_name(name.into()).with_partitions(partitions)
    };
    let mut directory = DescribeLogDirsResult::default()
        .with_log_dir(text(ctx.config.data_dir.to_string_lossy()))
        .with_topics(partitions.into_iter().map(topic).collect());
    if let Ok(volume) = rustix::fs::statvfs(&ctx.config.data_dir) {
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(volume.f_frsize)).unwrap_or(i64::MAX);
        directory = directory.with_total_bytes(bytes(volume.f_blocks)).with_usable_bytes(bytes(volume.f_bavail));
    }
    DescribeLogDirsResponse::default().with_results(vec![directory])
}

/// The partitions that are asked for and exist; each once, whatever the request repeats.
fn wanted(image: &Image, asked: &DescribeLogDirsRequest) -> BTreeSet<PartitionKey> {
    let Some(topics) = &asked.topics else {
        let all = |topic: &std::sync::Arc<oncilla_shards::image::Topic>| {
            let id = topic.id;
            (0..topic.partitions).map(move |index| PartitionKey { topic: id, index })
        };
        return image.topics().flat_map(all).collect();
    };
    let mut wanted = BTreeSet::new();
    for asked in topics {
        if let Some(topic) = image.topic(&asked.topic) {
            let existing = asked.partitions.iter().filter(|index| topic.has(**index));
            wanted.extend(existing.map(|index| PartitionKey { topic: topic.id, index: *index }));
        }
    }
    wanted
}

/// Sizes at the owner. A partition that is not open there has no segments, or they are not counted yet.
fn sizes(ctx: &Ctx, keys: Vec<PartitionKey>) -> Vec<(PartitionKey, i64)> {
    keys.into_iter().map(|key| (key, ctx.partition_view(&key).map_or(0, |view| view.size_bytes))).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::*;
    use crate::api::dispatch;
    use crate::api::testing::{ask, create_topic, ctx};
    use crate::rt::file::test_block_on as block_on;

    #[test]
    fn k35_1_all_none_or_some_partitions_at_every_version() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 3);
        create_topic(&ctx, "u", 1);
        let topic = |name: &str, partitions| {
            DescribableLogDirTopic::default().with_topic(text(name).into()).with_partitions(partitions)
        };
        let some = vec![topic("t", vec![2, 0, 2, 9, -1]), topic("no", vec![0])];
        for version in 1..=4 {
            for (topics, expected) in [(None, vec![3, 1]), (Some(vec![]), vec![]), (Some(some.clone()), vec![2])] {
                let asked = DescribeLogDirsRequest::default().with_topics(topics);
                let answer: DescribeLogDirsResponse = ask(&ctx, 35, version, &asked);
                let [directory] = answer.results.as_slice() else { panic!("one directory") };
                let mut counts: Vec<usize> = directory.topics.iter().map(|topic| topic.partitions.len()).collect();
                counts.sort_unstable_by(|a, b| b.cmp(a));
                assert_eq!((directory.error_code, counts), (0, expected));
                assert_eq!(directory.total_bytes > 0 && directory.usable_bytes >= 0, version >= 4, "K35.2");
            }
        }
    }

    #[test]
    fn k35_2_version_5_is_version_4_with_a_directory_that_is_not_cordoned() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 2);
        let mut body = BytesMut::new();
        DescribeLogDirsRequest::default().with_topics(None).encode(&mut body, 4).expect("a request");
        let request = Request { key: 35, version: 5, client_id: None, body: body.freeze(), listener: 0, peer: None };
        let Answer::Body(body) = block_on(dispatch(&ctx, &request)) else { panic!("an answer") };
        let bytes = body.to_bytes();
        let (fields, end) = bytes.split_at(bytes.len() - 3);
        assert_eq!(end, [0, 0, 0], "is_cordoned, no tags of the directory, none of the answer");
        let mut version_4 = Bytes::from([fields, &TAGS_BEHIND].concat());
        let answer = DescribeLogDirsResponse::decode(&mut version_4, 4).expect("the other fields");
        assert!(version_4.is_empty());
        assert_eq!((answer.results.len(), answer.results[0].topics[0].partitions.len()), (1, 2));
    }
}
