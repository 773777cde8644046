//! Produces to one topic, idempotently with acks=all: a batch is sent again until the broker says that it has it.
//!
//! One batch at a time and partition, so sequences are plain counting. Not for throughput.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{InitProducerIdRequest, ProduceRequest};
use oncilla_shards::batch::BatchBuilder;
use oncilla_shards::ids::{Sequence, TimestampMs};

use super::{Client, ClientError, TopicView, accepted, topic_name};
use oncilla_shards::client::partition_of;

/// Last version of Produce with topic names.
const PRODUCE_BY_NAME: i16 = 12;

/// Pause before a batch is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// One record to be produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord {
    /// Its key; decides the partition.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// What a producer does.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// -1 for all, 1, or 0 for no answer.
    pub acks: i16,
    /// Partition for every record, instead of that of its key.
    pub partition: Option<i32>,
    /// Longest time that one batch may take with all its tries.
    pub timeout: Duration,
}

/// A batch that the broker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The partition.
    pub partition: i32,
    /// Offset of the first record, -1 when the broker does not say.
    pub base_offset: i64,
    /// Number of records.
    pub records: usize,
}

/// A producer for one topic.
pub struct Producer {
    client: Client,
    topic: TopicView,
    options: ProducerOptions,
    identity: Option<(i64, i16)>,
    sequences: HashMap<i32, Sequence>,
    turn: usize,
}

impl Producer {
    /// Finds the topic, which the broker may create, and takes a producer id.
    pub fn open(mut client: Client, topic: &str, options: ProducerOptions) -> Result<Self, ClientError> {
        let until = Instant::now() + options.timeout;
        let topic = retry(until, || match client.topic(topic, true) {
            // A topic made by this very request may have no leader yet.
            Ok(topic) if topic.partitions.is_empty() => {
                Err(ClientError::Refused { what: format!("topic {}", topic.name), code: 5, message: None })
            }
            other => other,
        })?;
        if let Some(index) = options.partition
            && !topic.partitions.iter().any(|partition| partition.index == index)
        {
            return Err(ClientError::Protocol(format!("topic {} has no partition {index}", topic.name)));
        }
        let identity = (options.acks == -1).then(|| retry(until, || producer_id(&mut client))).transpose()?;
        Ok(Self { client, topic, options, identity, sequences: HashMap::new(), turn: 0 })
    }

    /// Sends all records and waits until the broker has them. Records of one partition keep their order.
    pub fn send(&mut self, records: Vec<NewRecord>) -> Result<Vec<Delivered>, ClientError> {
        let mut by_partition: Vec<(i32, Vec<NewRecord>)> = Vec::new();
        // Records without a key go together: the next ones without a key go elsewhere.
        self.turn += 1;
        for record in records {
            let partition = self.partition(record.key.as_deref());
            match by_partition.iter_mut().find(|(index, _)| *index == partition) {
                Some((_, all)) => all.push(record),
                None => by_partition.push((partition, vec![record])),
            }
        }
        by_partition.into_iter().map(|(partition, records)| self.deliver(partition, &records)).collect()
    }

    fn partition(&self, key: Option<&[u8]>) -> i32 {
        if let Some(index) = self.options.partition {
            return index;
        }
        let all = &self.topic.partitions;
        let index = key.map_or(self.turn % all.len(), |key| partition_of(key, all.len()));
        all[index].index
    }

    fn deliver(&mut self, partition: i32, records: &[NewRecord]) -> Result<Delivered, ClientError> {
        let first = self.sequences.get(&partition).copied().unwrap_or(Sequence(0));
        let batch = Bytes::from(build(records, self.identity, first));
        let until = Instant::now() + self.options.timeout;
        let base_offset = loop {
            match self.try_once(partition, &batch) {
                Ok(offset) => break offset,
                // Without an identity a batch that was sent twice could be stored twice.
                Err(error) if self.identity.is_none() || !error.is_retriable() || Instant::now() >= until => {
                    return Err(error);
                }
                Err(_) => {
                    std::thread::sleep(RETRY_PAUSE);
                    // The leader may have moved; what fails here fails again in the next try.
                    if let Ok(topic) = self.client.topic(&self.topic.name.clone(), false) {
                        self.topic = topic;
                    }
                }
            }
        };
        let count = i32::try_from(records.len()).expect("a batch holds fewer records than its bytes");
        self.sequences.insert(partition, first.plus(count));
        Ok(Delivered { partition, base_offset, records: records.len() })
    }

    fn try_once(&mut self, partition: i32, batch: &Bytes) -> Result<i64, ClientError> {
        let what = || format!("produce to {}-{partition}", self.topic.name);
        let found = self.topic.partitions.iter().find(|known| known.index == partition);
        let leader = found.map(|known| known.leader).unwrap_or(-1);
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.clone()));
        let topic = TopicProduceData::default().with_name(topic_name(&self.topic.name)).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_acks(self.options.acks)
            .with_timeout_ms(i32::try_from(self.options.timeout.as_millis()).unwrap_or(i32::MAX))
            .with_topic_data(vec![topic]);
        if self.options.acks == 0 {
            return self.client.send(leader, &request, PRODUCE_BY_NAME).map(|()| -1);
        }
        let answer = self.client.call(leader, &request, PRODUCE_BY_NAME)?;
        let one = answer.responses.first().and_then(|topic| topic.partition_responses.first());
        let one = one.ok_or_else(|| ClientError::Protocol("a Produce answer names no partition".into()))?;
        accepted(one.error_code, one.error_message.as_ref(), what)?;
        Ok(one.base_offset)
    }
}

fn build(records: &[NewRecord], identity: Option<(i64, i16)>, first: Sequence) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = TimestampMs(i64::try_from(now).unwrap_or(i64::MAX));
    let mut batch = BatchBuilder::new();
    if let Some((id, epoch)) = identity {
        batch = batch.producer(id, epoch, first.0);
    }
    for record in records {
        let headers: Vec<_> =
            record.headers.iter().map(|(name, value)| (name.as_bytes(), Some(value.as_slice()))).collect();
        batch = batch.record_at(now, record.key.as_deref(), record.value.as_deref(), &headers);
    }
    batch.build()
}

fn producer_id(client: &mut Client) -> Result<(i64, i16), ClientError> {
    let node = client.cluster().nodes.keys().next().copied().unwrap_or(-1);
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(i32::MAX)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let answer = client.call(node, &request, i16::MAX)?;
    accepted(answer.error_code, None, || "InitProducerId".into())?;
    Ok((answer.producer_id.0, answer.producer_epoch))
}

fn retry<T>(until: Instant, mut attempt: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    loop {
        match attempt() {
            // A broker that is not there at all is told at once.
            Err(error @ ClientError::Refused { .. }) if error.is_retriable() && Instant::now() < until => {
                std::thread::sleep(RETRY_PAUSE);
            }
            done => return done,
        }
    }
}
