//! The disks of the broker: writes that begin, end, fail and are torn.

use oncilla_shards::groups::Effects as GroupEffects;
use oncilla_shards::ids::{PartitionKey, SlotId};
use oncilla_shards::shard::Effects as ShardEffects;
use oncilla_shards::slot::slot_of;
use oncilla_shards::txn::{Effects, FenceEntry, FenceId};

use super::messages::{GROUPS, Message, NAMES, Peer};
use super::world::{Mutation, World, node_of};
use crate::rng::Rng;

/// The fence log of the broker.
#[derive(Debug, Default)]
pub struct FenceLog {
    pub durable: Vec<FenceEntry>,
    pub writing: Vec<FenceEntry>,
    pub waiting: Vec<FenceEntry>,
    /// Who waits until so many are durable.
    pub waiters: Vec<(usize, usize, SlotId, FenceId)>,
}

impl FenceLog {
    /// What was under way may be there in part.
    pub fn crash(&mut self, rng: &mut Rng) {
        self.writing.truncate(rng.below(self.writing.len() + 1));
        self.durable.append(&mut self.writing);
        (self.waiting, self.waiters) = (Vec::new(), Vec::new());
    }
}

/// How likely it is that a write ends when writes do, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speeds {
    partitions: usize,
    txns: usize,
    groups: usize,
}

impl Speeds {
    /// Nothing waits for long.
    pub const FAST: Self = Self { partitions: 60, txns: 60, groups: 60 };

    /// Disks are fast or slow: what waits for two of them must not lean on one.
    pub fn any(rng: &mut Rng) -> Self {
        let mut speed = || [60, 10, 3][rng.below(3)];
        Self { partitions: speed(), txns: speed(), groups: speed() }
    }
}

impl World {
    pub fn begin_writes(&mut self) {
        for key in self.logs.writers.clone() {
            if !self.logs.writing.contains_key(&key) && self.rng.percent(70) {
                self.begin_write(key);
            }
        }
        for slot in self.txn_writers.clone() {
            if !self.txn_disk.is_writing(slot) && self.rng.percent(70) {
                self.begin_txn_write(slot);
            }
        }
        for slot in self.group_writers.clone() {
            if !self.group_disk.is_writing(slot) && self.rng.percent(70) {
                let journal = self.nodes[node_of(slot)].groups.journal_mut(slot).expect("it owns the slot");
                match journal.take_write() {
                    Some(write) => self.group_disk.begin(slot, write),
                    None => drop(self.group_writers.remove(&slot)),
                }
            }
        }
    }

    fn begin_write(&mut self, key: PartitionKey) {
        let at = self.node_of_partition(key.index);
        match self.nodes[at].shard.take_write(&key, self.now.wall) {
            Some(plan) => {
                let log = self.nodes[at].shard.partition(&key).expect("it is there");
                self.logs.begin(key, log, plan, &mut self.rng);
            }
            None => drop(self.logs.writers.remove(&key)),
        }
    }

    fn begin_txn_write(&mut self, slot: SlotId) {
        let journal = self.nodes[node_of(slot)].txns.journal_mut(slot).expect("it owns the slot");
        match journal.take_write() {
            Some(write) => self.txn_disk.begin(slot, write),
            None => drop(self.txn_writers.remove(&slot)),
        }
        if self.mutation == Some(Mutation::EarlyDecision) && self.txn_disk.is_writing(slot) {
            self.txn_wrote(slot);
        }
    }

    pub fn complete_writes(&mut self) {
        for key in self.logs.writers.clone() {
            if self.rng.percent(self.speeds.partitions) {
                self.complete_write(key);
            }
        }
        for slot in self.txn_writers.clone() {
            if self.rng.percent(self.speeds.txns)
                && let Some(bytes) = self.txn_disk.complete(slot)
            {
                self.truth.history.durable(&bytes);
                if self.mutation != Some(Mutation::EarlyDecision) {
                    self.txn_wrote(slot);
                }
            }
        }
        for slot in self.group_writers.clone() {
            if self.rng.percent(self.speeds.groups) && self.group_disk.complete(slot).is_some() {
                let at = node_of(slot);
                self.nodes[at].groups.journal_mut(slot).expect("it owns the slot").wrote();
                let mut effects = GroupEffects::new();
                self.nodes[at].groups.settled(slot, &mut effects);
                self.carry_out_groups(at, effects);
            }
        }
    }

    fn complete_write(&mut self, key: PartitionKey) {
        let Some((plan, bytes)) = self.logs.writing.remove(&key) else { return };
        self.logs.disk.complete(key, plan.segment, plan.durable);
        let at = self.node_of_partition(key.index);
        let (mut effects, charge) = (ShardEffects::new(), bytes.len());
        self.nodes[at].shard.wrote(&key, bytes.into(), charge, &mut effects);
        self.carry_out_shard(effects);
        self.look_at(key);
    }

    fn txn_wrote(&mut self, slot: SlotId) {
        let at = node_of(slot);
        self.nodes[at].txns.journal_mut(slot).expect("it owns the slot").wrote();
        self.txn_settled(slot);
    }

    fn txn_settled(&mut self, slot: SlotId) {
        let at = node_of(slot);
        let mut effects = Effects::new();
        self.nodes[at].txns.settled(slot, self.now, &mut effects);
        self.carry_out_txn(at, effects);
    }

    /// The fence log takes what has come, or has written it.
    pub fn write_fences(&mut self) {
        let log = &mut self.fence_log;
        if log.writing.is_empty() {
            log.writing = std::mem::take(&mut log.waiting);
        } else {
            log.durable.append(&mut log.writing);
            self.release_fences();
        }
    }

    /// Tells who waits for fences that are durable.
    pub fn release_fences(&mut self) {
        let log = &mut self.fence_log;
        let durable = log.durable.len();
        let (done, waiters) = std::mem::take(&mut log.waiters).into_iter().partition(|(until, ..)| *until <= durable);
        log.waiters = waiters;
        for (_, to, slot, id) in done {
            self.send(Peer::Shard(0), Peer::Shard(to), Message::Fenced(slot, id));
        }
    }

    pub fn checkpoint(&mut self) {
        let slot = slot_of(NAMES[self.rng.below(NAMES.len())].as_bytes());
        let txns = &mut self.nodes[node_of(slot)].txns;
        let entries = txns.snapshot(slot);
        let journal = txns.journal_mut(slot).expect("it owns the slot");
        if let Some(bytes) = self.txn_disk.complete_checkpoint(slot) {
            journal.checkpointed(bytes);
            self.totals.checkpoints += 1;
        } else if !self.txn_disk.is_writing(slot) && !journal.is_offline() {
            self.txn_disk.begin_checkpoint(slot, journal.checkpoint_started(), &entries);
        }
        let slot = slot_of(GROUPS[self.rng.below(GROUPS.len())].as_bytes());
        let groups = &mut self.nodes[node_of(slot)].groups;
        let entries = groups.snapshot(slot);
        let journal = groups.journal_mut(slot).expect("it owns the slot");
        if let Some(bytes) = self.group_disk.complete_checkpoint(slot) {
            journal.checkpointed(bytes);
        } else if !self.group_disk.is_writing(slot) && !journal.is_offline() {
            self.group_disk.begin_checkpoint(slot, journal.checkpoint_started(), &entries);
        }
    }

    /// A disk is full: a partition, or a slot, takes nothing more until the next start.
    pub fn fail_write(&mut self) {
        let slot = self.txn_writers.iter().copied().find(|slot| self.txn_disk.is_writing(*slot));
        if let Some(slot) = slot.filter(|_| self.mutation != Some(Mutation::EarlyDecision) && self.rng.percent(40)) {
            let kept = self.txn_disk.fail(slot, &mut self.rng);
            kept.bytes.iter().for_each(|bytes| self.truth.history.durable(bytes));
            self.txn_writers.remove(&slot);
            self.nodes[node_of(slot)].txns.journal_mut(slot).expect("it owns the slot").fail();
            self.totals.failed += 1;
            return self.txn_settled(slot);
        }
        let slot = self.group_writers.iter().copied().find(|slot| self.group_disk.is_writing(*slot));
        if let Some(slot) = slot.filter(|_| self.rng.percent(50)) {
            self.group_disk.fail(slot, &mut self.rng);
            self.group_writers.remove(&slot);
            let at = node_of(slot);
            self.nodes[at].groups.journal_mut(slot).expect("it owns the slot").fail();
            self.totals.failed += 1;
            let mut effects = GroupEffects::new();
            self.nodes[at].groups.settled(slot, &mut effects);
            return self.carry_out_groups(at, effects);
        }
        if let Some((key, _)) = self.logs.writing.pop_first() {
            self.logs.writers.remove(&key);
            self.totals.failed += 1;
            let at = self.node_of_partition(key.index);
            let mut effects = ShardEffects::new();
            self.nodes[at].shard.write_failed(&key, &mut effects);
            self.carry_out_shard(effects);
        }
    }
}
