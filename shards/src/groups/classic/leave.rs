//! LeaveGroup (contract G5), and what the end of a membership does to the group.

use std::sync::Arc;

use super::roster::Parked;
use super::{Classic, State};
use crate::code::ErrorCode;
use crate::groups::Leaving;
use crate::groups::turn::Turn;

impl Classic {
    pub fn leave(&mut self, group: &Arc<str>, leaving: &[Leaving], turn: &mut Turn<'_>) -> Vec<ErrorCode> {
        let mut is_any = false;
        let mut codes = Vec::with_capacity(leaving.len());
        for one in leaving {
            if one.instance_id.is_none() && self.remove_pending(&one.member_id) {
                is_any = true;
                codes.push(ErrorCode::None);
                continue;
            }
            match self.leaving_member(one) {
                Ok(id) => {
                    self.remove(&id, turn);
                    is_any = true;
                    codes.push(ErrorCode::None);
                }
                Err(code) => codes.push(code),
            }
        }
        // As Kafka does, also when only a pending member left, for whom nothing has to be shared out anew.
        if is_any && self.state != State::Empty {
            self.members_left(group, turn);
        }
        self.drop_unused_timers();
        codes
    }

    fn leaving_member(&self, leaving: &Leaving) -> Result<Arc<str>, ErrorCode> {
        let Leaving { member_id, instance_id } = leaving;
        if let Some(instance) = instance_id
            && member_id.is_empty()
        {
            return self.roster.of_instance(instance).cloned().ok_or(ErrorCode::UnknownMemberId);
        }
        self.check_member(member_id, instance_id.as_deref())?;
        Ok(member_id.as_str().into())
    }

    /// Ends a membership; [`Classic::members_left`] follows when all that leave together are gone. A parked JoinGroup
    /// is answered without an id, so that its client begins anew (contract G5.5, G6.9).
    pub(super) fn remove(&mut self, id: &str, turn: &mut Turn<'_>) {
        if self.roster.get(id).is_none() {
            return;
        }
        self.keep();
        let parked = self.roster.park(id, Parked::No);
        Self::refuse_parked(parked, ErrorCode::UnknownMemberId, "", turn);
        self.roster.remove(id);
        if self.is_leader(id) {
            self.leader = self.roster.iter().next().map(|member| member.id.clone());
        }
    }

    /// Members are gone: the others rebalance.
    pub(super) fn members_left(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        assert!(self.state != State::Empty, "it had members");
        self.rebalance(group, turn);
    }
}
