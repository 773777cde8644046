//! What is remembered of a classic group over a restart (contract G19): its last synced generation, or that it was
//! Empty. A rebalance in progress and pending members are not.
//!
//! While the group is Stable or Empty this is a view of it; from the first change of a rebalance on it is kept aside.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::roster::{Member, MemberParts, Roster};
use super::{Classic, State};
use crate::groups::turn::Turn;
use crate::groups::{Client, Entry, Now};
use crate::ids::TimestampMs;

/// One change of the classic side of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassicEntry {
    /// It has no members.
    Empty {
        /// Its generation.
        generation: i32,
        /// Protocol type of the members that it had, "" if it never had any.
        protocol_type: String,
        /// Since when.
        since: TimestampMs,
    },
    /// Its leader has assigned.
    Stable(Synced),
    /// A static member came back under another id, without a rebalance.
    Rejoined {
        /// Its id until then.
        from: Arc<str>,
        /// Its id.
        to: Arc<str>,
        /// Its new session timeout.
        session_timeout_ms: i32,
        /// Its new rebalance timeout.
        rebalance_timeout_ms: i32,
        /// Its new metadata of the chosen protocol.
        #[serde(with = "crate::groups::base64")]
        metadata: Bytes,
    },
    /// A static member of the last synced generation came back under another id during a rebalance.
    Renamed {
        /// Its id until then.
        from: Arc<str>,
        /// Its id.
        to: Arc<str>,
    },
}

/// A generation whose leader has assigned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Synced {
    /// Its number.
    pub generation: i32,
    /// Protocol type.
    pub protocol_type: String,
    /// Chosen protocol.
    pub protocol: String,
    /// Member id of the leader.
    pub leader: Arc<str>,
    /// Its members.
    pub members: Vec<SyncedMember>,
}

/// A member of a synced generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncedMember {
    /// Its id.
    pub id: Arc<str>,
    /// Of a static member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Arc<str>>,
    /// Client id.
    pub client_id: String,
    /// Address.
    pub client_host: String,
    /// Silence after which it is removed.
    pub session_timeout_ms: i32,
    /// How long a rebalance waits for it.
    pub rebalance_timeout_ms: i32,
    /// Its metadata of the chosen protocol (contract G19.5).
    #[serde(with = "crate::groups::base64")]
    pub metadata: Bytes,
    /// What it is to do.
    #[serde(with = "crate::groups::base64")]
    pub assignment: Bytes,
}

impl SyncedMember {
    fn of(member: &Member, protocol: &str) -> Self {
        Self {
            id: member.id.clone(),
            instance: member.instance.clone(),
            client_id: member.client.id.clone(),
            client_host: member.client.host.clone(),
            session_timeout_ms: member.session_timeout_ms,
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            metadata: member.metadata(protocol),
            assignment: member.assignment.clone(),
        }
    }

    fn restore(self, protocol: &str) -> Member {
        Member::new(MemberParts {
            id: self.id,
            instance: self.instance,
            client: Client { id: self.client_id, host: self.client_host },
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            protocols: vec![(protocol.into(), self.metadata)],
            assignment: self.assignment,
        })
    }
}

impl Synced {
    fn rename(&mut self, from: &str, to: &Arc<str>) -> bool {
        let Some(member) = self.members.iter_mut().find(|member| &*member.id == from) else { return false };
        member.id = to.clone();
        // As the roster orders them, so that a snapshot does not depend on how it came about.
        self.members.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        if &*self.leader == from {
            self.leader = to.clone();
        }
        true
    }
}

impl Classic {
    /// What is remembered of it while it is Stable or Empty.
    fn remembered(&self) -> ClassicEntry {
        if self.state == State::Empty {
            let protocol_type = self.protocol_type.to_string();
            return ClassicEntry::Empty { generation: self.generation, protocol_type, since: self.since };
        }
        assert!(self.state == State::Stable, "what is remembered of a rebalance is kept aside");
        let protocol = self.protocol.as_deref().expect("a stable group has a protocol");
        ClassicEntry::Stable(Synced {
            generation: self.generation,
            protocol_type: self.protocol_type.to_string(),
            protocol: protocol.to_owned(),
            leader: self.leader.clone().expect("a stable group has a leader"),
            members: self.roster.iter().map(|member| SyncedMember::of(member, protocol)).collect(),
        })
    }

    /// Before the first change of a rebalance.
    pub(super) fn keep(&mut self) {
        if self.kept.is_none() && matches!(self.state, State::Empty | State::Stable) {
            self.kept = Some(Box::new(self.remembered()));
        }
    }

    /// The group is Stable or Empty from now on: that is what is remembered.
    pub(in crate::groups) fn record(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        self.kept = None;
        self.is_noted = true;
        turn.record(&Entry::Classic { group: group.clone(), entry: self.remembered() });
    }

    /// A group that comes into being by a join is remembered as Empty (contract G19.3).
    pub(super) fn note(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        if !self.is_noted {
            self.since = turn.now.wall;
            self.record(group, turn);
        }
    }

    /// During a rebalance: a static member of the last synced generation has another id now (case 99).
    pub(super) fn rename_kept(&mut self, group: &Arc<str>, from: &str, to: &Arc<str>, turn: &mut Turn<'_>) {
        let Some(ClassicEntry::Stable(synced)) = self.kept.as_deref_mut() else { return };
        if synced.rename(from, to) {
            let entry = ClassicEntry::Renamed { from: from.into(), to: to.clone() };
            turn.record(&Entry::Classic { group: group.clone(), entry });
        }
    }

    pub fn apply(&mut self, entry: ClassicEntry) {
        self.is_noted = true;
        match entry {
            ClassicEntry::Empty { generation, protocol_type, since } => {
                *self = Self { generation, since, protocol_type: protocol_type.into(), is_noted: true, ..Self::new() };
            }
            ClassicEntry::Stable(synced) => self.restore(synced),
            ClassicEntry::Rejoined { from, to, session_timeout_ms, rebalance_timeout_ms, metadata } => {
                let change = |member: &mut SyncedMember| {
                    member.session_timeout_ms = session_timeout_ms;
                    member.rebalance_timeout_ms = rebalance_timeout_ms;
                    member.metadata = metadata;
                };
                self.rename_restored(&from, &to, change);
            }
            ClassicEntry::Renamed { from, to } => self.rename_restored(&from, &to, |_| {}),
        }
    }

    fn restore(&mut self, synced: Synced) {
        let mut roster = Roster::default();
        synced.members.into_iter().for_each(|member| roster.insert(member.restore(&synced.protocol)));
        *self = Self {
            state: State::Stable,
            generation: synced.generation,
            protocol_type: synced.protocol_type.into(),
            protocol: Some(synced.protocol.into()),
            leader: Some(synced.leader),
            roster,
            is_noted: true,
            ..Self::new()
        };
    }

    fn rename_restored(&mut self, from: &str, to: &Arc<str>, change: impl FnOnce(&mut SyncedMember)) {
        let Some(protocol) = self.protocol.as_deref() else { return };
        let Some(member) = self.roster.remove(from) else { return };
        let mut member = SyncedMember::of(&member, protocol);
        member.id = to.clone();
        change(&mut member);
        self.roster.insert(member.restore(protocol));
        if self.leader.as_deref() == Some(from) {
            self.leader = Some(to.clone());
        }
    }

    /// Everything was applied: sessions start now.
    pub fn loaded(&mut self, now: Now) {
        self.subscribed = self.read_subscriptions();
        let ids: Vec<_> = self.roster.iter().map(|member| member.id.clone()).collect();
        ids.iter().for_each(|id| self.restart_session(id, now));
    }

    pub fn snapshot(&self, group: &Arc<str>, entries: &mut Vec<Entry>) {
        if self.is_noted {
            let entry = self.kept.as_deref().cloned().unwrap_or_else(|| self.remembered());
            entries.push(Entry::Classic { group: group.clone(), entry });
        }
    }
}
