use std::collections::BTreeSet;

use super::*;

#[test]
fn names_are_sorted_and_their_environment_names_differ() {
    assert!(TABLE.is_sorted_by(|a, b| a.name < b.name), "sorted and without duplicates");
    let env: BTreeSet<_> = TABLE.iter().map(Row::env_name).collect();
    assert_eq!(env.len(), TABLE.len());
}

#[test]
fn only_kafkas_own_name_begins_another() {
    let pairs: Vec<_> = TABLE
        .iter()
        .flat_map(|a| TABLE.iter().map(move |b| (a.name, b.name)))
        .filter(|(a, b)| b.strip_prefix(a).is_some_and(|rest| rest.starts_with('.')))
        .collect();
    assert_eq!(pairs, [("max.connections", "max.connections.per.ip")], "TOML needs quotes for these");
}

#[test]
fn every_sentence_ends_and_says_something() {
    for row in TABLE {
        assert!(row.doc.ends_with('.') && row.doc.len() > 10, "{}: {:?}", row.name, row.doc);
    }
}

#[test]
fn a_near_name_is_suggested_and_a_stranger_is_not() {
    assert_eq!(nearest("log.retention.hour"), Some("log.retention.hours"));
    assert_eq!(nearest("num_partitions"), Some("num.partitions"));
    assert_eq!(nearest("retention.bytes"), Some("log.retention.bytes"), "a topic's name for it");
    assert_eq!(nearest("zookeeper.connect"), None);
    assert_eq!(nearest("x"), None);
}
