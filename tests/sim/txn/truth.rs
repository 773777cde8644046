//! What producers were told, what readers saw, and what the coordinators' journals decided: the invariants of contract
//! F85 are checked here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oncilla_shards::ids::{Offset, ProducerEpoch, ProducerId, SlotId};
use oncilla_shards::slot::line::Lines;
use oncilla_shards::slot::slot_of;
use oncilla_shards::txn::{Change, Entry, Head, Identity, Outcome, State};

/// A record's value: its transaction, its partition and its place among the transaction's records there.
pub fn value(txn: usize, partition: i32, record: u32) -> u64 {
    (txn as u64) << 32 | (partition as u64) << 24 | u64::from(record)
}

fn parts(value: u64) -> (usize, i32, u32) {
    ((value >> 32) as usize, (value >> 24 & 0xff) as i32, (value & 0xff_ffff) as u32)
}

/// One transaction as its producer knows it.
#[derive(Clone, Debug)]
pub struct Told {
    pub name: usize,
    pub producer: Identity,
    /// Whether a commit was ever asked for.
    pub commits: bool,
    pub verdict: Option<Outcome>,
    /// Partition and place of the records that were acknowledged.
    pub acknowledged: BTreeSet<(i32, u32)>,
    pub offsets_sent: bool,
    pub offsets_acknowledged: bool,
}

/// Everything that is known from outside.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub told: Vec<Told>,
    pub history: History,
    /// What read_committed saw at an offset; it never goes.
    seen: BTreeMap<(i32, i64), u64>,
    visible: BTreeSet<u64>,
    stable: BTreeMap<i32, (Offset, Offset)>,
}

impl Truth {
    /// A transaction begins.
    pub fn begin(&mut self, name: usize, producer: Identity) -> usize {
        self.told.push(Told {
            name,
            producer,
            commits: false,
            verdict: None,
            acknowledged: BTreeSet::new(),
            offsets_sent: false,
            offsets_acknowledged: false,
        });
        self.told.len() - 1
    }

    /// Whether anything of a producer's transaction of path B was acknowledged: it has one at each epoch.
    pub fn is_acknowledged(&self, producer: Identity) -> bool {
        let mut own = self.told.iter().filter(|told| told.producer == producer);
        own.any(|told| told.offsets_acknowledged || !told.acknowledged.is_empty())
    }

    /// I3: the last stable offset never goes back, nor beyond what is durable.
    pub fn stable_at(&mut self, partition: i32, stable: Offset, high_watermark: Offset) {
        assert!(stable <= high_watermark, "I3: {stable} is beyond {high_watermark}");
        let (before, high) = self.stable.insert(partition, (stable, high_watermark)).unwrap_or_default();
        assert!(
            before <= stable && high <= high_watermark,
            "I3: partition {partition} goes back from {before}, {high}"
        );
    }

    /// A reader saw exactly these values from one offset up to another.
    pub fn saw(&mut self, partition: i32, from: i64, to: i64, values: &BTreeMap<i64, u64>) {
        let before: Vec<_> = self.seen.range((partition, from)..(partition, to)).map(|(at, v)| (at.1, *v)).collect();
        for (offset, value) in before {
            assert_eq!(values.get(&offset), Some(&value), "I1: {partition}@{offset} is not what was seen there before");
        }
        for (offset, value) in values {
            if self.seen.insert((partition, *offset), *value).is_none() {
                self.check_new(partition, *offset, *value);
            }
        }
    }

    fn check_new(&mut self, partition: i32, offset: i64, value: u64) {
        let (txn, of_partition, _) = parts(value);
        assert!(self.visible.insert(value) && partition == of_partition, "I1: {value:x} is visible twice at {offset}");
        let told = &self.told[txn];
        assert!(told.commits && told.verdict != Some(Outcome::Abort), "I2: {partition}@{offset} is of {told:?}");
        assert!(
            self.history.is_decided(told.producer, Outcome::Commit),
            "{partition}@{offset} is visible before the decision is durable: {told:?}"
        );
    }

    /// Whether offsets of a transaction were found committed.
    fn check_offsets(told: &Told, txn: usize, is_committed: bool) {
        match told.verdict {
            Some(Outcome::Commit) => {
                assert_eq!(is_committed, told.offsets_acknowledged, "I2, I5: the offsets of {txn} {told:?}");
            }
            Some(Outcome::Abort) => assert!(!is_committed, "I2: the offsets of {txn} {told:?}"),
            None => assert!(!is_committed || told.commits, "I2: the offsets of {txn} {told:?}"),
        }
    }

    /// All is read and nothing is open any more. `offsets`: transactions whose offsets are committed.
    pub fn check_all(&self, offsets: &BTreeSet<usize>) {
        let mut records: BTreeMap<usize, BTreeSet<(i32, u32)>> = BTreeMap::new();
        let mut next: BTreeMap<(usize, i32), u32> = BTreeMap::new();
        for value in self.seen.values() {
            let (txn, partition, record) = parts(*value);
            records.entry(txn).or_default().insert((partition, record));
            let next = next.entry((txn, partition)).or_default();
            assert_eq!(record, *next, "I1: records of {txn} at {partition} are in order and without a gap");
            *next += 1;
        }
        let nothing = BTreeSet::new();
        for (txn, told) in self.told.iter().enumerate() {
            let visible = records.get(&txn).unwrap_or(&nothing);
            let is_committed = offsets.contains(&txn);
            Self::check_offsets(told, txn, is_committed);
            match told.verdict {
                Some(Outcome::Commit) => assert_eq!(*visible, told.acknowledged, "I2, I5: {txn} {told:?}"),
                Some(Outcome::Abort) => assert!(visible.is_empty(), "I2: {visible:?} of {txn} {told:?}"),
                None if told.commits => {
                    let is_whole = *visible == told.acknowledged && is_committed == told.offsets_acknowledged;
                    let is_nothing = visible.is_empty() && !is_committed;
                    assert!(is_whole || is_nothing, "I2: {visible:?}, {is_committed} of {txn} {told:?}");
                }
                None => assert!(visible.is_empty(), "I2: nobody committed {txn} {told:?}"),
            }
        }
    }
}

/// What the journals of the coordinators hold, line by line as it became durable, and as every start finds it.
#[derive(Clone, Debug, Default)]
pub struct History {
    ids: BTreeMap<Arc<str>, Id>,
    /// Highest epoch of each producer id.
    epochs: BTreeMap<ProducerId, i16>,
    /// How the transactions of a producer at an epoch ended, by their numbers.
    decided: BTreeMap<Identity, BTreeMap<u64, Outcome>>,
    /// Which transaction of path B a producer at an epoch had.
    owners: BTreeMap<Identity, u64>,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Id {
    producer: Identity,
    next_producer_id: ProducerId,
    /// Transactions that are decided.
    sequence: u64,
}

impl History {
    /// Bytes of a journal are durable; a torn line at their end is not.
    pub fn durable(&mut self, bytes: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        for line in Lines::new(bytes) {
            self.apply(&line.decode(&mut scratch).expect("a line of this version"));
        }
        self.scratch = scratch;
    }

    /// A start has found these in a slot. A checkpoint can hold what no journal has, or lack an id that is gone: the
    /// next one of its name counts its transactions anew.
    pub fn loaded(&mut self, slot: SlotId, entries: &[Entry]) {
        self.ids.retain(|name, _| slot_of(name.as_bytes()) != slot);
        let before = std::mem::take(&mut self.epochs);
        entries.iter().for_each(|entry| self.apply(entry));
        for (producer_id, epoch) in before {
            let of = self.ids.values().find(|id| id.producer.producer_id == producer_id);
            assert!(of.is_none_or(|of| of.producer.epoch.0 >= epoch), "I4: a start takes {producer_id} back");
            let known = self.epochs.entry(producer_id).or_insert(epoch);
            *known = (*known).max(epoch);
        }
    }

    /// Whether a transaction of a producer at an epoch ended like this.
    pub fn is_decided(&self, producer: Identity, outcome: Outcome) -> bool {
        self.decided.get(&producer).is_some_and(|all| all.values().any(|one| *one == outcome))
    }

    /// How the last transaction of a producer at an epoch ended.
    pub fn last_of(&self, producer: Identity) -> Option<Outcome> {
        Some(*self.decided.get(&producer)?.last_key_value()?.1)
    }

    fn decide(&mut self, producer: Identity, sequence: u64, outcome: Outcome) {
        let before = self.decided.entry(producer).or_default().insert(sequence, outcome);
        assert!(before.is_none_or(|before| before == outcome), "{producer:?} is decided twice");
    }

    fn own(&mut self, producer: Identity, sequence: u64) {
        let before = *self.owners.entry(producer).or_insert(sequence);
        assert_eq!(before, sequence, "I4: {producer:?} has a second transaction");
    }

    fn apply(&mut self, Entry { id: name, change }: &Entry) {
        let none = Id { producer: Identity::NONE, next_producer_id: ProducerId::NONE, sequence: 0 };
        let mut id = self.ids.get(name).copied().unwrap_or(none);
        match change {
            Change::Init { producer_id, epoch, .. } => {
                let producer = Identity { producer_id: *producer_id, epoch: *epoch };
                id = Id { producer, sequence: id.sequence, ..none };
            }
            Change::Add { client_version, .. } => {
                if *client_version == 2 {
                    self.own(id.producer, id.sequence);
                }
            }
            Change::Prepare { outcome, epoch, next_producer_id, .. } => {
                id.sequence += 1;
                self.decide(id.producer, id.sequence, *outcome);
                (id.producer.epoch, id.next_producer_id) = (*epoch, *next_producer_id);
            }
            Change::Complete { .. } if id.next_producer_id != ProducerId::NONE => {
                let producer = Identity { producer_id: id.next_producer_id, epoch: ProducerEpoch(0) };
                id = Id { producer, sequence: id.sequence, ..none };
            }
            Change::Complete { .. } => {}
            Change::Gone => {
                self.ids.remove(name);
                return;
            }
            Change::Whole { head, .. } => id = self.whole(head),
        }
        let highest = self.epochs.entry(id.producer.producer_id).or_insert(id.producer.epoch.0);
        assert!(*highest <= id.producer.epoch.0, "I4: {:?} goes back from {highest}", id.producer);
        *highest = id.producer.epoch.0;
        self.ids.insert(name.clone(), id);
    }

    fn whole(&mut self, head: &Head) -> Id {
        let outcome = match head.state {
            State::PrepareCommit | State::CompleteCommit => Some(Outcome::Commit),
            State::PrepareAbort | State::CompleteAbort => Some(Outcome::Abort),
            State::Empty | State::Ongoing => None,
        };
        if let Some(outcome) = outcome {
            let of_path_b = Identity { producer_id: head.prev_producer_id, epoch: head.last_epoch };
            // An abort by the broker at level 1 has taken the next epoch, or behind the last one the next producer id.
            let before = match head.epoch.0 {
                0 => Identity { producer_id: head.prev_producer_id, epoch: ProducerEpoch(i16::MAX) },
                epoch => Identity { epoch: ProducerEpoch(epoch - 1), ..head.identity() },
            };
            match (head.client_version, outcome) {
                (2, _) => self.decide(of_path_b, head.sequence, outcome),
                (_, Outcome::Commit) => self.decide(head.identity(), head.sequence, outcome),
                (_, Outcome::Abort) => {
                    self.decide(before, head.sequence, outcome);
                    self.decide(head.identity(), head.sequence, outcome);
                }
            }
        }
        Id { producer: head.identity(), next_producer_id: head.next_producer_id, sequence: head.sequence }
    }
}
