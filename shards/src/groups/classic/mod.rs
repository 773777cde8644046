//! A group under the classic protocol.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::group::Subscribed;
use super::offsets::Retention;
use super::turn::Turn;
use super::{Commit, Description, Entry, Heartbeat, Join, Joined, Leaving, Now, Reply, Sync, Synced};
use crate::code::ErrorCode;
use crate::image::Image;
use crate::partition::WaiterId;

/// One change of the classic side of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassicEntry {
    /// Stub.
    Stub,
}

#[derive(Debug, Default)]
pub(in crate::groups) struct Classic;

impl Classic {
    pub fn new() -> Self {
        Self
    }
    /// Never had a member, pending or not, and has no generation to remember.
    pub fn is_blank(&self) -> bool {
        true
    }
    pub fn has_members(&self) -> bool {
        false
    }
    pub fn protocol_type(&self) -> &str {
        ""
    }
    pub fn state_name(&self) -> &'static str {
        "Empty"
    }
    pub fn join(&mut self, _group: &Arc<str>, join: Join, waiter: WaiterId, turn: &mut Turn<'_>) {
        turn.reply(waiter, Reply::Join(Joined::refused(ErrorCode::UnknownMemberId, join.member_id)));
    }
    pub fn sync(&mut self, _group: &Arc<str>, _sync: Sync, waiter: WaiterId, turn: &mut Turn<'_>) {
        turn.reply(waiter, Reply::Sync(Synced::refused(ErrorCode::UnknownMemberId)));
    }
    pub fn heartbeat(&mut self, _beat: &Heartbeat, _turn: &mut Turn<'_>) -> ErrorCode {
        ErrorCode::UnknownMemberId
    }
    pub fn leave(&mut self, _group: &Arc<str>, leaving: &[Leaving], _turn: &mut Turn<'_>) -> Vec<ErrorCode> {
        vec![ErrorCode::UnknownMemberId; leaving.len()]
    }
    pub fn describe(&self) -> Description {
        Description::default()
    }
    /// G8.4 to G8.7; an accepted commit of a member restarts its session.
    pub fn check_commit(&mut self, _commit: &Commit, _turn: &mut Turn<'_>) -> Result<(), ErrorCode> {
        Ok(())
    }
    /// Topics of the last completed generation (G10.4).
    pub fn subscribed(&self, _image: &Image) -> Subscribed {
        Subscribed::Nothing
    }
    /// How old its offsets may get (G10.7).
    pub fn retention(&self, image: &Image) -> Retention {
        Retention::SinceCommit(self.subscribed(image))
    }
    /// The group is deleted: a pending member hears UNKNOWN_MEMBER_ID when it comes back.
    pub fn dissolve(&mut self, _turn: &mut Turn<'_>) {}
    pub fn on_time(&mut self, _group: &Arc<str>, _turn: &mut Turn<'_>) {}
    pub fn deadline_ms(&self) -> Option<u64> {
        None
    }
    pub fn apply(&mut self, _entry: ClassicEntry) {}
    pub fn loaded(&mut self, _now: Now) {}
    pub fn snapshot(&self, _group: &Arc<str>, _entries: &mut Vec<Entry>) {}
}
