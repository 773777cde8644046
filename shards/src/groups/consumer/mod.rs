//! A group under the protocol of KIP-848: the broker assigns, and each member moves to its part on its own.
//!
//! Owned by its group. State changes by [`ConsumerEntry`]s alone, when it happens and when it is read back, so that
//! both give the same. What one request changes is one line of the journal: half of a new target must never be read
//! back. Limits: members by `group.consumer.max.size`, expressions by `limits::GROUP_REGEX_*`. A heartbeat without news
//! costs the same whatever the size of the group.

mod check;
mod classic_member;
mod commit;
mod describe;
mod heartbeat;
mod leave;
pub(in crate::groups) mod member;
mod re2;
mod reconcile;
mod target;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

pub(in crate::groups) use self::classic_member::{by_id, named_assignment};
use self::member::{About, Current, Member, State};
pub(in crate::groups) use self::re2::compile;
use self::topics::Wanted;
use super::group::Subscribed;
use super::sets::Partitions;
use super::turn::Turn;
use super::{Entry, Now};
use crate::ids::PartitionKey;
use crate::image::Image;
use crate::image::group_settings::SESSION_TIMEOUT_MS;

/// One change of a consumer group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsumerEntry {
    /// The group as a whole.
    Head(Head),
    /// What a member said of itself; a new member.
    Member {
        /// Which.
        id: Arc<str>,
        /// All of it.
        about: Box<About>,
    },
    /// What a member has.
    Current {
        /// Which.
        id: Arc<str>,
        /// All of it.
        current: Box<Current>,
    },
    /// What a member is to have.
    Target {
        /// Which.
        id: Arc<str>,
        /// All of it.
        partitions: Partitions,
    },
    /// Topics that a regular expression matched.
    Matched {
        /// The expression.
        regex: String,
        /// Their names.
        topics: BTreeSet<Arc<str>>,
    },
    /// A member is gone.
    Left {
        /// Which.
        id: Arc<str>,
    },
    /// The group is a classic one from now on.
    Dissolved,
    /// Changes that were made at once.
    Step(Vec<ConsumerEntry>),
}

/// The group as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Group epoch.
    pub(in crate::groups) epoch: i32,
    /// Epoch of the targets.
    pub(in crate::groups) assignment_epoch: i32,
    /// Fingerprint of the topics that members want.
    pub(in crate::groups) topics: u64,
}

#[derive(Debug)]
pub(in crate::groups) struct Consumer {
    pub(in crate::groups) head: Head,
    /// As it was last written down; `None` in a new group.
    written: Option<Head>,
    pub(in crate::groups) members: BTreeMap<Arc<str>, Member>,
    instances: BTreeMap<Arc<str>, Arc<str>>,
    wanted: Wanted,
    /// How many members have a partition or are still to give it up: more than one only after an upgrade of a group
    /// whose leader had assigned it twice.
    held: HashMap<PartitionKey, u32, FixedState>,
    /// Members that speak the classic protocol, and how many of them name each protocol.
    classic_members: usize,
    protocols: BTreeMap<String, usize>,
    assigned_at_ms: Option<u64>,
    timers: BTreeSet<(u64, Arc<str>)>,
    /// Changes of the step at work.
    step: Vec<ConsumerEntry>,
}

impl Consumer {
    /// A group starts at epoch 1 with nothing to assign (contract 0.1).
    pub fn new() -> Self {
        let wanted = Wanted::default();
        Self {
            head: Head { epoch: 1, assignment_epoch: 1, topics: topics::NOTHING },
            written: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            wanted,
            held: HashMap::default(),
            classic_members: 0,
            protocols: BTreeMap::new(),
            assigned_at_ms: None,
            timers: BTreeSet::new(),
            step: Vec::new(),
        }
    }

    pub fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// Whether all members speak the classic protocol.
    pub fn is_all_classic(&self) -> bool {
        self.classic_members == self.members.len()
    }

    pub fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.head.epoch > self.head.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(|member| member.current.is_reconciled_to(self.head.assignment_epoch)) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Topics that members name or match (contract G10.4).
    pub fn subscribed(&self, image: &Image) -> Subscribed {
        let topics: BTreeSet<_> = self.wanted.all(image).into_keys().collect();
        if topics.is_empty() { Subscribed::Nothing } else { Subscribed::Topics(topics) }
    }

    /// Changes the state and remembers to write it down.
    fn change(&mut self, entry: ConsumerEntry) {
        self.apply(entry.clone());
        self.step.push(entry);
    }

    pub(in crate::groups) fn put_member(&mut self, id: &Arc<str>, about: About) {
        self.change(ConsumerEntry::Member { id: id.clone(), about: Box::new(about) });
    }

    pub(in crate::groups) fn put_current(&mut self, id: &Arc<str>, current: Current) {
        self.change(ConsumerEntry::Current { id: id.clone(), current: Box::new(current) });
    }

    pub(in crate::groups) fn put_target(&mut self, id: &Arc<str>, partitions: Partitions) {
        self.change(ConsumerEntry::Target { id: id.clone(), partitions });
    }

    /// Ends a step: what it changed becomes one line.
    pub(in crate::groups) fn write(&mut self, group: &Arc<str>, turn: &mut Turn<'_>) {
        if self.written != Some(self.head) {
            self.step.push(ConsumerEntry::Head(self.head));
            self.written = Some(self.head);
        }
        let entry = match self.step.len() {
            0 => return,
            1 => self.step.pop().expect("one"),
            _ => ConsumerEntry::Step(std::mem::take(&mut self.step)),
        };
        turn.record(&Entry::Consumer { group: group.clone(), entry });
    }

    /// Takes in one change.
    pub fn apply(&mut self, entry: ConsumerEntry) {
        match entry {
            ConsumerEntry::Head(head) => {
                self.head = head;
                self.written = Some(head);
            }
            ConsumerEntry::Member { id, about } => self.index(id, *about),
            ConsumerEntry::Current { id, current } => self.hold(&id, *current),
            ConsumerEntry::Target { id, partitions } => {
                if let Some(member) = self.members.get_mut(&id) {
                    member.target = partitions;
                }
            }
            ConsumerEntry::Matched { regex, topics } => self.wanted.set_matched(&regex, topics),
            ConsumerEntry::Left { id } => self.unindex(&id),
            ConsumerEntry::Dissolved => unreachable!("the group replaces the whole"),
            ConsumerEntry::Step(entries) => entries.into_iter().for_each(|entry| self.apply(entry)),
        }
    }

    fn index(&mut self, id: Arc<str>, about: About) {
        // The new one first: an expression that stays must not be forgotten in between.
        self.wanted.add(&about);
        if let Some(member) = self.members.get_mut(&id) {
            let before = std::mem::take(&mut member.about);
            self.forget(&id, &before);
        }
        if let Some(instance) = &about.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        if let Some(classic) = &about.classic {
            self.classic_members += 1;
            classic.protocols.iter().for_each(|p| *self.protocols.entry(p.name.clone()).or_default() += 1);
        }
        self.members.entry(id).or_default().about = about;
    }

    fn forget(&mut self, id: &Arc<str>, about: &About) {
        self.wanted.remove(about);
        if let Some(instance) = &about.instance_id
            && self.instances.get(instance) == Some(id)
        {
            self.instances.remove(instance);
        }
        if let Some(classic) = &about.classic {
            self.classic_members -= 1;
            classic.protocols.iter().for_each(|p| topics::forget_one(&mut self.protocols, &p.name));
        }
    }

    fn unindex(&mut self, id: &Arc<str>) {
        self.hold(id, Current::default());
        let Some(member) = self.members.remove(id) else { return };
        self.forget(id, &member.about);
        if let Some(due_ms) = member.timers.scheduled_ms {
            self.timers.remove(&(due_ms, id.clone()));
        }
    }

    fn hold(&mut self, id: &Arc<str>, current: Current) {
        let Some(member) = self.members.get_mut(id) else { return };
        for key in member.current.assigned.keys().chain(member.current.revoking.keys()) {
            let count = self.held.get_mut(&key).expect("counted when it came");
            *count -= 1;
            if *count == 0 {
                self.held.remove(&key);
            }
        }
        for key in current.assigned.keys().chain(current.revoking.keys()) {
            *self.held.entry(key).or_default() += 1;
        }
        member.current = current;
    }

    /// Sessions start now; so does the time to give partitions up (contract G19.1, G19.6).
    pub fn loaded(&mut self, now: Now, settings: &super::GroupSettings) {
        let ids: Vec<_> = self.members.keys().cloned().collect();
        for id in ids {
            // What is set for the group alone counts again from the member's next heartbeat on.
            let session_ms = self.session_timeout_ms(&id, settings.consumer_session_timeout_ms);
            let member = self.members.get_mut(&id).expect("just listed");
            member.timers.session_ms = Some(now.mono_ms + session_ms);
            if member.current.state == State::Revoking && !member.is_classic() {
                member.timers.revoke_ms = Some(now.mono_ms + member.rebalance_timeout_ms());
            }
            self.schedule(&id);
        }
    }

    fn session_timeout_ms(&self, id: &str, of_consumers_ms: i32) -> u64 {
        let classic = self.members[id].about.classic.as_ref().map(|classic| classic.session_timeout_ms);
        u64::try_from(classic.unwrap_or(of_consumers_ms)).unwrap_or(0)
    }

    /// The member was heard of.
    fn restart_session(&mut self, group: &str, id: &Arc<str>, turn: &Turn<'_>) {
        let of_broker_ms = turn.settings.consumer_session_timeout_ms;
        let session_ms = self.session_timeout_ms(id, own_setting(group, SESSION_TIMEOUT_MS, of_broker_ms, turn));
        let member = self.members.get_mut(id).expect("a member that was heard of");
        member.timers.session_ms = Some(turn.now.mono_ms + session_ms);
        self.schedule(id);
    }

    fn schedule(&mut self, id: &Arc<str>) {
        let Some(member) = self.members.get_mut(id) else { return };
        let next = member.timers.next_ms();
        // A deadline that moved away is found when its time comes: a heartbeat need not touch the list.
        if member.timers.scheduled_ms.is_some_and(|scheduled| next.is_some_and(|next| scheduled <= next)) {
            return;
        }
        if let Some(scheduled) = member.timers.scheduled_ms.take() {
            self.timers.remove(&(scheduled, id.clone()));
        }
        if let Some(next) = next {
            member.timers.scheduled_ms = Some(next);
            self.timers.insert((next, id.clone()));
        }
    }

    pub fn deadline_ms(&self) -> Option<u64> {
        self.timers.first().map(|(due_ms, _)| *due_ms)
    }

    /// Entries that rebuild it, small ones: the group as a whole apart from each member.
    pub fn snapshot(&self, group: &Arc<str>, entries: &mut Vec<Entry>) {
        let mut add = |entry| entries.push(Entry::Consumer { group: group.clone(), entry });
        add(ConsumerEntry::Head(self.head));
        for (id, member) in &self.members {
            add(ConsumerEntry::Member { id: id.clone(), about: Box::new(member.about.clone()) });
            add(ConsumerEntry::Current { id: id.clone(), current: Box::new(member.current.clone()) });
            if !member.target.is_empty() {
                add(ConsumerEntry::Target { id: id.clone(), partitions: member.target.clone() });
            }
        }
        for (regex, topics) in self.wanted.all_matched() {
            add(ConsumerEntry::Matched { regex: regex.to_owned(), topics: topics.clone() });
        }
    }
}

/// A setting of the group alone, or else the broker's (contract G20.4).
fn own_setting(group: &str, name: &str, of_broker: i32, turn: &Turn<'_>) -> i32 {
    turn.image.group_setting(group, name).unwrap_or(of_broker)
}

// A group that is at rest stays small: 10,000 of them are to cost next to nothing.
const _: () = assert!(size_of::<Consumer>() <= 512);

#[cfg(test)]
mod tests;
