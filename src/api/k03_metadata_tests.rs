//! K3, rule by rule.

use uuid::Uuid;

use super::*;
use crate::api::testing::{CLUSTER, ask, ask_bytes, create_topic, ctx, ctx_with};

fn named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(text(name).into()))
}

fn by(id: Uuid) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(None).with_topic_id(id)
}

fn asked(topics: Vec<MetadataRequestTopic>) -> MetadataRequest {
    MetadataRequest::default().with_topics(Some(topics))
}

fn codes(answer: &MetadataResponse) -> Vec<(String, i16)> {
    let name = |topic: &MetadataResponseTopic| topic.name.as_ref().map(|name| name.to_string()).unwrap_or_default();
    answer.topics.iter().map(|topic| (name(topic), topic.error_code)).collect()
}

fn row(name: &str, code: i16) -> (String, i16) {
    (name.to_owned(), code)
}

#[test]
fn k3_1_all_or_none_by_version() {
    let (ctx, _dir) = ctx();
    create_topic(&ctx, "t", 1);
    create_topic(&ctx, "__consumer_offsets", 1);
    for version in 0..=13 {
        let none: MetadataResponse = ask(&ctx, 3, version, &asked(vec![]));
        assert_eq!(none.topics.len(), if version == 0 { 2 } else { 0 });
        assert_eq!(none.brokers.len(), 1);
        if version > 0 {
            let all: MetadataResponse = ask(&ctx, 3, version, &MetadataRequest::default().with_topics(None));
            assert_eq!(codes(&all), [row("__consumer_offsets", 0), row("t", 0)]);
            assert!(all.topics[0].is_internal && !all.topics[1].is_internal);
        }
    }
}

#[test]
fn k3_1_null_topics_at_version_0_close() {
    let (ctx, _dir) = ctx();
    let body = bytes::Bytes::from_static(&[0xff; 4]);
    let request = Request { key: 3, version: 0, client_id: None, body, listener: 0, peer: None };
    assert!(matches!(futures_lite::future::block_on(handle(&ctx, &request)), Answer::Close(_)));
}

#[test]
fn k3_2_and_3_one_replica_leads_and_is_in_sync_k3_12() {
    let (ctx, _dir) = ctx();
    create_topic(&ctx, "t", 3);
    let id = uuid(ctx.image().topic("t").expect("created").id);
    for version in 0..=13 {
        let answer: MetadataResponse = ask(&ctx, 3, version, &asked(vec![named("t"), named("t")]));
        let [topic] = answer.topics.as_slice() else { panic!("answered once (K3.7)") };
        assert_eq!(topic.partitions.len(), 3);
        for partition in &topic.partitions {
            assert_eq!((partition.leader_id.0, partition.error_code), (0, 0));
            assert_eq!((&partition.replica_nodes, &partition.isr_nodes), (&vec![0.into()], &vec![0.into()]));
            assert_eq!(partition.leader_epoch, if version >= 7 { 7 } else { -1 });
        }
        assert_eq!(topic.topic_id, if version >= 10 { id } else { Uuid::nil() });
        assert_eq!(answer.cluster_id.as_deref(), (version >= 2).then_some(CLUSTER));
        assert_eq!(answer.controller_id.0, if version >= 1 { 0 } else { -1 });
    }
}

#[test]
fn k3_4_unknown_and_impossible_names() {
    let (ctx, _dir) = ctx_with(|config| config.auto_create_topics = false);
    for version in 0..=13 {
        let answer: MetadataResponse = ask(&ctx, 3, version, &asked(vec![named("no"), named("a b"), named("")]));
        assert_eq!(codes(&answer), [row("", 17), row("a b", 17), row("no", 3)]);
        assert!(answer.topics.iter().all(|topic| topic.topic_id.is_nil() && topic.partitions.is_empty()));
    }
    assert_eq!(ctx.image().topics().len(), 0, "K3.8: the setting is off");
}

/// Version 10 and 11 carry an id that may not be used yet.
fn raw_10(name: Option<&str>, id: Uuid) -> bytes::Bytes {
    let mut body = vec![2];
    match name {
        Some(name) => {
            body.insert(1, u8::try_from(name.len() + 1).expect("short"));
            body.splice(1..1, id.as_bytes().iter().copied());
            body.extend_from_slice(name.as_bytes());
        }
        None => {
            body.extend_from_slice(id.as_bytes());
            body.push(0);
        }
    }
    body.extend_from_slice(&[0, 1, 0, 0, 0]);
    body.into()
}

#[test]
fn k3_5_ids_before_their_version_and_entries_without_any_name_fail_the_request() {
    let (ctx, _dir) = ctx();
    create_topic(&ctx, "t", 1);
    for body in [raw_10(None, Uuid::nil()), raw_10(Some("t"), Uuid::from_u128(5))] {
        let answer: MetadataResponse = ask_bytes(&ctx, 3, 10, &body);
        assert_eq!(answer.topics.iter().map(|topic| topic.error_code).collect::<Vec<_>>(), [42]);
        assert_eq!((answer.brokers.len(), &answer.cluster_id, answer.controller_id.0), (0, &None, -1));
    }
    assert_eq!(codes(&ask_bytes(&ctx, 3, 10, &raw_10(Some("t"), Uuid::nil()))), [row("t", 0)]);
    for version in 12..=13 {
        let answer: MetadataResponse = ask(&ctx, 3, version, &asked(vec![named("t"), by(Uuid::nil())]));
        assert_eq!(codes(&answer), [row("t", 42), row("", 42)]);
        assert_eq!(answer.error_code, if version == 13 { 42 } else { 0 });
    }
}

#[test]
fn k3_6_one_id_in_the_request_drops_the_names() {
    let (ctx, _dir) = ctx();
    create_topic(&ctx, "t", 1);
    create_topic(&ctx, "u", 1);
    let id = uuid(ctx.image().topic("t").expect("created").id);
    for version in 12..=13 {
        let beside = named("u").with_topic_id(id);
        let topics = vec![named("u"), by(id), by(id), beside, by(Uuid::from_u128(5))];
        let answer: MetadataResponse = ask(&ctx, 3, version, &asked(topics));
        let mut told = codes(&answer);
        told.sort_unstable();
        assert_eq!(told, [row("", 100), row("t", 0)]);
    }
}

#[test]
fn k3_8_unknown_names_are_created_before_the_answer() {
    let (ctx, _dir) = ctx();
    let flag = |version: i16, name: &str, allowed: bool| {
        let asked = asked(vec![named(name)]);
        let asked = if version >= 4 { asked.with_allow_auto_topic_creation(allowed) } else { asked };
        ask::<MetadataResponse>(&ctx, 3, version, &asked)
    };
    for version in 0..=13 {
        let name = format!("t{version}");
        if version >= 4 {
            assert_eq!(flag(version, &name, false).topics[0].error_code, 3);
        }
        let answer = flag(version, &name, true);
        assert_eq!((answer.topics[0].error_code, answer.topics[0].partitions.len()), (0, 2), "num.partitions");
    }
    create_topic(&ctx, "x.y", 1);
    for name in ["x_y", "__cluster_metadata"] {
        assert_eq!(flag(13, name, true).topics[0].error_code, 3, "{name} cannot be created");
    }
    assert_eq!(flag(13, "a b", true).topics[0].error_code, 17);
}

#[test]
fn k3_9_internal_topics_are_told_beside_the_code_and_left_to_their_coordinator() {
    let (ctx, _dir) = ctx();
    let answer: MetadataResponse = ask(&ctx, 3, 13, &asked(vec![named("__consumer_offsets"), named("__mine")]));
    assert_eq!(codes(&answer), [row("__consumer_offsets", 3), row("__mine", 0)]);
    assert_eq!(answer.topics.iter().map(|topic| topic.is_internal).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn k3_10_operations_are_told_when_asked_also_of_unknown_topics() {
    let (ctx, _dir) = ctx_with(|config| config.auto_create_topics = false);
    create_topic(&ctx, "t", 1);
    for version in 8..=13 {
        let plain = asked(vec![named("t"), named("no")]);
        let answer: MetadataResponse = ask(&ctx, 3, version, &plain);
        assert!(answer.topics.iter().all(|topic| topic.topic_authorized_operations == i32::MIN));
        let full = plain
            .with_include_topic_authorized_operations(true)
            .with_include_cluster_authorized_operations(version <= 10);
        let answer: MetadataResponse = ask(&ctx, 3, version, &full);
        assert!(answer.topics.iter().all(|topic| topic.topic_authorized_operations == 3576));
        assert_eq!(answer.cluster_authorized_operations, if version <= 10 { 8096 } else { i32::MIN });
    }
}
