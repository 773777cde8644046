//! Groups under a clock, a disk and waiters of their own, for the tests of all their parts.
//!
//! Writes complete at once, or, after [`Harness::hold_writes`], when the test says so. A crash keeps what was durable
//! and nothing else; whoever waited hears nothing. Every answer is checked not to run ahead of the disk.

use std::collections::{BTreeMap, BTreeSet};

use super::group::Group;
use super::{Ask, Effect, Effects, Entry, GroupSettings, Groups, Now, Reply};
use crate::code::ErrorCode;
use crate::ids::{BrokerId, SlotId, TimestampMs, TopicId};
use crate::image::{BrokerSettings, Change, Image};
use crate::limits::SLOTS;
use crate::partition::WaiterId;
use crate::slot::rebuild::Rebuild;
use crate::slot::{JournalWrite, checkpoint};

/// Longest step of [`Harness::advance`].
const TICK_MS: u64 = 10;

/// What a slot's files hold.
#[derive(Debug, Default)]
struct Disk {
    checkpoint: Option<Vec<u8>>,
    journal: Vec<u8>,
    writing: Option<JournalWrite>,
}

pub(crate) struct Harness {
    pub groups: Groups,
    pub settings: GroupSettings,
    pub image: Image,
    pub now: Now,
    disks: BTreeMap<SlotId, Disk>,
    /// Answers that nobody has taken yet.
    answers: BTreeMap<WaiterId, Result<Reply, ErrorCode>>,
    /// Who still waits.
    waiting: BTreeSet<WaiterId>,
    next_waiter: u64,
    fresh: u128,
    writes_are_held: bool,
}

impl Harness {
    /// Groups with the default settings and without the initial delay.
    pub fn new() -> Self {
        Self::with(GroupSettings { initial_rebalance_delay_ms: 0, ..GroupSettings::default() })
    }

    pub fn with(settings: GroupSettings) -> Self {
        let image = Image::new("0123456789abcdefghijkl", BrokerId(1), 1, BrokerSettings::default());
        let now = Now { wall: TimestampMs(1_700_000_000_000), mono_ms: 1_000 };
        let mut harness = Self {
            groups: Groups::new(settings.clone()),
            settings,
            image,
            now,
            disks: BTreeMap::new(),
            answers: BTreeMap::new(),
            waiting: BTreeSet::new(),
            next_waiter: 0,
            fresh: 0,
            writes_are_held: false,
        };
        harness.restore();
        harness
    }

    /// Changes settings while running.
    pub fn set(&mut self, change: impl FnOnce(&mut GroupSettings)) {
        change(&mut self.settings);
        self.groups.set_settings(self.settings.clone());
    }

    /// A number for [`Ask`]s that make ids.
    pub fn fresh(&mut self) -> u128 {
        self.fresh += 1;
        self.fresh
    }

    /// Creates a topic.
    pub fn topic(&mut self, name: &str, partitions: i32) -> TopicId {
        let id = TopicId(0x1000 + self.image.topics().len() as u128 + u128::from(self.image.version) * 0x1_0000);
        let create =
            Change::CreateTopic { id, name: name.to_owned(), partitions, placement: 0, overrides: BTreeMap::new() };
        self.image = self.image.apply(&[create]);
        id
    }

    /// Sends a request.
    pub fn ask(&mut self, group: &str, ask: Ask) -> WaiterId {
        self.next_waiter += 1;
        let waiter = WaiterId(self.next_waiter);
        self.waiting.insert(waiter);
        let mut effects = Effects::new();
        self.groups.ask(group, ask, waiter, self.now, &self.image, &mut effects);
        self.carry_out(effects);
        waiter
    }

    /// Sends a request that is answered at once.
    #[track_caller]
    pub fn answer(&mut self, group: &str, ask: Ask) -> Reply {
        let waiter = self.ask(group, ask);
        self.take(waiter).expect("an answer at once")
    }

    /// Takes the answer to a request, if it has come.
    #[track_caller]
    pub fn take(&mut self, waiter: WaiterId) -> Option<Reply> {
        self.answers.remove(&waiter).map(|answer| answer.expect("an answer of the group"))
    }

    /// Whether a request still waits for its answer.
    pub fn waits(&self, waiter: WaiterId) -> bool {
        self.waiting.contains(&waiter)
    }

    /// Lets time pass.
    pub fn advance(&mut self, ms: u64) {
        let end_ms = self.now.mono_ms + ms;
        while self.now.mono_ms < end_ms {
            let step_ms = TICK_MS.min(end_ms - self.now.mono_ms);
            self.now.mono_ms += step_ms;
            self.now.wall.0 += i64::try_from(step_ms).expect("a short step");
            let mut effects = Effects::new();
            self.groups.tick(self.now, &self.image, &mut effects);
            self.carry_out(effects);
        }
    }

    /// One look at the age of offsets.
    pub fn expire_offsets(&mut self) {
        let mut effects = Effects::new();
        self.groups.expire_offsets(self.now, &self.image, &mut effects);
        self.carry_out(effects);
    }

    /// From now on writes are started and not finished.
    pub fn hold_writes(&mut self) {
        self.writes_are_held = true;
    }

    /// Finishes all writes, and those of later steps at once.
    pub fn release_writes(&mut self) {
        self.writes_are_held = false;
        let slots: Vec<_> = self.disks.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.write_all(slot));
    }

    /// Finishes the write in flight of each slot and starts the next one.
    pub fn finish_writes(&mut self) {
        let slots: Vec<_> = self.disks.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.finish_write(slot));
    }

    /// The process dies and starts again with what is durable.
    pub fn crash(&mut self) {
        self.answers.clear();
        self.waiting.clear();
        self.groups = Groups::new(self.settings.clone());
        self.restore();
    }

    /// Replaces the journals of all slots by checkpoints; needs all writes to be done.
    pub fn checkpoint(&mut self) {
        for slot in self.groups.slot_ids().collect::<Vec<_>>() {
            let entries = self.groups.snapshot(slot);
            let end = self.groups.journal_mut(slot).expect("its own").end();
            let disk = self.disks.get_mut(&slot).expect("its own");
            assert!(disk.writing.is_none(), "writes are done");
            disk.checkpoint = Some(checkpoint::encode(end, &entries));
            disk.journal.clear();
        }
    }

    /// A group as it is in memory.
    pub(in crate::groups) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.slots[&crate::slot::slot_of(name.as_bytes())].group(name)
    }

    /// Entries of a group that rebuild it as it is now.
    pub fn snapshot(&self, group: &str) -> Vec<Entry> {
        let slot = crate::slot::slot_of(group.as_bytes());
        self.groups.snapshot(slot).into_iter().filter(|entry| &**entry.group() == group).collect()
    }

    /// What a crash at this moment would bring back of a group.
    pub fn recovered(&self, group: &str) -> Vec<Entry> {
        let slot = crate::slot::slot_of(group.as_bytes());
        let (journal, entries) = self.rebuild(slot);
        let mut groups = Groups::new(self.settings.clone());
        groups.insert(slot, journal, entries, self.now);
        groups.snapshot(slot).into_iter().filter(|entry| &**entry.group() == group).collect()
    }

    /// Entries that a group's slot has written.
    pub fn written(&mut self, group: &str) -> u64 {
        let slot = crate::slot::slot_of(group.as_bytes());
        self.groups.journal_mut(slot).expect("its own").end().0
    }

    fn rebuild(&self, slot: SlotId) -> (crate::slot::Journal, Vec<Entry>) {
        let empty = Disk::default();
        let disk = self.disks.get(&slot).unwrap_or(&empty);
        let mut rebuild = Rebuild::new(disk.checkpoint.as_deref()).expect("its own checkpoint");
        rebuild.journal(&disk.journal).expect("its own journal");
        rebuild.finish()
    }

    fn restore(&mut self) {
        for slot in (0..SLOTS).map(SlotId) {
            let (journal, entries) = self.rebuild(slot);
            self.disks.entry(slot).or_default().writing = None;
            self.groups.insert(slot, journal, entries, self.now);
        }
    }

    fn carry_out(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Reply(waiter, answer) => {
                    assert!(self.waiting.remove(&waiter), "{waiter:?} is answered once");
                    self.answers.insert(waiter, answer);
                }
                Effect::StartWriter(slot) => {
                    self.start_write(slot);
                    if !self.writes_are_held {
                        self.write_all(slot);
                    }
                }
            }
        }
    }

    fn start_write(&mut self, slot: SlotId) {
        let write = self.groups.journal_mut(slot).expect("its own").take_write();
        self.disks.get_mut(&slot).expect("its own").writing = write;
    }

    fn finish_write(&mut self, slot: SlotId) {
        let disk = self.disks.get_mut(&slot).expect("its own");
        let Some(write) = disk.writing.take() else { return };
        disk.journal.extend_from_slice(&write.bytes);
        let journal = self.groups.journal_mut(slot).expect("its own");
        journal.wrote();
        assert_eq!(journal.durable(), write.end, "what is durable is on the disk");
        let mut effects = Effects::new();
        self.groups.settled(slot, &mut effects);
        self.start_write(slot);
        self.carry_out(effects);
    }

    fn write_all(&mut self, slot: SlotId) {
        while self.disks[&slot].writing.is_some() {
            self.finish_write(slot);
        }
    }
}
