//! A partition against a model that is a list of records, and readers against a plain file.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::testing::*;
use super::*;
use crate::batch::scan::scan;

/// One event.
#[derive(Clone, Debug)]
enum Event {
    /// A producer's next batch.
    Append {
        producer: i64,
        records: usize,
    },
    /// One of the last batches of a producer again.
    Again {
        producer: i64,
        back: usize,
    },
    Begin,
    Complete,
    Fail,
    Read {
        from: u16,
        bytes_max: usize,
        first_whole: bool,
    },
    Delete {
        at: u16,
    },
    Evict,
}

fn event() -> impl Strategy<Value = Event> {
    let bytes = prop_oneof![Just(0), 1usize..400, Just(usize::MAX)];
    prop_oneof![
        8 => (0..3i64, 1..5usize).prop_map(|(producer, records)| Event::Append { producer, records }),
        4 => (0..3i64, 0..7usize).prop_map(|(producer, back)| Event::Again { producer, back }),
        6 => Just(Event::Begin),
        6 => Just(Event::Complete),
        1 => Just(Event::Fail),
        5 => (any::<u16>(), bytes, any::<bool>())
            .prop_map(|(from, bytes_max, first_whole)| Event::Read { from, bytes_max, first_whole }),
        2 => any::<u16>().prop_map(|at| Event::Delete { at }),
        2 => Just(Event::Evict),
    ]
}

struct Sent {
    bytes: Bytes,
    base: i64,
    end: i64,
}

/// The records as they should be, and the files as the writer left them.
struct Model {
    log: Partition,
    sent: BTreeMap<i64, Vec<Sent>>,
    next: i64,
    durable: i64,
    log_start: i64,
    plan: Option<WritePlan>,
    files: BTreeMap<SegmentId, Vec<u8>>,
    waiting: BTreeMap<u64, i64>,
    waiter_next: u64,
    offline: bool,
}

impl Model {
    fn new() -> Self {
        Self {
            log: partition(rolling(600)),
            sent: BTreeMap::new(),
            next: 0,
            durable: 0,
            log_start: 0,
            plan: None,
            files: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiter_next: 0,
            offline: false,
        }
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Append { producer, records } => self.append(producer, records),
            Event::Again { producer, back } => self.again(producer, back),
            Event::Begin => self.begin(),
            Event::Complete => self.complete(),
            Event::Fail => self.fail(),
            Event::Read { from, bytes_max, first_whole } => self.read(from, bytes_max, first_whole),
            Event::Delete { at } => self.delete(at),
            Event::Evict => drop(self.log.evict_tail()),
        }
        assert_eq!(self.log.high_watermark().0, self.durable);
        assert_eq!(self.log.log_start().0, self.log_start);
    }

    fn append(&mut self, producer: i64, records: usize) {
        let sequence: usize =
            self.sent.get(&producer).map_or(0, |all| all.iter().map(|sent| (sent.end - sent.base) as usize).sum());
        let bytes = sequenced(producer, sequence as i32, records);
        if self.offline {
            assert_eq!(refused(&mut self.log, &bytes), ErrorCode::KafkaStorageError);
            return;
        }
        let placed = append(&mut self.log, &bytes);
        assert_eq!((placed.base.0, placed.duplicate), (self.next, false));
        assert_eq!(placed.end.0, self.next + records as i64);
        self.sent.entry(producer).or_default().push(Sent { bytes, base: self.next, end: placed.end.0 });
        self.next = placed.end.0;
        self.wait(placed.end);
    }

    fn again(&mut self, producer: i64, back: usize) {
        let Some(all) = self.sent.get(&producer) else { return };
        let Some(at) = all.len().checked_sub(back + 1) else { return };
        let sent = &all[at];
        let (base, end) = (sent.base, sent.end);
        match self.log.append(&sent.bytes, VERSION, Permit::Unchecked, NOW) {
            Append::Accepted(placed) => {
                assert!(back < 5 && !self.offline);
                assert_eq!((placed.base.0, placed.end.0, placed.duplicate), (base, end, true));
                self.wait(placed.end);
            }
            Append::Refused(refusal) if self.offline => assert_eq!(refusal.code, ErrorCode::KafkaStorageError),
            Append::Refused(refusal) => {
                assert!(back >= 5, "one of the last five");
                assert_eq!(refusal.code, ErrorCode::OutOfOrderSequenceNumber);
            }
        }
    }

    fn wait(&mut self, end: Offset) {
        assert_eq!(self.log.is_durable(end), end.0 <= self.durable);
        if end.0 > self.durable {
            self.log.wait(end, WaiterId(self.waiter_next));
            self.waiting.insert(self.waiter_next, end.0);
            self.waiter_next += 1;
        }
    }

    fn begin(&mut self) {
        if self.plan.is_some() {
            return;
        }
        self.plan = self.log.take_write(NOW);
        let Some(plan) = &self.plan else {
            assert!(self.offline || self.next == self.durable, "what was accepted is written");
            return;
        };
        let file = self.files.entry(plan.segment).or_default();
        assert_eq!(plan.create, file.is_empty());
        assert_eq!(plan.position, file.len() as u64);
        assert!(plan.durable);
    }

    fn complete(&mut self) {
        let Some(plan) = self.plan.take() else { return };
        let bytes = stored(&plan);
        self.files.get_mut(&plan.segment).unwrap().extend_from_slice(&bytes);
        let end = plan.batches.iter().zip(scan(&bytes)).map(|(_, (_, header))| header.next_offset().0).last().unwrap();
        let progress = self.log.wrote(bytes, 1);
        assert!(end > self.durable && end <= self.next);
        self.durable = end;
        let due: Vec<u64> = self.waiting.iter().filter(|(_, until)| **until <= end).map(|(id, _)| *id).collect();
        let mut told: Vec<u64> = progress.done.iter().map(|(id, result)| (id.0, result.unwrap()).0).collect();
        told.sort_unstable();
        assert_eq!(told, due, "exactly those whose records are durable");
        self.waiting.retain(|_, until| *until > end);
        if let Some((offset, bytes)) = progress.snapshot {
            assert!(offset.0 <= self.durable);
            assert_eq!(Producers::restore(&bytes).unwrap().end_offset(), offset);
        }
    }

    fn fail(&mut self) {
        // A disk fails only while it is written to.
        if self.plan.take().is_none() {
            return;
        }
        let progress = self.log.fail();
        assert_eq!(progress.done.len(), self.waiting.len());
        assert!(progress.done.iter().all(|(_, result)| *result == Err(ErrorCode::KafkaStorageError)));
        self.waiting.clear();
        self.offline = true;
    }

    fn delete(&mut self, at: u16) {
        let span = self.durable - self.log_start;
        let target = Offset(self.log_start + i64::from(at) % (span + 1));
        assert_eq!(self.log.delete_target(target), Ok(target));
        for gone in self.log.set_log_start(target) {
            self.files.remove(&gone).expect("only what is there goes");
        }
        self.log_start = target.0;
    }

    fn read(&self, from: u16, bytes_max: usize, first_whole: bool) {
        let span = self.durable - self.log_start;
        let from = Offset(self.log_start + i64::from(from) % (span + 1));
        let limit = Offset(self.durable);
        let chunks = read_all(&self.log, &self.files, from, limit, bytes_max, first_whole);
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        let batches: Vec<(i64, i64)> = chunks.iter().flat_map(whole_batches).collect();
        assert!(bytes <= bytes_max || (first_whole && batches.len() == 1), "{bytes} of {bytes_max}");
        let mut all: Vec<(i64, i64)> = self.sent.values().flatten().map(|sent| (sent.base, sent.end)).collect();
        all.sort_unstable();
        let expected = all.into_iter().filter(|(_, end)| *end > from.0 && *end <= limit.0);
        assert!(batches.iter().copied().eq(expected.take(batches.len())), "in order from the offset on: {batches:?}");
        assert!(!first_whole || from == limit || !batches.is_empty(), "progress");
    }
}

/// Base and end of the batches of a chunk, which holds nothing else.
fn whole_batches(chunk: &Bytes) -> Vec<(i64, i64)> {
    let mut batches = scan(chunk);
    let spans = batches.by_ref().map(|(_, header)| (header.base_offset.0, header.next_offset().0)).collect();
    assert_eq!(batches.end(), chunk.len(), "a torn batch");
    spans
}

/// Follows a plan as the edges do.
pub(super) fn read_all(
    log: &Partition,
    files: &BTreeMap<SegmentId, Vec<u8>>,
    from: Offset,
    limit: Offset,
    bytes_max: usize,
    first_whole: bool,
) -> Vec<Bytes> {
    match log.read(from, limit, bytes_max, first_whole) {
        ReadPlan::Empty => Vec::new(),
        ReadPlan::Cached(chunks) => chunks.to_vec(),
        ReadPlan::Disk { segment, position, bytes, segment_bytes } => {
            let file = &files[&segment][..segment_bytes as usize];
            trimmed(&file[position as usize..], bytes, from, limit, bytes_max, first_whole).into_iter().collect()
        }
    }
}

fn trimmed(file: &[u8], read: usize, from: Offset, limit: Offset, bytes_max: usize, whole: bool) -> Option<Bytes> {
    let (mut at, mut read) = (0, read);
    while at < file.len() {
        let piece = Bytes::copy_from_slice(&file[at..(at + read).min(file.len())]);
        match trim(&piece, from, limit, bytes_max, whole) {
            Trimmed::Batches(batches) => return Some(batches).filter(|batches| !batches.is_empty()),
            Trimmed::More(more) => {
                assert!(more > read, "more than before");
                read = more;
            }
            Trimmed::Skip(skip) => {
                assert!(skip > 0, "progress");
                at += skip;
            }
            Trimmed::Damaged => panic!("the file is whole"),
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_partition_is_a_list_of_records(events in vec(event(), 1..120)) {
        let mut model = Model::new();
        for event in &events {
            model.step(event);
        }
        // In the end everything accepted is durable, unless the disk failed.
        while !model.offline && (model.plan.is_some() || model.next > model.durable) {
            model.begin();
            model.complete();
        }
        prop_assert!(model.offline || model.waiting.is_empty());
        for from in 0..model.durable as u16 {
            model.read(from, usize::MAX, true);
        }
    }

    #[test]
    fn reads_from_the_tail_equal_trimmed_reads_of_the_file(
        writes in vec(vec((1..4usize, 0..60usize), 1..4), 1..6),
        limit_back in 0..4i64,
        bytes_max in 0..900usize,
        first_whole in any::<bool>(),
    ) {
        let mut log = partition(rules());
        let mut file = Vec::new();
        let mut ends = vec![0];
        for batches in writes {
            for (records, value_bytes) in batches {
                ends.push(append(&mut log, &plain(records, value_bytes)).end.0);
            }
            let plan = log.take_write(NOW).unwrap();
            let bytes = stored(&plan);
            file.extend_from_slice(&bytes);
            log.wrote(bytes, 1);
        }
        let limit = Offset((log.high_watermark().0 - limit_back).max(0));
        for from in 0..limit.0 {
            let tail = match log.read(Offset(from), limit, bytes_max, first_whole) {
                ReadPlan::Cached(chunks) => chunks.concat(),
                ReadPlan::Empty => Vec::new(),
                ReadPlan::Disk { .. } => panic!("nothing was evicted"),
            };
            let disk = trimmed(&file, file.len(), Offset(from), limit, bytes_max, first_whole).unwrap_or_default();
            prop_assert_eq!(&tail[..], &disk[..], "from {} of {:?} up to {}", from, &ends, limit);
        }
    }

    #[test]
    fn trim_never_returns_a_torn_batch(
        sizes in vec((1..4usize, 0..60usize), 1..8),
        cut in any::<prop::sample::Index>(),
        from in 0..30i64,
        limit in 0..30i64,
        bytes_max in 0..900usize,
        first_whole in any::<bool>(),
    ) {
        let mut log = partition(rules());
        for (records, value_bytes) in sizes {
            append(&mut log, &plain(records, value_bytes));
        }
        let whole = stored(&log.take_write(NOW).unwrap());
        let piece = whole.slice(..cut.index(whole.len() + 1));
        let (from, limit) = (Offset(from), Offset(limit));
        match trim(&piece, from, limit, bytes_max, first_whole) {
            Trimmed::Batches(batches) => {
                let spans = whole_batches(&batches);
                prop_assert!(spans.iter().all(|(_, end)| *end > from.0 && *end <= limit.0));
                prop_assert!(batches.len() <= bytes_max || (first_whole && spans.len() == 1));
            }
            Trimmed::More(bytes) => prop_assert!(bytes > piece.len()),
            Trimmed::Skip(bytes) => {
                let skipped = whole_batches(&whole.slice(..bytes));
                prop_assert!(skipped.iter().all(|(_, end)| *end <= from.0));
            }
            Trimmed::Damaged => prop_assert!(false, "nothing is damaged"),
        }
    }
}
