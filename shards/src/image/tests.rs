//! Tests of the image itself: lookups, placement, steps and the durable form.

use super::persist::DecodeError;
use super::*;

const CLUSTER: &str = "ASNFZ4mrze_-3LqYdlQyEA";

fn create(id: u128, name: &str, partitions: i32, placement: u32) -> Change {
    Change::CreateTopic { id: TopicId(id), name: name.to_owned(), partitions, placement, overrides: BTreeMap::new() }
}

fn sample(shards: u16) -> Image {
    let overrides = BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())]);
    Image::new(CLUSTER, BrokerId(3), shards, BrokerSettings::default()).apply(&[
        create(2, "zebra", 5, 1),
        create(1, "ant", 1, 0),
        Change::SetTopicOverrides { id: TopicId(1), overrides },
        Change::SetNodeOverrides {
            node: NodeId(3001),
            overrides: BTreeMap::from([("message.max.bytes".to_owned(), "77".to_owned())]),
        },
    ])
}

#[test]
fn topics_are_found_by_name_and_by_id_and_listed_in_name_order() {
    let image = sample(2);
    assert_eq!(image.topic("zebra").map(|topic| topic.id), Some(TopicId(2)));
    assert_eq!(image.topic_by_id(TopicId(1)).map(|topic| &*topic.name), Some("ant"));
    assert!(image.topic("Zebra").is_none(), "names differ by case (K19.7)");
    assert_eq!(image.topics().map(|topic| topic.name.to_string()).collect::<Vec<_>>(), ["ant", "zebra"]);
    assert_eq!(image.version, 1);
}

#[test]
fn partitions_follow_each_other_over_the_shards_from_the_placement() {
    let image = sample(3);
    let zebra = image.topic("zebra").expect("created");
    let owners: Vec<u16> = (0..zebra.partitions).map(|index| image.owner(zebra, index).0).collect();
    assert_eq!(owners, [1, 2, 0, 1, 2]);
    assert!(zebra.has(4) && !zebra.has(5) && !zebra.has(-1));
    let far = Topic { placement: u32::MAX, ..Topic::clone(zebra) };
    assert!(image.owner(&far, i32::MAX).0 < 3, "no overflow");
}

#[test]
fn another_number_of_shards_takes_the_placement_modulo() {
    let stored = sample(3).encode();
    let image = Image::decode(&stored, 1, BrokerSettings::default()).expect("valid");
    let zebra = image.topic("zebra").expect("stored");
    assert!((0..5).all(|index| image.owner(zebra, index) == ShardId(0)));
}

#[test]
fn settings_at_run_time_reach_topics_but_not_their_own_settings() {
    let image = sample(2);
    let (ant, zebra) = (image.topic("ant").expect("there"), image.topic("zebra").expect("there"));
    assert_eq!((ant.config.retention_ms, zebra.config.retention_ms), (5, 604_800_000));
    let cluster = BTreeMap::from([("log.retention.ms".to_owned(), "9".to_owned())]);
    let next = image.apply(&[Change::SetClusterOverrides { overrides: cluster }]);
    let retention = |name: &str| next.topic(name).expect("there").config.retention_ms;
    assert_eq!((retention("ant"), retention("zebra")), (5, 9));
    assert_eq!(next.config_at(zebra, NodeId(3001)).max_message_bytes, 77, "set for this node");
    assert_eq!(next.config_at(zebra, NodeId(3000)).max_message_bytes, 1_048_588);
}

#[test]
fn kt_8_a_record_is_durable_before_its_answer_unless_the_topic_says_otherwise() {
    let image = sample(1);
    let zebra = image.topic("zebra").expect("there");
    assert_eq!(zebra.config.flush_messages, 1);
    let flush = image.describe_topic(&zebra.overrides, NodeId(3000)).into_iter().find(|d| d.name == "flush.messages");
    assert_eq!(flush.map(|d| (d.value, d.source)), Some((Some("1".to_owned()), Source::Default)));
}

#[test]
fn k20_6_a_topic_that_is_created_again_inherits_nothing() {
    let image = sample(2).apply(&[Change::DeleteTopic { id: TopicId(1) }]);
    assert!(image.topic("ant").is_none() && image.topic_by_id(TopicId(1)).is_none());
    let image = image.apply(&[create(9, "ant", 2, 0)]);
    let ant = image.topic("ant").expect("created");
    assert_eq!((ant.id, ant.partitions, ant.config.retention_ms), (TopicId(9), 2, 604_800_000));
    assert!(image.topic_by_id(TopicId(1)).is_none(), "the old id stays unknown");
}

#[test]
fn the_image_survives_its_durable_form() {
    let image = sample(4);
    assert_eq!(Image::decode(&image.encode(), 4, BrokerSettings::default()), Ok(image));
}

#[test]
fn every_flipped_bit_and_every_cut_of_the_durable_form_is_refused() {
    let stored = sample(2).encode();
    for position in 0..stored.len() {
        for bit in 0..8 {
            let mut damaged = stored.clone();
            damaged[position] ^= 1 << bit;
            assert!(Image::decode(&damaged, 2, BrokerSettings::default()).is_err(), "byte {position} bit {bit}");
        }
        assert_eq!(Image::decode(&stored[..position], 2, BrokerSettings::default()), Err(DecodeError::Form));
    }
}

fn sealed(content: &str) -> Vec<u8> {
    format!("{{\"crc32c\":\"{:08x}\",\"image\":{content}}}\n", crc32c::crc32c(content.as_bytes())).into_bytes()
}

#[test]
fn content_that_contradicts_itself_is_refused_with_a_reason() {
    let topic = |name: &str, id: &str, partitions: i32, overrides: &str| {
        format!(r#"{{"name":"{name}","id":"{id}","partitions":{partitions},"placement":0,"overrides":{overrides}}}"#)
    };
    let image = |format: u32, topics: &str, cluster: &str| {
        let head = format!(r#"{{"format":{format},"version":1,"cluster_id":"{CLUSTER}","broker_id":0"#);
        sealed(&format!(r#"{head},"topics":[{topics}],"cluster_overrides":{cluster},"node_overrides":[]}}"#))
    };
    let (one, two) = ("AAAAAAAAAAAAAAAAAAAAEA", "AAAAAAAAAAAAAAAAAAAAIA");
    let decode = |bytes: &[u8]| Image::decode(bytes, 1, BrokerSettings::default());
    assert!(decode(&image(1, &topic("a", one, 1, "{}"), "{}")).is_ok(), "the frame of these cases is right");
    assert_eq!(decode(&image(2, "", "{}")), Err(DecodeError::Format(2)));
    let twice_named = format!("{},{}", topic("a", one, 1, "{}"), topic("a", two, 1, "{}"));
    let twice_known = format!("{},{}", topic("a", one, 1, "{}"), topic("b", one, 1, "{}"));
    let bad = [
        image(1, &twice_named, "{}"),
        image(1, &twice_known, "{}"),
        image(1, &topic("../etc", one, 1, "{}"), "{}"),
        image(1, &topic("a", "AAAAAAAAAAAAAAAAAAAAAA", 1, "{}"), "{}"),
        image(1, &topic("a", one, 0, "{}"), "{}"),
        image(1, &topic("a", one, 1, r#"{"retention.mz":"1"}"#), "{}"),
        image(1, &topic("a", one, 1, r#"{"retention.ms":"-7"}"#), "{}"),
        image(1, "", r#"{"log.dirs":"/"}"#),
        sealed("{}"),
        sealed("not json"),
    ];
    for bytes in bad {
        assert!(matches!(decode(&bytes), Err(DecodeError::Content(_))), "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
#[should_panic(expected = "the deleted topic")]
fn a_change_that_contradicts_the_image_stops_the_process() {
    let _ = sample(1).apply(&[Change::DeleteTopic { id: TopicId(77) }]);
}
