//! Requests of OffsetCommit 2-10 (contract G8): a codec of its own, because every consumer sends them all the time and
//! the crate kafka-protocol knows the answer to version 10, but not the request.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::apis;
use super::error::{WireError, WireFault};
use super::reader::{Reader, share_text};
use super::types::TopicRef;

/// First version that names topics by id.
pub const TOPIC_IDS_FROM: i16 = 10;
/// Last version with a retention of its own.
const RETENTION_TO: i16 = 4;
const LEADER_EPOCH_FROM: i16 = 6;
const INSTANCE_FROM: i16 = 7;

/// An OffsetCommit request.
#[derive(Clone, Debug, PartialEq)]
pub struct OffsetCommitRequest {
    /// Group.
    pub group: StrBytes,
    /// Generation or member epoch.
    pub generation: i32,
    /// Member, "" if none.
    pub member_id: StrBytes,
    /// Of a static member.
    pub instance_id: Option<StrBytes>,
    /// Retention, -1 if not given.
    pub retention_ms: i64,
    /// What is committed.
    pub topics: Vec<CommittedTopic>,
}

/// A topic of an OffsetCommit request.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedTopic {
    /// As the request names it.
    pub topic: TopicRef,
    /// Its partitions.
    pub partitions: Vec<CommittedPartition>,
}

/// A partition of an OffsetCommit request.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedPartition {
    /// Index.
    pub index: i32,
    /// Offset.
    pub offset: i64,
    /// Leader epoch, -1 if not given.
    pub leader_epoch: i32,
    /// The client's own.
    pub metadata: Option<StrBytes>,
}

/// Reads the body of a request; bytes behind it are ignored (contract KC.6).
pub fn decode(version: i16, body: &Bytes) -> Result<OffsetCommitRequest, WireError> {
    let key = apis::OFFSET_COMMIT;
    if !apis::is_served(key, version) {
        return Err(WireError { at: 0, fault: WireFault::UnservedVersion { key, version } });
    }
    let mut reader = Reader::new(body, apis::is_flexible(key, version));
    let group = share_text(body, reader.text()?);
    let generation = reader.i32()?;
    let member_id = share_text(body, reader.text()?);
    let instance_id = if version >= INSTANCE_FROM { reader.nullable_text()? } else { None };
    let retention_ms = if version <= RETENTION_TO { reader.i64()? } else { -1 };
    let mut topics = Vec::new();
    for _ in 0..reader.count()? {
        let topic = TopicRef::read(&mut reader, body, version >= TOPIC_IDS_FROM)?;
        let mut partitions = Vec::new();
        for _ in 0..reader.count()? {
            let index = reader.i32()?;
            let offset = reader.i64()?;
            let leader_epoch = if version >= LEADER_EPOCH_FROM { reader.i32()? } else { -1 };
            let metadata = reader.nullable_text()?.map(|text| share_text(body, text));
            reader.skip_tags()?;
            partitions.push(CommittedPartition { index, offset, leader_epoch, metadata });
        }
        reader.skip_tags()?;
        topics.push(CommittedTopic { topic, partitions });
    }
    reader.skip_tags()?;
    let instance_id = instance_id.map(|id| share_text(body, id));
    Ok(OffsetCommitRequest { group, generation, member_id, instance_id, retention_ms, topics })
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    use kafka_protocol::messages::{GroupId, OffsetCommitRequest as TheirRequest, TopicName};
    use kafka_protocol::protocol::Encodable;

    use super::*;
    use crate::ids::TopicId;

    /// Last version that kafka-protocol encodes.
    const THEIR_MAX: i16 = 9;

    fn text(text: &str) -> StrBytes {
        StrBytes::from_string(text.to_owned())
    }

    fn expected(version: i16) -> OffsetCommitRequest {
        let from = |first| version >= first;
        let partition = |index: i32, metadata: Option<&str>| CommittedPartition {
            index,
            offset: 77 + i64::from(index),
            leader_epoch: if from(LEADER_EPOCH_FROM) { 3 } else { -1 },
            metadata: metadata.map(text),
        };
        let topic = |id: u128, name| {
            if from(TOPIC_IDS_FROM) { TopicRef::Id(TopicId(id)) } else { TopicRef::Name(text(name)) }
        };
        OffsetCommitRequest {
            group: text("g"),
            generation: 5,
            member_id: text("m"),
            instance_id: from(INSTANCE_FROM).then(|| text("i")),
            retention_ms: if version <= RETENTION_TO { 1000 } else { -1 },
            topics: vec![
                CommittedTopic { topic: topic(1, "a"), partitions: vec![partition(0, None), partition(4, Some("x"))] },
                CommittedTopic { topic: topic(2, "b"), partitions: vec![] },
            ],
        }
    }

    /// A request as kafka-protocol encodes it; version 10 out of version 9, with ids for names.
    pub(in crate::wire) fn golden(version: i16) -> Bytes {
        let from = expected(version.min(THEIR_MAX));
        let topic = |topic: &CommittedTopic| {
            let partition = |one: &CommittedPartition| {
                OffsetCommitRequestPartition::default()
                    .with_partition_index(one.index)
                    .with_committed_offset(one.offset)
                    .with_committed_leader_epoch(one.leader_epoch)
                    .with_committed_metadata(one.metadata.clone())
            };
            OffsetCommitRequestTopic::default()
                .with_name(TopicName(text(topic.topic.name().expect("by name"))))
                .with_partitions(topic.partitions.iter().map(partition).collect())
        };
        let request = TheirRequest::default()
            .with_group_id(GroupId(from.group))
            .with_generation_id_or_member_epoch(from.generation)
            .with_member_id(from.member_id)
            .with_group_instance_id(from.instance_id)
            .with_retention_time_ms(from.retention_ms)
            .with_topics(from.topics.iter().map(topic).collect());
        let mut body = BytesMut::new();
        request.encode(&mut body, version.min(THEIR_MAX)).expect("a valid request");
        if version >= TOPIC_IDS_FROM { by_id(&body) } else { body.freeze() }
    }

    /// Replaces the compact names "a" and "b" by the ids 1 and 2.
    fn by_id(body: &[u8]) -> Bytes {
        let mut out = Vec::new();
        let mut rest = body;
        for (name, id) in [(b"\x02a", 1_u128), (b"\x02b", 2)] {
            let at = rest.windows(2).position(|two| two == name).expect("the name");
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(&id.to_be_bytes());
            rest = &rest[at + 2..];
        }
        out.extend_from_slice(rest);
        out.into()
    }

    #[test]
    fn g20_1_requests_are_read_at_every_version() {
        for version in 2..=10 {
            let body = golden(version);
            assert_eq!(decode(version, &body), Ok(expected(version)), "version {version}");
            let longer = Bytes::from([&body[..], b"behind"].concat());
            assert_eq!(decode(version, &longer), Ok(expected(version)), "KC.6");
            for length in 0..body.len() {
                assert!(decode(version, &body.slice(..length)).is_err(), "version {version} cut to {length}");
            }
        }
        assert!(decode(1, &golden(2)).is_err() && decode(11, &golden(10)).is_err());
    }

    #[test]
    fn case_93_a_null_group_does_not_parse_and_an_empty_one_does() {
        let mut body = golden(2).to_vec();
        body.splice(..3, [0, 0]);
        assert_eq!(decode(2, &body.clone().into()).expect("a request").group.as_str(), "");
        body.splice(..2, [0xff, 0xff]);
        assert_eq!(decode(2, &body.into()).expect_err("null").fault, WireFault::Null);
    }
}
