//! Fetch 4-18: the request, sessions included, and the answer, which references the records (contract C1).
//!
//! Decoding a request of one topic with one partition allocates nothing. What sessions, epochs and sizes mean is the
//! caller's. The tags of a partition that only followers of a metadata quorum use are skipped.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use smallvec::SmallVec;

pub use super::fetch_answer::{AbortedTransaction, EpochEnd, FetchAnswer, FetchPartitionAnswer, encode};

use super::apis;
use super::error::{WireError, WireFault};
use super::reader::{Reader, share_text};
use super::types::TopicRef;
use crate::ids::{LeaderEpoch, Offset};

/// First version that names topics by id.
pub(super) const TOPIC_IDS_FROM: i16 = 13;
/// First version with the start offset of the log.
pub(super) const LOG_START_FROM: i16 = 5;
/// First version with sessions.
pub(super) const SESSIONS_FROM: i16 = 7;
/// First version with the leader epoch that the client knows.
const CURRENT_EPOCH_FROM: i16 = 9;
/// First version with the client's rack, answered with a preferred replica.
pub(super) const RACK_FROM: i16 = 11;
/// First version with the epoch of the last record fetched, and with tags.
const LAST_EPOCH_FROM: i16 = 12;
/// First version that tells the replica's id in a tag instead of a field.
const REPLICA_STATE_FROM: i16 = 15;
/// What a partition takes at least in any version: a count that claims more is not believed.
const PARTITION_BYTES_MIN: usize = 16;
/// Tag of the cluster id.
const CLUSTER_ID_TAG: u32 = 0;
/// Tag of the replica state.
const REPLICA_STATE_TAG: u32 = 1;

/// A Fetch request.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Version of the request.
    pub version: i16,
    /// Cluster that the client expects to talk to, if it says so.
    pub cluster_id: Option<StrBytes>,
    /// Node id of a follower, -1 for consumers.
    pub replica_id: i32,
    /// Epoch of a follower, -1 for consumers.
    pub replica_epoch: i64,
    /// How long to wait for `min_bytes`.
    pub max_wait_ms: i32,
    /// Bytes worth answering for.
    pub min_bytes: i32,
    /// Bytes that the answer should not exceed.
    pub max_bytes: i32,
    /// 0 uncommitted, 1 committed, anything else is refused.
    pub isolation_level: i8,
    /// Session that this request belongs to, 0 for none.
    pub session_id: i32,
    /// Epoch in the session; -1 without one.
    pub session_epoch: i32,
    /// All partitions of all topics, in the order of the request.
    pub partitions: SmallVec<[FetchPartition; 1]>,
    /// Partitions that leave the session.
    pub forgotten: Vec<ForgottenPartition>,
    /// Rack of the client, empty if it has none.
    pub rack_id: StrBytes,
}

/// What is asked of one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchPartition {
    /// Topic as the request names it.
    pub topic: TopicRef,
    /// Index of the partition.
    pub index: i32,
    /// The leader's epoch as the client knows it, -1 if it does not.
    pub current_leader_epoch: LeaderEpoch,
    /// First offset wanted.
    pub fetch_offset: Offset,
    /// Epoch of the last record fetched, -1 if unknown.
    pub last_fetched_epoch: LeaderEpoch,
    /// Start of a follower's log, -1 for consumers.
    pub log_start_offset: Offset,
    /// Bytes wanted of this partition.
    pub max_bytes: i32,
}

/// A partition that leaves the session.
#[derive(Clone, Debug, PartialEq)]
pub struct ForgottenPartition {
    /// Topic as the request names it.
    pub topic: TopicRef,
    /// Index of the partition.
    pub index: i32,
}

/// Reads the body of a Fetch request; bytes behind it are ignored (contract KC.6).
///
/// As with Produce, `body` should come from a shared buffer.
pub fn decode(version: i16, body: &Bytes) -> Result<FetchRequest, WireError> {
    if !apis::is_served(apis::FETCH, version) {
        return Err(WireError { at: 0, fault: WireFault::UnservedVersion { key: apis::FETCH, version } });
    }
    let mut reader = Reader::new(body, apis::is_flexible(apis::FETCH, version));
    let mut request = FetchRequest {
        version,
        cluster_id: None,
        replica_id: if version < REPLICA_STATE_FROM { reader.i32()? } else { -1 },
        replica_epoch: -1,
        max_wait_ms: reader.i32()?,
        min_bytes: reader.i32()?,
        max_bytes: reader.i32()?,
        isolation_level: reader.i8()?,
        session_id: if version >= SESSIONS_FROM { reader.i32()? } else { 0 },
        session_epoch: if version >= SESSIONS_FROM { reader.i32()? } else { -1 },
        partitions: SmallVec::new(),
        forgotten: Vec::new(),
        rack_id: StrBytes::new(),
    };
    for _ in 0..reader.count()? {
        let topic = TopicRef::read(&mut reader, body, version >= TOPIC_IDS_FROM)?;
        let count = reader.count()?;
        request.partitions.reserve(count.min(reader.left() / PARTITION_BYTES_MIN));
        for _ in 0..count {
            let partition = read_partition(&mut reader, version, &topic)?;
            request.partitions.push(partition);
        }
        reader.skip_tags()?;
    }
    if version >= SESSIONS_FROM {
        read_forgotten(&mut reader, body, version, &mut request.forgotten)?;
    }
    if version >= RACK_FROM {
        request.rack_id = share_text(body, reader.text()?);
    }
    read_tags(&mut reader, body, version, &mut request)?;
    Ok(request)
}

fn read_partition(reader: &mut Reader<'_>, version: i16, topic: &TopicRef) -> Result<FetchPartition, WireError> {
    let partition = FetchPartition {
        topic: topic.clone(),
        index: reader.i32()?,
        current_leader_epoch: LeaderEpoch(if version >= CURRENT_EPOCH_FROM { reader.i32()? } else { -1 }),
        fetch_offset: Offset(reader.i64()?),
        last_fetched_epoch: LeaderEpoch(if version >= LAST_EPOCH_FROM { reader.i32()? } else { -1 }),
        log_start_offset: Offset(if version >= LOG_START_FROM { reader.i64()? } else { -1 }),
        max_bytes: reader.i32()?,
    };
    reader.skip_tags()?;
    Ok(partition)
}

fn read_forgotten(
    reader: &mut Reader<'_>,
    body: &Bytes,
    version: i16,
    forgotten: &mut Vec<ForgottenPartition>,
) -> Result<(), WireError> {
    for _ in 0..reader.count()? {
        let topic = TopicRef::read(reader, body, version >= TOPIC_IDS_FROM)?;
        for _ in 0..reader.count()? {
            forgotten.push(ForgottenPartition { topic: topic.clone(), index: reader.i32()? });
        }
        reader.skip_tags()?;
    }
    Ok(())
}

fn read_tags(reader: &mut Reader<'_>, body: &Bytes, version: i16, request: &mut FetchRequest) -> Result<(), WireError> {
    reader.tags(|tag, field| {
        match tag {
            CLUSTER_ID_TAG => request.cluster_id = field.nullable_text()?.map(|id| share_text(body, id)),
            REPLICA_STATE_TAG if version >= REPLICA_STATE_FROM => {
                request.replica_id = field.i32()?;
                request.replica_epoch = field.i64()?;
                field.skip_tags()?;
            }
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;

#[cfg(test)]
pub(super) use tests::encoded_by_them as golden;
