use super::client::*;
use crate::code::ErrorCode;
use crate::groups::Join;
use crate::groups::group::Members;
use crate::groups::testing::Harness;

#[test]
fn g19_1_a_stable_group_goes_on_as_before() {
    for by_checkpoint in [false, true] {
        let mut h = Harness::new();
        let (a, b) = h.pair(join_as(""), static_join("j"));
        let described = h.described();
        if by_checkpoint {
            h.checkpoint();
        }
        h.crash();
        assert_eq!(h.described(), described);
        assert_eq!((h.beat(&a, 2), h.beat_as(&b, 2, Some("j"))), (ErrorCode::None, ErrorCode::None));
        let sync = h.sync(&b, 2, &[]);
        assert_eq!(h.synced(sync).assignment, "b");
        assert_eq!(h.join_now(Join { member_id: b, ..static_join("j") }).leader, a);
    }
}

#[test]
fn g19_1_sessions_start_anew() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    h.advance(9_000);
    h.crash();
    h.advance(9_990);
    assert_eq!(h.beat(&a, 2), ErrorCode::None);
    h.advance(10);
    assert_eq!((h.beat(&a, 2), h.beat(&b, 2)), (ErrorCode::RebalanceInProgress, ErrorCode::UnknownMemberId));
}

#[test]
fn g19_3_pending_members_and_a_rebalance_in_progress_are_not_remembered() {
    let mut h = Harness::new();
    let told = h.join_now(join_as("")).member_id;
    h.crash();
    assert_eq!(h.state(), "Empty");
    assert_eq!(h.join_now(join_as(&told)).code, ErrorCode::UnknownMemberId);
    let (a, wait) = h.newcomer(join_as(""));
    assert_eq!(h.joined(wait).generation, 1);
    h.crash();
    assert_eq!((h.state(), h.beat(&a, 1)), ("Empty", ErrorCode::UnknownMemberId));
    let a = h.lone(join_as(""));
    let (b, wait_b) = h.newcomer(join_as(""));
    h.checkpoint();
    h.crash();
    assert_eq!((h.state(), h.beat(&a, 1)), ("Stable", ErrorCode::None));
    assert!(!h.waits(wait_b));
    assert_eq!(h.beat(&b, 1), ErrorCode::UnknownMemberId);
    h.newcomer(join_as(""));
    assert_eq!(h.join_now(join_as(&a)).generation, 2);
    h.crash();
    assert_eq!((h.beat(&a, 2), h.beat(&a, 1)), (ErrorCode::IllegalGeneration, ErrorCode::None));
}

#[test]
fn g19_4_an_empty_group_keeps_its_generation() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    h.leave(&[(&a, None)]);
    h.crash();
    assert_eq!((h.state(), h.described().protocol_type.as_str()), ("Empty", "consumer"));
    let (_, wait) = h.newcomer(join_as(""));
    assert_eq!(h.joined(wait).generation, 3);
}

#[test]
fn g19_5_of_each_member_only_the_chosen_protocol_is_kept() {
    let mut h = Harness::new();
    let a = h.lone(Join { protocols: protocols(&["range", "x"]), ..join_as("") });
    h.crash();
    let only_x = Join { protocols: protocols(&["x"]), ..join_as("") };
    assert_eq!(h.join_now(only_x.clone()).code, ErrorCode::InconsistentGroupProtocol);
    h.join_now(Join { protocols: protocols(&["range", "x"]), ..join_as(&a) });
    assert_eq!(h.join_now(only_x).code, ErrorCode::MemberIdRequired);
}

#[test]
fn what_was_not_durable_was_not_answered_and_is_gone() {
    let mut h = Harness::new();
    let (a, wait) = h.newcomer(join_as(""));
    h.joined(wait);
    h.hold_writes();
    let sync = h.sync(&a, 1, &[(&a, "all")]);
    let left = h.join(join_as(""));
    assert!(h.waits(sync) && h.waits(left));
    h.crash();
    assert_eq!((h.state(), h.beat(&a, 1)), ("Empty", ErrorCode::UnknownMemberId));
}

#[test]
fn g18_a_group_taken_apart_and_put_together_is_the_same() {
    let mut h = Harness::new();
    let (a, _) = h.pair(join_as(""), static_join("j"));
    let Members::Classic(classic) = &h.group(G).expect("it is there").members else { panic!("a classic group") };
    let parts = classic.parts();
    assert_eq!((parts.generation, parts.protocol.as_deref(), parts.members.len()), (2, Some("range"), 2));
    assert_eq!(super::super::Classic::common_protocol(&parts.members).as_deref(), Some("range"));
    let again = super::super::Classic::from_parts(parts.clone(), h.now);
    assert_eq!((again.parts(), again.state_name()), (parts, "Stable"));
    assert_eq!(again.deadline_ms(), Some(h.now.mono_ms + 10_000), "sessions started");
    assert!(again.describe().members.iter().any(|member| member.member_id == a));
}
