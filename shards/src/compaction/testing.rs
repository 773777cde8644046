//! A log in memory for tests: batches in segments, cleaned as the edge cleans files.

use std::collections::BTreeMap;

use super::{Filter, HashSecret, Kept, Latest, Step};
use crate::batch::build::{control_batch, refresh_crc};
use crate::batch::records::Records;
use crate::batch::{BatchBuilder, BatchHeader, ControlKind, ControlRecord, TimestampType, crc_matches};
use crate::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};
use crate::producers::{AbortedTxn, Producers};

pub(super) const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

/// Value of each key, as a reader knows it.
pub(super) type State = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
pub(super) struct Log {
    /// Oldest first; the last one is active.
    pub segments: Vec<Vec<Vec<u8>>>,
    pub producers: Producers,
    pub next: Offset,
    pub cleaned_to: Offset,
    pub now: TimestampMs,
    pub delete_retention_ms: i64,
}

impl Log {
    pub fn new() -> Self {
        Self {
            segments: vec![vec![]],
            producers: Producers::new(),
            next: Offset(0),
            cleaned_to: Offset(0),
            now: NOW,
            delete_retention_ms: 1000,
        }
    }

    /// Appends a batch under the next offset.
    pub fn append(&mut self, mut batch: Vec<u8>) -> Offset {
        batch[..8].copy_from_slice(&self.next.0.to_be_bytes());
        refresh_crc(&mut batch);
        let header = BatchHeader::parse(&batch).expect("a batch");
        let base = self.next;
        self.next = header.next_offset();
        self.producers.replay(&header, ControlRecord::of_batch(&batch));
        self.producers.high_watermark_moved(self.next);
        self.segments.last_mut().expect("an active one").push(batch);
        base
    }

    /// Appends records; `None` as a value is a tombstone.
    pub fn put(&mut self, records: &[(&str, Option<&str>)]) -> Offset {
        let now = self.now;
        let one = |batch: BatchBuilder, (key, value): &(&str, Option<&str>)| {
            batch.record_at(now, Some(key.as_bytes()), value.map(str::as_bytes), &[])
        };
        self.append(records.iter().fold(BatchBuilder::new(), one).build())
    }

    /// Appends one record of a transaction.
    pub fn put_in_txn(&mut self, producer: i64, sequence: i32, key: &str, value: Option<&str>) -> Offset {
        let batch = BatchBuilder::new().producer(producer, 0, sequence).transactional();
        self.append(batch.record_at(self.now, Some(key.as_bytes()), value.map(str::as_bytes), &[]).build())
    }

    /// Ends a transaction.
    pub fn end_txn(&mut self, producer: i64, epoch: i16, kind: ControlKind) -> Offset {
        let record = ControlRecord { kind, coordinator_epoch: 3 };
        let (id, epoch) = (ProducerId(producer), ProducerEpoch(epoch));
        self.append(control_batch(id, epoch, record, self.now, TimestampType::CreateTime))
    }

    pub fn roll(&mut self) {
        if self.segments.last().is_some_and(|active| !active.is_empty()) {
            self.segments.push(vec![]);
        }
    }

    /// Cleans everything that may be, `keys_max` keys at most; `merge` segments at most become one.
    pub fn clean(&mut self, keys_max: usize, merge: usize) {
        let stable = self.producers.last_stable(self.next, Offset(0));
        let count = self.segments.len() - 1;
        let end_of = |segment: &Vec<Vec<u8>>| header(segment.last().expect("no empty segment is closed")).next_offset();
        let count = self.segments[..count].iter().take_while(|segment| end_of(segment) <= stable).count();
        let end = self.segments[..count].last().map_or(Offset(0), end_of);
        if end <= self.cleaned_to {
            return;
        }
        let bytes = keys_max * super::key_map::SLOT_BYTES;
        let mut latest = Latest::new(self.cleaned_to, end, bytes, HashSecret([1, 2]));
        self.first_pass(&mut latest, count);
        let mut filter = Filter::new(latest, self.now, self.delete_retention_ms);
        let cleaned_to = filter.end();
        let sources: Vec<_> = self.segments.drain(..count).collect();
        let mut cleaned = Vec::new();
        for group in sources.chunks(merge.max(1)) {
            if header(&group[0][0]).base_offset >= cleaned_to {
                cleaned.extend(group.to_vec());
                continue;
            }
            cleaned.push(self.second_pass(&mut filter, group));
        }
        self.segments.splice(..0, cleaned);
        self.cleaned_to = cleaned_to;
    }

    fn first_pass(&self, latest: &mut Latest, count: usize) {
        let all: Vec<&Vec<u8>> = self.batches().collect();
        for batch in self.segments[..count].iter().flatten() {
            let header = header(batch);
            while latest.needs_look_ahead(&header) {
                let from = latest.looked_to().max(self.cleaned_to);
                let next = all.iter().find(|ahead| self::header(ahead).next_offset() > from);
                let next = next.expect("below the stable offset everything is decided");
                latest.look_ahead(&self::header(next), ControlRecord::of_batch(next));
            }
            if latest.add(batch).expect("right batches") == Step::Full {
                return;
            }
        }
    }

    fn second_pass(&self, filter: &mut Filter, group: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
        let batches: Vec<&Vec<u8>> = group.iter().flatten().collect();
        let mut out = Vec::new();
        for (at, batch) in batches.iter().enumerate() {
            let is_last = at + 1 == batches.len();
            match filter.batch(batch, is_last, &self.producers, self.next).expect("right batches") {
                Kept::Same => out.push((*batch).clone()),
                Kept::Rewritten(batch) => out.push(batch),
                Kept::Gone => assert!(!is_last, "a segment's last batch stays"),
            }
        }
        out
    }

    pub fn batches(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.segments.iter().flatten()
    }

    /// The producers as a start finds them in this log alone, and the aborted transactions.
    pub fn replayed(&self) -> (Producers, Vec<AbortedTxn>) {
        let (mut producers, mut aborted) = (Producers::new(), Vec::new());
        for batch in self.batches() {
            assert!(crc_matches(batch));
            aborted.extend(producers.replay(&header(batch), ControlRecord::of_batch(batch)));
        }
        producers.high_watermark_moved(self.next);
        (producers, aborted)
    }

    /// What a read_committed consumer sees below the stable offset, filtering as clients do: offset, key, value.
    pub fn committed(&self) -> Vec<(i64, Vec<u8>, Option<Vec<u8>>)> {
        let (producers, mut aborted) = self.replayed();
        let stable = producers.last_stable(self.next, Offset(0));
        aborted.sort_by_key(|txn| txn.first_offset);
        let mut aborted = aborted.into_iter().peekable();
        let (mut skipped, mut seen) = (std::collections::BTreeSet::new(), Vec::new());
        for batch in self.batches() {
            let header = header(batch);
            if header.base_offset >= stable {
                break;
            }
            while let Some(txn) = aborted.next_if(|txn| txn.first_offset <= header.last_offset()) {
                skipped.insert(txn.producer_id);
            }
            if header.attributes.is_control() {
                if ControlRecord::of_batch(batch).is_some_and(|record| record.kind == ControlKind::Abort) {
                    skipped.remove(&header.producer_id);
                }
                continue;
            }
            if header.attributes.is_transactional() && skipped.contains(&header.producer_id) {
                continue;
            }
            for record in &Records::open(batch).expect("opens") {
                let record = record.expect("parses");
                seen.push((record.offset.0, record.key.expect("a key").to_vec(), record.value.map(<[u8]>::to_vec)));
            }
        }
        seen
    }

    /// The values that are left when everything committed was read.
    pub fn state(&self) -> State {
        let mut state = State::new();
        for (_, key, value) in self.committed() {
            match value {
                Some(value) => drop(state.insert(key, value)),
                None => drop(state.remove(&key)),
            }
        }
        state
    }

    /// Offsets of the records that are there.
    pub fn offsets(&self) -> Vec<i64> {
        let offsets = |batch: &Vec<u8>| -> Vec<i64> {
            Records::open(batch).expect("opens").iter().map(|record| record.expect("parses").offset.0).collect()
        };
        self.batches().flat_map(offsets).collect()
    }

    /// Offset behind the last batch.
    pub fn end(&self) -> Offset {
        self.batches().last().map_or(Offset(0), |batch| header(batch).next_offset())
    }
}

pub(super) fn header(batch: &[u8]) -> BatchHeader {
    BatchHeader::parse(batch).expect("a batch")
}
