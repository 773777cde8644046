//! What holds for every request: no decision panics, refused entries change nothing, and every image survives its file.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::image::TOPIC_SETTINGS;

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::sample::select(texts).prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => one_of(&["a", "b.c", "b_c", "n1", "n.1", "n_1", "__consumer_offsets"]),
        2 => one_of(&["", ".", "a b", "__cluster_metadata"]),
        1 => ".{0,300}",
    ]
}

fn setting() -> impl Strategy<Value = (String, Option<String>)> {
    let known = proptest::sample::select(TOPIC_SETTINGS.iter().map(|s| s.name.to_owned()).collect::<Vec<_>>());
    let value = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        (0i64..100).prop_map(|number| number.to_string()),
        one_of(&["true", "delete", "compact", "", " 5 ", "0:1", "CreateTime"]),
        ".{0,10}",
    ];
    (prop_oneof![9 => known, 1 => ".{0,10}"], option::weighted(0.9, value))
}

fn count() -> impl Strategy<Value = i32> {
    prop_oneof![6 => -3i32..20, 1 => any::<i32>()]
}

fn node() -> impl Strategy<Value = NodeId> {
    (-1i32..4).prop_map(NodeId)
}

fn new_topic() -> impl Strategy<Value = NewTopic> {
    let assignments = prop_oneof![4 => Just(vec![]), 1 => vec((-1i32..4, vec(node(), 0..3)), 0..4)];
    (name(), count(), -2i16..5, assignments, vec(setting(), 0..3)).prop_map(
        |(name, partitions, replication_factor, assignments, configs)| {
            let given = assignments.is_empty();
            let (partitions, replication_factor) = if given { (partitions, replication_factor) } else { (-1, -1) };
            NewTopic { name, partitions, replication_factor, assignments, configs }
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Create(Vec<NewTopic>, i32, bool),
    Delete(Vec<DeleteTarget>, i32),
    Grow(Vec<GrowRequest>, bool),
    Alter(Vec<AlterResource>, AlterMode, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let target = (option::of(name()), prop_oneof![Just(0u128), 0u128..120])
        .prop_map(|(name, id)| DeleteTarget { name, id: TopicId(id) });
    let grow = (name(), count(), option::weighted(0.2, vec(vec(node(), 0..3), 0..4)))
        .prop_map(|(name, count, assignments)| GrowRequest { name, count, assignments });
    let broker =
        proptest::sample::select(vec!["log.retention.ms", "max.connections", "log.cleanup.policy", "broker.id"]);
    let entry = (setting(), -1i8..5, option::weighted(0.3, broker)).prop_map(|((name, value), operation, broker)| {
        AlterEntry { name: broker.map_or(name, str::to_owned), operation, value }
    });
    let who = prop_oneof![name(), Just(String::new()), Just("1".to_owned()), Just("0".to_owned())];
    let resource = (proptest::sample::select(vec![2i8, 2, 2, 4, 4, 8, 16, 32, 1]), who, vec(entry, 0..3))
        .prop_map(|(kind, name, entries)| AlterResource { kind, name, entries });
    let mode = proptest::sample::select(vec![AlterMode::Incremental, AlterMode::Replace]);
    prop_oneof![
        (vec(new_topic(), 0..4), -1i32..5, any::<bool>()).prop_map(|(t, timeout, only)| Step::Create(t, timeout, only)),
        (vec(target, 0..3), -1i32..5).prop_map(|(t, timeout)| Step::Delete(t, timeout)),
        (vec(grow, 0..3), any::<bool>()).prop_map(|(g, only)| Step::Grow(g, only)),
        (vec(resource, 0..3), mode, any::<bool>()).prop_map(|(r, mode, only)| Step::Alter(r, mode, only)),
    ]
}

/// The changes of a step and how many of its answers are successes.
fn decide(image: &Image, step: &Step, ids: &mut u128) -> (Vec<Change>, usize) {
    match step {
        Step::Create(topics, timeout_ms, validate_only) => {
            let rules = CreateRules { timeout_ms: *timeout_ms, validate_only: *validate_only, ..rules() };
            let (changes, answers) = decide_create(image, topics, &rules, || {
                *ids += 1;
                TopicId(*ids)
            });
            (changes, answers.iter().filter(|answer| answer.result.is_ok()).count())
        }
        Step::Delete(targets, timeout_ms) => {
            let (changes, answers) =
                decide_delete(image, targets, DeleteRules { enabled: true, timeout_ms: *timeout_ms });
            (changes, answers.iter().filter(|answer| answer.result.is_ok()).count())
        }
        Step::Grow(requests, validate_only) => {
            let rules =
                GrowRules { nodes: nodes(), replication_factor_max: 3, timeout_ms: 1, validate_only: *validate_only };
            let (changes, answers) = decide_create_partitions(image, requests, &rules);
            (changes, answers.iter().filter(|answer| answer.result.is_ok()).count())
        }
        Step::Alter(resources, mode, validate_only) => {
            let rules = AlterRules { mode: *mode, node: NodeId(1), validate_only: *validate_only };
            let (changes, answers) = decide_alter(image, resources, rules);
            (changes, answers.iter().filter(|answer| answer.result.is_ok()).count())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_of_decisions_applies_and_survives_its_file(steps in vec(step(), 1..12)) {
        let mut image = image();
        let mut ids = 100;
        for step in &steps {
            let (changes, successes) = decide(&image, step, &mut ids);
            prop_assert!(changes.len() <= successes, "a refused entry changes something: {changes:?}");
            let next = image.apply(&changes);
            prop_assert_eq!(next.version, image.version + u64::from(!changes.is_empty()));
            let read = Image::decode(&next.encode(), 2, BrokerSettings::default());
            prop_assert_eq!(read.as_ref(), Ok(&next));
            image = next;
        }
    }

    #[test]
    fn stored_bytes_of_any_kind_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(Image::decode(&bytes, 1, BrokerSettings::default()).is_err());
    }
}
