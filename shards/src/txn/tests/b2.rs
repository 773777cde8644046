//! InitProducerId: the order of checks and every cell of the table of B2.

use super::super::decision::{Decision, ProducerIds};
use super::super::init::{check_form, decide};
use super::*;

const EPOCH: i16 = 7;

fn ids() -> ProducerIds {
    let mut ids = ProducerIds::default();
    ids.stock([ProducerId(900)]);
    ids
}

fn request(given: Identity) -> Init {
    Init { timeout_ms: 5000, given, two_phase: false, keep_prepared: false }
}

/// What it comes to: a new head, a code, or the state that an open transaction goes to first.
#[derive(Debug, PartialEq)]
enum Came {
    To(Identity, i16),
    Code(i16),
    Abort(i16),
}

fn came(head: Option<&Head>, given: Identity, version: i16) -> Came {
    let settings = TxnSettings { version, ..TxnSettings::default() };
    match decide(head, &request(given), &settings, &mut ids(), TimestampMs(2000)) {
        Decision::Answer(reply) => Came::Code(code(&reply)),
        Decision::Record { change, reply, .. } => {
            let after = change.applied(head).expect("it is there");
            assert_eq!(reply, Reply::Init(after.identity()));
            assert_eq!((after.state, after.timeout_ms, after.start), (State::Empty, 5000, TimestampMs(-1)));
            Came::To(after.identity(), after.last_epoch.0)
        }
        Decision::First(change) => {
            let after = change.applied(head).expect("it is there");
            assert_eq!((after.state, after.timeout_ms), (State::PrepareAbort, TIMEOUT_MS), "a fence stores no timeout");
            Came::Abort(after.epoch.0)
        }
    }
}

fn idle(state: State, epoch: i16, last_epoch: i16) -> Head {
    Head { last_epoch: ProducerEpoch(last_epoch), ..head(state, who(5, epoch)) }
}

const IDLE: [State; 3] = [State::Empty, State::CompleteCommit, State::CompleteAbort];

#[test]
fn b2_2_and_b2_4_what_is_wrong_with_the_form_in_its_order() {
    let settings = TxnSettings::default();
    let form = |id, init: Init| check_form(id, &init, &settings).map_or_else(ErrorCode::wire, |()| 0);
    let good = request(Identity::NONE);
    assert_eq!(form("t", good), 0);
    assert_eq!(form("t", request(who(-1, 3))), 42);
    assert_eq!(form("t", request(who(3, -1))), 42);
    assert_eq!(form("", good), 42);
    assert_eq!(form("t", Init { two_phase: true, ..good }), 53);
    assert_eq!(form("t", Init { two_phase: true, keep_prepared: true, ..good }), 53);
    assert_eq!(form("t", Init { keep_prepared: true, timeout_ms: 0, ..good }), 35);
    for timeout_ms in [0, -1, 900_001, i32::MIN, i32::MAX] {
        assert_eq!(form("t", Init { timeout_ms, ..good }), 50, "{timeout_ms}");
    }
    let enabled = TxnSettings { two_phase_commit: true, ..settings.clone() };
    assert_eq!(check_form("t", &Init { two_phase: true, timeout_ms: 0, ..good }, &enabled), Ok(()));
}

#[test]
fn b2_5_an_unknown_id_starts_at_a_fresh_producer_id_whatever_is_given() {
    for given in [Identity::NONE, who(5, 5), who(1, 0), who(3, i16::MAX)] {
        assert_eq!(came(None, given, 2), Came::To(who(900, 0), -1), "F44");
    }
}

#[test]
fn b2_7_another_producer_id_is_fenced_in_every_state_and_aborts_nothing() {
    for state in State::ALL {
        let head = Head { prev_producer_id: ProducerId(4), ..idle(state, EPOCH, EPOCH - 1) };
        for given in [who(6, EPOCH), who(4, 0), who(4, 32_765)] {
            assert_eq!(came(Some(&head), given, 2), Came::Code(90), "{state:?} {given:?}");
        }
    }
}

#[test]
fn b2_8_idle_states_below_the_last_epochs() {
    for state in IDLE {
        let head = idle(state, EPOCH, EPOCH - 1);
        assert_eq!(came(Some(&head), Identity::NONE, 2), Came::To(who(5, EPOCH + 1), -1));
        assert_eq!(came(Some(&head), who(5, EPOCH), 2), Came::To(who(5, EPOCH + 1), EPOCH));
        assert_eq!(came(Some(&head), who(5, EPOCH - 1), 2), Came::To(who(5, EPOCH), EPOCH - 1), "a retry");
        for epoch in [EPOCH - 2, EPOCH + 1, 0, i16::MAX] {
            assert_eq!(came(Some(&head), who(5, epoch), 2), Came::Code(90), "{epoch}");
        }
        let never = idle(state, EPOCH, -1);
        assert_eq!(came(Some(&never), who(5, EPOCH - 1), 2), Came::Code(90));
    }
}

#[test]
fn b2_8_idle_states_at_exhausted_epochs_take_the_next_producer_id() {
    for (state, epoch) in IDLE.into_iter().flat_map(|state| [(state, 32_766), (state, 32_767)]) {
        let head = idle(state, epoch, epoch - 1);
        assert_eq!(came(Some(&head), Identity::NONE, 2), Came::To(who(900, 0), -1));
        assert_eq!(came(Some(&head), who(5, epoch), 2), Came::To(who(900, 0), epoch));
        assert_eq!(came(Some(&head), who(5, epoch - 1), 2), Came::Code(90), "B11.6: Kafka says -1");
        assert_eq!(came(Some(&head), who(5, 3), 2), Came::Code(90), "B11.6: Kafka says -1");
    }
}

#[test]
fn b2_8_the_retry_after_a_rotation_works_once() {
    let before = idle(State::CompleteCommit, 32_766, -1);
    let settings = TxnSettings::default();
    let mut last = before;
    for expected in [0, 0, 90] {
        match decide(Some(&last), &request(who(5, 32_766)), &settings, &mut ids(), TimestampMs(1)) {
            Decision::Record { change, reply, .. } => {
                assert_eq!((expected, reply), (0, Reply::Init(who(900, 0))));
                last = change.applied(Some(&last)).unwrap();
            }
            other => assert_eq!(other, Decision::refuse(ErrorCode::from_wire(expected).unwrap())),
        }
    }
    assert_eq!(last.producer_id, ProducerId(900));
}

#[test]
fn b2_8_an_open_transaction_is_aborted_first_whatever_epoch_is_given() {
    for given in [Identity::NONE, who(5, EPOCH), who(5, EPOCH - 1), who(5, 0), who(5, EPOCH + 3)] {
        for version in 0..=2 {
            assert_eq!(came(Some(&idle(State::Ongoing, EPOCH, -1)), given, version), Came::Abort(EPOCH + 1));
        }
    }
}

#[test]
fn b2_8_a_completing_transaction_is_concurrent() {
    for state in [State::PrepareCommit, State::PrepareAbort] {
        for given in [Identity::NONE, who(5, EPOCH), who(5, EPOCH - 1), who(5, 0)] {
            assert_eq!(came(Some(&idle(state, EPOCH, EPOCH - 1)), given, 2), Came::Code(51));
        }
    }
}

#[test]
fn b2_3_without_a_producer_id_at_hand_the_request_is_told_to_come_again() {
    let mut none = ProducerIds::default();
    let settings = TxnSettings::default();
    let exhausted = idle(State::Empty, 32_766, -1);
    let open = idle(State::Ongoing, 32_766, -1);
    for head in [None, Some(&exhausted), Some(&open)] {
        let decision = decide(head, &request(Identity::NONE), &settings, &mut none, TimestampMs(1));
        assert_eq!(decision, Decision::refuse(ErrorCode::CoordinatorLoadInProgress));
    }
}

#[test]
fn b2_a_bump_fences_every_lower_epoch_and_a_rotation_all_of_the_old_producer_id() {
    let fence = |head: &Head, given| match decide(
        Some(head),
        &request(given),
        &TxnSettings::default(),
        &mut ids(),
        TimestampMs(1),
    ) {
        Decision::Record { fence, .. } => fence.map(|fence| (fence.producer_id.0, fence.below)),
        other => panic!("{other:?}"),
    };
    assert_eq!(fence(&idle(State::Empty, 3, -1), Identity::NONE), Some((5, 4)));
    assert_eq!(fence(&idle(State::Empty, 3, 2), who(5, 2)), Some((5, 3)));
    assert_eq!(fence(&idle(State::Empty, 32_767, 2), Identity::NONE), Some((5, 32_768)));
}
