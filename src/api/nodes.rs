//! Shards as the Kafka nodes that clients of a listener see.

use oncilla_shards::ids::{NodeId, ShardId};
use oncilla_shards::image::{Image, Topic};

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
