//! One member moves from what it has to what it is to have (contract G12.5), a step at each of its heartbeats.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Consumer;
use super::member::{Current, Member, State};
use crate::groups::sets::Partitions;
use crate::groups::turn::Turn;
use crate::ids::{PartitionKey, TopicId};

impl Consumer {
    /// Moves a member on. `owned` is what it says it has, `None` if it does not say. Whether what it may have changed.
    pub(super) fn reconcile(
        &mut self,
        id: &Arc<str>,
        subscription_changed: bool,
        owned: Option<&Partitions>,
        turn: &Turn<'_>,
    ) -> bool {
        let member = &self.members[id];
        if !subscription_changed && member.current.is_reconciled_to(self.head.assignment_epoch) {
            return false;
        }
        let next = self.next(member, subscription_changed, owned, turn);
        if next == member.current {
            return false;
        }
        let changed = !next.assigned.same_partitions(&member.current.assigned);
        let is_revoking = next.state == State::Revoking && !member.is_classic();
        let revoke_ms = is_revoking.then(|| turn.now.mono_ms + member.rebalance_timeout_ms());
        self.put_current(id, next);
        self.members.get_mut(id).expect("just seen").timers.revoke_ms = revoke_ms;
        self.schedule(id);
        changed
    }

    fn next(
        &self,
        member: &Member,
        subscription_changed: bool,
        owned: Option<&Partitions>,
        turn: &Turn<'_>,
    ) -> Current {
        let current = &member.current;
        let subscribed: BTreeSet<TopicId> = self.wanted.of(&member.about, turn.image).into_iter().collect();
        let stays = match current.state {
            State::Stable => current.epoch == self.head.assignment_epoch,
            State::Revoking => Member::may_own(owned, &current.revoking),
            State::Waiting => false,
        };
        match (stays, subscription_changed) {
            (true, true) => drop_unsubscribed(current, &subscribed, owned),
            (true, false) => current.clone(),
            (false, _) => self.towards_target(member, &subscribed, owned),
        }
    }

    fn towards_target(&self, member: &Member, subscribed: &BTreeSet<TopicId>, owned: Option<&Partitions>) -> Current {
        let current = &member.current;
        let wanted = |key: PartitionKey| subscribed.contains(&key.topic) && member.target.has(key);
        let (mut assigned, revoking) = current.assigned.split(wanted);
        if !revoking.is_empty() && Member::may_own(owned, &revoking) {
            let mut next = Current { state: State::Revoking, assigned, revoking, ..current.clone() };
            next.set_epoch(current.epoch);
            return next;
        }
        let mut is_waiting = false;
        let epoch = self.head.assignment_epoch;
        for key in member.target.iter().filter(|key| wanted(*key) && !current.assigned.has(*key)) {
            // What it has just given up itself is counted once for it.
            let own = u32::from(current.revoking.has(key));
            if self.held.get(&key).is_some_and(|holders| *holders > own) {
                is_waiting = true;
            } else {
                assigned.insert(key, epoch);
            }
        }
        let state = if is_waiting { State::Waiting } else { State::Stable };
        let mut next = Current { state, assigned, revoking: Default::default(), ..current.clone() };
        next.set_epoch(epoch);
        next
    }

    /// Whether something that the member waits for is still with others.
    pub(super) fn is_blocked(&self, member: &Member) -> bool {
        member.target.iter().any(|key| !member.current.assigned.has(key) && self.held.contains_key(&key))
    }
}

/// Other topics at the same epoch: those that were dropped are taken at once, even while others are being given up
/// (contract G12.7).
fn drop_unsubscribed(current: &Current, subscribed: &BTreeSet<TopicId>, owned: Option<&Partitions>) -> Current {
    let (assigned, dropped) = current.assigned.split(|key| subscribed.contains(&key.topic));
    if dropped.is_empty() {
        return current.clone();
    }
    let mut revoking = current.revoking.clone();
    revoking.extend(&dropped);
    let must_revoke = Member::may_own(owned, &revoking);
    let mut next = current.clone();
    next.set_epoch(current.epoch);
    next.assigned = assigned;
    if must_revoke {
        (next.state, next.revoking) = (State::Revoking, revoking);
    }
    next
}
