//! Produce 3-13: the request as slices of its frame, and the answer (contract K0, A2).
//!
//! Decoding a request of one topic with one partition allocates nothing; records stay where they are in the frame.
//! What the request means (null records, a partition named twice, acks) is the caller's.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use smallvec::SmallVec;

pub use super::produce_answer::{ProduceAnswer, ProducePartitionAnswer, encode};

use super::apis;
use super::error::{WireError, WireFault};
use super::reader::{Reader, share, share_text};
use super::types::TopicRef;
use crate::limits::BATCH_HEADER_BYTES;

/// First version that names topics by id.
pub(super) const TOPIC_IDS_FROM: i16 = 13;

/// A Produce request.
#[derive(Clone, Debug)]
pub struct ProduceRequest {
    /// Version of the request, which decides about codecs (contract K0.29).
    pub version: i16,
    /// Transactional id, if the producer has one.
    pub transactional_id: Option<StrBytes>,
    /// Acknowledgement asked for: -1, 0, 1, or something that is refused (contract K0.7).
    pub acks: i16,
    /// How long the client lets the broker wait.
    pub timeout_ms: i32,
    /// All partitions of all topics, in the order of the request. A topic without partitions leaves no trace
    /// (contract K0.25).
    pub partitions: SmallVec<[ProducePartition; 1]>,
}

/// What goes to one partition.
#[derive(Clone, Debug)]
pub struct ProducePartition {
    /// Topic as the request names it.
    pub topic: TopicRef,
    /// Index of the partition.
    pub index: i32,
    /// The record batches; `None` if the client sent null (contract K0.2).
    pub records: Option<Bytes>,
}

/// Reads the body of a Produce request; bytes behind it are ignored (contract KC.6).
///
/// The slices that the request keeps share `body`'s allocation: it should come from a shared buffer (one that was
/// split off a `BytesMut`), because the first slice of any other `Bytes` allocates.
pub fn decode(version: i16, body: &Bytes) -> Result<ProduceRequest, WireError> {
    if !apis::is_served(apis::PRODUCE, version) {
        return Err(WireError { at: 0, fault: WireFault::UnservedVersion { key: apis::PRODUCE, version } });
    }
    let mut reader = Reader::new(body, apis::is_flexible(apis::PRODUCE, version));
    let transactional_id = reader.nullable_text()?.map(|id| share_text(body, id));
    let acks = reader.i16()?;
    let timeout_ms = reader.i32()?;
    let mut partitions = SmallVec::new();
    for _ in 0..reader.count()? {
        let topic = TopicRef::read(&mut reader, body, version >= TOPIC_IDS_FROM)?;
        read_partitions(&mut reader, body, topic, &mut partitions)?;
        reader.skip_tags()?;
    }
    reader.skip_tags()?;
    Ok(ProduceRequest { version, transactional_id, acks, timeout_ms, partitions })
}

fn read_partitions(
    reader: &mut Reader<'_>,
    body: &Bytes,
    topic: TopicRef,
    partitions: &mut SmallVec<[ProducePartition; 1]>,
) -> Result<(), WireError> {
    let count = reader.count()?;
    // Whoever claims more partitions than there can be batches gets their memory as they come.
    partitions.reserve(count.min(reader.left() / BATCH_HEADER_BYTES));
    for _ in 1..count {
        let partition = read_partition(reader, body, topic.clone())?;
        partitions.push(partition);
    }
    if count > 0 {
        let partition = read_partition(reader, body, topic)?;
        partitions.push(partition);
    }
    Ok(())
}

fn read_partition(reader: &mut Reader<'_>, body: &Bytes, topic: TopicRef) -> Result<ProducePartition, WireError> {
    let index = reader.i32()?;
    let records = reader.nullable_bytes()?.map(|records| share(body, records));
    reader.skip_tags()?;
    Ok(ProducePartition { topic, index, records })
}

#[cfg(test)]
#[path = "produce_tests.rs"]
mod tests;

#[cfg(test)]
pub(super) use tests::encoded_by_them as golden;
