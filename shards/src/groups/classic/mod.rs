//! A group under the classic protocol: members join, the leader assigns, everybody hears what it is to do (contract G2
//! to G6).
//!
//! Owned by its [`Group`](super::group::Group). A join phase collects JoinGroup requests, which stay parked until all
//! members have joined or the time is over; then each SyncGroup is parked until the leader's has come. Nothing waits
//! longer than the largest rebalance timeout of the members, newcomers no longer than `GROUP_NEW_MEMBER_WAIT_MS`.
//! Limits: members by `group.max.size`, pending members by `GROUP_PENDING_MEMBERS_MAX`, the bytes of a generation by
//! `message.max.bytes`. Failure: a crash takes the group back to its last synced generation ([`entry`]).

mod commit;
mod entry;
mod join;
mod leave;
mod parts;
mod rebalance;
mod roster;
mod static_members;
mod sync;
mod timers;

use std::sync::Arc;

pub use self::entry::ClassicEntry;
pub(in crate::groups) use self::parts::Parts;
use self::rebalance::Wait;
pub(in crate::groups) use self::roster::MemberParts;
use self::roster::{Parked, Roster};
use self::timers::Timers;
use super::turn::Turn;
use super::{DescribedMember, Description, GroupSettings, Join, Joined, Now, Reply, Sync, Synced};
use crate::code::ErrorCode;
use crate::ids::TimestampMs;

/// Where a group stands (contract G6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::groups) enum State {
    /// No members; pending ones do not count.
    #[default]
    Empty,
    /// The join phase.
    Preparing,
    /// All have joined, the leader has not assigned yet.
    Completing,
    /// The leader has assigned.
    Stable,
}

/// Topics by the subscriptions of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Topics {
    /// These, in their order.
    Named(Box<[Box<str>]>),
    /// One of the subscriptions cannot be read.
    Unknown,
}

#[derive(Debug)]
pub(in crate::groups) struct Classic {
    state: State,
    generation: i32,
    /// Of the first member since it was Empty; "" if there never was one.
    protocol_type: Box<str>,
    /// Chosen when the last join phase was over.
    protocol: Option<Box<str>>,
    leader: Option<Arc<str>>,
    roster: Roster,
    /// Ids that were given to newcomers which have not come back yet, in their order, with the end of their time.
    pending: Vec<(Arc<str>, u64)>,
    /// What the join phase waits for.
    wait: Option<Wait>,
    /// When all members must have sent SyncGroup.
    sync_due_ms: Option<u64>,
    timers: Timers,
    /// Of the last completed generation (contract G10.4).
    subscribed: Topics,
    /// Since when it is Empty.
    since: TimestampMs,
    /// What is remembered, where that is not what it is now.
    kept: Option<Box<ClassicEntry>>,
    /// Whether anything is remembered.
    is_noted: bool,
}

impl Classic {
    pub fn new() -> Self {
        Self {
            state: State::Empty,
            generation: 0,
            protocol_type: Box::default(),
            protocol: None,
            leader: None,
            roster: Roster::default(),
            pending: Vec::new(),
            wait: None,
            sync_due_ms: None,
            timers: Timers::default(),
            subscribed: Topics::Named(Box::default()),
            since: TimestampMs(0),
            kept: None,
            is_noted: false,
        }
    }

    /// Never had a member, pending or not, and has no generation to remember.
    pub fn is_blank(&self) -> bool {
        !self.is_noted && self.state == State::Empty && self.pending.is_empty()
    }

    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Whether it is anything but Empty: also for a while after its last member left during a join phase.
    pub fn has_members(&self) -> bool {
        self.state != State::Empty
    }

    pub fn protocol_type(&self) -> &str {
        &self.protocol_type
    }

    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Empty => "Empty",
            State::Preparing => "PreparingRebalance",
            State::Completing => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }

    /// What is refused before anybody asks whether the group is there (contract G2.2, G3.1).
    pub fn check_join(join: &Join, settings: &GroupSettings) -> Result<(), ErrorCode> {
        let allowed = settings.session_timeout_ms_min..=settings.session_timeout_ms_max;
        if allowed.contains(&join.session_timeout_ms) { Ok(()) } else { Err(ErrorCode::InvalidSessionTimeout) }
    }

    /// As [`Classic::check_join`].
    pub fn check_sync(sync: &Sync) -> Result<(), ErrorCode> {
        let is_whole = sync.version < 5 || (sync.protocol_type.is_some() && sync.protocol_name.is_some());
        if is_whole { Ok(()) } else { Err(ErrorCode::InconsistentGroupProtocol) }
    }

    /// Whether a request speaks for a member: both ids must be its own (contract G2.12, G3.4, G4.3).
    fn check_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance_id {
            match self.roster.of_instance(instance) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(id) if **id != *member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        self.roster.get(member_id).map(|_| ()).ok_or(ErrorCode::UnknownMemberId)
    }

    fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    /// Answers what a member had parked with an error.
    fn refuse_parked(parked: Parked, code: ErrorCode, member_id: &str, turn: &mut Turn<'_>) {
        match parked {
            Parked::No => {}
            Parked::Join(waiter) => turn.reply(waiter, Reply::Join(Joined::refused(code, member_id))),
            Parked::Sync(waiter) => turn.reply(waiter, Reply::Sync(Synced::refused(code))),
        }
    }

    /// The group is deleted: a pending member hears UNKNOWN_MEMBER_ID when it comes back.
    pub fn dissolve(&mut self, turn: &mut Turn<'_>) {
        for (id, parked) in self.roster.unpark(Parked::is_any) {
            Self::refuse_parked(parked, ErrorCode::UnknownMemberId, &id, turn);
        }
        *self = Self::new();
    }

    /// For DescribeGroups (contract G7.1, G7.2).
    pub fn describe(&self) -> Description {
        let protocol = self.protocol.as_deref().filter(|_| self.state == State::Stable);
        let member = |member: &roster::Member| DescribedMember {
            member_id: member.id.to_string(),
            instance_id: member.instance.as_deref().map(str::to_owned),
            client: member.client.clone(),
            metadata: protocol.map(|protocol| member.metadata(protocol)).unwrap_or_default(),
            assignment: member.assignment.clone(),
        };
        Description {
            state: self.state_name(),
            protocol_type: self.protocol_type.to_string(),
            protocol: protocol.unwrap_or_default().to_owned(),
            members: self.roster.iter().map(member).collect(),
        }
    }

    fn restart_session(&mut self, member_id: &str, now: Now) {
        let Some(member) = self.roster.get_mut(member_id) else { return };
        let session_ms = u64::try_from(member.session_timeout_ms).unwrap_or(0);
        self.timers.expire_at(member, now.mono_ms.saturating_add(session_ms));
    }
}

#[cfg(test)]
mod tests;
