//! `Producers` against a model that keeps everything ever appended and looks it all through each time.

use proptest::prelude::*;

use super::*;
use crate::batch::{Attributes, BatchBuilder, ControlKind};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sequence: the one due, plus `skew`; or the `back`-th last batch again.
    Send {
        pid: i64,
        epoch: i16,
        skew: i32,
        count: i32,
        txn: bool,
    },
    Resend {
        back: usize,
        stretch: i32,
    },
    Marker {
        pid: i64,
        epoch: i16,
        coordinator_epoch: i32,
        version: i16,
        abort: bool,
    },
    Snapshot,
    Restart,
    HighWatermark,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Mostly one producer at its first epoch, so that windows fill.
    let pid = prop_oneof![4 => Just(0i64), 1 => 1..4i64];
    let epoch = prop_oneof![30 => Just(0i16), 1 => Just(1), 1 => Just(2)];
    let skew = prop_oneof![8 => Just(0), 1 => Just(1), 1 => Just(-1)];
    let txn = prop_oneof![9 => Just(true), 1 => Just(false)];
    let send = (pid.clone(), epoch.clone(), skew, 1..4, txn);
    let marker = (pid, epoch, 0..2i32, 0..3i16, any::<bool>());
    let step = prop_oneof![
        8 => send.prop_map(|(pid, epoch, skew, count, txn)| Step::Send { pid, epoch, skew, count, txn }),
        4 => (0usize..9, prop_oneof![4 => Just(0), 1 => Just(1)])
            .prop_map(|(back, stretch)| Step::Resend { back, stretch }),
        2 => marker.prop_map(|(pid, epoch, coordinator_epoch, version, abort)| {
            Step::Marker { pid, epoch, coordinator_epoch, version, abort }
        }),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Restart),
        1 => Just(Step::HighWatermark),
    ];
    prop::collection::vec(step, 0..100)
}

/// The log, and the contract's rules read off it.
#[derive(Default)]
struct Model {
    log: Vec<(BatchHeader, Option<ControlRecord>)>,
    high_watermark: i64,
}

impl Model {
    fn of(&self, pid: i64) -> impl DoubleEndedIterator<Item = &(BatchHeader, Option<ControlRecord>)> {
        self.log.iter().filter(move |(header, _)| header.producer_id.0 == pid)
    }

    fn end(&self) -> Offset {
        self.log.last().map_or(Offset(0), |(header, _)| header.next_offset())
    }

    fn epoch(&self, pid: i64) -> Option<i16> {
        self.of(pid).next_back().map(|(header, _)| header.producer_epoch.0)
    }

    /// Data batches since the epoch last changed, newest first, at most five.
    fn window(&self, pid: i64) -> Vec<BatchHeader> {
        let epoch = self.epoch(pid);
        let at_epoch = self.of(pid).rev().take_while(|(header, _)| Some(header.producer_epoch.0) == epoch);
        at_epoch.filter(|(_, control)| control.is_none()).map(|(header, _)| *header).take(5).collect()
    }

    /// First offset of the open transaction.
    fn open(&self, pid: i64) -> Option<Offset> {
        let mut open = None;
        for (header, control) in self.of(pid) {
            match control {
                Some(_) => open = None,
                None if header.attributes.is_transactional() => open = open.or(Some(header.base_offset)),
                None => {}
            }
        }
        open
    }

    fn check(&self, batch: &BatchHeader) -> Check {
        let pid = batch.producer_id.0;
        let Some(epoch) = self.epoch(pid) else { return Check::Append };
        let window = self.window(pid);
        let same = |old: &&BatchHeader| {
            (old.producer_epoch, old.base_sequence, old.last_sequence())
                == (batch.producer_epoch, batch.base_sequence, batch.last_sequence())
        };
        if let Some(old) = window.iter().find(same) {
            return Check::Duplicate {
                base_offset: old.base_offset,
                last_offset: old.last_offset(),
                timestamp: old.max_timestamp,
            };
        }
        let due = match window.first() {
            Some(last) if epoch == batch.producer_epoch.0 => last.last_sequence().plus(1),
            _ => Sequence(0),
        };
        if batch.producer_epoch.0 < epoch {
            Check::Refuse(ErrorCode::InvalidProducerEpoch)
        } else if batch.base_sequence != due {
            Check::Refuse(ErrorCode::OutOfOrderSequenceNumber)
        } else if self.open(pid).is_some() && !batch.attributes.is_transactional() {
            Check::Refuse(ErrorCode::InvalidTxnState)
        } else {
            Check::Append
        }
    }

    fn check_marker(&self, marker: &BatchHeader, coordinator_epoch: i32, version: i16) -> Result<(), ErrorCode> {
        let pid = marker.producer_id.0;
        let known = self.epoch(pid).unwrap_or(-1);
        let epoch = marker.producer_epoch.0;
        let repeat = epoch == known && self.open(pid).is_none();
        if epoch < known || (version >= 2 && epoch == known && !repeat) {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        let coordinator = self.of(pid).rev().find_map(|(_, control)| *control);
        if coordinator.is_some_and(|record| coordinator_epoch < record.coordinator_epoch) {
            return Err(ErrorCode::TransactionCoordinatorFenced);
        }
        Ok(())
    }

    fn first_unstable(&self) -> Option<Offset> {
        let mut first = (0..4).filter_map(|pid| self.open(pid)).min();
        for (at, (marker, control)) in self.log.iter().enumerate() {
            if control.is_some() && marker.base_offset.0 >= self.high_watermark {
                let before = Model { log: self.log[..at].to_vec(), high_watermark: 0 };
                let decided = before.open(marker.producer_id.0);
                first = [first, decided].into_iter().flatten().min();
            }
        }
        first
    }

    fn due(&self, pid: i64, epoch: i16) -> i32 {
        match self.window(pid).first() {
            Some(last) if self.epoch(pid) == Some(epoch) => last.last_sequence().plus(1).0,
            // Near the wrap, so that it is crossed often.
            None if self.epoch(pid).is_none() => i32::MAX - 3,
            _ => 0,
        }
    }
}

fn header(pid: i64, epoch: i16, sequence: i32, count: i32, attributes: Attributes) -> BatchHeader {
    let batch = BatchBuilder::new().producer(pid, epoch, sequence).attributes(attributes);
    let batch = batch.record_count(count).last_offset_delta(count - 1);
    BatchHeader::parse(&batch.build()).expect("a header")
}

struct Run {
    model: Model,
    live: Producers,
    snapshot: Vec<u8>,
}

impl Run {
    fn send(&mut self, mut batch: BatchHeader) -> Result<(), TestCaseError> {
        let check = self.live.check(&batch, Permit::Unchecked);
        prop_assert_eq!(check, self.model.check(&batch), "{:?}", batch);
        if check == Check::Append {
            batch.base_offset = self.model.end();
            batch.max_timestamp = TimestampMs(self.model.log.len() as i64);
            self.live.appended(&batch);
            self.model.log.push((batch, None));
        }
        Ok(())
    }

    fn mark(&mut self, mut marker: BatchHeader, record: ControlRecord, version: i16) -> Result<(), TestCaseError> {
        let (id, epoch) = (marker.producer_id, marker.producer_epoch);
        let check = self.live.check_marker(id, epoch, record.coordinator_epoch, version);
        prop_assert_eq!(check, self.model.check_marker(&marker, record.coordinator_epoch, version));
        if check.is_ok() {
            marker.base_offset = self.model.end();
            marker.max_timestamp = TimestampMs(self.model.log.len() as i64);
            let open = self.model.open(id.0).filter(|_| record.kind == ControlKind::Abort);
            let aborted = self.live.marker_appended(&marker, record);
            prop_assert_eq!(aborted.map(|entry| entry.first_offset), open);
            self.model.log.push((marker, Some(record)));
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Send { pid, epoch, skew, count, txn } => {
                let sequence = self.model.due(pid, epoch).wrapping_add(skew).max(0);
                let attributes = Attributes(0).with_transactional(txn);
                self.send(header(pid, epoch, sequence, count, attributes))?;
            }
            Step::Resend { back, stretch } => {
                let data: Vec<_> = self.model.log.iter().filter(|(_, control)| control.is_none()).collect();
                if let Some((old, _)) = data.into_iter().rev().nth(back) {
                    let mut again = *old;
                    again.last_offset_delta += stretch;
                    self.send(again)?;
                }
            }
            Step::Marker { pid, epoch, coordinator_epoch, version, abort } => {
                let kind = if abort { ControlKind::Abort } else { ControlKind::Commit };
                let marker = header(pid, epoch, -1, 1, Attributes(0x30));
                self.mark(marker, ControlRecord { kind, coordinator_epoch }, version)?;
            }
            Step::Snapshot => self.snapshot = self.live.snapshot(),
            Step::Restart => self.restart()?,
            Step::HighWatermark => {
                self.model.high_watermark = self.model.end().0;
                self.live.high_watermark_moved(self.model.end());
            }
        }
        prop_assert_eq!(self.live.first_unstable(), self.model.first_unstable());
        prop_assert_eq!(self.live.end_offset(), self.model.end());
        Ok(())
    }

    /// Both ways back, from the last snapshot and from the log alone, give the state that was lost.
    fn restart(&mut self) -> Result<(), TestCaseError> {
        let mut restored = Producers::restore(&self.snapshot).expect("an undamaged snapshot");
        let mut rebuilt = Producers::new();
        for (header, control) in &self.model.log {
            restored.replay(header, *control);
            rebuilt.replay(header, *control);
        }
        prop_assert_eq!(restored.snapshot(), self.live.snapshot());
        prop_assert_eq!(rebuilt.snapshot(), self.live.snapshot());
        self.live = restored;
        // What was recovered is committed.
        self.model.high_watermark = self.model.end().0;
        self.live.high_watermark_moved(self.model.end());
        Ok(())
    }
}

proptest! {
    #[test]
    fn producers_decide_as_a_model_that_forgets_nothing(steps in steps()) {
        let live = Producers::new();
        let mut run = Run { model: Model::default(), snapshot: live.snapshot(), live };
        for step in steps {
            run.step(step)?;
        }
        run.restart()?;
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_snapshot_is_refused(steps in steps(), longer in any::<u8>()) {
        let live = Producers::new();
        let mut run = Run { model: Model::default(), snapshot: live.snapshot(), live };
        for step in steps {
            run.step(step)?;
        }
        let good = run.live.snapshot();
        prop_assert!(Producers::restore(&good).is_ok());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Producers::restore(&bad).is_err(), "bit {}", bit);
        }
        for cut in 0..good.len() {
            prop_assert!(Producers::restore(&good[..cut]).is_err(), "cut at {}", cut);
        }
        prop_assert!(Producers::restore(&[&good[..], &[longer]].concat()).is_err());
    }

    #[test]
    fn the_order_of_use_survives_any_history(
        uses in prop::collection::vec((0i64..12, any::<bool>(), 0u8..10), 0..80),
        entries_max in 1usize..8,
    ) {
        // A list of ids, least recently used first, is all that eviction is about.
        let mut expected: Vec<i64> = Vec::new();
        let mut producers = Producers::new().limited_to(entries_max);
        let mut next = 0;
        for (pid, new_epoch, forget) in uses {
            if forget == 0 {
                prop_assert_eq!(producers.forget_oldest(), expected.first().copied().map(ProducerId));
                expected.drain(..expected.len().min(1));
                continue;
            }
            let known = expected.iter().position(|&id| id == pid);
            match known {
                Some(at) => drop(expected.remove(at)),
                None if expected.len() >= entries_max => drop(expected.remove(0)),
                None => {}
            }
            expected.push(pid);
            let mut batch = header(pid, i16::from(new_epoch), 0, 1, Attributes(0));
            batch.base_offset = Offset(next);
            producers.appended(&batch);
            next += 1;
            let mut shown: Vec<_> = producers.describe().map(|view| view.producer_id.0).collect();
            prop_assert!(shown.is_sorted());
            let mut sorted = expected.clone();
            sorted.sort_unstable();
            prop_assert_eq!(&shown, &sorted);
            shown.clear();
        }
        let order: Vec<_> = std::iter::from_fn(|| producers.forget_oldest()).map(|id| id.0).collect();
        prop_assert_eq!(order, expected);
    }

    #[test]
    fn noise_is_no_snapshot(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(Producers::restore(&bytes).is_err());
    }
}
