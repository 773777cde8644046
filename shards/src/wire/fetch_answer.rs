//! The answer to Fetch 4-18 (contract C1). Records are referenced, not copied.

use bytes::Bytes;
use smallvec::SmallVec;

use super::apis;
use super::fetch::{LOG_START_FROM, RACK_FROM, SESSIONS_FROM, TOPIC_IDS_FROM};
use super::types::{CurrentLeader, NodeEndpoint, TopicRef};
use super::writer::{Body, Writer};
use crate::code::ErrorCode;
use crate::ids::{LeaderEpoch, NodeId, Offset, ProducerId};
use crate::limits::PAYLOAD_COPIED_BYTES_MAX;

/// First version that can tell where the client's log leaves the leader's.
const DIVERGING_FROM: i16 = 12;
/// First version in which Kafka names the leader to a client that asked the wrong node.
const CURRENT_LEADER_FROM: i16 = 16;
/// Tag of the diverging epoch in a partition.
const DIVERGING_TAG: u32 = 0;
/// Tag of the leader in a partition.
const CURRENT_LEADER_TAG: u32 = 1;
/// Tag of the addresses at the end of the answer.
const NODE_ENDPOINTS_TAG: u32 = 0;
/// What one partition takes without records and aborted transactions, its topic included.
const PARTITION_BYTES: usize = 96;
/// What one aborted transaction takes.
const ABORTED_BYTES: usize = 17;

/// What a Fetch request is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchAnswer<'a> {
    /// How long the client should wait, 0 without quotas (contract KC.15).
    pub throttle_time_ms: i32,
    /// Error of the session; versions below 7 cannot carry it.
    pub code: ErrorCode,
    /// Session of the answer, 0 for none; versions below 7 have no sessions.
    pub session_id: i32,
    /// The partitions; neighbours of one topic share its entry.
    pub partitions: &'a [FetchPartitionAnswer],
    /// Addresses of the leaders that the partitions name, each once.
    pub node_endpoints: &'a [NodeEndpoint],
}

/// What was found in one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchPartitionAnswer {
    /// Topic as the request named it.
    pub topic: TopicRef,
    /// Index of the partition.
    pub index: i32,
    /// Success or what went wrong; with an error the three offsets are -1.
    pub code: ErrorCode,
    /// End of what is durable.
    pub high_watermark: Offset,
    /// End of what no open transaction holds back.
    pub last_stable_offset: Offset,
    /// Start of the log.
    pub log_start_offset: Offset,
    /// Where the client's log leaves the leader's, told from version 12 on.
    pub diverging: Option<EpochEnd>,
    /// The leader, with [`ErrorCode::NotLeaderOrFollower`] and [`ErrorCode::FencedLeaderEpoch`] only; told from
    /// version 16 on.
    pub current_leader: Option<CurrentLeader>,
    /// Aborted transactions among the records; `None` at isolation level 0.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// Node to fetch from instead, -1 for this one.
    pub preferred_read_replica: NodeId,
    /// The records, in pieces that are parts of the log. None make a field of length zero, never null (case 78).
    pub records: SmallVec<[Bytes; 2]>,
}

impl FetchPartitionAnswer {
    /// An answer that says nothing but its code.
    #[must_use]
    pub fn refused(topic: TopicRef, index: i32, code: ErrorCode) -> Self {
        Self {
            topic,
            index,
            code,
            high_watermark: Offset(-1),
            last_stable_offset: Offset(-1),
            log_start_offset: Offset(-1),
            diverging: None,
            current_leader: None,
            aborted: None,
            preferred_read_replica: NodeId(-1),
            records: SmallVec::new(),
        }
    }
}

/// The end of an epoch in the leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its end offset.
    pub end_offset: Offset,
}

impl EpochEnd {
    /// Bytes of the struct in the flexible encoding.
    const BYTES: u32 = 4 + 8 + 1;
}

/// A transaction whose records the client must skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Its producer.
    pub producer_id: ProducerId,
    /// Its first offset.
    pub first_offset: Offset,
}

/// Encodes the answer to a Fetch request of this version. Fields that the version does not have are left out.
#[must_use]
pub fn encode(version: i16, answer: &FetchAnswer<'_>) -> Body {
    debug_assert!(apis::is_served(apis::FETCH, version));
    let flexible = apis::is_flexible(apis::FETCH, version);
    let mut writer = Writer::new(flexible, 32 + answer.partitions.iter().map(copied_bytes).sum::<usize>());
    writer.reserve_payloads(answer.partitions.iter().map(referenced_payloads).sum());
    writer.i32(answer.throttle_time_ms);
    if version >= SESSIONS_FROM {
        writer.i16(answer.code.wire());
        writer.i32(answer.session_id);
    }
    let topics = || answer.partitions.chunk_by(|a, b| a.topic == b.topic);
    writer.count(topics().count());
    for partitions in topics() {
        partitions[0].topic.write(&mut writer, version >= TOPIC_IDS_FROM);
        writer.count(partitions.len());
        partitions.iter().for_each(|partition| write_partition(&mut writer, version, partition));
        writer.no_tags();
    }
    if version >= CURRENT_LEADER_FROM && !answer.node_endpoints.is_empty() {
        writer.tag_count(1);
        NodeEndpoint::write_tag(answer.node_endpoints, NODE_ENDPOINTS_TAG, &mut writer);
    } else {
        writer.no_tags();
    }
    writer.finish()
}

fn write_partition(writer: &mut Writer, version: i16, partition: &FetchPartitionAnswer) {
    writer.i32(partition.index);
    writer.i16(partition.code.wire());
    writer.i64(partition.high_watermark.0);
    writer.i64(partition.last_stable_offset.0);
    if version >= LOG_START_FROM {
        writer.i64(partition.log_start_offset.0);
    }
    match &partition.aborted {
        None => writer.null_count(),
        Some(aborted) => {
            writer.count(aborted.len());
            for transaction in aborted {
                writer.i64(transaction.producer_id.0);
                writer.i64(transaction.first_offset.0);
                writer.no_tags();
            }
        }
    }
    if version >= RACK_FROM {
        writer.i32(partition.preferred_read_replica.0);
    }
    writer.payload(&partition.records);
    write_partition_tags(writer, version, partition);
}

fn write_partition_tags(writer: &mut Writer, version: i16, partition: &FetchPartitionAnswer) {
    let diverging = partition.diverging.filter(|_| version >= DIVERGING_FROM);
    let leader = partition.current_leader.filter(|_| version >= CURRENT_LEADER_FROM);
    writer.tag_count(u32::from(diverging.is_some()) + u32::from(leader.is_some()));
    if let Some(end) = diverging {
        writer.tag(DIVERGING_TAG, EpochEnd::BYTES);
        writer.i32(end.epoch.0);
        writer.i64(end.end_offset.0);
        writer.no_tags();
    }
    if let Some(leader) = leader {
        writer.tag(CURRENT_LEADER_TAG, CurrentLeader::BYTES);
        leader.write(writer);
    }
}

fn copied_bytes(partition: &FetchPartitionAnswer) -> usize {
    let records = partition.records.iter().map(Bytes::len).filter(|&bytes| bytes < PAYLOAD_COPIED_BYTES_MAX);
    PARTITION_BYTES + ABORTED_BYTES * partition.aborted.as_ref().map_or(0, Vec::len) + records.sum::<usize>()
}

fn referenced_payloads(partition: &FetchPartitionAnswer) -> usize {
    partition.records.iter().filter(|records| records.len() >= PAYLOAD_COPIED_BYTES_MAX).count()
}
