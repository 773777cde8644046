//! Contract G15: static members.

use super::*;

fn named(beat: ConsumerHeartbeat) -> ConsumerHeartbeat {
    ConsumerHeartbeat { instance_id: Some("i".into()), ..beat }
}

#[test]
fn g15_1_g15_2_a_living_instance_is_not_taken_over() {
    let mut lab = Lab::new(2);
    assert_eq!(lab.heard(named(join("A", &["t"]))), given(2, &[0, 1]));
    assert_eq!(lab.heard(named(join("B", &["t"]))), Err(ErrorCode::UnreleasedInstanceId));
    assert_eq!(lab.heard(named(join("A", &["t"]))), Err(ErrorCode::UnreleasedInstanceId));
    assert_eq!(lab.beat("A", 2), null(2));
    assert_eq!(lab.heard(named(beat("B", 2))), Err(ErrorCode::FencedInstanceId));
}

#[test]
fn g15_3_to_g15_5_who_left_for_a_while_comes_back_to_the_same() {
    let mut lab = Lab::new(4);
    assert_eq!(lab.heard(named(join("A", &["t"]))), given(2, &[0, 1, 2, 3]));
    let away = lab.send(named(beat("A", -2)));
    assert_eq!((away.member_id.as_deref(), away.member_epoch, away.assignment), (Some("A"), -2, None));
    assert_eq!(lab.heard(named(beat("A", -2))), null(-2));
    assert_eq!(lab.group(), ("Reconciling", 2, 2));
    assert_eq!(lab.heard(named(beat("A", 2))), Err(ErrorCode::FencedMemberEpoch));
    assert_eq!(lab.join("B"), given(3, &[]), "what A keeps is not free");
    lab.harness.crash();
    assert_eq!(lab.beat("B", 3), null(3));
    assert_eq!(lab.beat("B", -1), null(-1));
    assert_eq!(lab.heard(named(join("N", &["t"]))), given(4, &[0, 1, 2, 3]));
    for epoch in [2, -1, -2] {
        assert_eq!(lab.heard(named(beat("A", epoch))), Err(ErrorCode::FencedInstanceId), "{epoch}");
    }
    assert_eq!(lab.beat("A", 2), Err(ErrorCode::UnknownMemberId));
    assert_eq!(lab.group(), ("Stable", 4, 4));
}

#[test]
fn g15_4_the_same_names_change_nothing_and_others_raise_the_epoch() {
    let mut lab = Lab::new(2);
    lab.heard(named(join("A", &["t"]))).expect("joined");
    lab.heard(named(beat("A", -2))).expect("left");
    assert_eq!(lab.heard(named(join("A", &["t"]))), given(2, &[0, 1]));
    lab.heard(named(beat("A", -2))).expect("left");
    assert_eq!(lab.heard(named(join("N", &["t", "u"]))), given(3, &[0, 1]));
    assert_eq!(lab.heard(named(beat("N", -1))), null(-1));
    assert_eq!(lab.heard(named(beat("N", -2))), Err(ErrorCode::UnknownMemberId));
    assert_eq!(lab.group(), ("Empty", 4, 3));
}

#[test]
fn g11_9_a_full_group_takes_an_instance_back_under_its_own_id_only() {
    let mut lab = Lab::new(2);
    lab.heard(named(join("A", &["t"]))).expect("joined");
    lab.heard(named(beat("A", -2))).expect("left");
    lab.harness.set(|settings| settings.consumer_members_max = 1);
    assert_eq!(lab.heard(named(join("N", &["t"]))), Err(ErrorCode::GroupMaxSizeReached));
    assert_eq!(lab.heard(named(join("A", &["t"]))), given(2, &[0, 1]));
}

#[test]
fn g15_6_what_was_to_be_given_up_is_free_at_once() {
    let mut lab = Lab::new(4);
    lab.heard(named(join("A", &["t"]))).expect("joined");
    assert_eq!(lab.join("B"), given(3, &[]));
    assert_eq!(lab.heard(named(beat("A", 2))), given(2, &[0, 1]));
    assert_eq!(lab.heard(named(beat("A", -2))), null(-2));
    assert_eq!(lab.beat("B", 3), given(3, &[2, 3]));
}

#[test]
fn g15_7_the_session_counts_from_the_last_heartbeat_and_not_from_leaving() {
    let mut lab = Lab::new(2);
    lab.heard(named(join("A", &["t"]))).expect("joined");
    lab.harness.advance(30_000);
    lab.heard(named(beat("A", -2))).expect("left");
    lab.harness.advance(14_980);
    assert_eq!(lab.describe().members.len(), 1);
    lab.harness.advance(40);
    assert_eq!(lab.group(), ("Empty", 3, 2));
}
