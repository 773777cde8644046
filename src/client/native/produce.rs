//! Produce in Kafka's wire format, written by hand: its batches are most of what a producer sends, and go from where
//! they were made to the socket without being copied.

use std::sync::Arc;

use anyhow::Context;
use bytes::{BufMut, Bytes, BytesMut};
use oncilla_shards::client::ProducePart;

use super::outbound::Outbound;

/// First version with compact lengths and tagged fields.
const FLEXIBLE_FROM: i16 = 9;

/// How long a broker may wait for its replicas.
const ACKS_TIMEOUT_MS: i32 = 30_000;

/// All replicas.
const ACKS: i16 = -1;

/// A batch that is shorter is copied behind its head: a reference to it would cost more.
const REFERENCE_BYTES_MIN: usize = 2048;

/// Fields of one version.
struct Fields<'a> {
    out: &'a mut BytesMut,
    flexible: bool,
    /// Batches that belong at these places.
    payloads: Vec<(usize, Bytes)>,
}

impl Fields<'_> {
    fn uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.put_u8(value as u8);
    }

    /// Of an array, or of bytes.
    fn length(&mut self, length: usize) -> anyhow::Result<()> {
        let fixed = i32::try_from(length).context("longer than the protocol allows")?;
        if self.flexible {
            self.uvarint(length as u64 + 1)
        } else {
            self.out.put_i32(fixed)
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        let fixed = i16::try_from(text.len()).context("a name longer than the protocol allows")?;
        if self.flexible {
            self.uvarint(text.len() as u64 + 1)
        } else {
            self.out.put_i16(fixed)
        }
        self.out.put_slice(text.as_bytes());
        Ok(())
    }

    fn nullable_text(&mut self, text: Option<&str>) -> anyhow::Result<()> {
        match text {
            Some(text) => return self.text(text),
            None if self.flexible => self.uvarint(0),
            None => self.out.put_i16(-1),
        }
        Ok(())
    }

    fn no_tags(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        }
    }

    fn part(&mut self, part: &ProducePart) -> anyhow::Result<()> {
        let records = part.records.bytes();
        self.out.put_i32(part.partition);
        self.length(records.len())?;
        if records.len() < REFERENCE_BYTES_MIN {
            self.out.put_slice(records);
        } else {
            self.payloads.push((self.out.len(), records.clone()));
        }
        self.no_tags();
        Ok(())
    }
}

/// Writes a request behind its length; `head` writes what comes before the body.
pub(super) fn encode(
    version: i16,
    transactional_id: Option<&str>,
    parts: &[ProducePart],
    out: &mut Outbound,
    head: impl FnOnce(&mut BytesMut) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let bytes = out.head();
    let at = bytes.len();
    bytes.put_i32(0);
    head(bytes)?;
    let mut fields = Fields { out: bytes, flexible: version >= FLEXIBLE_FROM, payloads: Vec::new() };
    fields.nullable_text(transactional_id)?;
    fields.out.put_i16(ACKS);
    fields.out.put_i32(ACKS_TIMEOUT_MS);
    let topics = by_topic(parts);
    fields.length(topics.len())?;
    for (name, parts) in topics {
        fields.text(name)?;
        fields.length(parts.len())?;
        parts.into_iter().try_for_each(|part| fields.part(part))?;
        fields.no_tags();
    }
    fields.no_tags();
    let payloads = fields.payloads;
    let by_reference: usize = payloads.iter().map(|(_, payload)| payload.len()).sum();
    let length = i32::try_from(bytes.len() - at - 4 + by_reference).context("longer than the protocol allows")?;
    bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
    out.insert(payloads);
    Ok(())
}

/// Topics in the order of their first batches, each with all of its batches.
fn by_topic(parts: &[ProducePart]) -> Vec<(&Arc<str>, Vec<&ProducePart>)> {
    let mut topics: Vec<(&Arc<str>, Vec<&ProducePart>)> = Vec::new();
    for part in parts {
        let same = |name: &Arc<str>| Arc::ptr_eq(name, &part.topic) || *name == part.topic;
        match topics.iter_mut().find(|(name, _)| same(name)) {
            Some((_, known)) => known.push(part),
            None => topics.push((&part.topic, vec![part])),
        }
    }
    topics
}

#[cfg(test)]
mod tests {
    use bytes::Buf;
    use kafka_protocol::messages::ProduceRequest;
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::protocol::{Encodable, StrBytes};
    use oncilla_shards::client::Payload;

    use super::*;

    fn part(topic: &str, partition: i32, bytes: usize) -> ProducePart {
        ProducePart { topic: topic.into(), partition, records: Payload::finished(vec![partition as u8; bytes]) }
    }

    /// The body as the generic encoder writes it.
    fn generic(version: i16, transactional_id: Option<&str>, topics: &[(&str, &[ProducePart])]) -> Vec<u8> {
        let data = |part: &ProducePart| {
            let records = part.records.bytes().clone();
            PartitionProduceData::default().with_index(part.partition).with_records(Some(records))
        };
        let topic = |(name, parts): &(&str, &[ProducePart])| {
            let name = StrBytes::from_string((*name).to_owned()).into();
            TopicProduceData::default().with_name(name).with_partition_data(parts.iter().map(data).collect())
        };
        let id = transactional_id.map(|id| StrBytes::from_string(id.to_owned()).into());
        let request = ProduceRequest::default().with_acks(ACKS).with_timeout_ms(ACKS_TIMEOUT_MS);
        let request = request.with_transactional_id(id).with_topic_data(topics.iter().map(topic).collect());
        let mut out = BytesMut::new();
        request.encode(&mut out, version).expect("it encodes");
        out.to_vec()
    }

    #[test]
    fn it_is_what_the_generic_encoder_writes_in_every_version() {
        let a = [part("a", 3, 10), part("a", 0, 70_000)];
        let b = [part("other", 1, REFERENCE_BYTES_MIN), part("other", 2, 300)];
        let mixed = [a[0].clone(), b[0].clone(), a[1].clone(), b[1].clone()];
        for version in 3..=12 {
            for id in [None, Some("transfers")] {
                let mut out = Outbound::default();
                out.head().put_slice(b"before");
                encode(version, id, &mixed, &mut out, |head| {
                    head.put_slice(b"head");
                    Ok(())
                })
                .expect("it encodes");
                let body = generic(version, id, &[("a", &a), ("other", &b)]);
                let length = i32::try_from(body.len() + 4).expect("short").to_be_bytes();
                out.finish();
                let written = out.copy_to_bytes(out.remaining());
                let expected = [&b"before"[..], &length, b"head", &body].concat();
                assert!(written == expected, "version {version}, {id:?}");
            }
        }
    }

    #[test]
    fn a_large_batch_is_not_copied() {
        let large = part("t", 0, 16_384);
        let mut out = Outbound::default();
        encode(12, None, std::slice::from_ref(&large), &mut out, |_| Ok(())).expect("it encodes");
        out.finish();
        let mut slices = [std::io::IoSlice::new(&[]); 4];
        let used = out.chunks_vectored(&mut slices);
        let at = slices[..used].iter().map(|slice| slice.as_ptr());
        assert!(at.collect::<Vec<_>>().contains(&large.records.bytes().as_ptr()));
    }

    #[test]
    fn a_name_that_is_too_long_is_an_error() {
        let name = "n".repeat(40_000);
        let failed = encode(12, None, &[part(&name, 0, 10)], &mut Outbound::default(), |_| Ok(()));
        assert!(failed.expect_err("it is refused").to_string().contains("a name longer"));
    }
}
