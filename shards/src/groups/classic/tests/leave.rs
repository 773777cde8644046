use super::client::*;
use crate::code::ErrorCode;
use crate::groups::Joined;
use crate::groups::testing::Harness;

const UNKNOWN: ErrorCode = ErrorCode::UnknownMemberId;
const OK: ErrorCode = ErrorCode::None;

#[test]
fn g5_2_absent() {
    let mut h = Harness::new();
    assert_eq!(h.leave(&[("x", None), ("", Some("i"))]), [UNKNOWN, UNKNOWN]);
    assert!(h.group(G).is_none());
}

#[test]
fn g5_3_each_entry_by_itself_and_g5_4_twice() {
    let mut h = Harness::new();
    let (a, b) = h.pair(static_join("i"), static_join("j"));
    let pending = h.join_now(join_as("")).member_id;
    assert_eq!(h.leave(&[]), []);
    let codes = h.leave(&[("", None), ("", Some("k")), (&a, Some("k")), (&a, Some("j")), ("x", None)]);
    assert_eq!(codes, [UNKNOWN, UNKNOWN, UNKNOWN, ErrorCode::FencedInstanceId, UNKNOWN]);
    assert_eq!(h.state(), "Stable");
    assert_eq!(h.leave(&[(&pending, None), (&pending, None)]), [OK, UNKNOWN]);
    assert_eq!(h.state(), "PreparingRebalance", "contract G5.5: a pending member that leaves counts");
    assert_eq!(h.leave(&[("", Some("i")), (&a, None), (&b, None)]), [OK, UNKNOWN, OK]);
    assert_eq!(h.state(), "Empty");
}

#[test]
fn g5_5_a_pending_member_leaves_an_empty_group_empty() {
    let mut h = Harness::new();
    let pending = h.join_now(join_as("")).member_id;
    assert_eq!(h.leave(&[(&pending, None)]), [OK]);
    assert_eq!(h.state(), "Empty");
}

#[test]
fn g5_5_one_rebalance_after_all_have_left() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    assert_eq!(h.leave(&[(&a, None)]), [OK]);
    assert_eq!((h.state(), h.beat(&b, 2)), ("PreparingRebalance", ErrorCode::RebalanceInProgress));
    assert_eq!(h.beat(&a, 2), UNKNOWN);
    let joined = h.join_now(join_as(&b));
    assert_eq!((joined.generation, &joined.leader), (3, &b));
}

#[test]
fn g5_5_a_rebalance_completes_when_the_missing_one_leaves_and_a_parked_join_of_the_removed_is_answered() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let wait_a = h.join(join_as(&a));
    assert_eq!(h.leave(&[(&b, None)]), [OK]);
    assert_eq!(h.joined(wait_a).generation, 3);
    let (c, wait_c) = h.newcomer(join_as(""));
    assert_eq!(h.leave(&[(&c, None)]), [OK]);
    assert_eq!(h.joined(wait_c), Joined::refused(UNKNOWN, ""));
}

#[test]
fn g5_5_a_parked_sync_of_the_removed_is_answered() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let wait_a = h.join(join_as(&a));
    h.join_now(join_as(&b));
    h.joined(wait_a);
    let sync = h.sync(&b, 3, &[]);
    assert_eq!(h.leave(&[(&b, None)]), [OK]);
    assert_eq!(h.synced(sync).code, UNKNOWN);
}

#[test]
fn g6_7_a_leaving_pending_member_lets_the_rebalance_go_on() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    let pending = h.join_now(join_as("")).member_id;
    let wait_a = h.join(join_as(&a));
    assert!(h.waits(wait_a));
    assert_eq!(h.leave(&[(&pending, None)]), [OK]);
    assert_eq!(h.joined(wait_a).generation, 2);
}
