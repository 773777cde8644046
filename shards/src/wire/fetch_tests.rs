use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{
    FetchPartition as TheirPartition, FetchTopic, ForgottenTopic, ReplicaState,
};
use kafka_protocol::messages::{FetchRequest as TheirRequest, FetchResponse, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use smallvec::smallvec;
use uuid::Uuid;

use super::*;
use crate::code::ErrorCode;
use crate::ids::{NodeId, ProducerId, TopicId};
use crate::limits::PAYLOAD_COPIED_BYTES_MAX;
use crate::wire::types::{CurrentLeader, NodeEndpoint};

const VERSIONS: std::ops::RangeInclusive<i16> = 4..=18;
const ID: u128 = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;

fn topic_ref(version: i16) -> TopicRef {
    if version >= TOPIC_IDS_FROM {
        TopicRef::Id(TopicId(ID))
    } else {
        TopicRef::Name(StrBytes::from_static_str("topic"))
    }
}

fn their_partition(version: i16, index: i32) -> TheirPartition {
    let mut partition = TheirPartition::default()
        .with_partition(index)
        .with_fetch_offset(100 + i64::from(index))
        .with_partition_max_bytes(1 << 20);
    if version >= 5 {
        partition = partition.with_log_start_offset(2);
    }
    if version >= 9 {
        partition = partition.with_current_leader_epoch(4);
    }
    if version >= 12 {
        partition = partition.with_last_fetched_epoch(3);
    }
    if version >= 17 {
        partition = partition.with_replica_directory_id(Uuid::from_u128(9));
    }
    if version >= 18 {
        partition = partition.with_high_watermark(5);
    }
    partition
}

/// A request with every field that the version has, as kafka-protocol encodes it.
pub(in crate::wire) fn encoded_by_them(version: i16) -> Bytes {
    let by_id = version >= TOPIC_IDS_FROM;
    let name = if by_id { TopicName::default() } else { TopicName(StrBytes::from_static_str("topic")) };
    let id = if by_id { Uuid::from_u128(ID) } else { Uuid::nil() };
    let topic = FetchTopic::default()
        .with_topic(name.clone())
        .with_topic_id(id)
        .with_partitions(vec![their_partition(version, 0), their_partition(version, 5)]);
    let mut request = TheirRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_isolation_level(1)
        .with_topics(vec![topic]);
    if version <= 14 {
        request = request.with_replica_id(3.into());
    } else {
        request = request.with_replica_state(ReplicaState::default().with_replica_id(3.into()).with_replica_epoch(8));
    }
    if version >= 7 {
        let forgotten = ForgottenTopic::default().with_topic(name).with_topic_id(id).with_partitions(vec![1, 2]);
        request = request.with_session_id(77).with_session_epoch(2).with_forgotten_topics_data(vec![forgotten]);
    }
    if version >= 11 {
        request = request.with_rack_id(StrBytes::from_static_str("rack"));
    }
    if version >= 12 {
        request = request.with_cluster_id(Some(StrBytes::from_static_str("cluster")));
    }
    let mut body = BytesMut::new();
    request.encode(&mut body, version).expect("a valid request");
    body.freeze()
}

#[test]
fn c1_a_request_encoded_by_kafka_protocol_is_read_at_every_version() {
    for version in VERSIONS {
        let request = decode(version, &encoded_by_them(version)).expect("a valid request");
        let since = |first: i16, value: i64| if version >= first { value } else { -1 };
        assert_eq!((request.version, request.replica_id, request.isolation_level), (version, 3, 1));
        assert_eq!(request.replica_epoch, since(15, 8));
        assert_eq!((request.max_wait_ms, request.min_bytes, request.max_bytes), (500, 1, 50 << 20));
        let session = (request.session_id, request.session_epoch);
        assert_eq!(session, if version >= 7 { (77, 2) } else { (0, -1) });
        assert_eq!(request.rack_id.as_str(), if version >= 11 { "rack" } else { "" });
        assert_eq!(request.cluster_id.as_deref(), (version >= 12).then_some("cluster"));
        for (partition, index) in request.partitions.iter().zip([0, 5]) {
            let expected = FetchPartition {
                topic: topic_ref(version),
                index,
                current_leader_epoch: LeaderEpoch(since(9, 4) as i32),
                fetch_offset: Offset(100 + i64::from(index)),
                last_fetched_epoch: LeaderEpoch(since(12, 3) as i32),
                log_start_offset: Offset(since(5, 2)),
                max_bytes: 1 << 20,
            };
            assert_eq!(*partition, expected, "version {version}");
        }
        assert_eq!(request.partitions.len(), 2);
        let forgotten: Vec<_> = request.forgotten.iter().map(|f| (f.topic.clone(), f.index)).collect();
        let expected = vec![(topic_ref(version), 1), (topic_ref(version), 2)];
        assert_eq!(forgotten, if version >= 7 { expected } else { vec![] });
    }
}

#[test]
fn a_request_of_a_consumer_has_no_replica() {
    for version in VERSIONS {
        let mut body = BytesMut::new();
        TheirRequest::default().encode(&mut body, version).expect("the default request");
        let request = decode(version, &body.freeze()).expect("the default request");
        assert_eq!((request.replica_id, request.replica_epoch), (-1, -1));
        assert!(request.partitions.is_empty() && request.forgotten.is_empty() && request.cluster_id.is_none());
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

fn answers(version: i16) -> Vec<FetchPartitionAnswer> {
    let records = Bytes::from(vec![5; PAYLOAD_COPIED_BYTES_MAX]);
    let read = FetchPartitionAnswer {
        high_watermark: Offset(40),
        last_stable_offset: Offset(30),
        log_start_offset: Offset(2),
        aborted: Some(vec![AbortedTransaction { producer_id: ProducerId(9), first_offset: Offset(12) }]),
        preferred_read_replica: NodeId(4),
        records: smallvec![records, Bytes::from_static(b"tail")],
        ..FetchPartitionAnswer::refused(topic_ref(version), 0, ErrorCode::None)
    };
    let diverged = FetchPartitionAnswer {
        diverging: Some(EpochEnd { epoch: LeaderEpoch(3), end_offset: Offset(21) }),
        aborted: Some(Vec::new()),
        ..FetchPartitionAnswer::refused(topic_ref(version), 1, ErrorCode::None)
    };
    let moved = FetchPartitionAnswer {
        current_leader: Some(CurrentLeader { leader: NodeId(1002), epoch: LeaderEpoch(6) }),
        ..FetchPartitionAnswer::refused(topic_ref(version), 2, ErrorCode::NotLeaderOrFollower)
    };
    vec![read, diverged, moved]
}

fn decoded_by_them(version: i16, answer: &FetchAnswer<'_>) -> FetchResponse {
    let mut body = encode(version, answer).to_bytes();
    let response = FetchResponse::decode(&mut body, version).expect("a valid answer");
    assert!(body.is_empty(), "version {version} leaves {} bytes", body.len());
    response
}

#[test]
fn c1_an_answer_is_read_by_kafka_protocol_at_every_version() {
    let endpoint = NodeEndpoint { id: NodeId(1002), host: "host".into(), port: 9092, rack: None };
    for version in VERSIONS {
        let answer = FetchAnswer {
            throttle_time_ms: 1,
            code: ErrorCode::FetchSessionIdNotFound,
            session_id: 77,
            partitions: &answers(version),
            node_endpoints: std::slice::from_ref(&endpoint),
        };
        let response = decoded_by_them(version, &answer);
        let session = (response.error_code, response.session_id);
        assert_eq!(session, if version >= 7 { (70, 77) } else { (0, 0) });
        let [topic] = &response.responses[..] else { unreachable!("one topic") };
        assert_eq!(topic.topic.as_str(), if version >= 13 { "" } else { "topic" });
        assert_eq!(topic.topic_id.as_u128(), if version >= 13 { ID } else { 0 });
        let [read, diverged, moved] = &topic.partitions[..] else { unreachable!("three partitions") };
        assert_eq!((read.partition_index, read.error_code), (0, 0));
        assert_eq!((read.high_watermark, read.last_stable_offset), (40, 30));
        assert_eq!(read.log_start_offset, if version >= 5 { 2 } else { -1 });
        assert_eq!(read.preferred_read_replica.0, if version >= 11 { 4 } else { -1 });
        let aborted = read.aborted_transactions.as_deref().expect("a list");
        assert_eq!((aborted[0].producer_id.0, aborted[0].first_offset), (9, 12));
        let records = read.records.as_deref().expect("records");
        assert_eq!(records.len(), PAYLOAD_COPIED_BYTES_MAX + 4);
        assert!(records.ends_with(b"\x05tail"));
        let end = (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset);
        assert_eq!(end, if version >= 12 { (3, 21) } else { (-1, -1) });
        assert_eq!(diverged.aborted_transactions.as_deref(), Some(&[][..]));
        assert_eq!((moved.error_code, moved.high_watermark), (6, -1));
        assert_eq!(moved.aborted_transactions, None);
        let leader = (moved.current_leader.leader_id.0, moved.current_leader.leader_epoch);
        assert_eq!(leader, if version >= 16 { (1002, 6) } else { (-1, -1) });
        assert_eq!(response.node_endpoints.len(), usize::from(version >= 16));
    }
}

#[test]
fn case_78_an_empty_fetch_has_records_of_length_zero_never_null() {
    for version in VERSIONS {
        let partition = FetchPartitionAnswer::refused(topic_ref(version), 0, ErrorCode::None);
        let answer = FetchAnswer {
            throttle_time_ms: 0,
            code: ErrorCode::None,
            session_id: 0,
            partitions: std::slice::from_ref(&partition),
            node_endpoints: &[],
        };
        let records = decoded_by_them(version, &answer).responses[0].partitions[0].records.clone();
        assert_eq!(records, Some(Bytes::new()), "version {version}");
        // Behind the records the partition, the topic and the answer each end in an empty tag section.
        let body = encode(version, &answer).to_bytes();
        let end: &[u8] = if version >= 12 { &[1, 0, 0, 0] } else { &[0, 0, 0, 0] };
        assert!(body.ends_with(end), "version {version}");
    }
}

#[test]
fn records_of_an_answer_are_referenced() {
    let partitions = answers(12);
    let answer = FetchAnswer {
        throttle_time_ms: 0,
        code: ErrorCode::None,
        session_id: 0,
        partitions: &partitions,
        node_endpoints: &[],
    };
    let body = encode(12, &answer);
    assert_eq!(body.chunks().len(), 3);
    assert_eq!(body.chunks()[1].as_ptr(), partitions[0].records[0].as_ptr());
}
