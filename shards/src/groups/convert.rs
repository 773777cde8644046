//! Groups that change between the protocols while they run (contract G18).
//!
//! A conversion is decided on a copy: a request that is refused afterwards leaves the group as it was. Both kinds are
//! written down as a whole by the step that converts.

use std::sync::Arc;

use super::classic::{Classic, MemberParts, Parts};
use super::consumer::member::{About, ClassicSide, Protocol};
use super::consumer::{Consumer, ConsumerEntry, by_id, named_assignment};
use super::group::{Group, Members};
use super::subscription::{Assignment, Subscription};
use super::turn::Turn;
use super::{ConsumerHeartbeat, ConsumerHeartbeatReply, Entry, Join, Joined, Leaving};
use crate::code::ErrorCode;

/// Makes an empty consumer group a classic one for a JoinGroup that may do so (G18.7). Whether it did.
pub(super) fn to_classic_for_join(group: &mut Group, join: &Join, turn: &mut Turn<'_>) -> bool {
    let Members::Consumer(consumer) = &group.members else { return false };
    let may_lead = join.member_id.is_empty() && !join.protocol_type.is_empty() && !join.protocols.is_empty();
    if consumer.has_members() || !may_lead {
        return false;
    }
    turn.record(&Entry::Consumer { group: group.name().clone(), entry: ConsumerEntry::Dissolved });
    group.members = Members::Classic(Box::new(Classic::new()));
    true
}

/// Makes a classic group a consumer group for a ConsumerGroupHeartbeat, or says why not (G18.1, G18.5, G18.7).
pub(super) fn to_consumer(
    group: &mut Group,
    beat: &ConsumerHeartbeat,
    turn: &mut Turn<'_>,
) -> Result<(), ConsumerHeartbeatReply> {
    let name = group.name().clone();
    let Members::Classic(classic) = &mut group.members else { return Ok(()) };
    let refuse = |why: &str| {
        let message = format!("Group {name} is not a consumer group{why}.");
        ConsumerHeartbeatReply::refused(ErrorCode::GroupIdNotFound, message)
    };
    if beat.member_epoch != 0 {
        return Err(refuse(""));
    }
    let consumer = match classic.has_members() {
        true => upgraded(&name, &classic.parts(), turn).map_err(refuse)?,
        false => Consumer::new(),
    };
    consumer.admit(beat, turn)?;
    classic.release(turn);
    group.members = Members::Consumer(Box::new(consumer));
    Ok(())
}

/// The consumer group that a classic one with members becomes, or why it cannot.
fn upgraded(name: &str, parts: &Parts, turn: &Turn<'_>) -> Result<Consumer, &'static str> {
    if !turn.settings.migration.upgrades() {
        return Err(", and conversions are not allowed");
    }
    if &*parts.protocol_type != "consumer" {
        return Err(", and its members are no consumers");
    }
    if parts.members.len() > turn.settings.consumer_members_max {
        return Err(", and has too many members");
    }
    let mut consumer = Consumer::of_generation(parts.generation);
    for member in &parts.members {
        let chosen = member.protocols.iter().find(|(name, _)| parts.protocol.as_ref() == Some(name));
        let metadata = chosen.or(member.protocols.first()).map(|(_, metadata)| metadata);
        let subscription = metadata.and_then(|metadata| Subscription::parse(metadata));
        let subscription = subscription.ok_or(", and a subscription of its members cannot be read")?;
        let assignment = Assignment::parse(&member.assignment).ok_or(", and an assignment of it cannot be read")?;
        if assignment.user_data.is_some_and(|data| !data.is_empty()) {
            return Err(", and its assignor uses data of its own");
        }
        let assigned = by_id(&assignment.partitions, turn.image);
        consumer.adopt(name, &member.id, about(member, subscription), &assigned, turn);
    }
    consumer.count_topics(turn.image);
    Ok(consumer)
}

fn about(member: &MemberParts, subscription: Subscription) -> About {
    let protocol =
        |(name, metadata): &(Box<str>, bytes::Bytes)| Protocol { name: name.to_string(), metadata: metadata.clone() };
    About {
        instance_id: member.instance.clone(),
        rack_id: subscription.rack,
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        topics: subscription.topics.into_iter().map(Arc::from).collect(),
        client_id: member.client.id.clone(),
        client_host: member.client.host.clone(),
        classic: Some(Box::new(ClassicSide {
            session_timeout_ms: member.session_timeout_ms,
            protocols: member.protocols.iter().map(protocol).collect(),
        })),
        ..About::default()
    }
}

/// A heartbeat to a consumer group, after which it may be a classic one (G18.9).
pub(super) fn heartbeat(group: &mut Group, beat: &ConsumerHeartbeat, turn: &mut Turn<'_>) -> ConsumerHeartbeatReply {
    let name = group.name().clone();
    let Members::Consumer(consumer) = &mut group.members else { unreachable!("the caller has looked") };
    let epoch = consumer.head.epoch;
    let reply = consumer.heartbeat(&name, beat, turn);
    if beat.member_epoch == -1 && reply.code == ErrorCode::None {
        downgrade(group, epoch, false, turn);
    }
    reply
}

/// JoinGroup at a consumer group. A static member that takes the place of the last consumer makes it a classic group,
/// without a rebalance if nothing else changes (G18.8).
pub(super) fn join(group: &mut Group, join: &Join, turn: &mut Turn<'_>) -> Joined {
    let name = group.name().clone();
    let Members::Consumer(consumer) = &mut group.members else { unreachable!("the caller has looked") };
    let epoch = consumer.head.epoch;
    let is_settled = consumer.head.assignment_epoch == epoch;
    let was_mixed = !consumer.is_all_classic();
    let takes_over = join.instance_id.as_deref().is_some_and(|instance| consumer.has_instance(instance));
    let joined = consumer.classic_join(&name, join, turn);
    if joined.code == ErrorCode::None && was_mixed && takes_over {
        let generation = consumer.head.epoch;
        downgrade(group, generation, is_settled && generation == epoch, turn);
    }
    joined
}

/// LeaveGroup at a consumer group (G18.11).
pub(super) fn leave(group: &mut Group, leaving: &[Leaving], turn: &mut Turn<'_>) -> Vec<ErrorCode> {
    let name = group.name().clone();
    let Members::Consumer(consumer) = &mut group.members else { unreachable!("the caller has looked") };
    let epoch = consumer.head.epoch;
    let codes = consumer.classic_leave(&name, leaving, turn);
    if codes.contains(&ErrorCode::None) {
        downgrade(group, epoch, false, turn);
    }
    codes
}

/// Time passes for a consumer group, after which it may be a classic one (G18.9).
pub(super) fn on_time(group: &mut Group, turn: &mut Turn<'_>) {
    let name = group.name().clone();
    let Members::Consumer(consumer) = &mut group.members else { unreachable!("the caller has looked") };
    let epoch = consumer.head.epoch;
    if consumer.on_time(&name, turn) {
        downgrade(group, epoch, false, turn);
    }
}

/// Makes a consumer group of classic members alone a classic one, if that is allowed. It is Stable if `is_settled`,
/// else its members have to join again. A member that goes and so converts the group does not raise its epoch: who is
/// at the epoch from before hears 27, not 22 (G18.9).
fn downgrade(group: &mut Group, generation: i32, is_settled: bool, turn: &mut Turn<'_>) {
    let name = group.name().clone();
    let Members::Consumer(consumer) = &group.members else { return };
    let fits = consumer.members.len() <= turn.settings.members_max;
    if !consumer.has_members() || !consumer.is_all_classic() || !fits || !turn.settings.migration.downgrades() {
        return;
    }
    let members: Vec<MemberParts> = consumer
        .members
        .iter()
        .map(|(id, member)| {
            let classic = member.about.classic.as_deref().expect("all are classic");
            let version = classic.protocols.first().and_then(|protocol| Subscription::parse(&protocol.metadata));
            let version = version.map_or(0, |subscription| subscription.version);
            MemberParts {
                id: id.clone(),
                instance: member.about.instance_id.clone(),
                client: member.about.client(),
                session_timeout_ms: classic.session_timeout_ms,
                rebalance_timeout_ms: member.about.rebalance_timeout_ms,
                protocols: classic.protocols.iter().map(|p| (p.name.as_str().into(), p.metadata.clone())).collect(),
                assignment: named_assignment(version, &member.target.listed(), turn.image).encode(),
            }
        })
        .collect();
    // Members that joined in turn always share one; without it they stay where they are.
    let Some(protocol) = Classic::common_protocol(&members) else { return };
    let parts = Parts { generation, protocol_type: "consumer".into(), protocol: Some(protocol), members };
    let mut classic = Classic::from_parts(parts, turn.now);
    classic.record(&name, turn);
    if !is_settled {
        classic.rebalance(&name, turn);
    }
    group.members = Members::Classic(Box::new(classic));
}
