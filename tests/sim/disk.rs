//! A disk that keeps what was made durable and, at a crash, loses or tears what was not.

use std::collections::BTreeMap;

use bytes::Bytes;
use oncilla_shards::batch::write_patched;
use oncilla_shards::ids::{Offset, PartitionKey};
use oncilla_shards::partition::{Partition, ReadPlan, SegmentId, Trimmed, WritePlan, trim};

use crate::rng::Rng;

/// What a disk writes in one piece.
const SECTOR_BYTES: usize = 512;

/// Zeros ahead of the tail, as the real segments have.
const ZEROED_AHEAD_BYTES: usize = 4096;

/// Bytes of one file as they would be found after a crash, and as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    durable: Vec<u8>,
    current: Vec<u8>,
}

/// All files of the broker.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    segments: BTreeMap<(PartitionKey, SegmentId), File>,
    snapshots: BTreeMap<(PartitionKey, Offset), Vec<u8>>,
    lists: BTreeMap<(PartitionKey, SegmentId), Vec<u8>>,
    log_starts: BTreeMap<PartitionKey, Offset>,
}

/// What a crash did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Damage {
    /// Files that kept a part of a write.
    pub torn: usize,
    /// Files that lost a whole write.
    pub lost: usize,
}

/// The bytes that a plan stores.
pub fn stored_bytes(plan: &WritePlan) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(plan.bytes);
    for (patch, sent) in &plan.batches {
        let at = bytes.len();
        bytes.resize(at + sent.len(), 0);
        write_patched(sent, patch, &mut bytes[at..]);
    }
    bytes
}

impl Disk {
    /// Starts a write: until [`Disk::complete`] a crash may keep any part of it.
    pub fn begin(&mut self, key: PartitionKey, plan: &WritePlan) -> Vec<u8> {
        let bytes = stored_bytes(plan);
        let file = self.segments.entry((key, plan.segment)).or_default();
        let end = plan.position as usize + bytes.len();
        if file.current.len() < end + ZEROED_AHEAD_BYTES {
            file.current.resize(end + ZEROED_AHEAD_BYTES, 0);
        }
        file.current[plan.position as usize..end].copy_from_slice(&bytes);
        bytes
    }

    /// The write, and all before it in the file, is durable.
    pub fn complete(&mut self, key: PartitionKey, segment: SegmentId, durable: bool) {
        let file = self.segments.get_mut(&(key, segment)).expect("a write has a file");
        if durable {
            file.durable.clone_from(&file.current);
        }
    }

    /// Cuts a segment that takes no more writes to its size.
    pub fn seal(&mut self, key: PartitionKey, segment: SegmentId, bytes: u64) {
        let file = self.segments.get_mut(&(key, segment)).expect("a sealed segment has a file");
        file.current.truncate(bytes as usize);
        file.durable.clone_from(&file.current);
    }

    /// The power goes: what was not durable is there, gone, or there in part, sector by sector.
    pub fn crash(&mut self, rng: &mut Rng) -> Damage {
        let mut damage = Damage::default();
        for file in self.segments.values_mut() {
            if file.current == file.durable {
                continue;
            }
            match rng.below(3) {
                0 => damage.lost += 1,
                1 => file.durable.clone_from(&file.current),
                _ => {
                    tear(file, rng);
                    damage.torn += 1;
                }
            }
            file.current.clone_from(&file.durable);
        }
        damage
    }

    /// The segments of a partition with their bytes, oldest first.
    pub fn segments(&self, key: PartitionKey) -> Vec<(SegmentId, Vec<u8>)> {
        let all = self.segments.iter().filter(|((owner, _), _)| *owner == key);
        all.map(|((_, id), file)| (*id, file.current.clone())).collect()
    }

    fn read(&self, key: PartitionKey, segment: SegmentId, position: u64, bytes: usize) -> Vec<u8> {
        let file = &self.segments[&(key, segment)].current;
        let start = position as usize;
        file[start..(start + bytes).min(file.len())].to_vec()
    }

    /// Reads whole batches of a log from an offset on as a consumer would, from memory or from here.
    pub fn fetch(
        &self,
        key: PartitionKey,
        log: &Partition,
        from: Offset,
        limit: Offset,
        bytes_max: usize,
    ) -> Vec<Bytes> {
        match log.read(from, limit, bytes_max, true) {
            ReadPlan::Empty => Vec::new(),
            ReadPlan::Cached(chunks) => chunks.to_vec(),
            ReadPlan::Disk { segment, mut position, mut bytes, segment_bytes } => loop {
                let most = (segment_bytes - position) as usize;
                let read = Bytes::from(self.read(key, segment, position, bytes.min(most)));
                match trim(&read, from, limit, bytes_max, true) {
                    Trimmed::Batches(batches) => break vec![batches],
                    Trimmed::More(more) => bytes = more,
                    Trimmed::Skip(skip) => position += skip as u64,
                    Trimmed::Damaged => panic!("a served segment is whole"),
                }
            },
        }
    }

    /// Keeps the list of what the markers of a sealed segment aborted.
    pub fn put_list(&mut self, key: PartitionKey, segment: SegmentId, bytes: Vec<u8>) {
        self.lists.insert((key, segment), bytes);
    }

    /// The list of a segment, if it is there.
    pub fn list(&self, key: PartitionKey, segment: SegmentId) -> Option<&[u8]> {
        self.lists.get(&(key, segment)).map(Vec::as_slice)
    }

    /// Deletes segments.
    pub fn delete(&mut self, key: PartitionKey, segments: &[SegmentId]) {
        for id in segments {
            self.segments.remove(&(key, *id));
        }
    }

    /// Keeps a snapshot of the producers.
    pub fn put_snapshot(&mut self, key: PartitionKey, offset: Offset, bytes: Vec<u8>) {
        self.snapshots.insert((key, offset), bytes);
    }

    /// Snapshots of a partition, newest first.
    pub fn snapshots(&self, key: PartitionKey) -> Vec<(Offset, Vec<u8>)> {
        let all = self.snapshots.iter().filter(|((owner, _), _)| *owner == key);
        let mut list: Vec<_> = all.map(|((_, offset), bytes)| (*offset, bytes.clone())).collect();
        list.reverse();
        list
    }

    /// Forgets the snapshots of what the log does not hold.
    pub fn drop_snapshots_beyond(&mut self, key: PartitionKey, end: Offset) {
        self.snapshots.retain(|(owner, offset), _| *owner != key || *offset <= end);
    }

    /// Makes a log start durable.
    pub fn put_log_start(&mut self, key: PartitionKey, start: Offset) {
        self.log_starts.insert(key, start);
    }

    /// The durable log start.
    pub fn log_start(&self, key: PartitionKey) -> Offset {
        self.log_starts.get(&key).copied().unwrap_or(Offset(0))
    }
}

fn tear(file: &mut File, rng: &mut Rng) {
    file.durable.resize(file.current.len(), 0);
    for at in (0..file.current.len()).step_by(SECTOR_BYTES) {
        let end = (at + SECTOR_BYTES).min(file.current.len());
        if rng.percent(50) {
            file.durable[at..end].copy_from_slice(&file.current[at..end]);
        }
    }
}
