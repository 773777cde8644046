//! Shards as the Kafka nodes that clients of a listener see.

use kafka_protocol::protocol::StrBytes;
use oncilla_shards::ids::{NodeId, ShardId};
use oncilla_shards::image::{Image, Topic};
use oncilla_shards::wire::NodeEndpoint;

use super::Request;
use crate::config::ListenerMode;
use crate::ctx::{Ctx, Node};

/// All nodes of the listener that the request came in on, in node order.
pub fn all<'a>(ctx: &'a Ctx, request: &Request) -> &'a [Node] {
    &ctx.nodes[request.listener]
}

/// The node that clients know a shard as.
pub fn of_shard<'a>(ctx: &'a Ctx, request: &Request, shard: ShardId) -> &'a Node {
    let nodes = all(ctx, request);
    match ctx.config.listener_mode {
        ListenerMode::PerCore => &nodes[usize::from(shard.0)],
        ListenerMode::Shared => &nodes[0],
    }
}

/// A node as Produce and Fetch name it beside a leader.
pub fn endpoint(node: &Node) -> NodeEndpoint {
    let host = StrBytes::from_string(node.host.clone());
    NodeEndpoint { id: node.id, host, port: i32::from(node.port), rack: None }
}

/// The node that leads a partition.
pub fn leader(ctx: &Ctx, request: &Request, image: &Image, topic: &Topic, index: i32) -> NodeId {
    of_shard(ctx, request, image.owner(topic, index)).id
}

/// The node that is named as controller: that of the shard which writes topics.
pub fn controller<'a>(ctx: &'a Ctx, request: &Request) -> &'a Node {
    of_shard(ctx, request, ShardId(0))
}

/// The ids of all nodes.
pub fn ids(ctx: &Ctx, request: &Request) -> Vec<NodeId> {
    all(ctx, request).iter().map(|node| node.id).collect()
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
    use kafka_protocol::messages::describe_configs_response::DescribeConfigsResponse;
    use kafka_protocol::messages::describe_log_dirs_request::DescribeLogDirsRequest;
    use kafka_protocol::messages::describe_log_dirs_response::DescribeLogDirsResponse;
    use kafka_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
    use kafka_protocol::messages::find_coordinator_response::FindCoordinatorResponse;
    use kafka_protocol::messages::metadata_request::MetadataRequest;
    use kafka_protocol::messages::metadata_response::MetadataResponse;

    use super::*;
    use crate::api::codec::text;
    use crate::api::testing::{ask, ctx_of_shards};

    fn leaders(mode: ListenerMode) -> (usize, Vec<i32>) {
        let ctx = ctx_of_shards(3, mode);
        let answer: MetadataResponse = ask(&ctx, 3, 13, &MetadataRequest::default().with_topics(None));
        let leaders = answer.topics[0].partitions.iter().map(|partition| partition.leader_id.0).collect();
        (answer.brokers.len(), leaders)
    }

    #[test]
    fn each_core_leads_its_partitions_or_one_node_leads_them_all() {
        assert_eq!(leaders(ListenerMode::PerCore), (3, vec![1, 2, 0, 1]));
        assert_eq!(leaders(ListenerMode::Shared), (1, vec![0; 4]));
    }

    #[test]
    fn coordinators_are_spread_over_the_cores_by_slot() {
        let keys: Vec<_> = (0..50).map(|i| text(format!("group-{i}"))).collect();
        let asked = FindCoordinatorRequest::default().with_coordinator_keys(keys);
        let nodes = |mode| {
            let answer: FindCoordinatorResponse = ask(&ctx_of_shards(3, mode), 10, 6, &asked);
            answer.coordinators.iter().map(|c| c.node_id.0).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(nodes(ListenerMode::PerCore), [0, 1, 2].into());
        assert_eq!(nodes(ListenerMode::Shared), [0].into());
    }

    #[test]
    fn k32_3_each_node_tells_its_own_settings_only() {
        let ctx = ctx_of_shards(2, ListenerMode::PerCore);
        let of = |name: &str| DescribeConfigsResource::default().with_resource_type(4).with_resource_name(text(name));
        let asked = DescribeConfigsRequest::default().with_resources(vec![of("0"), of("1")]);
        let answer: DescribeConfigsResponse = ask(&ctx, 32, 4, &asked);
        assert_eq!(answer.results.iter().map(|result| result.error_code).collect::<Vec<_>>(), [0, 42]);
    }

    #[test]
    fn k35_2_each_node_lists_its_own_partitions_only() {
        let ctx = ctx_of_shards(3, ListenerMode::PerCore);
        let asked = DescribeLogDirsRequest::default().with_topics(None);
        let answer: DescribeLogDirsResponse = ask(&ctx, 35, 4, &asked);
        let [topic] = answer.results[0].topics.as_slice() else { panic!("one topic") };
        assert_eq!(topic.partitions.iter().map(|p| p.partition_index).collect::<Vec<_>>(), [2]);
    }
}
