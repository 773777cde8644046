//! K33 and K44.

use super::*;

/// Kind, name, entries of (name, operation, value).
type Row<'a> = (i8, &'a str, &'a [(&'a str, i8, Option<&'a str>)]);

fn alter_at(image: &Image, rows: &[Row<'_>], mode: AlterMode, validate_only: bool) -> (Vec<Change>, Vec<ErrorCode>) {
    let entry = |(name, operation, value): &(&str, i8, Option<&str>)| AlterEntry {
        name: (*name).to_owned(),
        operation: *operation,
        value: value.map(str::to_owned),
    };
    let resources: Vec<AlterResource> = rows
        .iter()
        .map(|(kind, name, entries)| AlterResource {
            kind: *kind,
            name: (*name).to_owned(),
            entries: entries.iter().map(entry).collect(),
        })
        .collect();
    let (changes, answers) = decide_alter(image, &resources, AlterRules { mode, node: NodeId(1), validate_only });
    (changes, answers.iter().map(|answer| code(&answer.result)).collect())
}

fn alter(rows: &[Row<'_>]) -> (Vec<Change>, Vec<ErrorCode>) {
    alter_at(&image(), rows, AlterMode::Incremental, false)
}

fn replace(rows: &[Row<'_>]) -> (Vec<Change>, Vec<ErrorCode>) {
    alter_at(&image(), rows, AlterMode::Replace, false)
}

fn refused(rows: &[Row<'_>]) -> ErrorCode {
    let (changes, codes) = alter(rows);
    assert!(changes.is_empty(), "{rows:?}");
    codes[0]
}

const SET_MS: &[(&str, i8, Option<&str>)] = &[("retention.ms", 0, Some("5"))];

#[test]
fn k44_1_a_resource_twice_is_refused_each_time_and_others_go_on() {
    let rows: &[Row<'_>] = &[(2, "a", SET_MS), (2, "b.c", SET_MS), (2, "a", SET_MS)];
    for (changes, codes) in [alter(rows), replace(rows)] {
        assert_eq!(codes, [ErrorCode::InvalidRequest, ErrorCode::None, ErrorCode::InvalidRequest]);
        assert_eq!(changes.len(), 1);
    }
}

#[test]
fn k44_2_unknown_types() {
    for kind in [0, 1, 3, 5, 64, -1] {
        assert_eq!(refused(&[(kind, "a", &[])]), ErrorCode::InvalidRequest);
    }
    for kind in [8, 16] {
        assert_eq!(refused(&[(kind, "1", SET_MS)]), ErrorCode::InvalidRequest, "no such settings here (K32.11)");
    }
}

#[test]
fn k44_3_and_4_entries_that_contradict_themselves() {
    let twice = [("retention.ms", 0, Some("5")), ("retention.ms", 1, None)];
    assert_eq!(refused(&[(2, "a", &twice)]), ErrorCode::InvalidRequest);
    for operation in [0, 2, 3, 4, -1] {
        assert_eq!(refused(&[(2, "a", &[("cleanup.policy", operation, None)])]), ErrorCode::InvalidRequest);
    }
    assert_eq!(refused(&[(2, "a", &[("retention.ms", 9, Some("1"))])]), ErrorCode::InvalidRequest);
}

#[test]
fn k44_5_only_lists_grow_and_shrink() {
    for name in ["retention.ms", "no.such"] {
        for operation in [2, 3] {
            assert_eq!(refused(&[(2, "a", &[(name, operation, Some("1"))])]), ErrorCode::InvalidConfig);
        }
    }
}

#[test]
fn k44_6_to_8_topics_and_their_values() {
    assert_eq!(refused(&[(2, "", SET_MS)]), ErrorCode::InvalidRequest);
    assert_eq!(refused(&[(2, "a b", SET_MS)]), ErrorCode::InvalidTopicException);
    assert_eq!(refused(&[(2, "no", SET_MS)]), ErrorCode::UnknownTopicOrPartition);
    let bad = [("retention.ms", 0, Some("soon"))];
    assert_eq!(refused(&[(2, "no", &bad)]), ErrorCode::InvalidConfig, "a bad setting is told first");
    assert_eq!(refused(&[(2, "a", &[("no.such", 0, Some("1"))])]), ErrorCode::InvalidConfig, "KT.34");
    let crossed = [("min.compaction.lag.ms", 0, Some("9")), ("max.compaction.lag.ms", 0, Some("8"))];
    assert_eq!(refused(&[(2, "a", &crossed)]), ErrorCode::InvalidConfig);
    let half_bad = [("retention.ms", 0, Some("5")), ("segment.ms", 0, Some("0"))];
    assert_eq!(refused(&[(2, "a", &half_bad)]), ErrorCode::InvalidConfig, "one bad entry changes nothing");
}

#[test]
fn k44_9_to_11_brokers() {
    let set = |name| [(name, 0, Some("7"))];
    for other in ["0", "2", "-1", "x", " 1"] {
        assert_eq!(refused(&[(4, other, &set("log.retention.ms"))]), ErrorCode::InvalidRequest);
    }
    assert_eq!(refused(&[(4, "1", &set("broker.id"))]), ErrorCode::InvalidRequest, "read-only");
    assert_eq!(refused(&[(4, "", &[("message.max.bytes", 0, Some("x"))])]), ErrorCode::InvalidRequest, "bad value");
    assert_eq!(refused(&[(4, "", &set("no.such"))]), ErrorCode::InvalidConfig);
    let (changes, codes) = alter(&[(4, "", &set("log.retention.ms")), (4, "1", &set("message.max.bytes"))]);
    assert_eq!(codes, [ErrorCode::None; 2]);
    let next = image().apply(&changes);
    let a = next.topic("a").expect("there");
    assert_eq!(a.config.retention_ms, 7);
    assert_eq!(next.config_at(a, NodeId(1)).max_message_bytes, 7);
    assert_eq!(next.config_at(a, NodeId(0)).max_message_bytes, 1_048_588);
}

#[test]
fn k44_10_a_default_may_not_contradict_the_settings_of_a_topic() {
    let lag = [("max.compaction.lag.ms", 0, Some("5"))];
    let image = image().apply(&alter(&[(2, "a", &lag)]).0);
    let rows: &[Row<'_>] = &[(4, "", &[("log.cleaner.min.compaction.lag.ms", 0, Some("6"))])];
    let (changes, codes) = alter_at(&image, rows, AlterMode::Incremental, false);
    assert_eq!((changes.len(), codes), (0, vec![ErrorCode::InvalidRequest]));
}

#[test]
fn k44_15_removal_of_what_is_not_there_succeeds() {
    for name in ["retention.ms", "no.such"] {
        assert_eq!(alter(&[(2, "a", &[(name, 1, Some("ignored"))])]), (vec![], vec![ErrorCode::None]));
    }
}

#[test]
fn k44_15_a_list_that_stays_the_same_is_the_topics_own_from_then_on() {
    // SUBTRACT of what is absent, APPEND of what is present.
    for (operation, value) in [(3, "compact"), (2, "delete")] {
        let (changes, codes) = alter(&[(2, "a", &[("cleanup.policy", operation, Some(value))])]);
        assert_eq!(codes, [ErrorCode::None]);
        let next = image().apply(&changes);
        let own = next.topic("a").and_then(|topic| topic.overrides.get("cleanup.policy").cloned());
        assert_eq!(own.as_deref(), Some("delete"));
    }
}

#[test]
fn k44_15_lists_start_from_the_value_in_force_and_may_become_empty() {
    let (changes, _) = alter(&[(2, "a", &[("cleanup.policy", 2, Some("compact"))])]);
    let next = image().apply(&changes);
    let topic = next.topic("a").expect("there");
    assert_eq!(topic.overrides.get("cleanup.policy").map(String::as_str), Some("delete,compact"));
    assert!(topic.config.cleanup_policy.delete && topic.config.cleanup_policy.compact);
    let (changes, _) = alter(&[(2, "a", &[("cleanup.policy", 3, Some("delete"))])]);
    let next = image().apply(&changes);
    let topic = next.topic("a").expect("there");
    assert_eq!(topic.overrides.get("cleanup.policy").map(String::as_str), Some(""));
    assert!(!topic.config.cleanup_policy.delete && !topic.config.cleanup_policy.compact);
    let throttled = [("leader.replication.throttled.replicas", 2, Some("0:1,1:1"))];
    let (changes, codes) = alter(&[(2, "a", &throttled)]);
    assert_eq!((changes.len(), codes[0]), (1, ErrorCode::None));
}

#[test]
fn k44_16_validate_only_and_nothing_asked() {
    let image = image();
    let (changes, codes) = alter_at(&image, &[(2, "a", SET_MS)], AlterMode::Incremental, true);
    assert_eq!((changes, codes), (vec![], vec![ErrorCode::None]));
    assert_eq!(alter(&[(2, "a", &[])]), (vec![], vec![ErrorCode::None]));
    assert_eq!(alter(&[]), (vec![], vec![]));
    assert_eq!(alter(&[(2, "__consumer_offsets", SET_MS)]).1, [ErrorCode::None], "internal topics too");
}

#[test]
fn k33_1_what_is_not_named_goes_back_to_its_default() {
    let two = [("retention.ms", 0, Some("5")), ("segment.ms", 0, Some("6"))];
    let image = image().apply(&replace(&[(2, "a", &two)]).0);
    assert_eq!(image.topic("a").map(|topic| topic.overrides.len()), Some(2));
    let (changes, _) = alter_at(&image, &[(2, "a", SET_MS)], AlterMode::Replace, false);
    let next = image.apply(&changes);
    assert_eq!(next.topic("a").map(|topic| topic.config.segment_ms), Some(604_800_000));
    let (changes, _) = alter_at(&next, &[(2, "a", &[])], AlterMode::Replace, false);
    assert!(next.apply(&changes).topic("a").is_some_and(|topic| topic.overrides.is_empty()));
}

#[test]
fn k33_1_nulls_and_unknown_things() {
    let codes = |rows: &[Row<'_>]| replace(rows).1[0];
    assert_eq!(codes(&[(2, "a", &[("retention.ms", 0, None)])]), ErrorCode::InvalidRequest);
    assert_eq!(codes(&[(8, "1", &[])]), ErrorCode::InvalidRequest);
    assert_eq!(codes(&[(2, "no", SET_MS)]), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(codes(&[(2, "a", &[("no.such", 0, Some("1"))])]), ErrorCode::InvalidConfig);
}

#[test]
fn g20_4_and_k44_14_a_group_gets_settings_of_its_own_whether_or_not_it_is_there() {
    const NAME: &str = "consumer.session.timeout.ms";
    let (changes, codes) = alter(&[(32, "g", &[(NAME, 0, Some("50000"))])]);
    assert_eq!(codes, [ErrorCode::None]);
    let image = image().apply(&changes);
    assert_eq!(image.group_setting("g", NAME), Some(50_000));
    assert_eq!(image.group_setting("h", NAME), None);
    let (again, codes) = alter_at(&image, &[(32, "g", &[(NAME, 1, None)])], AlterMode::Incremental, false);
    assert_eq!(codes, [ErrorCode::None]);
    assert!(image.apply(&again).groups.is_empty(), "a group without settings of its own leaves nothing");
    for (name, entries, code) in [
        ("g", (NAME, 0, Some("1")), ErrorCode::InvalidConfig),
        ("g", ("retention.ms", 0, Some("1")), ErrorCode::InvalidConfig),
        ("g", (NAME, 2, Some("1")), ErrorCode::InvalidConfig),
        ("", (NAME, 0, Some("50000")), ErrorCode::InvalidRequest),
    ] {
        assert_eq!(refused(&[(32, name, &[entries])]), code, "{name} {entries:?}");
    }
}

#[test]
fn g20_3_the_assignment_interval_changes_at_run_time_within_its_bounds() {
    const NAME: &str = "group.consumer.assignment.interval.ms";
    assert_eq!(alter(&[(4, "", &[(NAME, 0, Some("15000"))])]).1, [ErrorCode::None]);
    assert_eq!(refused(&[(4, "", &[(NAME, 0, Some("15001"))])]), ErrorCode::InvalidRequest);
    assert_eq!(refused(&[(4, "", &[("group.max.size", 0, Some("5"))])]), ErrorCode::InvalidRequest);
}
