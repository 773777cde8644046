//! One OffsetCommit of one partition, from the request to its line in the journal, in a slot of 1, 100 and 10,000
//! groups.
//!
//! Goal: the same at every size, so that what a commit costs does not depend on who else commits. The groups are asked
//! in a scattered order; the largest slot pays for the caches that it misses, and for nothing else.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use oncilla_shards::groups::{Ask, Commit, CommitPartition, Effects, GroupSettings, Groups, Now};
use oncilla_shards::ids::{BrokerId, PartitionKey, SlotId, TimestampMs, TopicId};
use oncilla_shards::image::{BrokerSettings, Image};
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::{Journal, slot_of};

const SLOT: SlotId = SlotId(7);
const NOW: Now = Now { wall: TimestampMs(1_700_000_000_000), mono_ms: 0 };

/// Commits that one write of the journal carries.
const GROUP_COMMIT: u64 = 64;

/// Group ids of the slot.
fn names(count: usize) -> Vec<String> {
    let all = (0..).map(|n| format!("group-{n}"));
    all.filter(|name| slot_of(name.as_bytes()) == SLOT).take(count).collect()
}

fn commit(offset: i64) -> Ask {
    let key = PartitionKey { topic: TopicId(0x0123_4567_89ab_cdef), index: 3 };
    let partition = CommitPartition { key, offset, leader_epoch: 1, metadata: None };
    Ask::Commit(Commit {
        version: 9,
        generation: -1,
        retention_ms: -1,
        partitions: vec![partition],
        ..Commit::default()
    })
}

fn write(groups: &mut Groups, effects: &mut Effects) {
    let journal = groups.journal_mut(SLOT).expect("owned");
    while let Some(write) = journal.take_write() {
        journal.wrote();
        journal.reuse(write.bytes);
    }
    groups.settled(SLOT, effects);
}

fn commits(c: &mut Criterion) {
    let image = Image::new("c", BrokerId(0), 1, BrokerSettings::default());
    let mut bench = c.benchmark_group("offset_commit");
    for count in [1, 100, 10_000] {
        let names = names(count);
        let mut groups = Groups::new(GroupSettings::default());
        groups.insert(SLOT, Journal::default(), [], NOW);
        let mut effects = Effects::new();
        for name in &names {
            groups.ask(name, commit(0), WaiterId(0), NOW, &image, &mut effects);
        }
        write(&mut groups, &mut effects);
        assert_eq!(groups.list(&Default::default()).len(), count);
        let (mut at, mut offset) = (0, 0);
        bench.bench_function(count.to_string(), |b| {
            b.iter(|| {
                // No common factor with the number of groups.
                at = (at + 7919) % count;
                offset += 1;
                groups.ask(black_box(&names[at]), commit(offset), WaiterId(1), NOW, &image, &mut effects);
                if offset.unsigned_abs().is_multiple_of(GROUP_COMMIT) {
                    write(&mut groups, &mut effects);
                    effects.clear();
                }
            });
        });
    }
    bench.finish();
}

criterion_group!(benches, commits);
criterion_main!(benches);
