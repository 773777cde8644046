//! Transactions that hang: open in a partition, while no coordinator knows that the partition is in them (KIP-664).
//!
//! Such a transaction holds back every read_committed consumer of its partition until someone writes its marker.
//! Oncilla's own reconcile ends those that it finds; these calls are for any cluster, and for looking.

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{DescribeProducersRequest, ProducerId, WriteTxnMarkersRequest};

use super::{Client, ClientError, TopicView, accepted, topic_name};

/// The version of WriteTxnMarkers that names no transaction version.
const MARKERS_VERSION_MAX: i16 = 1;

/// A transaction that is open in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTxn {
    /// The partition's topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Who writes.
    pub producer_id: i64,
    /// The producer's epoch.
    pub epoch: i16,
    /// Epoch of the coordinator that last wrote a marker for this producer here; -1 if none did.
    pub coordinator_epoch: i32,
    /// Where the transaction begins.
    pub start_offset: i64,
    /// When the producer wrote last, in ms since 1970.
    pub last_ms: i64,
}

impl Client {
    /// Transactions that are open in the partitions of a topic, or in every partition of the cluster.
    pub fn open_transactions(&mut self, topic: Option<&str>) -> Result<Vec<OpenTxn>, ClientError> {
        let topics = match topic {
            Some(name) => vec![self.topic(name, false)?],
            None => self.refresh(None, false)?.topics.clone(),
        };
        let mut open = Vec::new();
        for topic in &topics {
            for partition in &topic.partitions {
                accepted(partition.error, None, || format!("partition {} of {}", partition.index, topic.name))?;
                open.extend(self.open_in(topic, partition.index, partition.leader)?);
            }
        }
        Ok(open)
    }

    fn open_in(&mut self, topic: &TopicView, index: i32, leader: i32) -> Result<Vec<OpenTxn>, ClientError> {
        let wanted = TopicRequest::default().with_name(topic_name(&topic.name)).with_partition_indexes(vec![index]);
        let answer = self.call(leader, &DescribeProducersRequest::default().with_topics(vec![wanted]), i16::MAX)?;
        let what = || format!("producers of {} partition {index}", topic.name);
        let found = answer.topics.into_iter().flat_map(|one| one.partitions).next();
        let found = found.ok_or_else(|| ClientError::Protocol(format!("{} are left out of the answer", what())))?;
        accepted(found.error_code, found.error_message.as_ref(), what)?;
        let mut open = Vec::new();
        for state in found.active_producers.into_iter().filter(|state| state.current_txn_start_offset >= 0) {
            let epoch = i16::try_from(state.producer_epoch)
                .map_err(|_| ClientError::Protocol(format!("{}: {} is no epoch", what(), state.producer_epoch)))?;
            open.push(OpenTxn {
                topic: topic.name.clone(),
                partition: index,
                producer_id: state.producer_id.0,
                epoch,
                coordinator_epoch: state.coordinator_epoch,
                start_offset: state.current_txn_start_offset,
                last_ms: state.last_timestamp,
            });
        }
        Ok(open)
    }

    /// Open transactions that nobody wrote to since a time, and that no coordinator will end.
    pub fn hanging_transactions(
        &mut self,
        topic: Option<&str>,
        quiet_since_ms: i64,
    ) -> Result<Vec<OpenTxn>, ClientError> {
        let mut open = self.open_transactions(topic)?;
        open.retain(|one| one.last_ms < quiet_since_ms);
        if open.is_empty() {
            return Ok(open);
        }
        let known = self.transactions(&[])?;
        let mut hanging = Vec::new();
        for one in open {
            let mut is_known = false;
            for summary in known.iter().filter(|summary| summary.producer_id == one.producer_id) {
                let view = self.transaction(&summary.id)?;
                is_known |= view.partitions.iter().any(|(topic, partitions)| {
                    *topic == one.topic && partitions.contains(&one.partition) && view.producer_id == one.producer_id
                });
            }
            if !is_known {
                hanging.push(one);
            }
        }
        Ok(hanging)
    }

    /// Writes the abort marker of a transaction that is open in a partition.
    pub fn abort_open(&mut self, one: &OpenTxn) -> Result<(), ClientError> {
        let topic = self.topic(&one.topic, false)?;
        let what =
            || format!("abort of the transaction at offset {} of {} {}", one.start_offset, one.topic, one.partition);
        let led = topic.partitions.iter().find(|partition| partition.index == one.partition);
        let leader = led.ok_or_else(|| ClientError::Protocol(format!("{}: no such partition", what())))?.leader;
        let place = WritableTxnMarkerTopic::default()
            .with_name(topic_name(&one.topic))
            .with_partition_indexes(vec![one.partition]);
        let marker = WritableTxnMarker::default()
            .with_producer_id(ProducerId(one.producer_id))
            .with_producer_epoch(one.epoch)
            .with_transaction_result(false)
            .with_topics(vec![place])
            .with_coordinator_epoch(one.coordinator_epoch.max(0));
        let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
        let answer = self.call(leader, &request, MARKERS_VERSION_MAX)?;
        let mut results = answer.markers.into_iter().flat_map(|one| one.topics).flat_map(|one| one.partitions);
        let result = results.next();
        let result = result.ok_or_else(|| ClientError::Protocol(format!("{} is left out of the answer", what())))?;
        accepted(result.error_code, None, what)
    }
}
