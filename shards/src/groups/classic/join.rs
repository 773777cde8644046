//! JoinGroup (contract G2).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::roster::{Member, Parked};
use super::{Classic, State};
use crate::code::ErrorCode;
use crate::groups::turn::Turn;
use crate::groups::{Join, Joined, Reply};
use crate::limits::{GROUP_MEMBER_NAME_BYTES_MAX, GROUP_NEW_MEMBER_WAIT_MS, GROUP_PENDING_MEMBERS_MAX};
use crate::partition::WaiterId;

/// From this version on a member gets its id before it is let in (contract G2.10).
const ID_FIRST_VERSION: i16 = 4;

impl Classic {
    pub fn join(&mut self, group: &Arc<str>, mut join: Join, waiter: WaiterId, turn: &mut Turn<'_>) {
        // Kafka hangs on a name that comes twice (0.10); the first one counts.
        let mut names = BTreeSet::new();
        join.protocols.retain(|(name, _)| names.insert(name.clone()));
        if let Err(refusal) = self.try_join(group, &join, waiter, turn) {
            turn.reply(waiter, Reply::Join(*refusal));
        }
        self.drop_unused_timers();
    }

    fn try_join(
        &mut self,
        group: &Arc<str>,
        join: &Join,
        waiter: WaiterId,
        turn: &mut Turn<'_>,
    ) -> Result<(), Box<Joined>> {
        let id = join.member_id.as_str();
        if !self.has_room(id, turn.settings.members_max) {
            self.remove_pending(id);
            self.remove(id, turn);
            return Err(refused(ErrorCode::GroupMaxSizeReached, ""));
        }
        if !self.speaks(join) {
            return Err(refused(ErrorCode::InconsistentGroupProtocol, id));
        }
        if id.is_empty() {
            return self.join_new(group, join, waiter, turn);
        }
        if self.pending_until(id).is_some() {
            if join.instance_id.is_some() {
                return Err(refused(ErrorCode::UnknownServerError, id));
            }
            self.remove_pending(id);
            self.add(group, id.into(), join, waiter, turn);
            return Ok(());
        }
        self.check_member(id, join.instance_id.as_deref()).map_err(|code| refused(code, id))?;
        self.rejoin(group, join, waiter, turn);
        Ok(())
    }

    /// Contract G2.7.
    fn has_room(&self, id: &str, members_max: usize) -> bool {
        match self.state {
            State::Empty => true,
            State::Preparing => {
                self.roster.get(id).is_some_and(Member::has_joined) || self.roster.joined() < members_max
            }
            State::Completing | State::Stable => self.roster.get(id).is_some() || self.roster.len() < members_max,
        }
    }

    /// Contract G2.8.
    fn speaks(&self, join: &Join) -> bool {
        if self.state == State::Empty {
            return !join.protocol_type.is_empty() && !join.protocols.is_empty();
        }
        let is_type = *self.protocol_type == *join.protocol_type && !join.protocols.is_empty();
        is_type && self.roster.supports_any(join.protocols.iter().map(|(name, _)| name.as_str()))
    }

    fn join_new(
        &mut self,
        group: &Arc<str>,
        join: &Join,
        waiter: WaiterId,
        turn: &mut Turn<'_>,
    ) -> Result<(), Box<Joined>> {
        let id = new_member_id(join);
        if let Some(instance) = &join.instance_id {
            if let Some(before) = self.roster.of_instance(instance).cloned() {
                return self.replace(group, &before, id, join, waiter, turn);
            }
        } else if join.version >= ID_FIRST_VERSION {
            self.note(group, turn);
            let session_ms = u64::try_from(join.session_timeout_ms).unwrap_or(0);
            self.add_pending(&id, turn.now.mono_ms.saturating_add(session_ms));
            return Err(refused(ErrorCode::MemberIdRequired, &id));
        }
        self.add(group, id, join, waiter, turn);
        Ok(())
    }

    /// Lets a newcomer in and parks its request.
    fn add(&mut self, group: &Arc<str>, id: Arc<str>, join: &Join, waiter: WaiterId, turn: &mut Turn<'_>) {
        self.note(group, turn);
        self.keep();
        if self.roster.is_empty() {
            self.protocol_type = join.protocol_type.as_str().into();
        }
        self.leader.get_or_insert_with(|| id.clone());
        self.roster.insert(Member::joining(id.clone(), join));
        self.roster.park(&id, Parked::Join(waiter));
        let member = self.roster.get_mut(&id).expect("just inserted");
        self.timers.expire_at(member, turn.now.mono_ms.saturating_add(GROUP_NEW_MEMBER_WAIT_MS));
        self.newcomer();
        self.rebalance(group, turn);
    }

    /// A member joins again (contract G2.13).
    fn rejoin(&mut self, group: &Arc<str>, join: &Join, waiter: WaiterId, turn: &mut Turn<'_>) {
        let id = join.member_id.as_str();
        let is_same = self.roster.get(id).expect("it was checked").matches(join);
        let is_told = match self.state {
            State::Empty | State::Preparing => false,
            State::Completing => is_same,
            State::Stable => is_same && !self.is_leader(id),
        };
        if is_told {
            self.restart_session(id, turn.now);
            return turn.reply(waiter, Reply::Join(self.joined(id)));
        }
        self.keep();
        self.roster.update(id, join);
        // Of a client that asks twice only the last request is waited for; the one before may be retried.
        let before = self.roster.park(id, Parked::Join(waiter));
        Self::refuse_parked(before, ErrorCode::RebalanceInProgress, id, turn);
        self.rebalance(group, turn);
    }

    fn pending_at(&self, id: &str) -> Result<usize, usize> {
        self.pending.binary_search_by(|(known, _)| (**known).cmp(id))
    }

    /// Until when a pending member may come back.
    pub(super) fn pending_until(&self, id: &str) -> Option<u64> {
        self.pending_at(id).ok().map(|at| self.pending[at].1)
    }

    /// Whether it was pending.
    pub(super) fn remove_pending(&mut self, id: &str) -> bool {
        self.pending_at(id).map(|at| self.pending.remove(at)).is_ok()
    }

    fn add_pending(&mut self, id: &Arc<str>, until_ms: u64) {
        if self.pending.len() >= GROUP_PENDING_MEMBERS_MAX {
            // Clients come back at once or never, so the one whose time is over first is the least likely to.
            let first = self.pending.iter().enumerate().min_by_key(|(_, (_, until_ms))| *until_ms);
            let at = first.expect("there are many").0;
            self.pending.remove(at);
        }
        let at = self.pending_at(id).expect_err("a member id is given once");
        self.pending.insert(at, (id.clone(), until_ms));
        self.timers.at(until_ms, id.clone());
    }
}

/// A refusal on its way out.
pub(super) fn refused(code: ErrorCode, member_id: &str) -> Box<Joined> {
    Box::new(Joined::refused(code, member_id))
}

/// `<client id>-<uuid>`, of a static member `<instance id>-<uuid>` (contract G2.16).
fn new_member_id(join: &Join) -> Arc<str> {
    let name = join.instance_id.as_deref().unwrap_or(&join.client.id);
    let name = &name[..name.floor_char_boundary(GROUP_MEMBER_NAME_BYTES_MAX)];
    // Version 4 and the variant of RFC 9562, as a random UUID has them.
    let uuid = join.fresh & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let [a, b, c, d] = [uuid >> 96, uuid >> 80 & 0xffff, uuid >> 64 & 0xffff, uuid >> 48 & 0xffff];
    format!("{name}-{a:08x}-{b:04x}-{c:04x}-{d:04x}-{:012x}", uuid & 0xffff_ffff_ffff).into()
}
