//! Consumer groups of one shard: who is a member, who reads what, and how far each group has come.
//!
//! Owned by the shard that owns the group's slot. One entry point ([`Groups::ask`]) decides about a request; what it
//! answers comes back as [`Effect::Reply`], at once or later (parked joins and syncs), and never before everything that
//! the slot wrote to its journal until then is durable: nobody hears of a state that a crash can take back.
//! [`Groups::tick`] lets time pass. State is rebuilt from [`Entry`]s: a checkpoint is a list of them, the journal holds
//! the ones since.
//!
//! Limits: members of a group by `group.max.size` and `group.consumer.max.size`; answers that wait for the disk by the
//! admission of requests at the edge. Failure: a failed journal write takes the slot offline; whoever waits, and
//! whoever asks from then on, hears COORDINATOR_NOT_AVAILABLE until the next start.

mod ask;
mod assignor;
mod base64;
mod classic;
mod consumer;
mod convert;
mod entry;
mod group;
mod offsets;
mod overview;
mod sets;
mod settings;
mod slot;
mod subscription;
#[cfg(test)]
pub(crate) mod testing;
mod turn;
#[cfg(test)]
mod txn_tests;

use std::collections::BTreeMap;

pub use self::ask::*;
pub use self::entry::Entry;
use self::group::Members;
pub use self::offsets::{OffsetRow, OffsetsEntry, TopicText};
pub use self::overview::Overview;
pub use self::settings::{GroupSettings, MigrationPolicy};
use self::slot::Slot;
use crate::code::ErrorCode;
use crate::ids::{SlotId, TimestampMs, TopicId};
use crate::image::Image;
use crate::partition::WaiterId;
use crate::slot::{Journal, slot_of};

/// Whether a whole text matches an expression in RE2's syntax (contract G14).
///
/// # Errors
/// What is wrong with the expression.
pub fn whole_match(expression: &str) -> Result<impl Fn(&str) -> bool + Clone + Send + use<>, String> {
    let regex = consumer::compile(expression)?;
    Ok(move |text: &str| regex.is_match(text))
}

/// The two clocks that groups live by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// The broker's clock: commits and retention of offsets.
    pub wall: TimestampMs,
    /// A clock that never jumps, in ms since some moment: sessions and rebalances.
    pub mono_ms: u64,
}

/// What has to happen outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The answer to a request. An error is one of the whole request, which each API tells in its own way.
    Reply(WaiterId, Result<Reply, ErrorCode>),
    /// The slot's journal has something to write and no writer runs: start one.
    StartWriter(SlotId),
}

/// Effects in the order in which they must be carried out.
pub type Effects = Vec<Effect>;

/// All groups of one shard.
#[derive(Debug)]
pub struct Groups {
    settings: GroupSettings,
    slots: BTreeMap<SlotId, Slot>,
}

impl Groups {
    /// A shard without slots.
    #[must_use]
    pub fn new(settings: GroupSettings) -> Self {
        Self { settings, slots: BTreeMap::new() }
    }

    /// Takes over a slot: its journal as recovered, and the entries that rebuild it in their order. Sessions start at
    /// `now` (contract G19.1).
    pub fn insert(&mut self, id: SlotId, journal: Journal, entries: impl IntoIterator<Item = Entry>, now: Now) {
        let slot = Slot::restored(journal, entries, now, &self.settings);
        let before = self.slots.insert(id, slot);
        assert!(before.is_none(), "slot {id} has one owner");
    }

    /// Decides about one request to `group`; its answer is an [`Effect::Reply`] for `waiter`, now or later.
    pub fn ask(&mut self, group: &str, ask: Ask, waiter: WaiterId, now: Now, image: &Image, effects: &mut Effects) {
        let id = slot_of(group.as_bytes());
        let Some(slot) = self.slots.get_mut(&id) else {
            effects.push(Effect::Reply(waiter, Err(ErrorCode::NotCoordinator)));
            return;
        };
        if slot.journal.is_offline() {
            effects.push(Effect::Reply(waiter, Err(ErrorCode::CoordinatorNotAvailable)));
            return;
        }
        slot.ask(group, ask, waiter, now, image, &self.settings);
        slot.settle(id, effects);
    }

    /// Lets time pass: sessions, rebalances and pending members that are over at `now`.
    pub fn tick(&mut self, now: Now, image: &Image, effects: &mut Effects) {
        for (id, slot) in &mut self.slots {
            if slot.tick(now, image, &self.settings) {
                slot.settle(*id, effects);
            }
        }
    }

    /// Forgets offsets whose time is over, and groups that hold nothing any more (contract G10.7 to G10.9).
    pub fn expire_offsets(&mut self, now: Now, image: &Image, effects: &mut Effects) {
        for (id, slot) in &mut self.slots {
            slot.expire_offsets(now, image, &self.settings);
            slot.settle(*id, effects);
        }
    }

    /// Forgets the offsets of topics that are deleted (contract G10.6).
    pub fn topics_deleted(&mut self, topics: &[TopicId], effects: &mut Effects) {
        for (id, slot) in &mut self.slots {
            slot.topics_deleted(topics);
            slot.settle(*id, effects);
        }
    }

    /// Forgets the offsets of topics that are not there: a crash may come between a topic's deletion and what follows
    /// from it. Only for a shard that does not serve yet, whose image cannot be older than a commit.
    pub fn keep_topics(&mut self, image: &Image, effects: &mut Effects) {
        for (id, slot) in &mut self.slots {
            slot.keep_topics(image);
            slot.settle(*id, effects);
        }
    }

    /// All groups that the filters let through, by slot and name.
    #[must_use]
    pub fn list(&self, filter: &ListFilter) -> Vec<Listing> {
        self.slots.values().flat_map(|slot| slot.list(filter)).collect()
    }

    /// A slot's journal, if this shard owns the slot.
    pub fn journal_mut(&mut self, id: SlotId) -> Option<&mut Journal> {
        self.slots.get_mut(&id).map(|slot| &mut slot.journal)
    }

    /// Slots of this shard.
    pub fn slot_ids(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.slots.keys().copied()
    }

    /// Entries that rebuild a slot as it is now: what a checkpoint holds.
    #[must_use]
    pub fn snapshot(&self, id: SlotId) -> Vec<Entry> {
        self.slots.get(&id).map(Slot::snapshot).unwrap_or_default()
    }

    /// A write of a slot's journal is durable, or failed: releases the answers that waited for it.
    pub fn settled(&mut self, id: SlotId, effects: &mut Effects) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.settle(id, effects);
        }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// Replaces the settings, because one was changed while running.
    pub fn set_settings(&mut self, settings: GroupSettings) {
        self.settings = settings;
    }
}
