//! The join phase of a classic group: from the first change of its members until all have joined or the time is over
//! (contract G6.2 to G6.5).

use std::sync::Arc;

use super::roster::{Member, Parked};
use super::{Classic, State};
use crate::code::ErrorCode;
use crate::groups::turn::Turn;
use crate::groups::{Joined, JoinedMember, Reply};

/// What a join phase waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// Until when at most.
    pub due_ms: u64,
    /// Of a group that was Empty: it waits for more members to come, whoever has joined.
    initial: Option<Initial>,
}

#[derive(Debug, PartialEq, Eq)]
struct Initial {
    /// How long this round lasts.
    delay_ms: u64,
    /// What may be waited after this round.
    rest_ms: u64,
    /// Whether somebody came in this round.
    has_newcomer: bool,
}

impl Wait {
    fn until(due_ms: u64) -> Self {
        Self { due_ms, initial: None }
    }
}

impl Classic {
    /// A newcomer was added: it may prolong the initial delay.
    pub(super) fn newcomer(&mut self) {
        if let Some(initial) = self.wait.as_mut().and_then(|wait| wait.initial.as_mut()) {
            initial.has_newcomer = true;
        }
    }

    /// Members changed: a rebalance begins, or the one in progress may be over.
    pub(in crate::groups) fn rebalance(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        if self.state == State::Preparing {
            return self.complete_if_all_joined(group, turn);
        }
        self.keep();
        if self.state == State::Completing {
            self.refuse_syncs(ErrorCode::RebalanceInProgress, turn);
        }
        self.sync_due_ms = None;
        let now_ms = turn.now.mono_ms;
        let timeout_ms = self.roster.rebalance_timeout_ms();
        if std::mem::replace(&mut self.state, State::Preparing) != State::Empty {
            if self.have_all_joined() {
                self.complete(group, turn);
            } else {
                self.wait = Some(Wait::until(now_ms.saturating_add(timeout_ms)));
            }
            return;
        }
        let delay_ms = u64::try_from(turn.settings.initial_rebalance_delay_ms).unwrap_or(0);
        if delay_ms == 0 {
            return self.complete(group, turn);
        }
        let initial = Initial { delay_ms, rest_ms: timeout_ms.saturating_sub(delay_ms), has_newcomer: false };
        self.wait = Some(Wait { due_ms: now_ms.saturating_add(delay_ms), initial: Some(initial) });
    }

    /// Answers all parked SyncGroups with an error; nothing is assigned any more.
    pub(super) fn refuse_syncs(&mut self, code: ErrorCode, turn: &mut Turn<'_>) {
        self.roster.iter_mut().for_each(|member| member.assignment.clear());
        for (id, parked) in self.roster.unpark(Parked::is_sync) {
            Self::refuse_parked(parked, code, &id, turn);
            self.restart_session(&id, turn.now);
        }
    }

    fn have_all_joined(&self) -> bool {
        self.roster.joined() == self.roster.len() && self.pending.is_empty()
    }

    /// Ends the join phase if nobody is missing; the initial delay lasts whoever has joined.
    pub(super) fn complete_if_all_joined(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        let is_initial = self.wait.as_ref().is_some_and(|wait| wait.initial.is_some());
        if self.state == State::Preparing && !is_initial && self.have_all_joined() {
            self.complete(group, turn);
        }
    }

    /// The time of the join phase is over.
    pub(super) fn join_phase_due(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        if let Some(initial) = self.wait.take().expect("it is due").initial
            && initial.has_newcomer
            && initial.rest_ms > 0
        {
            let delay_ms = u64::try_from(turn.settings.initial_rebalance_delay_ms).unwrap_or(0);
            let delay_ms = delay_ms.min(initial.rest_ms);
            let rest_ms = initial.rest_ms.saturating_sub(initial.delay_ms);
            let due_ms = turn.now.mono_ms.saturating_add(delay_ms);
            self.wait = Some(Wait { due_ms, initial: Some(Initial { delay_ms, rest_ms, has_newcomer: false }) });
            return;
        }
        self.complete(group, turn);
    }

    /// Ends the join phase with those that have joined.
    fn complete(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        self.wait = None;
        let is_gone = |member: &&Member| member.instance.is_none() && !member.has_joined();
        let gone: Vec<_> = self.roster.iter().filter(is_gone).map(|member| member.id.clone()).collect();
        gone.iter().for_each(|id| self.remove(id, turn));
        if !self.elect() && !self.roster.is_empty() {
            // Static members alone, none of which came back: they have until the end of their sessions (G6.4).
            let timeout_ms = self.roster.rebalance_timeout_ms().max(1);
            self.wait = Some(Wait::until(turn.now.mono_ms.saturating_add(timeout_ms)));
            return;
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        if self.roster.is_empty() {
            return self.become_empty(group, turn);
        }
        self.protocol = self.roster.choose(self.leader.as_deref(), None);
        assert!(self.protocol.is_some(), "who shares no protocol with the members is not let in");
        self.state = State::Completing;
        self.subscribed = self.read_subscriptions();
        self.sync_due_ms = Some(turn.now.mono_ms.saturating_add(self.roster.rebalance_timeout_ms()));
        self.answer_joins(turn);
    }

    /// The leader is one that has joined. Whether there is one.
    fn elect(&mut self) -> bool {
        let has_joined = |id: &Arc<str>| self.roster.get(id).is_some_and(Member::has_joined);
        if !self.leader.as_ref().is_some_and(has_joined) {
            let Some(joined) = self.roster.iter().find(|member| member.has_joined()) else { return false };
            self.leader = Some(joined.id.clone());
        }
        true
    }

    fn become_empty(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        self.state = State::Empty;
        self.protocol = None;
        self.leader = None;
        self.subscribed = self.read_subscriptions();
        self.since = turn.now.wall;
        self.record(group, turn);
    }

    fn answer_joins(&mut self, turn: &mut Turn<'_>) {
        for member in self.roster.iter_mut() {
            member.is_new = false;
            member.has_synced = false;
        }
        for (id, parked) in self.roster.unpark(Parked::is_join) {
            let Parked::Join(waiter) = parked else { unreachable!("nobody syncs in a join phase") };
            let joined = self.joined(&id);
            turn.reply(waiter, Reply::Join(joined));
        }
        let ids: Vec<_> = self.roster.iter().map(|member| member.id.clone()).collect();
        ids.iter().for_each(|id| self.restart_session(id, turn.now));
    }

    /// The generation as it is told to a member (contract G2.14).
    pub(super) fn joined(&self, member_id: &str) -> Joined {
        let members = if self.is_leader(member_id) { self.joined_members() } else { Vec::new() };
        Joined {
            code: ErrorCode::None,
            generation: self.generation,
            protocol_type: Some(self.protocol_type.to_string()),
            protocol_name: self.protocol.as_deref().map(str::to_owned),
            leader: self.leader.as_deref().unwrap_or_default().to_owned(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members,
        }
    }

    fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let joined = |member: &Member| JoinedMember {
            member_id: member.id.to_string(),
            instance_id: member.instance.as_deref().map(str::to_owned),
            metadata: member.metadata(protocol),
        };
        self.roster.iter().map(joined).collect()
    }
}
