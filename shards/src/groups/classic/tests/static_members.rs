use super::client::*;
use crate::code::ErrorCode;
use crate::groups::testing::Harness;
use crate::groups::{Ask, Join, Joined, Leaving, Reply, Sync, Synced};

fn sync_as(h: &mut Harness, member_id: &str, generation: i32, instance: &str) -> Synced {
    let sync =
        Sync { member_id: member_id.to_owned(), generation, instance_id: Some(instance.to_owned()), ..Sync::default() };
    let Reply::Sync(synced) = h.answer(G, Ask::Sync(sync)) else { panic!("a SyncGroup answer") };
    synced
}

#[test]
fn g2_20_a_static_follower_comes_back_without_a_rebalance_even_with_other_metadata() {
    let mut h = Harness::new();
    let (a, b) = h.pair(static_join("i"), static_join("j"));
    let back = h.join_now(Join { protocols: vec![("range".into(), subscription(&["u"]))], ..static_join("j") });
    assert_eq!((back.code, back.generation, &back.leader), (ErrorCode::None, 2, &a));
    assert!(back.member_id != b && back.members.is_empty() && !back.skip_assignment);
    assert_eq!(h.state(), "Stable");
    assert_eq!(sync_as(&mut h, &back.member_id, 2, "j").assignment, "b");
    let described = h.described();
    let member = described.members.iter().find(|member| member.member_id == back.member_id).expect("it is a member");
    assert_eq!(member.metadata, subscription(&["u"]));
}

#[test]
fn g2_20_the_static_leader_hears_of_skip_assignment_from_version_9_on() {
    let mut h = Harness::new();
    let (a, _) = h.pair(static_join("i"), static_join("j"));
    let old = h.join_now(Join { version: 8, ..static_join("i") });
    assert_eq!((old.code, &old.leader, old.members.len(), old.skip_assignment), (ErrorCode::None, &a, 0, false));
    let new = h.join_now(static_join("i"));
    assert_eq!((new.code, &new.leader, new.members.len()), (ErrorCode::None, &new.member_id, 2));
    assert!(new.skip_assignment);
    assert!(new.members.iter().any(|member| member.member_id == new.member_id));
}

#[test]
fn case_99_g2_20_the_new_id_is_durable_before_its_answer_and_survives_a_crash() {
    let mut h = Harness::new();
    let (_, b) = h.pair(static_join("i"), static_join("j"));
    h.hold_writes();
    let wait = h.join(static_join("j"));
    assert!(h.waits(wait), "the disk has not heard of it");
    h.release_writes();
    let back = h.joined(wait);
    h.crash();
    assert_eq!(h.beat_as(&back.member_id, 2, Some("j")), ErrorCode::None);
    assert_eq!(h.beat_as(&b, 2, Some("j")), ErrorCode::FencedInstanceId);
    assert_eq!(h.beat(&b, 2), ErrorCode::UnknownMemberId);
    assert_eq!(sync_as(&mut h, &back.member_id, 2, "j").assignment, "b");
}

#[test]
fn g2_20_the_leaders_new_id_survives_a_crash() {
    let mut h = Harness::new();
    h.pair(static_join("i"), static_join("j"));
    let back = h.join_now(static_join("i"));
    h.crash();
    assert_eq!(h.join_now(static_join("j")).leader, back.member_id);
    let wait = h.join(Join { member_id: back.member_id.clone(), ..static_join("i") });
    assert!(h.waits(wait), "a leader that joins makes a rebalance");
}

#[test]
fn case_99_a_static_member_that_came_back_during_a_rebalance_is_not_fenced_after_a_crash() {
    let mut h = Harness::new();
    let (a, _) = h.pair(static_join("i"), static_join("j"));
    let wait_a = h.join(Join { member_id: a.clone(), ..static_join("i") });
    let back = h.join_now(static_join("j"));
    assert_eq!((back.code, back.generation), (ErrorCode::None, 3));
    assert_eq!(h.joined(wait_a).generation, 3);
    h.crash();
    assert_eq!(h.state(), "Stable");
    assert_eq!(h.beat_as(&back.member_id, 3, Some("j")), ErrorCode::IllegalGeneration, "not synced: not remembered");
    assert_eq!(h.beat_as(&back.member_id, 2, Some("j")), ErrorCode::None);
    assert_eq!(sync_as(&mut h, &back.member_id, 2, "j").assignment, "b");
}

#[test]
fn g2_21_another_chosen_name_rebalances() {
    let mut h = Harness::new();
    let both = |instance: &str, names: &[&str]| Join { protocols: protocols(names), ..static_join(instance) };
    h.lone(both("i", &["range", "x"]));
    let back = h.join_now(both("i", &["x", "range"]));
    assert_eq!((back.generation, back.protocol_name.as_deref()), (2, Some("x")));
    assert_eq!(h.state(), "CompletingRebalance");
}

#[test]
fn g2_22_the_old_id_is_fenced_with_its_instance_and_unknown_without() {
    let mut h = Harness::new();
    let (_, b) = h.pair(static_join("i"), static_join("j"));
    let back = h.join_now(static_join("j"));
    let fenced = ErrorCode::FencedInstanceId;
    assert_eq!((h.beat_as(&b, 2, Some("j")), h.beat(&b, 2)), (fenced, ErrorCode::UnknownMemberId));
    assert_eq!(sync_as(&mut h, &b, 2, "j"), Synced::refused(fenced));
    assert_eq!(h.sync_code(&b, 2), ErrorCode::UnknownMemberId);
    let old = Join { member_id: b.clone(), ..static_join("j") };
    assert_eq!(h.join_now(old), Joined::refused(fenced, b.as_str()));
    assert_eq!(h.commit(&b, 2, Some("j")), fenced);
    assert_eq!(h.commit(&b, 2, None), ErrorCode::UnknownMemberId);
    assert_eq!(h.leave(&[(&b, Some("j")), (&b, None)]), [fenced, ErrorCode::UnknownMemberId]);
    assert_eq!((h.beat(&back.member_id, 2), h.beat_as(&back.member_id, 2, Some("j"))), Default::default());
}

#[test]
fn g2_22_a_parked_request_of_the_old_id_is_fenced() {
    let mut h = Harness::new();
    let (a, b) = h.pair(static_join("i"), static_join("j"));
    let parked = h.join(Join { member_id: a.clone(), ..static_join("i") });
    let new = h.join(static_join("i"));
    assert_eq!(h.joined(parked), Joined::refused(ErrorCode::FencedInstanceId, a.as_str()));
    h.join_now(Join { member_id: b.clone(), ..static_join("j") });
    let leader = h.joined(new);
    assert_eq!((leader.generation, &leader.leader), (3, &leader.member_id));
    let parked = h.sync(&b, 3, &[]);
    let wait_b = h.join(static_join("j"));
    assert_eq!(h.synced(parked), Synced::refused(ErrorCode::FencedInstanceId));
    assert!(h.waits(wait_b));
}

#[test]
fn g2_23_a_static_member_back_in_the_sync_phase_makes_a_new_rebalance() {
    let mut h = Harness::new();
    let (a, b) = h.pair(static_join("i"), static_join("j"));
    let wait_a = h.join(Join { member_id: a, ..static_join("i") });
    h.join_now(Join { member_id: b.clone(), ..static_join("j") });
    let a = h.joined(wait_a).member_id;
    let parked = h.sync(&b, 3, &[]);
    let wait_a = h.join(static_join("i"));
    assert_eq!(h.synced(parked).code, ErrorCode::RebalanceInProgress);
    h.join_now(Join { member_id: b, ..static_join("j") });
    let back = h.joined(wait_a);
    assert!(back.member_id != a && back.generation == 4);
}

#[test]
fn g2_24_an_empty_instance_id_is_one_like_any_other() {
    let mut h = Harness::new();
    let first = h.lone(static_join(""));
    let back = h.join_now(static_join(""));
    assert!(back.code == ErrorCode::None && back.member_id != first);
    let leaving = Leaving { member_id: String::new(), instance_id: Some(String::new()) };
    assert_eq!(h.answer(G, Ask::Leave(vec![leaving])), Reply::Leave(vec![ErrorCode::None]));
    assert_eq!(h.state(), "Empty");
}

#[test]
fn g3_12_a_static_member_whose_new_metadata_does_not_fit_is_refused_and_nothing_changes() {
    let mut h = Harness::new();
    let id = h.lone(static_join("i"));
    let large = Join { protocols: vec![("range".into(), vec![0; 1_100_000].into())], ..static_join("i") };
    assert_eq!(h.join_now(large), Joined::refused(ErrorCode::UnknownServerError, ""));
    assert_eq!(h.beat_as(&id, 1, Some("i")), ErrorCode::None);
}
