//! Contract cases F38 to F69 and F78 to F80 that the coordinator alone decides, by number.

use Outcome::{Abort, Commit};

use super::world::World;
use super::*;

const ID: &str = "t";

/// A new id, and who its producer is.
fn begun(version: i16) -> (World, Identity) {
    let mut world = World::new(version);
    let producer = world.init(ID, Identity::NONE).unwrap();
    (world, producer)
}

/// The same with an open transaction on partition 0.
fn open(version: i16) -> (World, Identity) {
    let (mut world, producer) = begun(version);
    assert_eq!(code(&world.answer(ID, add(producer, AddBy::Client, &[0]))), 0);
    (world, producer)
}

fn at(producer: Identity, epoch: i16) -> Identity {
    Identity { epoch: ProducerEpoch(epoch), ..producer }
}

/// An id whose epoch has come to `epoch`, by a checkpoint that says so.
fn begun_at(epoch: i16, version: i16, is_open: bool) -> (World, Identity) {
    let (mut world, producer) = begun(version);
    let slot = slot_of(ID.as_bytes());
    world.checkpoint(slot);
    world.edit_checkpoint(slot, |head| head.epoch = ProducerEpoch(epoch));
    world.crash();
    let producer = at(producer, epoch);
    if is_open {
        assert_eq!(code(&world.answer(ID, add(producer, AddBy::Client, &[0]))), 0);
    }
    (world, producer)
}

fn settled(world: &mut World) -> (&'static str, Identity) {
    world.pass(5);
    world.run();
    world.state(ID)
}

#[test]
fn f38_a_new_id_begins_at_epoch_0_and_goes_on_by_one() {
    let (mut world, first) = begun(2);
    assert_eq!(first.epoch.0, 0);
    assert_eq!(world.init(ID, Identity::NONE), Ok(at(first, 1)));
    assert_ne!(world.init("other", Identity::NONE).unwrap().producer_id, first.producer_id);
    assert_eq!(world.init("", Identity::NONE), Err(42));
}

#[test]
fn f39_timeouts_outside_the_limits_are_refused_before_the_slot_is_looked_for() {
    let mut txns = Transactions::new(TxnSettings::default(), 1, Arc::new(world::Map::default()));
    let now = Now { wall: TimestampMs(0), mono_ms: 0 };
    for (timeout_ms, expected) in [(0, 50), (-1, 50), (900_001, 50), (900_000, 16)] {
        let init = Init { timeout_ms, given: Identity::NONE, two_phase: false, keep_prepared: false };
        let mut effects = Vec::new();
        let ask = Ask { request: Request::Init(init), until_ms: 10 };
        txns.ask(ID, ask, WaiterId(1), now, &mut effects);
        assert_eq!(effects[0], Effect::Reply(WaiterId(1), Err(ErrorCode::from_wire(expected).unwrap())));
    }
}

#[test]
fn f40_init_aborts_an_open_transaction_and_then_bumps() {
    for version in 0..=2 {
        let (mut world, producer) = open(version);
        assert_eq!(world.init(ID, Identity::NONE), Ok(at(producer, 2)));
        let (outcome, marker) = world.outcomes.values().next().copied().unwrap();
        assert_eq!((outcome, marker), (Abort, at(producer, 1)), "markers carry the bumped epoch");
        assert_eq!(world.end(ID, end_a(producer, Commit)), Err(90));
    }
}

#[test]
fn f40_with_its_own_epoch_given_the_producer_comes_back_at_level_2_only() {
    for (version, expected) in [(0, Err(90)), (1, Err(90)), (2, Ok(1))] {
        let (mut world, producer) = open(version);
        let came = world.init(ID, producer).map(|identity| identity.epoch.0);
        assert_eq!(came, expected, "level {version}");
        assert_eq!(settled(&mut world).1.epoch.0, 1);
    }
    let (mut world, producer) = open(2);
    assert_eq!(world.init(ID, at(producer, 9)), Err(90), "any other epoch");
    assert_eq!(settled(&mut world).0, "CompleteAbort", "after the transaction was aborted");
}

#[test]
fn f40_an_init_that_cannot_wait_so_long_hears_51_and_the_abort_goes_on() {
    let (mut world, producer) = open(2);
    let waiting = world.ask(ID, init(Identity::NONE));
    world.run_without_markers();
    assert!(!world.replies.contains_key(&waiting));
    world.pass(1000);
    assert_eq!(code(&world.replies[&waiting]), 51);
    world.run();
    assert_eq!(settled(&mut world), ("CompleteAbort", at(producer, 1)));
}

#[test]
fn f41_the_given_epoch_bumps_once_and_an_old_one_is_fenced() {
    let (mut world, producer) = begun(2);
    let producer = at(producer, 0);
    assert_eq!(world.init(ID, producer), Ok(at(producer, 1)));
    assert_eq!(world.init(ID, producer), Ok(at(producer, 1)), "the same request again");
    assert_eq!(world.init(ID, at(producer, 1)), Ok(at(producer, 2)));
    assert_eq!(world.init(ID, producer), Err(90));
}

#[test]
fn f42_another_producer_id_is_fenced_and_a_retry_after_a_restart_works() {
    let (mut world, producer) = begun(2);
    assert_eq!(world.init(ID, who(producer.producer_id.0 + 1000, 0)), Err(90));
    assert_eq!(world.init(ID, producer), Ok(at(producer, 1)));
    world.crash();
    assert_eq!(world.init(ID, producer), Ok(at(producer, 1)), "Kafka has lost lastE and says 90");
}

#[test]
fn f43_an_exhausted_epoch_rotates_the_producer_id() {
    let (mut world, old) = begun_at(32_766, 2, false);
    let new = world.init(ID, Identity::NONE).unwrap();
    assert!(new.producer_id != old.producer_id && new.epoch.0 == 0);

    let (mut world, old) = begun_at(32_766, 2, false);
    assert_eq!(world.init(ID, at(old, 32_765)), Err(90), "Kafka says -1");
    let new = world.init(ID, old).unwrap();
    assert!(new.producer_id != old.producer_id && new.epoch.0 == 0);
    assert_eq!(world.init(ID, at(old, 32_765)), Err(90));
    assert_eq!(world.init(ID, old), Ok(new), "the same request again");
    assert_eq!(world.init(ID, old), Err(90), "and a third time");
}

#[test]
fn f44_an_expired_id_begins_anew_whatever_is_given() {
    let (mut world, old) = begun(2);
    world.pass(700_000_000);
    world.run();
    let new = world.init(ID, at(old, 5)).unwrap();
    assert!(new.producer_id != old.producer_id && new.epoch.0 == 0);
    assert_eq!(world.init(ID, at(old, 5)), Err(90), "the same given pair once more");
}

#[test]
fn f46_a_fence_whose_write_fails_leaves_the_transaction_where_it_was() {
    for version in [0, 2] {
        let (mut world, producer) = open(version);
        for _ in 0..2 {
            let waiting = world.ask(ID, init(Identity::NONE));
            world.begin_write(slot_of(ID.as_bytes()));
            world.fail_write(slot_of(ID.as_bytes()), false);
            assert_eq!(code(&world.replies[&waiting]), 15);
            assert_eq!(code(&world.answer(ID, init(Identity::NONE))), 15, "the slot is offline");
            assert!(world.markers.is_empty());
            world.crash();
            assert_eq!(world.state(ID), ("Ongoing", producer));
        }
        assert_eq!(world.init(ID, Identity::NONE), Ok(at(producer, 2)), "bumped once by the abort, once by itself");
    }
}

#[test]
fn b6_what_a_timeout_aborted_at_the_very_last_epoch_is_not_committed_in_part() {
    let (mut world, old) = begun_at(32_767, 1, true);
    world.pass(2 * u64::try_from(TIMEOUT_MS).expect("positive"));
    world.run();
    let (state, new) = settled(&mut world);
    assert!(state == "CompleteAbort" && new.producer_id != old.producer_id && new.epoch.0 == 0);
    assert_eq!(code(&world.answer(ID, add(old, AddBy::Client, &[1]))), 49, "Kafka opens the next one, which commits");
    assert_eq!(code(&world.answer(ID, verify(old, &[0]))), 49);
    assert_eq!(world.end(ID, end_a(old, Commit)), Err(49));
    assert_eq!(world.init(ID, old), Err(90), "fenced, as at every other epoch");
    assert_eq!(world.init(ID, Identity::NONE), Ok(at(new, 1)));
}

#[test]
fn f47_a_fence_at_the_last_epoch_rotates_at_level_2() {
    let (mut world, old) = begun_at(32_766, 2, true);
    world.ask(ID, init(Identity::NONE));
    world.run_without_markers();
    world.pass(1000);
    world.run();
    let (state, new) = settled(&mut world);
    assert!(state == "CompleteAbort" && new.producer_id != old.producer_id && new.epoch.0 == 0);
    assert_eq!(world.end(ID, end_b(old, Abort)), Ok(new), "a late EndTxn 5");

    let (mut world, old) = begun_at(32_766, 1, true);
    world.ask(ID, init(Identity::NONE));
    world.run_without_markers();
    world.pass(1000);
    world.run();
    assert_eq!(settled(&mut world), ("CompleteAbort", at(old, 32_767)));
    assert_eq!(code(&world.answer(ID, add(at(old, 32_767), AddBy::Client, &[0]))), 0, "an ordinary epoch");
    assert_eq!(world.end(ID, end_a(at(old, 32_767), Commit)), Ok(at(old, 32_767)));
    assert!(world.init(ID, at(old, 32_767)).unwrap().producer_id != old.producer_id);
}

#[test]
fn f48_two_phase_commit_and_prepared_transactions_are_refused() {
    let mut world = World::new(2);
    let ask = |two_phase, keep_prepared| {
        Request::Init(Init { timeout_ms: 5000, given: Identity::NONE, two_phase, keep_prepared })
    };
    assert_eq!(code(&world.answer(ID, ask(false, true))), 35);
    assert_eq!(code(&world.answer(ID, ask(true, false))), 53);
    assert_eq!(code(&world.answer(ID, ask(true, true))), 53);
}

#[test]
fn f49_who_may_add() {
    let (mut world, producer) = begun(2);
    let producer = world.init(ID, producer).unwrap();
    assert_eq!(code(&world.answer("unknown", add(producer, AddBy::Client, &[0]))), 49);
    assert_eq!(code(&world.answer(ID, add(who(1, 1), AddBy::Client, &[0]))), 49);
    assert_eq!(code(&world.answer(ID, add(at(producer, 0), AddBy::Client, &[0]))), 90);
    assert_eq!(code(&world.answer(ID, add(at(producer, 2), AddBy::Client, &[0]))), 90);
}

#[test]
fn f50_partitions_that_are_in_already_are_not_written_again() {
    let (mut world, producer) = open(2);
    let slot = slot_of(ID.as_bytes());
    let end = world.txns.journal_mut(slot).unwrap().end();
    for by in [AddBy::Client, BROKER, EARLY] {
        assert_eq!(code(&world.answer(ID, add(producer, by, &[0, 0]))), 0);
    }
    assert_eq!(world.txns.journal_mut(slot).unwrap().end(), end);
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, &[0, 1, 1]))), 0);
    assert_eq!(world.txns.journal_mut(slot).unwrap().end(), end.next());
}

#[test]
fn b3_a_client_that_adds_nothing_opens_a_transaction_without_partitions() {
    let (mut world, producer) = begun(1);
    assert_eq!(code(&world.answer(ID, add(producer, AddBy::Client, &[]))), 0);
    assert_eq!(world.state(ID).0, "Ongoing");
    assert_eq!(world.end(ID, end_a(producer, Commit)), Ok(producer));
    assert_eq!(settled(&mut world).0, "CompleteCommit");
    assert!(world.outcomes.is_empty(), "there is nothing to mark");
}

#[test]
fn f53_the_next_identity_waits_for_complete_and_then_adds() {
    let (mut world, old) = begun_at(32_766, 2, true);
    let ended = world.ask(ID, end_b(old, Commit));
    world.run_without_markers();
    let Ok(Reply::Ended(new)) = world.replies[&ended] else { panic!("it is decided") };
    assert_ne!(new.producer_id, old.producer_id);
    let verified = world.ask(ID, verify(new, &[0]));
    assert_eq!(code(&world.replies[&verified]), 49, "B4: the stored pair is still the old one");
    let (late, patient) = (world.ask(ID, add(new, BROKER, &[1])), world.ask(ID, add(new, BROKER, &[2])));
    assert!(!world.replies.contains_key(&late));
    world.run();
    assert_eq!((code(&world.replies[&late]), code(&world.replies[&patient])), (0, 0));
    assert_eq!(world.state(ID), ("Ongoing", new));
}

#[test]
fn f54_both_ways_of_path_a_and_their_retries() {
    for (outcome, other) in [(Commit, Abort), (Abort, Commit)] {
        let (mut world, producer) = open(1);
        assert_eq!(world.end(ID, end_a(producer, outcome)), Ok(producer));
        assert_eq!(world.end(ID, end_a(producer, outcome)), Ok(producer));
        assert_eq!(world.end(ID, end_a(producer, other)), Err(48));
        assert_eq!(code(&world.answer(ID, add(producer, AddBy::Client, &[0]))), 0, "the epoch goes on");
    }
}

#[test]
fn f55_an_empty_abort_bumps_from_every_idle_state() {
    let (mut world, mut producer) = begun(2);
    for epoch in 1..5 {
        producer = world.end(ID, end_b(producer, Abort)).unwrap();
        assert_eq!(producer.epoch.0, epoch);
    }
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, &[0]))), 0);
    let committed = world.end(ID, end_b(producer, Commit)).unwrap();
    assert_eq!(world.end(ID, end_b(committed, Abort)), Ok(at(producer, 6)));
}

#[test]
fn f56_and_f58_a_retry_of_a_commit_waits_and_succeeds_and_one_of_nothing_is_refused() {
    let (mut world, producer) = open(2);
    let ended = world.ask(ID, end_b(producer, Commit));
    world.run_without_markers();
    assert_eq!(world.replies[&ended], Ok(Reply::Ended(at(producer, 1))));
    let again = world.ask(ID, end_b(producer, Commit));
    assert!(!world.replies.contains_key(&again));
    world.run();
    assert_eq!(world.replies[&again], Ok(Reply::Ended(at(producer, 1))));
    assert_eq!(world.end(ID, end_b(producer, Abort)), Err(48));
    assert_eq!(world.end(ID, end_b(at(producer, 1), Commit)), Err(48));
    world.crash();
    assert_eq!(world.end(ID, end_b(producer, Commit)), Ok(at(producer, 1)), "after a restart too");
}

#[test]
fn f57_an_end_at_the_last_epoch_answers_the_next_producer_id_and_marks_with_the_old_one() {
    let (mut world, old) = begun_at(32_766, 2, true);
    let new = world.end(ID, end_b(old, Commit)).unwrap();
    assert!(new.producer_id != old.producer_id && new.epoch.0 == 0);
    assert_eq!(world.outcomes.values().next(), Some(&(Commit, at(old, 32_767))));
    assert_eq!(world.end(ID, end_b(old, Commit)), Ok(new), "the retry");
    world.crash();
    assert_eq!(world.end(ID, end_b(old, Commit)), Ok(new), "the retry after a restart");
}

#[test]
fn f59_an_empty_abort_that_comes_too_early_waits_and_is_not_fenced() {
    let (mut world, producer) = open(2);
    world.ask(ID, end_b(producer, Commit));
    world.run_without_markers();
    let second = world.ask(ID, end_b(at(producer, 1), Abort));
    world.run();
    assert_eq!(world.replies[&second], Ok(Reply::Ended(at(producer, 2))));
}

#[test]
fn f51_case_51_a_delayed_end_of_one_transaction_does_not_end_the_next() {
    let (mut world, producer) = open(2);
    let next = world.end(ID, end_b(producer, Commit)).unwrap();
    assert_eq!(code(&world.answer(ID, add(next, BROKER, &[0]))), 0);
    assert_eq!(world.end(ID, end_b(producer, Commit)), Err(90));
    assert_eq!(world.end(ID, end_a(producer, Abort)), Err(90));
    assert_eq!(world.state(ID), ("Ongoing", next));
}

#[test]
fn f62_a_crash_before_prepare_is_durable_leaves_the_transaction_open() {
    for request in [end_a, end_b] {
        let (mut world, producer) = open(2);
        world.ask(ID, request(producer, Commit));
        world.begin_write(slot_of(ID.as_bytes()));
        world.crash();
        assert_eq!(world.state(ID), ("Ongoing", producer));
        assert!(world.outcomes.is_empty());
        assert!(world.end(ID, request(producer, Commit)).is_ok(), "the retry works");
    }
}

#[test]
fn f64_and_f65_a_transaction_that_is_open_too_long_is_aborted_at_the_next_epoch() {
    for version in 0..=2 {
        let (mut world, producer) = open(version);
        world.pass(60_000);
        world.run();
        assert_eq!(world.state(ID), ("Ongoing", producer), "not yet");
        world.pass(10_001);
        world.run();
        assert_eq!(settled(&mut world), ("CompleteAbort", at(producer, 1)));
        assert_eq!(world.end(ID, end_a(producer, Commit)), Err(90));
        assert_eq!(world.end(ID, end_b(producer, Commit)), Err(48));
        assert_eq!(world.end(ID, end_b(producer, Abort)), Ok(at(producer, 1)), "and goes on");
        assert_eq!(code(&world.answer(ID, add(producer, AddBy::Client, &[0]))), 90);
        assert_eq!(code(&world.answer(ID, add(at(producer, 1), AddBy::Client, &[0]))), 0);
    }
}

#[test]
fn f64_the_time_goes_on_across_a_restart() {
    let (mut world, producer) = open(2);
    world.now.wall.0 += 61_000;
    world.crash();
    world.pass(1);
    world.run();
    assert_eq!(settled(&mut world), ("CompleteAbort", at(producer, 1)));
}

#[test]
fn f66_a_timeout_at_the_last_epoch_rotates_and_the_old_producer_comes_back() {
    let (mut world, old) = begun_at(32_766, 2, true);
    world.pass(70_001);
    world.run();
    let (state, new) = settled(&mut world);
    assert!(state == "CompleteAbort" && new.producer_id != old.producer_id && new.epoch.0 == 0);
    assert_eq!(world.init(ID, old), Ok(new));
}

#[test]
fn f67_what_is_pending_is_not_timed_out() {
    let (mut world, producer) = open(2);
    world.ask(ID, add(producer, BROKER, &[1]));
    world.now.wall.0 += 70_000;
    world.now.mono_ms += 70_000;
    world.step(|txns, now, effects| txns.tick(now, effects));
    world.write_all();
    assert_eq!(world.state(ID), ("Ongoing", producer));
    world.pass(10_000);
    world.run();
    assert_eq!(settled(&mut world), ("CompleteAbort", at(producer, 1)));
}

#[test]
fn f66_an_abort_without_a_producer_id_at_hand_is_tried_again() {
    let (mut world, old) = begun_at(32_766, 2, true);
    world.gives_ids = false;
    while world.txns.producer_ids.take().is_ok() {}
    world.pass(70_001);
    world.run();
    assert_eq!(world.state(ID), ("Ongoing", old));
    assert_eq!(world.end(ID, end_b(old, Commit)), Err(14));
    world.txns.stock([ProducerId(5000)]);
    world.pass(10_000);
    world.run();
    assert_eq!(settled(&mut world), ("CompleteAbort", who(5000, 0)));
}

#[test]
fn f68_an_expired_id_is_unknown_and_can_begin_again() {
    let (mut world, producer) = open(2);
    let producer = world.end(ID, end_b(producer, Commit)).unwrap();
    world.pass(700_000_000);
    world.run();
    for by in [AddBy::Client, BROKER] {
        assert_eq!(code(&world.answer(ID, add(producer, by, &[0]))), 49);
    }
    assert_eq!(world.end(ID, end_b(producer, Abort)), Err(49));
    assert_eq!(code(&world.answer(ID, verify(producer, &[0]))), 49);
    assert_eq!(world.txns.counts().ids, 0);
    world.crash();
    assert_eq!(world.txns.counts().ids, 0, "it stays forgotten");
    assert_eq!(world.init(ID, Identity::NONE).unwrap().epoch.0, 0);
}

#[test]
fn f69_a_tombstone_that_fails_keeps_the_id() {
    let (mut world, producer) = begun(2);
    world.pass(700_000_000);
    world.begin_write(slot_of(ID.as_bytes()));
    world.fail_write(slot_of(ID.as_bytes()), false);
    world.crash();
    assert_eq!(world.state(ID), ("Empty", producer));
}

#[test]
fn f78_ids_are_listed_by_state_producer_duration_and_name() {
    let (mut world, open) = open(2);
    let idle = world.init("idle", Identity::NONE).unwrap();
    world.pass(5000);
    let list = |filter: ListFilter, wanted: &dyn Fn(&str) -> bool| {
        let mut ids: Vec<_> =
            world.txns.list(&filter, world.now, wanted).into_iter().map(|l| l.id.to_string()).collect();
        ids.sort();
        ids.join(",")
    };
    let all = |_: &str| true;
    let none = ListFilter { duration_ms: -1, ..ListFilter::default() };
    let states = |names: &[&str]| ListFilter { states: names.iter().map(|n| n.to_string()).collect(), ..none.clone() };
    assert_eq!(list(none.clone(), &all), "idle,t");
    assert_eq!(list(states(&["Ongoing"]), &all), "t");
    assert_eq!(list(states(&["Empty", "Dead"]), &all), "idle");
    assert_eq!(list(states(&["ongoing", "Dead"]), &all), "");
    assert!(ListFilter::is_state("Dead") && ListFilter::is_state("PrepareEpochFence"));
    assert!(ListFilter::is_state("CompleteAbort") && !ListFilter::is_state("ongoing"));
    let by_producer = |producer: Identity| ListFilter { producer_ids: vec![producer.producer_id], ..none.clone() };
    assert_eq!(list(by_producer(open), &all), "t");
    assert_eq!(list(by_producer(idle), &all), "idle");
    let longer = |duration_ms| ListFilter { duration_ms, ..none.clone() };
    assert_eq!(list(longer(4999), &all), "idle,t");
    assert_eq!(list(longer(5000), &all), "idle", "one without a transaction always passes");
    assert_eq!(list(none.clone(), &|name| name.starts_with('i')), "idle");
}

#[test]
fn f80_a_fence_that_stops_at_its_first_51_does_not_keep_the_old_owner_out() {
    let (mut world, producer) = open(2);
    world.patience_ms = 0;
    let fence = world.ask(ID, init(Identity::NONE));
    assert_eq!(code(&world.replies[&fence]), 51);
    world.patience_ms = 1000;
    world.run();
    assert_eq!(world.end(ID, end_b(producer, Abort)), Ok(at(producer, 1)));
}

#[test]
fn b11_2_at_level_0_path_b_is_refused_and_leaves_nothing_pending() {
    let (mut world, producer) = begun(0);
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, &[0]))), 35);
    assert_eq!(world.end(ID, end_b(producer, Abort)), Err(35));
    assert_eq!(code(&world.answer(ID, add(producer, AddBy::Client, &[0]))), 0);
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, &[0]))), 0, "nothing need be written");
    assert_eq!(world.end(ID, end_b(producer, Commit)), Err(35));
    assert_eq!(world.end(ID, end_a(producer, Commit)), Ok(producer));
}

#[test]
fn limits_each_have_their_error() {
    let (mut world, producer) = begun(2);
    let many: Vec<i32> = (0..crate::limits::TXN_MEMBERS_MAX as i32).collect();
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, &many))), 0);
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, &[-1]))), 120);
    assert_eq!(code(&world.answer(ID, add_groups(producer, BROKER, &["g"]))), 120);
    world.ask(ID, end_b(producer, Commit));
    world.run_without_markers();
    for _ in 0..crate::limits::TXN_PARKED_MAX {
        world.ask(ID, init(Identity::NONE));
    }
    let late = world.ask(ID, init(Identity::NONE));
    assert_eq!(code(&world.replies[&late]), 51);
}
