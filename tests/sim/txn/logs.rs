//! The partitions of all shards and their files: writes, recovery, and what a read_committed reader makes of them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use oncilla_shards::batch::records::Records;
use oncilla_shards::batch::scan::{Scan, scan};
use oncilla_shards::batch::{AppendRules, ControlKind, ControlRecord};
use oncilla_shards::ids::{LeaderEpoch, Offset, PartitionKey, TimestampMs};
use oncilla_shards::partition::{AbortedIndex, LogRules, Partition, Rebuild, Recovered, Segment, SegmentId, WritePlan};
use oncilla_shards::producers::Producers;

use crate::disk::Disk;
use crate::rng::Rng;

/// Writers and files of all partitions.
#[derive(Debug, Default)]
pub struct Logs {
    pub disk: Disk,
    pub writers: BTreeSet<PartitionKey>,
    pub writing: BTreeMap<PartitionKey, (WritePlan, Vec<u8>)>,
}

pub fn rules() -> LogRules {
    LogRules {
        append: AppendRules { segment_bytes: 4_000, after_max_ms: i64::MAX, ..AppendRules::default() },
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        flush_messages: 1,
        flush_ms: i64::MAX,
        deletes: true,
        compaction: None,
        producer_ids_max: 1_000,
    }
}

impl Logs {
    /// A write that the partition planned leaves for the disk; a segment that it seals gets its list of what was
    /// aborted, which a crash may cost.
    pub fn begin(&mut self, key: PartitionKey, log: &Partition, plan: WritePlan, rng: &mut Rng) {
        if let Some(sealed) = plan.seal {
            let segment = log.segments().all().iter().find(|segment| segment.id == sealed).expect("it was active");
            self.disk.seal(key, sealed, segment.bytes());
            if rng.percent(80) {
                self.disk.put_list(key, sealed, segment.aborted.encode(sealed.base, segment.bytes()));
            }
        }
        let bytes = self.disk.begin(key, &plan);
        self.writing.insert(key, (plan, bytes));
    }

    /// What a start makes of a partition's files.
    pub fn recover(&mut self, key: PartitionKey, epoch: LeaderEpoch, now: TimestampMs) -> Partition {
        let segments = self.disk.segments(key);
        let ends: Vec<_> = segments.iter().map(|(id, bytes)| valid_end(*id, bytes)).collect();
        let lists: BTreeMap<SegmentId, AbortedIndex> = segments
            .iter()
            .zip(&ends)
            .filter_map(|((id, bytes), (next, valid))| {
                let (list, whole) = (self.disk.list(key, *id)?, bytes.len() as u64);
                assert_eq!(*valid, whole, "a sealed segment is whole");
                Some((*id, AbortedIndex::decode(list, whole, id.base, *next).expect("its own list")))
            })
            .collect();
        let end = ends.last().map_or(Offset(0), |(next, _)| *next);
        // What a snapshot covers is not replayed, so its lists have to be there.
        let without = segments.iter().find(|(id, _)| !lists.contains_key(id)).map_or(end, |(id, _)| id.base);
        let usable = self.disk.snapshots(key).into_iter().filter(|(offset, _)| *offset <= without);
        let restored = usable.filter_map(|(_, bytes)| Producers::restore(&bytes).ok()).next();
        let mut rebuild = Rebuild::new(restored.unwrap_or_default().limited_to(1_000));
        for ((id, bytes), (_, valid)) in segments.iter().zip(&ends) {
            feed(&mut rebuild, *id, bytes, lists.get(id), now);
            self.disk.seal(key, *id, *valid);
        }
        let mut found: Recovered = rebuild.finish(Offset(0));
        found.producers.high_watermark_moved(end);
        Partition::recovered(rules(), epoch, found)
    }
}

fn feed(rebuild: &mut Rebuild, id: SegmentId, bytes: &[u8], list: Option<&AbortedIndex>, now: TimestampMs) {
    let mut segment = Segment::new(id, now);
    if list.is_none() {
        rebuild.begin(id, now);
    }
    for (position, header) in Scan::after(bytes, id.base) {
        let control = ControlRecord::of_batch(&bytes[position..position + header.total_bytes()]);
        if list.is_some() {
            segment.grow(header.next_offset(), header.total_bytes(), header.newest_timestamp());
            rebuild.replay(&header, control);
        } else {
            rebuild.batch(&header, control);
        }
    }
    if let Some(list) = list {
        segment.aborted = list.clone();
        rebuild.segment(segment);
    }
}

fn valid_end(id: SegmentId, bytes: &[u8]) -> (Offset, u64) {
    let mut batches = Scan::after(bytes, id.base);
    while batches.next().is_some() {}
    (batches.next_offset(), batches.end() as u64)
}

/// What a client at read_committed makes of one answer (contract A10): the offset behind it, and the values that it
/// sees.
pub fn committed(log: &Partition, from: Offset, chunks: &[Bytes]) -> (Offset, BTreeMap<i64, u64>) {
    let bytes = chunks.concat();
    let upper = scan(&bytes).map(|(_, header)| header.next_offset()).last().expect("a reader makes progress");
    let mut aborted = log.aborted(from, upper);
    aborted.sort_by_key(|aborted| std::cmp::Reverse(aborted.first_offset));
    let (mut seen, mut skipped) = (BTreeMap::new(), BTreeSet::new());
    for (position, header) in scan(&bytes) {
        while aborted.last().is_some_and(|one| one.first_offset <= header.last_offset()) {
            skipped.insert(aborted.pop().expect("looked at").producer_id);
        }
        let batch = &bytes[position..position + header.total_bytes()];
        if let Some(control) = ControlRecord::of_batch(batch) {
            if control.kind == ControlKind::Abort {
                skipped.remove(&header.producer_id);
            }
        } else if header.attributes.is_transactional() && !skipped.contains(&header.producer_id) {
            let records = Records::open(batch).expect("what is stored can be read");
            for record in records.iter().map(|record| record.expect("what is stored can be read")) {
                let value = record.value.expect("every record has a value");
                if record.offset >= from {
                    seen.insert(record.offset.0, u64::from_be_bytes(value.try_into().expect("eight bytes")));
                }
            }
        }
    }
    (upper, seen)
}
