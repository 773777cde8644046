//! The header of a request: which API, which version, who asks (contract KC.2-KC.5).

use bytes::{Buf, Bytes};

use super::apis;
use super::error::{WireError, WireFault};
use super::reader::{Reader, share};

/// Header of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// API key.
    pub api_key: i16,
    /// Version of the API.
    pub api_version: i16,
    /// Echoed in the answer, whatever it is (contract KC.7).
    pub correlation_id: i32,
    /// Name that the client gives itself: any bytes, also none (contract KC.3).
    pub client_id: Option<Bytes>,
}

/// A header that parsed, and what may be done with the body behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedHeader {
    /// Key and version are served; the body follows.
    Served(RequestHeader),
    /// ApiVersions at a version that is not served: answered with 35 whatever the body is, the connection stays usable
    /// (contract G2, K18.3, case 114).
    UnservedApiVersions(RequestHeader),
}

/// Reads the header of a frame (without its size) and leaves the body in `frame`.
///
/// The client id is a slice of the frame. Fails on a key that is not announced, on a version outside its range, and on
/// bytes that are no header; the connection is then closed (contract KC.5).
pub fn parse_header(frame: &mut Bytes) -> Result<ParsedHeader, WireError> {
    let mut reader = Reader::new(frame, false);
    let api_key = reader.i16()?;
    let api_version = reader.i16()?;
    let Some(range) = apis::find(api_key) else {
        return Err(WireError { at: 0, fault: WireFault::UnknownKey(api_key) });
    };
    let served = apis::is_served(api_key, api_version);
    if !served && api_key != apis::API_VERSIONS {
        let fault = WireFault::UnservedVersion { key: api_key, version: api_version };
        return Err(WireError { at: 2, fault });
    }
    let correlation_id = reader.i32()?;
    let client_id = reader.nullable_text()?.map(|id| share(frame, id));
    let mut end = reader.at();
    // An ApiVersions above the range falls into the flexible versions here, a negative one into the plain ones, as
    // contract G2 has it.
    if api_version >= range.flexible_from {
        let mut tags = Reader::new(&frame[end..], true);
        tags.skip_tags().map_err(|error| WireError { at: error.at + end, ..error })?;
        end += tags.at();
    }
    frame.advance(end);
    let header = RequestHeader { api_key, api_version, correlation_id, client_id };
    Ok(if served { ParsedHeader::Served(header) } else { ParsedHeader::UnservedApiVersions(header) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> (Result<ParsedHeader, WireError>, Bytes) {
        let mut frame = Bytes::copy_from_slice(bytes);
        (parse_header(&mut frame), frame)
    }

    fn served(bytes: &[u8]) -> (RequestHeader, Bytes) {
        match parse(bytes) {
            (Ok(ParsedHeader::Served(header)), body) => (header, body),
            (other, _) => panic!("not served: {other:?}"),
        }
    }

    #[test]
    fn kc_2_plain_and_flexible_headers_leave_the_body() {
        let (header, body) = served(&[0, 3, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 2, b'm', b'e', 9]);
        assert_eq!((header.api_key, header.api_version, header.correlation_id), (3, 1, -1));
        assert_eq!((header.client_id.as_deref(), &body[..]), (Some(&b"me"[..]), &[9][..]));
        let (header, body) = served(&[0, 3, 0, 9, 0, 0, 0, 5, 0xff, 0xff, 1, 7, 1, 0xaa, 9]);
        assert_eq!((header.client_id, &body[..]), (None, &[9][..]));
    }

    #[test]
    fn kc_3_client_ids_are_any_bytes_null_or_empty() {
        let head = [0, 3, 0, 1, 0, 0, 0, 5];
        let with = |tail: &[u8]| [&head[..], tail].concat();
        assert_eq!(served(&with(&[0, 0])).0.client_id.as_deref(), Some(&b""[..]));
        assert_eq!(served(&with(&[0xff, 0xfe])).0.client_id, None);
        assert_eq!(served(&with(&[0, 2, 0xff, 0x01])).0.client_id.as_deref(), Some(&[0xff, 1][..]));
        let long = with(&[&[0x7f, 0xff][..], &[b'x'; 32767]].concat());
        assert_eq!(served(&long).0.client_id.map(|id| id.len()), Some(32767));
        let beyond = parse(&with(&[0, 3, 1, 1])).0.expect_err("beyond the frame");
        assert_eq!((beyond.at, beyond.fault), (10, WireFault::Short { wanted: 3, left: 2 }));
    }

    #[test]
    fn kc_4_a_flexible_header_without_tag_section_is_an_error() {
        let missing = parse(&[0, 3, 0, 9, 0, 0, 0, 5, 0xff, 0xff]).0.expect_err("no tag section");
        assert_eq!((missing.at, missing.fault), (10, WireFault::Short { wanted: 1, left: 0 }));
    }

    #[test]
    fn kc_5_unknown_keys_and_unserved_versions_say_so() {
        let key = parse(&[3, 0xe7, 0, 0, 0, 0, 0, 0, 0, 0]).0.expect_err("key 999");
        assert_eq!(key.fault, WireFault::UnknownKey(999));
        let version = parse(&[0, 0, 0, 2, 0, 0, 0, 0, 0, 0]).0.expect_err("Produce 2");
        assert_eq!(version.fault, WireFault::UnservedVersion { key: 0, version: 2 });
    }

    #[test]
    fn case_117_every_cut_of_a_header_is_an_error() {
        let whole = [0, 3, 0, 9, 0, 0, 0, 5, 0, 2, b'm', b'e', 1, 0, 1, 0xaa];
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).0.is_err(), "{length} bytes");
        }
        assert!(parse(&whole).0.is_ok());
    }

    #[test]
    fn g2_api_versions_of_an_unknown_version_is_told_apart_by_its_header() {
        for version in [5i16, 99, i16::MAX] {
            let mut frame = [&[0, 18][..], &version.to_be_bytes(), &[0, 0, 0, 7, 0xff, 0xff]].concat();
            assert!(parse(&frame).0.is_err(), "tag section must be there at {version}");
            frame.extend_from_slice(&[0, 0xde, 0xad]);
            let (parsed, body) = parse(&frame);
            assert!(matches!(parsed, Ok(ParsedHeader::UnservedApiVersions(h)) if h.correlation_id == 7));
            assert_eq!(&body[..], [0xde, 0xad]);
        }
        for version in [-1i16, i16::MIN] {
            let frame = [&[0, 18][..], &version.to_be_bytes(), &[0, 0, 0, 7, 0xff, 0xff]].concat();
            assert!(matches!(parse(&frame).0, Ok(ParsedHeader::UnservedApiVersions(_))), "plain at {version}");
            assert!(parse(&frame[..9]).0.is_err(), "client id must be there at {version}");
        }
    }
}
