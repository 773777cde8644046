//! Offsets of partitions by time: where their records begin, end, or are not older than a moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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

/// How long leaders are asked again that do not answer for a partition yet, as after their start.
const RETRY_WAIT: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

impl Client {
    /// Offset of the first record at or after a time in ms, [`EARLIEST`] or [`LATEST`], of some partitions; -1 if there
    /// is no such record at this isolation level. A partition without a leader is waited for.
    pub fn offsets_at(
        &mut self,
        topic: &TopicView,
        wanted: impl Fn(i32) -> bool,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<BTreeMap<i32, i64>, ClientError> {
        let mut topic = topic.clone();
        topic.partitions.retain(|known| wanted(known.index));
        let mut found = BTreeMap::new();
        let until = Instant::now() + RETRY_WAIT;
        loop {
            let refused = self.ask_leaders(&topic, timestamp, isolation, &mut found)?;
            let Some(refused) = refused else { return Ok(found) };
            if !refused.is_retriable() || Instant::now() > until {
                return Err(refused);
            }
            std::thread::sleep(RETRY_PAUSE);
            topic = self.topic(&topic.name, false)?;
            topic.partitions.retain(|known| wanted(known.index) && !found.contains_key(&known.index));
        }
    }

    /// Asks every leader once. The first refusal of a partition, if there is one; of the others what was found.
    fn ask_leaders(
        &mut self,
        topic: &TopicView,
        timestamp: i64,
        isolation: Isolation,
        found: &mut BTreeMap<i32, i64>,
    ) -> Result<Option<ClientError>, ClientError> {
        let mut by_leader: BTreeMap<i32, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for partition in &topic.partitions {
            let asked = ListOffsetsPartition::default()
                .with_partition_index(partition.index)
                .with_current_leader_epoch(-1)
                .with_timestamp(timestamp);
            by_leader.entry(partition.leader).or_default().push(asked);
        }
        let mut refused = None;
        for (leader, partitions) in by_leader {
            let asked = ListOffsetsTopic::default().with_name(topic_name(&topic.name)).with_partitions(partitions);
            let request = ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(isolation.wire())
                .with_topics(vec![asked]);
            let answer = self.call(leader, &request, LIST_OFFSETS)?;
            for one in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                let what = || format!("offsets of {}-{}", topic.name, one.partition_index);
                match accepted(one.error_code, None, what) {
                    Ok(()) => drop(found.insert(one.partition_index, one.offset)),
                    // One that can be asked again must not hide one that cannot.
                    Err(error) if refused.as_ref().is_none_or(ClientError::is_retriable) => refused = Some(error),
                    Err(_) => {}
                }
            }
        }
        Ok(refused)
    }
}
