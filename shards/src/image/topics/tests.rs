//! Tests of the decisions, named by the rule of the broker contract, and the properties that hold for all of them.

use std::collections::BTreeMap;

use super::*;
use crate::ids::{BrokerId, NodeId, TopicId};
use crate::image::{BrokerSettings, Change, Image};

mod alter;
mod properties;

const CLUSTER: &str = "ASNFZ4mrze_-3LqYdlQyEA";

/// Two shards as two nodes, topics `a` (2 partitions), `b.c` (1) and an internal one.
fn image() -> Image {
    let create = |id, name: &str, partitions| Change::CreateTopic {
        id: TopicId(id),
        name: name.to_owned(),
        partitions,
        placement: 0,
        overrides: BTreeMap::new(),
    };
    Image::new(CLUSTER, BrokerId(0), 2, BrokerSettings::default()).apply(&[
        create(1, "a", 2),
        create(2, "b.c", 1),
        create(3, "__consumer_offsets", 50),
    ])
}

fn nodes() -> Vec<NodeId> {
    vec![NodeId(0), NodeId(1)]
}

fn rules() -> CreateRules {
    CreateRules {
        num_partitions: 3,
        default_replication_factor: 1,
        replication_factor_max: 3,
        nodes: nodes(),
        answering: NodeId(0),
        timeout_ms: 1,
        validate_only: false,
    }
}

fn named(name: &str) -> NewTopic {
    NewTopic { name: name.to_owned(), partitions: 1, replication_factor: 1, ..NewTopic::default() }
}

fn create(topics: &[NewTopic], rules: &CreateRules) -> (Vec<Change>, BTreeMap<String, Result<Created, Refusal>>) {
    let mut next = 100;
    let (changes, answers) = decide_create(&image(), topics, rules, || {
        next += 1;
        TopicId(next)
    });
    assert!(changes.is_empty() || answers.iter().any(|a| a.result.is_ok()));
    (changes, answers.into_iter().map(|answer| (answer.name, answer.result)).collect())
}

fn code_of(topic: NewTopic) -> ErrorCode {
    let name = topic.name.clone();
    let (changes, answers) = create(&[topic], &rules());
    let code = answers[&name].as_ref().map_or_else(|refusal| refusal.code, |_| ErrorCode::None);
    assert_eq!(changes.is_empty(), !code.is_none(), "changes and answers agree");
    code
}

fn code<T>(result: &Result<T, Refusal>) -> ErrorCode {
    result.as_ref().map_or_else(|refusal| refusal.code, |_| ErrorCode::None)
}

#[test]
fn k19_1_a_name_twice_gets_one_answer_and_the_others_go_on() {
    let (changes, answers) = create(&[named("x"), named("y"), named("x")], &rules());
    assert_eq!(answers.len(), 2);
    assert_eq!(code(&answers["x"]), ErrorCode::InvalidRequest);
    assert_eq!(code(&answers["y"]), ErrorCode::None);
    assert_eq!(changes.len(), 1);
}

#[test]
fn k19_2_the_metadata_log_cannot_be_created_whatever_the_timeout() {
    let rules = CreateRules { timeout_ms: 0, ..rules() };
    let (_, answers) = create(&[named("__cluster_metadata"), named("x")], &rules);
    assert_eq!(code(&answers["__cluster_metadata"]), ErrorCode::InvalidRequest);
    assert_eq!(code(&answers["x"]), ErrorCode::RequestTimedOut);
}

#[test]
fn k19_3_a_timeout_that_is_over_creates_nothing() {
    for timeout_ms in [0, -1, i32::MIN] {
        let (changes, answers) = create(&[named("x")], &CreateRules { timeout_ms, ..rules() });
        assert_eq!((changes.len(), code(&answers["x"])), (0, ErrorCode::RequestTimedOut));
    }
}

#[test]
fn k19_4_more_than_10000_partitions_in_one_request_are_a_policy_violation() {
    let big = |name: &str, partitions| NewTopic { partitions, ..named(name) };
    let (_, answers) = create(&[big("x", 9_999), big("y", 1)], &rules());
    assert!(answers.values().all(Result::is_ok), "10000 together pass");
    let (changes, answers) = create(&[big("x", 9_999), big("y", 1), big("a b", 1)], &rules());
    assert!(changes.is_empty());
    assert!(answers.values().all(|result| code(result) == ErrorCode::PolicyViolation), "before the name is looked at");
    assert_eq!(code_of(big("x", i32::MAX)), ErrorCode::PolicyViolation);
}

#[test]
fn k19_5_to_7_names() {
    assert_eq!(code_of(named("a b")), ErrorCode::InvalidTopicException);
    assert_eq!(code_of(named("")), ErrorCode::InvalidTopicException);
    assert_eq!(code_of(named("b_c")), ErrorCode::InvalidTopicException, "collides with b.c");
    assert_eq!(code_of(named("b.c")), ErrorCode::TopicAlreadyExists);
    assert_eq!(code_of(named("A")), ErrorCode::None, "upper and lower case differ");
    let (changes, answers) = create(&[named("n.1"), named("n_1")], &rules());
    assert_eq!((changes.len(), code(&answers["n.1"])), (1, ErrorCode::None));
    assert_eq!(code(&answers["n_1"]), ErrorCode::InvalidTopicException, "the second of two that collide");
}

#[test]
fn k19_8_settings_are_checked_before_counts() {
    let with = |configs: &[(&str, Option<&str>)]| NewTopic {
        partitions: 0,
        configs: configs.iter().map(|(n, v)| ((*n).to_owned(), v.map(str::to_owned))).collect(),
        ..named("x")
    };
    for bad in [
        with(&[("retention.ms", None)]),
        with(&[("message.format.version", Some("3.0"))]),
        with(&[("retention.ms", Some("soon"))]),
        with(&[("cleanup.policy", Some("compacted"))]),
        with(&[("min.compaction.lag.ms", Some("10")), ("max.compaction.lag.ms", Some("9"))]),
        with(&[("retention.ms", Some("1")), ("retention.ms", Some("x"))]),
    ] {
        assert_eq!(code_of(bad), ErrorCode::InvalidConfig);
    }
    let last_counts = with(&[("retention.ms", Some("x")), ("retention.ms", Some(" 1 "))]);
    assert_eq!(code_of(last_counts.clone()), ErrorCode::InvalidPartitions, "settings are fine, the count is not");
    let (changes, _) = create(&[NewTopic { partitions: 1, ..last_counts }], &rules());
    let Change::CreateTopic { overrides, .. } = &changes[0] else { panic!("a topic is created") };
    assert_eq!(overrides.get("retention.ms").map(String::as_str), Some("1"), "trimmed");
}

fn assigned(lists: &[(i32, &[i32])]) -> NewTopic {
    let assignments = lists.iter().map(|(i, list)| (*i, list.iter().copied().map(NodeId).collect())).collect();
    NewTopic { partitions: -1, replication_factor: -1, assignments, ..named("x") }
}

#[test]
fn k19_9_an_assignment_excludes_counts() {
    assert_eq!(code_of(NewTopic { partitions: 1, ..assigned(&[(0, &[0])]) }), ErrorCode::InvalidRequest);
    assert_eq!(code_of(NewTopic { replication_factor: 1, ..assigned(&[(0, &[0])]) }), ErrorCode::InvalidRequest);
}

#[test]
fn k19_10_assignments_must_be_whole_and_name_real_nodes() {
    for bad in [
        assigned(&[(0, &[0]), (0, &[1])]),
        assigned(&[(0, &[])]),
        assigned(&[(0, &[0, 0])]),
        assigned(&[(0, &[2])]),
        assigned(&[(1, &[0])]),
        assigned(&[(-1, &[0]), (0, &[1])]),
        assigned(&[(0, &[0]), (1, &[1, 0])]),
        assigned(&[(0, &[0]), (1, &[0])]),
    ] {
        assert_eq!(code_of(bad.clone()), ErrorCode::InvalidReplicaAssignment, "{bad:?}");
    }
}

#[test]
fn k19_10_an_assignment_in_node_order_is_kept() {
    let (changes, answers) = create(&[assigned(&[(1, &[0, 1]), (0, &[1, 0])])], &rules());
    assert_eq!(answers["x"].as_ref().map(|created| created.partitions), Ok(2));
    assert!(matches!(&changes[0], Change::CreateTopic { placement: 1, partitions: 2, .. }));
}

#[test]
fn k19_11_to_13_counts() {
    assert_eq!(code_of(NewTopic { replication_factor: 0, ..named("x") }), ErrorCode::InvalidReplicationFactor);
    assert_eq!(code_of(NewTopic { replication_factor: -2, ..named("x") }), ErrorCode::InvalidReplicationFactor);
    let both = NewTopic { partitions: 0, replication_factor: 9, ..named("x") };
    assert_eq!(code_of(both), ErrorCode::InvalidPartitions, "K19.12 before K19.13");
    assert_eq!(code_of(NewTopic { partitions: -2, ..named("x") }), ErrorCode::InvalidPartitions);
    assert_eq!(code_of(NewTopic { replication_factor: 4, ..named("x") }), ErrorCode::InvalidReplicationFactor);
    assert_eq!(code_of(NewTopic { replication_factor: 3, ..named("x") }), ErrorCode::None, "accepted and told as 1");
}

#[test]
fn k19_14_minus_one_means_the_defaults() {
    let (_, answers) = create(&[NewTopic { partitions: -1, replication_factor: -1, ..named("x") }], &rules());
    let created = answers["x"].as_ref().expect("created");
    assert_eq!((created.partitions, created.settings.len()), (3, 33));
    assert!(created.settings.is_sorted_by(|a, b| a.name < b.name), "K19.15");
}

#[test]
fn k19_16_validate_only_answers_the_same_and_changes_nothing() {
    let topics = [named("x"), named("a"), named("x.y"), named("x_y")];
    let (_, real) = create(&topics, &rules());
    let (changes, checked) = create(&topics, &CreateRules { validate_only: true, ..rules() });
    assert!(changes.is_empty());
    assert_eq!(real, checked);
}

#[test]
fn new_topics_go_to_the_shard_with_the_fewest_partitions() {
    // Shard 0 has one partition of `a`, `b.c` and 25 of the internal topic; shard 1 has one less.
    let (changes, _) = create(&[named("x"), named("y"), named("z")], &rules());
    let placements: Vec<u32> = changes
        .iter()
        .map(|change| match change {
            Change::CreateTopic { placement, .. } => *placement,
            _ => panic!("topics are created"),
        })
        .collect();
    assert_eq!(placements, [1, 0, 1]);
}

fn delete(targets: &[(Option<&str>, u128)], enabled: bool, timeout_ms: i32) -> (Vec<Change>, Vec<DeleteAnswer>) {
    let targets: Vec<DeleteTarget> =
        targets.iter().map(|(name, id)| DeleteTarget { name: name.map(str::to_owned), id: TopicId(*id) }).collect();
    decide_delete(&image(), &targets, DeleteRules { enabled, timeout_ms })
}

fn delete_codes(targets: &[(Option<&str>, u128)]) -> Vec<ErrorCode> {
    delete(targets, true, 1).1.iter().map(|answer| code(&answer.result)).collect()
}

#[test]
fn k20_1_a_topic_is_named_in_one_way() {
    assert_eq!(delete_codes(&[(Some("a"), 1), (None, 0)]), [ErrorCode::InvalidRequest; 2]);
}

#[test]
fn k20_2_a_topic_named_twice_is_answered_once_and_stays() {
    for twice in [[(Some("a"), 0), (Some("a"), 0)], [(None, 1), (None, 1)], [(Some("a"), 0), (None, 1)]] {
        let (changes, answers) = delete(&twice, true, 1);
        assert!(changes.is_empty());
        assert_eq!((answers.len(), code(&answers[0].result)), (1, ErrorCode::InvalidRequest));
        // The answer has the name if the request had it, and the id if the request had that.
        let asked = (twice.iter().find_map(|(name, _)| *name), twice.iter().map(|(_, id)| *id).max());
        assert_eq!((answers[0].name.as_deref(), Some(answers[0].id.0)), asked);
    }
    assert_eq!(delete_codes(&[(Some("no"), 0), (Some("no"), 0)]), [ErrorCode::InvalidRequest]);
}

#[test]
fn k20_3_a_timeout_that_is_over_deletes_nothing() {
    let (changes, answers) = delete(&[(Some("a"), 0), (Some("no"), 0)], true, 0);
    assert!(changes.is_empty());
    assert!(answers.iter().all(|answer| code(&answer.result) == ErrorCode::RequestTimedOut));
    assert!(answers.iter().all(|answer| answer.name.is_some() && answer.id == TopicId::ZERO), "as asked");
    let (_, answers) = delete(&[(None, 1)], true, 0);
    assert_eq!((answers[0].name.as_deref(), answers[0].id), (None, TopicId(1)));
}

#[test]
fn k20_4_unknown_topics() {
    let (_, answers) = delete(&[(None, 99), (Some("no such"), 0)], true, 1);
    let by_code: BTreeMap<ErrorCode, &DeleteAnswer> = answers.iter().map(|a| (code(&a.result), a)).collect();
    let id = by_code[&ErrorCode::UnknownTopicId];
    assert_eq!((id.name.as_deref(), id.id), (None, TopicId(99)));
    assert_eq!(by_code[&ErrorCode::UnknownTopicOrPartition].name.as_deref(), Some("no such"));
}

#[test]
fn k20_5_topics_go_by_name_and_by_id_internal_ones_too() {
    let (changes, answers) = delete(&[(Some("a"), 0), (None, 3)], true, 1);
    assert_eq!(changes, [Change::DeleteTopic { id: TopicId(1) }, Change::DeleteTopic { id: TopicId(3) }]);
    assert!(answers.iter().all(|answer| answer.result.is_ok() && answer.name.is_some() && answer.id != TopicId::ZERO));
}

#[test]
fn delete_topic_enable_false_keeps_every_topic() {
    let (changes, answers) = delete(&[(Some("a"), 0)], false, 1);
    assert!(changes.is_empty());
    assert_eq!(code(&answers[0].result), ErrorCode::TopicDeletionDisabled);
}

/// Name, count, assignments.
type GrowRow<'a> = (&'a str, i32, Option<&'a [&'a [i32]]>);

fn grow(requests: &[GrowRow<'_>], validate_only: bool, timeout_ms: i32) -> (usize, Vec<ErrorCode>) {
    let lists = |lists: &&[&[i32]]| lists.iter().map(|list| list.iter().copied().map(NodeId).collect()).collect();
    let requests: Vec<GrowRequest> = requests
        .iter()
        .map(|(name, count, assignments)| GrowRequest {
            name: (*name).to_owned(),
            count: *count,
            assignments: assignments.as_ref().map(lists),
        })
        .collect();
    let rules = GrowRules { nodes: nodes(), replication_factor_max: 3, timeout_ms, validate_only };
    let (changes, answers) = decide_create_partitions(&image(), &requests, &rules);
    (changes.len(), answers.iter().map(|answer| code(&answer.result)).collect())
}

#[test]
fn k37_1_to_4() {
    assert_eq!(grow(&[("a", 3, None), ("a", 4, None)], false, 1), (0, vec![ErrorCode::InvalidRequest]));
    assert_eq!(grow(&[("a", 3, None)], false, 0), (0, vec![ErrorCode::RequestTimedOut]));
    let unknown = vec![ErrorCode::UnknownTopicOrPartition; 2];
    assert_eq!(grow(&[("no", 3, None), ("a b", 3, None)], false, 1), (0, unknown));
    for count in [2, 1, 0, -1, i32::MIN] {
        assert_eq!(grow(&[("a", count, None)], false, 1), (0, vec![ErrorCode::InvalidPartitions]));
    }
}

#[test]
fn k37_5_assignments_of_the_new_partitions() {
    for bad in [&[][..], &[&[0][..]], &[&[0], &[0]], &[&[1], &[0]], &[&[0], &[]], &[&[0], &[1, 0]], &[&[0], &[7]]] {
        let answer = grow(&[("a", 4, Some(bad))], false, 1);
        assert_eq!(answer, (0, vec![ErrorCode::InvalidReplicaAssignment]), "{bad:?}");
    }
    assert_eq!(grow(&[("a", 4, Some(&[&[0], &[1]]))], false, 1), (1, vec![ErrorCode::None]));
}

#[test]
fn k37_6_and_7_growth_has_a_limit_and_internal_topics_keep_their_size() {
    assert_eq!(grow(&[("a", 10_000, None)], false, 1), (1, vec![ErrorCode::None]));
    for count in [10_001, i32::MAX] {
        assert_eq!(grow(&[("a", count, None)], false, 1), (0, vec![ErrorCode::InvalidPartitions]));
    }
    assert_eq!(grow(&[("__consumer_offsets", 60, None)], false, 1), (0, vec![ErrorCode::InvalidRequest]));
    assert_eq!(grow(&[("a", 3, None)], true, 1), (0, vec![ErrorCode::None]), "validate_only");
}
