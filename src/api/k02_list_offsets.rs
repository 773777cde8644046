//! ListOffsets (key 2), versions 1 to 11: contract C2.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use oncilla_shards::batch::records::Records;
use oncilla_shards::batch::scan::scan;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{Offset, PartitionKey, TimestampMs};

use super::locate::{check_epoch, locate};
use super::{Answer, Request, codec};
use crate::ctx::Ctx;
use crate::partitions::{Place, Unread, scan_step};

/// The end of what may be read.
const LATEST: i64 = -1;
/// The log start.
const EARLIEST: i64 = -2;
/// The record with the largest timestamp.
const MAX_TIMESTAMP: i64 = -3;
/// As `EARLIEST` without tiered storage.
const EARLIEST_LOCAL: i64 = -4;
/// Nothing without tiered storage.
const LATEST_TIERED: i64 = -5;
/// Nothing without tiered storage.
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// First version whose answer has a leader epoch.
const LEADER_EPOCH_FROM: i16 = 4;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    offset: i64,
    timestamp: i64,
    epoch: i32,
}

const NOTHING: Found = Found { offset: -1, timestamp: -1, epoch: -1 };

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    codec::serve(request, async |decoded: ListOffsetsRequest| {
        let committed = decoded.isolation_level == 1;
        // C1: a level that does not exist is -1 for every partition, before anything is looked at.
        let known_level = (0..=1).contains(&decoded.isolation_level);
        let mut topics = Vec::with_capacity(decoded.topics.len());
        for topic in decoded.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            let mut times: BTreeMap<i32, usize> = BTreeMap::new();
            for asked in &topic.partitions {
                *times.entry(asked.partition_index).or_default() += 1;
            }
            for asked in &topic.partitions {
                let index = asked.partition_index;
                let found = if !known_level {
                    Err(ErrorCode::UnknownServerError)
                } else {
                    match times.remove(&index) {
                        Some(1) => find(ctx, request.version, &topic.name, asked, committed).await,
                        Some(_) => Err(ErrorCode::InvalidRequest),
                        None => continue,
                    }
                };
                partitions.push(answer(request.version, index, found));
            }
            topics.push(ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions));
        }
        ListOffsetsResponse::default().with_topics(topics)
    })
    .await
}

fn answer(version: i16, index: i32, found: Result<Found, ErrorCode>) -> ListOffsetsPartitionResponse {
    let code = found.err().unwrap_or(ErrorCode::None);
    let found = found.unwrap_or(NOTHING);
    ListOffsetsPartitionResponse::default()
        .with_partition_index(index)
        .with_error_code(code.wire())
        .with_offset(found.offset)
        .with_timestamp(found.timestamp)
        .with_leader_epoch(if version < LEADER_EPOCH_FROM { -1 } else { found.epoch })
}

/// The request version that a special timestamp needs; `None` for one that does not exist.
fn version_min(timestamp: i64) -> Option<i16> {
    match timestamp {
        0.. | LATEST | EARLIEST => Some(1),
        MAX_TIMESTAMP => Some(7),
        EARLIEST_LOCAL => Some(8),
        LATEST_TIERED => Some(9),
        EARLIEST_PENDING_UPLOAD => Some(11),
        _ => None,
    }
}

async fn find(
    ctx: &Rc<Ctx>,
    version: i16,
    topic: &str,
    asked: &ListOffsetsPartition,
    committed: bool,
) -> Result<Found, ErrorCode> {
    let (owner, key) = locate(ctx, &ctx.image(), topic, asked.partition_index)?;
    let (timestamp, known_epoch) = (asked.timestamp, asked.current_leader_epoch);
    if version_min(timestamp).is_none_or(|min| version < min) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    ctx.call(owner, move |ctx| async move { find_here(&ctx, key, timestamp, known_epoch, committed).await }).await
}

async fn find_here(
    ctx: &Rc<Ctx>,
    key: PartitionKey,
    timestamp: i64,
    known_epoch: i32,
    committed: bool,
) -> Result<Found, ErrorCode> {
    let (limit, wanted) = {
        let shard = ctx.shard.borrow();
        let partition = shard.asked(&key)?;
        check_epoch(known_epoch, partition.epoch().0)?;
        let limit = if committed { partition.last_stable_offset() } else { partition.high_watermark() };
        let epoch_at = |offset| partition.epochs().at(offset).unwrap_or(partition.epoch()).0;
        let start = partition.log_start();
        match timestamp {
            LATEST => return Ok(Found { offset: limit.0, timestamp: -1, epoch: partition.epoch().0 }),
            EARLIEST | EARLIEST_LOCAL => return Ok(Found { offset: start.0, timestamp: -1, epoch: epoch_at(start) }),
            LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return Ok(NOTHING),
            MAX_TIMESTAMP => match partition.segments().max_timestamp() {
                Some(newest) => (limit, newest),
                None => return Ok(NOTHING),
            },
            _ => (limit, TimestampMs(timestamp)),
        }
    };
    let found = first_at_or_after(ctx, key, wanted).await?;
    Ok(found.filter(|found| found.offset < limit.0).unwrap_or(NOTHING))
}

/// The first record in offset order whose own timestamp is late enough, from the log start on.
async fn first_at_or_after(ctx: &Rc<Ctx>, key: PartitionKey, wanted: TimestampMs) -> Result<Option<Found>, ErrorCode> {
    loop {
        match scan_for(ctx, key, wanted).await {
            Ok(found) => return Ok(found),
            Err(Unread::Code(code)) => return Err(code),
            // Compaction exchanged the segment: it holds the same records or fewer under another name.
            Err(Unread::Replaced) => {}
        }
    }
}

async fn scan_for(ctx: &Rc<Ctx>, key: PartitionKey, wanted: TimestampMs) -> Result<Option<Found>, Unread> {
    let gone = Unread::Code(ErrorCode::UnknownTopicOrPartition);
    let (mut place, start) = {
        let shard = ctx.shard.borrow();
        let partition = shard.partition(&key).ok_or(gone)?;
        let Some(segment) = partition.segments().holding_time(wanted) else { return Ok(None) };
        let position = segment.index.position_of_timestamp(wanted);
        let segment_bytes = segment.bytes();
        (Place { key, segment: segment.id, position, segment_bytes }, partition.log_start())
    };
    loop {
        let batches = scan_step(ctx, place).await?;
        if let Some(found) = search(&batches, wanted, start) {
            return Ok(Some(found));
        }
        place.position += batches.len() as u64;
        if batches.is_empty() || place.position >= place.segment_bytes {
            let shard = ctx.shard.borrow();
            let partition = shard.partition(&key).ok_or(gone)?;
            // Records before the log start can hide behind a segment's largest timestamp: the next one may have it.
            let Some(next) = partition.segments().after(place.segment) else { return Ok(None) };
            place = Place { key, segment: next.id, position: 0, segment_bytes: next.bytes() };
        }
    }
}

fn search(batches: &Bytes, wanted: TimestampMs, start: Offset) -> Option<Found> {
    for (position, header) in scan(batches) {
        if header.max_timestamp < wanted || header.next_offset() <= start {
            continue;
        }
        let batch = &batches[position..position + header.total_bytes()];
        let Ok(records) = Records::open(batch) else { continue };
        let late =
            records.iter().map_while(Result::ok).find(|record| record.timestamp >= wanted && record.offset >= start);
        if let Some(record) = late {
            return Some(Found {
                offset: record.offset.0,
                timestamp: record.timestamp.0,
                epoch: header.leader_epoch.0,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::codec::text;
    use crate::api::testing::{ask, create_topic, ctx};

    /// Code and offset of each partition asked.
    fn listed(version: i16, level: i8, asked: &[(i32, i32)]) -> Vec<(i16, i64)> {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        let partition = |&(index, epoch): &(i32, i32)| {
            let asked = ListOffsetsPartition::default().with_partition_index(index).with_timestamp(LATEST);
            asked.with_current_leader_epoch(epoch)
        };
        let topic = kafka_protocol::messages::list_offsets_request::ListOffsetsTopic::default();
        let topic = topic.with_name(text("t").into()).with_partitions(asked.iter().map(partition).collect());
        let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_isolation_level(level);
        let answer: ListOffsetsResponse = ask(&ctx, 2, version, &request.with_topics(vec![topic]));
        answer.topics[0].partitions.iter().map(|told| (told.error_code, told.offset)).collect()
    }

    #[test]
    fn c2_every_leader_epoch_but_minus_one_is_checked() {
        for version in 4..=10 {
            for (epoch, answer) in [(-1, (0, 0)), (7, (0, 0)), (-5, (74, -1)), (6, (74, -1)), (8, (75, -1))] {
                assert_eq!(listed(version, 0, &[(0, epoch)]), [answer], "version {version}, epoch {epoch}");
            }
        }
    }

    #[test]
    fn c2_a_partition_named_twice_is_refused_once_and_the_others_are_answered() {
        assert_eq!(listed(7, 0, &[(0, -1), (9, -1), (9, -1)]), [(0, 0), (42, -1)]);
        assert_eq!(listed(1, 0, &[(0, -1), (0, -1), (0, -1)]), [(42, -1)]);
    }

    #[test]
    fn c2_a_level_that_does_not_exist_is_minus_one_for_every_partition() {
        for level in [-1, 2] {
            assert_eq!(listed(7, level, &[(0, -1), (9, -1)]), [(-1, -1); 2], "level {level}");
        }
        assert_eq!(listed(7, 1, &[(0, -1), (9, -1)]), [(0, 0), (3, -1)]);
    }
}
