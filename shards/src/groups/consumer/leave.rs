//! Members go: by leaving, by silence, because they do not give partitions up, because they do not join or sync.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Consumer, ConsumerEntry};
use crate::code::ErrorCode;
use crate::groups::Leaving;
use crate::groups::turn::Turn;
use crate::image::Image;

impl Consumer {
    /// Removes members; the group epoch rises by one for all of them (contract G12.1, G12.8).
    pub(super) fn remove(&mut self, ids: &[Arc<str>], image: &Image) {
        if ids.is_empty() {
            return;
        }
        ids.iter().for_each(|id| self.change(ConsumerEntry::Left { id: id.clone() }));
        self.refresh_topics(true, image);
    }

    /// Removes whose time is over. Whether somebody went.
    pub fn on_time(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) -> bool {
        let now_ms = turn.now.mono_ms;
        let mut late = Vec::new();
        while self.timers.first().is_some_and(|(due_ms, _)| *due_ms <= now_ms) {
            let (_, id) = self.timers.pop_first().expect("just seen");
            let member = self.members.get_mut(&id).expect("a timer goes with its member");
            member.timers.scheduled_ms = None;
            if member.timers.next_ms().is_some_and(|next_ms| next_ms <= now_ms) {
                late.push(id);
            } else {
                self.schedule(&id);
            }
        }
        self.remove(&late, turn.image);
        self.write(group, turn);
        !late.is_empty()
    }

    /// LeaveGroup, which removes members of both protocols (contract G17.6, G18.11). Codes in the order asked.
    pub fn classic_leave(&mut self, group: &Arc<str>, leaving: &[Leaving], turn: &mut Turn<'_>) -> Vec<ErrorCode> {
        let mut gone = BTreeSet::new();
        let mut codes = Vec::with_capacity(leaving.len());
        for entry in leaving {
            let code = match self.find_leaving(entry) {
                Ok(id) if gone.contains(&id) => ErrorCode::UnknownMemberId,
                Ok(id) => {
                    gone.insert(id);
                    ErrorCode::None
                }
                Err(code) => code,
            };
            codes.push(code);
        }
        self.remove(&gone.into_iter().collect::<Vec<_>>(), turn.image);
        self.write(group, turn);
        codes
    }

    fn find_leaving(&self, leaving: &Leaving) -> Result<Arc<str>, ErrorCode> {
        if let Some(instance) = &leaving.instance_id {
            let id = self.instances.get(&**instance).ok_or(ErrorCode::UnknownMemberId)?;
            if !leaving.member_id.is_empty() && *leaving.member_id != **id {
                return Err(ErrorCode::FencedInstanceId);
            }
            return Ok(id.clone());
        }
        self.members.get_key_value(&*leaving.member_id).map(|(id, _)| id.clone()).ok_or(ErrorCode::UnknownMemberId)
    }
}
