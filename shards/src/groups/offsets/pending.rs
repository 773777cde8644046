//! Offsets of transactions that have not ended (contract C3 to C5): each belongs to a producer, a group and a
//! partition.
//!
//! A group has one of these only while a transaction holds offsets of it. What is pending keeps the partition's
//! committed offset and the group from expiring, and a read that asks for stable offsets waits for it. Whichever record
//! came later wins, in whatever order the markers come: a pending offset is outdated by every commit behind it. An
//! outdated one still counts as pending until its own transaction ends.
//! Limit: `GROUP_PENDING_OFFSETS_MAX`.

use std::collections::BTreeMap;

use super::entry::OffsetRow;
use crate::ids::{PartitionKey, ProducerEpoch, ProducerId, TimestampMs};
use crate::txn::{Identity, ends};

/// What one producer has pending for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingOffset {
    pub epoch: ProducerEpoch,
    pub at: TimestampMs,
    pub row: OffsetRow,
    /// Its place among all that became pending.
    order: u64,
    /// Whether something behind it is committed, so that it never will be.
    pub is_outdated: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    partitions: BTreeMap<PartitionKey, BTreeMap<ProducerId, PendingOffset>>,
    count: usize,
    next: u64,
}

impl Pending {
    pub fn has(&self, key: &PartitionKey) -> bool {
        self.partitions.contains_key(key)
    }

    /// Offsets of all producers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Nothing brings these back, whatever becomes of the transactions (contract G10.5).
    pub fn discard(&mut self, key: &PartitionKey) -> bool {
        let gone = self.partitions.remove(key);
        self.count -= gone.as_ref().map_or(0, BTreeMap::len);
        gone.is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Partitions with a pending offset.
    pub fn keys(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.partitions.keys().copied()
    }

    pub fn insert(&mut self, producer: Identity, key: PartitionKey, at: TimestampMs, row: OffsetRow) {
        self.next += 1;
        let pending = PendingOffset { epoch: producer.epoch, at, row, order: self.next, is_outdated: false };
        let before = self.partitions.entry(key).or_default().insert(producer.producer_id, pending);
        self.count += usize::from(before.is_none());
    }

    /// Something was committed for the partition just now.
    pub fn outdate(&mut self, key: &PartitionKey) {
        if let Some(producers) = self.partitions.get_mut(key) {
            producers.values_mut().for_each(|pending| pending.is_outdated = true);
        }
    }

    /// Whether [`Pending::end`] would find something.
    pub fn ends(&self, producer: Identity, version: i8) -> bool {
        let of_producer = |producers: &BTreeMap<ProducerId, PendingOffset>| {
            producers.get(&producer.producer_id).is_some_and(|pending| ends(producer.epoch, version, pending.epoch))
        };
        self.partitions.values().any(of_producer)
    }

    /// Takes out what a transaction had pending. What it outdates by being committed is marked, if it `commits`.
    pub fn end(&mut self, producer: Identity, version: i8, commits: bool) -> Vec<(PartitionKey, PendingOffset)> {
        let mut ended = Vec::new();
        for (key, producers) in &mut self.partitions {
            let Some(pending) = producers.get(&producer.producer_id) else { continue };
            if !ends(producer.epoch, version, pending.epoch) {
                continue;
            }
            let pending = producers.remove(&producer.producer_id).expect("just seen");
            if commits && !pending.is_outdated {
                let older = producers.values_mut().filter(|other| other.order < pending.order);
                older.for_each(|other| other.is_outdated = true);
            }
            ended.push((*key, pending));
        }
        self.count -= ended.len();
        self.partitions.retain(|_, producers| !producers.is_empty());
        ended
    }

    /// All offsets by partition, those of one partition in the order in which they became pending, which is all that
    /// matters of it; outdated ones have none any more.
    pub fn in_order(&self, is_outdated: bool) -> Vec<(PartitionKey, ProducerId, &PendingOffset)> {
        let mut all = Vec::new();
        for (key, producers) in &self.partitions {
            let wanted = producers.iter().filter(|(_, pending)| pending.is_outdated == is_outdated);
            let mut of_key: Vec<_> = wanted.map(|(id, pending)| (*key, *id, pending)).collect();
            if !is_outdated {
                of_key.sort_by_key(|(.., pending)| pending.order);
            }
            all.append(&mut of_key);
        }
        all
    }
}
