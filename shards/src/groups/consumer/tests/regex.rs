//! Contract G14: regular expressions.

use super::*;

fn with(beat: ConsumerHeartbeat, regex: &str) -> ConsumerHeartbeat {
    ConsumerHeartbeat { regex: Some(regex.into()), topics: None, ..beat }
}

#[test]
fn g14_1_a_wrong_expression_leaves_the_group_untouched() {
    let mut lab = Lab::new(2);
    let wrong = with(join("A", &[]), "(?=t)");
    assert_eq!(lab.heard(wrong.clone()), Err(ErrorCode::InvalidRegularExpression));
    assert!(lab.harness.snapshot(GROUP).is_empty());
    lab.join("B").expect("joined");
    assert_eq!(lab.heard(wrong), Err(ErrorCode::InvalidRegularExpression));
    assert_eq!(lab.describe().members.len(), 1);
}

#[test]
fn g14_2_g14_3_matching_follows_the_join() {
    let mut lab = Lab::new(2);
    assert_eq!(lab.heard(with(join("A", &[]), "t.*")), given(1, &[]));
    assert_eq!(lab.group(), ("Assigning", 2, 1));
    assert_eq!(lab.beat("A", 1), given(2, &[0, 1]));
    let described = lab.describe().members.remove(0);
    assert_eq!((described.topics, described.regex.as_str()), (vec![], "t.*"), "contract G16.3");
}

#[test]
fn g14_2_default_settings_do_not_hold_the_first_match_up() {
    let mut lab = Lab::new(2);
    lab.harness.set(|settings| settings.consumer_assignment_interval_ms = 1000);
    assert_eq!(lab.heard(with(join("A", &[]), "t")), given(1, &[]));
    assert_eq!(lab.beat("A", 1), given(2, &[0, 1]));
}

#[test]
fn g14_2_an_expression_without_topics_changes_nothing() {
    let mut lab = Lab::new(2);
    assert_eq!(lab.heard(with(join("A", &[]), "nothing")), given(1, &[]));
    assert_eq!(lab.group(), ("Stable", 1, 1));
}

#[test]
fn g14_4_a_known_expression_counts_in_the_join_itself() {
    let mut lab = Lab::new(2);
    lab.heard(with(join("A", &[]), "t")).expect("joined");
    assert_eq!(lab.beat("A", 1), given(2, &[0, 1]));
    assert_eq!(lab.heard(with(join("B", &[]), "t")), given(3, &[]));
}

#[test]
fn g14_5_names_and_expression_are_a_union_and_the_empty_one_drops_it() {
    let mut lab = Lab::new(1);
    let other = lab.harness.topic("u", 1);
    lab.send(ConsumerHeartbeat { regex: Some("u".into()), ..join("A", &["t"]) });
    let answer = lab.send(beat("A", 2));
    assert_eq!((answer.member_epoch, answer.assignment), (3, Some(vec![(lab.topic, vec![0]), (other, vec![0])])));
    let answer = lab.send(with(beat("A", 3), ""));
    assert_eq!((answer.member_epoch, answer.assignment), (3, Some(vec![(lab.topic, vec![0])])));
    assert_eq!(lab.owning("A", 3, &[0]), null(4));
}

#[test]
fn g14_6_new_topics_are_matched_ten_seconds_after_the_last_time() {
    let mut lab = Lab::new(1);
    lab.heard(with(join("A", &[]), "t.*")).expect("joined");
    assert_eq!(lab.beat("A", 1), given(2, &[0]));
    let new = lab.harness.topic("t2", 1);
    lab.harness.advance(9_990);
    assert_eq!(lab.beat("A", 2), null(2));
    lab.harness.advance(10);
    assert_eq!(lab.beat("A", 2), null(2), "the heartbeat that matches");
    assert_eq!(lab.send(beat("A", 2)).assignment, Some(vec![(lab.topic, vec![0]), (new, vec![0])]));
}

#[test]
fn g19_6_what_was_matched_is_remembered() {
    let mut lab = Lab::new(1);
    lab.heard(with(join("A", &[]), "t.*")).expect("joined");
    assert_eq!(lab.beat("A", 1), given(2, &[0]));
    lab.harness.crash();
    assert_eq!(lab.beat("A", 2), null(2));
    assert_eq!(lab.heard(with(join("B", &[]), "t.*")), given(3, &[]));
}
