//! Groups that change between the protocols while they run (contract G18).

use super::group::{Group, Members};
use super::turn::Turn;
use super::{ConsumerHeartbeat, ConsumerHeartbeatReply, Join, Leaving};
use crate::code::ErrorCode;

/// Makes an empty consumer group a classic one for a JoinGroup that may do so (G18.7). Whether it did.
pub(super) fn to_classic_for_join(_group: &mut Group, _join: &Join, _turn: &mut Turn<'_>) -> bool {
    false
}

/// Makes a classic group a consumer group for a ConsumerGroupHeartbeat, or says why not (G18.1, G18.5, G18.7).
pub(super) fn to_consumer(
    _group: &mut Group,
    _beat: &ConsumerHeartbeat,
    _turn: &mut Turn<'_>,
) -> Result<(), ConsumerHeartbeatReply> {
    Err(ConsumerHeartbeatReply::refused(ErrorCode::GroupIdNotFound, ""))
}

/// A heartbeat to a consumer group, after which it may be a classic one (G18.9).
pub(super) fn heartbeat(group: &mut Group, beat: &ConsumerHeartbeat, turn: &mut Turn<'_>) -> ConsumerHeartbeatReply {
    let name = group.name().clone();
    let Members::Consumer(consumer) = &mut group.members else { unreachable!("the caller has looked") };
    consumer.heartbeat(&name, beat, turn)
}

/// LeaveGroup at a consumer group (G18.11).
pub(super) fn leave(_group: &mut Group, leaving: &[Leaving], _turn: &mut Turn<'_>) -> Vec<ErrorCode> {
    vec![ErrorCode::UnknownMemberId; leaving.len()]
}

/// Time passes for a consumer group, after which it may be a classic one (G18.9).
pub(super) fn on_time(_group: &mut Group, _turn: &mut Turn<'_>) {}
