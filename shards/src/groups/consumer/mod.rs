//! A group under the protocol of KIP-848.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::group::Subscribed;
use super::turn::Turn;
use super::{
    Commit, ConsumerDescription, ConsumerHeartbeat, ConsumerHeartbeatReply, Entry, FetchOffsets, GroupSettings,
    Heartbeat, Join, Joined, Now, Sync, Synced,
};
use crate::code::ErrorCode;
use crate::image::Image;

/// One change of a consumer group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsumerEntry {
    /// Stub.
    Stub,
}

#[derive(Debug, Default)]
pub(in crate::groups) struct Consumer;

impl Consumer {
    pub fn new() -> Self {
        Self
    }
    /// What a request may not say, whoever sends it (G11.2 to G11.6).
    pub fn check_form(_beat: &ConsumerHeartbeat, _turn: &Turn<'_>) -> Result<(), ConsumerHeartbeatReply> {
        Ok(())
    }
    pub fn has_members(&self) -> bool {
        false
    }
    pub fn state_name(&self) -> &'static str {
        "Empty"
    }
    pub fn heartbeat(
        &mut self,
        _group: &Arc<str>,
        _beat: &ConsumerHeartbeat,
        _turn: &mut Turn<'_>,
    ) -> ConsumerHeartbeatReply {
        ConsumerHeartbeatReply::default()
    }
    pub fn describe(&self, _settings: &GroupSettings) -> ConsumerDescription {
        ConsumerDescription::default()
    }
    /// Classic members of a consumer group (G18.3, G18.4).
    pub fn classic_join(&mut self, _group: &Arc<str>, join: &Join, _turn: &mut Turn<'_>) -> Joined {
        Joined::refused(ErrorCode::UnknownMemberId, join.member_id.clone())
    }
    pub fn classic_sync(&mut self, _group: &Arc<str>, _sync: &Sync, _turn: &mut Turn<'_>) -> Synced {
        Synced::refused(ErrorCode::UnknownMemberId)
    }
    pub fn classic_heartbeat(&mut self, _beat: &Heartbeat, _turn: &mut Turn<'_>) -> ErrorCode {
        ErrorCode::UnknownMemberId
    }
    /// G17.1 to G17.3.
    pub fn check_commit(&mut self, _commit: &Commit, _turn: &mut Turn<'_>) -> Result<(), ErrorCode> {
        Ok(())
    }
    /// G17.4.
    pub fn check_fetch(&self, _fetch: &FetchOffsets) -> Result<(), ErrorCode> {
        Ok(())
    }
    pub fn subscribed(&self, _image: &Image) -> Subscribed {
        Subscribed::Nothing
    }
    pub fn deadline_ms(&self) -> Option<u64> {
        None
    }
    pub fn apply(&mut self, _entry: ConsumerEntry) {}
    pub fn loaded(&mut self, _now: Now) {}
    pub fn snapshot(&self, _group: &Arc<str>, _entries: &mut Vec<Entry>) {}
}
