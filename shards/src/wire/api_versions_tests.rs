use bytes::Bytes;
use kafka_protocol::messages::{ApiVersionsRequest as TheirRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use super::*;

const FEATURES: Features<'static> = Features {
    supported: &[
        SupportedFeature { name: "metadata.version", min: 7, max: 30 },
        SupportedFeature { name: "group.version", min: 0, max: 1 },
    ],
    epoch: 5,
    finalized: &[FinalizedFeature { name: "metadata.version", level: 30 }],
};

const TWO: &[ApiRange] = &[
    ApiRange { key: 0, name: "Produce", min: 0, max: 13, flexible_from: 9 },
    ApiRange { key: 18, name: "ApiVersions", min: 0, max: 4, flexible_from: 3 },
];

fn bytes(body: &Body) -> Vec<u8> {
    body.to_bytes().to_vec()
}

#[test]
fn g2_plain_answers_are_kafkas_byte_for_byte() {
    let v0 = [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 13, 0, 18, 0, 0, 0, 4];
    assert_eq!(bytes(&encode(0, TWO, &FEATURES)), v0);
    let v1 = [&v0[..], &[0, 0, 0, 0]].concat();
    assert_eq!(bytes(&encode(1, TWO, &FEATURES)), v1);
    assert_eq!(bytes(&encode(2, TWO, &FEATURES)), v1);
}

#[test]
fn g2_flexible_answers_are_kafkas_byte_for_byte() {
    let keys = [0, 0, 3, 0, 0, 0, 0, 0, 13, 0, 0, 18, 0, 0, 0, 4, 0, 0, 0, 0, 0];
    let metadata = [&[17][..], b"metadata.version"].concat();
    let group = [&[14][..], b"group.version", &[0, 0, 0, 1, 0]].concat();
    let supported_metadata = [&metadata[..], &[0, 7, 0, 30, 0]].concat();
    let tail = [&[1, 8, 0, 0, 0, 0, 0, 0, 0, 5, 2, 23, 2][..], &metadata, &[0, 30, 0, 30, 0]].concat();
    let v3 = [&keys[..], &[3, 0, 23, 2], &supported_metadata, &tail].concat();
    assert_eq!(bytes(&encode(3, TWO, &FEATURES)), v3, "v3 hides features that start at level 0 (contract K18.2)");
    let v4 = [&keys[..], &[3, 0, 42, 3], &supported_metadata, &group, &tail].concat();
    assert_eq!(bytes(&encode(4, TWO, &FEATURES)), v4);
}

#[test]
fn k18_1_answers_are_read_by_kafka_protocol_at_every_version() {
    for version in 0..=4 {
        let mut body = encode(version, apis::ANNOUNCED, &FEATURES).to_bytes();
        let answer = ApiVersionsResponse::decode(&mut body, version).expect("a valid answer");
        assert!(body.is_empty());
        let told: Vec<_> = answer.api_keys.iter().map(|k| (k.api_key, k.min_version, k.max_version)).collect();
        let table: Vec<_> = apis::ANNOUNCED.iter().map(|r| (r.key, r.min, r.max)).collect();
        assert_eq!(told, table);
        let features = [answer.supported_features.len(), answer.finalized_features.len()];
        assert_eq!(features, [[0, 0], [0, 0], [0, 0], [1, 1], [2, 1]][version as usize]);
        assert_eq!(answer.finalized_features_epoch, if version >= 3 { 5 } else { -1 });
    }
}

#[test]
fn features_that_are_not_there_have_no_tag() {
    let none = Features { supported: &[], epoch: -1, finalized: &[] };
    assert_eq!(bytes(&encode(4, &[], &none)), [0, 0, 1, 0, 0, 0, 0, 0]);
    let level_zero_only = Features { supported: &FEATURES.supported[1..], ..none };
    assert_eq!(bytes(&encode(3, &[], &level_zero_only)), [0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn case_114_an_unserved_version_is_answered_with_16_bytes() {
    let frame = encode_unserved_version().framed(7, false);
    assert_eq!(bytes(&frame), [0, 0, 0, 16, 0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4]);
}

#[test]
fn k18_4_software_against_the_pattern_is_answered_with_12_bytes() {
    let frame = encode_invalid_request().framed(7, apis::has_flexible_answer_header(18, 3));
    assert_eq!(bytes(&frame), [0, 0, 0, 12, 0, 0, 0, 7, 0, 42, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn case_116_byte_8_of_a_flexible_answer_is_the_error_code() {
    let frame = encode(3, apis::ANNOUNCED, &FEATURES).framed(-1, apis::has_flexible_answer_header(18, 3));
    assert_eq!(bytes(&frame)[4..10], [0xff, 0xff, 0xff, 0xff, 0, 0]);
}

#[test]
fn k18_4_names_and_versions_follow_the_pattern() {
    for good in ["a", "7", "apache-kafka-java", "4.3.1", "a..-b", &"x".repeat(5000)] {
        assert!(is_software_text(good), "{good}");
    }
    for bad in ["", "-", ".a", "a.", "a b", "a_b", "\u{e9}", "a\u{e9}b", "-a", "a-"] {
        assert!(!is_software_text(bad), "{bad:?}");
    }
    let request = |name: &'static str| ApiVersionsRequest {
        version: 3,
        software: Some((StrBytes::from_static_str(name), StrBytes::from_static_str("1"))),
    };
    assert!(request("librdkafka").is_valid() && !request("lib rdkafka").is_valid());
    assert!(ApiVersionsRequest { version: 2, software: None }.is_valid(), "nothing to check below version 3");
}

/// A request as kafka-protocol encodes it.
pub(in crate::wire) fn encoded_by_them(version: i16) -> Bytes {
    let mut request = TheirRequest::default();
    if version >= FEATURES_FROM {
        request = request.with_client_software_name("client".into()).with_client_software_version("1.2".into());
    }
    let mut body = bytes::BytesMut::new();
    request.encode(&mut body, version).expect("a valid request");
    body.freeze()
}

#[test]
fn a_request_encoded_by_kafka_protocol_is_read_at_every_version() {
    for version in 0..=4 {
        let body = encoded_by_them(version);
        let request = decode(version, &body).expect("a valid request");
        let software = request.software.as_ref().map(|(name, version)| (name.as_str(), version.as_str()));
        assert_eq!(software, (version >= 3).then_some(("client", "1.2")));
        for length in 0..body.len() {
            assert!(decode(version, &body.slice(..length)).is_err(), "version {version}, {length} bytes");
        }
    }
}

#[test]
fn g2_null_software_closes() {
    let request = decode(3, &Bytes::from_static(&[0, 2, b'1', 0]));
    assert_eq!(request.expect_err("null name"), WireError { at: 0, fault: WireFault::Null });
}
