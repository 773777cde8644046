//! Contract G11 and G16: what is refused, in which order.

use super::*;

fn code(lab: &mut Lab, beat: ConsumerHeartbeat) -> ErrorCode {
    lab.heard(beat).err().unwrap_or_default()
}

#[test]
fn g11_2_to_g11_6_forms_that_are_refused() {
    let mut lab = Lab::new(2);
    let invalid = [
        ConsumerHeartbeat { member_id: String::new(), ..join("", &["t"]) },
        ConsumerHeartbeat { version: 0, ..beat("", 1) },
        ConsumerHeartbeat { version: 0, ..beat("", -1) },
        ConsumerHeartbeat { instance_id: Some(String::new()), ..join("A", &["t"]) },
        ConsumerHeartbeat { rack_id: Some(String::new()), ..join("A", &["t"]) },
        ConsumerHeartbeat { rebalance_timeout_ms: -1, ..join("A", &["t"]) },
        ConsumerHeartbeat { owned: None, ..join("A", &["t"]) },
        ConsumerHeartbeat { owned: Some(vec![(lab.topic, vec![0])]), ..join("A", &["t"]) },
        ConsumerHeartbeat { topics: None, ..join("A", &[]) },
        beat("A", -2),
        beat("A", -3),
    ];
    for wrong in invalid {
        assert_eq!(code(&mut lab, wrong.clone()), ErrorCode::InvalidRequest, "{wrong:?}");
    }
    for assignor in ["", "sticky"] {
        let wrong = ConsumerHeartbeat { assignor: Some(assignor.into()), ..beat("A", -1) };
        assert_eq!(code(&mut lab, wrong), ErrorCode::UnsupportedAssignor);
    }
    assert!(lab.harness.snapshot(GROUP).is_empty(), "refused joins leave nothing behind");
    let odd = ConsumerHeartbeat { rebalance_timeout_ms: 0, ..join("A", &["..", "a b"]) };
    assert_eq!(lab.heard(odd), given(2, &[]));
}

#[test]
fn g11_2_the_broker_makes_an_id_in_version_0_only() {
    let mut lab = Lab::new(2);
    let joined = lab.send(ConsumerHeartbeat { version: 0, fresh: 77, ..join("", &["t"]) });
    let id = joined.member_id.expect("an id");
    assert_eq!((id.len(), joined.member_epoch), (22, 2));
    assert_eq!(lab.beat(&id, 2), null(2));
}

#[test]
fn g11_0_g11_8_g11_9_off_absent_full() {
    let mut lab = Lab::new(2);
    assert_eq!(lab.beat("A", 1), Err(ErrorCode::GroupIdNotFound));
    assert_eq!(lab.beat("A", -1), Err(ErrorCode::GroupIdNotFound));
    lab.harness.set(|settings| settings.consumer_members_max = 1);
    lab.join("A").expect("joined");
    assert_eq!(lab.join("B"), Err(ErrorCode::GroupMaxSizeReached));
    assert_eq!(lab.join("A"), given(2, &[0, 1]));
    lab.harness.set(|settings| settings.consumer_protocol = false);
    assert_eq!(lab.beat("A", 2), Err(ErrorCode::UnsupportedVersion));
}

#[test]
fn g11_10_g11_12_members_and_instances() {
    let mut lab = Lab::new(2);
    lab.join("A").expect("joined");
    let instance = |name: &str| Some(name.to_owned());
    assert_eq!(lab.beat("B", 1), Err(ErrorCode::UnknownMemberId));
    let wrong = ConsumerHeartbeat { instance_id: instance("i"), ..beat("A", 2) };
    assert_eq!(lab.heard(wrong.clone()), Err(ErrorCode::UnknownMemberId));
    assert_eq!(lab.heard(ConsumerHeartbeat { instance_id: instance("i"), ..join("A", &["t"]) }), given(2, &[0, 1]));
    assert_eq!(lab.heard(wrong), null(2));
    let other = ConsumerHeartbeat { instance_id: instance("i"), ..beat("B", 2) };
    assert_eq!(lab.heard(other), Err(ErrorCode::FencedInstanceId));
}

#[test]
fn g11_11_the_epoch_before_is_taken_after_a_lost_answer_only() {
    let mut lab = Lab::new(4);
    lab.join("A").expect("joined");
    lab.join("B").expect("joined");
    lab.beat("A", 2).expect("half");
    assert_eq!(lab.owning("A", 2, &[0, 1]), null(3));
    assert_eq!(lab.beat("A", 2), Err(ErrorCode::FencedMemberEpoch));
    assert_eq!(lab.owning("A", 2, &[0, 1, 2]), Err(ErrorCode::FencedMemberEpoch));
    assert_eq!(lab.owning("A", 2, &[0, 1]), null(3));
    assert_eq!(lab.owning("A", 1, &[0, 1]), Err(ErrorCode::FencedMemberEpoch));
    assert_eq!(lab.beat("A", 4), Err(ErrorCode::FencedMemberEpoch));
}

#[test]
fn g16_1_g16_3_a_group_is_described_whole() {
    let mut lab = Lab::new(2);
    let client = Client { id: "c".into(), host: "/10.0.0.1".into() };
    lab.send(ConsumerHeartbeat { client: client.clone(), ..join("A", &["t", "absent"]) });
    let description = lab.describe();
    assert_eq!((description.state, description.epoch, description.assignment_epoch), ("Stable", 2, 2));
    assert_eq!(description.assignor, "uniform");
    let expected = ConsumerMemberDescription {
        member_id: "A".into(),
        member_epoch: 2,
        client,
        topics: vec!["absent".into(), "t".into()],
        assignment: vec![(lab.topic, vec![0, 1])],
        target: vec![(lab.topic, vec![0, 1])],
        ..ConsumerMemberDescription::default()
    };
    assert_eq!(description.members, [expected]);
    assert_eq!(
        lab.harness.answer("absent", Ask::ConsumerDescribe),
        Reply::ConsumerDescribe(Err(ErrorCode::GroupIdNotFound))
    );
    assert_eq!(lab.harness.answer(GROUP, Ask::Describe), Reply::Describe(Err(ErrorCode::GroupIdNotFound)));
    assert_eq!(lab.harness.answer(GROUP, Ask::Delete), Reply::Delete(ErrorCode::NonEmptyGroup));
}
