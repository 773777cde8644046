//! One member of a consumer group: what it said of itself, what it has, what it is to have, and its deadlines.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::groups::Client;
use crate::groups::base64;
use crate::groups::sets::{Held, Partitions};

/// Epoch of a static member that left for a while (contract G15.3).
pub(in crate::groups) const AWAY: i32 = -2;

/// What a member said of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Of a static member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::groups) instance_id: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::groups) rack_id: Option<String>,
    pub(in crate::groups) rebalance_timeout_ms: i32,
    pub(in crate::groups) topics: BTreeSet<Arc<str>>,
    /// "" if none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in crate::groups) regex: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::groups) assignor: Option<String>,
    pub(in crate::groups) client_id: String,
    pub(in crate::groups) client_host: String,
    /// Of a member that speaks the classic protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::groups) classic: Option<Box<ClassicSide>>,
}

/// What a classic member brought with its JoinGroup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassicSide {
    pub(in crate::groups) session_timeout_ms: i32,
    pub(in crate::groups) protocols: Vec<Protocol>,
}

/// A name and metadata of JoinGroup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Protocol {
    pub(in crate::groups) name: String,
    #[serde(with = "base64")]
    pub(in crate::groups) metadata: Bytes,
}

impl About {
    pub(in crate::groups) fn client(&self) -> Client {
        Client { id: self.client_id.clone(), host: self.client_host.clone() }
    }

    pub(super) fn set_client(&mut self, client: &Client) {
        self.client_id.clone_from(&client.id);
        self.client_host.clone_from(&client.host);
    }
}

/// Where a member stands on its way to its target (contract G12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has all it is to have at its epoch.
    #[default]
    Stable,
    /// It is to give partitions up and has not said that it did.
    Revoking,
    /// Others still have some of what it is to have.
    Waiting,
}

/// What a member has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Current {
    pub(in crate::groups) epoch: i32,
    pub(in crate::groups) previous_epoch: i32,
    pub(in crate::groups) state: State,
    #[serde(default, skip_serializing_if = "Held::is_empty")]
    pub(in crate::groups) assigned: Held,
    /// What it is to give up.
    #[serde(default, skip_serializing_if = "Held::is_empty")]
    pub(in crate::groups) revoking: Held,
}

impl Current {
    pub(super) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == State::Stable && self.epoch == epoch
    }

    pub(super) fn set_epoch(&mut self, epoch: i32) {
        self.previous_epoch = std::mem::replace(&mut self.epoch, epoch);
    }
}

#[derive(Clone, Debug, Default)]
pub(in crate::groups) struct Member {
    pub(in crate::groups) about: About,
    pub(in crate::groups) current: Current,
    pub(in crate::groups) target: Partitions,
    pub(super) timers: Timers,
}

/// Moments at which a member is removed unless it does what they wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// It is silent.
    pub session_ms: Option<u64>,
    /// It does not give partitions up (G12.6).
    pub revoke_ms: Option<u64>,
    /// A classic member that heard REBALANCE_IN_PROGRESS does not join (G18.10).
    pub join_ms: Option<u64>,
    /// A classic member that joined does not sync (G18.10).
    pub sync_ms: Option<u64>,
    /// When the group looks at the member; never later than the first of the above.
    pub scheduled_ms: Option<u64>,
}

impl Timers {
    pub fn next_ms(&self) -> Option<u64> {
        [self.session_ms, self.revoke_ms, self.join_ms, self.sync_ms].into_iter().flatten().min()
    }
}

impl Member {
    pub(super) fn is_classic(&self) -> bool {
        self.about.classic.is_some()
    }

    pub(super) fn rebalance_timeout_ms(&self) -> u64 {
        u64::try_from(self.about.rebalance_timeout_ms).unwrap_or(0)
    }

    /// Whether an owned list touches what it is to give up; one that was not sent may.
    pub(super) fn may_own(owned: Option<&Partitions>, revoking: &Held) -> bool {
        owned.is_none_or(|owned| revoking.keys().any(|key| owned.has(key)))
    }
}
