//! The answer to Produce 3-13 (contract K0.22, K0.23).

use std::borrow::Cow;

use super::apis;
use super::produce::TOPIC_IDS_FROM;
use super::types::{CurrentLeader, NodeEndpoint, TopicRef};
use super::writer::{Body, Writer};
use crate::code::ErrorCode;
use crate::ids::{Offset, TimestampMs};

/// First version with the start offset of the log.
const LOG_START_FROM: i16 = 5;
/// First version that tells which records were wrong, and why.
const RECORD_ERRORS_FROM: i16 = 8;
/// First version that names the leader to a client that asked the wrong node.
const CURRENT_LEADER_FROM: i16 = 10;
/// Tag of the leader in a partition.
const CURRENT_LEADER_TAG: u32 = 0;
/// Tag of the addresses at the end of the answer.
const NODE_ENDPOINTS_TAG: u32 = 0;
/// What one partition without texts takes, its topic included.
const PARTITION_BYTES: usize = 96;

/// What a Produce request is answered.
#[derive(Clone, Debug, Default)]
pub struct ProduceAnswer<'a> {
    /// The partitions; neighbours of one topic share its entry.
    pub partitions: &'a [ProducePartitionAnswer],
    /// Addresses of the leaders that the partitions name, each once.
    pub node_endpoints: &'a [NodeEndpoint],
    /// How long the client should wait, 0 without quotas (contract KC.15).
    pub throttle_time_ms: i32,
}

/// What became of one partition of a Produce request.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducePartitionAnswer {
    /// Topic as the request named it.
    pub topic: TopicRef,
    /// Index of the partition.
    pub index: i32,
    /// Success or what went wrong.
    pub code: ErrorCode,
    /// Offset of the first record, -1 with an error.
    pub base_offset: Offset,
    /// The broker's time under LogAppendTime, else -1.
    pub log_append_time_ms: TimestampMs,
    /// Start of the log if the request reached it, else -1 (contract K0.22).
    pub log_start_offset: Offset,
    /// Index in the batch of every record that was wrong, and why (contract K0.17, K0.18).
    pub record_errors: Vec<(i32, Option<String>)>,
    /// For the eyes of a user (contract K0.23).
    pub error_message: Option<Cow<'static, str>>,
    /// The leader, with [`ErrorCode::NotLeaderOrFollower`] only.
    pub current_leader: Option<CurrentLeader>,
}

impl ProducePartitionAnswer {
    /// An answer that says nothing but its code.
    #[must_use]
    pub fn refused(topic: TopicRef, index: i32, code: ErrorCode) -> Self {
        Self {
            topic,
            index,
            code,
            base_offset: Offset(-1),
            log_append_time_ms: TimestampMs(-1),
            log_start_offset: Offset(-1),
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }
}

/// Encodes the answer to a Produce request of this version. Fields that the version does not have are left out.
#[must_use]
pub fn encode(version: i16, answer: &ProduceAnswer<'_>) -> Body {
    debug_assert!(apis::is_served(apis::PRODUCE, version));
    let flexible = apis::is_flexible(apis::PRODUCE, version);
    let mut writer = Writer::new(flexible, 32 + PARTITION_BYTES * answer.partitions.len());
    let topics = || answer.partitions.chunk_by(|a, b| a.topic == b.topic);
    writer.count(topics().count());
    for partitions in topics() {
        partitions[0].topic.write(&mut writer, version >= TOPIC_IDS_FROM);
        writer.count(partitions.len());
        partitions.iter().for_each(|partition| write_partition(&mut writer, version, partition));
        writer.no_tags();
    }
    writer.i32(answer.throttle_time_ms);
    if version >= CURRENT_LEADER_FROM && !answer.node_endpoints.is_empty() {
        writer.tag_count(1);
        NodeEndpoint::write_tag(answer.node_endpoints, NODE_ENDPOINTS_TAG, &mut writer);
    } else {
        writer.no_tags();
    }
    writer.finish()
}

fn write_partition(writer: &mut Writer, version: i16, partition: &ProducePartitionAnswer) {
    writer.i32(partition.index);
    writer.i16(partition.code.wire());
    writer.i64(partition.base_offset.0);
    writer.i64(partition.log_append_time_ms.0);
    if version >= LOG_START_FROM {
        writer.i64(partition.log_start_offset.0);
    }
    if version >= RECORD_ERRORS_FROM {
        writer.count(partition.record_errors.len());
        for (index, message) in &partition.record_errors {
            writer.i32(*index);
            writer.nullable_text(message.as_deref());
            writer.no_tags();
        }
        writer.nullable_text(partition.error_message.as_deref());
    }
    match partition.current_leader {
        Some(leader) if version >= CURRENT_LEADER_FROM => {
            writer.tag_count(1);
            writer.tag(CURRENT_LEADER_TAG, CurrentLeader::BYTES);
            leader.write(writer);
        }
        _ => writer.no_tags(),
    }
}
