//! Requests of OffsetFetch 1-10 (contract G9.1): a codec of its own, because the crate kafka-protocol knows the answer
//! to version 10, but not the request. Versions up to 7 ask for one group, later ones for a list.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::apis;
use super::error::{WireError, WireFault};
use super::reader::{Reader, share_text};
use super::types::TopicRef;

/// First version that names topics by id.
pub const TOPIC_IDS_FROM: i16 = 10;
/// First version with a list of groups.
pub const GROUPS_FROM: i16 = 8;
const ALL_FROM: i16 = 2;
const STABLE_FROM: i16 = 7;
const MEMBER_FROM: i16 = 9;

/// An OffsetFetch request.
#[derive(Clone, Debug, PartialEq)]
pub struct OffsetFetchRequest {
    /// Groups, exactly one up to version 7.
    pub groups: Vec<FetchedGroup>,
    /// Whether pending offsets are refused.
    pub require_stable: bool,
}

/// A group of an OffsetFetch request.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchedGroup {
    /// Its id.
    pub group: StrBytes,
    /// Who asks.
    pub member_id: Option<StrBytes>,
    /// Member epoch, -1 if not given.
    pub member_epoch: i32,
    /// Topics and indexes; `None` for all.
    pub topics: Option<Vec<(TopicRef, Vec<i32>)>>,
}

/// Reads the body of a request; bytes behind it are ignored (contract KC.6).
pub fn decode(version: i16, body: &Bytes) -> Result<OffsetFetchRequest, WireError> {
    let key = apis::OFFSET_FETCH;
    if !apis::is_served(key, version) {
        return Err(WireError { at: 0, fault: WireFault::UnservedVersion { key, version } });
    }
    let mut reader = Reader::new(body, apis::is_flexible(key, version));
    let mut groups = Vec::new();
    if version < GROUPS_FROM {
        let group = share_text(body, reader.text()?);
        let topics = topics(&mut reader, body, version)?;
        groups.push(FetchedGroup { group, member_id: None, member_epoch: -1, topics });
    } else {
        for _ in 0..reader.count()? {
            groups.push(group(&mut reader, body, version)?);
        }
    }
    let require_stable = version >= STABLE_FROM && reader.bool()?;
    reader.skip_tags()?;
    Ok(OffsetFetchRequest { groups, require_stable })
}

fn group(reader: &mut Reader<'_>, body: &Bytes, version: i16) -> Result<FetchedGroup, WireError> {
    let group = share_text(body, reader.text()?);
    let (mut member_id, mut member_epoch) = (None, -1);
    if version >= MEMBER_FROM {
        member_id = reader.nullable_text()?.map(|id| share_text(body, id));
        member_epoch = reader.i32()?;
    }
    let topics = topics(reader, body, version)?;
    reader.skip_tags()?;
    Ok(FetchedGroup { group, member_id, member_epoch, topics })
}

type Topics = Option<Vec<(TopicRef, Vec<i32>)>>;

fn topics(reader: &mut Reader<'_>, body: &Bytes, version: i16) -> Result<Topics, WireError> {
    let count = if version >= ALL_FROM { reader.nullable_count()? } else { Some(reader.count()?) };
    let Some(count) = count else { return Ok(None) };
    let mut topics = Vec::new();
    for _ in 0..count {
        let topic = TopicRef::read(reader, body, version >= TOPIC_IDS_FROM)?;
        let mut indexes = Vec::new();
        for _ in 0..reader.count()? {
            indexes.push(reader.i32()?);
        }
        reader.skip_tags()?;
        topics.push((topic, indexes));
    }
    Ok(Some(topics))
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::offset_fetch_request::{
        OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    };
    use kafka_protocol::messages::{GroupId, OffsetFetchRequest as TheirRequest, TopicName};
    use kafka_protocol::protocol::Encodable;

    use super::*;

    /// Last version that kafka-protocol encodes.
    const THEIR_MAX: i16 = 9;

    fn text(text: &str) -> StrBytes {
        StrBytes::from_string(text.to_owned())
    }

    fn name(name: &str) -> TopicName {
        TopicName(text(name))
    }

    /// A request as kafka-protocol encodes it: of one group up to version 7, then of two. Version 10 has no topics
    /// here, which makes it equal to version 9.
    pub(in crate::wire) fn golden(version: i16) -> Bytes {
        let mut request = TheirRequest::default().with_require_stable(version >= STABLE_FROM);
        if version < GROUPS_FROM {
            let topic = OffsetFetchRequestTopic::default().with_name(name("a")).with_partition_indexes(vec![0, 4]);
            request = request.with_group_id(GroupId(text("g"))).with_topics(Some(vec![topic]));
        } else {
            let topic = OffsetFetchRequestTopics::default().with_name(name("a")).with_partition_indexes(vec![0, 4]);
            let topics = if version < TOPIC_IDS_FROM { vec![topic] } else { Vec::new() };
            let group = |id: &str| OffsetFetchRequestGroup::default().with_group_id(GroupId(text(id)));
            let first = group("g").with_topics(Some(topics));
            let second = group("all").with_topics(None);
            let second = if version < MEMBER_FROM {
                second
            } else {
                second.with_member_id(Some(text("m"))).with_member_epoch(3)
            };
            request = request.with_groups(vec![first, second]);
        }
        let mut body = BytesMut::new();
        request.encode(&mut body, version.min(THEIR_MAX)).expect("a valid request");
        body.freeze()
    }

    fn expected(version: i16) -> OffsetFetchRequest {
        let topics = if version < TOPIC_IDS_FROM { vec![(TopicRef::Name(text("a")), vec![0, 4])] } else { Vec::new() };
        let mut groups =
            vec![FetchedGroup { group: text("g"), member_id: None, member_epoch: -1, topics: Some(topics) }];
        if version >= GROUPS_FROM {
            let known = version >= MEMBER_FROM;
            let (member_id, member_epoch) = (known.then(|| text("m")), if known { 3 } else { -1 });
            groups.push(FetchedGroup { group: text("all"), member_id, member_epoch, topics: None });
        }
        OffsetFetchRequest { groups, require_stable: version >= STABLE_FROM }
    }

    #[test]
    fn g20_1_requests_are_read_at_every_version() {
        for version in 1..=10 {
            let body = golden(version);
            assert_eq!(decode(version, &body), Ok(expected(version)), "version {version}");
            for length in 0..body.len() {
                assert!(decode(version, &body.slice(..length)).is_err(), "version {version} cut to {length}");
            }
        }
        assert!(decode(0, &golden(1)).is_err() && decode(11, &golden(10)).is_err());
    }

    #[test]
    fn g9_1_topics_may_be_null_from_version_2_and_are_ids_in_version_10() {
        let null = Bytes::from_static(&[0, 1, b'g', 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decode(1, &null).expect_err("required").fault, WireFault::Null);
        assert_eq!(decode(2, &null).expect("all").groups[0].topics, None);
        let id = 7_u128.to_be_bytes();
        let body = [&[2, 2, b'g', 0, 0xff, 0xff, 0xff, 0xff, 2][..], &id, &[2, 0, 0, 0, 9, 0, 0, 1, 0]].concat();
        let request = decode(10, &body.into()).expect("a request");
        let topic = TopicRef::Id(crate::ids::TopicId(7));
        assert_eq!(request.groups[0].topics, Some(vec![(topic, vec![9])]));
        assert!(request.require_stable);
    }
}
