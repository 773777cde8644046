//! What coordinators know of transactions that partitions have open for long.

use Outcome::{Abort, Commit};

use super::super::look::unknown_to_all;
use super::world::World;
use super::*;
use crate::ids::Offset;

const ID: &str = "t";

fn open(producer: Identity, index: i32) -> OpenTxn {
    OpenTxn { partition: partition(index), producer, first: Offset(5), last: Offset(6) }
}

fn knows(world: &World, producer: Identity, index: i32) -> bool {
    world.txns.knows(&[open(producer, index)]).expect("its disk is whole")[0]
}

fn begun(version: i16) -> (World, Identity) {
    let mut world = World::new(version);
    let producer = world.init(ID, Identity::NONE).unwrap();
    (world, producer)
}

#[test]
fn an_add_is_known_as_soon_as_it_is_decided() {
    let (mut world, producer) = begun(2);
    assert!(!knows(&world, producer, 0));
    let waiter = world.ask(ID, add(producer, EARLY, &[0]));
    assert!(world.granted.contains(&waiter) && !world.replies.contains_key(&waiter), "nothing is durable");
    assert!(knows(&world, producer, 0));
    assert!(knows(&world, producer, 1), "it may be added to the same transaction at any time");
}

#[test]
fn a_transaction_is_known_until_its_partition_has_the_marker() {
    for outcome in [Commit, Abort] {
        for (version, end) in [(1, end_a as fn(_, _) -> _), (2, end_b)] {
            let (mut world, producer) = begun(version);
            assert_eq!(code(&world.answer(ID, add(producer, BROKER, &[0, 1]))), 0);
            world.ask(ID, end(producer, outcome));
            assert!(knows(&world, producer, 0), "decided, not durable");
            world.run_without_markers();
            assert!(knows(&world, producer, 0), "its markers are on their way");
            world.run();
            assert!(!knows(&world, producer, 0) && !knows(&world, producer, 1), "it is over");
        }
    }
}

#[test]
fn b6_what_the_broker_aborts_at_a_new_epoch_is_known_and_what_it_never_had_is_not() {
    let (mut world, producer) = begun(2);
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, &[0]))), 0);
    world.ask(ID, init(Identity::NONE));
    world.run_without_markers();
    assert_eq!(world.state_now(ID), "PrepareAbort");
    assert!(knows(&world, producer, 0));
    assert!(!knows(&world, producer, 1), "no marker will go there, and no add at this epoch");
}

#[test]
fn an_old_epoch_that_is_not_in_the_transaction_is_lost_although_its_producer_has_one_open() {
    let (mut world, old) = begun(2);
    let producer = world.init(ID, old).unwrap();
    assert_eq!(code(&world.answer(ID, add(producer, BROKER, &[0]))), 0);
    assert!(!knows(&world, old, 1) && knows(&world, producer, 1));
    assert!(knows(&world, old, 0), "the marker of the newer one ends it");
    assert!(!knows(&world, who(77_777, 3), 0), "nobody's");
}

#[test]
fn nothing_is_given_up_while_a_coordinator_cannot_tell() {
    let asked = [open(who(1, 0), 0), open(who(2, 0), 0), open(who(3, 0), 0)];
    let told = |known: [bool; 3]| Some(known.to_vec());
    let (first, second) = (told([true, false, false]), told([false, false, true]));
    assert_eq!(unknown_to_all(&asked, &[first.clone(), second]), [asked[1]]);
    assert_eq!(unknown_to_all(&asked, &[first, None]), []);

    let (mut world, producer) = begun(2);
    world.ask(ID, add(producer, BROKER, &[0]));
    let slot = slot_of(ID.as_bytes());
    assert!(world.begin_write(slot));
    world.fail_write(slot, false);
    assert_eq!(world.txns.knows(&asked), None);
}
