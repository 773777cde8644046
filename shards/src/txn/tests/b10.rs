//! Every row of the summary matrix B10 against the whole coordinator, and what waits where Kafka says 51.

use Outcome::{Abort, Commit};

use super::world::World;
use super::*;

const ID: &str = "t";
const STATES: [State; 4] = [State::Empty, State::Ongoing, State::CompleteCommit, State::CompleteAbort];

/// A world with the id in a state, by path A, and who the producer is: at epoch 1, so that an epoch before it exists.
fn world_in(state: State, version: i16) -> (World, Identity) {
    let mut world = World::new(version);
    world.init(ID, Identity::NONE).unwrap();
    let producer = world.init(ID, Identity::NONE).unwrap();
    if state != State::Empty {
        assert_eq!(code(&world.answer(ID, add(producer, AddBy::Client, &[0]))), 0);
    }
    match state {
        State::CompleteCommit => assert_eq!(world.end(ID, end_a(producer, Commit)), Ok(producer)),
        State::CompleteAbort => assert_eq!(world.end(ID, end_a(producer, Abort)), Ok(producer)),
        _ => {}
    }
    world.pass(5);
    world.run();
    assert_eq!(world.state(ID), (state.name(), producer));
    (world, producer)
}

/// What one request comes to: the code, and the state after everything is done.
fn came(state: State, request: impl Fn(Identity) -> Request) -> (i16, &'static str) {
    let (mut world, producer) = world_in(state, 2);
    let reply = code(&world.answer(ID, request(producer)));
    world.pass(5);
    world.run();
    (reply, world.state(ID).0)
}

fn before(producer: Identity) -> Identity {
    Identity { epoch: ProducerEpoch(producer.epoch.0 - 1), ..producer }
}

#[test]
fn b10_row_no_entry() {
    let ask = |request| code(&World::new(2).answer(ID, request));
    assert_eq!(ask(init(Identity::NONE)), 0);
    assert_eq!(ask(add(who(1, 0), AddBy::Client, &[0])), 49);
    assert_eq!(ask(add_groups(who(1, 0), AddBy::Client, &["g"])), 49);
    assert_eq!(ask(verify(who(1, 0), &[0])), 49);
    for outcome in [Commit, Abort] {
        assert_eq!(ask(end_a(who(1, 0), outcome)), 49);
        assert_eq!(ask(end_b(who(1, 0), outcome)), 49);
    }
    assert_eq!(ask(Request::Describe), 105);
    let mut world = World::new(2);
    world.answer(ID, add(who(1, 0), BROKER, &[0])).unwrap_err();
    assert_eq!(world.txns.counts().ids, 0, "nothing is left of it");
}

#[test]
fn b10_rows_that_are_at_rest() {
    type Row = (State, (i16, i16), (i16, i16), (i16, i16), (i16, i16));
    //        state                  verify known/other  path A      path B r=0  path B r=1
    let rows: [Row; 4] = [
        (State::Empty, (120, 120), (48, 48), (48, 0), (90, 90)),
        (State::Ongoing, (0, 120), (0, 0), (0, 0), (90, 90)),
        (State::CompleteCommit, (120, 120), (0, 48), (48, 0), (0, 48)),
        (State::CompleteAbort, (120, 120), (48, 0), (48, 0), (48, 0)),
    ];
    for (state, verified, path_a, path_b, again) in rows {
        let (mut world, producer) = world_in(state, 2);
        let both = [verified.0, verified.1].map(|code| ErrorCode::from_wire(code).unwrap()).to_vec();
        assert_eq!(world.answer(ID, verify(producer, &[0, 1])), Ok(Reply::Verified(both)), "{state:?}");
        assert_eq!(came(state, |producer| end_a(producer, Commit)).0, path_a.0, "{state:?}");
        assert_eq!(came(state, |producer| end_a(producer, Abort)).0, path_a.1, "{state:?}");
        assert_eq!(came(state, |producer| end_b(producer, Commit)).0, path_b.0, "{state:?}");
        assert_eq!(came(state, |producer| end_b(producer, Abort)), (path_b.1, "CompleteAbort"), "{state:?}");
        assert_eq!(came(state, |producer| end_b(before(producer), Commit)).0, again.0, "{state:?}");
        assert_eq!(came(state, |producer| end_b(before(producer), Abort)).0, again.1, "{state:?}");
        assert_eq!(came(state, |producer| add(producer, AddBy::Client, &[0, 1])), (0, "Ongoing"), "{state:?}");
        assert_eq!(came(state, |producer| add_groups(producer, AddBy::Client, &["g"])), (0, "Ongoing"), "{state:?}");
        assert_eq!(came(state, |_| init(Identity::NONE)), (0, "Empty"), "{state:?}: Ongoing is aborted first");
    }
}

#[test]
fn b10_a_wrong_producer_id_or_epoch_in_every_state() {
    for state in STATES {
        for wrong in [who(7, 1), who(7, 0)] {
            assert_eq!(came(state, |_| init(wrong)), (90, state.name()));
            assert_eq!(came(state, |_| add(wrong, AddBy::Client, &[0])), (49, state.name()));
            assert_eq!(came(state, |_| verify(wrong, &[0])), (49, state.name()));
            assert_eq!(came(state, |_| end_a(wrong, Abort)), (49, state.name()));
            assert_eq!(came(state, |_| end_b(wrong, Abort)), (49, state.name()));
        }
        for distance in [-1, 1] {
            let other = |p: Identity| Identity { epoch: ProducerEpoch(p.epoch.0 + distance), ..p };
            assert_eq!(came(state, |p| add(other(p), AddBy::Client, &[0])), (90, state.name()));
            assert_eq!(came(state, |p| add_groups(other(p), BROKER, &["g"])), (90, state.name()));
            assert_eq!(came(state, |p| verify(other(p), &[0])), (90, state.name()));
            assert_eq!(came(state, |p| end_a(other(p), Abort)), (90, state.name()));
        }
        assert_eq!(came(state, |p| end_b(Identity { epoch: ProducerEpoch(2), ..p }, Abort)), (90, state.name()));
    }
}

#[test]
fn b10_only_an_open_transaction_times_out_and_only_an_idle_id_expires() {
    for state in STATES {
        let (mut world, _) = world_in(state, 2);
        world.pass(70_000);
        world.run();
        let expected = if state == State::Ongoing { "CompleteAbort" } else { state.name() };
        world.pass(5);
        world.run();
        assert_eq!(world.state(ID).0, expected);
        let (mut world, _) = world_in(state, 2);
        let settings = TxnSettings { abort_interval_ms: u64::MAX, ..world.txns.settings().clone() };
        world.txns.set_settings(settings);
        world.pass(20_000);
        world.run();
        world.pass(604_800_000);
        world.run();
        let is_there = world.answer(ID, Request::Describe).is_ok();
        assert_eq!(is_there, state == State::Ongoing, "{state:?}");
    }
}

/// Requests that a busy id keeps waiting, all at the producer that it has.
fn requests(producer: Identity) -> [Request; 6] {
    [
        init(Identity::NONE),
        add(producer, AddBy::Client, &[2]),
        add(producer, BROKER, &[2]),
        add_groups(producer, BROKER, &["g"]),
        end_b(producer, Commit),
        end_b(who(77, 3), Abort),
    ]
}

#[test]
fn b10_row_completing_every_request_waits_and_51_comes_at_its_deadline_only() {
    for outcome in [Commit, Abort] {
        let (mut world, producer) = world_in(State::Ongoing, 2);
        let ended = world.ask(ID, end_a(producer, outcome));
        world.run_without_markers();
        assert!(world.replies[&ended].is_ok(), "Prepare* is all that EndTxn waits for");
        assert_eq!(world.state_now(ID), State::prepared(outcome).name());
        for (wrong, expected) in [(who(77, 0), 49), (before(producer), 90)] {
            let refused = world.ask(ID, end_a(wrong, Abort));
            assert_eq!(code(&world.replies[&refused]), expected, "path A looks at who asks first");
        }
        let verified = world.ask(ID, verify(producer, &[0]));
        assert_eq!(code(&world.replies[&verified]), 51);
        for nth in 0..6 {
            let (mut world, producer) = world_in(State::Ongoing, 2);
            world.ask(ID, end_a(producer, outcome));
            world.run_without_markers();
            let waiting = world.ask(ID, requests(producer)[nth].clone());
            world.pass(999);
            world.run_without_markers();
            assert!(!world.replies.contains_key(&waiting));
            world.pass(1);
            assert_eq!(code(&world.replies[&waiting]), 51);
            assert_eq!(world.txns.counts().parked, 0);
        }
    }
}

#[test]
fn b10_row_completing_what_waited_goes_on_at_complete() {
    let expected =
        [(0, "Empty"), (0, "Ongoing"), (0, "Ongoing"), (0, "Ongoing"), (48, "CompleteCommit"), (49, "CompleteCommit")];
    for (nth, expected) in expected.into_iter().enumerate() {
        let (mut world, producer) = world_in(State::Ongoing, 2);
        world.ask(ID, end_a(producer, Commit));
        world.run_without_markers();
        let waiting = world.ask(ID, requests(producer)[nth].clone());
        world.run();
        world.pass(5);
        world.run();
        assert_eq!((code(&world.replies[&waiting]), world.state(ID).0), expected);
    }
}

#[test]
fn b10_row_pending_every_request_but_an_add_upon_an_add_waits_for_the_journal() {
    let (mut world, producer) = world_in(State::Empty, 2);
    let first = world.ask(ID, add(producer, AddBy::Client, &[0]));
    let second = world.ask(ID, add(producer, AddBy::Client, &[1]));
    let ended = world.ask(ID, end_b(producer, Commit));
    assert_eq!(world.txns.counts().parked, 1, "the EndTxn");
    assert_eq!(world.state_now(ID), "Empty", "what is pending is never visible");
    assert!(world.replies.keys().all(|waiter| ![first, second, ended].contains(waiter)));
    world.run();
    for waiter in [first, second, ended] {
        assert!(world.replies[&waiter].is_ok());
    }
    assert_eq!(world.acknowledged.len(), 2, "both partitions were in it");
}

#[test]
fn b10_row_pending_dead_waits_and_is_then_unknown() {
    for nth in 0..4 {
        let (mut world, producer) = world_in(State::CompleteCommit, 2);
        world.pass(604_800_000 + 3_600_000);
        assert_eq!(world.state_now(ID), "CompleteCommit", "a tombstone that is pending hides nothing");
        let request = [init(producer), add(producer, BROKER, &[0]), end_a(producer, Commit), end_b(producer, Commit)];
        let waiting = world.ask(ID, request[nth].clone());
        assert!(!world.replies.contains_key(&waiting));
        world.run();
        assert_eq!(code(&world.replies[&waiting]), if nth == 0 { 0 } else { 49 });
    }
}
