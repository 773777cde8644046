//! Makes batches: for the command line's producer, for end-transaction markers, and for tests, which need wrong ones
//! too.
//!
//! Every header field can be set; what is not set is derived from the records, and the CRC is computed last. Nothing
//! is checked: a builder that could not make a bad batch could not test a validator.

use crate::batch::compression::{Codec, compress};
use crate::batch::control::ControlRecord;
use crate::batch::header::{
    Attributes, BatchHeader, CRC_AT, LENGTH_PREFIX_BYTES, MAGIC_V2, PRODUCER_ID_AT, TimestampType,
};
use crate::batch::patch::crc_of;
use crate::batch::varint::{put_varint, varint_bytes};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::BATCH_HEADER_BYTES;

/// Attributes of a record, which say nothing.
const ATTRIBUTES_BYTES: usize = 1;

/// A batch in the making.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    base_timestamp: Option<TimestampMs>,
    max_timestamp: Option<TimestampMs>,
    last_offset_delta: Option<i32>,
    record_count: Option<i32>,
    largest: TimestampMs,
    count: i32,
    /// Room for the header, then the records so far.
    bytes: Vec<u8>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty plain batch without a producer, at offset 0.
    #[must_use]
    pub fn new() -> Self {
        Self::in_memory(Vec::new())
    }

    /// The same in memory that was used before.
    #[must_use]
    pub fn in_memory(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.resize(BATCH_HEADER_BYTES, 0);
        let header = BatchHeader {
            base_offset: Offset(0),
            batch_length: 0,
            leader_epoch: LeaderEpoch(-1),
            magic: MAGIC_V2,
            crc: 0,
            attributes: Attributes(0),
            last_offset_delta: 0,
            base_timestamp: TimestampMs(-1),
            max_timestamp: TimestampMs(-1),
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            record_count: 0,
        };
        Self {
            header,
            base_timestamp: None,
            max_timestamp: None,
            last_offset_delta: None,
            record_count: None,
            largest: TimestampMs(-1),
            count: 0,
            bytes,
        }
    }

    /// Sets who produces, at which epoch, and the sequence of the first record.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.header.producer_id = ProducerId(id);
        self.header.producer_epoch = ProducerEpoch(epoch);
        self.header.base_sequence = Sequence(base_sequence);
        self
    }

    /// Sets the offset of the first record.
    #[must_use]
    pub fn base_offset(mut self, offset: Offset) -> Self {
        self.header.base_offset = offset;
        self
    }

    /// Sets the leader epoch.
    #[must_use]
    pub fn leader_epoch(mut self, epoch: LeaderEpoch) -> Self {
        self.header.leader_epoch = epoch;
        self
    }

    /// Sets the codec.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.header.attributes = self.header.attributes.with_codec(codec);
        self
    }

    /// Sets all attribute bits, over whatever was set before.
    #[must_use]
    pub fn attributes(mut self, attributes: Attributes) -> Self {
        self.header.attributes = attributes;
        self
    }

    /// Sets the timestamp type.
    #[must_use]
    pub fn timestamp_type(mut self, kind: TimestampType) -> Self {
        self.header.attributes = self.header.attributes.with_timestamp_type(kind);
        self
    }

    /// Makes the batch part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.header.attributes = self.header.attributes.with_transactional(true);
        self
    }

    /// Sets the base timestamp, to be called before the first record; else it is the first record's.
    #[must_use]
    pub fn base_timestamp(mut self, at: TimestampMs) -> Self {
        self.base_timestamp = Some(at);
        self
    }

    /// Sets the largest timestamp to something else than the records'.
    #[must_use]
    pub fn max_timestamp(mut self, at: TimestampMs) -> Self {
        self.max_timestamp = Some(at);
        self
    }

    /// Sets the last offset delta to something else than the records'.
    #[must_use]
    pub fn last_offset_delta(mut self, delta: i32) -> Self {
        self.last_offset_delta = Some(delta);
        self
    }

    /// Sets the record count to something else than the number of records.
    #[must_use]
    pub fn record_count(mut self, count: i32) -> Self {
        self.record_count = Some(count);
        self
    }

    /// Appends a record without a timestamp.
    #[must_use]
    pub fn record(self, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        self.record_at(TimestampMs(-1), key, value, &[])
    }

    /// Appends `count` small records without timestamps.
    #[must_use]
    pub fn records(mut self, count: i32) -> Self {
        for _ in 0..count {
            self = self.record(Some(b"key"), Some(b"value"));
        }
        self
    }

    /// Appends a record.
    #[must_use]
    pub fn record_at(
        self,
        at: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Self {
        let delta = self.count;
        self.record_with_delta(delta, at, key, value, headers)
    }

    /// Appends a record with an offset delta of the caller's.
    #[must_use]
    pub fn record_with_delta(
        mut self,
        offset_delta: i32,
        at: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Self {
        self.push_with_delta(offset_delta, at, key, value, headers);
        self
    }

    /// Appends a record to a batch that stays where it is: its bytes are copied once, to where they are sent from.
    pub fn push(
        &mut self,
        at: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        self.push_with_delta(self.count, at, key, value, headers);
    }

    fn push_with_delta(
        &mut self,
        offset_delta: i32,
        at: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        let base = *self.base_timestamp.get_or_insert(at);
        let timestamp_delta = at.0.wrapping_sub(base.0);
        let offset_delta = i64::from(offset_delta);
        let header_bytes = |(name, value): &(&[u8], Option<&[u8]>)| nullable_bytes(Some(name)) + nullable_bytes(*value);
        let length = ATTRIBUTES_BYTES
            + varint_bytes(timestamp_delta)
            + varint_bytes(offset_delta)
            + nullable_bytes(key)
            + nullable_bytes(value)
            + varint_bytes(headers.len() as i64)
            + headers.iter().map(header_bytes).sum::<usize>();
        let out = &mut self.bytes;
        out.reserve(varint_bytes(length as i64) + length);
        put_varint(out, length as i64);
        out.extend_from_slice(&[0; ATTRIBUTES_BYTES]);
        put_varint(out, timestamp_delta);
        put_varint(out, offset_delta);
        put_nullable(out, key);
        put_nullable(out, value);
        put_varint(out, headers.len() as i64);
        for (name, value) in headers {
            put_nullable(out, Some(name));
            put_nullable(out, *value);
        }
        self.largest = self.largest.max(at);
        self.count += 1;
    }

    /// Appends bytes where records stand, as they are; counts as one record.
    #[must_use]
    pub fn raw_record(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.count += 1;
        self
    }

    /// The finished batch.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        match self.header.attributes.codec() {
            None | Some(Codec::None) => self.finish(),
            Some(codec) => {
                let packed = compress(codec, &self.bytes[BATCH_HEADER_BYTES..]);
                self.build_with_body(&packed)
            }
        }
    }

    /// The finished batch with `body` in place of the records' bytes, compressed or not.
    #[must_use]
    pub fn build_with_body(mut self, body: &[u8]) -> Vec<u8> {
        self.bytes.truncate(BATCH_HEADER_BYTES);
        self.bytes.extend_from_slice(body);
        self.finish()
    }

    fn finish(self) -> Vec<u8> {
        let (mut header, mut batch) = (self.header, self.bytes);
        header.batch_length = i32::try_from(batch.len() - LENGTH_PREFIX_BYTES).expect("a batch is below 2 GiB");
        header.base_timestamp = self.base_timestamp.unwrap_or(TimestampMs(-1));
        header.max_timestamp = self.max_timestamp.unwrap_or(self.largest);
        header.last_offset_delta = self.last_offset_delta.unwrap_or(self.count - 1);
        header.record_count = self.record_count.unwrap_or(self.count);
        batch[..BATCH_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        refresh_crc(&mut batch);
        batch
    }
}

/// Puts the right CRC into a batch whose bytes were changed.
pub fn refresh_crc(batch: &mut [u8]) {
    let crc = crc_of(batch);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

/// Gives a finished batch another producer, epoch and sequence, as a client does before it sends it.
pub fn restamp(batch: &mut [u8], producer_id: ProducerId, epoch: ProducerEpoch, base_sequence: Sequence) {
    batch[PRODUCER_ID_AT..PRODUCER_ID_AT + 8].copy_from_slice(&producer_id.0.to_be_bytes());
    batch[PRODUCER_ID_AT + 8..PRODUCER_ID_AT + 10].copy_from_slice(&epoch.0.to_be_bytes());
    batch[PRODUCER_ID_AT + 10..PRODUCER_ID_AT + 14].copy_from_slice(&base_sequence.0.to_be_bytes());
    refresh_crc(batch);
}

/// The batch that ends a transaction (contract A6): transactional and control bits, no sequence, one record.
#[must_use]
pub fn control_batch(
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    record: ControlRecord,
    now: TimestampMs,
    timestamp_type: TimestampType,
) -> Vec<u8> {
    let attributes = Attributes(0).with_transactional(true).with_control(true).with_timestamp_type(timestamp_type);
    BatchBuilder::new()
        .producer(producer_id.0, epoch.0, Sequence::NONE.0)
        .attributes(attributes)
        .record_at(now, Some(&record.key()), Some(&record.value()), &[])
        .build()
}

fn nullable_bytes(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(varint_bytes(-1), |bytes| varint_bytes(bytes.len() as i64) + bytes.len())
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}
