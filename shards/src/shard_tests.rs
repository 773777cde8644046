use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::batch::{BatchBuilder, ControlKind};
use crate::ids::{LeaderEpoch, ProducerEpoch, ProducerId, TopicId};
use crate::partition::testing::{NOW, VERSION, partition, plain, rules, sequenced, stored};
use crate::partition::{LogRules, ReadPlan, Rebuild};
use crate::producers::Producers;

fn key(index: i32) -> PartitionKey {
    PartitionKey { topic: TopicId(1), index }
}

fn shard(tail_bytes_max: usize, partitions: i32) -> Shard {
    let mut shard = Shard::new(tail_bytes_max, Sessions::new(1, 1));
    for index in 0..partitions {
        shard.insert(key(index), partition(rules()));
    }
    shard
}

fn append(shard: &mut Shard, index: i32, batch: &Bytes, waiter: u64) -> (Appended, Effects) {
    let mut effects = Effects::new();
    let answer = shard.append(&key(index), Sent::unchecked(batch, VERSION), NOW, Some(WaiterId(waiter)), &mut effects);
    (answer, effects)
}

/// Writes one batch that is charged with `charge` bytes.
fn write(shard: &mut Shard, index: i32, value_bytes: usize, charge: usize) -> Effects {
    append(shard, index, &plain(1, value_bytes), 0);
    let plan = shard.take_write(&key(index), NOW).expect("it was appended");
    let mut effects = Effects::new();
    shard.wrote(&key(index), stored(&plan), charge, &mut effects);
    effects
}

/// Writes from this size on keep their buffer instead of being copied.
const KEPT: usize = 20_000;

fn is_cached(shard: &Shard, index: i32, offset: i64) -> bool {
    let log = shard.partition(&key(index)).unwrap();
    matches!(log.read(Offset(offset), log.high_watermark(), 1, true), ReadPlan::Cached(_))
}

#[test]
fn an_unknown_partition_answers_3() {
    let (answer, effects) = append(&mut shard(0, 1), 7, &plain(1, 1), 0);
    assert!(matches!(answer, Appended::Refused(refusal) if refusal.code == ErrorCode::UnknownTopicOrPartition));
    assert!(effects.is_empty());
}

fn refused(shard: &mut Shard, batch: &Bytes) -> ErrorCode {
    match append(shard, 0, batch, 0).0 {
        Appended::Refused(refusal) => refusal.code,
        other => panic!("taken: {other:?}"),
    }
}

#[test]
fn what_was_sent_behind_a_batch_that_came_too_early_is_not_taken_before_it() {
    use ErrorCode::{NotLeaderOrFollower, OutOfOrderSequenceNumber};
    let mut shard = shard(0, 0);
    shard.opening.expect(key(0));
    assert_eq!(refused(&mut shard, &sequenced(9, 4, 2)), NotLeaderOrFollower);
    assert_eq!(shard.verify(&key(0), &sequenced(8, 0, 1), false, NOW), Verify::Refuse(NotLeaderOrFollower));
    let opened = shard.opening.take().expect("it is expected");
    assert!(shard.opening.opened(&opened));
    shard.insert(opened, partition(rules()));
    for (producer_id, first) in [(9, 4), (8, 0)] {
        assert_eq!(refused(&mut shard, &sequenced(producer_id, first + 2, 1)), OutOfOrderSequenceNumber);
        assert!(matches!(append(&mut shard, 0, &sequenced(producer_id, first, 2), 0).0, Appended::Waiting(_)));
        assert!(matches!(append(&mut shard, 0, &sequenced(producer_id, first + 2, 1), 0).0, Appended::Waiting(_)));
    }
    assert!(matches!(append(&mut shard, 0, &sequenced(7, 3, 1), 0).0, Appended::Waiting(_)), "nobody refused it");
}

#[test]
fn an_append_starts_a_writer_once_and_settles_when_it_is_durable() {
    let mut shard = shard(0, 1);
    let (answer, effects) = append(&mut shard, 0, &sequenced(9, 0, 1), 1);
    assert!(matches!(answer, Appended::Waiting(placed) if placed.base == Offset(0)));
    assert!(matches!(effects[..], [Effect::StartWriter(at)] if at == key(0)));
    let plan = shard.take_write(&key(0), NOW).unwrap();
    assert!(append(&mut shard, 0, &sequenced(9, 1, 1), 2).1.is_empty(), "the writer comes back by itself");
    let mut effects = Effects::new();
    shard.wrote(&key(0), stored(&plan), 1, &mut effects);
    assert!(matches!(effects[..], [Effect::Settled(WaiterId(1), Ok(()))]));
    let (answer, effects) = append(&mut shard, 0, &sequenced(9, 0, 1), 3);
    assert!(matches!(answer, Appended::Durable(placed) if placed.duplicate && placed.base == Offset(0)));
    assert!(effects.is_empty());
}

#[test]
fn the_oldest_write_of_any_partition_leaves_the_tail_first() {
    let mut shard = shard(3_000, 2);
    write(&mut shard, 0, KEPT, 1_000);
    write(&mut shard, 1, KEPT, 1_000);
    write(&mut shard, 0, KEPT, 1_000);
    assert_eq!(shard.tail_bytes(), 3_000);
    write(&mut shard, 1, KEPT, 500);
    assert_eq!(shard.tail_bytes(), 2_500);
    assert_eq!([(0, 0), (1, 0), (0, 1), (1, 1)].map(|(i, at)| is_cached(&shard, i, at)), [false, true, true, true]);
    write(&mut shard, 1, KEPT, 2_000);
    assert_eq!(shard.tail_bytes(), 2_500);
    assert_eq!([(1, 0), (0, 1), (1, 1), (1, 2)].map(|(i, at)| is_cached(&shard, i, at)), [false, false, true, true]);
    write(&mut shard, 0, KEPT, 9_000);
    assert_eq!(shard.tail_bytes(), 0, "a write larger than the cache is not kept");
}

#[test]
fn small_writes_are_charged_with_their_bytes_and_large_ones_with_their_buffer() {
    let mut shard = shard(1 << 20, 1);
    let small = plain(1, 100).len();
    write(&mut shard, 0, 100, 4096);
    assert_eq!(shard.tail_bytes(), small);
    write(&mut shard, 0, KEPT, 32_768);
    assert_eq!(shard.tail_bytes(), small + 32_768);
}

#[test]
fn a_removed_partition_settles_its_waiters_with_3_and_wakes_its_readers() {
    let mut shard = shard(1 << 20, 2);
    write(&mut shard, 0, 100, 0);
    write(&mut shard, 1, 100, 0);
    let both = shard.tail_bytes();
    append(&mut shard, 0, &plain(1, 1), 5);
    let plan = shard.take_write(&key(0), NOW).unwrap();
    append(&mut shard, 0, &plain(1, 1), 6);
    shard.partition_mut(&key(0)).unwrap().watch(WatchId(7));
    let mut effects = Effects::new();
    assert!(shard.remove(&key(0), &mut effects).is_some());
    let gone = Err(ErrorCode::UnknownTopicOrPartition);
    let [Effect::Settled(WaiterId(5), first), Effect::Settled(WaiterId(6), second), Effect::Wake(WatchId(7))] =
        effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!([first, second], [gone, gone]);
    assert_eq!((shard.tail_bytes(), shard.len()), (both / 2, 1));
    // The write that was in flight comes back to nobody.
    effects.clear();
    shard.wrote(&key(0), stored(&plan), 1, &mut effects);
    shard.write_failed(&key(0), &mut effects);
    assert!(effects.is_empty() && shard.remove(&key(0), &mut effects).is_none());
    assert!(shard.take_write(&key(0), NOW).is_none());
}

#[test]
fn a_moved_log_start_wakes_readers_once() {
    let mut shard = shard(0, 1);
    write(&mut shard, 0, 100, 0);
    shard.partition_mut(&key(0)).unwrap().watch(WatchId(7));
    let mut effects = Effects::new();
    shard.set_log_start(&key(0), Offset(1), &mut effects);
    assert!(matches!(effects[..], [Effect::Wake(WatchId(7))]));
    assert!(write(&mut shard, 0, 1, 1).iter().all(|effect| !matches!(effect, Effect::Wake(_))));
}

#[test]
fn only_relaxed_partitions_that_are_due_are_flushed() {
    let mut shard = shard(0, 2);
    let relaxed = LogRules { flush_messages: 10, flush_ms: 5, ..rules() };
    for index in [3, 2] {
        shard.insert(key(index), partition(relaxed.clone()));
        write(&mut shard, index, 1, 1);
    }
    write(&mut shard, 0, 1, 1);
    assert!(shard.take_flushes(TimestampMs(NOW.0 + 4)).is_empty());
    assert_eq!(shard.take_flushes(TimestampMs(NOW.0 + 5)), [key(2), key(3)]);
    assert!(shard.take_flushes(TimestampMs(NOW.0 + 6)).is_empty());
}

proptest! {
    #[test]
    fn the_tail_is_charged_with_exactly_what_it_keeps(
        tail_bytes_max in 0..60_000usize,
        events in vec((0..4i32, 0..6u8, prop_oneof![0..300usize, KEPT..KEPT + 300], 1..30_000usize), 1..60),
    ) {
        let mut shard = shard(tail_bytes_max, 4);
        let mut effects = Effects::new();
        // Partition and charge of every write that is kept, oldest first.
        let mut kept: Vec<(i32, usize)> = Vec::new();
        for (index, kind, value_bytes, buffer_bytes) in events {
            if kind == 0 {
                shard.remove(&key(index), &mut effects);
                shard.insert(key(index), partition(rules()));
                kept.retain(|(owner, _)| *owner != index);
            } else {
                write(&mut shard, index, value_bytes, buffer_bytes);
                let charge = if value_bytes < KEPT { plain(1, value_bytes).len() } else { buffer_bytes };
                kept.push((index, charge));
            }
            let sum = |kept: &[(i32, usize)]| kept.iter().map(|(_, charge)| charge).sum::<usize>();
            while sum(&kept) > tail_bytes_max {
                kept.remove(0);
            }
            prop_assert_eq!(shard.tail_bytes(), sum(&kept));
            prop_assert_eq!(shard.tail_order.len(), kept.len());
        }
        for index in 0..4 {
            shard.remove(&key(index), &mut effects);
        }
        prop_assert_eq!(shard.tail_bytes(), 0);
    }
}

const P: ProducerId = ProducerId(7);

fn abort(epoch: i16) -> EndMarker {
    let (kind, epoch) = (ControlKind::Abort, ProducerEpoch(epoch));
    EndMarker { producer_id: P, epoch, coordinator_epoch: 1, transaction_version: 0, kind }
}

fn transactional(sequence: i32) -> Bytes {
    Bytes::from(BatchBuilder::new().producer(P.0, 0, sequence).transactional().record(None, Some(b"v")).build())
}

#[test]
fn a6_a_marker_starts_the_writer_and_settles_its_waiter_when_it_is_durable() {
    let mut shard = shard(0, 1);
    let mut effects = Effects::new();
    let unknown = shard.append_marker(&key(7), &abort(0), NOW, WaiterId(1), &mut effects);
    assert_eq!(unknown, Err(MarkerRefusal::code(ErrorCode::UnknownTopicOrPartition)));
    assert!(effects.is_empty());
    let placed = shard.append_marker(&key(0), &abort(0), NOW, WaiterId(1), &mut effects).expect("taken");
    assert_eq!((placed.base, placed.end), (Offset(0), Offset(1)));
    assert!(matches!(std::mem::take(&mut effects)[..], [Effect::StartWriter(at)] if at == key(0)));
    shard.append_marker(&key(0), &abort(0), NOW, WaiterId(2), &mut effects).expect("again");
    assert!(effects.is_empty(), "one writer");
    let plan = shard.take_write(&key(0), NOW).expect("both");
    shard.wrote(&key(0), stored(&plan), 1, &mut effects);
    let settled = |effect: &Effect| matches!(effect, Effect::Settled(_, Ok(())));
    assert_eq!(effects.iter().filter(|effect| settled(effect)).count(), 2, "one write for both");
}

#[test]
fn a8_what_a_start_finds_open_is_verified_again_until_a_coordinator_has_adopted_it() {
    let mut before = partition(rules());
    for producer in [P.0, 8] {
        let batch = BatchBuilder::new().producer(producer, 0, 0).transactional().record(None, Some(b"v")).build();
        assert!(matches!(before.append(&batch.into(), VERSION, Permit::Unchecked, NOW), Append::Accepted(_)));
    }
    let found = |producers: &Producers| {
        let mut rebuild = Rebuild::new(producers.clone());
        let mut segment = Segment::new(SegmentId::new(Offset(0), LeaderEpoch(1)), NOW);
        segment.grow(Offset(2), 200, NOW);
        rebuild.segment(segment);
        Partition::recovered(rules(), LeaderEpoch(6), rebuild.finish(Offset(0)))
    };
    let mut shard = shard(0, 1);
    for index in [2, 1] {
        shard.insert(key(index), found(before.producers()));
    }
    let next = transactional(1);
    let asks = |shard: &mut Shard, index| matches!(shard.verify(&key(index), &next, true, NOW), Verify::Ask(_));
    assert!(asks(&mut shard, 1) && asks(&mut shard, 2), "A4 c does not hold yet");
    let adopts = shard.doubted();
    assert_eq!(adopts.iter().map(|adopt| adopt.producer.producer_id.0).collect::<Vec<_>>(), [P.0, 8]);
    assert_eq!(adopts[0].partitions, [key(1), key(2)]);
    shard.adopted(&adopts[0]);
    assert_eq!(shard.verify(&key(1), &next, true, NOW), Verify::Open);
    assert_eq!(shard.doubted(), adopts[1..]);
    let marker = EndMarker { producer_id: ProducerId(8), ..abort(0) };
    for index in [1, 2] {
        shard.append_marker(&key(index), &marker, NOW, WaiterId(9), &mut Effects::new()).expect("taken");
    }
    assert_eq!(shard.doubted(), [], "what a marker has ended is in doubt no more");
    let nobody = Verify::Refuse(ErrorCode::UnknownTopicOrPartition);
    assert_eq!(shard.verify(&key(7), &next, true, NOW), nobody);
}

fn open_in(shard: &mut Shard, index: i32, sequence: i32) {
    let (answer, _) = append(shard, index, &transactional(sequence), 0);
    assert!(matches!(answer, Appended::Waiting(_)), "{answer:?}");
}

#[test]
fn a_look_finds_what_is_open_since_the_look_before_and_knows_whether_it_has_moved() {
    let mut shard = shard(0, 3);
    open_in(&mut shard, 1, 0);
    assert_eq!(shard.look(None), (vec![], None), "it may have begun just now");
    let (found, _) = shard.look(None);
    let producer = Identity { producer_id: P, epoch: ProducerEpoch(0) };
    assert_eq!(found, [OpenTxn { partition: key(1), producer, first: Offset(0), last: Offset(0) }]);
    assert!(shard.is_still_open(&found[0]));
    open_in(&mut shard, 1, 1);
    assert!(!shard.is_still_open(&found[0]), "it has grown");
    let (grown, _) = shard.look(None);
    assert_eq!((grown[0].first, grown[0].last), (Offset(0), Offset(1)));
    shard.append_marker(&key(1), &abort(0), NOW, WaiterId(9), &mut Effects::new()).expect("taken");
    assert!(!shard.is_still_open(&grown[0]), "it has ended");
    open_in(&mut shard, 1, 2);
    assert!(!shard.is_still_open(&grown[0]), "it is the next one");
    assert_eq!(shard.look(None).0, [], "which is new");
}

#[test]
fn a_look_goes_through_a_few_partitions_at_a_time() {
    let partitions = 2 * i32::try_from(TXN_LOOK_PARTITIONS_MAX).expect("small") + 1;
    let mut shard = shard(0, partitions);
    (0..partitions).for_each(|index| open_in(&mut shard, index, 0));
    let turns = |shard: &mut Shard| {
        let (mut after, mut turns) = (None, Vec::new());
        loop {
            let (found, next) = shard.look(after);
            turns.push(found.iter().map(|open| open.partition.index).collect::<Vec<_>>());
            after = next;
            if after.is_none() {
                return turns;
            }
        }
    };
    assert!(turns(&mut shard).iter().all(Vec::is_empty));
    let found = turns(&mut shard);
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [TXN_LOOK_PARTITIONS_MAX, TXN_LOOK_PARTITIONS_MAX, 1]);
    assert!(found.concat().into_iter().eq(0..partitions), "each once");
}
