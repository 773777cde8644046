//! What each member is to have (contract G12.1, G12.2, G13.1).
//!
//! Computed for all members at the next heartbeat or join after the group epoch was raised, at most once in
//! `group.consumer.assignment.interval.ms`. There is no timer: without heartbeats nothing happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::Consumer;
use crate::groups::GroupSettings;
use crate::groups::assignor::{self, Input, Subscriber};
use crate::groups::turn::Turn;
use crate::ids::TopicId;
use crate::image::Image;

impl Consumer {
    /// Raises the group epoch, if asked to, or if topics that members want are others than before.
    pub(in crate::groups) fn refresh_topics(&mut self, raise: bool, image: &Image) {
        if !raise && self.wanted.compared == Some(image.version) {
            return;
        }
        let topics = self.wanted.fingerprint(image);
        if raise || topics != self.head.topics {
            self.head.epoch += 1;
            self.head.topics = topics;
        }
        self.wanted.compared = Some(image.version);
    }

    /// Computes new targets, if the group epoch is ahead of theirs and it is time.
    pub(super) fn update_targets(&mut self, turn: &Turn<'_>) {
        if self.head.epoch <= self.head.assignment_epoch {
            return;
        }
        let interval_ms = u64::try_from(turn.settings.consumer_assignment_interval_ms).unwrap_or(0);
        let now_ms = turn.now.mono_ms;
        if self.assigned_at_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < interval_ms) {
            return;
        }
        for (id, target) in self.targets(turn) {
            if self.members[&id].target != target {
                self.put_target(&id, target);
            }
        }
        self.head.assignment_epoch = self.head.epoch;
        self.assigned_at_ms = Some(now_ms);
    }

    fn targets(&self, turn: &Turn<'_>) -> Vec<(Arc<str>, crate::groups::sets::Partitions)> {
        // Members with the same names and expression share one list of topics.
        let mut lists: Vec<Vec<TopicId>> = Vec::new();
        let mut by_said: HashMap<_, usize, FixedState> = HashMap::default();
        let mut by_list: BTreeMap<Vec<TopicId>, usize> = BTreeMap::new();
        let mut members = Vec::with_capacity(self.members.len());
        for (id, member) in &self.members {
            let about = &member.about;
            let subscription = *by_said.entry((&about.topics, &about.regex)).or_insert_with(|| {
                let list = self.wanted.of(about, turn.image);
                *by_list.entry(list).or_insert_with_key(|list| {
                    lists.push(list.clone());
                    lists.len() - 1
                })
            });
            members.push(Subscriber {
                id,
                instance_id: about.instance_id.as_deref(),
                subscription,
                had: &member.target,
            });
        }
        let topics = self.wanted.all(turn.image);
        let input = Input { topics: &topics, subscriptions: &lists, members: &members };
        let targets = assignor::assign(self.assignor(turn.settings), &input);
        self.members.keys().cloned().zip(targets).collect()
    }

    /// The assignor that most members name; if none names one, the first of the settings. A tie goes to the one that
    /// stands first there.
    pub(super) fn assignor<'a>(&self, settings: &'a GroupSettings) -> &'a str {
        let named =
            |name: &str| self.members.values().filter(|member| member.about.assignor.as_deref() == Some(name)).count();
        let most = settings.consumer_assignors.iter().rev().max_by_key(|name| named(name));
        most.map_or("uniform", String::as_str)
    }
}
