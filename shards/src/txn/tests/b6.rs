//! EndTxn: every cell of both tables of B6, and what a transition to Prepare* makes of the epochs.

use Outcome::{Abort, Commit};
use State::{CompleteAbort, CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit};

use super::super::decision::{Decision, ProducerIds};
use super::super::end::{Bump, decide, prepare};
use super::*;

const EPOCH: i16 = 7;
/// Stands for a transition to Prepare*.
const PREPARE: i16 = 1000;

fn ids() -> ProducerIds {
    let mut ids = ProducerIds::default();
    ids.stock([ProducerId(900)]);
    ids
}

fn came(head: &Head, producer: Identity, outcome: Outcome, bumps: bool, version: i16) -> i16 {
    let end = End { producer, outcome, bumps };
    match decide(Some(head), &end, version, &mut ids(), TimestampMs(2000)) {
        Decision::Answer(reply) => {
            assert!(reply.is_err() || reply == Ok(Reply::Ended(head.identity())));
            code(&reply)
        }
        Decision::Record { change, reply, fence } => {
            let after = change.applied(Some(head)).expect("it is there");
            assert_eq!((reply, fence), (Reply::Ended(after.next_identity()), None));
            assert_eq!(after.state, State::prepared(outcome));
            PREPARE
        }
        Decision::First(change) => panic!("{change:?}"),
    }
}

#[test]
fn b6_path_a_every_cell() {
    let table = [
        (Empty, 48, 48),
        (Ongoing, PREPARE, PREPARE),
        (PrepareCommit, 51, 48),
        (PrepareAbort, 48, 51),
        (CompleteCommit, 0, 48),
        (CompleteAbort, 48, 0),
    ];
    for (state, commit, abort) in table {
        let head = head(state, who(5, EPOCH));
        for version in 0..=2 {
            assert_eq!(came(&head, who(5, EPOCH), Commit, false, version), commit, "{state:?} commit");
            assert_eq!(came(&head, who(5, EPOCH), Abort, false, version), abort, "{state:?} abort");
        }
        for (producer, expected) in [(who(6, EPOCH), 49), (who(5, EPOCH - 1), 90), (who(5, EPOCH + 1), 90)] {
            assert_eq!(came(&head, producer, Commit, false, 2), expected);
            assert_eq!(came(&head, producer, Abort, false, 2), expected);
        }
    }
}

#[test]
fn b6_path_b_every_cell() {
    let table = [
        (Empty, 48, PREPARE, 90, 90),
        (Ongoing, PREPARE, PREPARE, 90, 90),
        (PrepareCommit, 90, 90, 51, 48),
        (PrepareAbort, 90, 90, 48, 51),
        (CompleteCommit, 48, PREPARE, 0, 48),
        (CompleteAbort, 48, PREPARE, 48, 0),
    ];
    for (state, commit, abort, commit_again, abort_again) in table {
        let head = head(state, who(5, EPOCH));
        let cells = [(0, Commit, commit), (0, Abort, abort), (1, Commit, commit_again), (1, Abort, abort_again)];
        for (age, outcome, expected) in cells {
            let producer = who(5, EPOCH - age);
            assert_eq!(came(&head, producer, outcome, true, 2), expected, "{state:?} {age} {outcome:?}");
            let expected_at_1 = expected;
            assert_eq!(came(&head, producer, outcome, true, 1), expected_at_1, "the version of the request counts");
            let expected_at_0 = if expected == PREPARE { 35 } else { expected };
            assert_eq!(came(&head, producer, outcome, true, 0), expected_at_0, "B11.2: {state:?} {age} {outcome:?}");
        }
        for other in [EPOCH - 2, EPOCH + 1, 0, i16::MAX, -1] {
            assert_eq!(came(&head, who(5, other), Commit, true, 2), 90, "{state:?} {other}");
            assert_eq!(came(&head, who(5, other), Abort, true, 2), 90, "{state:?} {other}");
        }
        assert_eq!(came(&head, who(6, EPOCH), Commit, true, 2), 49);
        assert_eq!(came(&head, who(6, EPOCH - 1), Abort, true, 2), 49);
    }
}

#[test]
fn b6_path_b_a_retry_of_the_last_epoch_of_the_producer_id_before() {
    let rotated =
        |state| Head { prev_producer_id: ProducerId(4), last_epoch: ProducerEpoch(32_766), ..head(state, who(5, 0)) };
    let old = who(4, 32_766);
    let table = [(Empty, 90, 90), (CompleteCommit, 0, 48), (CompleteAbort, 48, 0)];
    for (state, commit, abort) in table {
        assert_eq!(came(&rotated(state), old, Commit, true, 2), commit, "{state:?}");
        assert_eq!(came(&rotated(state), old, Abort, true, 2), abort, "{state:?}");
        assert_eq!(came(&rotated(state), who(4, 32_765), Abort, true, 2), 49, "{state:?}");
        assert_eq!(came(&rotated(state), old, Abort, false, 2), 49, "path A knows no retry");
        let later = Head { prev_producer_id: ProducerId(5), ..rotated(state) };
        assert_eq!(came(&later, old, Abort, true, 2), 49, "any further transition");
    }
}

#[test]
fn b6_an_unknown_id_has_no_producer() {
    for bumps in [false, true] {
        let end = End { producer: who(5, 0), outcome: Abort, bumps };
        let decision = decide(None, &end, 2, &mut ids(), TimestampMs(1));
        assert_eq!(decision, Decision::refuse(ErrorCode::InvalidProducerIdMapping));
    }
}

fn prepared(before: &Head, outcome: Outcome, bump: Bump) -> Head {
    let change = prepare(before, outcome, bump, &mut ids(), TimestampMs(2000)).expect("there is an id");
    change.applied(Some(before)).expect("it is there")
}

#[test]
fn b6_path_a_keeps_both_epochs_and_names_no_version_even_after_adds_of_path_b() {
    let before = Head { client_version: 2, last_epoch: ProducerEpoch(3), ..head(Ongoing, who(5, EPOCH)) };
    let after = prepared(&before, Commit, Bump::Never);
    assert_eq!((after.identity(), after.last_epoch.0, after.client_version), (who(5, EPOCH), 3, 0));
    assert_eq!((after.start, after.update), (TimestampMs(1000), TimestampMs(2000)));
    assert_eq!(after.next_identity(), who(5, EPOCH));
}

#[test]
fn b6_path_b_bumps_and_at_the_last_epochs_takes_the_next_producer_id() {
    let after = prepared(&head(Ongoing, who(5, EPOCH)), Commit, Bump::Always);
    assert_eq!((after.identity(), after.last_epoch.0, after.client_version), (who(5, EPOCH + 1), EPOCH, 2));
    let last = prepared(&head(Ongoing, who(5, 32_766)), Abort, Bump::Always);
    assert_eq!((last.identity(), last.last_epoch.0, last.next_identity()), (who(5, 32_767), 32_766, who(900, 0)));
    let complete = Change::Complete { at: TimestampMs(3000) }.applied(Some(&last)).expect("it is there");
    assert_eq!((complete.identity(), complete.last_epoch.0), (who(900, 0), 32_766));
    assert_eq!((complete.prev_producer_id, complete.next_producer_id), (ProducerId(5), ProducerId::NONE));
    let empty = prepared(&head(CompleteCommit, who(5, EPOCH)), Abort, Bump::Always);
    assert_eq!(empty.start, TimestampMs(2000), "an empty abort begins and ends now");
}

#[test]
fn b11_5_path_b_ends_a_transaction_at_the_very_last_epoch_too() {
    let before = head(Ongoing, who(5, 32_767));
    assert_eq!(came(&before, who(5, 32_767), Commit, true, 2), PREPARE, "Kafka says -1");
    let after = prepared(&before, Commit, Bump::Always);
    assert_eq!((after.identity(), after.next_identity()), (who(5, 32_767), who(900, 0)));
    let complete = Change::Complete { at: TimestampMs(3000) }.applied(Some(&after)).expect("it is there");
    assert_eq!(came(&complete, who(5, 32_767), Commit, true, 2), 0, "a retry");
}

#[test]
fn b6_aborts_of_the_broker_bump_once_by_the_level() {
    let before = head(Ongoing, who(5, EPOCH));
    for (version, last_epoch) in [(0, -1), (1, -1), (2, EPOCH)] {
        let after = prepared(&before, Abort, Bump::of_server(version));
        assert_eq!((after.identity(), after.last_epoch.0), (who(5, EPOCH + 1), last_epoch));
        assert_eq!(after.client_version, if version == 2 { 2 } else { 0 });
    }
    let last = prepared(&head(Ongoing, who(5, 32_766)), Abort, Bump::of_server(1));
    assert_eq!(last.next_identity(), who(5, 32_767));
}

#[test]
fn b6_an_abort_of_the_broker_at_the_very_last_epoch_fences_by_the_next_producer_id() {
    for version in [0, 1] {
        let after = prepared(&head(Ongoing, who(5, 32_767)), Abort, Bump::of_server(version));
        assert_eq!((after.identity(), after.next_identity()), (who(5, 32_767), who(900, 0)), "Kafka keeps both");
        assert_eq!((after.last_epoch.0, after.client_version), (-1, 0), "its markers end what is open at their epoch");
        let complete = Change::Complete { at: TimestampMs(3000) }.applied(Some(&after)).expect("it is there");
        let aborted = who(5, 32_767);
        for (outcome, bumps) in [(Commit, false), (Abort, false), (Commit, true), (Abort, true)] {
            assert_eq!(came(&complete, aborted, outcome, bumps, version), 49, "{outcome:?} {bumps}");
            assert_eq!(came(&complete, who(5, 32_766), outcome, bumps, version), 49, "{outcome:?} {bumps}, older");
        }
    }
}

#[test]
fn b6_a_rotation_without_a_producer_id_at_hand_is_told_to_come_again() {
    let end = End { producer: who(5, 32_766), outcome: Commit, bumps: true };
    let decision = decide(Some(&head(Ongoing, who(5, 32_766))), &end, 2, &mut ProducerIds::default(), TimestampMs(1));
    assert_eq!(decision, Decision::refuse(ErrorCode::CoordinatorLoadInProgress));
}
