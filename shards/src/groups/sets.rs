//! Sets of partitions as groups hold them: what a member is to have, and what it has with the epoch it has it from.
//!
//! Written as lists, because a map of JSON has no number for a key.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::TopicPartitions;
use crate::ids::{PartitionKey, TopicId};

/// Partitions by topic; no topic is without partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions(BTreeMap<TopicId, BTreeSet<i32>>);

impl Partitions {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Whether one is among them.
    #[must_use]
    pub fn has(&self, key: PartitionKey) -> bool {
        self.0.get(&key.topic).is_some_and(|indexes| indexes.contains(&key.index))
    }

    /// Adds one; whether it is new.
    pub fn insert(&mut self, key: PartitionKey) -> bool {
        self.0.entry(key.topic).or_default().insert(key.index)
    }

    /// Takes one out; whether it was there.
    pub fn remove(&mut self, key: PartitionKey) -> bool {
        let Some(indexes) = self.0.get_mut(&key.topic) else { return false };
        let had = indexes.remove(&key.index);
        if indexes.is_empty() {
            self.0.remove(&key.topic);
        }
        had
    }

    /// All, by topic and index.
    pub fn iter(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.0
            .iter()
            .flat_map(|(topic, indexes)| indexes.iter().map(|index| PartitionKey { topic: *topic, index: *index }))
    }

    /// As an answer lists them.
    #[must_use]
    pub fn listed(&self) -> TopicPartitions {
        self.0.iter().map(|(topic, indexes)| (*topic, indexes.iter().copied().collect())).collect()
    }
}

impl FromIterator<PartitionKey> for Partitions {
    fn from_iter<I: IntoIterator<Item = PartitionKey>>(keys: I) -> Self {
        let mut all = Self::default();
        keys.into_iter().for_each(|key| _ = all.insert(key));
        all
    }
}

/// Partitions of one member, each with the epoch in which it got it (contract G17.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held(BTreeMap<TopicId, BTreeMap<i32, i32>>);

impl Held {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one is among them.
    #[must_use]
    pub fn has(&self, key: PartitionKey) -> bool {
        self.since(key).is_some()
    }

    /// The epoch from which on one is among them.
    #[must_use]
    pub fn since(&self, key: PartitionKey) -> Option<i32> {
        self.0.get(&key.topic)?.get(&key.index).copied()
    }

    /// Adds one.
    pub fn insert(&mut self, key: PartitionKey, epoch: i32) {
        self.0.entry(key.topic).or_default().insert(key.index, epoch);
    }

    /// All, by topic and index.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionKey, i32)> + '_ {
        self.0.iter().flat_map(|(topic, indexes)| {
            indexes.iter().map(|(index, epoch)| (PartitionKey { topic: *topic, index: *index }, *epoch))
        })
    }

    /// The partitions without their epochs.
    pub fn keys(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.iter().map(|(key, _)| key)
    }

    /// Whether the partitions are the same, whatever their epochs.
    #[must_use]
    pub fn same_partitions(&self, other: &Self) -> bool {
        self.keys().eq(other.keys())
    }

    /// Those for which `keep` holds, and the others.
    #[must_use]
    pub fn split(&self, mut keep: impl FnMut(PartitionKey) -> bool) -> (Self, Self) {
        let (mut kept, mut others) = (Self::default(), Self::default());
        for (key, epoch) in self.iter() {
            if keep(key) { kept.insert(key, epoch) } else { others.insert(key, epoch) }
        }
        (kept, others)
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: &Self) {
        other.iter().for_each(|(key, epoch)| self.insert(key, epoch));
    }

    /// As an answer lists them.
    #[must_use]
    pub fn listed(&self) -> TopicPartitions {
        self.0.iter().map(|(topic, indexes)| (*topic, indexes.keys().copied().collect())).collect()
    }
}

impl FromIterator<(PartitionKey, i32)> for Held {
    fn from_iter<I: IntoIterator<Item = (PartitionKey, i32)>>(pairs: I) -> Self {
        let mut all = Self::default();
        pairs.into_iter().for_each(|(key, epoch)| all.insert(key, epoch));
        all
    }
}

fn topic<E: Error>(text: &str) -> Result<TopicId, E> {
    TopicId::from_base64(text).ok_or_else(|| E::custom("not a topic id"))
}

impl Serialize for Partitions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|(topic, indexes)| (topic.to_base64(), indexes)))
    }
}

impl<'de> Deserialize<'de> for Partitions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let listed: Vec<(String, BTreeSet<i32>)> = Deserialize::deserialize(from)?;
        listed.into_iter().map(|(id, indexes)| Ok((topic(&id)?, indexes))).collect::<Result<_, _>>().map(Self)
    }
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|(topic, indexes)| (topic.to_base64(), indexes.iter().collect::<Vec<_>>())))
    }
}

impl<'de> Deserialize<'de> for Held {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let listed: Vec<(String, Vec<(i32, i32)>)> = Deserialize::deserialize(from)?;
        let with_id = |(id, indexes): (String, Vec<(i32, i32)>)| Ok((topic(&id)?, indexes.into_iter().collect()));
        listed.into_iter().map(with_id).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(topic: u128, index: i32) -> PartitionKey {
        PartitionKey { topic: TopicId(topic), index }
    }

    #[test]
    fn sets_survive_their_text_and_keep_no_empty_topics() {
        let mut partitions: Partitions = [key(1, 0), key(1, 7), key(2, 3)].into_iter().collect();
        let held: Held = [(key(1, 0), 4), (key(2, 9), 5)].into_iter().collect();
        let text = serde_json::to_string(&(&partitions, &held)).expect("encodes");
        let read: (Partitions, Held) = serde_json::from_str(&text).expect("decodes");
        assert_eq!(read, (partitions.clone(), held.clone()));
        assert_eq!((partitions.len(), held.since(key(2, 9)), held.has(key(2, 3))), (3, Some(5), false));
        assert!(partitions.remove(key(2, 3)) && !partitions.remove(key(2, 3)));
        assert_eq!(partitions.listed(), [(TopicId(1), vec![0, 7])]);
    }
}
