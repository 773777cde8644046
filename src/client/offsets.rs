//! Offsets of partitions by time: where their records begin, end, or are not older than a moment.

use std::collections::BTreeMap;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest};

use super::isolation::Isolation;
use super::{Client, ClientError, TopicView, accepted, topic_name};

/// Last version of ListOffsets before those about tiers.
const LIST_OFFSETS: i16 = 7;

/// The oldest record.
pub const EARLIEST: i64 = -2;

/// What comes after the newest record that the isolation level lets through.
pub const LATEST: i64 = -1;

impl Client {
    /// Offset of the first record at or after a time in ms, [`EARLIEST`] or [`LATEST`], of some partitions; -1 if there
    /// is no such record at this isolation level.
    pub fn offsets_at(
        &mut self,
        topic: &TopicView,
        wanted: impl Fn(i32) -> bool,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<BTreeMap<i32, i64>, ClientError> {
        let mut by_leader: BTreeMap<i32, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for partition in topic.partitions.iter().filter(|known| wanted(known.index)) {
            let asked = ListOffsetsPartition::default()
                .with_partition_index(partition.index)
                .with_current_leader_epoch(-1)
                .with_timestamp(timestamp);
            by_leader.entry(partition.leader).or_default().push(asked);
        }
        let mut found = BTreeMap::new();
        for (leader, partitions) in by_leader {
            let asked = ListOffsetsTopic::default().with_name(topic_name(&topic.name)).with_partitions(partitions);
            let request = ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(isolation.wire())
                .with_topics(vec![asked]);
            let answer = self.call(leader, &request, LIST_OFFSETS)?;
            for one in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                accepted(one.error_code, None, || format!("offsets of {}-{}", topic.name, one.partition_index))?;
                found.insert(one.partition_index, one.offset);
            }
        }
        Ok(found)
    }
}
