//! Offsets that a group has committed: how far it has come in each partition.
//!
//! Owned by the group. Every change is an [`OffsetsEntry`] that is recorded and then applied, so that a start arrives
//! at the same state. Who may commit is decided before, by the members' side; here is what may be stored, for how long,
//! and what reads back. Limits: `offset.metadata.max.bytes` for one partition, `message.max.bytes` for one request. A
//! partition takes 32 bytes, and some more only with metadata or a retention of its own: brokers hold millions.

mod entry;
#[cfg(test)]
mod model_tests;
mod pending;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::entry::by_topic;
pub use self::entry::{OffsetRow, OffsetsEntry, TopicText};
use self::pending::Pending;
use super::group::Subscribed;
use super::turn::Turn;
use super::{Commit, CommitPartition, Entry, FetchOffsets, FetchedOffset, FetchedOffsets, GroupSettings, TxnEnd};
use crate::code::ErrorCode;
use crate::ids::{PartitionKey, TimestampMs, TopicId};
use crate::image::Image;
use crate::limits::GROUP_PENDING_OFFSETS_MAX;
use crate::slot::Journal;
use crate::txn::{Identity, Outcome};

/// Bytes of one of Kafka's offset records beside the names and the metadata: lengths, versions, offset, epoch, time and
/// topic id. The bound of a request counts them, so that what Kafka stores is stored here (contract G8.16).
const RECORD_BYTES: usize = 64;

/// How old offsets may get (contract G10.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Retention {
    /// Each counts from its commit, except of subscribed topics.
    SinceCommit(Subscribed),
    /// All count from when the group became Empty.
    Since(TimestampMs),
    /// None goes.
    Forever,
}

/// Whether metadata may be stored (contract G8.8). It is seen before the epochs of a commit are (contract G17.3).
pub(super) fn metadata_fits(partition: &CommitPartition, settings: &GroupSettings) -> bool {
    // UTF-16 never has more units than UTF-8 has bytes.
    let fits = |text: &String| {
        let units_max = settings.offset_metadata_units_max;
        text.len() <= units_max || text.encode_utf16().take(units_max + 1).count() <= units_max
    };
    partition.metadata.as_ref().is_none_or(fits)
}

/// What is committed for one partition.
#[derive(Debug)]
struct Committed {
    offset: i64,
    at: TimestampMs,
    index: i32,
    leader_epoch: i32,
    rare: Option<Box<Rare>>,
}

/// What most commits do not have.
#[derive(Debug)]
struct Rare {
    metadata: Box<str>,
    expires: Option<TimestampMs>,
}

impl Committed {
    fn metadata(&self) -> &str {
        self.rare.as_ref().map_or("", |rare| &rare.metadata)
    }

    fn expires(&self) -> Option<TimestampMs> {
        self.rare.as_ref().and_then(|rare| rare.expires)
    }
}

#[derive(Debug)]
struct TopicOffsets {
    topic: TopicId,
    /// By index; never empty.
    partitions: Vec<Committed>,
}

#[derive(Debug, Default)]
pub(super) struct Offsets {
    /// By topic id.
    topics: Vec<TopicOffsets>,
    pending: Option<Box<Pending>>,
}

impl Offsets {
    /// Whether there is anything that keeps the group.
    pub fn any(&self) -> bool {
        !self.topics.is_empty() || self.pending.is_some()
    }

    /// Stores what was `checked` and fits (contract G8.8, G8.16), as pending if it is of a `producer`'s transaction
    /// (C4); a code for each partition.
    pub fn commit(
        &mut self,
        group: &Arc<str>,
        commit: &Commit,
        producer: Option<Identity>,
        checked: Result<(), ErrorCode>,
        turn: &mut Turn<'_>,
    ) -> Vec<ErrorCode> {
        if let Err(code) = checked {
            return vec![code; commit.partitions.len()];
        }
        let mut kept = Vec::with_capacity(commit.partitions.len());
        let code = |partition| {
            if metadata_fits(partition, turn.settings) {
                kept.push(partition);
                return ErrorCode::None;
            }
            ErrorCode::OffsetMetadataTooLarge
        };
        let codes = commit.partitions.iter().map(code).collect();
        if kept.is_empty() {
            return codes;
        }
        if record_bytes(group, &kept, turn.image) > turn.settings.record_bytes_max {
            return vec![ErrorCode::UnknownServerError; commit.partitions.len()];
        }
        let pending = self.pending.as_ref().map_or(0, |pending| pending.len());
        if producer.is_some() && pending + kept.len() > GROUP_PENDING_OFFSETS_MAX {
            return vec![ErrorCode::CoordinatorNotAvailable; commit.partitions.len()];
        }
        let at = turn.now.wall;
        let expires = (commit.retention_ms != -1).then(|| TimestampMs(at.0.saturating_add(commit.retention_ms)));
        let topics = by_topic(last_of_each(kept).into_iter().map(|partition| {
            let metadata = partition.metadata.clone().unwrap_or_default();
            (partition.key.topic, OffsetRow(partition.key.index, partition.offset, partition.leader_epoch, metadata))
        }));
        let entry = match producer {
            None => OffsetsEntry::Committed { at, expires, topics },
            Some(Identity { producer_id, epoch }) => OffsetsEntry::Pending { producer_id, epoch, at, topics },
        };
        self.change(group, entry, turn.journal);
        codes
    }

    /// A transaction has ended (contract C3). What it has nothing pending for is not written down.
    pub fn end_transaction(&mut self, group: &Arc<str>, end: &TxnEnd, journal: &mut Journal) {
        if self.pending.as_ref().is_some_and(|pending| pending.ends(end.producer, end.version)) {
            let (Identity { producer_id, epoch }, version, outcome) = (end.producer, end.version, end.outcome);
            self.change(group, OffsetsEntry::Ended { producer_id, epoch, version, outcome }, journal);
        }
    }

    /// What is committed (contract G9).
    pub fn fetch(&self, fetch: &FetchOffsets) -> FetchedOffsets {
        let partitions = match &fetch.partitions {
            Some(keys) => keys.iter().map(|key| self.fetch_one(*key, fetch.require_stable)).collect(),
            None => self.keys().map(|key| self.fetch_one(key, fetch.require_stable)).collect(),
        };
        FetchedOffsets { code: ErrorCode::None, partitions }
    }

    fn fetch_one(&self, key: PartitionKey, require_stable: bool) -> FetchedOffset {
        let nothing = |code| FetchedOffset { key, offset: -1, leader_epoch: -1, metadata: String::new(), code };
        if require_stable && self.is_pending(&key) {
            return nothing(ErrorCode::UnstableOffsetCommit);
        }
        let Some(committed) = self.committed(key) else { return nothing(ErrorCode::None) };
        FetchedOffset {
            key,
            offset: committed.offset,
            leader_epoch: committed.leader_epoch,
            metadata: committed.metadata().to_owned(),
            code: ErrorCode::None,
        }
    }

    /// Forgets these unless their topic is subscribed (contract G10.3 to G10.5); a code for each.
    pub fn delete(
        &mut self,
        group: &Arc<str>,
        keys: &[PartitionKey],
        subscribed: &Subscribed,
        turn: &mut Turn<'_>,
    ) -> Vec<ErrorCode> {
        let code = |key: &PartitionKey| match subscribed.has(key.topic) {
            true => ErrorCode::GroupSubscribedToTopic,
            false => ErrorCode::None,
        };
        let codes: Vec<_> = keys.iter().map(code).collect();
        let deleted = keys.iter().zip(&codes).filter(|(_, code)| **code == ErrorCode::None).map(|(key, _)| *key);
        self.forget(group, deleted.collect(), turn.journal);
        codes
    }

    /// Forgets what is too old (contract G10.7, G10.8).
    pub fn expire(&mut self, group: &Arc<str>, retention: &Retention, turn: &mut Turn<'_>) {
        let now = turn.now.wall;
        let retention_ms = turn.settings.offsets_retention_ms;
        let is_over = |topic: TopicId, committed: &Committed| {
            let since = match retention {
                Retention::Forever => return false,
                Retention::SinceCommit(subscribed) if subscribed.has(topic) => return false,
                Retention::SinceCommit(_) => committed.at,
                Retention::Since(empty) => *empty,
            };
            match committed.expires() {
                Some(expires) => now >= expires,
                None => now.0.saturating_sub(since.0) >= retention_ms,
            }
        };
        let mut gone = Vec::new();
        for TopicOffsets { topic, partitions } in &self.topics {
            let over = partitions.iter().filter(|committed| is_over(*topic, committed));
            let keys = over.map(|committed| PartitionKey { topic: *topic, index: committed.index });
            gone.extend(keys.filter(|key| !self.is_pending(key)));
        }
        self.forget(group, gone, turn.journal);
    }

    /// Forgets all of topics that are deleted (contract G10.6).
    pub fn topics_deleted(&mut self, group: &Arc<str>, topics: &[TopicId], journal: &mut Journal) {
        self.forget_where(group, |topic| topics.contains(&topic), journal);
    }

    /// Forgets all of topics that are not there.
    pub fn keep_topics(&mut self, group: &Arc<str>, image: &Image, journal: &mut Journal) {
        self.forget_where(group, |topic| image.topic_by_id(topic).is_none(), journal);
    }

    fn forget_where(&mut self, group: &Arc<str>, is_gone: impl Fn(TopicId) -> bool, journal: &mut Journal) {
        let pending = self.pending.iter().flat_map(|pending| pending.keys());
        let gone = self.keys().chain(pending).filter(|key| is_gone(key.topic)).collect();
        self.forget(group, gone, journal);
    }

    fn forget(&mut self, group: &Arc<str>, mut keys: Vec<PartitionKey>, journal: &mut Journal) {
        keys.retain(|key| self.committed(*key).is_some() || self.is_pending(key));
        if keys.is_empty() {
            return;
        }
        keys.sort_unstable();
        keys.dedup();
        self.change(group, OffsetsEntry::forgotten(keys), journal);
    }

    fn change(&mut self, group: &Arc<str>, entry: OffsetsEntry, journal: &mut Journal) {
        let entry = Entry::Offsets { group: group.clone(), entry };
        journal.append(&entry);
        let Entry::Offsets { entry, .. } = entry else { unreachable!("it was just made") };
        self.apply(entry);
    }

    /// Takes in what was written down.
    pub fn apply(&mut self, entry: OffsetsEntry) {
        match entry {
            OffsetsEntry::Committed { at, expires, topics } => {
                for (topic, rows) in topics {
                    if let Some(pending) = &mut self.pending {
                        rows.iter().for_each(|row| pending.outdate(&PartitionKey { topic: topic.0, index: row.0 }));
                    }
                    self.store(topic.0, rows, at, expires);
                }
            }
            OffsetsEntry::Pending { producer_id, epoch, at, topics } => {
                let pending = self.pending.get_or_insert_default();
                for (topic, rows) in topics {
                    for row in rows {
                        let key = PartitionKey { topic: topic.0, index: row.0 };
                        pending.insert(Identity { producer_id, epoch }, key, at, row);
                    }
                }
            }
            OffsetsEntry::Ended { producer_id, epoch, version, outcome } => {
                self.end(Identity { producer_id, epoch }, version, outcome);
            }
            OffsetsEntry::Forgotten { topics } => {
                for (topic, indexes) in topics {
                    self.remove(topic.0, &indexes);
                }
            }
        }
    }

    fn end(&mut self, producer: Identity, version: i8, outcome: Outcome) {
        let Some(pending) = &mut self.pending else { return };
        let ended = pending.end(producer, version, outcome == Outcome::Commit);
        self.pending.take_if(|pending| pending.is_empty());
        if outcome == Outcome::Commit {
            for (key, offset) in ended.into_iter().filter(|(_, offset)| !offset.is_outdated) {
                self.store(key.topic, vec![offset.row], offset.at, None);
            }
        }
    }

    fn store(&mut self, topic: TopicId, rows: Vec<OffsetRow>, at: TimestampMs, expires: Option<TimestampMs>) {
        let place = self.place(topic).unwrap_or_else(|place| {
            reserve(&mut self.topics, 1);
            self.topics.insert(place, TopicOffsets { topic, partitions: Vec::with_capacity(rows.len()) });
            place
        });
        let partitions = &mut self.topics[place].partitions;
        let known = partitions.len();
        for OffsetRow(index, offset, leader_epoch, metadata) in rows {
            let is_rare = !metadata.is_empty() || expires.is_some();
            let rare = is_rare.then(|| Box::new(Rare { metadata: metadata.into(), expires }));
            let committed = Committed { offset, at, index, leader_epoch, rare };
            match partitions[..known].binary_search_by_key(&index, |known| known.index) {
                Ok(place) => partitions[place] = committed,
                Err(_) => {
                    reserve(partitions, 1);
                    partitions.push(committed);
                }
            }
        }
        // The sort finds the two runs, old and new, and merges them.
        if partitions.len() > known {
            partitions.sort_by_key(|committed| committed.index);
        }
    }

    fn remove(&mut self, topic: TopicId, indexes: &[i32]) {
        if let Some(pending) = &mut self.pending {
            indexes.iter().for_each(|index| {
                pending.discard(&PartitionKey { topic, index: *index });
            });
        }
        self.pending.take_if(|pending| pending.is_empty());
        let Ok(place) = self.place(topic) else { return };
        let partitions = &mut self.topics[place].partitions;
        // The indexes of an entry ascend.
        partitions.retain(|committed| indexes.binary_search(&committed.index).is_err());
        partitions.shrink_to_fit();
        if partitions.is_empty() {
            self.topics.remove(place);
            self.topics.shrink_to_fit();
        }
    }

    fn place(&self, topic: TopicId) -> Result<usize, usize> {
        self.topics.binary_search_by_key(&topic, |known| known.topic)
    }

    fn committed(&self, key: PartitionKey) -> Option<&Committed> {
        let partitions = &self.topics[self.place(key.topic).ok()?].partitions;
        partitions.binary_search_by_key(&key.index, |known| known.index).ok().map(|place| &partitions[place])
    }

    fn is_pending(&self, key: &PartitionKey) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.has(key))
    }

    /// Partitions with a committed offset, by topic id and index.
    fn keys(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.topics.iter().flat_map(|TopicOffsets { topic, partitions }| {
            partitions.iter().map(|committed| PartitionKey { topic: *topic, index: committed.index })
        })
    }

    /// What is committed for every partition, by topic id and index.
    pub fn committed_offsets(&self) -> impl Iterator<Item = (PartitionKey, i64)> + '_ {
        self.topics.iter().flat_map(|TopicOffsets { topic, partitions }| {
            partitions.iter().map(|one| (PartitionKey { topic: *topic, index: one.index }, one.offset))
        })
    }

    /// Entries that rebuild it: one for all that was committed at the same moment. What is pending stands before what
    /// outdates it, and else behind.
    pub fn snapshot(&self, group: &Arc<str>, entries: &mut Vec<Entry>) {
        self.snapshot_pending(group, true, entries);
        self.snapshot_committed(group, entries);
        self.snapshot_pending(group, false, entries);
    }

    fn snapshot_pending(&self, group: &Arc<str>, is_outdated: bool, entries: &mut Vec<Entry>) {
        let pending = self.pending.iter().flat_map(|pending| pending.in_order(is_outdated));
        entries.extend(pending.map(|(key, id, offset)| {
            let topics = vec![(TopicText(key.topic), vec![offset.row.clone()])];
            let entry = OffsetsEntry::Pending { producer_id: id, epoch: offset.epoch, at: offset.at, topics };
            Entry::Offsets { group: group.clone(), entry }
        }));
    }

    fn snapshot_committed(&self, group: &Arc<str>, entries: &mut Vec<Entry>) {
        let mut moments: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for TopicOffsets { topic, partitions } in &self.topics {
            for one in partitions {
                let row = OffsetRow(one.index, one.offset, one.leader_epoch, one.metadata().to_owned());
                moments.entry((one.at, one.expires())).or_default().push((*topic, row));
            }
        }
        entries.extend(moments.into_iter().map(|((at, expires), rows)| {
            let entry = OffsetsEntry::Committed { at, expires, topics: by_topic(rows) };
            Entry::Offsets { group: group.clone(), entry }
        }));
    }
}

/// Of several entries for one partition the last (contract G8.10), by topic id and index.
fn last_of_each(mut partitions: Vec<&CommitPartition>) -> Vec<&CommitPartition> {
    partitions.reverse();
    partitions.sort_by_key(|partition| partition.key);
    partitions.dedup_by_key(|partition| partition.key);
    partitions
}

/// What Kafka's records of these would take: the names go into each.
fn record_bytes(group: &str, partitions: &[&CommitPartition], image: &Image) -> usize {
    let bytes = |partition: &&CommitPartition| {
        let name = image.topic_by_id(partition.key.topic).map_or(0, |topic| topic.name.len());
        RECORD_BYTES + group.len() + name + partition.metadata.as_ref().map_or(0, String::len)
    };
    partitions.iter().map(bytes).sum()
}

/// Room for more, without the spare capacity of a growing `Vec` while it is short: most stay so.
fn reserve<T>(all: &mut Vec<T>, more: usize) {
    const SHORT: usize = 8;
    if all.len() < SHORT {
        all.reserve_exact(more);
    }
}
