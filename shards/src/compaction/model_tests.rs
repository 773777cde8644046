//! Random logs, transactions, segment boundaries and cleans against a log that is never cleaned.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::testing::{Log, header};
use crate::batch::records::Records;
use crate::batch::{BatchBuilder, Codec, ControlKind};
use crate::ids::TimestampMs;

const PRODUCERS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    /// Records of nobody, or of a producer; of one with an open transaction they belong to it.
    Data {
        producer: usize,
        begins: bool,
        codec: usize,
        records: Vec<(u8, Option<u8>)>,
    },
    /// Ends a transaction, with the next epoch or the same.
    End {
        producer: usize,
        commits: bool,
        bumps: bool,
    },
    Roll,
    Clean {
        keys_max: usize,
        merge: usize,
    },
    Later(i64),
    Forget,
}

fn op() -> impl Strategy<Value = Op> {
    let record = (0u8..6, prop_oneof![3 => (0u8..200).prop_map(Some), 1 => Just(None)]);
    let data = (0..=PRODUCERS, any::<bool>(), 0..5usize, prop::collection::vec(record, 1..5));
    prop_oneof![
        8 => data.prop_map(|(producer, begins, codec, records)| Op::Data { producer, begins, codec, records }),
        5 => (0..PRODUCERS, any::<bool>(), any::<bool>())
            .prop_map(|(producer, commits, bumps)| Op::End { producer, commits, bumps }),
        4 => Just(Op::Roll),
        3 => (2usize..20, 1usize..5).prop_map(|(keys_max, merge)| Op::Clean { keys_max, merge }),
        2 => (1i64..3000).prop_map(Op::Later),
        1 => Just(Op::Forget),
    ]
}

#[derive(Clone, Copy, Default)]
struct Producer {
    epoch: i16,
    sequence: i32,
    is_open: bool,
}

/// The same history twice: one log is cleaned, the other is not.
struct Pair {
    cleaned: Log,
    whole: Log,
    producers: [Producer; PRODUCERS],
}

impl Pair {
    fn step(&mut self, op: &Op) {
        match op {
            Op::Data { producer, begins, codec, records } => self.data(*producer, *begins, Codec::ALL[*codec], records),
            Op::End { producer, commits, bumps } => self.end(*producer, *commits, *bumps),
            Op::Roll => self.cleaned.roll(),
            Op::Clean { keys_max, merge } => self.cleaned.clean(*keys_max, *merge),
            Op::Later(ms) => {
                for log in [&mut self.cleaned, &mut self.whole] {
                    log.now = TimestampMs(log.now.0 + ms);
                }
            }
            Op::Forget => {
                for log in [&mut self.cleaned, &mut self.whole] {
                    log.producers.expire(TimestampMs(i64::MAX), 0);
                }
            }
        }
    }

    fn data(&mut self, producer: usize, begins: bool, codec: Codec, records: &[(u8, Option<u8>)]) {
        let mut batch = BatchBuilder::new().codec(codec);
        if let Some(one) = self.producers.get_mut(producer) {
            batch = batch.producer(producer as i64, one.epoch, one.sequence);
            one.sequence += records.len() as i32;
            one.is_open |= begins;
            if one.is_open {
                batch = batch.transactional();
            }
        }
        for (key, value) in records {
            let value = value.map(|value| [value; 3]);
            let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", None)];
            batch = batch.record_at(self.whole.now, Some(&[*key]), value.as_ref().map(|v| &v[..]), headers);
        }
        self.append(&batch.build());
    }

    fn append(&mut self, batch: &[u8]) {
        assert_eq!(self.cleaned.append(batch.to_vec()), self.whole.append(batch.to_vec()));
    }

    fn end(&mut self, producer: usize, commits: bool, bumps: bool) {
        let one = &mut self.producers[producer];
        if bumps {
            (one.epoch, one.sequence) = (one.epoch + 1, 0);
        }
        one.is_open = false;
        let kind = if commits { ControlKind::Commit } else { ControlKind::Abort };
        for log in [&mut self.cleaned, &mut self.whole] {
            log.end_txn(producer as i64, one.epoch, kind);
        }
    }

    /// What must hold at any time.
    fn check(&self) {
        let (cleaned, whole) = (&self.cleaned, &self.whole);
        assert_eq!(cleaned.state(), whole.state(), "the newest value of every key");
        assert_eq!(cleaned.end(), whole.end(), "the log end");
        let (seen, all) = (cleaned.committed(), whole.committed());
        assert!(seen.is_sorted_by(|a, b| a.0 < b.0));
        assert!(seen.iter().all(|record| all.contains(record)), "nothing new, nothing moved, nothing aborted");
        assert_eq!(contents(cleaned).len(), cleaned.offsets().len());
        let all = contents(whole);
        assert!(contents(cleaned).iter().all(|(offset, record)| all.get(offset) == Some(record)));
        self.check_segments();
        self.check_producers();
    }

    fn check_segments(&self) {
        let mut end = None;
        for segment in self.cleaned.segments.iter().filter(|segment| !segment.is_empty()) {
            let (first, last) = (header(&segment[0]), header(&segment[segment.len() - 1]));
            assert!(end.is_none_or(|end| end <= first.base_offset), "segments do not overlap");
            end = Some(last.next_offset());
        }
    }

    /// A8: a start from the cleaned log alone knows every remembered producer's epoch, last sequence and transaction.
    fn check_producers(&self) {
        let replayed = self.cleaned.replayed().0;
        let found: BTreeMap<_, _> = replayed.describe().map(|view| (view.producer_id, view)).collect();
        for view in self.cleaned.producers.describe() {
            let found = found.get(&view.producer_id).expect("remembered");
            assert_eq!(found.epoch, view.epoch);
            // Of one that was forgotten and ended a transaction since, the log may know more.
            if view.last_sequence.0 >= 0 {
                assert_eq!(found.last_sequence, view.last_sequence);
            }
        }
        assert_eq!(replayed.first_unstable(), self.whole.replayed().0.first_unstable(), "A9: the stable offset");
    }
}

/// Timestamp and headers of each record by its offset.
fn contents(log: &Log) -> BTreeMap<i64, (i64, usize, Option<Vec<u8>>)> {
    let mut all = BTreeMap::new();
    for batch in log.batches() {
        for record in &Records::open(batch).expect("opens") {
            let record = record.expect("parses");
            let value = record.value.map(<[u8]>::to_vec);
            all.insert(record.offset.0, (record.timestamp.0, record.headers.len(), value));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn a10_a_reader_from_the_start_always_ends_with_the_state_of_the_whole_log(
        ops in prop::collection::vec(op(), 1..70)
    ) {
        let mut pair = Pair { cleaned: Log::new(), whole: Log::new(), producers: Default::default() };
        for op in &ops {
            pair.step(op);
            if matches!(op, Op::Clean { .. }) {
                pair.check();
            }
        }
        pair.cleaned.roll();
        pair.cleaned.clean(1000, 1000);
        pair.check();
    }
}
