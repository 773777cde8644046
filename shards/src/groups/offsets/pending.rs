//! Offsets of transactions that have not ended (contract C3 to C5): each belongs to a producer, a group and a
//! partition.
//!
//! A group has one of these only while a transaction holds offsets of it. What is pending keeps the partition's
//! committed offset and the group from expiring, and a read that asks for stable offsets waits for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{PartitionKey, ProducerId};

#[derive(Debug, Default)]
pub(super) struct Pending {
    producers: BTreeMap<PartitionKey, BTreeSet<ProducerId>>,
}

impl Pending {
    pub fn has(&self, key: &PartitionKey) -> bool {
        self.producers.contains_key(key)
    }

    /// Nothing brings these back, whatever becomes of the transactions (contract G10.5).
    pub fn discard(&mut self, key: &PartitionKey) -> bool {
        self.producers.remove(key).is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// Partitions with a pending offset.
    pub fn keys(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.producers.keys().copied()
    }

    #[cfg(test)]
    pub fn insert(&mut self, producer: ProducerId, key: PartitionKey) {
        self.producers.entry(key).or_default().insert(producer);
    }
}
