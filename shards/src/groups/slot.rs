//! One slot of groups: its groups, its journal, the answers that wait for the journal, and what is due next.
//!
//! Owned by [`super::Groups`].

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::entry::Entry;
use super::group::Group;
use super::turn::Turn;
use super::{Ask, Effect, Effects, GroupSettings, ListFilter, Listing, Now, Reply};
use crate::code::ErrorCode;
use crate::ids::{SlotId, TopicId};
use crate::image::Image;
use crate::partition::WaiterId;
use crate::slot::{Journal, Position};

#[derive(Debug)]
pub(super) struct Slot {
    groups: HashMap<Arc<str>, Group, FixedState>,
    pub(super) journal: Journal,
    /// Answers that wait until the journal is durable up to a position, in that order.
    held: VecDeque<(Position, WaiterId, Result<Reply, ErrorCode>)>,
    /// When to look at a group again; at most one entry a group, which is never later than its next deadline.
    deadlines: BTreeSet<(u64, Arc<str>)>,
    /// Generations and group epochs that began since the start.
    pub(super) rebalances: u64,
}

impl Slot {
    pub(super) fn restored(
        journal: Journal,
        entries: impl IntoIterator<Item = Entry>,
        now: Now,
        settings: &GroupSettings,
    ) -> Self {
        let (held, deadlines) = (VecDeque::new(), BTreeSet::new());
        let mut slot = Self { groups: HashMap::default(), journal, held, deadlines, rebalances: 0 };
        for entry in entries {
            slot.apply(entry);
        }
        let names: Vec<_> = slot.groups.keys().cloned().collect();
        for name in names {
            let group = slot.groups.get_mut(&name).expect("just listed");
            group.loaded(now, settings);
            group.counted_generation = group.generation();
            slot.schedule(&name);
        }
        slot
    }

    fn apply(&mut self, entry: Entry) {
        let name = entry.group().clone();
        if matches!(entry, Entry::Gone { .. }) {
            self.groups.remove(&name);
        } else {
            self.groups.entry(name.clone()).or_insert_with(|| Group::new(name)).apply(entry);
        }
    }

    pub(super) fn ask(
        &mut self,
        name: &str,
        ask: Ask,
        waiter: WaiterId,
        now: Now,
        image: &Image,
        settings: &GroupSettings,
    ) {
        let mut replies = Vec::new();
        let mut turn = Turn { now, image, settings, journal: &mut self.journal, replies: &mut replies };
        match self.groups.get_mut(name) {
            Some(group) => group.ask(ask, waiter, &mut turn),
            None => {
                // A group exists from its first member or commit on; whatever else is asked leaves nothing behind.
                let mut group = Group::new(name.into());
                group.ask_absent(ask, waiter, &mut turn);
                if group.exists() {
                    self.groups.insert(group.name().clone(), group);
                }
            }
        }
        self.after(name, replies);
    }

    /// Whether something was due.
    pub(super) fn tick(&mut self, now: Now, image: &Image, settings: &GroupSettings) -> bool {
        let mut any = false;
        while let Some((due_ms, name)) = self.deadlines.first().cloned() {
            if due_ms > now.mono_ms || self.journal.is_offline() {
                break;
            }
            any = true;
            self.deadlines.pop_first();
            let Some(group) = self.groups.get_mut(&name) else { continue };
            group.scheduled_ms = None;
            let mut replies = Vec::new();
            let mut turn = Turn { now, image, settings, journal: &mut self.journal, replies: &mut replies };
            group.on_time(&mut turn);
            self.after(&name, replies);
        }
        any
    }

    pub(super) fn expire_offsets(&mut self, now: Now, image: &Image, settings: &GroupSettings) {
        let mut names: Vec<_> = self.groups.keys().cloned().collect();
        names.sort_unstable();
        for name in names {
            if self.journal.is_offline() {
                return;
            }
            let group = self.groups.get_mut(&name).expect("just listed");
            let mut replies = Vec::new();
            let mut turn = Turn { now, image, settings, journal: &mut self.journal, replies: &mut replies };
            group.expire_offsets(&mut turn);
            self.after(&name, replies);
        }
    }

    pub(super) fn topics_deleted(&mut self, topics: &[TopicId]) {
        let mut names: Vec<_> = self.groups.keys().cloned().collect();
        names.sort_unstable();
        for name in names {
            self.groups.get_mut(&name).expect("just listed").topics_deleted(topics, &mut self.journal);
        }
    }

    pub(super) fn keep_topics(&mut self, image: &Image) {
        let mut names: Vec<_> = self.groups.keys().cloned().collect();
        names.sort_unstable();
        for name in names {
            self.groups.get_mut(&name).expect("just listed").keep_topics(image, &mut self.journal);
        }
    }

    /// What every step of a group ends with: its answers wait for the journal, its next deadline is known.
    fn after(&mut self, name: &str, replies: Vec<(WaiterId, Result<Reply, ErrorCode>)>) {
        let end = self.journal.end();
        self.held.extend(replies.into_iter().map(|(waiter, reply)| (end, waiter, reply)));
        let Some(group) = self.groups.get_mut(name) else { return };
        let generation = group.generation();
        // A conversion between the protocols may begin with a lower one, which is no rebalance by itself.
        self.rebalances += u64::from(generation > group.counted_generation);
        group.counted_generation = generation;
        let (name, exists) = (group.name().clone(), group.exists());
        if exists {
            self.schedule(&name);
        } else if let Some(group) = self.groups.remove(&name)
            && let Some(due_ms) = group.scheduled_ms
        {
            self.deadlines.remove(&(due_ms, name));
        }
    }

    fn schedule(&mut self, name: &Arc<str>) {
        let Some(group) = self.groups.get_mut(name) else { return };
        let next = group.deadline_ms();
        // A deadline that moved away is found when its time comes: a heartbeat need not touch the list.
        if group.scheduled_ms.is_some_and(|scheduled| next.is_some_and(|next| scheduled <= next)) {
            return;
        }
        if let Some(scheduled) = group.scheduled_ms.take() {
            self.deadlines.remove(&(scheduled, name.clone()));
        }
        if let Some(next) = next {
            group.scheduled_ms = Some(next);
            self.deadlines.insert((next, name.clone()));
        }
    }

    /// Asks for a writer where one is needed and lets the answers go whose time has come.
    pub(super) fn settle(&mut self, id: SlotId, effects: &mut Effects) {
        if self.journal.take_writer() {
            effects.push(Effect::StartWriter(id));
        }
        if self.journal.is_offline() {
            let lost = |(_, waiter, _)| Effect::Reply(waiter, Err(ErrorCode::CoordinatorNotAvailable));
            effects.extend(self.held.drain(..).map(lost));
            return;
        }
        let durable = self.journal.durable();
        while self.held.front().is_some_and(|(position, ..)| *position <= durable) {
            let (_, waiter, reply) = self.held.pop_front().expect("just seen");
            effects.push(Effect::Reply(waiter, reply));
        }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    pub(super) fn list(&self, filter: &ListFilter) -> Vec<Listing> {
        let mut listed: Vec<_> = self.groups.values().map(Group::listing).filter(|l| filter.admits(l)).collect();
        listed.sort_unstable_by(|a, b| a.group.cmp(&b.group));
        listed
    }

    #[cfg(test)]
    pub(super) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    pub(super) fn snapshot(&self) -> Vec<Entry> {
        let mut groups: Vec<_> = self.groups.values().collect();
        groups.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let mut entries = Vec::new();
        groups.into_iter().for_each(|group| group.snapshot(&mut entries));
        entries
    }
}
