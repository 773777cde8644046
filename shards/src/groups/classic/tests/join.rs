use std::collections::BTreeSet;

use bytes::Bytes;

use super::client::*;
use crate::code::ErrorCode;
use crate::groups::testing::Harness;
use crate::groups::{Ask, Client, Join, Joined, Reply};

#[track_caller]
fn refused(h: &mut Harness, join: Join, code: ErrorCode, member_id: &str) {
    assert_eq!(h.join_now(join), Joined::refused(code, member_id));
}

#[test]
fn g6_13_a_second_member_joins() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    assert_eq!((h.state(), h.beat(&a, 1)), ("Stable", ErrorCode::None));
    let (b, wait_b) = h.newcomer(join_as(""));
    assert!(h.waits(wait_b));
    assert_eq!((h.state(), h.beat(&a, 1)), ("PreparingRebalance", ErrorCode::RebalanceInProgress));
    let joined_a = h.join_now(join_as(&a));
    let joined_b = h.joined(wait_b);
    assert_eq!((joined_a.generation, joined_b.generation), (2, 2));
    let ids: BTreeSet<_> = joined_a.members.iter().map(|member| &member.member_id).collect();
    assert_eq!(ids, [&a, &b].into());
    assert!(joined_b.members.is_empty());
    let wait_b = h.sync(&b, 2, &[]);
    assert!(h.waits(wait_b));
    let wait_a = h.sync(&a, 2, &[(&a, "1"), (&b, "2")]);
    assert_eq!((h.synced(wait_a).assignment, h.synced(wait_b).assignment), ("1".into(), "2".into()));
    assert_eq!(h.state(), "Stable");
}

#[test]
fn g2_2_the_session_timeout_is_within_the_settings_both_ends_included() {
    let mut h = Harness::new();
    let with = |session_timeout_ms| Join { session_timeout_ms, ..join_as("") };
    for wrong in [5_999, 1_800_001, -1, 0, i32::MIN] {
        refused(&mut h, with(wrong), ErrorCode::InvalidSessionTimeout, "");
    }
    refused(&mut h, Join { session_timeout_ms: 1, ..join_as("x") }, ErrorCode::InvalidSessionTimeout, "x");
    for right in [6_000, 1_800_000] {
        assert_eq!(h.join_now(with(right)).code, ErrorCode::MemberIdRequired);
    }
}

#[test]
fn g2_6_an_unknown_member_id_makes_no_group() {
    let mut h = Harness::new();
    refused(&mut h, join_as("x"), ErrorCode::UnknownMemberId, "x");
    refused(&mut h, Join { member_id: "x".into(), ..static_join("i") }, ErrorCode::UnknownMemberId, "x");
    refused(&mut h, Join { version: 0, ..join_as("x") }, ErrorCode::UnknownMemberId, "x");
    refused(&mut h, Join { protocol_type: String::new(), ..join_as("") }, ErrorCode::InconsistentGroupProtocol, "");
    assert_eq!(h.answer(G, Ask::Describe), Reply::Describe(Err(ErrorCode::GroupIdNotFound)));
    assert_eq!(h.written(G), 0);
}

#[test]
fn g2_7_a_full_group_lets_nobody_in_and_forgets_an_old_member_that_joins_too_late() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    h.set(|settings| settings.members_max = 2);
    refused(&mut h, join_as(""), ErrorCode::GroupMaxSizeReached, "");
    refused(&mut h, join_as("unknown"), ErrorCode::GroupMaxSizeReached, "");
    h.set(|settings| settings.members_max = 1);
    let wait_a = h.join(join_as(&a));
    assert_eq!(h.state(), "PreparingRebalance");
    refused(&mut h, join_as(&b), ErrorCode::GroupMaxSizeReached, "");
    assert_eq!(h.beat(&b, 2), ErrorCode::UnknownMemberId);
    h.advance(59_000);
    assert!(h.waits(wait_a), "nothing else happens until the rebalance timeout");
    h.advance(1_000);
    assert_eq!(h.joined(wait_a).members.len(), 1);
}

#[test]
fn g2_7_pending_members_and_an_empty_group_do_not_count() {
    let mut h = Harness::new();
    h.set(|settings| settings.members_max = 1);
    for _ in 0..3 {
        assert_eq!(h.join_now(join_as("")).code, ErrorCode::MemberIdRequired);
    }
    h.lone(join_as(""));
}

#[test]
fn g2_8_protocols_are_checked_before_members() {
    let mut h = Harness::new();
    let none = Join { protocols: Vec::new(), ..join_as("") };
    h.lone(Join { instance_id: Some("i".into()), protocols: protocols(&["range", "x"]), ..join_as("") });
    let code = ErrorCode::InconsistentGroupProtocol;
    refused(&mut h, none, code, "");
    refused(&mut h, Join { protocol_type: "connect".into(), ..join_as("unknown") }, code, "unknown");
    refused(&mut h, Join { protocols: protocols(&["y"]), member_id: "z".into(), ..static_join("i") }, code, "z");
    refused(&mut h, Join { member_id: "z".into(), ..static_join("i") }, ErrorCode::FencedInstanceId, "z");
    let id = h.described().members[0].member_id.clone();
    refused(&mut h, Join { protocols: protocols(&["y"]), ..join_as(&id) }, code, &id);
}

#[test]
fn g2_9_a_new_static_member_gets_no_79_and_g2_10_neither_does_version_3() {
    for join in [static_join("i"), Join { version: 3, ..join_as("") }] {
        let mut h = Harness::new();
        assert_eq!(h.join_now(join).code, ErrorCode::None);
    }
}

#[test]
fn g2_10_a_newcomer_gets_its_id_first_and_g2_11_comes_back_with_it() {
    let mut h = Harness::new();
    let told = h.join_now(join_as(""));
    assert_eq!((told.code, told.generation), (ErrorCode::MemberIdRequired, -1));
    assert_eq!((h.state(), h.described().members.len()), ("Empty", 0));
    let with_instance = Join { member_id: told.member_id.clone(), ..static_join("i") };
    refused(&mut h, with_instance, ErrorCode::UnknownServerError, &told.member_id);
    assert_eq!(h.join_now(join_as(&told.member_id)).code, ErrorCode::None);
}

#[test]
fn g2_12_unknown_and_fenced_members() {
    let mut h = Harness::new();
    h.pair(static_join("i"), static_join("j"));
    let id = h.described().members[0].clone();
    refused(&mut h, join_as("x"), ErrorCode::UnknownMemberId, "x");
    refused(&mut h, Join { member_id: "x".into(), ..static_join("k") }, ErrorCode::UnknownMemberId, "x");
    let other = if id.instance_id.as_deref() == Some("i") { "j" } else { "i" };
    let mixed = Join { member_id: id.member_id.clone(), ..static_join(other) };
    refused(&mut h, mixed, ErrorCode::FencedInstanceId, &id.member_id);
}

#[test]
fn g2_13_stable_a_follower_hears_the_generation_again_and_the_leader_rebalances() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let again = h.join_now(join_as(&b));
    assert_eq!((again.code, again.generation, &again.leader), (ErrorCode::None, 2, &a));
    assert!(again.members.is_empty() && !again.skip_assignment);
    assert_eq!(h.state(), "Stable");
    let changed = Join { protocols: vec![("range".into(), subscription(&["u"]))], ..join_as(&b) };
    let wait_b = h.join(changed);
    assert_eq!(h.state(), "PreparingRebalance");
    assert_eq!(h.join_now(join_as(&a)).generation, 3);
    assert_eq!(h.joined(wait_b).generation, 3);
    assert_eq!(h.state(), "CompletingRebalance");
    h.join(join_as(&b));
    let sync = h.sync(&a, 3, &[]);
    assert_eq!(h.synced(sync).code, ErrorCode::RebalanceInProgress, "b has its old metadata again");
}

#[test]
fn g2_13_completing_the_same_protocols_hear_the_generation_again() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    let (b, wait_b) = h.newcomer(join_as(""));
    h.join_now(join_as(&a));
    h.joined(wait_b);
    assert_eq!(h.state(), "CompletingRebalance");
    let again = h.join_now(join_as(&a));
    assert_eq!((again.generation, again.members.len()), (2, 2));
    let wait_sync = h.sync(&b, 2, &[]);
    let changed = Join { protocols: vec![("range".into(), Bytes::from_static(b"other"))], ..join_as(&b) };
    let wait_join = h.join(changed);
    assert_eq!(h.synced(wait_sync).code, ErrorCode::RebalanceInProgress);
    assert_eq!(h.state(), "PreparingRebalance");
    h.join_now(join_as(&a));
    assert_eq!(h.joined(wait_join).generation, 3);
}

#[test]
fn a_newcomer_in_the_sync_phase_stays_parked_while_the_others_hear_27() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let wait_b = h.join(Join { protocols: protocols(&["range", "x"]), ..join_as(&b) });
    h.join_now(join_as(&a));
    h.joined(wait_b);
    let wait_b = h.sync(&b, 3, &[]);
    let (_, wait_c) = h.newcomer(join_as(""));
    assert_eq!(h.synced(wait_b).code, ErrorCode::RebalanceInProgress);
    assert!(h.waits(wait_c));
    assert!(h.described().members.iter().all(|member| member.assignment.is_empty()));
}

#[test]
fn of_two_requests_of_one_member_the_first_is_not_left_waiting() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let first = h.join(join_as(&a));
    let second = h.join(join_as(&a));
    assert_eq!(h.joined(first), Joined::refused(ErrorCode::RebalanceInProgress, a.as_str()));
    assert_eq!(h.join_now(join_as(&b)).code, ErrorCode::None);
    assert_eq!(h.joined(second).members.len(), 2);
    let first = h.sync(&b, 3, &[]);
    let second = h.sync(&b, 3, &[]);
    assert_eq!(h.synced(first).code, ErrorCode::RebalanceInProgress);
    h.sync(&a, 3, &[(&b, "b")]);
    assert_eq!(h.synced(second).assignment, "b");
}

#[test]
fn g2_14_success_and_g2_15_error_answers() {
    let mut h = Harness::new();
    let (a, wait_a) = h.newcomer(join_as(""));
    let joined = h.joined(wait_a);
    assert_eq!((joined.protocol_type.as_deref(), joined.protocol_name.as_deref()), (Some("consumer"), Some("range")));
    assert_eq!((joined.generation, &joined.leader, &joined.member_id), (1, &a, &a));
    assert_eq!(joined.members.len(), 1);
    assert_eq!((&joined.members[0].member_id, &joined.members[0].metadata), (&a, &subscription(&["t"])));
    let refused = Joined::refused(ErrorCode::UnknownMemberId, "x");
    assert_eq!((refused.generation, refused.protocol_type, refused.leader.as_str()), (-1, None, ""));
}

#[test]
fn g2_16_member_ids_are_the_name_and_a_random_uuid() {
    let mut h = Harness::new();
    let fresh = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
    let Reply::Join(joined) = h.answer(G, Ask::Join(Join { fresh, ..join_as("") })) else { panic!() };
    assert_eq!(joined.member_id, "c-01234567-89ab-4def-8123-456789abcdef");
    let Reply::Join(joined) = h.answer("h", Ask::Join(Join { fresh, ..static_join("ä") })) else { panic!() };
    assert_eq!(joined.member_id, "ä-01234567-89ab-4def-8123-456789abcdef");
    let client = Client { id: "ä".repeat(40_000), host: String::new() };
    let Reply::Join(joined) = h.answer("i", Ask::Join(Join { client, ..join_as("") })) else { panic!() };
    assert!(joined.member_id.len() < 32_767, "it fits a string of the protocol");
}

#[test]
fn g2_17_generations_survive_empty_and_end_with_the_group() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    h.leave(&[(&a, None)]);
    assert_eq!(h.state(), "Empty");
    let (_, wait) = h.newcomer(join_as(""));
    let joined = h.joined(wait);
    assert_eq!(joined.generation, 3, "the last one leaving was the second");
    h.leave(&[(&joined.member_id, None)]);
    assert_eq!(h.delete(), ErrorCode::None);
    let (_, wait) = h.newcomer(join_as(""));
    assert_eq!(h.joined(wait).generation, 1);
}

#[test]
fn g2_18_the_first_member_leads_until_it_goes() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let wait_b = h.join(Join { protocols: protocols(&["range", "x"]), ..join_as(&b) });
    h.join_now(join_as(&a));
    assert_eq!(h.joined(wait_b).leader, a, "rejoining late does not lose it");
    h.leave(&[(&a, None)]);
    let joined = h.join_now(join_as(&b));
    assert_eq!((&joined.leader, joined.members.len()), (&b, 1));
}

#[test]
fn g2_19_most_members_decide_among_what_all_support() {
    let mut h = Harness::new();
    let list = |id: &str, names: &[&str]| Join { version: 3, protocols: protocols(names), ..join_as(id) };
    let chosen = |h: &mut Harness, lists: &[&[&str]]| {
        h.set(|settings| settings.initial_rebalance_delay_ms = 100);
        let waits: Vec<_> = lists.iter().map(|names| h.join(list("", names))).collect();
        h.advance(200);
        let joined: Vec<_> = waits.into_iter().map(|waiter| h.joined(waiter)).collect();
        let ids: Vec<_> = joined.iter().map(|joined| (joined.member_id.as_str(), None)).collect();
        h.leave(&ids);
        joined[0].protocol_name.clone().expect("it was chosen")
    };
    assert_eq!(chosen(&mut h, &[&["a", "b", "c"], &["b", "c", "a"], &["b", "a", "c"]]), "b");
    assert_eq!(chosen(&mut h, &[&["x", "a", "b"], &["y", "b", "a"], &["b", "a"]]), "b", "x and y are not common");
    assert_eq!(chosen(&mut h, &[&["a", "b"], &["b"]]), "b");
    assert_eq!(chosen(&mut h, &[&["b", "a"], &["a", "b"]]), "b", "a tie: the leader's");
}

#[test]
fn g0_10_a_protocol_named_twice_counts_once() {
    let mut h = Harness::new();
    let twice = vec![("range".to_owned(), subscription(&["t"])), ("range".to_owned(), Bytes::from_static(b"second"))];
    let a = h.lone(Join { protocols: twice.clone(), ..join_as("") });
    assert_eq!(h.described().members[0].metadata, subscription(&["t"]));
    let (_, wait_b) = h.newcomer(Join { protocols: twice, ..join_as("") });
    h.join_now(join_as(&a));
    assert_eq!(h.joined(wait_b).code, ErrorCode::None);
}

#[test]
fn g2_26_any_string_is_a_group_id() {
    let mut h = Harness::new();
    for group in ["a/b", "#", " ", "\u{1f980}", "\0", ".", "..", &"x".repeat(5000)] {
        let Reply::Join(joined) = h.answer(group, Ask::Join(static_join("i"))) else { panic!() };
        assert_eq!(joined.code, ErrorCode::None, "{group:?}");
    }
}
