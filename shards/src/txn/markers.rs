//! Markers of a decided transaction: where they go, what is still missing, and what an answer means (contract B7).
//!
//! A [`Dispatch`] lives from the moment Prepare* is durable until Complete* is recorded. What it holds is derived from
//! the id's durable members, so a start makes it anew. All markers that are due on one shard in one turn leave as one
//! [`MarkerBatch`]: one message and one durable write. Groups follow when every partition has its marker: offsets that
//! are visible before the records they stand for would let a reader skip them.
//! Failure: retriable answers send again, after `MARKER_RETRY_MS`; nothing but an answer, or a deleted topic, takes a
//! member off. A shard answers every marker that it was sent, so its silence is waited out: a second copy on its way
//! could arrive when the next transaction of path A is open at the same epoch. Another broker can be lost with what it
//! was sent; its file is queued again after `request.timeout.ms`, under the same name, which tells the copies apart.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Now;
use super::ask::{Identity, Outcome};
use super::state::{EPOCH_LAST, Head, Members};
use super::turn::Turn;
use crate::code::ErrorCode;
use crate::ids::{BrokerId, PartitionKey, ProducerEpoch, ProducerId, ShardId};
use crate::image::Image;
use crate::limits::MARKER_RETRY_MS;
use crate::slot::{owner, slot_of};

/// Where a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a shard of this broker.
    Shard(ShardId),
    /// On another broker.
    Broker(BrokerId),
    /// Nobody has it now: its marker waits (B11.1).
    Nowhere,
    /// Its topic is deleted, or never had it: there is nothing to mark.
    Gone,
}

/// Knows where partitions and groups are.
pub trait Places: fmt::Debug {
    /// Where a partition is.
    fn partition(&self, key: PartitionKey) -> Place;
    /// Which shard of this broker has a group's offsets.
    fn group(&self, group: &str) -> ShardId;
}

impl Places for Image {
    fn partition(&self, key: PartitionKey) -> Place {
        match self.topic_by_id(key.topic) {
            Some(topic) if topic.has(key.index) => Place::Shard(self.owner(topic, key.index)),
            _ => Place::Gone,
        }
    }

    fn group(&self, group: &str) -> ShardId {
        owner(slot_of(group.as_bytes()), self.shards)
    }
}

/// Which transaction of which id: the sequence tells it from the next one at the same epoch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnKey {
    /// The transactional id.
    pub id: Arc<str>,
    /// Its how-manieth transaction.
    pub sequence: u64,
}

/// The end of one transaction at some partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Of which transaction.
    pub txn: TxnKey,
    /// Producer id and epoch of the marker.
    pub producer: Identity,
    /// Commit or abort.
    pub outcome: Outcome,
    /// Epoch of the coordinator.
    pub coordinator_epoch: i32,
    /// TransactionVersion of contract A6: 2 for path B, else 0.
    pub version: i8,
    /// Where it is to be written.
    pub partitions: Vec<PartitionKey>,
}

/// All markers that are due on one shard: to be written by one durable write for each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerBatch {
    /// The shard.
    pub to: ShardId,
    /// By transaction.
    pub markers: Vec<Marker>,
}

/// A marker for partitions of another broker, which goes there as a file of its marker queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerFile {
    /// The broker.
    pub to: BrokerId,
    /// The marker.
    pub marker: Marker,
}

impl MarkerFile {
    /// Name of the file within the queue. Producer id and epoch alone come again with the next transaction of path A.
    #[must_use]
    pub fn name(&self) -> String {
        let Identity { producer_id, epoch } = self.marker.producer;
        format!("{producer_id}-{epoch}-{}.json", self.marker.txn.sequence)
    }
}

/// The end of one transaction for the pending offsets of some groups (contract C3). As for partitions, with version 2
/// what is pending at the marker's own epoch is of the next transaction and stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsHook {
    /// Shard of the groups.
    pub to: ShardId,
    /// Of which transaction.
    pub txn: TxnKey,
    /// Producer id and epoch of the marker.
    pub producer: Identity,
    /// Commit or abort.
    pub outcome: Outcome,
    /// TransactionVersion of contract A6: 2 for path B, else 0.
    pub version: i8,
    /// The groups.
    pub groups: Vec<Arc<str>>,
}

/// Whether a marker ends what its producer has pending at `epoch`. With version 2 what is at the marker's own epoch is
/// of the next transaction, but for the last epoch there is: behind it the producer id is another one (contract A6.1).
#[must_use]
pub fn ends(marker: ProducerEpoch, version: i8, epoch: ProducerEpoch) -> bool {
    epoch < marker || epoch == marker && (version < 2 || marker.0 == EPOCH_LAST)
}

/// What became of a marker at one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerAnswer {
    /// The partition.
    pub partition: PartitionKey,
    /// NONE once the marker is durable there.
    pub code: ErrorCode,
    /// With TRANSACTION_COORDINATOR_FENCED: the coordinator epoch that the partition has, else ignored.
    pub coordinator_epoch: i32,
}

/// What still has to be told, and when to say it (again).
#[derive(Debug)]
pub(super) struct Dispatch {
    txn: TxnKey,
    producer: Identity,
    outcome: Outcome,
    version: i8,
    coordinator_epoch: i32,
    partitions: BTreeMap<PartitionKey, u64>,
    groups: BTreeMap<Arc<str>, u64>,
    /// Not later than anything in it is due.
    due_ms: u64,
}

impl Dispatch {
    pub fn new(id: &Arc<str>, head: &Head, members: &Members, coordinator_epoch: i32) -> Self {
        Self {
            txn: TxnKey { id: id.clone(), sequence: head.sequence },
            producer: head.identity(),
            outcome: head.state.completing().expect("only what is decided is told"),
            version: head.client_version,
            coordinator_epoch,
            partitions: members.partitions.keys().map(|key| (*key, 0)).collect(),
            groups: members.groups.keys().map(|group| (group.clone(), 0)).collect(),
            due_ms: 0,
        }
    }

    pub fn sequence(&self) -> u64 {
        self.txn.sequence
    }

    pub fn is_done(&self) -> bool {
        self.partitions.is_empty() && self.groups.is_empty()
    }

    pub fn partitions(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.partitions.keys().copied()
    }

    pub fn groups(&self) -> impl Iterator<Item = &Arc<str>> + '_ {
        self.groups.keys()
    }

    /// Forgets partitions that no longer exist.
    pub fn drop_gone(&mut self, places: &dyn Places) {
        self.partitions.retain(|key, _| places.partition(*key) != Place::Gone);
        self.due_ms = 0;
    }

    /// Hands everything to the turn's outbox that is due.
    pub fn send(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        if self.due_ms > now_ms {
            return;
        }
        let again_ms = now_ms.saturating_add(turn.settings.request_timeout_ms);
        let (mut shards, mut brokers) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        self.partitions.retain(|key, due_ms| {
            if *due_ms > now_ms {
                return true;
            }
            match turn.places.partition(*key) {
                Place::Shard(to) => {
                    *due_ms = u64::MAX;
                    shards.entry(to).or_default().push(*key);
                }
                Place::Broker(to) => {
                    *due_ms = again_ms;
                    brokers.entry(to).or_default().push(*key);
                }
                Place::Nowhere => *due_ms = now_ms + MARKER_RETRY_MS,
                Place::Gone => return false,
            }
            true
        });
        for (to, partitions) in shards {
            turn.outbox.markers.entry(to).or_default().push(self.marker(partitions));
        }
        let files = brokers.into_iter().map(|(to, partitions)| MarkerFile { to, marker: self.marker(partitions) });
        turn.outbox.files.extend(files);
        if self.partitions.is_empty() {
            self.send_hooks(turn);
        }
        let due = self.partitions.values().min().or_else(|| self.groups.values().min());
        self.due_ms = due.copied().unwrap_or(0);
    }

    fn send_hooks(&mut self, turn: &mut Turn<'_>) {
        let mut shards = BTreeMap::<_, Vec<_>>::new();
        for (group, due_ms) in self.groups.iter_mut().filter(|(_, due_ms)| **due_ms <= turn.now.mono_ms) {
            *due_ms = u64::MAX;
            shards.entry(turn.places.group(group)).or_default().push(group.clone());
        }
        let (txn, producer, outcome, version) = (&self.txn, self.producer, self.outcome, self.version);
        let hook = |(to, groups)| OffsetsHook { to, txn: txn.clone(), producer, outcome, version, groups };
        turn.outbox.hooks.extend(shards.into_iter().map(hook));
    }

    fn marker(&self, partitions: Vec<PartitionKey>) -> Marker {
        Marker {
            txn: self.txn.clone(),
            producer: self.producer,
            outcome: self.outcome,
            coordinator_epoch: self.coordinator_epoch,
            version: self.version,
            partitions,
        }
    }

    /// Takes an answer of a partition.
    pub fn answered(&mut self, answer: &MarkerAnswer, now: Now) {
        let Some(due_ms) = self.partitions.get_mut(&answer.partition) else { return };
        match verdict(answer.code) {
            Verdict::Done => {
                self.partitions.remove(&answer.partition);
                if self.partitions.is_empty() {
                    self.due_ms = 0;
                }
                return;
            }
            Verdict::Again => *due_ms = now.mono_ms + MARKER_RETRY_MS,
            // Somebody marked this partition in the name of a later coordinator. The outcome is durable, and nobody
            // else writes for this id, so the marker goes on in that name (B11.4 does better).
            Verdict::Outrank => {
                *due_ms = now.mono_ms + MARKER_RETRY_MS;
                self.coordinator_epoch = self.coordinator_epoch.max(answer.coordinator_epoch);
            }
        }
        self.due_ms = self.due_ms.min(*due_ms);
    }

    /// Takes the answer of a group.
    pub fn hooked(&mut self, group: &str, code: ErrorCode, now: Now) {
        let Some(due_ms) = self.groups.get_mut(group) else { return };
        if code.is_none() {
            self.groups.remove(group);
        } else {
            *due_ms = now.mono_ms + MARKER_RETRY_MS;
            self.due_ms = self.due_ms.min(*due_ms);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Done,
    Again,
    Outrank,
}

fn verdict(code: ErrorCode) -> Verdict {
    match code {
        // A partition at a higher epoch, or open again at the marker's own, has nothing left of this transaction: its
        // records are there at a lower one. Kafka would wait for ever (B11.4).
        ErrorCode::None | ErrorCode::InvalidProducerEpoch | ErrorCode::UnsupportedVersion => Verdict::Done,
        ErrorCode::TransactionCoordinatorFenced => Verdict::Outrank,
        _ => Verdict::Again,
    }
}

/// What must be refused from now on at every partition of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Whose batches.
    pub producer_id: ProducerId,
    /// Epochs below it; one above the last epoch there is refuses all.
    pub below: i32,
}

impl Fence {
    /// Whether it refuses a batch.
    #[must_use]
    pub fn refuses(&self, epoch: ProducerEpoch) -> bool {
        i32::from(epoch.0) < self.below
    }
}
