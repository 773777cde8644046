use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;

use super::*;

/// A request body decoded by the crate and encoded by it again, with what it left unread.
type ByThem = fn(&Bytes, i16) -> Result<(Vec<u8>, usize), String>;

fn again<R: Decodable + Encodable>(body: &Bytes, version: i16) -> Result<(Vec<u8>, usize), String> {
    let mut left = body.clone();
    let request = R::decode(&mut left, version).map_err(|error| error.to_string())?;
    let mut encoded = Vec::new();
    request.encode(&mut encoded, version).map_err(|error| error.to_string())?;
    Ok((encoded, left.len()))
}

fn default_body<R: Default + Encodable>(version: i16) -> Option<Bytes> {
    let mut encoded = BytesMut::new();
    R::default().encode(&mut encoded, version).ok().map(|()| encoded.freeze())
}

macro_rules! requests {
    ($($key:literal $request:ident),* $(,)?) => {
        const REQUESTS: &[(i16, ByThem, fn(i16) -> Option<Bytes>)] =
            &[$(($key, again::<$request>, default_body::<$request>)),*];
    };
}

requests! {
    2 ListOffsetsRequest, 3 MetadataRequest, 10 FindCoordinatorRequest, 11 JoinGroupRequest, 12 HeartbeatRequest,
    13 LeaveGroupRequest, 14 SyncGroupRequest, 15 DescribeGroupsRequest, 16 ListGroupsRequest, 19 CreateTopicsRequest,
    20 DeleteTopicsRequest, 21 DeleteRecordsRequest, 22 InitProducerIdRequest, 23 OffsetForLeaderEpochRequest,
    24 AddPartitionsToTxnRequest, 25 AddOffsetsToTxnRequest, 26 EndTxnRequest, 28 TxnOffsetCommitRequest,
    29 DescribeAclsRequest, 30 CreateAclsRequest, 31 DeleteAclsRequest, 32 DescribeConfigsRequest,
    33 AlterConfigsRequest, 35 DescribeLogDirsRequest, 37 CreatePartitionsRequest, 42 DeleteGroupsRequest,
    43 ElectLeadersRequest, 44 IncrementalAlterConfigsRequest, 45 AlterPartitionReassignmentsRequest,
    46 ListPartitionReassignmentsRequest, 47 OffsetDeleteRequest, 48 DescribeClientQuotasRequest,
    49 AlterClientQuotasRequest, 50 DescribeUserScramCredentialsRequest, 51 AlterUserScramCredentialsRequest,
    55 DescribeQuorumRequest, 57 UpdateFeaturesRequest, 60 DescribeClusterRequest, 61 DescribeProducersRequest,
    65 DescribeTransactionsRequest, 66 ListTransactionsRequest,
    68 ConsumerGroupHeartbeatRequest, 69 ConsumerGroupDescribeRequest, 74 ListConfigResourcesRequest,
    75 DescribeTopicPartitionsRequest,
}

/// Every request that has a schema, at every version.
fn every_version() -> impl Iterator<Item = (i16, i16, ByThem)> {
    REQUESTS.iter().flat_map(|&(key, by_them, _)| {
        let range = apis::find(key).expect("announced");
        (range.min..=range.max).map(move |version| (key, version, by_them))
    })
}

fn codec(key: i16, version: i16) -> i16 {
    apis::codec_version(key, version)
}

/// Writes a body as the schema has it, with `choices` deciding about nulls and counts.
struct Filler<'a> {
    out: Vec<u8>,
    version: i16,
    flexible: bool,
    choices: &'a [u8],
    at: usize,
    /// Fields that could be null and are still to be passed before one is null whatever the schema says.
    null_after: Option<usize>,
}

impl Filler<'_> {
    fn choose(&mut self, options: usize) -> usize {
        self.at += 1;
        usize::from(self.choices[self.at % self.choices.len()]) % options
    }

    fn is_forced_null(&mut self, kind: Kind) -> bool {
        let can_be = matches!(kind, Kind::Text | Kind::Bytes | Kind::Array(_) | Kind::OptionalStruct(_));
        match &mut self.null_after {
            Some(0) if can_be => {
                self.null_after = None;
                true
            }
            Some(passed) if can_be => {
                *passed -= 1;
                false
            }
            _ => false,
        }
    }

    fn fields(&mut self, fields: &[Field]) {
        let version = self.version;
        for field in fields.iter().filter(|field| field.is_in(version)) {
            self.value(field.kind, version >= field.null_from);
        }
        if self.flexible {
            match self.choose(8) {
                0 => self.out.extend_from_slice(&[2, 100, 2, 7, 7, 101, 0]),
                _ => self.out.push(0),
            }
        }
    }

    fn length(&mut self, length: Option<usize>, plain_bytes: usize) {
        let plain = length.map_or(-1, |length| length as i32);
        match (self.flexible, plain_bytes) {
            (true, _) => self.out.push((plain + 1) as u8),
            (false, 2) => self.out.extend_from_slice(&(plain as i16).to_be_bytes()),
            (false, _) => self.out.extend_from_slice(&plain.to_be_bytes()),
        }
    }

    fn value(&mut self, kind: Kind, nullable: bool) {
        let is_null = self.is_forced_null(kind) || (nullable && self.choose(4) == 0);
        match kind {
            Kind::Struct(fields) => self.fields(fields),
            Kind::OptionalStruct(_) if is_null => self.out.push(0xff),
            Kind::OptionalStruct(fields) => {
                self.out.push(1);
                self.fields(fields);
            }
            Kind::Text | Kind::Bytes => {
                let length = (!is_null).then(|| self.choose(4));
                self.length(length, if matches!(kind, Kind::Text) { 2 } else { 4 });
                self.out.extend(std::iter::repeat_n(b'x', length.unwrap_or(0)));
            }
            Kind::Array(element) => {
                let count = (!is_null).then(|| self.choose(4));
                self.length(count, 4);
                (0..count.unwrap_or(0)).for_each(|_| self.value(*element, false));
            }
            Kind::Bool => {
                let value = self.choose(2) as u8;
                self.out.push(value);
            }
            fixed => {
                for _ in 0..fixed_bytes(fixed) {
                    let value = self.choose(256) as u8;
                    self.out.push(value);
                }
            }
        }
    }
}

fn filled(key: i16, version: i16, choices: &[u8]) -> Bytes {
    let flexible = apis::is_flexible(key, version);
    let mut filler = Filler { out: Vec::new(), version, flexible, choices, at: 0, null_after: None };
    filler.fields(fields(key).expect("a schema"));
    filler.out.into()
}

/// A body with everything once, and null for the field after `passed` others that could be; `None` behind the last.
fn with_null(key: i16, version: i16, passed: usize) -> Option<Bytes> {
    let flexible = apis::is_flexible(key, version);
    let null_after = Some(passed);
    let mut filler = Filler { out: Vec::new(), version, flexible, choices: &[1], at: 0, null_after };
    filler.fields(fields(key).expect("a schema"));
    filler.null_after.is_none().then(|| filler.out.into())
}

#[test]
fn every_announced_api_has_a_schema_or_a_codec_of_its_own() {
    for range in apis::KNOWN {
        let with_codec = [
            apis::PRODUCE,
            apis::FETCH,
            apis::OFFSET_COMMIT,
            apis::OFFSET_FETCH,
            apis::API_VERSIONS,
            apis::WRITE_TXN_MARKERS,
        ];
        let own = with_codec.contains(&range.key);
        assert_eq!(fields(range.key).is_none(), own, "{range:?}");
        assert_eq!(REQUESTS.iter().any(|(key, ..)| *key == range.key), !own, "{range:?} is tested here");
    }
    assert!(schemas::SCHEMAS.is_sorted_by(|a, b| a.0 < b.0), "looked up by halves");
    assert_eq!(schemas::SCHEMAS.len(), REQUESTS.len());
}

#[test]
fn default_requests_of_kafka_protocol_pass_at_every_version() {
    let mut passed = 0;
    for &(key, _, default_body) in REQUESTS {
        let range = apis::find(key).expect("announced");
        for version in range.min..=range.max {
            if let Some(body) = default_body(codec(key, version)) {
                // The default Metadata request of version 0 is null, which closes (contract K3.1).
                let null_topics = key == 3 && version == 0 && body[..] == [0xff; 4];
                assert_eq!(preflight(key, version, &body).is_err(), null_topics, "{key} {version}");
                passed += 1;
            }
        }
    }
    assert!(passed > 60, "only {passed} defaults can be encoded");
}

#[test]
fn kc_6_a_body_cut_anywhere_passes_only_where_the_crate_reads_it_too() {
    for (key, version, by_them) in every_version() {
        let body = filled(key, version, &[1, 2, 3, 5, 7, 11, 13]);
        assert_eq!(preflight(key, version, &body), Ok(()));
        for length in 0..body.len() {
            let cut = body.slice(..length);
            let passes = preflight(key, version, &cut).is_ok();
            assert!(!passes || by_them(&cut, codec(key, version)).is_ok(), "{key} {version} cut to {length}");
            assert!(!passes, "{key} {version}: every field counts, but {length} of {} bytes pass", body.len());
        }
    }
}

#[test]
fn kc_6_a_hostile_array_count_fails_before_anything_is_allocated() {
    // An array is the first field of a Metadata request.
    let plain = preflight(3, 8, &i32::MAX.to_be_bytes()).expect_err("plain");
    assert_eq!(plain.fault, WireFault::CountAboveFrame { count: i32::MAX as usize, left: 0 });
    let flexible = preflight(3, 12, &[0xff, 0xff, 0xff, 0xff, 0x0f]).expect_err("flexible");
    assert_eq!(flexible.fault, WireFault::CountAboveFrame { count: u32::MAX as usize - 1, left: 0 });
    let endless = preflight(3, 12, &[0xff; 32]).expect_err("varint");
    assert_eq!(endless, WireError { at: 0, fault: WireFault::VarintTooLong });
}

#[test]
fn kc_6_null_closes_where_the_version_does_not_allow_it() {
    let null = [0xff, 0xff, 0xff, 0xff];
    assert_eq!(preflight(3, 0, &null).expect_err("K3.1").fault, WireFault::Null);
    assert_eq!(preflight(3, 1, &null), Ok(()));
    assert_eq!(preflight(19, 2, &[&null[..], &[0; 5]].concat()).expect_err("topics").fault, WireFault::Null);
}

#[test]
fn kc_6_null_passes_exactly_where_the_crate_reads_it() {
    let (mut passed, mut refused) = (0, 0);
    for (key, version, by_them) in every_version() {
        for at in 0.. {
            let Some(body) = with_null(key, version, at) else { break };
            let passes = preflight(key, version, &body).is_ok();
            // The crate does not tell versions apart: a Metadata request has null topics from version 1 on (contract
            // K3.1) and null names from version 10 on, where a topic can have an id instead.
            let too_early = key == 3 && [1, 10][at] > version;
            let read = by_them(&body, codec(key, version)).is_ok_and(|(_, left)| left == 0);
            assert_eq!(passes, read && !too_early, "{key} {version}: field {at} that could be null");
            if passes { passed += 1 } else { refused += 1 }
        }
    }
    assert!(passed > 50 && refused > 100, "{passed} passed, {refused} refused");
}

#[test]
fn kc_6_lengths_below_minus_one_are_null_for_the_crate_too() {
    let body = Bytes::from_static(&[0xff, 0xff, 0xff, 0xfe]);
    let repaired = checked(3, 1, &body).expect("null topics");
    assert_eq!(MetadataRequest::decode(&mut repaired.clone(), 1).expect("repaired").topics, None);
    let body = Bytes::from_static(&[0x80, 0, 0, 0, 0, 9]);
    let repaired = checked(22, 0, &body).expect("null transactional id");
    let request = InitProducerIdRequest::decode(&mut repaired.clone(), 0).expect("repaired");
    assert_eq!((request.transactional_id, request.transaction_timeout_ms), (None, 9));
    let fine = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff]);
    assert_eq!(checked(3, 1, &fine).expect("null topics").as_ptr(), fine.as_ptr(), "nothing to repair, no copy");
}

#[test]
fn kc_6_bytes_behind_the_body_are_ignored() {
    for (key, version, by_them) in every_version() {
        let body = filled(key, version, &[3, 1, 4, 1, 5]);
        let longer = Bytes::from([&body[..], &[9; 5]].concat());
        assert_eq!(preflight(key, version, &longer), Ok(()), "{key} {version}");
        assert_eq!(by_them(&longer, codec(key, version)).map(|(_, left)| left), Ok(5), "{key} {version}");
    }
}

/// Bytes put over, cut from or added to a body.
fn mutated(body: &[u8], changes: &[(usize, u8)], cut: usize) -> Bytes {
    let mut body = body.to_vec();
    for &(at, byte) in changes {
        if !body.is_empty() {
            let at = at % body.len();
            body[at] = byte;
        }
    }
    body.truncate(body.len() - cut.min(body.len()));
    body.into()
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), Just(0xff), Just(0x7f), Just(0x80), Just(0), Just(1), Just(0xfe)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The schema and the crate agree on the layout: what the schema writes, the crate reads and writes alike.
    #[test]
    fn the_schema_has_the_layout_of_the_crate_at_every_version(choices in prop::collection::vec(any::<u8>(), 3..80)) {
        for (key, version, by_them) in every_version() {
            let body = filled(key, version, &choices);
            prop_assert_eq!(preflight(key, version, &body), Ok(()), "{} {}", key, version);
            match by_them(&body, codec(key, version)) {
                Ok((encoded, left)) => {
                    prop_assert_eq!(left, 0, "{} {}", key, version);
                    prop_assert_eq!(&encoded[..], &body[..], "{} {}", key, version);
                }
                Err(error) => prop_assert!(false, "{key} {version}: {error}"),
            }
        }
    }

    /// Whatever passes is decoded by the crate, without a panic and without an error.
    #[test]
    fn kc_6_what_passes_is_decoded_by_the_crate(
        choices in prop::collection::vec(any::<u8>(), 3..40),
        changes in prop::collection::vec((any::<usize>(), byte()), 0..6),
        cut in prop_oneof![3 => Just(0usize), 1 => 0usize..20],
    ) {
        for (key, version, by_them) in every_version() {
            let body = mutated(&filled(key, version, &choices), &changes, cut);
            if let Ok(body) = checked(key, version, &body) {
                let decoded = by_them(&body, codec(key, version));
                prop_assert!(decoded.is_ok(), "{key} {version}: {decoded:?} of {body:?}");
            }
        }
    }

    /// Bytes that never were a request.
    #[test]
    fn case_117_arbitrary_bytes_never_panic(body in prop::collection::vec(byte(), 0..200)) {
        let body = Bytes::from(body);
        for (key, version, by_them) in every_version() {
            if let Ok(body) = checked(key, version, &body) {
                let decoded = by_them(&body, codec(key, version));
                prop_assert!(decoded.is_ok(), "{key} {version}: {decoded:?} of {body:?}");
            }
        }
    }
}
