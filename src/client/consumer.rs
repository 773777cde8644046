//! Reads partitions of one topic from given offsets on, without a group.

use std::collections::BTreeMap;

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest};
use oncilla_shards::batch::records::Records;
use oncilla_shards::batch::{BatchHeader, scan};
use oncilla_shards::code::ErrorCode;

use super::groups::Committer;
use super::isolation::{Aborted, Isolation};
use super::offsets::{EARLIEST, LATEST};
use super::{Client, ClientError, TopicView, accepted, topic_name};

/// Last version of Fetch with topic names.
const FETCH_BY_NAME: i16 = 12;

const FETCH_BYTES: i32 = 8 << 20;
const WAIT_MS: i32 = 500;

/// One record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRecord {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its time.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The oldest record.
    Beginning,
    /// What comes after the newest.
    End,
    /// This offset.
    Offset(i64),
}

/// A consumer of one topic.
pub struct Consumer {
    client: Client,
    topic: TopicView,
    positions: BTreeMap<i32, i64>,
    isolation: Isolation,
    /// What went wrong when there were records to give out.
    failed: Option<ClientError>,
}

impl Consumer {
    /// Takes all partitions of the topic, or one.
    pub fn open(
        mut client: Client,
        topic: &str,
        partition: Option<i32>,
        from: From,
        isolation: Isolation,
    ) -> Result<Self, ClientError> {
        let topic = client.topic(topic, false)?;
        let wanted =
            topic.partitions.iter().map(|known| known.index).filter(|index| partition.is_none_or(|p| p == *index));
        let positions: BTreeMap<i32, i64> = wanted.map(|index| (index, 0)).collect();
        if positions.is_empty() {
            let which = partition.map_or("partitions".into(), |index| format!("partition {index}"));
            return Err(ClientError::Protocol(format!("topic {} has no {which}", topic.name)));
        }
        let mut consumer = Self { client, topic, positions, isolation, failed: None };
        consumer.positions = match from {
            From::Beginning => consumer.offsets(EARLIEST)?,
            From::End => consumer.offsets(LATEST)?,
            From::Offset(offset) => consumer.positions.keys().map(|index| (*index, offset)).collect(),
        };
        Ok(consumer)
    }

    /// Takes no partition yet; a subscriber does when it is assigned some.
    pub(super) fn unassigned(client: Client, topic: TopicView, isolation: Isolation) -> Self {
        Self { client, topic, positions: BTreeMap::new(), isolation, failed: None }
    }

    /// Reads these partitions too, each from its offset on.
    pub(super) fn take(&mut self, positions: BTreeMap<i32, i64>) {
        self.positions.extend(positions);
    }

    /// Reads this partition no longer.
    pub(super) fn give(&mut self, partition: i32) {
        self.positions.remove(&partition);
    }

    /// The topic as of the last look.
    pub(super) fn topic(&self) -> &TopicView {
        &self.topic
    }

    /// Looks at the topic again.
    pub(super) fn look_again(&mut self) -> Result<(), ClientError> {
        let name = self.topic.name.clone();
        self.topic = self.client.topic(&name, false)?;
        Ok(())
    }

    /// The connections that it reads over, for other requests.
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Where every partition ends for now: what is behind is not there, or not to be seen yet.
    pub fn ends(&mut self) -> Result<BTreeMap<i32, i64>, ClientError> {
        self.offsets(LATEST)
    }

    /// Offset of the next record to be read, of every partition.
    #[must_use]
    pub fn positions(&self) -> &BTreeMap<i32, i64> {
        &self.positions
    }

    /// Gives up all partitions but these: others may read the rest.
    pub fn keep(&mut self, kept: impl Fn(i32) -> bool) {
        self.positions.retain(|index, _| kept(*index));
    }

    /// Goes on at this offset.
    pub fn seek(&mut self, partition: i32, offset: i64) {
        if let Some(position) = self.positions.get_mut(&partition) {
            *position = offset;
        }
    }

    /// Goes on where a group has committed, in the partitions in which it has.
    pub fn resume(&mut self, group: &str) -> Result<(), ClientError> {
        let committed = self.client.committed(group)?;
        for one in committed.iter().filter(|one| one.topic == self.topic.name && one.offset >= 0) {
            if let Some(position) = self.positions.get_mut(&one.partition) {
                *position = one.offset;
            }
        }
        Ok(())
    }

    /// Commits for a group without members that it goes on at these offsets, by partition.
    pub fn commit(&mut self, group: &str, offsets: &BTreeMap<i32, i64>) -> Result<(), ClientError> {
        let key = |index: i32| (self.topic.name.clone(), index);
        let offsets = offsets.iter().map(|(index, offset)| (key(*index), *offset)).collect();
        self.client.commit(group, Committer::OUTSIDE, &offsets)
    }

    /// Reads what is there; waits a moment when nothing is.
    pub fn poll(&mut self) -> Result<Vec<ReadRecord>, ClientError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let by_leader = self.by_leader();
        let wait_ms = WAIT_MS / i32::try_from(by_leader.len().max(1)).unwrap_or(WAIT_MS);
        let mut records = Vec::new();
        for (leader, partitions) in by_leader {
            let read = match self.fetch(leader, &partitions, wait_ms, &mut records) {
                Err(error) if error.is_retriable() && !matches!(error, ClientError::Io { .. }) => self.look_again(),
                other => other,
            };
            match read {
                Err(error) if records.is_empty() => return Err(error),
                // Positions are behind the records that are there, so they must come out; the error comes next.
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
                Ok(()) => {}
            }
        }
        Ok(records)
    }

    /// Its partitions by the node that leads them. One consumer asks one node after the other; who wants them asked at
    /// the same time takes one for each.
    #[must_use]
    pub fn by_leader(&self) -> BTreeMap<i32, Vec<i32>> {
        let mut all: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for partition in self.topic.partitions.iter().filter(|known| self.positions.contains_key(&known.index)) {
            all.entry(partition.leader).or_default().push(partition.index);
        }
        all
    }

    fn fetch(
        &mut self,
        leader: i32,
        partitions: &[i32],
        wait_ms: i32,
        records: &mut Vec<ReadRecord>,
    ) -> Result<(), ClientError> {
        let asked = partitions
            .iter()
            .map(|index| {
                FetchPartition::default()
                    .with_partition(*index)
                    .with_current_leader_epoch(-1)
                    .with_fetch_offset(self.positions[index])
                    .with_partition_max_bytes(FETCH_BYTES)
            })
            .collect();
        let topic = FetchTopic::default().with_topic(topic_name(&self.topic.name)).with_partitions(asked);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(wait_ms)
            .with_min_bytes(1)
            .with_max_bytes(FETCH_BYTES)
            .with_isolation_level(self.isolation.wire())
            .with_session_id(0)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        let answer = self.client.call(leader, &request, FETCH_BY_NAME)?;
        accepted(answer.error_code, None, || format!("fetch from {}", self.topic.name))?;
        for data in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            let position = self.positions.get(&data.partition_index).copied().unwrap_or(0);
            let end = data.high_watermark;
            accepted(data.error_code, None, || match ErrorCode::from_wire(data.error_code) {
                Some(ErrorCode::OffsetOutOfRange) => {
                    format!("offset {position} of {}-{} (it ends at {end})", self.topic.name, data.partition_index)
                }
                _ => format!("fetch from {}-{}", self.topic.name, data.partition_index),
            })?;
            let bytes = data.records.as_deref().unwrap_or_default();
            let listed = data.aborted_transactions.iter().flatten();
            let aborted = Aborted::new(listed.map(|one| (one.first_offset, one.producer_id.0)));
            let next = unpack(data.partition_index, position, bytes, aborted, records)
                .map_err(|why| ClientError::Protocol(format!("{}-{}: {why}", self.topic.name, data.partition_index)))?;
            self.positions.insert(data.partition_index, next);
        }
        Ok(())
    }

    fn offsets(&mut self, timestamp: i64) -> Result<BTreeMap<i32, i64>, ClientError> {
        let all: Vec<i32> = self.positions.keys().copied().collect();
        self.offsets_of(&all, timestamp)
    }

    /// Where some partitions begin or end.
    pub(super) fn offsets_of(&mut self, wanted: &[i32], timestamp: i64) -> Result<BTreeMap<i32, i64>, ClientError> {
        self.client.offsets_at(&self.topic, |index| wanted.contains(&index), timestamp, self.isolation)
    }
}

/// Adds the records from `position` on; where to go on. A batch cut short by the limit of the answer is left for later.
fn unpack(
    partition: i32,
    position: i64,
    bytes: &[u8],
    mut aborted: Aborted,
    records: &mut Vec<ReadRecord>,
) -> Result<i64, String> {
    let mut next = position;
    let mut scan = scan::scan(bytes);
    let mut start = 0;
    while let Some((at, header)) = scan.next() {
        debug_assert_eq!(at, start, "batches lie behind each other");
        let batch = &bytes[at..at + header.total_bytes()];
        if !aborted.hides(&header, batch) {
            read_batch(partition, position, batch, records)?;
        }
        next = next.max(header.next_offset().0);
        start = scan.end();
    }
    match scan.stopped() {
        Some(scan::Stop::End | scan::Stop::Cut) | None => Ok(next),
        Some(why) => Err(format!("a batch behind offset {next} is broken: {why:?}")),
    }
}

fn read_batch(partition: i32, position: i64, batch: &[u8], records: &mut Vec<ReadRecord>) -> Result<(), String> {
    let base = BatchHeader::parse(batch).map(|header| header.base_offset.0).unwrap_or(-1);
    let broken = |error| format!("the batch at offset {base} cannot be read: {error}");
    for record in Records::open(batch).map_err(broken)?.iter() {
        let record = record.map_err(broken)?;
        if record.offset.0 < position {
            continue;
        }
        records.push(ReadRecord {
            partition,
            offset: record.offset.0,
            timestamp: record.timestamp.0,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use oncilla_shards::batch::{BatchBuilder, Codec};
    use oncilla_shards::ids::Offset;

    use super::*;

    #[test]
    fn records_before_the_position_are_left_out_and_a_cut_batch_is_left_for_later() {
        let batch = |base: i64, codec| BatchBuilder::new().base_offset(Offset(base)).codec(codec).records(3).build();
        let mut bytes = batch(10, Codec::Zstd);
        bytes.extend(batch(13, Codec::None));
        let whole = bytes.len();
        bytes.extend(&batch(16, Codec::None)[..70]);
        let mut records = Vec::new();
        assert_eq!(unpack(0, 11, &bytes, Aborted::default(), &mut records), Ok(16));
        assert_eq!(records.iter().map(|r| r.offset).collect::<Vec<_>>(), [11, 12, 13, 14, 15]);
        bytes[whole - 1] ^= 1;
        let error = unpack(0, 11, &bytes, Aborted::default(), &mut records).expect_err("a flipped bit");
        assert!(error.contains("Crc"), "{error}");
    }
}
