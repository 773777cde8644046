//! Which shard answers for a partition that a request names.

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{PartitionKey, ShardId};
use oncilla_shards::image::Image;

use crate::ctx::Ctx;

/// The owner of a partition, and its key.
///
/// # Errors
/// UNKNOWN_TOPIC_OR_PARTITION if there is none, NOT_LEADER_OR_FOLLOWER if this node does not answer for it.
pub fn locate(ctx: &Ctx, image: &Image, topic: &str, index: i32) -> Result<(ShardId, PartitionKey), ErrorCode> {
    let topic = image.topic(topic).filter(|topic| topic.has(index)).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let owner = image.owner(topic, index);
    if owner != ctx.id && !ctx.forwards() {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    Ok((owner, PartitionKey { topic: topic.id, index }))
}

/// What a client's leader epoch says beside the leader's own (contract C1, K23.3); -1 and below are not checked.
///
/// # Errors
/// FENCED_LEADER_EPOCH if it is older, UNKNOWN_LEADER_EPOCH if it is newer.
pub fn check_epoch(known: i32, current: i32) -> Result<(), ErrorCode> {
    match known {
        ..0 => Ok(()),
        known if known < current => Err(ErrorCode::FencedLeaderEpoch),
        known if known > current => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}
