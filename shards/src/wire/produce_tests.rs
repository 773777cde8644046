use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest as TheirRequest, ProduceResponse, TopicName, TransactionalId};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use uuid::Uuid;

use super::*;
use crate::code::ErrorCode;
use crate::ids::{LeaderEpoch, NodeId, Offset, TimestampMs, TopicId};
use crate::wire::types::{CurrentLeader, NodeEndpoint};

const VERSIONS: std::ops::RangeInclusive<i16> = 3..=13;
const IDS: [u128; 2] = [0x0123_4567_89ab_cdef_fedc_ba98_7654_3210, 7];

/// Two topics, the first with two partitions, as kafka-protocol encodes them.
pub(in crate::wire) fn encoded_by_them(version: i16) -> Bytes {
    let topic = |at: usize, name: &'static str, partitions: Vec<PartitionProduceData>| {
        let topic = TopicProduceData::default().with_partition_data(partitions);
        if version >= TOPIC_IDS_FROM {
            topic.with_topic_id(Uuid::from_u128(IDS[at]))
        } else {
            topic.with_name(TopicName(StrBytes::from_static_str(name)))
        }
    };
    let partition = |index: i32, records: Option<&'static [u8]>| {
        PartitionProduceData::default().with_index(index).with_records(records.map(Bytes::from_static))
    };
    let request = TheirRequest::default()
        .with_transactional_id(Some(TransactionalId(StrBytes::from_static_str("tid"))))
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![
            topic(0, "first", vec![partition(0, Some(b"batch")), partition(7, None)]),
            topic(1, "second", vec![partition(1, Some(b""))]),
        ]);
    let mut body = BytesMut::new();
    request.encode(&mut body, version).expect("a valid request");
    body.freeze()
}

fn topic_ref(version: i16, at: usize) -> TopicRef {
    if version >= TOPIC_IDS_FROM {
        TopicRef::Id(TopicId(IDS[at]))
    } else {
        TopicRef::Name(StrBytes::from_static_str(["first", "second"][at]))
    }
}

#[test]
fn a_request_encoded_by_kafka_protocol_is_read_at_every_version() {
    for version in VERSIONS {
        let body = encoded_by_them(version);
        let request = decode(version, &body).expect("a valid request");
        assert_eq!(request.transactional_id.as_deref(), Some("tid"));
        assert_eq!((request.version, request.acks, request.timeout_ms), (version, -1, 30_000));
        let partitions: Vec<_> =
            request.partitions.iter().map(|p| (p.topic.clone(), p.index, p.records.as_deref())).collect();
        let expected = [
            (topic_ref(version, 0), 0, Some(&b"batch"[..])),
            (topic_ref(version, 0), 7, None),
            (topic_ref(version, 1), 1, Some(&b""[..])),
        ];
        assert_eq!(partitions, expected, "version {version}");
        let records = request.partitions[0].records.as_ref().expect("records");
        assert!(body.as_ptr_range().contains(&records.as_ptr()), "records are a slice of the frame");
    }
}

#[test]
fn kc_6_a_body_cut_anywhere_is_an_error_and_bytes_behind_it_are_ignored() {
    for version in VERSIONS {
        let body = encoded_by_them(version);
        for length in 0..body.len() {
            assert!(decode(version, &body.slice(..length)).is_err(), "version {version}, {length} bytes");
        }
        let longer = Bytes::from([&body[..], &[1, 2, 3]].concat());
        assert!(decode(version, &longer).is_ok(), "version {version}");
    }
}

#[test]
fn k0_25_topics_without_partitions_and_no_topics_leave_nothing() {
    let none = [0xff, 0xff, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0];
    assert!(decode(3, &Bytes::copy_from_slice(&none)).expect("no topics").partitions.is_empty());
    let empty = [0xff, 0xff, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 0];
    assert!(decode(3, &Bytes::copy_from_slice(&empty)).expect("a topic alone").partitions.is_empty());
}

#[test]
fn kc_6_null_arrays_and_names_are_errors_that_say_where() {
    let topics = decode(3, &Bytes::from_static(&[0xff, 0xff, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff]));
    assert_eq!(topics.expect_err("null topics"), WireError { at: 8, fault: WireFault::Null });
    let mut name = vec![0xff, 0xff, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1];
    name.extend_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(decode(3, &name.into()).expect_err("null name"), WireError { at: 12, fault: WireFault::Null });
}

#[test]
fn k0_1_versions_outside_3_to_13_are_refused() {
    for version in [-1, 0, 2, 14] {
        let fault = decode(version, &encoded_by_them(9)).expect_err("not served").fault;
        assert_eq!(fault, WireFault::UnservedVersion { key: 0, version });
    }
}

fn answers(version: i16) -> Vec<ProducePartitionAnswer> {
    vec![
        ProducePartitionAnswer {
            base_offset: Offset(41),
            log_append_time_ms: TimestampMs(1_700_000_000_000),
            log_start_offset: Offset(3),
            ..ProducePartitionAnswer::refused(topic_ref(version, 0), 0, ErrorCode::None)
        },
        ProducePartitionAnswer {
            record_errors: vec![(4, Some("no key".into())), (5, None)],
            error_message: Some("rejected".into()),
            ..ProducePartitionAnswer::refused(topic_ref(version, 0), 7, ErrorCode::InvalidRecord)
        },
        ProducePartitionAnswer {
            current_leader: Some(CurrentLeader { leader: NodeId(1002), epoch: LeaderEpoch(6) }),
            ..ProducePartitionAnswer::refused(topic_ref(version, 1), 1, ErrorCode::NotLeaderOrFollower)
        },
    ]
}

fn decoded_by_them(version: i16, answer: &ProduceAnswer<'_>) -> ProduceResponse {
    let mut body = encode(version, answer).to_bytes();
    let response = ProduceResponse::decode(&mut body, version).expect("a valid answer");
    assert!(body.is_empty(), "version {version} leaves {} bytes", body.len());
    response
}

#[test]
fn k0_22_an_answer_is_read_by_kafka_protocol_at_every_version() {
    let endpoint = NodeEndpoint { id: NodeId(1002), host: "host".into(), port: 9092, rack: Some("r".into()) };
    for version in VERSIONS {
        let partitions = answers(version);
        let answer = ProduceAnswer {
            partitions: &partitions,
            node_endpoints: std::slice::from_ref(&endpoint),
            throttle_time_ms: 12,
        };
        let response = decoded_by_them(version, &answer);
        assert_eq!(response.throttle_time_ms, 12);
        assert_eq!(response.responses.len(), 2, "neighbours of one topic share its entry");
        let [first, second] = &response.responses[..] else { unreachable!("two entries") };
        for (at, topic) in [first, second].into_iter().enumerate() {
            assert_eq!(topic.topic_id.as_u128(), topic_ref(version, at).id().map_or(0, |id| id.0));
            assert_eq!(topic.name.as_str(), topic_ref(version, at).name().unwrap_or_default());
        }
        let [written, refused] = &first.partition_responses[..] else { unreachable!("two partitions") };
        assert_eq!((written.index, written.error_code, written.base_offset), (0, 0, 41));
        assert_eq!(written.log_append_time_ms, 1_700_000_000_000);
        assert_eq!(written.log_start_offset, if version >= 5 { 3 } else { -1 });
        assert_eq!((refused.index, refused.error_code, refused.base_offset), (7, 87, -1));
        let errors: Vec<_> = refused
            .record_errors
            .iter()
            .map(|e| (e.batch_index, e.batch_index_error_message.as_deref().map(str::to_owned)))
            .collect();
        let told = version >= 8;
        assert_eq!(errors, if told { vec![(4, Some("no key".to_owned())), (5, None)] } else { vec![] });
        assert_eq!(refused.error_message.as_deref(), told.then_some("rejected"));
        let moved = &second.partition_responses[0];
        let leader = (moved.current_leader.leader_id.0, moved.current_leader.leader_epoch);
        assert_eq!(leader, if version >= 10 { (1002, 6) } else { (-1, -1) });
        let hosts: Vec<_> = response.node_endpoints.iter().map(|n| (n.node_id.0, n.host.as_str(), n.port)).collect();
        assert_eq!(hosts, if version >= 10 { vec![(1002, "host", 9092)] } else { vec![] });
    }
}

#[test]
fn an_empty_answer_is_read_at_every_version() {
    for version in VERSIONS {
        assert!(decoded_by_them(version, &ProduceAnswer::default()).responses.is_empty());
    }
}
