//! Who reads what: the assignors of consumer groups (contract G13).
//!
//! Pure functions of the members, their subscriptions and what they have; the same input gives the same answer. The cost
//! grows with members, partitions and topics of subscriptions, never with their products except where each member
//! subscribes to topics of its own.

mod range;
mod uneven;
mod uniform;

use std::collections::BTreeMap;

use super::sets::Partitions;
use crate::ids::{PartitionKey, TopicId};

/// What is to be shared out.
#[derive(Debug)]
pub(super) struct Input<'a> {
    /// Partition counts of all topics that somebody subscribes to.
    pub topics: &'a BTreeMap<TopicId, i32>,
    /// Lists of topics, sorted; many members have the same.
    pub subscriptions: &'a [Vec<TopicId>],
    /// The members, by id.
    pub members: &'a [Subscriber<'a>],
}

/// A member as an assignor sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscriber<'a> {
    pub id: &'a str,
    pub instance_id: Option<&'a str>,
    /// Index into [`Input::subscriptions`].
    pub subscription: usize,
    /// Its target until now.
    pub had: &'a Partitions,
}

impl Input<'_> {
    fn partitions(&self, topic: TopicId) -> i32 {
        self.topics.get(&topic).copied().unwrap_or(0)
    }

    fn subscription(&self, member: usize) -> &[TopicId] {
        &self.subscriptions[self.members[member].subscription]
    }

    fn exists(&self, key: PartitionKey) -> bool {
        (0..self.partitions(key.topic)).contains(&key.index)
    }

    /// Subscribers of each topic, as indexes into the members.
    fn subscribers(&self) -> BTreeMap<TopicId, Vec<usize>> {
        let mut all: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
        for (at, member) in self.members.iter().enumerate() {
            for topic in &self.subscriptions[member.subscription] {
                all.entry(*topic).or_default().push(at);
            }
        }
        all
    }
}

/// Shares out with `range`, else with `uniform`; one set for each member, in their order.
pub(super) fn assign(assignor: &str, input: &Input<'_>) -> Vec<Partitions> {
    if input.members.is_empty() {
        return Vec::new();
    }
    match assignor {
        "range" => range::assign(input),
        _ if input.subscriptions.len() <= 1 => uniform::assign(input),
        _ => uneven::assign(input),
    }
}

#[cfg(test)]
mod tests;
