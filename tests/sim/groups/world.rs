//! The world around the groups: members, the two clocks, the journals' writers and the power switch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Effect, Effects, FetchOffsets, GroupSettings, Groups, ListFilter, Now, Reply};
use oncilla_shards::ids::{BrokerId, SlotId, TimestampMs};
use oncilla_shards::image::{BrokerSettings, Change, Image};
use oncilla_shards::limits::SLOTS;
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::slot_of;

use super::member::{Member, SESSION_MS, TOPIC, TOPIC_NAME, Waiting};
use crate::rng::Rng;
use crate::slots::Disk;

/// Names of the groups; the first ones speak the classic protocol.
const GROUPS: [&str; 4] = ["classic", "classic/static", "consumer", "consumer/static"];
const CLASSIC_GROUPS: usize = 2;
const MEMBERS_EACH: usize = 4;
const PARTITIONS: i32 = 6;

/// What a run went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Commits acknowledged.
    pub commits: usize,
    /// Joins that ended in a generation, and member epochs that rose.
    pub generations: usize,
    /// Members that were removed for their silence and heard of it.
    pub removed: usize,
    /// Crashes of the broker.
    pub crashes: usize,
    /// Journal writes torn by one.
    pub torn: usize,
    /// Checkpoints that became durable.
    pub checkpoints: usize,
    /// Journal writes that failed.
    pub failed: usize,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.commits += other.commits;
        self.generations += other.generations;
        self.removed += other.removed;
        self.crashes += other.crashes;
        self.torn += other.torn;
        self.checkpoints += other.checkpoints;
        self.failed += other.failed;
    }
}

/// One run.
pub struct World {
    rng: Rng,
    now: Now,
    image: Image,
    groups: Groups,
    disk: Disk,
    members: Vec<Member>,
    writers: BTreeSet<SlotId>,
    waiters: BTreeMap<u64, Option<usize>>,
    waiter_next: u64,
    /// Last offset sent and last offset acknowledged, by group and partition.
    sent: BTreeMap<(usize, i32), i64>,
    acknowledged: BTreeMap<(usize, i32), i64>,
    /// Who was given a partition in a generation of a classic group of this boot.
    given: BTreeMap<(usize, i32, i32), String>,
    totals: Totals,
}

impl World {
    /// A world with an empty disk.
    pub fn new(seed: u64) -> Self {
        let broker = BrokerSettings::new(Vec::new()).expect("no settings are fine");
        let create = Change::CreateTopic {
            id: TOPIC,
            name: TOPIC_NAME.into(),
            partitions: PARTITIONS,
            placement: 0,
            overrides: BTreeMap::new(),
        };
        let member = |k: usize| {
            let group = k / MEMBERS_EACH;
            let is_static = GROUPS[group].ends_with("static") && k % MEMBERS_EACH < 2;
            Member::new(group, group < CLASSIC_GROUPS, is_static.then(|| format!("i{k}")))
        };
        let mut world = Self {
            rng: Rng::new(seed),
            now: Now { wall: TimestampMs(1_700_000_000_000), mono_ms: 5_000 },
            image: Image::new("sim", BrokerId(0), 1, broker).apply(&[create]),
            groups: Groups::new(GroupSettings::default()),
            disk: Disk::default(),
            members: (0..GROUPS.len() * MEMBERS_EACH).map(member).collect(),
            writers: BTreeSet::new(),
            waiters: BTreeMap::new(),
            waiter_next: 0,
            sent: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            given: BTreeMap::new(),
            totals: Totals::default(),
        };
        world.boot();
        world
    }

    fn boot(&mut self) {
        let mut groups = Groups::new(GroupSettings {
            session_timeout_ms_min: 1,
            initial_rebalance_delay_ms: 200,
            consumer_session_timeout_ms: SESSION_MS as i32,
            consumer_heartbeat_interval_ms: SESSION_MS as i32 / 4,
            consumer_assignment_interval_ms: 0,
            offsets_retention_ms: i64::MAX,
            ..GroupSettings::default()
        });
        for slot in (0..SLOTS).map(SlotId) {
            let (journal, entries) = self.disk.load(slot);
            groups.insert(slot, journal, entries, self.now);
        }
        self.groups = groups;
        for (group, name) in GROUPS.iter().enumerate() {
            for index in 0..PARTITIONS {
                self.check_offset(group, name, index);
            }
        }
    }

    /// What is stored is what was acknowledged last, or what was sent after it.
    fn check_offset(&mut self, group: usize, name: &str, index: i32) {
        let key = oncilla_shards::ids::PartitionKey { topic: TOPIC, index };
        let fetch =
            FetchOffsets { member_id: None, member_epoch: -1, require_stable: true, partitions: Some(vec![key]) };
        let mut effects = Effects::new();
        let waiter = WaiterId(u64::MAX);
        self.groups.ask(name, Ask::FetchOffsets(fetch), waiter, self.now, &self.image, &mut effects);
        let stored = effects.iter().find_map(|effect| match effect {
            Effect::Reply(_, Ok(Reply::FetchOffsets(fetched))) => Some(fetched.partitions[0].offset),
            _ => None,
        });
        let stored = stored.expect("everything is durable at a start");
        let acknowledged = self.acknowledged.get(&(group, index)).copied().unwrap_or(-1);
        let sent = self.sent.get(&(group, index)).copied().unwrap_or(-1);
        assert!(
            (acknowledged..=sent).contains(&stored),
            "{name} {index}: {stored} is stored, {acknowledged} was acknowledged and {sent} sent"
        );
    }

    /// One event.
    pub fn step(&mut self) {
        let ms = self.rng.below(15) as u64;
        self.pass(ms);
        match self.rng.below(1000) {
            0..450 => self.act(),
            450..550 => self.commit(),
            550..700 => self.begin_writes(),
            700..900 => self.complete_writes(),
            900..915 => self.silence(),
            915..930 => self.restart(),
            930..945 => self.leave(),
            945..960 => self.checkpoint(),
            960..975 => self.now.wall.0 += self.rng.below(200_000_000) as i64 - 100_000_000,
            975..980 => self.fail_write(),
            980..985 => self.pass(3 * SESSION_MS),
            _ => {
                if self.rng.percent(30) {
                    self.crash();
                }
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall.0 += ms as i64;
        let mut effects = Effects::new();
        self.groups.tick(self.now, &self.image, &mut effects);
        self.carry_out(effects);
    }

    fn ask(&mut self, member: usize, ask: Ask) {
        let waiter = WaiterId(self.waiter_next);
        self.waiter_next += 1;
        self.waiters.insert(waiter.0, Some(member));
        let name = GROUPS[self.members[member].group];
        let mut effects = Effects::new();
        self.groups.ask(name, ask, waiter, self.now, &self.image, &mut effects);
        self.carry_out(effects);
    }

    fn act(&mut self) {
        let member = self.rng.below(self.members.len());
        self.act_as(member);
    }

    fn act_as(&mut self, member: usize) {
        let fresh = u128::from(self.rng.next());
        if let Some(ask) = self.members[member].next(self.now.mono_ms, fresh, PARTITIONS) {
            self.ask(member, ask);
        }
    }

    fn commit(&mut self) {
        let member = self.rng.below(self.members.len());
        let Some(index) = self.members[member].owned.first().copied() else { return };
        let group = self.members[member].group;
        let next = self.sent.get(&(group, index)).copied().unwrap_or(0) + 1;
        if let Some(ask) = self.members[member].commit(index, next) {
            self.sent.insert((group, index), next);
            self.ask(member, ask);
        }
    }

    fn silence(&mut self) {
        let member = self.rng.below(self.members.len());
        let ms = self.rng.below(3 * SESSION_MS as usize) as u64;
        self.members[member].silent_until_ms = self.now.mono_ms + ms;
    }

    fn restart(&mut self) {
        let member = self.rng.below(self.members.len());
        self.forget_waiter_of(member);
        self.members[member].restart();
    }

    fn forget_waiter_of(&mut self, member: usize) {
        self.waiters.values_mut().filter(|waiting| **waiting == Some(member)).for_each(|waiting| *waiting = None);
    }

    fn leave(&mut self) {
        let member = self.rng.below(self.members.len());
        if let Some(ask) = self.members[member].leave() {
            self.ask(member, ask);
        }
    }

    fn begin_writes(&mut self) {
        for slot in self.writers.clone() {
            if !self.disk.is_writing(slot) && self.rng.percent(70) {
                self.begin_write(slot);
            }
        }
    }

    fn begin_write(&mut self, slot: SlotId) {
        let journal = self.groups.journal_mut(slot).expect("all slots are here");
        match journal.take_write() {
            Some(write) => self.disk.begin(slot, write),
            None => {
                self.writers.remove(&slot);
            }
        }
    }

    fn complete_writes(&mut self) {
        for slot in self.writers.clone() {
            if self.rng.percent(70) {
                self.complete_write(slot);
            }
        }
    }

    fn complete_write(&mut self, slot: SlotId) {
        if self.disk.complete(slot).is_some() {
            self.groups.journal_mut(slot).expect("all slots are here").wrote();
            let mut effects = Effects::new();
            self.groups.settled(slot, &mut effects);
            self.carry_out(effects);
        }
    }

    fn checkpoint(&mut self) {
        let slot = slot_of(GROUPS[self.rng.below(GROUPS.len())].as_bytes());
        let journal = self.groups.journal_mut(slot).expect("all slots are here");
        if let Some(bytes) = self.disk.complete_checkpoint(slot) {
            journal.checkpointed(bytes);
            self.totals.checkpoints += 1;
        } else if !self.disk.is_writing(slot) && !journal.is_offline() {
            let position = journal.checkpoint_started();
            let entries = self.groups.snapshot(slot);
            self.disk.begin_checkpoint(slot, position, &entries);
        }
    }

    /// The disk takes no more of a slot until the next start.
    fn fail_write(&mut self) {
        let Some(slot) = self.writers.iter().copied().find(|slot| self.disk.is_writing(*slot)) else { return };
        self.disk.fail(slot, &mut self.rng);
        self.writers.remove(&slot);
        self.groups.journal_mut(slot).expect("all slots are here").fail();
        self.totals.failed += 1;
        let mut effects = Effects::new();
        self.groups.settled(slot, &mut effects);
        self.carry_out(effects);
    }

    fn crash(&mut self) {
        self.totals.crashes += 1;
        self.totals.torn += self.disk.crash(&mut self.rng).torn;
        self.writers.clear();
        self.waiters.clear();
        self.given.clear();
        for member in &mut self.members {
            member.waiting = Waiting::Nothing;
            member.tells_all = true;
        }
        self.boot();
    }

    fn carry_out(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::StartWriter(slot) => assert!(self.writers.insert(slot), "one writer a slot"),
                Effect::Reply(waiter, reply) => {
                    if let Some(member) = self.waiters.remove(&waiter.0).expect("who waits is known") {
                        self.hear(member, reply);
                    }
                }
            }
        }
    }

    fn hear(&mut self, at: usize, reply: Result<Reply, ErrorCode>) {
        let before = self.members[at].clone();
        let got = self.members[at].hear(reply.clone(), self.now.mono_ms);
        let member = &self.members[at];
        let group = member.group;
        if let (Waiting::Commit(index, offset), Ok(Reply::Commit(codes))) = (before.waiting, &reply)
            && codes[0].is_none()
        {
            let known = self.acknowledged.entry((group, index)).or_insert(-1);
            *known = (*known).max(offset);
            self.totals.commits += 1;
        }
        self.totals.generations += usize::from(member.epoch > before.epoch);
        self.totals.removed += usize::from(member.needs_join && before.epoch > 0 && member.epoch == 0);
        for index in got {
            if member.is_classic {
                let owner = self.given.entry((group, member.epoch, index)).or_insert_with(|| member.member_id.clone());
                // A static member that comes back takes its own work over under another id.
                let is_same = *owner == member.member_id || member.instance_id.is_some();
                assert!(is_same, "{} of generation {} has two owners", index, member.epoch);
                continue;
            }
            for other in self.members.iter().enumerate().filter(|(k, _)| *k != at).map(|(_, other)| other) {
                let is_there = self.now.mono_ms < other.heard_ms + SESSION_MS;
                assert!(
                    other.group != group || !is_there || !other.owned.contains(&index),
                    "{index} was given to {} while {} has it",
                    member.member_id,
                    other.member_id
                );
            }
        }
    }

    /// Everybody behaves: in the end every partition of every group has one owner.
    pub fn finish(mut self) -> Totals {
        self.crash();
        for member in 0..self.members.len() {
            self.members[member].silent_until_ms = 0;
        }
        for _ in 0..400 {
            self.pass(50);
            for member in 0..self.members.len() {
                self.act_as(member);
            }
            for slot in self.writers.clone() {
                if !self.disk.is_writing(slot) {
                    self.begin_write(slot);
                }
                self.complete_write(slot);
            }
        }
        for (group, name) in GROUPS.iter().enumerate() {
            let mut owned = BTreeMap::new();
            for member in self.members.iter().filter(|member| member.group == group) {
                for index in &member.owned {
                    let before = owned.insert(*index, &member.member_id);
                    assert_eq!(before, None, "{name}: {index} has two owners in the end");
                }
            }
            assert_eq!(owned.len(), PARTITIONS as usize, "{name}: not all partitions have an owner in the end");
            let listed = self.groups.list(&ListFilter::default());
            let state = listed.iter().find(|listing| listing.group == *name).map(|listing| listing.state);
            assert_eq!(state, Some("Stable"), "{name} settles");
        }
        self.crash();
        self.totals
    }
}
