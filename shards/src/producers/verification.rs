//! Verification of transactional batches: which producers have asked the coordinator whether their transaction may
//! write here (contract A4, A5.2, A5.4, A5.5, A6.5, A7).
//!
//! Owner: `Producers`, so it lives with the partition and dies with the process: a restart or a new leader verifies
//! again. Between the question and the append anything may happen, a marker above all; the guard that a request carries
//! shows that what was asked still holds. Limits: `limits::PARTITION_VERIFICATIONS_MAX`; beyond it the oldest one is
//! forgotten, and its producer's next batch is answered INVALID_TXN_STATE and verified again.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::batch::BatchHeader;
use crate::code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId, TimestampMs};
use crate::limits::PARTITION_VERIFICATIONS_MAX;
use crate::producers::Producers;

/// Shows that a batch was verified, and when: the next verification of the same producer has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guard(u64);

/// What a transactional batch carries to its append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Nobody has to ask: `transaction.partition.verification.enable` is off, or the batch is not a client's.
    Unchecked,
    /// Its transaction was open here when it came, so nobody was asked.
    Open,
    /// The coordinator was asked under this guard.
    Asked(Guard),
}

/// What has to happen before a transactional batch may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Nothing: its transaction is open here.
    Open,
    /// The coordinator has to be asked under this guard.
    Ask(Guard),
    /// It is answered with this code, whatever the coordinator says.
    Refuse(ErrorCode),
}

#[derive(Clone, Copy, Debug)]
struct Verification {
    guard: Guard,
    created_at: TimestampMs,
    lowest_sequence: i32,
    epoch: i16,
    /// Whether the producer adds its partitions by writing to them (Produce 12 and later).
    adds: bool,
}

/// All verifications of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Verifications {
    by_producer: HashMap<i64, Verification, FixedState>,
    /// Producers by the guard of their verification: by age.
    by_age: BTreeMap<Guard, i64>,
    last: u64,
}

impl Verifications {
    #[inline]
    fn get(&self, producer_id: ProducerId) -> Option<&Verification> {
        if self.by_producer.is_empty() { None } else { self.by_producer.get(&producer_id.0) }
    }

    fn ask(&mut self, header: &BatchHeader, sequence: i32, adds: bool, now: TimestampMs) -> Guard {
        let epoch = header.producer_epoch.0;
        if let Some(known) = self.by_producer.get_mut(&header.producer_id.0) {
            if epoch > known.epoch {
                (known.epoch, known.lowest_sequence) = (epoch, sequence);
            } else if epoch == known.epoch {
                known.lowest_sequence = known.lowest_sequence.min(sequence);
            }
            return known.guard;
        }
        while self.by_producer.len() >= PARTITION_VERIFICATIONS_MAX {
            let (_, oldest) = self.by_age.pop_first().expect("both lists hold the same");
            self.by_producer.remove(&oldest);
        }
        self.last += 1;
        let guard = Guard(self.last);
        let verification = Verification { guard, created_at: now, lowest_sequence: sequence, epoch, adds };
        self.by_producer.insert(header.producer_id.0, verification);
        self.by_age.insert(guard, header.producer_id.0);
        guard
    }

    fn forget(&mut self, producer_id: ProducerId) {
        if let Some(known) = self.by_producer.remove(&producer_id.0) {
            self.by_age.remove(&known.guard);
        }
    }

    /// A transactional batch was appended: its transaction is open now.
    pub(super) fn appended(&mut self, producer_id: ProducerId) {
        if !self.by_producer.is_empty() {
            self.forget(producer_id);
        }
    }

    /// A marker came (A6.5): what was asked before it holds no longer, unless it was asked by a producer that runs at
    /// the marker's epoch already. At the last epoch there is none: it goes on under another id.
    pub(super) fn ended(&mut self, producer_id: ProducerId, epoch: ProducerEpoch) {
        let is_next = |known: &Verification| known.adds && known.epoch == epoch.0 && epoch.0 < i16::MAX;
        if self.get(producer_id).is_some_and(|known| !is_next(known)) {
            self.forget(producer_id);
        }
    }

    pub(super) fn expire(&mut self, now: TimestampMs, expiration_ms: i64) {
        while let Some((guard, producer_id)) = self.by_age.first_key_value().map(|(guard, id)| (*guard, *id)) {
            let created_at = self.by_producer[&producer_id].created_at;
            if now.0.saturating_sub(created_at.0) < expiration_ms {
                break;
            }
            self.by_age.remove(&guard);
            self.by_producer.remove(&producer_id);
        }
    }
}

impl Producers {
    /// What a transactional batch needs before its append (A4 b to d). `adds`: the request adds the partition to the
    /// transaction by writing to it (Produce 12 and later).
    pub fn verify(&mut self, header: &BatchHeader, adds: bool, now: TimestampMs) -> Verify {
        let epoch = header.producer_epoch.0;
        let mut lowest_sequence = header.base_sequence.0;
        if let Some(entry) = self.table.get(header.producer_id) {
            if epoch < entry.epoch {
                return Verify::Refuse(ErrorCode::InvalidProducerEpoch);
            }
            if entry.has_open_txn() && entry.epoch == epoch {
                if !self.doubted.contains(&header.producer_id) {
                    return Verify::Open;
                }
                // What is open keeps its batches in order by itself, and nobody but a doubter asks about it: a resent
                // batch, which is a duplicate, must not keep away what follows.
                lowest_sequence = i32::MAX;
            }
        }
        Verify::Ask(self.verifications.ask(header, lowest_sequence, adds, now))
    }

    /// Number of producers that have asked and not yet appended.
    #[must_use]
    pub fn open_verifications(&self) -> usize {
        self.verifications.by_producer.len()
    }

    /// A5.2: whether what the batch carries lets it open a transaction here.
    pub(super) fn permits(&self, producer_id: ProducerId, permit: Permit) -> bool {
        match permit {
            Permit::Unchecked => true,
            Permit::Open => false,
            Permit::Asked(guard) => self.verifications.get(producer_id).is_some_and(|known| known.guard == guard),
        }
    }

    /// A5.4 and A5.5: whether a verification that is under way lets a batch with this sequence in, transactional or
    /// not.
    #[inline]
    pub(super) fn admits_sequence(&self, header: &BatchHeader, has_batches: bool) -> bool {
        let Some(known) = self.verifications.get(header.producer_id) else { return true };
        let sequence = header.base_sequence.0;
        let starts_late = known.adds && sequence != 0 && !has_batches;
        !starts_late && sequence <= known.lowest_sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Attributes, BatchBuilder, ControlKind, ControlRecord};
    use crate::ids::{Offset, Sequence};
    use crate::producers::Check;

    const P: ProducerId = ProducerId(7);
    const NOW: TimestampMs = TimestampMs(1_000);
    const GAP: Check = Check::Refuse(ErrorCode::OutOfOrderSequenceNumber);
    const NO_TXN: Check = Check::Refuse(ErrorCode::InvalidTxnState);

    #[derive(Default)]
    struct Log {
        producers: Producers,
        next: i64,
    }

    fn batch(epoch: i16, sequence: i32) -> BatchHeader {
        let batch = BatchBuilder::new().producer(P.0, epoch, sequence).record_count(5).last_offset_delta(4);
        let mut header = BatchHeader::parse(&batch.build()).expect("a header");
        header.attributes = header.attributes.with_transactional(true);
        header
    }

    impl Log {
        fn ask(&mut self, header: &BatchHeader, adds: bool) -> Permit {
            match self.producers.verify(header, adds, NOW) {
                Verify::Ask(guard) => Permit::Asked(guard),
                Verify::Open => Permit::Open,
                Verify::Refuse(code) => panic!("{code:?}"),
            }
        }

        fn append(&mut self, mut header: BatchHeader, permit: Permit) -> Check {
            let check = self.producers.check(&header, permit);
            if check == Check::Append {
                header.base_offset = Offset(self.next);
                self.producers.appended(&header);
                self.next = header.next_offset().0;
            }
            check
        }

        fn send(&mut self, epoch: i16, sequence: i32, adds: bool) -> Check {
            let header = batch(epoch, sequence);
            let permit = self.ask(&header, adds);
            self.append(header, permit)
        }

        fn marker(&mut self, epoch: i16) {
            let mut header = batch(epoch, Sequence::NONE.0);
            (header.record_count, header.last_offset_delta) = (1, 0);
            header.attributes = Attributes(0x30);
            header.base_offset = Offset(self.next);
            self.next += 1;
            let record = ControlRecord { kind: ControlKind::Abort, coordinator_epoch: 0 };
            self.producers.marker_appended(&header, record);
        }
    }

    #[test]
    fn a4_c_an_open_transaction_of_the_same_epoch_asks_nobody() {
        let mut log = Log::default();
        assert_eq!(log.send(0, 0, true), Check::Append);
        assert_eq!(log.producers.verify(&batch(0, 5), true, NOW), Verify::Open);
        assert_eq!(log.append(batch(0, 5), Permit::Open), Check::Append);
        assert!(
            matches!(log.producers.verify(&batch(1, 0), true, NOW), Verify::Ask(_)),
            "another epoch is another one"
        );
    }

    #[test]
    fn a4_b_f35_a_stale_epoch_is_47_without_a_question() {
        let mut log = Log::default();
        assert_eq!(log.send(3, 0, true), Check::Append);
        let stale = Verify::Refuse(ErrorCode::InvalidProducerEpoch);
        assert_eq!(log.producers.verify(&batch(2, 0), true, NOW), stale);
        assert_eq!(log.producers.verify(&batch(2, 0), false, NOW), stale);
    }

    #[test]
    fn a5_2_a_batch_without_a_guard_or_with_an_old_one_is_48() {
        let mut log = Log::default();
        assert_eq!(log.append(batch(0, 0), Permit::Open), NO_TXN);
        let permit = log.ask(&batch(0, 0), false);
        log.marker(0);
        assert_eq!(log.append(batch(0, 0), permit), NO_TXN, "f33: the marker came between");
        assert_eq!(log.append(batch(0, 0), Permit::Unchecked), Check::Append, "f37: verification is off");
    }

    #[test]
    fn f10_the_first_batch_of_a_producer_that_adds_by_writing_starts_at_0() {
        let mut log = Log::default();
        assert_eq!(log.send(0, 7, true), GAP);
        assert_eq!(log.send(0, 0, true), Check::Append);
        log.marker(1);
        assert_eq!(log.send(1, 5, true), GAP, "a marker that bumped the epoch left no batches");
        assert_eq!(log.send(1, 0, true), Check::Append);
    }

    #[test]
    fn f9_one_that_added_its_partition_before_may_start_anywhere() {
        assert_eq!(Log::default().send(0, 7, false), Check::Append);
    }

    #[test]
    fn f11_of_two_first_batches_in_verification_the_second_waits_for_the_first() {
        for adds in [true, false] {
            let mut log = Log::default();
            let (first, second) = (log.ask(&batch(0, 0), adds), log.ask(&batch(0, 5), adds));
            assert_eq!(first, second, "one verification a producer");
            assert_eq!(log.append(batch(0, 5), second), GAP, "adds: {adds}");
            assert_eq!(log.append(batch(0, 0), first), Check::Append);
            assert_eq!(log.append(batch(0, 5), Permit::Open), Check::Append);
        }
    }

    #[test]
    fn a4_d_a_refused_attempt_binds_the_ones_that_follow() {
        let mut log = Log::default();
        log.ask(&batch(0, 0), false);
        assert_eq!(log.send(0, 5, false), GAP, "until 0 is sent");
        assert_eq!(log.send(0, 0, false), Check::Append);

        let mut log = Log::default();
        log.ask(&batch(0, 7), false);
        assert_eq!(log.send(0, 7, true), Check::Append, "the first question decides how it adds");

        let mut log = Log::default();
        log.ask(&batch(0, 0), true);
        log.ask(&batch(1, 0), true);
        let permit = log.ask(&batch(0, 5), true);
        assert_eq!(log.append(batch(1, 5), permit), GAP, "a lower epoch changes nothing");
        assert_eq!(log.append(batch(1, 0), permit), Check::Append);
    }

    #[test]
    fn a4_d_a_resent_batch_of_an_ended_transaction_leaves_a_verification_behind() {
        let mut log = Log::default();
        assert_eq!(log.send(0, 0, false), Check::Append);
        assert_eq!(log.send(0, 5, false), Check::Append);
        log.marker(0);
        let permit = log.ask(&batch(0, 5), false);
        assert!(matches!(log.append(batch(0, 5), permit), Check::Duplicate { .. }));
        assert_eq!(log.send(0, 10, false), GAP);
    }

    #[test]
    fn a4_d_a_batch_resent_into_a_doubted_transaction_does_not_bind_the_next() {
        for confirmed in [true, false] {
            let mut log = Log::default();
            assert_eq!(log.send(0, 0, true), Check::Append);
            log.producers.doubt_open();
            assert!(matches!(log.send(0, 0, true), Check::Duplicate { .. }));
            if confirmed {
                log.producers.confirm(P);
            }
            assert_eq!(log.send(0, 10, true), GAP, "confirmed: {confirmed}");
            assert_eq!(log.send(0, 5, true), Check::Append, "confirmed: {confirmed}");
        }
    }

    #[test]
    fn a4_what_is_in_doubt_takes_no_batch_of_a_newer_epoch_before_its_marker() {
        for adds in [true, false] {
            let mut log = Log::default();
            assert_eq!(log.send(0, 0, adds), Check::Append);
            log.producers.doubt_open();
            assert_eq!(log.send(1, 0, adds), Check::Refuse(ErrorCode::NotEnoughReplicas));
            assert_eq!(log.append(batch(1, 0), Permit::Unchecked), Check::Refuse(ErrorCode::NotEnoughReplicas));
            assert_eq!(log.producers.open_transactions(), 1, "it would have been committed with the next one");
            log.marker(1);
            assert_eq!(log.send(1, 0, adds), Check::Append);
        }
    }

    #[test]
    fn a4_c_what_is_open_asks_again_when_its_add_has_failed() {
        let mut log = Log::default();
        assert_eq!(log.send(3, 0, true), Check::Append);
        log.producers.doubt(P, ProducerEpoch(2));
        assert_eq!(log.producers.verify(&batch(3, 5), true, NOW), Verify::Open, "that was another one");
        log.producers.doubt(P, ProducerEpoch(3));
        for sequence in [0, 5] {
            assert!(matches!(log.producers.verify(&batch(3, sequence), true, NOW), Verify::Ask(_)), "{sequence}");
        }
        log.marker(4);
        assert_eq!(log.producers.doubted().count(), 0);
    }

    #[test]
    fn a5_4_plain_batches_of_the_producer_are_bound_too() {
        let mut log = Log::default();
        log.ask(&batch(0, 0), true);
        let mut plain = batch(0, 3);
        plain.attributes = Attributes(0);
        assert_eq!(log.append(plain, Permit::Unchecked), GAP);
    }

    #[test]
    fn f34_a_guard_at_the_markers_own_epoch_survives_if_the_producer_adds_by_writing() {
        for (adds, survives) in [(true, true), (false, false)] {
            let mut log = Log::default();
            assert_eq!(log.send(0, 0, adds), Check::Append);
            let permit = log.ask(&batch(1, 0), adds);
            log.marker(1);
            let expected = if survives { Check::Append } else { NO_TXN };
            assert_eq!(log.append(batch(1, 0), permit), expected, "adds: {adds}");
        }
    }

    #[test]
    fn a6_5_no_guard_survives_a_marker_at_the_last_epoch() {
        let mut log = Log::default();
        assert_eq!(log.send(i16::MAX, 0, true), Check::Append);
        let permit = log.ask(&batch(i16::MAX, 5), true);
        assert_eq!(log.append(batch(i16::MAX, 5), permit), Check::Append);
        log.marker(i16::MAX);
        let permit = log.ask(&batch(i16::MAX, 10), true);
        log.marker(i16::MAX);
        assert_eq!(log.append(batch(i16::MAX, 10), permit), NO_TXN, "nobody would end it");
    }

    #[test]
    fn a7_verifications_expire_by_the_age_of_the_first_question() {
        let mut log = Log::default();
        let permit = log.ask(&batch(0, 0), false);
        log.producers.expire(TimestampMs(NOW.0 + 99), 100);
        assert_eq!(log.producers.open_verifications(), 1);
        log.producers.expire(TimestampMs(NOW.0 + 100), 100);
        assert_eq!(log.append(batch(0, 0), permit), NO_TXN);
    }

    #[test]
    fn one_too_many_forgets_the_oldest_and_nothing_else() {
        let mut producers = Producers::new();
        let mut of = |id: i64| {
            let mut header = batch(0, 0);
            header.producer_id = ProducerId(id);
            (header, producers.verify(&header, true, NOW))
        };
        let first = of(0);
        let rest: Vec<_> = (1..=PARTITION_VERIFICATIONS_MAX as i64).map(&mut of).collect();
        let check = |(header, verify): &(BatchHeader, Verify)| {
            let Verify::Ask(guard) = verify else { panic!("{verify:?}") };
            producers.check(header, Permit::Asked(*guard))
        };
        assert_eq!(check(&first), NO_TXN);
        assert_eq!(check(&rest[0]), Check::Append);
        assert_eq!(producers.open_verifications(), PARTITION_VERIFICATIONS_MAX);
    }
}
