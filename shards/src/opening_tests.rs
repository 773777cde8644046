//! Every partition is handed out once, what was asked for first, and the answer is the state's.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::ids::TopicId;

fn key(index: i32) -> PartitionKey {
    PartitionKey { topic: TopicId(1), index }
}

fn expecting(count: i32) -> Opening {
    let mut opening = Opening::default();
    (0..count).for_each(|index| opening.expect(key(index)));
    opening
}

#[test]
fn what_somebody_asked_for_is_opened_before_the_others() {
    let mut opening = expecting(5);
    assert_eq!(opening.take(), Some(key(0)));
    assert_eq!(opening.code(&key(3)), ErrorCode::NotLeaderOrFollower);
    assert_eq!(opening.code(&key(3)), ErrorCode::NotLeaderOrFollower);
    assert_eq!([opening.take(), opening.take()], [Some(key(3)), Some(key(1))]);
}

#[test]
fn one_that_cannot_be_opened_is_told_apart_from_one_that_is_not_there() {
    let mut opening = expecting(2);
    opening.take();
    assert!(opening.failed(key(0)));
    assert_eq!(opening.code(&key(0)), ErrorCode::KafkaStorageError);
    assert_eq!(opening.code(&key(7)), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(opening.left(), 1);
}

#[test]
fn one_that_is_deleted_while_it_is_in_work_does_not_come_back() {
    let mut opening = expecting(2);
    let (opened, failed) = (opening.take().unwrap(), opening.take().unwrap());
    opening.forget(&opened);
    opening.forget(&failed);
    assert!(!opening.opened(&opened) && !opening.failed(failed));
    assert_eq!(opening.left(), 0);
    assert_eq!(opening.code(&failed), ErrorCode::UnknownTopicOrPartition);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take,
    Ask(i32),
    Opened(i32),
    Failed(i32),
    Forget(i32),
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0..6i32;
    prop_oneof![
        3 => Just(Step::Take),
        2 => index.clone().prop_map(Step::Ask),
        2 => index.clone().prop_map(Step::Opened),
        1 => index.clone().prop_map(Step::Failed),
        1 => index.prop_map(Step::Forget),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { asked: bool },
    InWork,
    Failed,
}

proptest! {
    #[test]
    fn any_order_of_steps_gives_what_a_plain_table_gives(steps in proptest::collection::vec(step(), 0..60)) {
        let mut opening = expecting(6);
        let mut model: BTreeMap<i32, State> = (0..6).map(|index| (index, State::Waiting { asked: false })).collect();
        for step in steps {
            match step {
                Step::Take => {
                    let first = |asked| {
                        let mut found = model.iter().filter(|(_, state)| **state == State::Waiting { asked });
                        found.next().map(|(index, _)| *index)
                    };
                    let next = first(true).or_else(|| first(false));
                    prop_assert_eq!(opening.take(), next.map(key));
                    model.extend(next.map(|index| (index, State::InWork)));
                }
                Step::Ask(index) => {
                    let code = match model.get(&index) {
                        Some(State::Waiting { .. } | State::InWork) => ErrorCode::NotLeaderOrFollower,
                        Some(State::Failed) => ErrorCode::KafkaStorageError,
                        None => ErrorCode::UnknownTopicOrPartition,
                    };
                    prop_assert_eq!(opening.code(&key(index)), code);
                    if let Some(State::Waiting { asked }) = model.get_mut(&index) {
                        *asked = true;
                    }
                }
                Step::Opened(index) => {
                    let is_ours = model.get(&index) == Some(&State::InWork);
                    prop_assert_eq!(opening.opened(&key(index)), is_ours);
                    if is_ours {
                        model.remove(&index);
                    }
                }
                Step::Failed(index) => {
                    let is_ours = model.get(&index) == Some(&State::InWork);
                    prop_assert_eq!(opening.failed(key(index)), is_ours);
                    if is_ours {
                        model.insert(index, State::Failed);
                    }
                }
                Step::Forget(index) => {
                    opening.forget(&key(index));
                    model.remove(&index);
                }
            }
            prop_assert_eq!(opening.left(), model.values().filter(|state| **state != State::Failed).count());
            (0..6).for_each(|index| assert_eq!(opening.knows(&key(index)), model.contains_key(&index)));
        }
    }
}
