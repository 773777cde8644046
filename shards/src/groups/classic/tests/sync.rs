use bytes::Bytes;

use super::client::*;
use crate::code::ErrorCode;
use crate::groups::testing::Harness;
use crate::groups::{Ask, Heartbeat, Join, Reply, Sync, Synced};

fn code(h: &mut Harness, sync: Sync) -> ErrorCode {
    let Reply::Sync(synced) = h.answer(G, Ask::Sync(sync)) else { panic!("a SyncGroup answer") };
    if synced.code != ErrorCode::None {
        assert_eq!(synced, Synced::refused(synced.code), "G3.11");
    }
    synced.code
}

fn of(member_id: &str, generation: i32) -> Sync {
    Sync { version: 3, member_id: member_id.to_owned(), generation, ..Sync::default() }
}

#[test]
fn g3_1_version_5_names_type_and_protocol_whether_the_group_is_there_or_not() {
    for is_there in [false, true] {
        let mut h = Harness::new();
        if is_there {
            h.lone(join_as(""));
        }
        let half = Sync { version: 5, protocol_type: Some("consumer".into()), ..of("x", 1) };
        assert_eq!(code(&mut h, half), ErrorCode::InconsistentGroupProtocol);
        assert_eq!(code(&mut h, Sync { version: 4, ..of("x", 1) }), ErrorCode::UnknownMemberId, "G3.3");
    }
}

#[test]
fn g3_3_to_g3_7_are_checked_in_order() {
    let mut h = Harness::new();
    let told = h.join_now(join_as("")).member_id;
    assert_eq!(code(&mut h, of(&told, 0)), ErrorCode::UnknownMemberId, "only pending");
    h.leave(&[(&told, None)]);
    let (a, b) = h.pair(static_join("i"), static_join("j"));
    let with = |member_id: &str, instance: &str| Sync { instance_id: Some(instance.into()), ..of(member_id, 9) };
    assert_eq!(code(&mut h, with(&a, "k")), ErrorCode::UnknownMemberId);
    assert_eq!(code(&mut h, with(&a, "j")), ErrorCode::FencedInstanceId);
    assert_eq!(code(&mut h, of("x", 9)), ErrorCode::UnknownMemberId);
    let wrong_name = |generation| Sync { protocol_name: Some("x".into()), ..of(&a, generation) };
    assert_eq!(code(&mut h, wrong_name(1)), ErrorCode::IllegalGeneration);
    assert_eq!(code(&mut h, wrong_name(2)), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(
        code(&mut h, Sync { protocol_type: Some("connect".into()), ..of(&a, 2) }),
        ErrorCode::InconsistentGroupProtocol
    );
    h.join(Join { member_id: a.clone(), ..static_join("i") });
    assert_eq!(code(&mut h, wrong_name(2)), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(code(&mut h, of(&b, 2)), ErrorCode::RebalanceInProgress);
}

#[test]
fn g3_8_who_is_left_out_gets_nothing_and_ids_made_up_are_ignored() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let wait_b = h.join(Join { protocols: protocols(&["range", "x"]), ..join_as(&b) });
    h.join_now(join_as(&a));
    h.joined(wait_b);
    let wait_b = h.sync(&b, 3, &[(&b, "a follower has no say")]);
    let wait_a = h.sync(&a, 3, &[(&a, "all"), ("made up", "x")]);
    let synced = h.synced(wait_a);
    assert_eq!((synced.assignment, synced.protocol_type.as_deref()), ("all".into(), Some("consumer")));
    assert_eq!(synced.protocol_name.as_deref(), Some("range"));
    assert_eq!(h.synced(wait_b).assignment, "");
}

#[test]
fn g3_9_a_stable_group_ignores_assignments() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    for (id, own) in [(&a, "a"), (&b, "b")] {
        let sync = h.sync(id, 2, &[(&a, "x"), (&b, "x")]);
        assert_eq!(h.synced(sync).assignment, own);
    }
}

#[test]
fn g3_8_the_leaders_answer_waits_for_the_disk() {
    let mut h = Harness::new();
    let (a, wait_a) = h.newcomer(join_as(""));
    h.joined(wait_a);
    h.hold_writes();
    let sync = h.sync(&a, 1, &[(&a, "all")]);
    assert!(h.waits(sync));
    h.finish_writes();
    assert_eq!(h.synced(sync).assignment, "all");
}

#[test]
fn g3_12_a_generation_that_does_not_fit_one_record_is_refused() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let wait_b = h.join(Join { protocols: protocols(&["range", "x"]), ..join_as(&b) });
    h.join_now(join_as(&a));
    h.joined(wait_b);
    let wait_b = h.sync(&b, 3, &[]);
    let wait_a = h.sync(&a, 3, &[(&a, &"x".repeat(600_000)), (&b, &"x".repeat(600_000))]);
    assert_eq!(h.synced(wait_a), Synced::refused(ErrorCode::UnknownServerError));
    assert_eq!(h.synced(wait_b), Synced::refused(ErrorCode::UnknownServerError));
    assert_eq!((h.state(), h.beat(&a, 3)), ("PreparingRebalance", ErrorCode::RebalanceInProgress));
    h.crash();
    assert_eq!((h.state(), h.beat(&a, 2)), ("Stable", ErrorCode::None));
}

#[test]
fn g4_heartbeats_are_checked_in_order() {
    let mut h = Harness::new();
    assert_eq!(h.beat("x", 1), ErrorCode::UnknownMemberId, "G4.2");
    let (a, b) = h.pair(static_join("i"), static_join("j"));
    assert_eq!(h.beat_as(&a, 9, Some("k")), ErrorCode::UnknownMemberId);
    assert_eq!(h.beat_as(&a, 9, Some("j")), ErrorCode::FencedInstanceId);
    assert_eq!(h.beat("x", 9), ErrorCode::UnknownMemberId);
    for wrong in [-1, 1, 3] {
        assert_eq!(h.beat(&a, wrong), ErrorCode::IllegalGeneration);
    }
    assert_eq!(h.beat_as(&a, 2, Some("i")), ErrorCode::None);
    let wait_a = h.join(Join { member_id: a.clone(), ..static_join("i") });
    assert_eq!(h.beat(&b, 2), ErrorCode::RebalanceInProgress);
    h.join_now(Join { member_id: b.clone(), ..static_join("j") });
    h.joined(wait_a);
    assert_eq!((h.state(), h.beat(&b, 3)), ("CompletingRebalance", ErrorCode::None));
}

#[test]
fn a_heartbeat_writes_nothing() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    let before = h.written(G);
    let beat = Heartbeat { member_id: a, generation: 1, instance_id: None };
    assert_eq!(h.answer(G, Ask::Heartbeat(beat)), Reply::Heartbeat(ErrorCode::None));
    assert_eq!(h.written(G), before);
}

#[test]
fn g7_1_a_stable_group_is_described_whole_and_g7_2_others_without_protocol_and_metadata() {
    let mut h = Harness::new();
    let (a, b) = h.pair(join_as(""), join_as(""));
    let described = h.described();
    assert_eq!((described.state, described.protocol_type.as_str()), ("Stable", "consumer"));
    assert_eq!((described.protocol.as_str(), described.members.len()), ("range", 2));
    let member = described.members.iter().find(|member| member.member_id == b).expect("a member");
    assert_eq!((member.client.id.as_str(), member.client.host.as_str()), ("c", "/127.0.0.1"));
    assert_eq!((&member.metadata, &member.assignment), (&subscription(&["t"]), &Bytes::from_static(b"b")));
    h.join(join_as(&a));
    let described = h.described();
    assert_eq!((described.state, described.protocol.as_str()), ("PreparingRebalance", ""));
    assert!(described.members.iter().all(|member| member.metadata.is_empty() && !member.assignment.is_empty()));
}

#[test]
fn g7_3_an_absent_group_and_g7_8_deletion() {
    let mut h = Harness::new();
    assert_eq!(h.answer(G, Ask::Describe), Reply::Describe(Err(ErrorCode::GroupIdNotFound)));
    assert_eq!(h.delete(), ErrorCode::GroupIdNotFound);
    let a = h.lone(join_as(""));
    assert_eq!(h.delete(), ErrorCode::NonEmptyGroup);
    h.leave(&[(&a, None)]);
    let pending = h.join_now(join_as("")).member_id;
    assert_eq!(h.delete(), ErrorCode::None);
    assert_eq!(h.join_now(join_as(&pending)).code, ErrorCode::UnknownMemberId);
    h.crash();
    assert_eq!(h.answer(G, Ask::Describe), Reply::Describe(Err(ErrorCode::GroupIdNotFound)));
}
