//! Transactions on a partition against a model that is a list of records: readers at read_committed, with the filter
//! that clients have, see exactly what is committed, at any moment and after any crash.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::model_tests::read_all;
use super::testing::*;
use super::*;
use crate::batch::records::Records;
use crate::batch::scan::scan;
use crate::batch::{BatchBuilder, ControlKind};

/// One event. Producer 0 is none: its batches are plain.
#[derive(Clone, Debug)]
enum Event {
    Append {
        producer: i64,
        records: usize,
    },
    End {
        producer: i64,
        commits: bool,
        bumps: bool,
    },
    Begin,
    Complete,
    Delete {
        at: u16,
    },
    /// A crash; with `replays` there is no snapshot of the producers.
    Restart {
        replays: bool,
    },
    Read {
        from: u16,
        bytes_max: usize,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..4i64, 1..4usize).prop_map(|(producer, records)| Event::Append { producer, records }),
        5 => (1..4i64, any::<bool>(), any::<bool>())
            .prop_map(|(producer, commits, bumps)| Event::End { producer, commits, bumps }),
        5 => Just(Event::Begin),
        5 => Just(Event::Complete),
        1 => any::<u16>().prop_map(|at| Event::Delete { at }),
        1 => any::<bool>().prop_map(|replays| Event::Restart { replays }),
        6 => (any::<u16>(), prop_oneof![Just(1), 1..700usize, Just(usize::MAX)])
            .prop_map(|(from, bytes_max)| Event::Read { from, bytes_max }),
    ]
}

/// A transaction, or one plain batch, which is committed by itself.
#[derive(Clone, Debug)]
struct Unit {
    producer: i64,
    offsets: Vec<i64>,
    /// Offset of the marker, and whether it commits.
    end: Option<(i64, bool)>,
}

struct Model {
    log: Partition,
    epoch: i32,
    units: Vec<Unit>,
    /// Epoch and next sequence of each producer.
    producers: BTreeMap<i64, (i16, i32)>,
    plan: Option<WritePlan>,
    files: BTreeMap<SegmentId, Vec<u8>>,
    snapshots: Vec<(Offset, Vec<u8>)>,
    deleted: bool,
}

const SEGMENT_BYTES: i32 = 400;

impl Model {
    fn new() -> Self {
        Self {
            log: partition(rolling(SEGMENT_BYTES)),
            epoch: 5,
            units: Vec::new(),
            producers: BTreeMap::new(),
            plan: None,
            files: BTreeMap::new(),
            snapshots: Vec::new(),
            deleted: false,
        }
    }

    fn durable(&self) -> i64 {
        self.log.high_watermark().0
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Append { producer, records } => self.append(producer, records),
            Event::End { producer, commits, bumps } => self.end(producer, commits, bumps),
            Event::Begin => self.begin(),
            Event::Complete => self.complete(),
            Event::Delete { at } => self.delete(at),
            Event::Restart { replays } => self.restart(replays),
            Event::Read { from, bytes_max } => self.read(from, bytes_max),
        }
        self.check_stable();
    }

    fn append(&mut self, producer: i64, records: usize) {
        let (epoch, sequence) = self.producers.get(&producer).copied().unwrap_or((0, 0));
        let mut batch = BatchBuilder::new();
        if producer > 0 {
            batch = batch.producer(producer, epoch, sequence).transactional();
        }
        let batch = (0..records).fold(batch, |batch, _| batch.record_at(NOW, None, Some(b"value"), &[]));
        let placed = super::testing::append(&mut self.log, &Bytes::from(batch.build()));
        let offsets = placed.base.0..placed.end.0;
        if producer == 0 {
            let end = Some((placed.end.0 - 1, true));
            self.units.push(Unit { producer, offsets: offsets.collect(), end });
            return;
        }
        self.producers.insert(producer, (epoch, sequence + records as i32));
        match self.units.iter_mut().find(|unit| unit.producer == producer && unit.end.is_none()) {
            Some(unit) => unit.offsets.extend(offsets),
            None => self.units.push(Unit { producer, offsets: offsets.collect(), end: None }),
        }
    }

    fn end(&mut self, producer: i64, commits: bool, bumps: bool) {
        let (epoch, sequence) = self.producers.get(&producer).copied().unwrap_or((0, 0));
        let marker = EndMarker {
            producer_id: ProducerId(producer),
            epoch: ProducerEpoch(epoch + i16::from(bumps)),
            coordinator_epoch: 1,
            transaction_version: if bumps { 2 } else { 0 },
            kind: if commits { ControlKind::Commit } else { ControlKind::Abort },
        };
        let placed = self.log.append_marker(&marker, NOW).expect("its epochs are right");
        self.producers.insert(producer, if bumps { (epoch + 1, 0) } else { (epoch, sequence) });
        if let Some(unit) = self.units.iter_mut().find(|unit| unit.producer == producer && unit.end.is_none()) {
            unit.end = Some((placed.base.0, commits));
        }
    }

    fn begin(&mut self) {
        if self.plan.is_none() {
            self.plan = self.log.take_write(NOW);
        }
    }

    fn complete(&mut self) {
        let Some(plan) = self.plan.take() else { return };
        let bytes = stored(&plan);
        self.files.entry(plan.segment).or_default().extend_from_slice(&bytes);
        let progress = self.log.wrote(bytes, 1);
        self.snapshots.extend(progress.snapshot);
        // Half of what is read comes from files.
        if self.durable() % 2 == 0 {
            self.log.clear_tail();
        }
    }

    fn delete(&mut self, at: u16) {
        let start = self.log.log_start().0;
        let target = Offset(start + i64::from(at) % (self.durable() - start + 1));
        for gone in self.log.set_log_start(target) {
            self.files.remove(&gone);
        }
        self.deleted = true;
    }

    /// What is not durable is lost. Lists of sealed segments come from their files, that of the last segment from the
    /// replay, which begins before it.
    fn restart(&mut self, replays: bool) {
        self.plan = None;
        let durable = self.durable();
        let (log_start, active) = (self.log.log_start(), self.log.segments().active().map(|active| active.id));
        let listed = |segment: &Segment| {
            let (bytes, end) = (segment.bytes(), segment.next_offset());
            let file = segment.aborted.encode(segment.id.base, bytes);
            AbortedIndex::decode(&file, bytes, segment.id.base, end).expect("its own file")
        };
        let lists: BTreeMap<SegmentId, AbortedIndex> =
            self.log.segments().all().iter().filter(|s| Some(s.id) != active).map(|s| (s.id, listed(s))).collect();
        let begin = active.map_or(durable, |active| active.base.0);
        // Nothing may be missing between a snapshot and what is replayed.
        let first = self.files.keys().next().map_or(durable, |first| first.base.0);
        let fits = |offset: Offset| !replays && (first..=begin).contains(&offset.0);
        let usable = self.snapshots.iter().rev().find(|(offset, _)| fits(*offset));
        let producers = usable.map(|(_, bytes)| Producers::restore(bytes).expect("its own snapshot"));
        let mut rebuild = Rebuild::new(producers.unwrap_or_default().limited_to(100));
        for (id, bytes) in &self.files {
            let list = lists.get(id);
            let mut segment = Segment::new(*id, NOW);
            if list.is_none() {
                rebuild.begin(*id, NOW);
            }
            for (position, header) in scan(bytes) {
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
        let mut found = rebuild.finish(log_start);
        found.producers.high_watermark_moved(Offset(durable));
        self.epoch += 1;
        self.log = Partition::recovered(rolling(SEGMENT_BYTES), LeaderEpoch(self.epoch), found);
        assert_eq!(self.durable(), durable);
        self.snapshots.retain(|(offset, _)| offset.0 <= durable);
        self.forget_from(durable);
        let known = self.log.producers().describe();
        self.producers = known.map(|view| (view.producer_id.0, (view.epoch.0, view.last_sequence.0 + 1))).collect();
        let doubted: Vec<i64> = self.log.doubted().map(|(id, _)| id.0).collect();
        let open = |id: &i64| self.units.iter().any(|unit| unit.producer == *id && unit.end.is_none());
        assert!(doubted.iter().all(open), "case 133: what is open comes back as such");
        assert!(self.deleted || doubted.len() == self.units.iter().filter(|unit| unit.end.is_none()).count());
    }

    fn forget_from(&mut self, durable: i64) {
        for unit in &mut self.units {
            unit.offsets.retain(|offset| *offset < durable);
            unit.end = unit.end.filter(|(marker, _)| *marker < durable);
        }
        self.units.retain(|unit| !unit.offsets.is_empty());
    }

    fn is_decided(&self, unit: &Unit) -> bool {
        unit.end.is_some_and(|(marker, _)| marker < self.durable())
    }

    fn check_stable(&self) {
        let (start, durable, stable) = (self.log.log_start().0, self.durable(), self.log.last_stable_offset().0);
        let open = self.units.iter().filter(|unit| !self.is_decided(unit));
        let first = open.clone().map(|unit| unit.offsets[0]).min().unwrap_or(durable);
        let expected = first.max(start).min(durable);
        assert!(stable >= expected && stable <= durable, "a9: {stable}, {expected} of {start}..{durable}");
        assert!(self.deleted || stable == expected, "a9: {stable} is not {expected}");
        let exposed = open.flat_map(|unit| &unit.offsets).find(|offset| (start..stable).contains(offset));
        assert_eq!(exposed, None, "case 60: below {stable} everything is decided");
    }

    fn read(&self, from: u16, bytes_max: usize) {
        let (start, stable) = (self.log.log_start().0, self.log.last_stable_offset().0);
        if stable <= start {
            return;
        }
        let from = start + i64::from(from) % (stable - start);
        let mut seen = BTreeSet::new();
        let mut next = from;
        while next < stable {
            let chunks = read_all(&self.log, &self.files, Offset(next), Offset(stable), bytes_max, true);
            let end = fetched(&self.log, next, &chunks, &mut seen);
            assert!(end > next, "case 71: a reader moves on");
            next = end;
        }
        let committed = self.units.iter().filter(|unit| unit.end.is_some_and(|(_, commits)| commits));
        let expected: BTreeSet<i64> =
            committed.flat_map(|unit| &unit.offsets).copied().filter(|o| (from..stable).contains(o)).collect();
        assert_eq!(seen, expected, "what is committed from {from} up to {stable}");
    }
}

/// What a client makes of one answer (contract A10); gives the offset behind it.
fn fetched(log: &Partition, from: i64, chunks: &[Bytes], seen: &mut BTreeSet<i64>) -> i64 {
    let bytes = chunks.concat();
    let upper = scan(&bytes).map(|(_, header)| header.next_offset()).last().expect("whole batches");
    let mut aborted = log.aborted(Offset(from), upper);
    assert!(aborted.iter().all(|a| a.marker_offset.0 >= from && a.first_offset < upper), "a10");
    aborted.sort_by_key(|a| std::cmp::Reverse(a.first_offset));
    let mut skipped = BTreeSet::new();
    for (position, header) in scan(&bytes) {
        while aborted.last().is_some_and(|a| a.first_offset <= header.last_offset()) {
            skipped.insert(aborted.pop().expect("looked at").producer_id);
        }
        let batch = &bytes[position..position + header.total_bytes()];
        if let Some(control) = ControlRecord::of_batch(batch) {
            if control.kind == ControlKind::Abort {
                skipped.remove(&header.producer_id);
            }
        } else if !(header.attributes.is_transactional() && skipped.contains(&header.producer_id)) {
            let records = Records::open(batch).expect("what was written");
            let offsets = records.iter().map(|record| record.expect("what was written").offset.0);
            seen.extend(offsets.filter(|offset| *offset >= from));
        }
    }
    upper.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a10_a_read_committed_reader_sees_exactly_what_is_committed(events in vec(event(), 1..150)) {
        let mut model = Model::new();
        for event in &events {
            model.step(event);
        }
        for producer in 1..4 {
            model.end(producer, false, false);
        }
        while model.log.next_offset().0 > model.durable() {
            model.begin();
            model.complete();
            model.check_stable();
        }
        prop_assert_eq!(model.log.last_stable_offset(), model.log.high_watermark());
        for from in 0..40 {
            model.read(from, 200);
        }
    }
}
