//! Members of a consumer group that speak the classic protocol (contract G18.3, G18.4).
//!
//! Each of their JoinGroups stands for a heartbeat with all fields, SyncGroup fetches what they may have, and a
//! Heartbeat tells them when to join again. Nothing waits: every request is answered at once.

use std::sync::Arc;

use super::Consumer;
use super::member::{About, ClassicSide, Current, Member, Protocol, State};
use crate::code::ErrorCode;
use crate::groups::sets::Partitions;
use crate::groups::subscription::{Assignment, Subscription};
use crate::groups::turn::Turn;
use crate::groups::{Heartbeat, Join, Joined, MigrationPolicy, Sync, Synced};
use crate::ids::{PartitionKey, TopicId};
use crate::image::Image;

/// A member's id, and the member whose instance it takes over.
type Admitted = (Arc<str>, Option<Arc<str>>);

/// Version of JoinGroup from which a new member has to come back with its id.
const ID_FIRST_VERSION: i16 = 4;

/// Partitions of topics that are there, by id.
pub(in crate::groups) fn by_id(named: &[(String, Vec<i32>)], image: &Image) -> Partitions {
    let of_topic = |(name, indexes): &(String, Vec<i32>)| {
        let topic = image.topic(name).cloned();
        let indexes = indexes.clone();
        topic.into_iter().flat_map(move |topic| {
            let known: Vec<i32> = indexes.iter().copied().filter(|index| topic.has(*index)).collect();
            known.into_iter().map(move |index| PartitionKey { topic: topic.id, index })
        })
    };
    named.iter().flat_map(of_topic).collect()
}

/// The subscription that stands first in a JoinGroup's list.
fn first_subscription(protocols: &[Protocol]) -> Option<Subscription> {
    Subscription::parse(&protocols.first()?.metadata)
}

impl Consumer {
    /// JoinGroup to a group with members.
    pub fn classic_join(&mut self, group: &Arc<str>, join: &Join, turn: &mut Turn<'_>) -> Joined {
        let (id, replaces) = match self.admit_classic(join, turn) {
            Ok(admitted) => admitted,
            Err((code, id)) => return Joined::refused(code, id),
        };
        let mut protocols: Vec<Protocol> = Vec::with_capacity(join.protocols.len());
        for (name, metadata) in &join.protocols {
            // Of two with the same name the first counts (contract 0.10).
            if protocols.iter().all(|protocol| protocol.name != *name) {
                protocols.push(Protocol { name: name.clone(), metadata: metadata.clone() });
            }
        }
        let Some(subscription) = first_subscription(&protocols) else {
            return Joined::refused(ErrorCode::UnknownServerError, join.member_id.clone());
        };
        if let Some(old) = replaces {
            self.replace(&old, &id);
        }
        let protocol_name = protocols[0].name.clone();
        let owned = by_id(&subscription.owned, turn.image);
        let mut about = self.members.get(&id).map(|member| member.about.clone()).unwrap_or_default();
        join_about(&mut about, join, subscription, protocols);
        let difference = self.subscribe(&id, about);
        self.refresh_topics(difference.topics, turn.image);
        self.update_targets(group, turn);
        self.reconcile(&id, difference.any, Some(&owned), turn);
        self.joined_in_time(group, &id, turn);
        self.match_expressions(turn);
        self.write(group, turn);
        Joined {
            generation: self.members[&id].current.epoch,
            protocol_type: Some("consumer".into()),
            protocol_name: Some(protocol_name),
            member_id: id.to_string(),
            ..Joined::default()
        }
    }

    /// Contract G18.4, in its order; a refusal with the member id that is answered.
    fn admit_classic(&self, join: &Join, turn: &Turn<'_>) -> Result<Admitted, (ErrorCode, String)> {
        let refuse = |code| Err((code, join.member_id.clone()));
        let settings = turn.settings;
        // An empty group becomes a classic one for whoever may found that; this request may not (G18.7).
        if self.members.is_empty() {
            let is_new = join.member_id.is_empty();
            return refuse(if is_new { ErrorCode::InconsistentGroupProtocol } else { ErrorCode::UnknownMemberId });
        }
        if settings.migration == MigrationPolicy::Disabled {
            return refuse(ErrorCode::InconsistentGroupProtocol);
        }
        let owner = join.instance_id.as_deref().and_then(|instance| self.instances.get(instance));
        // A known instance does not help, as little as in contract G11.9.
        if !self.members.contains_key(&*join.member_id) && self.members.len() >= settings.consumer_members_max {
            return Err((ErrorCode::GroupMaxSizeReached, String::new()));
        }
        let is_common = |name: &String| self.protocols.get(name).copied().unwrap_or(0) == self.classic_members;
        if join.protocol_type != "consumer" || !join.protocols.iter().any(|(name, _)| is_common(name)) {
            return refuse(ErrorCode::InconsistentGroupProtocol);
        }
        let fresh: Arc<str> = TopicId(join.fresh).to_base64().into();
        match (&join.instance_id, join.member_id.as_str()) {
            (None, "") if join.version >= ID_FIRST_VERSION => Err((ErrorCode::MemberIdRequired, fresh.to_string())),
            (_, "") => Ok((fresh, owner.cloned())),
            (None, id) => Ok((id.into(), None)),
            (Some(_), id) => match owner {
                None => refuse(ErrorCode::UnknownMemberId),
                Some(owner) if **owner != *id => refuse(ErrorCode::FencedInstanceId),
                Some(owner) => Ok((owner.clone(), None)),
            },
        }
    }

    /// It joined, so it has to sync (contract G18.10).
    fn joined_in_time(&mut self, group: &str, id: &Arc<str>, turn: &Turn<'_>) {
        let member = self.members.get_mut(id).expect("it has just joined");
        member.timers.join_ms = None;
        member.timers.sync_ms = Some(turn.now.mono_ms + member.rebalance_timeout_ms());
        self.restart_session(group, id, turn);
    }

    fn classic_member(&self, id: &str, instance: Option<&str>) -> Result<Arc<str>, ErrorCode> {
        if let Some(instance) = instance {
            let owner = self.instances.get(instance).ok_or(ErrorCode::UnknownMemberId)?;
            if **owner != *id {
                return Err(ErrorCode::FencedInstanceId);
            }
        }
        let found = self.members.get_key_value(id).filter(|(_, member)| member.is_classic());
        found.map(|(id, _)| id.clone()).ok_or(ErrorCode::UnknownMemberId)
    }

    /// SyncGroup.
    pub fn classic_sync(&mut self, group: &Arc<str>, sync: &Sync, turn: &mut Turn<'_>) -> Synced {
        let id = match self.classic_member(&sync.member_id, sync.instance_id.as_deref()) {
            Ok(id) => id,
            Err(code) => return Synced::refused(code),
        };
        let member = &self.members[&id];
        let classic = member.about.classic.as_ref().expect("a classic member");
        let name = &classic.protocols[0].name;
        let is_other = |given: &Option<String>, is: &str| given.as_deref().is_some_and(|given| given != is);
        if sync.generation != member.current.epoch {
            return Synced::refused(ErrorCode::IllegalGeneration);
        }
        if is_other(&sync.protocol_type, "consumer") || is_other(&sync.protocol_name, name) {
            return Synced::refused(ErrorCode::InconsistentGroupProtocol);
        }
        if self.head.assignment_epoch > member.current.epoch && member.current.state != State::Revoking {
            self.has_to_join(&id, turn);
            return Synced::refused(ErrorCode::RebalanceInProgress);
        }
        let synced = Synced {
            protocol_type: Some("consumer".into()),
            protocol_name: Some(name.clone()),
            assignment: assignment_of(member, turn.image).encode(),
            ..Synced::default()
        };
        self.members.get_mut(&id).expect("just seen").timers.sync_ms = None;
        self.restart_session(group, &id, turn);
        self.write(group, turn);
        synced
    }

    /// Heartbeat: whether the member has to join again.
    pub fn classic_heartbeat(&mut self, group: &Arc<str>, beat: &Heartbeat, turn: &mut Turn<'_>) -> ErrorCode {
        let id = match self.classic_member(&beat.member_id, beat.instance_id.as_deref()) {
            Ok(id) => id,
            Err(code) => return code,
        };
        if beat.generation != self.members[&id].current.epoch {
            return ErrorCode::IllegalGeneration;
        }
        self.restart_session(group, &id, turn);
        // Consumers compute targets, classic heartbeats do not; where no downgrade is allowed there may be no consumer
        // left to do it, and what it had would stay with nobody (G18.3).
        if self.is_all_classic() {
            self.refresh_topics(false, turn.image);
            self.update_targets(group, turn);
            self.match_expressions(turn);
        }
        self.write(group, turn);
        let member = &self.members[&id];
        let must_join = member.current.epoch < self.head.assignment_epoch
            || match member.current.state {
                State::Stable => false,
                State::Revoking => true,
                State::Waiting => !self.is_blocked(member),
            };
        if !must_join {
            return ErrorCode::None;
        }
        self.has_to_join(&id, turn);
        ErrorCode::RebalanceInProgress
    }

    fn has_to_join(&mut self, id: &Arc<str>, turn: &Turn<'_>) {
        let member = self.members.get_mut(id).expect("a member that was told to join");
        let join_ms = turn.now.mono_ms + member.rebalance_timeout_ms();
        member.timers.join_ms.get_or_insert(join_ms);
        self.schedule(id);
    }

    /// A group that takes over from a classic one at its generation, without members yet (contract G18.1).
    pub(in crate::groups) fn of_generation(generation: i32) -> Self {
        let mut consumer = Self::new();
        (consumer.head.epoch, consumer.head.assignment_epoch) = (generation, generation);
        consumer
    }

    /// A member of a classic group becomes one of this group.
    pub(in crate::groups) fn adopt(
        &mut self,
        group: &str,
        id: &Arc<str>,
        about: About,
        assigned: &Partitions,
        turn: &Turn<'_>,
    ) {
        let epoch = self.head.epoch;
        let assigned_since = assigned.iter().map(|key| (key, epoch)).collect();
        self.put_member(id, about);
        self.put_current(id, Current { epoch, previous_epoch: epoch, assigned: assigned_since, ..Current::default() });
        self.put_target(id, assigned.clone());
        self.restart_session(group, id, turn);
    }

    /// What its members want now is what it was made for.
    pub(in crate::groups) fn count_topics(&mut self, image: &Image) {
        self.head.topics = self.wanted.fingerprint(image);
        self.wanted.compared = Some(image.version);
    }

    pub(in crate::groups) fn has_instance(&self, instance: &str) -> bool {
        self.instances.contains_key(instance)
    }
}

fn join_about(about: &mut About, join: &Join, subscription: Subscription, protocols: Vec<Protocol>) {
    if let Some(instance) = &join.instance_id {
        about.instance_id = Some(instance.as_str().into());
    }
    if subscription.rack.is_some() {
        about.rack_id = subscription.rack;
    }
    match join.rebalance_timeout_ms {
        _ if join.version == 0 => about.rebalance_timeout_ms = join.session_timeout_ms,
        -1 => {}
        timeout_ms => about.rebalance_timeout_ms = timeout_ms,
    }
    about.topics = subscription.topics.into_iter().map(Arc::from).collect();
    about.regex.clear();
    about.set_client(&join.client);
    about.classic = Some(Box::new(ClassicSide { session_timeout_ms: join.session_timeout_ms, protocols }));
}

/// What a member may have, in the version of its subscription.
fn assignment_of(member: &Member, image: &Image) -> Assignment {
    let classic = member.about.classic.as_ref().expect("a classic member");
    let version = first_subscription(&classic.protocols).map_or(0, |subscription| subscription.version);
    named_assignment(version, &member.current.assigned.listed(), image)
}

/// Partitions with the names of their topics; deleted topics are left out.
pub(in crate::groups) fn named_assignment(version: i16, listed: &[(TopicId, Vec<i32>)], image: &Image) -> Assignment {
    let named = |(id, indexes): &(TopicId, Vec<i32>)| Some((image.topic_by_id(*id)?.name.to_string(), indexes.clone()));
    Assignment { version, partitions: listed.iter().filter_map(named).collect(), user_data: None }
}
