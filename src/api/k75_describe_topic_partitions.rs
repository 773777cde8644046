//! DescribeTopicPartitions 0 (contract K75): topics page by page.

use std::collections::BTreeSet;
use std::rc::Rc;

use kafka_protocol::messages::describe_topic_partitions_request::DescribeTopicPartitionsRequest;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::image::{Image, Topic, names};
use oncilla_shards::limits::DESCRIBED_PARTITIONS_MAX;

use super::authorization::TOPIC_OPERATIONS;
use super::codec::{serve, text, uuid};
use super::{Answer, Request, nodes};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DescribeTopicPartitionsRequest| respond(ctx, request, &asked)).await
}

fn respond(ctx: &Ctx, request: &Request, asked: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let image = ctx.image();
    let named: BTreeSet<&str> = asked.topics.iter().map(|topic| topic.name.as_str()).collect();
    let wanted: BTreeSet<&str> =
        if named.is_empty() { image.topics().map(|topic| &*topic.name).collect() } else { named.clone() };
    let mut start = ("", 0);
    if let Some(cursor) = &asked.cursor {
        start = (cursor.topic_name.as_str(), cursor.partition_index);
        let foreign = !named.is_empty() && !named.contains(start.0);
        if foreign || start.1 < 0 {
            // Kafka tells the operations of topics that it looked at, and here it looked at none.
            let refused = |name| failed(name, ErrorCode::InvalidRequest).with_topic_authorized_operations(i32::MIN);
            let refused = wanted.into_iter().map(refused).collect();
            return DescribeTopicPartitionsResponse::default().with_topics(refused);
        }
    }
    let mut left = asked.response_partition_limit.clamp(1, DESCRIBED_PARTITIONS_MAX);
    let mut topics = Vec::new();
    let mut wanted = wanted.range(start.0..).peekable();
    while let Some(name) = wanted.next() {
        let Some(topic) = image.topic(name) else {
            let valid = names::check(name).is_ok();
            let code = if valid { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException };
            topics.push(failed(name, code));
            continue;
        };
        let first = if *name == start.0 { start.1.min(topic.partitions) } else { 0 };
        let end = topic.partitions.min(first.saturating_add(left));
        topics.push(describe(ctx, request, &image, topic, first..end));
        left -= end - first;
        if left == 0 {
            let next = if end < topic.partitions { Some((*name, end)) } else { wanted.peek().map(|next| (**next, 0)) };
            return DescribeTopicPartitionsResponse::default().with_topics(topics).with_next_cursor(next.map(cursor));
        }
    }
    DescribeTopicPartitionsResponse::default().with_topics(topics).with_next_cursor(None)
}

fn cursor((name, index): (&str, i32)) -> Cursor {
    Cursor::default().with_topic_name(text(name).into()).with_partition_index(index)
}

fn failed(name: &str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(code.wire())
        .with_name(Some(text(name).into()))
        .with_is_internal(names::is_internal(name))
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}

fn describe(
    ctx: &Ctx,
    request: &Request,
    image: &Image,
    topic: &Topic,
    range: std::ops::Range<i32>,
) -> DescribeTopicPartitionsResponseTopic {
    let partition = |index| {
        let leader = nodes::leader(ctx, request, image, topic, index).0.into();
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(leader)
            .with_leader_epoch(ctx.boot_epoch.0)
            .with_replica_nodes(vec![leader])
            .with_isr_nodes(vec![leader])
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    };
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(text(&*topic.name).into()))
        .with_topic_id(uuid(topic.id))
        .with_is_internal(topic.is_internal())
        .with_partitions(range.map(partition).collect())
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_topic_partitions_request::{self as asked, TopicRequest};

    use super::*;
    use crate::api::testing::{ask, create_topic, ctx};

    type Page = (Vec<(String, i16, Vec<i32>)>, Option<(String, i32)>);

    fn page(names: &[&str], limit: i32, from: Option<(&str, i32)>) -> Page {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "b", 3);
        create_topic(&ctx, "a", 2);
        let topics = names.iter().map(|name| TopicRequest::default().with_name(text(*name).into())).collect();
        let cursor = from.map(|(name, index)| {
            asked::Cursor::default().with_topic_name(text(name).into()).with_partition_index(index)
        });
        let asked = DescribeTopicPartitionsRequest::default()
            .with_topics(topics)
            .with_response_partition_limit(limit)
            .with_cursor(cursor);
        let answer: DescribeTopicPartitionsResponse = ask(&ctx, 75, 0, &asked);
        let told = answer.topics.iter().map(|topic| {
            let operations = if topic.error_code == 42 { i32::MIN } else { 3576 };
            assert_eq!(topic.topic_authorized_operations, operations, "K75.1, K75.2");
            let indexes = topic.partitions.iter().map(|p| p.partition_index).collect();
            (topic.name.as_ref().expect("a name").to_string(), topic.error_code, indexes)
        });
        (told.collect(), answer.next_cursor.map(|c| (c.topic_name.to_string(), c.partition_index)))
    }

    fn told(name: &str, code: i16, indexes: &[i32]) -> (String, i16, Vec<i32>) {
        (name.to_owned(), code, indexes.to_vec())
    }

    #[test]
    fn k75_1_all_topics_in_name_order_and_unknown_ones_with_a_code() {
        assert_eq!(page(&[], 2000, None), (vec![told("a", 0, &[0, 1]), told("b", 0, &[0, 1, 2])], None));
        let odd = page(&["x", "b", "b", "a b"], 2000, None);
        assert_eq!(odd, (vec![told("a b", 17, &[]), told("b", 0, &[0, 1, 2]), told("x", 3, &[])], None));
    }

    #[test]
    fn k75_1_a_limit_cuts_the_page_and_says_where_to_go_on() {
        assert_eq!(page(&[], 1, None), (vec![told("a", 0, &[0])], Some(("a".to_owned(), 1))));
        assert_eq!(page(&[], 2, None), (vec![told("a", 0, &[0, 1])], Some(("b".to_owned(), 0))));
        assert_eq!(page(&[], 5, None).1, None, "the last one ended with the page");
        for limit in [0, -1, i32::MIN] {
            assert_eq!(page(&[], limit, None).0, [told("a", 0, &[0])]);
        }
    }

    #[test]
    fn k75_2_a_cursor_goes_on_where_it_points() {
        let rest = page(&[], 2, Some(("a", 1)));
        assert_eq!(rest, (vec![told("a", 0, &[1]), told("b", 0, &[0])], Some(("b".to_owned(), 1))));
        assert_eq!(page(&[], 9, Some(("a", 7))).0, [told("a", 0, &[]), told("b", 0, &[0, 1, 2])]);
        assert_eq!(page(&[], 9, Some(("aa", 0))).0, [told("b", 0, &[0, 1, 2])], "a topic that went meanwhile");
        assert_eq!(page(&["a"], 9, Some(("b", 0))).0, [told("a", 42, &[])]);
        assert_eq!(page(&["a"], 9, Some(("a", -1))).0, [told("a", 42, &[])]);
    }
}
