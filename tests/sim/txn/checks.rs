//! What is looked at on the way, and in the end: answers against the disk, readers against what was told.

use std::collections::{BTreeMap, BTreeSet};

use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{
    Ask as GroupAsk, Effect as GroupEffect, Effects as GroupEffects, FetchOffsets, Reply as GroupReply,
};
use oncilla_shards::ids::{Offset, PartitionKey};
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::slot_of;
use oncilla_shards::txn::{Outcome, Reply, Request as Control};

use super::edges::OFFSETS;
use super::logs::committed;
use super::messages::{GROUPS, PARTITIONS, SIDE, TOPIC, key};
use super::world::{Totals, World, node_of};

/// Rounds in which everything comes to its end, of 200 ms each.
const ROUNDS_MAX: usize = 400;

impl World {
    /// An answer of a coordinator to a client tells only what is durable.
    pub fn check_told(&mut self, asked: &Control, answer: &Result<Reply, ErrorCode>) {
        match (asked, answer) {
            (Control::End(end), Ok(Reply::Ended(_))) => {
                let last = self.truth.history.last_of(end.producer);
                let is_rotated = last.is_none() && end.outcome == Outcome::Abort;
                assert!(is_rotated || last == Some(end.outcome), "{end:?} is answered before it is decided: {last:?}");
            }
            (Control::End(end), Err(ErrorCode::InvalidTxnState)) if end.bumps && end.outcome == Outcome::Commit => {
                let is_aborted = self.truth.history.is_decided(end.producer, Outcome::Abort);
                assert!(is_aborted || !self.truth.is_acknowledged(end.producer), "I5: {end:?} is forgotten");
            }
            (Control::Init(_), Ok(Reply::Init(identity))) => {
                let fence = self.told_fences.entry(identity.producer_id).or_insert(0);
                *fence = (*fence).max(identity.epoch.0);
                self.totals.rotated += usize::from(identity.epoch.0 == 0);
            }
            _ => {}
        }
    }

    /// I3 on a partition that has moved.
    pub fn look_at(&mut self, key: PartitionKey) {
        let log = self.nodes[self.node_of_partition(key.index)].shard.partition(&key).expect("it is there");
        self.truth.stable_at(key.index, log.last_stable_offset(), log.high_watermark());
    }

    pub fn read(&mut self) {
        let index = self.rng.below(PARTITIONS as usize) as i32;
        let at = self.node_of_partition(index);
        let Some(log) = self.nodes[at].shard.partition(&key(index)) else { return };
        let stable = log.last_stable_offset();
        if stable > Offset(0) {
            let back = 1 + self.rng.below(80) as i64;
            let from = Offset((stable.0 - back).max(0));
            let bytes_max = [0, 300, 3_000, 100_000][self.rng.below(4)];
            self.read_from(index, from, stable, bytes_max);
        }
    }

    /// Reads once; the offset behind it.
    fn read_from(&mut self, index: i32, from: Offset, stable: Offset, bytes_max: usize) -> Offset {
        let at = self.node_of_partition(index);
        let log = self.nodes[at].shard.partition(&key(index)).expect("it is there");
        let chunks = self.logs.disk.fetch(key(index), log, from, stable, bytes_max);
        let (to, values) = committed(log, from, &chunks);
        assert!(to > from, "a reader makes progress");
        self.truth.saw(index, from.0, to.0, &values);
        to
    }

    /// Producers go away, and everything comes to its end: then all is read.
    pub fn finish(mut self) -> Totals {
        self.crash();
        self.now.wall.0 += 1_000_000;
        for client in 0..self.clients.len() {
            self.restart(client);
        }
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "everything comes to an end: {}", self.unrest());
            for _ in 0..4 {
                self.burst();
            }
            self.pass(200);
            if round > 40 && self.is_at_rest() {
                break;
            }
        }
        self.count_decisions();
        for index in 0..PARTITIONS {
            let log = self.nodes[self.node_of_partition(index)].shard.partition(&key(index)).expect("it is there");
            let (stable, end) = (log.last_stable_offset(), log.high_watermark());
            assert_eq!(stable, end, "I3: nothing is open, and partition {index} ends there");
            let mut from = Offset(0);
            while from < end {
                from = self.read_from(index, from, end, 10_000);
            }
        }
        self.look_at(key(SIDE));
        let offsets = self.committed_offsets();
        self.truth.check_all(&offsets);
        self.totals.offsets = offsets.len();
        for told in &self.truth.told {
            match told.verdict {
                Some(Outcome::Commit) => self.totals.committed += 1,
                Some(Outcome::Abort) => self.totals.aborted += 1,
                None => self.totals.unknown += usize::from(told.commits),
            }
        }
        self.totals
    }

    /// What keeps the world from its end.
    fn unrest(&self) -> String {
        let counts: Vec<_> = self.nodes.iter().map(|node| (node.accepts, node.txns.counts())).collect();
        let lanes: Vec<_> = self.lanes.iter().filter(|(_, lane)| !lane.is_empty()).collect();
        format!("{counts:?}, {:?}, {lanes:?}, {:?}, {:?}", self.waiting, self.gathered, self.fencing)
    }

    fn is_at_rest(&self) -> bool {
        self.waiting.is_empty()
            && self.lanes.values().all(|lane| lane.is_empty())
            && self.nodes.iter().all(|node| {
                let counts = node.txns.counts();
                (counts.open, counts.completing, counts.parked) == (0, 0, 0) && node.shard.opening.left() == 0
            })
    }

    /// Transactions whose offsets are committed. Each had a partition of its own, and all ids one for themselves.
    fn committed_offsets(&mut self) -> BTreeSet<usize> {
        let mut last: BTreeMap<usize, i64> = BTreeMap::new();
        let mut found = BTreeSet::new();
        for (group, name) in GROUPS.iter().enumerate() {
            for key in self.fetch_offsets(name) {
                if key.0.index >= OFFSETS {
                    let txn = (key.0.index - OFFSETS) as usize;
                    assert_eq!(self.truth.told[txn].name % GROUPS.len(), group);
                    found.insert(txn);
                } else {
                    last.insert(key.0.index as usize, key.1);
                }
            }
        }
        for (name, txn) in last {
            let newest = found.iter().filter(|txn| self.truth.told[**txn].name == name);
            let is_there = newest.copied().any(|of| of as i64 == txn);
            assert!(is_there, "I2: the offset of {name} is of {txn}, whose others are not there");
        }
        found
    }

    fn fetch_offsets(&mut self, group: &str) -> Vec<(PartitionKey, i64)> {
        let at = node_of(slot_of(group.as_bytes()));
        let keys: Vec<_> = (0..self.truth.told.len() as i32).map(|txn| OFFSETS + txn).chain(0..4).collect();
        let partitions = keys.into_iter().map(|index| PartitionKey { topic: TOPIC, index }).collect();
        let fetch =
            FetchOffsets { member_id: None, member_epoch: -1, require_stable: true, partitions: Some(partitions) };
        let mut effects = GroupEffects::new();
        let ask = GroupAsk::FetchOffsets(fetch);
        self.nodes[at].groups.ask(group, ask, WaiterId(u64::MAX), self.now, &self.image, &mut effects);
        let fetched = effects.into_iter().find_map(|effect| match effect {
            GroupEffect::Reply(_, Ok(GroupReply::FetchOffsets(fetched))) => Some(fetched),
            _ => None,
        });
        let fetched = fetched.expect("everything is durable in the end").partitions;
        for one in &fetched {
            assert_eq!(one.code, ErrorCode::None, "offsets of {group} are pending for ever: {:?}", one.key);
        }
        fetched.into_iter().filter(|one| one.offset >= 0).map(|one| (one.key, one.offset)).collect()
    }
}
