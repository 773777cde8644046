//! When a classic group has to be looked at, and what happens then.
//!
//! Sessions are restarted by every heartbeat, so their timers are lazy: a member has one that is never later than the
//! end of its session and is set anew when it finds that the session goes on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::roster::Member;
use super::{Classic, State};
use crate::groups::turn::Turn;

/// Timers without a use beyond which the list is cleaned, on top of one for each member in use.
const SPARE_TIMERS_MAX: usize = 16;

/// Ends of sessions and of pending members' time.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BinaryHeap<Reverse<(u64, Arc<str>)>>,
}

impl Timers {
    /// A member's session ends at a moment.
    pub fn expire_at(&mut self, member: &mut Member, expires_ms: u64) {
        member.expires_ms = expires_ms;
        if member.queued_ms.is_none_or(|queued| queued > expires_ms) {
            member.queued_ms = Some(expires_ms);
            self.at(expires_ms, member.id.clone());
        }
    }

    pub fn at(&mut self, due_ms: u64, id: Arc<str>) {
        self.queue.push(Reverse((due_ms, id)));
    }

    fn next_ms(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((due_ms, _))| *due_ms)
    }
}

impl Classic {
    /// No later than the next moment at which something is due.
    pub fn deadline_ms(&self) -> Option<u64> {
        let wait = self.wait.as_ref().map(|wait| wait.due_ms);
        [wait, self.sync_due_ms, self.timers.next_ms()].into_iter().flatten().min()
    }

    /// Lets time pass.
    pub fn on_time(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        while let Some(due_ms) = self.deadline_ms().filter(|due| *due <= now_ms) {
            if self.wait.as_ref().is_some_and(|wait| wait.due_ms == due_ms) {
                self.join_phase_due(group, turn);
            } else if self.sync_due_ms == Some(due_ms) {
                self.sync_phase_due(group, turn);
            } else {
                let Reverse((due_ms, id)) = self.timers.queue.pop().expect("it is due");
                self.silence_due(group, &id, due_ms, turn);
            }
        }
        self.drop_unused_timers();
    }

    fn silence_due(&mut self, group: &Arc<str>, id: &Arc<str>, due_ms: u64, turn: &mut Turn<'_>) {
        if self.pending_until(id).is_some_and(|until_ms| until_ms <= turn.now.mono_ms) {
            self.remove_pending(id);
            return self.complete_if_all_joined(group, turn);
        }
        let Some(member) = self.roster.get_mut(id).filter(|member| member.queued_ms == Some(due_ms)) else { return };
        member.queued_ms = None;
        if !member.can_expire() {
            return;
        }
        if member.expires_ms > turn.now.mono_ms {
            let expires_ms = member.expires_ms;
            return self.timers.expire_at(member, expires_ms);
        }
        self.remove(id, turn);
        self.members_left(group, turn);
    }

    /// Members that come and go leave timers behind.
    pub(super) fn drop_unused_timers(&mut self) {
        let used = self.roster.len() + self.pending.len();
        if self.timers.queue.len() <= 2 * used + SPARE_TIMERS_MAX {
            return;
        }
        let mut queue = std::mem::take(&mut self.timers.queue);
        queue.retain(|Reverse((due_ms, id))| {
            let is_members = self.roster.get(id).is_some_and(|member| member.queued_ms == Some(*due_ms));
            is_members || self.pending_until(id) == Some(*due_ms)
        });
        queue.shrink_to_fit();
        self.timers.queue = queue;
    }

    fn sync_phase_due(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        self.sync_due_ms = None;
        assert!(matches!(self.state, State::Completing | State::Stable), "a rebalance ends the sync phase");
        let late: Vec<_> = self.roster.iter().filter(|member| !member.has_synced).map(|m| m.id.clone()).collect();
        if late.is_empty() {
            return;
        }
        late.iter().for_each(|id| self.remove(id, turn));
        self.members_left(group, turn);
    }
}
