use super::client::*;
use crate::code::ErrorCode;
use crate::groups::testing::Harness;
use crate::groups::{GroupSettings, Join, Joined};

const UNKNOWN: ErrorCode = ErrorCode::UnknownMemberId;

fn delayed() -> Harness {
    Harness::with(GroupSettings { initial_rebalance_delay_ms: 1_000, ..GroupSettings::default() })
}

fn with_timeout(rebalance_timeout_ms: i32) -> Join {
    Join { version: 3, rebalance_timeout_ms, ..join_as("") }
}

#[test]
fn g6_2_one_member_waits_for_the_delay_even_if_its_rebalance_timeout_is_shorter() {
    for timeout_ms in [60_000, 500, 0, -1] {
        let mut h = delayed();
        let wait = h.join(with_timeout(timeout_ms));
        h.advance(990);
        assert!(h.waits(wait));
        h.advance(10);
        assert_eq!(h.joined(wait).generation, 1, "timeout {timeout_ms}");
    }
}

#[test]
fn g6_2_a_second_member_prolongs_the_delay() {
    let mut h = delayed();
    let first = h.join(with_timeout(60_000));
    h.advance(500);
    let second = h.join(with_timeout(60_000));
    h.advance(1_490);
    assert!(h.waits(first) && h.waits(second));
    h.advance(10);
    assert_eq!((h.joined(first).members.len(), h.joined(second).generation), (2, 1));
}

#[test]
fn g6_2_the_rebalance_timeout_bounds_the_delay() {
    let mut h = delayed();
    let mut waits = Vec::new();
    for _ in 0..5 {
        waits.push(h.join(with_timeout(3_000)));
        h.advance(if waits.len() < 5 { 700 } else { 190 });
    }
    assert!(waits.iter().all(|wait| h.waits(*wait)), "2990 ms");
    h.advance(10);
    assert!(waits.into_iter().all(|wait| h.joined(wait).generation == 1), "3000 ms");
    let mut h = delayed();
    let first = h.join(with_timeout(1_500));
    h.advance(500);
    h.join(with_timeout(1_500));
    h.advance(990);
    assert!(h.waits(first));
    h.advance(10);
    assert_eq!(h.joined(first).members.len(), 2);
}

#[test]
fn g6_2_leaving_in_the_delay_and_pending_members() {
    let mut h = delayed();
    let (a, wait_a) = h.newcomer(join_as(""));
    h.advance(500);
    h.leave(&[(&a, None)]);
    assert_eq!(h.joined(wait_a), Joined::refused(UNKNOWN, ""));
    assert_eq!(h.delete(), ErrorCode::NonEmptyGroup);
    h.advance(500);
    assert_eq!(h.state(), "Empty");
    h.join_now(join_as(""));
    let (_, wait) = h.newcomer(join_as(""));
    h.advance(1_000);
    assert_eq!(h.joined(wait).generation, 2, "the empty join phase was the first");
}

#[test]
fn g6_3_dynamic_members_that_do_not_join_are_removed_and_static_ones_stay() {
    let mut h = Harness::new();
    let (a, b) = h.pair(Join { rebalance_timeout_ms: 5_000, ..join_as("") }, join_as(""));
    let wait_a = h.join(Join { session_timeout_ms: 100_000, rebalance_timeout_ms: 7_000, ..join_as(&a) });
    h.advance(9_000);
    h.beat(&b, 2);
    h.advance(50_990);
    assert!(h.waits(wait_a) || h.beat(&b, 2) == UNKNOWN, "60 s of b unless its session ends first");
    let mut h = Harness::new();
    let quick = |join: Join| Join { rebalance_timeout_ms: 5_000, ..join };
    let (a, b) = h.pair(quick(join_as("")), quick(static_join("j")));
    let wait_a = h.join(quick(join_as(&a)));
    h.advance(4_990);
    assert!(h.waits(wait_a));
    h.advance(10);
    let joined = h.joined(wait_a);
    assert_eq!((joined.generation, joined.members.len()), (3, 2));
    assert_eq!(h.beat(&b, 3), ErrorCode::None);
}

#[test]
fn g6_4_a_leader_that_is_late_is_replaced_and_static_members_alone_wait_on() {
    let mut h = Harness::new();
    let quick = |join: Join| Join { rebalance_timeout_ms: 5_000, session_timeout_ms: 30_000, ..join };
    let (a, b) = h.pair(quick(static_join("i")), quick(join_as("")));
    let wait_b = h.join(Join { protocols: protocols(&["range", "x"]), ..quick(join_as(&b)) });
    h.advance(5_000);
    let joined = h.joined(wait_b);
    assert_eq!((&joined.leader, joined.members.len()), (&b, 2));
    assert_eq!(h.beat(&a, 3), ErrorCode::None);

    let mut h = Harness::new();
    let (a, b) = h.pair(quick(static_join("i")), quick(static_join("j")));
    let (c, wait_c) = h.newcomer(quick(join_as("")));
    h.leave(&[(&c, None)]);
    assert_eq!(h.joined(wait_c).code, UNKNOWN);
    for _ in 0..3 {
        h.advance(5_000);
        assert_eq!((h.state(), h.beat(&a, 2)), ("PreparingRebalance", ErrorCode::RebalanceInProgress));
        assert_eq!(h.beat(&b, 2), ErrorCode::RebalanceInProgress);
    }
}

#[test]
fn g6_5_who_does_not_sync_is_removed_though_it_sends_heartbeats() {
    let mut h = Harness::new();
    let quick = |join: Join| Join { rebalance_timeout_ms: 8_000, ..join };
    let (a, b) = h.pair(quick(join_as("")), quick(join_as("")));
    let wait_a = h.join(quick(join_as(&a)));
    h.join_now(quick(join_as(&b)));
    h.joined(wait_a);
    h.sync(&a, 3, &[(&a, "a"), (&b, "b")]);
    assert_eq!(h.state(), "Stable");
    h.advance(5_000);
    assert_eq!((h.beat(&a, 3), h.beat(&b, 3)), (ErrorCode::None, ErrorCode::None));
    h.advance(3_000);
    assert_eq!((h.beat(&a, 3), h.beat(&b, 3)), (ErrorCode::RebalanceInProgress, UNKNOWN));
}

#[test]
fn g6_5_a_leader_that_does_not_sync_frees_those_that_wait() {
    let mut h = Harness::new();
    let quick = |join: Join| Join { rebalance_timeout_ms: 8_000, ..join };
    let (a, b) = h.pair(quick(join_as("")), quick(join_as("")));
    let wait_a = h.join(quick(join_as(&a)));
    h.join_now(quick(join_as(&b)));
    h.joined(wait_a);
    let sync = h.sync(&b, 3, &[]);
    h.advance(8_000);
    assert_eq!(h.synced(sync).code, ErrorCode::RebalanceInProgress);
    assert_eq!(h.join_now(quick(join_as(&b))).leader, b);
}

#[test]
fn g6_5_an_away_static_member_is_removed_unless_it_comes_back_and_syncs() {
    for comes_back in [false, true] {
        let mut h = Harness::new();
        let quick = |join: Join| Join { rebalance_timeout_ms: 5_000, session_timeout_ms: 30_000, ..join };
        let (a, b) = h.pair(quick(join_as("")), quick(static_join("j")));
        let wait_a = h.join(quick(join_as(&a)));
        h.advance(5_000);
        assert_eq!(h.joined(wait_a).members.len(), 2);
        h.sync(&a, 3, &[(&a, "a"), (&b, "b")]);
        if comes_back {
            let back = h.join_now(quick(static_join("j")));
            let sync = h.sync(&back.member_id, 3, &[]);
            assert_eq!(h.synced(sync).assignment, "b");
        }
        h.advance(5_000);
        assert_eq!(h.described().members.len(), if comes_back { 2 } else { 1 });
        assert_eq!(h.state(), if comes_back { "Stable" } else { "PreparingRebalance" });
    }
}

#[test]
fn g6_6_g8_13_a_silent_member_is_removed_and_whatever_it_says_restarts_its_session() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    for _ in 0..4 {
        h.advance(4_990);
        assert_eq!(h.beat(&a, 2), ErrorCode::None);
        assert_eq!(h.commit(&b, 2, None), ErrorCode::None);
        h.advance(4_990);
        h.beat(&a, 2);
        assert_eq!(h.sync_code(&b, 2), ErrorCode::None);
    }
    h.advance(9_990);
    assert_eq!(h.beat(&a, 2), ErrorCode::None);
    h.advance(10);
    assert_eq!((h.beat(&a, 2), h.beat(&b, 2)), (ErrorCode::RebalanceInProgress, UNKNOWN));
    h.advance(9_990);
    assert_eq!(h.beat(&a, 2), ErrorCode::RebalanceInProgress);
    h.advance(9_990);
    assert_eq!(h.state(), "PreparingRebalance");
    h.advance(10);
    assert_eq!(h.state(), "Empty");
}

#[test]
fn g6_7_a_pending_member_holds_a_rebalance_up_for_one_session_timeout() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    let pending = h.join_now(join_as("")).member_id;
    let wait_a = h.join(join_as(&a));
    h.advance(9_990);
    assert!(h.waits(wait_a));
    h.advance(10);
    assert_eq!(h.joined(wait_a).generation, 2);
    assert_eq!(h.join_now(join_as(&pending)).code, UNKNOWN);
}

#[test]
fn g6_8_version_0_rebalances_within_its_session_timeout() {
    let mut h = Harness::new();
    let old = |id: &str| Join { version: 0, rebalance_timeout_ms: -1, ..join_as(id) };
    let a = h.join_now(old("")).member_id;
    h.sync(&a, 1, &[]);
    let wait_b = h.join(old(""));
    for _ in 0..2 {
        h.advance(4_990);
        assert_eq!(h.beat(&a, 1), ErrorCode::RebalanceInProgress);
    }
    assert!(h.waits(wait_b));
    h.advance(20);
    assert_eq!(h.joined(wait_b).members.len(), 1);
}

#[test]
fn g6_9_a_newcomer_is_given_up_after_five_minutes_and_the_rebalance_goes_on() {
    let mut h = Harness::new();
    let slow = |join: Join| Join { rebalance_timeout_ms: 1_000_000, session_timeout_ms: 1_000_000, ..join };
    let a = h.lone(slow(join_as("")));
    let (_, wait_b) = h.newcomer(Join { session_timeout_ms: 6_000, ..slow(join_as("")) });
    h.advance(299_990);
    assert!(h.waits(wait_b));
    h.advance(10);
    assert_eq!(h.joined(wait_b), Joined::refused(UNKNOWN, ""));
    assert_eq!((h.state(), h.beat(&a, 1)), ("PreparingRebalance", ErrorCode::RebalanceInProgress));
}

#[test]
fn g6_10_an_empty_group_takes_another_type() {
    let mut h = Harness::new();
    let a = h.lone(static_join("i"));
    h.leave(&[(&a, None)]);
    assert_eq!(h.described().protocol_type, "consumer");
    assert_eq!(h.join_now(Join { protocol_type: "connect".into(), ..static_join("i") }).code, ErrorCode::None);
    assert_eq!(h.described().protocol_type, "connect");
}

#[test]
fn g6_12_parked_members_cannot_lose_their_sessions() {
    let mut h = Harness::new();
    let patient = |join: Join| Join { session_timeout_ms: 6_000, ..join };
    let (a, b) = h.pair(patient(join_as("")), join_as(""));
    let wait_a = h.join(patient(join_as(&a)));
    for _ in 0..5 {
        h.advance(9_000);
        h.beat(&b, 2);
    }
    let wait_b = h.join(join_as(&b));
    assert_eq!((h.joined(wait_a).generation, h.joined(wait_b).generation), (3, 3));
    let sync = h.sync(&b, 3, &[]);
    for _ in 0..4 {
        h.advance(5_000);
        h.beat(&a, 3);
    }
    assert!(h.waits(sync));
    h.sync(&a, 3, &[(&b, "b")]);
    assert_eq!(h.synced(sync).assignment, "b");
    h.advance(9_990);
    assert_eq!(h.beat(&b, 3), ErrorCode::RebalanceInProgress, "its session began anew; a is gone");
}

#[test]
fn members_that_come_and_go_leave_no_timers_behind() {
    let mut h = Harness::new();
    let a = h.lone(Join { session_timeout_ms: 1_800_000, ..join_as("") });
    for _ in 0..2_000 {
        let pending = h.join_now(Join { session_timeout_ms: 1_800_000, ..join_as("") }).member_id;
        h.leave(&[(&pending, None)]);
    }
    assert_eq!(h.beat(&a, 1), ErrorCode::RebalanceInProgress, "contract G5.5");
    let text = format!("{:?}", h.group(G).expect("it is there"));
    assert!(text.len() < 20_000, "{} bytes", text.len());
}

#[test]
fn pending_members_are_bounded() {
    let mut h = Harness::new();
    h.set(|settings| settings.session_timeout_ms_min = 1);
    let first = h.join_now(Join { session_timeout_ms: 5_000, ..join_as("") }).member_id;
    for _ in 0..crate::limits::GROUP_PENDING_MEMBERS_MAX {
        h.join_now(join_as(""));
    }
    assert_eq!(h.join_now(join_as(&first)).code, UNKNOWN, "the first to end made room");
}
