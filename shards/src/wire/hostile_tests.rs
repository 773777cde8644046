//! Hostile bytes for the own codecs: arbitrary ones, and requests that were changed or cut (case 117).

use bytes::Bytes;
use proptest::prelude::*;

use super::{api_versions, fetch, offset_commit, offset_fetch, parse_header, produce, write_txn_markers};

/// Bytes that lengths, counts and varints are made of, more often than chance has it.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), Just(0xff), Just(0x7f), Just(0x80), Just(0), Just(1), Just(0xfe)]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(byte(), 0..300)
}

/// A valid body with some bytes replaced, and cut.
fn changed(body: Bytes) -> impl Strategy<Value = Bytes> {
    let length = body.len();
    let changes = prop::collection::vec((0..length.max(1), byte()), 0..5);
    let keep = prop_oneof![3 => Just(length), 1 => 0..=length];
    (changes, keep).prop_map(move |(changes, keep)| {
        let mut body = body.to_vec();
        for (at, byte) in changes {
            if let Some(place) = body.get_mut(at) {
                *place = byte;
            }
        }
        body.truncate(keep);
        body.into()
    })
}

/// What a decoded request holds must lie within the frame it came from.
fn within(frame: &Bytes, part: &[u8]) -> bool {
    part.is_empty() || (frame.as_ptr_range().contains(&part.as_ptr()) && part.len() <= frame.len())
}

fn produce_holds(version: i16, body: &Bytes) -> Result<(), TestCaseError> {
    if let Ok(request) = produce::decode(version, body) {
        let records: usize = request.partitions.iter().filter_map(|p| p.records.as_ref()).map(Bytes::len).sum();
        prop_assert!(records <= body.len(), "{} bytes of records in {}", records, body.len());
        prop_assert!(request.partitions.len() <= body.len());
        for partition in &request.partitions {
            prop_assert!(within(body, partition.records.as_deref().unwrap_or_default()));
            prop_assert_eq!(partition.topic.id().is_some(), version >= 13);
        }
    }
    Ok(())
}

fn fetch_holds(version: i16, body: &Bytes) -> Result<(), TestCaseError> {
    if let Ok(request) = fetch::decode(version, body) {
        prop_assert!(16 * request.partitions.len() + 4 * request.forgotten.len() <= body.len());
        prop_assert!(version >= 7 || (request.forgotten.is_empty() && request.session_epoch == -1));
        prop_assert!(request.partitions.iter().all(|p| p.topic.id().is_some() == (version >= 13)));
    }
    Ok(())
}

proptest! {
    #[test]
    fn case_117_arbitrary_headers_never_panic(frame in bytes()) {
        let whole = Bytes::from(frame);
        let mut body = whole.clone();
        match parse_header(&mut body) {
            Ok(_) => prop_assert!(body.len() + 10 <= whole.len(), "a header has at least ten bytes"),
            Err(error) => {
                prop_assert_eq!(&body, &whole, "a frame that fails is left alone");
                prop_assert!(error.at <= whole.len());
            }
        }
    }

    #[test]
    fn case_117_headers_of_announced_keys_never_panic(
        at in 0..super::apis::ANNOUNCED.len(), version in -2i16..20, rest in bytes(),
    ) {
        let key = super::apis::ANNOUNCED[at].key;
        let frame = [&key.to_be_bytes()[..], &version.to_be_bytes(), &rest].concat();
        let parsed = parse_header(&mut Bytes::from(frame));
        if rest.len() < 6 {
            prop_assert!(parsed.is_err());
        }
    }

    #[test]
    fn case_117_arbitrary_produce_bodies_never_panic(version in 3i16..=13, body in bytes()) {
        produce_holds(version, &body.into())?;
    }

    #[test]
    fn case_117_changed_produce_requests_never_panic(
        (version, body) in (3i16..=13).prop_flat_map(|v| (Just(v), changed(produce::golden(v)))),
    ) {
        produce_holds(version, &body)?;
    }

    #[test]
    fn case_117_arbitrary_fetch_bodies_never_panic(version in 4i16..=18, body in bytes()) {
        fetch_holds(version, &body.into())?;
    }

    #[test]
    fn case_117_changed_fetch_requests_never_panic(
        (version, body) in (4i16..=18).prop_flat_map(|v| (Just(v), changed(fetch::golden(v)))),
    ) {
        fetch_holds(version, &body)?;
    }

    #[test]
    fn case_117_changed_and_arbitrary_offset_commits_never_panic(
        (version, body, noise) in
            (2i16..=10).prop_flat_map(|v| (Just(v), changed(offset_commit::tests::golden(v)), bytes())),
    ) {
        for body in [body, noise.into()] {
            if let Ok(request) = offset_commit::decode(version, &body) {
                let partitions: usize = request.topics.iter().map(|topic| topic.partitions.len()).sum();
                prop_assert!(12 * partitions + request.topics.len() <= body.len());
                prop_assert!(request.topics.iter().all(|topic| topic.topic.id().is_some() == (version >= 10)));
            }
        }
    }

    #[test]
    fn case_117_changed_and_arbitrary_offset_fetches_never_panic(
        (version, body, noise) in
            (1i16..=10).prop_flat_map(|v| (Just(v), changed(offset_fetch::tests::golden(v)), bytes())),
    ) {
        for body in [body, noise.into()] {
            if let Ok(request) = offset_fetch::decode(version, &body) {
                prop_assert!(request.groups.len() <= body.len());
                prop_assert!(version >= 8 || request.groups.len() == 1);
                let topics = request.groups.iter().flat_map(|group| group.topics.iter().flatten());
                let indexes: usize = topics.map(|(_, indexes)| indexes.len()).sum();
                prop_assert!(4 * indexes <= body.len());
            }
        }
    }

    #[test]
    fn case_117_changed_and_arbitrary_markers_never_panic(
        (version, body, noise) in
            (1i16..=2).prop_flat_map(|v| (Just(v), changed(write_txn_markers::tests::body(v)), bytes())),
    ) {
        for body in [body, noise.into()] {
            if let Ok(markers) = write_txn_markers::decode(version, &body) {
                let topics = markers.iter().flat_map(|marker| &marker.topics);
                let indexes: usize = topics.map(|(_, indexes)| indexes.len()).sum();
                prop_assert!(16 * markers.len() + 4 * indexes <= body.len());
                prop_assert!(version >= 2 || markers.iter().all(|marker| marker.transaction_version == 0));
            }
        }
    }

    #[test]
    fn case_117_changed_and_arbitrary_api_versions_never_panic(
        (version, body, noise) in
            (0i16..=4).prop_flat_map(|v| (Just(v), changed(api_versions::golden(v)), bytes())),
    ) {
        for body in [body, noise.into()] {
            if let Ok(request) = api_versions::decode(version, &body) {
                prop_assert_eq!(request.software.is_some(), version >= 3);
                prop_assert!(version >= 3 || request.is_valid());
            }
        }
    }
}
