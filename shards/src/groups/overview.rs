//! What metrics tell of groups: a bounded number of them, because each makes series of its own.

use super::group::Group;
use super::slot::Slot;
use super::{Groups, Members};
use crate::ids::PartitionKey;

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// Its id.
    pub group: String,
    /// How many members it has.
    pub members: usize,
    /// What it has committed, by topic id and index.
    pub offsets: Vec<(PartitionKey, i64)>,
}

impl Overview {
    pub(super) fn of(group: &Group) -> Self {
        let members = match &group.members {
            Members::Classic(classic) => classic.describe().members.len(),
            Members::Consumer(consumer) => consumer.members.len(),
        };
        Self { group: group.name().to_string(), members, offsets: group.offsets.committed_offsets().collect() }
    }
}

impl Groups {
    /// The first `groups_max` groups by name, so that the same ones are told each time, and how many there are in all.
    #[must_use]
    pub fn overview(&self, groups_max: usize) -> (Vec<Overview>, usize) {
        let mut all: Vec<&Group> = self.slots.values().flat_map(Slot::groups).collect();
        let total = all.len();
        if groups_max < total {
            all.select_nth_unstable_by(groups_max, |a, b| a.name().cmp(b.name()));
            all.truncate(groups_max);
        }
        all.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        (all.into_iter().map(Overview::of).collect(), total)
    }

    /// Rebalances of all groups since the start.
    #[must_use]
    pub fn rebalances(&self) -> u64 {
        self.slots.values().map(|slot| slot.rebalances).sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::groups::{Ask, Commit, CommitPartition, ConsumerHeartbeat, GroupSettings, Groups, Now};
    use crate::ids::{BrokerId, PartitionKey, SlotId, TimestampMs, TopicId};
    use crate::image::{BrokerSettings, Image};
    use crate::limits::SLOTS;
    use crate::partition::WaiterId;
    use crate::slot::Journal;

    #[test]
    fn the_first_groups_by_name_are_told_and_all_are_counted() {
        let now = Now { wall: TimestampMs(0), mono_ms: 0 };
        let image = Image::new("c", BrokerId(0), 1, BrokerSettings::default());
        let mut groups = Groups::new(GroupSettings::default());
        (0..SLOTS).for_each(|slot| groups.insert(SlotId(slot), Journal::default(), [], now));
        let key = PartitionKey { topic: TopicId(1), index: 2 };
        for n in (0..20).rev() {
            let partition = CommitPartition { key, offset: n, leader_epoch: -1, metadata: None };
            let partitions = vec![partition];
            let commit = Commit { version: 9, generation: -1, retention_ms: -1, partitions, ..Commit::default() };
            groups.ask(&format!("g{n:02}"), Ask::Commit(commit), WaiterId(0), now, &image, &mut Vec::new());
        }
        let (told, total) = groups.overview(3);
        assert_eq!(total, 20);
        let told: Vec<_> = told.into_iter().map(|one| (one.group, one.members, one.offsets)).collect();
        let expected: Vec<_> = (0..3).map(|n| (format!("g{n:02}"), 0, vec![(key, n)])).collect();
        assert_eq!(told, expected);
        assert_eq!(groups.overview(20).0.len(), 20);
        assert_eq!(groups.overview(0).0.len(), 0);
    }

    #[test]
    fn a_member_that_joins_is_a_rebalance_and_a_commit_or_a_heartbeat_is_none() {
        let now = Now { wall: TimestampMs(0), mono_ms: 0 };
        let image = Image::new("c", BrokerId(0), 1, BrokerSettings::default());
        let mut groups = Groups::new(GroupSettings::default());
        (0..SLOTS).for_each(|slot| groups.insert(SlotId(slot), Journal::default(), [], now));
        let beat = |member_epoch| ConsumerHeartbeat {
            version: 1,
            member_id: "m".into(),
            member_epoch,
            rebalance_timeout_ms: 1000,
            topics: Some(vec!["t".into()]),
            owned: Some(vec![]),
            ..ConsumerHeartbeat::default()
        };
        let mut after = |group: &str, ask: Ask| {
            groups.ask(group, ask, WaiterId(0), now, &image, &mut Vec::new());
            groups.rebalances()
        };
        let key = PartitionKey { topic: TopicId(1), index: 2 };
        let partitions = vec![CommitPartition { key, offset: 1, leader_epoch: -1, metadata: None }];
        let commit = Commit { version: 9, generation: -1, retention_ms: -1, partitions, ..Commit::default() };
        assert_eq!(after("simple", Ask::Commit(commit)), 0);
        assert_eq!(after("g", Ask::ConsumerHeartbeat(beat(0))), 1);
        assert_eq!(after("g", Ask::ConsumerHeartbeat(beat(2))), 1);
        assert_eq!(after("g", Ask::ConsumerHeartbeat(ConsumerHeartbeat { topics: None, owned: None, ..beat(-1) })), 2);
    }
}
