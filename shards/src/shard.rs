//! One core's partitions, and what they share: the tail cache's memory and the fetch sessions.
//!
//! Owned by the shard's thread. Every method decides and returns; what has to happen outside goes into [`Effects`], in
//! the order in which it must be carried out. Limits: the tail cache's bytes (the oldest write of any partition leaves
//! first) and the session slots. The edges and the simulator drive it with the same calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::code::ErrorCode;
use crate::ids::{Offset, PartitionKey, TimestampMs};
use crate::limits::{TXN_LOOK_OPEN_MAX, TXN_LOOK_PARTITIONS_MAX};
use crate::opening::Opening;
use crate::partition::{
    Append, EndMarker, MarkerRefusal, Partition, Placed, Progress, Refusal, Segment, SegmentId, WaiterId, WatchId,
    WritePlan,
};
use crate::producers::{Permit, Verify};
use crate::session::Sessions;
use crate::txn::{Adopt, Identity, OpenTxn};

/// What has to happen outside.
#[derive(Debug)]
pub enum Effect {
    /// The partition has something to write and no writer runs: start one.
    StartWriter(PartitionKey),
    /// An append is durable, or never will be.
    Settled(WaiterId, Result<(), ErrorCode>),
    /// There is something new to read, or the partition is gone.
    Wake(WatchId),
    /// The producers' state as of an offset that is durable; worth a file.
    Snapshot(PartitionKey, Offset, Vec<u8>),
}

/// Effects in the order in which they must be carried out.
pub type Effects = Vec<Effect>;

/// A batch as a client sent it.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// Its bytes.
    pub records: &'a Bytes,
    /// Version of the Produce request.
    pub api_version: i16,
    /// What it has for a transaction; [`Permit::Unchecked`] for a batch of none.
    pub permit: Permit,
}

impl<'a> Sent<'a> {
    /// A batch that nobody has to verify.
    #[must_use]
    pub fn unchecked(records: &'a Bytes, api_version: i16) -> Self {
        Self { records, api_version, permit: Permit::Unchecked }
    }
}

/// Answer to one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Refused, nothing changed.
    Refused(Box<Refusal>),
    /// Durable already: a duplicate of an old batch.
    Durable(Placed),
    /// [`Effect::Settled`] follows for the waiter.
    Waiting(Placed),
}

/// The core of one shard.
#[derive(Debug)]
pub struct Shard {
    partitions: HashMap<PartitionKey, Partition, FixedState>,
    /// The partitions in an order in which a look goes through them a few at a time.
    order: BTreeSet<PartitionKey>,
    tail_order: VecDeque<PartitionKey>,
    tail_bytes: usize,
    tail_bytes_max: usize,
    /// Partitions of relaxed topics that were written since they were looked at last.
    relaxed: BTreeSet<PartitionKey>,
    /// Fetch sessions of this shard's connections.
    pub sessions: Sessions,
    /// Partitions that are not open yet.
    pub opening: Opening,
}

impl Shard {
    /// A shard without partitions.
    #[must_use]
    pub fn new(tail_bytes_max: usize, sessions: Sessions) -> Self {
        Self {
            partitions: HashMap::default(),
            order: BTreeSet::new(),
            tail_order: VecDeque::new(),
            tail_bytes: 0,
            tail_bytes_max,
            relaxed: BTreeSet::new(),
            sessions,
            opening: Opening::default(),
        }
    }

    /// Takes over a partition.
    pub fn insert(&mut self, key: PartitionKey, mut partition: Partition) {
        assert!(!self.opening.knows(&key), "{key} is on the disk: what is there must not be served as empty");
        partition.begin_with(self.opening.take_refused(&key));
        let before = self.partitions.insert(key, partition);
        assert!(before.is_none(), "{key} has one owner");
        self.order.insert(key);
    }

    /// Gives up a partition; whoever waits on it is told.
    pub fn remove(&mut self, key: &PartitionKey, effects: &mut Effects) -> Option<Partition> {
        self.opening.forget(key);
        let mut partition = self.partitions.remove(key)?;
        self.order.remove(key);
        self.tail_bytes -= partition.clear_tail();
        self.tail_order.retain(|entry| entry != key);
        let progress = partition.fail();
        for (waiter, _) in progress.done {
            effects.push(Effect::Settled(waiter, Err(ErrorCode::UnknownTopicOrPartition)));
        }
        effects.extend(progress.wake.into_iter().map(Effect::Wake));
        Some(partition)
    }

    /// A partition, if this shard owns it and it is open.
    #[must_use]
    pub fn partition(&self, key: &PartitionKey) -> Option<&Partition> {
        self.partitions.get(key)
    }

    /// A partition that somebody asks for.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION if this shard does not own it; as [`Opening::code`] if it is not open yet.
    pub fn asked(&self, key: &PartitionKey) -> Result<&Partition, ErrorCode> {
        self.partitions.get(key).ok_or_else(|| self.opening.code(key))
    }

    /// A partition, if this shard owns it and it is open.
    pub fn partition_mut(&mut self, key: &PartitionKey) -> Option<&mut Partition> {
        self.partitions.get_mut(key)
    }

    /// Keys of all partitions, ascending.
    #[must_use]
    pub fn keys(&self) -> Vec<PartitionKey> {
        self.order.iter().copied().collect()
    }

    /// What a batch needs before its append (contract A4); `adds` as with [`Partition::verify`].
    pub fn verify(&mut self, key: &PartitionKey, records: &[u8], adds: bool, now: TimestampMs) -> Verify {
        match self.partitions.get_mut(key) {
            Some(partition) => partition.verify(records, adds, now),
            None => Verify::Refuse(self.opening.refuse(key, records)),
        }
    }

    /// Decides about one batch; with a waiter, [`Effect::Settled`] follows unless the answer is there at once.
    pub fn append(
        &mut self,
        key: &PartitionKey,
        sent: Sent<'_>,
        now: TimestampMs,
        waiter: Option<WaiterId>,
        effects: &mut Effects,
    ) -> Appended {
        let Some(partition) = self.partitions.get_mut(key) else {
            return Appended::Refused(Box::new(Refusal::code(self.opening.refuse(key, sent.records), false)));
        };
        let placed = match partition.append(sent.records, sent.api_version, sent.permit, now) {
            Append::Refused(refusal) => return Appended::Refused(refusal),
            Append::Accepted(placed) => placed,
        };
        if partition.take_writer() {
            effects.push(Effect::StartWriter(*key));
        }
        if partition.is_durable(placed.end) {
            return Appended::Durable(placed);
        }
        if let Some(waiter) = waiter {
            partition.wait(placed.end, waiter);
        }
        Appended::Waiting(placed)
    }

    /// Ends a producer's transaction on a partition (contract A6); [`Effect::Settled`] follows for the waiter when the
    /// marker is durable.
    pub fn append_marker(
        &mut self,
        key: &PartitionKey,
        marker: &EndMarker,
        now: TimestampMs,
        waiter: WaiterId,
        effects: &mut Effects,
    ) -> Result<Placed, MarkerRefusal> {
        let absent = || MarkerRefusal::code(self.opening.code(key));
        let partition = self.partitions.get_mut(key).ok_or_else(absent)?;
        let placed = partition.append_marker(marker, now)?;
        if partition.take_writer() {
            effects.push(Effect::StartWriter(*key));
        }
        partition.wait(placed.end, waiter);
        Ok(placed)
    }

    /// A batch was written before its add was durable, and never will it be: what is open is in doubt, so that no batch
    /// that follows is acknowledged without its coordinator (A4 c does not hold).
    pub fn doubt(&mut self, key: &PartitionKey, producer: Identity) {
        if let Some(partition) = self.partitions.get_mut(key) {
            partition.doubt(producer);
        }
    }

    /// The open transactions that no coordinator has confirmed, for the reconcile of a start.
    #[must_use]
    pub fn doubted(&self) -> Vec<Adopt> {
        let mut found: BTreeMap<Identity, Vec<PartitionKey>> = BTreeMap::new();
        for (key, partition) in &self.partitions {
            for (producer_id, epoch) in partition.doubted() {
                found.entry(Identity { producer_id, epoch }).or_default().push(*key);
            }
        }
        let adopt = |(producer, mut partitions): (Identity, Vec<PartitionKey>)| {
            partitions.sort_unstable();
            Adopt { producer, partitions, groups: Vec::new(), seen: None }
        };
        found.into_iter().map(adopt).collect()
    }

    /// A coordinator has adopted what [`Shard::doubted`] told: it will end it. What it gave up is ended by a marker.
    pub fn adopted(&mut self, adopt: &Adopt) {
        for key in &adopt.partitions {
            if let Some(partition) = self.partitions.get_mut(key) {
                partition.confirm(adopt.producer.producer_id);
            }
        }
    }

    /// Takes the next look at what is open for long, in some of the partitions behind `after`: what was open at the
    /// look before this one, and the partition to go on behind, if there are more.
    pub fn look(&mut self, after: Option<PartitionKey>) -> (Vec<OpenTxn>, Option<PartitionKey>) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut found, mut last) = (Vec::new(), None);
        for (seen, key) in self.order.range((from, Bound::Unbounded)).enumerate() {
            if seen == TXN_LOOK_PARTITIONS_MAX || found.len() >= TXN_LOOK_OPEN_MAX {
                return (found, last);
            }
            last = Some(*key);
            let partition = self.partitions.get_mut(key).expect("both know it");
            found.extend(partition.look(*key, TXN_LOOK_OPEN_MAX));
        }
        (found, None)
    }

    /// Whether a transaction is still the one that was looked at, and has no more records.
    #[must_use]
    pub fn is_still_open(&self, open: &OpenTxn) -> bool {
        self.partitions.get(&open.partition).is_some_and(|partition| partition.is_still_open(open))
    }

    /// The next write of a partition; `None` ends its writer.
    pub fn take_write(&mut self, key: &PartitionKey, now: TimestampMs) -> Option<WritePlan> {
        let plan = self.partitions.get_mut(key)?.take_write(now);
        if plan.as_ref().is_some_and(|plan| !plan.durable) {
            self.relaxed.insert(*key);
        }
        plan
    }

    /// A write of a partition is durable. `None` if the partition was given up meanwhile.
    pub fn wrote(&mut self, key: &PartitionKey, stored: Bytes, buffer_bytes: usize, effects: &mut Effects) {
        let Some(partition) = self.partitions.get_mut(key) else { return };
        let progress = partition.wrote(stored, buffer_bytes);
        self.tail_bytes += progress.cached_bytes;
        self.tail_order.push_back(*key);
        settle(*key, progress, effects);
        self.evict();
    }

    /// A write or sync of a partition failed.
    pub fn write_failed(&mut self, key: &PartitionKey, effects: &mut Effects) {
        if let Some(partition) = self.partitions.get_mut(key) {
            settle(*key, partition.fail(), effects);
        }
    }

    /// Partitions of relaxed topics whose written records have to be made durable now.
    pub fn take_flushes(&mut self, now: TimestampMs) -> Vec<PartitionKey> {
        let mut due = Vec::new();
        self.relaxed.retain(|key| {
            let Some(partition) = self.partitions.get_mut(key) else { return false };
            if partition.take_flush(now) {
                due.push(*key);
            }
            partition.has_unflushed()
        });
        due
    }

    fn evict(&mut self) {
        while self.tail_bytes > self.tail_bytes_max {
            let Some(key) = self.tail_order.pop_front() else { break };
            if let Some(partition) = self.partitions.get_mut(&key) {
                self.tail_bytes -= partition.evict_tail();
            }
        }
    }

    /// Moves a log start that is durable as such; returns the segments whose files may go.
    pub fn set_log_start(&mut self, key: &PartitionKey, start: Offset, effects: &mut Effects) -> Vec<SegmentId> {
        let Some(partition) = self.partitions.get_mut(key) else { return Vec::new() };
        let dropped = partition.set_log_start(start);
        // A session tells a moved log start, so parked readers look again.
        effects.extend(partition.take_watches().into_iter().map(Effect::Wake));
        dropped
    }

    /// A cleaned segment has taken the place of its sources on the disk; says whether it did here too, which it does
    /// not when the log start has passed it or the partition is gone.
    pub fn cleaned(&mut self, key: &PartitionKey, sources: &[SegmentId], segment: Segment) -> bool {
        let Some(partition) = self.partitions.get_mut(key) else { return false };
        let end = segment.next_offset();
        let is_in_place = partition.cleaned(sources, segment);
        // What was cleaned away must not be read from memory when it is gone from the disk.
        let (mut count, charge) = partition.drop_tail_below(end);
        self.tail_bytes -= charge;
        self.tail_order.retain(|entry| {
            let is_dropped = count > 0 && entry == key;
            count -= usize::from(is_dropped);
            !is_dropped
        });
        is_in_place
    }

    /// Bytes of the tail cache.
    #[must_use]
    pub fn tail_bytes(&self) -> usize {
        self.tail_bytes
    }

    /// Number of partitions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Whether it owns nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }
}

fn settle(key: PartitionKey, progress: Progress, effects: &mut Effects) {
    effects.extend(progress.done.into_iter().map(|(waiter, result)| Effect::Settled(waiter, result)));
    effects.extend(progress.wake.into_iter().map(Effect::Wake));
    if let Some((offset, bytes)) = progress.snapshot {
        effects.push(Effect::Snapshot(key, offset, bytes));
    }
}

#[cfg(test)]
#[path = "shard_tests.rs"]
mod tests;
