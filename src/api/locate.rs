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

/// What a client's leader epoch says beside the leader's own (contract C1, C2, K23.3); -1 is not checked.
///
/// # Errors
/// FENCED_LEADER_EPOCH if it is older, UNKNOWN_LEADER_EPOCH if it is newer.
pub fn check_epoch(known: i32, current: i32) -> Result<(), ErrorCode> {
    match known {
        -1 => Ok(()),
        known if known < current => Err(ErrorCode::FencedLeaderEpoch),
        known if known > current => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_and_k23_3_only_minus_one_is_an_epoch_that_was_not_given() {
        assert_eq!([-1, 4].map(|known| check_epoch(known, 4)), [Ok(()); 2]);
        for fenced in [i32::MIN, -5, -2, 0, 3] {
            assert_eq!(check_epoch(fenced, 4), Err(ErrorCode::FencedLeaderEpoch), "{fenced}");
        }
        assert_eq!(check_epoch(5, 4), Err(ErrorCode::UnknownLeaderEpoch));
    }
}
