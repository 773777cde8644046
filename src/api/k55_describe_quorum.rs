//! DescribeQuorum 0-2 (contract K55): a quorum of one, the node that writes topics.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use kafka_protocol::messages::describe_quorum_request::{self as asked, DescribeQuorumRequest};
use kafka_protocol::messages::describe_quorum_response::{
    DescribeQuorumResponse, Listener, Node, PartitionData, ReplicaState, TopicData,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::image::names::CLUSTER_METADATA;

use super::codec::{serve, text};
use super::{Answer, Request, nodes};
use crate::ctx::Ctx;

/// First version that tells when voters were last heard of.
const TIMES_FROM: i16 = 1;
/// First version with error texts and the nodes' listeners.
const NODES_FROM: i16 = 2;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DescribeQuorumRequest| {
        let topic = |topic: &asked::TopicData| {
            let known = |index| index == 0 && topic.topic_name.as_str() == CLUSTER_METADATA;
            let partitions = topic.partitions.iter().map(|asked| match asked.partition_index {
                index if known(index) => quorum(ctx, request),
                index => PartitionData::default()
                    .with_partition_index(index)
                    .with_error_code(ErrorCode::UnknownTopicOrPartition.wire()),
            });
            TopicData::default().with_topic_name(topic.topic_name.clone()).with_partitions(partitions.collect())
        };
        let response = DescribeQuorumResponse::default().with_topics(asked.topics.iter().map(topic).collect());
        if request.version < NODES_FROM || asked.topics.is_empty() {
            return response;
        }
        let controller = nodes::controller(ctx, request);
        let listener = Listener::default()
            .with_name(text(ctx.config.listeners[request.listener].name.as_str()))
            .with_host(text(controller.host.as_str()))
            .with_port(controller.port);
        let node = Node::default().with_node_id(controller.id.0.into()).with_listeners(vec![listener]);
        response.with_nodes(vec![node])
    })
    .await
}

fn quorum(ctx: &Ctx, request: &Request) -> PartitionData {
    let node = nodes::controller(ctx, request).id.0.into();
    let end = i64::try_from(ctx.image().version).unwrap_or(i64::MAX);
    let mut voter = ReplicaState::default().with_replica_id(node).with_log_end_offset(end);
    if request.version >= TIMES_FROM {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        voter = voter.with_last_fetch_timestamp(now_ms).with_last_caught_up_timestamp(now_ms);
    }
    PartitionData::default()
        .with_leader_id(node)
        .with_leader_epoch(ctx.boot_epoch.0)
        .with_high_watermark(end)
        .with_current_voters(vec![voter])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, create_topic, ctx};

    #[test]
    fn k55_1_the_metadata_log_has_one_voter_and_nothing_else_is_known() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        for version in 0..=2 {
            let topic = |name: &str, index| {
                let partition = asked::PartitionData::default().with_partition_index(index);
                asked::TopicData::default().with_topic_name(text(name).into()).with_partitions(vec![partition])
            };
            let topics = vec![topic(CLUSTER_METADATA, 0), topic(CLUSTER_METADATA, 1), topic("t", 0)];
            let asked = DescribeQuorumRequest::default().with_topics(topics);
            let answer: DescribeQuorumResponse = ask(&ctx, 55, version, &asked);
            let partitions: Vec<_> = answer.topics.iter().map(|topic| &topic.partitions[0]).collect();
            assert_eq!(partitions.iter().map(|p| p.error_code).collect::<Vec<_>>(), [0, 3, 3]);
            assert_eq!((partitions[0].leader_epoch, partitions[0].high_watermark), (7, 1));
            assert_eq!(partitions[0].current_voters.len(), 1);
            assert_eq!(answer.nodes.len(), usize::from(version >= 2));
            let none: DescribeQuorumResponse = ask(&ctx, 55, version, &DescribeQuorumRequest::default());
            assert!(none.error_code == 0 && none.topics.is_empty());
        }
    }
}
