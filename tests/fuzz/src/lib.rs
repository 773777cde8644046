//! Entry points of the fuzz targets. Each takes the fuzzer's bytes; a panic or an abort is a finding.
//!
//! The first byte chooses the version (and, for the schema, the second one the API), the rest is the body.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestKind};
use oncilla_shards::wire::{self, apis};

/// A version of an API's served range, chosen by a byte.
fn version(key: i16, choice: u8) -> i16 {
    let range = apis::find(key).expect("an announced key");
    let min = if key == apis::PRODUCE { apis::PRODUCE_SERVED_MIN } else { range.min };
    min + i16::from(choice) % (range.max - min + 1)
}

/// Bytes as a connection cuts them from its read buffer.
fn frame(data: &[u8]) -> Bytes {
    let mut buffer = BytesMut::from(data);
    buffer.split().freeze()
}

/// A whole frame: its header, and its body by whatever codec it belongs to.
pub fn header(data: &[u8]) {
    let mut body = frame(data);
    if let Ok(wire::ParsedHeader::Served(header)) = wire::parse_header(&mut body) {
        let _ = match header.api_key {
            apis::PRODUCE => wire::produce::decode(header.api_version, &body).map(|_| ()),
            apis::FETCH => wire::fetch::decode(header.api_version, &body).map(|_| ()),
            apis::OFFSET_COMMIT => wire::offset_commit::decode(header.api_version, &body).map(|_| ()),
            apis::OFFSET_FETCH => wire::offset_fetch::decode(header.api_version, &body).map(|_| ()),
            apis::API_VERSIONS => wire::api_versions::decode(header.api_version, &body).map(|_| ()),
            key => wire::schema::preflight(key, header.api_version, &body),
        };
    }
}

/// The body of a Produce request.
pub fn produce(data: &[u8]) {
    if let Some((&choice, body)) = data.split_first() {
        let body = frame(body);
        if let Ok(request) = wire::produce::decode(version(apis::PRODUCE, choice), &body) {
            assert!(request.partitions.len() <= body.len());
        }
    }
}

/// The body of a Fetch request.
pub fn fetch(data: &[u8]) {
    if let Some((&choice, body)) = data.split_first() {
        let body = frame(body);
        if let Ok(request) = wire::fetch::decode(version(apis::FETCH, choice), &body) {
            assert!(request.partitions.len() + request.forgotten.len() <= body.len());
        }
    }
}

/// The body of an ApiVersions request.
pub fn api_versions(data: &[u8]) {
    if let Some((&choice, body)) = data.split_first()
        && let Ok(request) = wire::api_versions::decode(version(apis::API_VERSIONS, choice), &frame(body))
    {
        assert_eq!(request.software.is_some(), request.version >= 3);
    }
}

/// The body of any other request: what passes the preflight is decoded by kafka-protocol.
pub fn schema(data: &[u8]) {
    let [choice, api, body @ ..] = data else { return };
    let range = &apis::ANNOUNCED[usize::from(*api) % apis::ANNOUNCED.len()];
    if wire::schema::fields(range.key).is_none() {
        return;
    }
    let version = version(range.key, *choice);
    if let Ok(mut body) = wire::schema::checked(range.key, version, &frame(body)) {
        let key = ApiKey::try_from(range.key).expect("a key that kafka-protocol knows");
        let decoded = RequestKind::decode(key, &mut body, apis::codec_version(range.key, version));
        assert!(decoded.is_ok(), "{} {version}: {decoded:?}", range.name);
    }
}
