//! Whether a ConsumerGroupHeartbeat may be carried out (contract G11, G14.1, G15), before anything is changed.

use std::sync::Arc;

use super::member::{AWAY, Member};
use super::{Consumer, re2};
use crate::code::ErrorCode;
use crate::groups::sets::Partitions;
use crate::groups::turn::Turn;
use crate::groups::{ConsumerHeartbeat, ConsumerHeartbeatReply, TopicPartitions};
use crate::ids::{PartitionKey, TopicId};

/// Who an admitted heartbeat is from.
#[derive(Debug)]
pub(in crate::groups) struct Admitted {
    pub(super) id: Arc<str>,
    /// The member whose instance it takes over.
    pub(super) replaces: Option<Arc<str>>,
}

type Refused = ConsumerHeartbeatReply;

fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::refused(code, message))
}

/// Partitions as a request lists them.
pub(super) fn set_of(listed: &TopicPartitions) -> Partitions {
    let keys = |(topic, indexes): &(TopicId, Vec<i32>)| {
        let topic = *topic;
        indexes.clone().into_iter().map(move |index| PartitionKey { topic, index })
    };
    listed.iter().flat_map(keys).collect()
}

impl Consumer {
    /// What a request may not say, whoever sends it (contract G11.2 to G11.6).
    pub fn check_form(beat: &ConsumerHeartbeat, turn: &Turn<'_>) -> Result<(), Refused> {
        let invalid = |message: &str| refuse(ErrorCode::InvalidRequest, message);
        if !turn.settings.consumer_protocol {
            return refuse(ErrorCode::UnsupportedVersion, "The consumer protocol is not enabled.");
        }
        let makes_no_id = beat.version >= 1 || !matches!(beat.member_epoch, 0 | AWAY);
        if beat.member_id.is_empty() && makes_no_id {
            return invalid("MemberId can't be empty.");
        }
        if beat.instance_id.as_deref() == Some("") {
            return invalid("InstanceId can't be empty.");
        }
        if beat.rack_id.as_deref() == Some("") {
            return invalid("RackId can't be empty.");
        }
        match beat.member_epoch {
            0 if beat.rebalance_timeout_ms == -1 => {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            0 if beat.owned.as_ref().is_none_or(|owned| !owned.is_empty()) => {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            0 if beat.topics.is_none() && beat.regex.is_none() => {
                return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be given when (re-)joining.");
            }
            AWAY if beat.instance_id.is_none() => {
                return invalid("InstanceId can't be null when leaving for a while.");
            }
            ..AWAY => return invalid("MemberEpoch is invalid."),
            _ => {}
        }
        let known = &turn.settings.consumer_assignors;
        match &beat.assignor {
            Some(assignor) if !known.contains(assignor) => {
                let message = format!("ServerAssignor {assignor} is not supported. Supported: {}.", known.join(", "));
                refuse(ErrorCode::UnsupportedAssignor, message)
            }
            _ => Ok(()),
        }
    }

    /// Checks a heartbeat in the order of contract G11.9 to G11.11 and G14.1.
    pub fn admit(&self, beat: &ConsumerHeartbeat, turn: &Turn<'_>) -> Result<Admitted, Refused> {
        let is_known = self.members.contains_key(&*beat.member_id);
        if beat.member_epoch == 0 && !is_known && self.members.len() >= turn.settings.consumer_members_max {
            let message = format!("The group has reached its size of {} members.", self.members.len());
            return refuse(ErrorCode::GroupMaxSizeReached, message);
        }
        let admitted = match beat.member_epoch {
            0 => self.admit_join(beat)?,
            _ => self.admit_member(beat)?,
        };
        self.check_regex(beat, &admitted.id)?;
        Ok(admitted)
    }

    fn admit_join(&self, beat: &ConsumerHeartbeat) -> Result<Admitted, Refused> {
        let id: Arc<str> = match beat.member_id.as_str() {
            "" => TopicId(beat.fresh).to_base64().into(),
            id => id.into(),
        };
        let Some(old) = beat.instance_id.as_deref().and_then(|instance| self.instances.get(instance)) else {
            return Ok(Admitted { id, replaces: None });
        };
        let member = &self.members[old];
        if member.current.epoch != AWAY && !member.is_classic() {
            let message = format!("Another member, {old}, has this instance id and has not left.");
            return refuse(ErrorCode::UnreleasedInstanceId, message);
        }
        Ok(Admitted { id, replaces: Some(old.clone()) })
    }

    fn admit_member(&self, beat: &ConsumerHeartbeat) -> Result<Admitted, Refused> {
        let (id, member) = match &beat.instance_id {
            None => match self.members.get_key_value(&*beat.member_id) {
                Some(found) => found,
                None => return refuse(ErrorCode::UnknownMemberId, format!("Member {} is unknown.", beat.member_id)),
            },
            Some(instance) => match self.instances.get(&**instance) {
                None => return refuse(ErrorCode::UnknownMemberId, format!("Instance id {instance} is unknown.")),
                Some(id) if **id != *beat.member_id => {
                    let message = format!("Instance id {instance} belongs to another member.");
                    return refuse(ErrorCode::FencedInstanceId, message);
                }
                Some(id) => (id, &self.members[id]),
            },
        };
        if beat.member_epoch > 0 {
            check_epoch(beat, member)?;
        }
        Ok(Admitted { id: id.clone(), replaces: None })
    }

    /// An expression that the group has is not compiled again.
    fn check_regex(&self, beat: &ConsumerHeartbeat, id: &str) -> Result<(), Refused> {
        let Some(regex) = beat.regex.as_deref().filter(|regex| beat.member_epoch >= 0 && !regex.is_empty()) else {
            return Ok(());
        };
        let is_own = self.members.get(id).is_some_and(|member| member.about.regex == regex);
        if is_own || self.wanted.knows(regex) {
            return Ok(());
        }
        re2::compile(regex).map(drop).or_else(|error| {
            let message = format!("SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.");
            refuse(ErrorCode::InvalidRegularExpression, message)
        })
    }
}

/// The member's epoch, or the one before if the answer with the new one was lost (contract G11.11).
fn check_epoch(beat: &ConsumerHeartbeat, member: &Member) -> Result<(), Refused> {
    let current = &member.current;
    let fenced = |relation: &str| {
        let (asked, has) = (beat.member_epoch, current.epoch);
        refuse(
            ErrorCode::FencedMemberEpoch,
            format!("Member epoch {asked} is {relation} than the member's {has}; rejoin."),
        )
    };
    if beat.member_epoch > current.epoch {
        return fenced("larger");
    }
    let lost_answer = || {
        beat.member_epoch == current.previous_epoch
            && beat.owned.as_ref().is_some_and(|owned| set_of(owned).iter().all(|key| current.assigned.has(key)))
    };
    if beat.member_epoch < current.epoch && !lost_answer() { fenced("smaller") } else { Ok(()) }
}
