//! Numbers of groups for the metrics page: what each has committed, and how far it is behind.
//!
//! The shard that owns a group looks every few seconds, asks the owners of the partitions where they end, and leaves
//! the result where the page finds it; the page never waits for a shard, and sees numbers as old as the last look.
//! Limits: `metrics.groups.max` groups of the broker, the first by name, and `limits::METRICS_OFFSETS_MAX` partitions;
//! what is left out is counted.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncilla_shards::groups::Overview;
use oncilla_shards::ids::{PartitionKey, ShardId};
use oncilla_shards::image::Image;
use oncilla_shards::limits::{METRICS_GROUPS_PERIOD_MS, METRICS_OFFSETS_MAX};

use crate::ctx::Ctx;
use crate::rt::{sleep, spawn};

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRow {
    /// Its id.
    pub group: String,
    /// Its members.
    pub members: usize,
    /// Topics with a committed offset.
    pub topics: usize,
    /// Records behind, in the partition that is furthest behind and in all.
    pub lag: Option<Lag>,
    /// Topic, partition, offset.
    pub committed: Vec<(Arc<str>, i32, i64)>,
    /// Committed offsets that have no room there.
    pub offsets_left_out: usize,
}

/// How far a group is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// In the partition that is furthest behind.
    pub max: u64,
    /// In all partitions.
    pub sum: u64,
}

/// What one look at a shard found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRows {
    /// The groups that are told, by name.
    pub rows: Vec<GroupRow>,
    /// Groups of the shard.
    pub total: usize,
    /// How many groups of the broker may be told.
    pub groups_max: usize,
}

/// Where the shard leaves what it found. Held for the time that it takes to replace or copy a pointer.
#[derive(Debug, Default)]
pub struct GroupBoard(Mutex<Arc<GroupRows>>);

impl GroupBoard {
    /// Replaces what is there.
    pub fn put(&self, rows: GroupRows) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(rows);
    }

    /// What is there.
    pub fn get(&self) -> Arc<GroupRows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Looks at the groups of a shard again and again. Without a page nobody would see it, so nothing is done.
pub fn start(ctx: &Rc<Ctx>) {
    if ctx.config.http_listen.is_none() {
        return;
    }
    let ctx = ctx.clone();
    spawn(async move {
        while !ctx.stopping.get() {
            sleep(Duration::from_millis(METRICS_GROUPS_PERIOD_MS)).await;
            look(&ctx).await;
        }
    });
}

async fn look(ctx: &Rc<Ctx>) {
    let groups_max = ctx.config.metrics_groups_max;
    ctx.metrics.group_rebalances.store(ctx.groups.rebalances());
    let (groups, total) = ctx.groups.overview(groups_max);
    let image = ctx.image();
    let mut wanted: BTreeMap<ShardId, Vec<PartitionKey>> = BTreeMap::new();
    for (key, _) in groups.iter().flat_map(|group| &group.offsets) {
        if let Some(topic) = image.topic_by_id(key.topic).filter(|topic| topic.has(key.index)) {
            wanted.entry(image.owner(topic, key.index)).or_default().push(*key);
        }
    }
    let mut ends = BTreeMap::new();
    for (owner, mut keys) in wanted {
        keys.sort_unstable();
        keys.dedup();
        let found = ctx.call(owner, async move |ctx: Rc<Ctx>| {
            let end = |key| Some((key, ctx.partition_view(&key)?.end.0));
            keys.into_iter().filter_map(end).collect::<Vec<_>>()
        });
        ends.extend(found.await);
    }
    let rows = rows(groups, &image, &ends);
    ctx.metrics.groups.put(GroupRows { rows, total, groups_max });
}

fn rows(groups: Vec<Overview>, image: &Image, ends: &BTreeMap<PartitionKey, i64>) -> Vec<GroupRow> {
    let mut room = METRICS_OFFSETS_MAX;
    let row = |Overview { group, members, offsets }: Overview| {
        let mut row = GroupRow { group, members, ..GroupRow::default() };
        let mut last = None;
        for (key, offset) in offsets {
            let Some(topic) = image.topic_by_id(key.topic) else { continue };
            if last.replace(key.topic) != Some(key.topic) {
                row.topics += 1;
            }
            if let Some(end) = ends.get(&key) {
                let behind = u64::try_from(end.saturating_sub(offset)).unwrap_or(0);
                let lag = row.lag.get_or_insert_default();
                lag.max = lag.max.max(behind);
                lag.sum = lag.sum.saturating_add(behind);
            }
            if room == 0 {
                row.offsets_left_out += 1;
            } else {
                room -= 1;
                row.committed.push((topic.name.clone(), key.index, offset));
            }
        }
        row
    };
    groups.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use oncilla_shards::groups::{Ask, Commit, CommitPartition};

    use super::*;
    use crate::api::testing;
    use crate::groups::ask;

    #[test]
    fn a_look_leaves_lag_and_offsets_of_what_is_committed() {
        let (ctx, _dir) = testing::ctx();
        testing::create_topic(&ctx, "t", 2);
        let topic = ctx.image().topic("t").expect("created").id;
        let key = |index| PartitionKey { topic, index };
        let partition = |index, offset| CommitPartition { key: key(index), offset, leader_epoch: -1, metadata: None };
        let partitions = vec![partition(0, 0), partition(1, 7)];
        let commit = Commit { version: 9, generation: -1, retention_ms: -1, partitions, ..Commit::default() };
        testing::block_on(ask(&ctx, "g", Ask::Commit(commit))).expect("accepted");
        testing::block_on(look(&ctx));
        let found = ctx.metrics.groups.get();
        assert_eq!((found.total, found.rows.len()), (1, 1));
        let row = &found.rows[0];
        assert_eq!((row.group.as_str(), row.members, row.topics), ("g", 0, 1));
        assert_eq!(row.committed, [("t".into(), 0, 0), ("t".into(), 1, 7)]);
    }

    #[test]
    fn lag_is_what_lies_between_the_offset_and_the_end_and_never_negative() {
        let (ctx, _dir) = testing::ctx();
        testing::create_topic(&ctx, "t", 3);
        let image = ctx.image();
        let topic = image.topic("t").expect("created").id;
        let key = |index| PartitionKey { topic, index };
        let offsets = vec![(key(0), 2), (key(1), -1), (key(2), 50)];
        let groups = vec![
            Overview { group: "g".into(), members: 3, offsets },
            Overview { group: "new".into(), members: 1, offsets: vec![] },
        ];
        let rows = rows(groups, &image, &BTreeMap::from([(key(0), 10), (key(1), 3), (key(2), 40)]));
        assert_eq!((rows[0].lag, rows[0].topics), (Some(Lag { max: 8, sum: 12 }), 1));
        assert_eq!((rows[1].lag, rows[1].members), (None, 1), "nothing committed is no lag of 0");
    }
}
