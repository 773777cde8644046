//! `uniform` where members subscribe to different topics (contract G13.4).
//!
//! What is still subscribed is kept; the rest goes to the subscriber with the least, topics with the most partitions
//! for each subscriber first; then partitions move until no subscriber of a topic has two more than another. A move
//! makes the shares more equal, so moving ends; the number of rounds is bounded all the same.

use std::collections::{BTreeMap, BTreeSet};

use super::Input;
use crate::groups::sets::Partitions;
use crate::ids::{PartitionKey, TopicId};
use crate::limits::ASSIGNOR_ROUNDS_MAX;

struct Shares<'a> {
    input: &'a Input<'a>,
    subscribers: BTreeMap<TopicId, Vec<usize>>,
    owner: BTreeMap<PartitionKey, usize>,
    loads: Vec<usize>,
}

pub(super) fn assign(input: &Input<'_>) -> Vec<Partitions> {
    let mut shares =
        Shares { input, subscribers: input.subscribers(), owner: BTreeMap::new(), loads: vec![0; input.members.len()] };
    shares.keep();
    let mut order: Vec<TopicId> = shares.subscribers.keys().copied().collect();
    order.sort_by(|a, b| shares.density(*b).total_cmp(&shares.density(*a)).then(a.cmp(b)));
    for topic in &order {
        shares.give(*topic);
    }
    for _ in 0..ASSIGNOR_ROUNDS_MAX {
        // Every topic has its turn in every round.
        let moved = order.iter().filter(|topic| shares.level(**topic)).count();
        if moved == 0 {
            break;
        }
    }
    let mut all = vec![Partitions::default(); input.members.len()];
    shares.owner.iter().for_each(|(key, at)| _ = all[*at].insert(*key));
    all
}

impl Shares<'_> {
    fn density(&self, topic: TopicId) -> f64 {
        f64::from(self.input.partitions(topic)) / self.subscribers[&topic].len() as f64
    }

    fn keep(&mut self) {
        for (at, member) in self.input.members.iter().enumerate() {
            let subscribed = self.input.subscription(at);
            for key in member.had.iter() {
                let wanted = subscribed.binary_search(&key.topic).is_ok() && self.input.exists(key);
                if wanted && !self.owner.contains_key(&key) {
                    self.owner.insert(key, at);
                    self.loads[at] += 1;
                }
            }
        }
    }

    /// Gives the free partitions of a topic away.
    fn give(&mut self, topic: TopicId) {
        let mut least: BTreeSet<_> = self.subscribers[&topic].iter().map(|at| (self.loads[*at], *at)).collect();
        for index in 0..self.input.partitions(topic) {
            let key = PartitionKey { topic, index };
            if self.owner.contains_key(&key) {
                continue;
            }
            let (load, at) = least.pop_first().expect("a topic is here because of a subscriber");
            least.insert((load + 1, at));
            self.loads[at] = load + 1;
            self.owner.insert(key, at);
        }
    }

    /// Evens the shares of a topic's subscribers out, as far as its own partitions allow. Whether anything moved.
    fn level(&mut self, topic: TopicId) -> bool {
        let mut least: BTreeSet<_> = self.subscribers[&topic].iter().map(|at| (self.loads[*at], *at)).collect();
        let mut theirs: BTreeMap<usize, Vec<PartitionKey>> = BTreeMap::new();
        let (first, last) = (PartitionKey { topic, index: 0 }, PartitionKey { topic, index: i32::MAX });
        self.owner.range(first..=last).for_each(|(key, at)| theirs.entry(*at).or_default().push(*key));
        let mut owners: BTreeSet<_> = theirs.keys().map(|at| (self.loads[*at], *at)).collect();
        let mut moved = false;
        while let Some((most, from)) = owners.last().copied() {
            let (fewest, to) = *least.first().expect("an owner is a subscriber");
            if most < fewest + 2 {
                break;
            }
            moved = true;
            let key = theirs.get_mut(&from).and_then(Vec::pop).expect("an owner has one");
            self.owner.insert(key, to);
            theirs.entry(to).or_default().push(key);
            for (at, load) in [(from, most), (to, fewest)] {
                least.remove(&(load, at));
                owners.remove(&(load, at));
            }
            for (at, load) in [(from, most - 1), (to, fewest + 1)] {
                self.loads[at] = load;
                least.insert((load, at));
                if !theirs[&at].is_empty() {
                    owners.insert((load, at));
                }
            }
        }
        moved
    }
}
