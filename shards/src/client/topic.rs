//! One topic as its producer sees it: how many partitions it has, which of them the next record goes to, and the
//! records that came before anybody knew.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::record_bytes;
use super::lane::LaneId;
use super::message::{NewRecord, RecordId};
use super::partitioner::partition_of;
use crate::ids::TimestampMs;

/// A record that waits for its topic's partitions.
#[derive(Debug)]
pub(super) struct Unplaced {
    pub id: RecordId,
    pub created_ms: u64,
    pub bytes: usize,
    partition: Option<i32>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    timestamp: TimestampMs,
}

impl Unplaced {
    pub fn new(id: RecordId, record: &NewRecord<'_>, created_ms: u64) -> Self {
        let headers = record.headers.iter().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)));
        Self {
            id,
            created_ms,
            bytes: record_bytes(record),
            partition: record.partition,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: headers.collect(),
            timestamp: record.timestamp,
        }
    }

    /// Hands the record to `take` as it came.
    pub fn with<T>(&self, topic: &str, take: impl FnOnce(&NewRecord<'_>) -> T) -> T {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect();
        take(&NewRecord {
            topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
            timestamp: self.timestamp,
        })
    }
}

/// The topic.
#[derive(Debug)]
pub(super) struct Topic {
    pub name: Arc<str>,
    /// Its partitions by index; empty until the broker has told.
    pub lanes: Vec<LaneId>,
    pub unplaced: VecDeque<Unplaced>,
    /// Partition of records without a key and a partition, and their bytes there so far.
    sticky: usize,
    sticky_bytes: usize,
    /// Whether its leaders have to be asked for.
    pub wanted: bool,
}

impl Topic {
    pub fn new(name: &str) -> Self {
        let name: Arc<str> = name.into();
        // Topics of one producer do not all begin with the same partition.
        let sticky = partition_of(name.as_bytes(), usize::MAX);
        Self { name, lanes: Vec::new(), unplaced: VecDeque::new(), sticky, sticky_bytes: 0, wanted: true }
    }

    /// Partition of a record: its own, that of its key, or the one that is filled just now. `usable` says which
    /// partitions have a leader. `None` if it names a partition that is not there.
    pub fn place(
        &mut self,
        record: &NewRecord<'_>,
        batch_bytes: usize,
        usable: impl Fn(LaneId) -> bool,
    ) -> Option<usize> {
        let count = self.lanes.len();
        assert!(count > 0, "a topic without partitions takes no records");
        if let Some(index) = record.partition {
            return usize::try_from(index).ok().filter(|index| *index < count);
        }
        if let Some(key) = record.key {
            return Some(partition_of(key, count));
        }
        if self.sticky_bytes >= batch_bytes {
            self.sticky = self.sticky.wrapping_add(1);
            self.sticky_bytes = 0;
        }
        self.sticky_bytes += record_bytes(record);
        let turn = |at: usize| self.sticky.wrapping_add(at) % count;
        Some((0..count).map(turn).find(|index| usable(self.lanes[*index])).unwrap_or(turn(0)))
    }
}
