//! Contract G12: epochs, targets, reconciliation.

use super::*;

#[test]
fn g12_5_the_sequence_of_the_contract() {
    let mut lab = Lab::new(6);
    assert_eq!(lab.join("A"), given(2, &[0, 1, 2, 3, 4, 5]));
    assert_eq!(lab.join("B"), given(3, &[]));
    assert_eq!(lab.beat("B", 3), null(3));
    assert_eq!(lab.beat("A", 2), given(2, &[0, 1, 2]));
    assert_eq!(lab.beat("A", 2), null(2));
    assert_eq!(lab.owning("A", 2, &[0, 1, 2, 3, 4, 5]), null(2));
    assert_eq!(lab.owning("A", 2, &[0, 1, 2]), null(3));
    assert_eq!(lab.beat("B", 3), given(3, &[3, 4, 5]));
    assert_eq!(lab.join("C"), given(4, &[]));
    assert_eq!(lab.beat("A", 3), given(3, &[0, 1]));
    assert_eq!(lab.beat("B", 3), given(3, &[3, 4]));
    assert_eq!(lab.beat("C", 4), null(4));
    assert_eq!(lab.owning("A", 3, &[0, 1]), null(4));
    assert_eq!(lab.beat("C", 4), given(4, &[2]));
    assert_eq!(lab.owning("B", 3, &[3, 4]), null(4));
    assert_eq!(lab.beat("C", 4), given(4, &[2, 5]));
    assert_eq!(lab.group(), ("Stable", 4, 4));
    assert_eq!(lab.beat("B", -1), null(-1));
    assert_eq!(lab.group(), ("Assigning", 5, 4));
    assert_eq!(lab.beat("A", 4), given(5, &[0, 1, 3]));
    assert_eq!(lab.beat("C", 4), given(5, &[2, 4, 5]));
    assert_eq!(lab.group(), ("Stable", 5, 5));
}

#[test]
fn g12_2_the_sequence_of_the_contract() {
    let mut lab = Lab::new(6);
    lab.harness.set(|settings| settings.consumer_assignment_interval_ms = 1000);
    assert_eq!(lab.join("A"), given(2, &[0, 1, 2, 3, 4, 5]));
    assert_eq!(lab.join("B"), given(2, &[]));
    assert_eq!(lab.group(), ("Assigning", 3, 2));
    lab.harness.advance(500);
    assert_eq!(lab.beat("B", 2), null(2));
    lab.harness.advance(600);
    assert_eq!(lab.beat("B", 2), null(3));
    assert_eq!(lab.describe().members[0].target, [(lab.topic, vec![0, 1, 2])]);
    assert_eq!(lab.beat("A", 2), given(2, &[0, 1, 2]));
    assert_eq!(lab.owning("A", 2, &[0, 1, 2]), null(3));
    assert_eq!(lab.beat("B", 3), given(3, &[3, 4, 5]));
    // An old target is replaced at once, and not without a heartbeat.
    lab.harness.advance(1100);
    assert_eq!(lab.join("C"), given(4, &[]));
    assert_eq!(lab.beat("C", -1), null(-1));
    lab.harness.advance(5000);
    assert_eq!(lab.group(), ("Assigning", 5, 4));
}

#[test]
fn g12_1_only_topics_and_members_raise_the_epoch() {
    let mut lab = Lab::new(6);
    assert_eq!(lab.heard(join("A", &[])), given(1, &[]));
    assert_eq!(lab.group(), ("Stable", 1, 1));
    let named = ConsumerHeartbeat { topics: Some(vec!["t".into()]), ..beat("A", 1) };
    assert_eq!(lab.heard(named), given(2, &[0, 1, 2, 3, 4, 5]));
    let others = ConsumerHeartbeat {
        rack_id: Some("r".into()),
        assignor: Some("range".into()),
        rebalance_timeout_ms: 5,
        topics: Some(vec!["t".into(), "t".into()]),
        ..beat("A", 2)
    };
    assert_eq!(lab.heard(others), null(2));
    assert_eq!(lab.join("A"), given(2, &[0, 1, 2, 3, 4, 5]));
    assert_eq!(lab.describe().members[0].rack_id.as_deref(), Some("r"));
}

#[test]
fn g12_3_g12_4_a_full_request_and_a_rejoin_hear_the_assignment_again() {
    let mut lab = Lab::new(2);
    assert_eq!(lab.join("A"), given(2, &[0, 1]));
    assert_eq!(lab.join("A"), given(2, &[0, 1]));
    assert_eq!(lab.beat("A", 2), null(2));
    let full = ConsumerHeartbeat { member_epoch: 2, owned: Some(vec![(lab.topic, vec![0, 1])]), ..join("A", &["t"]) };
    assert_eq!(lab.heard(full.clone()), given(2, &[0, 1]));
    assert_eq!(lab.heard(ConsumerHeartbeat { owned: None, ..full.clone() }), null(2));
    assert_eq!(lab.heard(ConsumerHeartbeat { topics: None, ..full }), null(2));
}

#[test]
fn g12_6_a_member_that_does_not_give_up_in_time_is_removed() {
    let mut lab = Lab::new(6);
    lab.harness.set(|settings| settings.consumer_session_timeout_ms = 600_000);
    let quick = ConsumerHeartbeat { rebalance_timeout_ms: 1000, ..join("A", &["t"]) };
    assert_eq!(lab.heard(quick), given(2, &[0, 1, 2, 3, 4, 5]));
    assert_eq!(lab.join("B"), given(3, &[]));
    assert_eq!(lab.beat("A", 2), given(2, &[0, 1, 2]));
    lab.harness.advance(990);
    assert_eq!(lab.beat("A", 2), null(2));
    lab.harness.advance(20);
    assert_eq!(lab.beat("A", 2), Err(ErrorCode::UnknownMemberId));
    assert_eq!(lab.group(), ("Assigning", 4, 3));
    assert_eq!(lab.beat("B", 3), given(4, &[0, 1, 2, 3, 4, 5]));
}

#[test]
fn g12_7_dropped_topics_are_taken_first_even_while_others_are_given_up() {
    let mut lab = Lab::new(4);
    let other = lab.harness.topic("u", 2);
    let both = lab.send(join("A", &["t", "u"]));
    assert_eq!(both.assignment, Some(vec![(lab.topic, vec![0, 1, 2, 3]), (other, vec![0, 1])]));
    lab.send(join("B", &["t", "u"]));
    let revoking = lab.send(beat("A", 2)).assignment.expect("half of it");
    assert_eq!(revoking, [(lab.topic, vec![0, 1, 2])]);
    let dropped = ConsumerHeartbeat { topics: Some(vec!["u".into()]), ..beat("A", 2) };
    let answer = lab.send(dropped);
    assert_eq!((answer.member_epoch, answer.assignment), (2, Some(vec![])));
    let held: Vec<_> = lab.describe().members.into_iter().map(|member| member.assignment).collect();
    assert_eq!(held[0], [(lab.topic, vec![0, 1, 2, 3]), (other, vec![0, 1])], "contract G16.2");
}

#[test]
fn g12_8_the_epochs_of_an_emptied_group_go_on() {
    let mut lab = Lab::new(2);
    assert_eq!(lab.join("A"), given(2, &[0, 1]));
    let left = lab.send(beat("A", -1));
    assert_eq!((left.member_id.as_deref(), left.member_epoch, left.heartbeat_interval_ms), (Some("A"), -1, 0));
    assert_eq!(lab.beat("A", -1), Err(ErrorCode::UnknownMemberId));
    assert_eq!(lab.group(), ("Empty", 3, 2));
    lab.harness.crash();
    assert_eq!(lab.join("A"), given(4, &[0, 1]));
}

#[test]
fn g12_9_created_grown_and_deleted_topics_are_noticed_at_the_next_heartbeat() {
    let mut lab = Lab::new(1);
    let later = join("A", &["t", "later"]);
    assert_eq!(lab.heard(later), given(2, &[0]));
    let unrelated = lab.harness.topic("unrelated", 1);
    assert_eq!(lab.beat("A", 2), null(2));
    let created = lab.harness.topic("later", 1);
    let answer = lab.send(beat("A", 2));
    assert_eq!((answer.member_epoch, answer.assignment), (3, Some(vec![(lab.topic, vec![0]), (created, vec![0])])));
    let grow = [crate::image::Change::GrowTopic { id: lab.topic, partitions: 2 }];
    lab.harness.image = lab.harness.image.apply(&grow);
    assert_eq!(lab.send(beat("A", 3)).member_epoch, 4);
    let delete =
        [crate::image::Change::DeleteTopic { id: lab.topic }, crate::image::Change::DeleteTopic { id: created }];
    lab.harness.image = lab.harness.image.apply(&delete);
    let answer = lab.send(beat("A", 4));
    assert_eq!((answer.member_epoch, answer.assignment), (4, Some(vec![])));
    assert_eq!(lab.owning("A", 4, &[]), null(5));
    lab.harness.image = lab.harness.image.apply(&[crate::image::Change::DeleteTopic { id: unrelated }]);
    lab.harness.crash();
    assert_eq!(lab.beat("A", 5), null(5), "what the group counted on is remembered");
}

#[test]
fn g12_10_silence_ends_a_membership_and_refused_heartbeats_are_silence() {
    let mut lab = Lab::new(2);
    let joined = lab.send(join("A", &["t"]));
    assert_eq!(joined.heartbeat_interval_ms, 5000);
    lab.harness.advance(40_000);
    assert_eq!(lab.beat("A", 2), null(2));
    lab.harness.advance(40_000);
    assert_eq!(lab.beat("A", 7), Err(ErrorCode::FencedMemberEpoch));
    lab.harness.advance(5_010);
    assert_eq!(lab.beat("A", 2), Err(ErrorCode::UnknownMemberId));
    assert_eq!(lab.group(), ("Empty", 3, 2));
}

#[test]
fn g13_1_the_assignor_most_members_name_and_changing_it_computes_nothing() {
    let mut lab = Lab::new(4);
    assert_eq!(lab.describe_after_join("A", Some("range")), "range");
    assert_eq!(lab.describe_after_join("B", Some("uniform")), "uniform", "a tie");
    assert_eq!(lab.describe_after_join("C", Some("range")), "range");
    assert_eq!(lab.describe_after_join("D", None), "range");
    let epochs = lab.group();
    assert_eq!(lab.heard(ConsumerHeartbeat { assignor: Some("uniform".into()), ..beat("D", 5) }).map(|h| h.0), Ok(5));
    assert_eq!(lab.group(), epochs);
}

impl Lab {
    fn describe_after_join(&mut self, id: &str, assignor: Option<&str>) -> String {
        self.send(ConsumerHeartbeat { assignor: assignor.map(str::to_owned), ..join(id, &["t"]) });
        self.describe().assignor
    }
}

#[test]
fn g19_6_a_crash_in_the_middle_of_a_rebalance_changes_nothing() {
    let mut lab = Lab::new(6);
    lab.join("A").expect("joined");
    lab.join("B").expect("joined");
    assert_eq!(lab.beat("A", 2), given(2, &[0, 1, 2]));
    let before = lab.describe();
    lab.harness.crash();
    assert_eq!(lab.describe(), before);
    assert_eq!(lab.beat("B", 3), null(3));
    assert_eq!(lab.owning("A", 2, &[0, 1, 2]), null(3));
    lab.harness.checkpoint();
    lab.harness.crash();
    assert_eq!(lab.beat("B", 3), given(3, &[3, 4, 5]));
}
