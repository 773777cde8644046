//! Markers, pending offsets and what a start owes: B7, F61 to F63, and steps that run at the same time.

use Outcome::{Abort, Commit};

use super::world::{Map, World};
use super::*;
use crate::ids::{BrokerId, ShardId};

const ID: &str = "t";

/// An open transaction on these partitions and groups, everything done.
fn open(version: i16, indexes: &[i32], groups: &[&str]) -> (World, Identity) {
    let mut world = World::new(version);
    let producer = world.init(ID, Identity::NONE).unwrap();
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, indexes))), 0);
    assert_eq!(code(&world.answer(ID, add_groups(producer, BROKER, groups))), 0);
    (world, producer)
}

/// The same, and decided by EndTxn 5 with the markers on their way.
fn decided(indexes: &[i32], groups: &[&str]) -> (World, Identity) {
    let (mut world, producer) = open(2, indexes, groups);
    world.ask(ID, end_b(producer, Commit));
    world.run_without_markers();
    (world, producer)
}

fn indexes(markers: &[Marker]) -> Vec<i32> {
    let mut indexes: Vec<_> = markers.iter().flat_map(|m| &m.partitions).map(|key| key.index).collect();
    indexes.sort_unstable();
    indexes
}

fn settled(world: &mut World) -> &'static str {
    world.pass(5);
    world.run();
    world.state(ID).0
}

#[test]
fn b7_a_marker_names_its_transaction_and_each_shard_its_partitions() {
    let (world, producer) = decided(&[0, 1, 2, 3], &[]);
    assert_eq!(world.markers.len(), 3, "one for each shard");
    for marker in &world.markers {
        assert_eq!((&*marker.txn.id, marker.txn.sequence), (ID, 1));
        assert_eq!((marker.producer.producer_id, marker.producer.epoch.0), (producer.producer_id, 1));
        assert_eq!((marker.outcome, marker.version, marker.coordinator_epoch), (Commit, 2, 1));
    }
    assert_eq!(indexes(&world.markers), [0, 1, 2, 3]);
}

#[test]
fn b7_transactions_that_become_durable_together_share_a_message_to_a_shard() {
    let mut world = World::new(2);
    let slot = slot_of(b"t");
    let names: Vec<_> = (0..1000).map(|n| format!("t{n}")).filter(|n| slot_of(n.as_bytes()) == slot).take(5).collect();
    let mut producers = Vec::new();
    for name in &names {
        let producer = world.init(name, Identity::NONE).unwrap();
        assert_eq!(code(&world.answer(name, add(producer, BROKER, &[0, 1]))), 0);
        producers.push(producer);
    }
    for (name, producer) in names.iter().zip(producers) {
        world.ask(name, end_b(producer, Commit));
    }
    let mut effects = Vec::new();
    let journal = world.txns.journal_mut(slot).unwrap();
    journal.take_write().unwrap();
    journal.wrote();
    world.txns.settled(slot, world.now, &mut effects);
    let batches: Vec<_> = effects.iter().filter(|effect| matches!(effect, Effect::SendMarkers(_))).collect();
    assert_eq!(batches.len(), 2, "{batches:?}");
    let Effect::SendMarkers(batch) = batches[0] else { unreachable!() };
    assert_eq!((batch.to, batch.markers.len()), (ShardId(0), 5));
}

#[test]
fn b7_codes_that_are_retried_come_again_after_a_pause_and_only_for_their_partition() {
    for retried in [3, 6, 7, 10, 14, 56] {
        let (mut world, _) = decided(&[0, 1], &[]);
        let markers = std::mem::take(&mut world.markers);
        world.mark(&markers[0], ErrorCode::from_wire(retried).unwrap(), 0);
        world.mark(&markers[1], ErrorCode::None, 0);
        world.pass(crate::limits::MARKER_RETRY_MS - 1);
        assert!(world.markers.is_empty(), "B11.8: not without a pause");
        world.pass(1);
        assert_eq!(indexes(&world.markers), [0], "{retried}");
        assert_eq!(world.state_now(ID), "PrepareCommit");
        world.run();
        assert_eq!(settled(&mut world), "CompleteCommit");
    }
}

#[test]
fn b7_silence_of_another_broker_sends_again_after_request_timeout_ms_and_that_of_a_shard_never() {
    let (mut world, producer) = open(2, &[0, 1], &[]);
    world.set_map(Map { elsewhere: [partition(1)].into(), ..Map::default() });
    world.ask(ID, end_b(producer, Commit));
    world.run_without_markers();
    let first = std::mem::take(&mut world.markers);
    world.pass(29_999);
    assert!(world.markers.is_empty());
    world.pass(1);
    assert_eq!(indexes(&world.markers), [1]);
    first.iter().for_each(|marker| world.mark(marker, ErrorCode::None, 0));
    assert_eq!(settled(&mut world), "CompleteCommit");
    world.mark(&first[0], ErrorCode::None, 0);
    assert_eq!(settled(&mut world), "CompleteCommit", "a late answer is harmless");
}

#[test]
fn b7_an_answer_to_one_transaction_says_nothing_about_the_next_at_the_same_epoch() {
    let (mut world, producer) = open(1, &[0], &[]);
    world.ask(ID, end_a(producer, Commit));
    world.run_without_markers();
    let old = world.markers.clone();
    world.run();
    assert_eq!(code(&world.answer(ID, add(producer, AddBy::Client, &[0]))), 0);
    world.ask(ID, end_a(producer, Abort));
    world.run_without_markers();
    let txn = old[0].txn.clone();
    let answer = MarkerAnswer { partition: partition(0), code: ErrorCode::None, coordinator_epoch: 0 };
    world.step(|txns, now, effects| txns.marked(&txn, &[answer], now, effects));
    world.run_without_markers();
    assert_eq!(world.state_now(ID), "PrepareAbort");
    world.run();
    assert_eq!(settled(&mut world), "CompleteAbort");
}

#[test]
fn b11_4_a_partition_that_an_administrator_marked_does_not_hold_the_transaction_for_ever() {
    let (mut world, _) = decided(&[0], &[]);
    let marker = world.markers.pop().unwrap();
    world.mark(&marker, ErrorCode::InvalidProducerEpoch, 0);
    assert_eq!(settled(&mut world), "CompleteCommit", "a higher epoch: nothing of it is open there");

    let (mut world, _) = decided(&[0], &[]);
    let marker = world.markers.pop().unwrap();
    world.mark(&marker, ErrorCode::TransactionCoordinatorFenced, 77);
    world.pass(100);
    assert_eq!(world.markers[0].coordinator_epoch, 77, "it goes on in that name");
    world.run();
    assert_eq!(settled(&mut world), "CompleteCommit");
}

#[test]
fn f63_a_deleted_partition_counts_as_done_and_one_without_an_owner_is_waited_for() {
    for gone_before in [true, false] {
        let (mut world, producer) = open(2, &[0, 1], &[]);
        let map = Map { gone: [partition(0), partition(1)].into(), ..Map::default() };
        if gone_before {
            world.set_map(map.clone());
        }
        world.ask(ID, end_b(producer, Commit));
        world.run_without_markers();
        world.set_map(map);
        world.pass(5);
        world.write_all();
        assert_eq!(world.state(ID).0, "CompleteCommit", "{gone_before}");
    }
    let (mut world, producer) = open(2, &[0, 1], &[]);
    world.set_map(Map { nowhere: [partition(0)].into(), ..Map::default() });
    world.ask(ID, end_b(producer, Commit));
    for _ in 0..50 {
        world.run();
        world.pass(1000);
    }
    assert_eq!(world.state(ID).0, "PrepareCommit", "B11.1: Kafka completes without the marker");
    world.set_map(Map::default());
    world.pass(100);
    world.run();
    assert_eq!(settled(&mut world), "CompleteCommit");
}

#[test]
fn the_marker_of_a_partition_elsewhere_goes_there_as_a_file_of_its_own() {
    let (mut world, producer) = open(2, &[0, 1], &[]);
    world.set_map(Map { elsewhere: [partition(1)].into(), ..Map::default() });
    world.ask(ID, end_b(producer, Commit));
    world.run_without_markers();
    assert_eq!(indexes(&world.markers), [0, 1]);
    let marker = world.markers.iter().find(|marker| marker.partitions == [partition(1)]).unwrap().clone();
    let file = MarkerFile { to: BrokerId(9), marker };
    assert_eq!(file.name(), format!("{}-1-1.json", producer.producer_id));
    world.run();
    assert_eq!(settled(&mut world), "CompleteCommit");
}

#[test]
fn offsets_follow_when_every_partition_has_its_marker_and_complete_waits_for_them() {
    let (mut world, _) = decided(&[0, 1], &["g", "gg"]);
    let markers = std::mem::take(&mut world.markers);
    world.mark(&markers[0], ErrorCode::None, 0);
    world.pass(50);
    assert!(world.hooks.is_empty());
    world.mark(&markers[1], ErrorCode::None, 0);
    assert_eq!(world.hooks.len(), 2, "one for each shard");
    let hooks = std::mem::take(&mut world.hooks);
    world.hook(&hooks[0], ErrorCode::None);
    world.hook(&hooks[1], ErrorCode::CoordinatorLoadInProgress);
    world.pass(5);
    world.write_all();
    assert_eq!(world.state_now(ID), "PrepareCommit");
    world.pass(crate::limits::MARKER_RETRY_MS);
    assert_eq!((world.hooks.len(), world.hooks[0].outcome), (1, Commit));
    world.run();
    assert_eq!(settled(&mut world), "CompleteCommit");
}

#[test]
fn a_transaction_of_offsets_alone_has_only_the_hook() {
    let (mut world, _) = decided(&[], &["g"]);
    assert!(world.markers.is_empty());
    assert_eq!(world.hooks[0].groups, [Arc::from("g")]);
    world.run();
    assert_eq!(settled(&mut world), "CompleteCommit");
}

#[test]
fn f61_a_start_sends_the_markers_of_everything_that_is_decided_with_the_stored_epoch() {
    for (request, version, epoch) in [(end_a(who(0, 0), Commit), 0, 0), (end_b(who(0, 0), Commit), 2, 1)] {
        let (mut world, producer) = open(2, &[0, 1], &["g"]);
        let Request::End(end) = request else { unreachable!() };
        let ended = world.ask(ID, Request::End(End { producer, ..end }));
        world.run_without_markers();
        assert!(world.replies[&ended].is_ok());
        let acknowledged = world.markers.pop().unwrap();
        world.mark(&acknowledged, ErrorCode::None, 0);
        world.crash();
        assert_eq!(indexes(&world.markers), [0, 1], "acknowledgements are not kept: markers come again");
        let marker = &world.markers[0];
        assert_eq!((marker.outcome, marker.version, marker.producer.epoch.0), (Commit, version, epoch));
        assert_eq!(marker.coordinator_epoch, 2);
        world.run();
        assert_eq!(settled(&mut world), "CompleteCommit");
    }
}

#[test]
fn complete_goes_with_the_next_write_and_a_crash_derives_it_again() {
    let (mut world, producer) = decided(&[0], &[]);
    world.run();
    assert_eq!(world.state_now(ID), "PrepareCommit", "nobody waits for it yet");
    world.crash();
    world.run();
    let next = Identity { epoch: ProducerEpoch(1), ..producer };
    let added = world.ask(ID, add(next, BROKER, &[5]));
    assert!(world.begin_write(slot_of(ID.as_bytes())));
    assert!(!world.replies.contains_key(&added));
    world.end_write(slot_of(ID.as_bytes()));
    assert_eq!(code(&world.replies[&added]), 0, "one write for both");
    assert_eq!(world.state(ID), ("Ongoing", next));
}

#[test]
fn a_first_write_may_start_before_its_add_is_durable_where_no_marker_can_hit_it() {
    let (mut world, producer) = open(2, &[0], &[]);
    let first = world.ask(ID, add(producer, EARLY, &[1]));
    let second = world.ask(ID, add(producer, EARLY, &[2]));
    let patient = world.ask(ID, add(producer, BROKER, &[3]));
    assert!(world.granted.contains(&first) && world.granted.contains(&second) && !world.granted.contains(&patient));
    world.run();
    // Path B: the marker carries the epoch of the next transaction, which a partition open at it refuses.
    let ended = world.ask(ID, end_b(producer, Commit));
    world.run_without_markers();
    let Ok(Reply::Ended(next)) = world.replies[&ended] else { panic!("it is decided") };
    let waiting = world.ask(ID, add(next, EARLY, &[1]));
    assert!(!world.granted.contains(&waiting), "the markers are not all written");
    world.mark_all();
    assert!(world.granted.contains(&waiting));
    assert!(!world.replies.contains_key(&waiting));
    world.run();
    // Path A: it carries the same epoch, so Complete* must be durable.
    world.ask(ID, end_a(next, Commit));
    world.run();
    let early = world.ask(ID, add(next, EARLY, &[1]));
    assert!(!world.granted.contains(&early));
    world.run();
    let later = world.ask(ID, add(next, EARLY, &[2]));
    assert!(world.granted.contains(&later));
}

#[test]
fn init_answers_when_its_entry_is_durable_and_its_fence_is_up_in_either_order() {
    for fence_first in [true, false] {
        let mut world = World::new(2);
        let producer = world.init(ID, Identity::NONE).unwrap();
        let waiting = world.ask(ID, init(Identity::NONE));
        assert_eq!(world.fences.len(), 1, "it goes up while the entry is written");
        let fence = world.fences[0].2;
        assert!(fence.refuses(producer.epoch) && !fence.refuses(ProducerEpoch(1)));
        let add_waits = world.ask(ID, add(Identity { epoch: ProducerEpoch(1), ..producer }, BROKER, &[0]));
        if fence_first {
            world.raise_fences();
        } else {
            world.write_all();
        }
        assert!(!world.replies.contains_key(&waiting));
        world.run();
        assert!(world.replies[&waiting].is_ok() && world.replies[&add_waits].is_ok());
    }
}

fn adopt(producer: Identity, index: i32, seen: Option<u64>) -> Request {
    Request::Adopt(Adopt { producer, partitions: vec![partition(index)], groups: vec![], seen })
}

fn adopted(world: &mut World, request: Request) -> Adopted {
    match world.answer(ID, request) {
        Ok(Reply::Adopted(adopted)) => adopted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_crash_left_open_at_a_partition_joins_its_transaction_or_is_aborted() {
    let (mut world, producer) = open(2, &[0], &[]);
    let granted = world.ask(ID, add(producer, EARLY, &[1]));
    assert!(world.granted.contains(&granted));
    world.crash();
    assert_eq!(world.txns.owner_of(producer.producer_id).as_deref(), Some(ID));
    assert_eq!(world.txns.owner_of(ProducerId(1)), None);
    assert_eq!(adopted(&mut world, adopt(producer, 0, None)), Adopted::Yes);
    assert_eq!(adopted(&mut world, adopt(producer, 1, None)), Adopted::LookAgain(0));
    assert_eq!(adopted(&mut world, adopt(producer, 1, Some(0))), Adopted::Yes);
    let next = world.end(ID, end_b(producer, Commit)).unwrap();
    assert!(world.acknowledged.iter().any(|(_, key)| *key == partition(1)), "it got its marker");
    // An older epoch is over for good, and so is a producer id that nobody has.
    assert_eq!(adopted(&mut world, adopt(producer, 4, None)), Adopted::Abort(next.epoch));
    assert_eq!(adopted(&mut world, adopt(who(1, 6), 4, None)), Adopted::Abort(ProducerEpoch(6)));
    // The transaction may have only what the crash left.
    assert_eq!(adopted(&mut world, adopt(next, 4, None)), Adopted::LookAgain(1));
    assert_eq!(adopted(&mut world, adopt(next, 4, Some(1))), Adopted::Yes);
    assert_eq!(world.state(ID), ("Ongoing", next));
}

#[test]
fn what_is_open_at_the_next_epoch_waits_for_complete_and_joins_the_next_transaction() {
    let (mut world, producer) = decided(&[0], &[]);
    let next = Identity { epoch: ProducerEpoch(1), ..producer };
    let waiting = world.ask(ID, adopt(next, 0, None));
    let current = world.ask(ID, adopt(producer, 0, None));
    world.run_without_markers();
    assert_eq!(world.replies[&current], Ok(Reply::Adopted(Adopted::Yes)), "its marker is on the way");
    assert!(!world.replies.contains_key(&waiting));
    world.run();
    assert_eq!(world.replies[&waiting], Ok(Reply::Adopted(Adopted::LookAgain(1))));
    assert_eq!(adopted(&mut world, adopt(next, 0, Some(1))), Adopted::Yes);
    assert_eq!(world.state(ID), ("Ongoing", next));
}

#[test]
fn a_question_that_crosses_with_the_end_of_its_transaction_opens_none() {
    let mut world = World::new(2);
    let producer = world.init(ID, Identity::NONE).unwrap();
    world.answer(ID, add(producer, AddBy::Client, &[0])).unwrap();
    let current = world.end(ID, end_a(producer, Commit)).unwrap();
    assert_eq!(current, producer, "path A keeps the epoch");
    // The partition was looked at before its marker came: it would not find itself open now.
    assert_eq!(adopted(&mut world, adopt(producer, 0, None)), Adopted::LookAgain(1));
    assert_eq!(world.state(ID), ("CompleteCommit", producer));
    // Nor does one that crosses with the end of the next transaction.
    world.answer(ID, add(producer, AddBy::Client, &[0])).unwrap();
    world.end(ID, end_a(producer, Commit)).unwrap();
    assert_eq!(adopted(&mut world, adopt(producer, 0, Some(1))), Adopted::LookAgain(2));
    assert_eq!(world.state(ID), ("CompleteCommit", producer));
}

#[test]
fn a_lost_journal_refuses_everyone_who_waits_and_whoever_comes() {
    let (mut world, producer) = open(2, &[0], &[]);
    let ended = world.ask(ID, end_b(producer, Commit));
    let parked = world.ask(ID, init(Identity::NONE));
    world.begin_write(slot_of(ID.as_bytes()));
    world.fail_write(slot_of(ID.as_bytes()), false);
    assert_eq!((code(&world.replies[&ended]), code(&world.replies[&parked])), (15, 15));
    assert_eq!(code(&world.answer(ID, Request::Describe)), 15);
    world.pass(100_000);
    assert!(world.markers.is_empty());
    let counts = world.txns.counts();
    assert_eq!((counts.parked, counts.completing), (0, 0));
    let elsewhere = (0..).map(|n| format!("x{n}")).find(|n| slot_of(n.as_bytes()) != slot_of(b"t")).unwrap();
    assert!(world.init(&elsewhere, Identity::NONE).is_ok(), "the other slots serve on");
    world.crash();
    assert_eq!(world.state(ID), ("Ongoing", producer));
}
