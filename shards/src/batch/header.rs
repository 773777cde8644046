//! The 61 header bytes of a v2 batch as a value.
//!
//! Owner: whoever parsed it; a copy, so it never borrows the frame. Failure: [`HeaderError`] for bytes that cannot be a
//! v2 header. Only the layout is checked here; what the fields mean for an append is `validate`'s business.

use crate::batch::compression::Codec;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::BATCH_HEADER_BYTES;

/// Bytes in front of what the length field counts: base offset and length.
pub(crate) const LENGTH_PREFIX_BYTES: usize = 12;
/// Where the leader epoch stands.
pub(crate) const LEADER_EPOCH_AT: usize = 12;
/// Where the magic byte stands, in every format version.
pub(crate) const MAGIC_AT: usize = 16;
/// Where the CRC stands.
pub(crate) const CRC_AT: usize = 17;
/// Where the attributes stand; the CRC covers everything from here on.
pub(crate) const ATTRIBUTES_AT: usize = 21;
/// Where the largest timestamp stands.
pub(crate) const MAX_TIMESTAMP_AT: usize = 35;
/// Where the producer id stands; its epoch and the first sequence follow.
pub(crate) const PRODUCER_ID_AT: usize = 43;
/// The format this broker stores.
pub(crate) const MAGIC_V2: i8 = 2;

const CODEC_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

/// Whose clock a record's timestamp is of (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The broker's, one for the whole batch.
    LogAppendTime,
}

/// The attribute bits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    /// How the records are compressed; `None` for the unassigned codecs 5 to 7.
    #[must_use]
    pub fn codec(self) -> Option<Codec> {
        Codec::from_bits(self.0 & CODEC_MASK)
    }

    /// The same bits with another codec.
    #[must_use]
    pub fn with_codec(self, codec: Codec) -> Self {
        Self(self.0 & !CODEC_MASK | codec.bits())
    }

    /// Whose clock the timestamps are of.
    #[must_use]
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & LOG_APPEND_TIME == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    /// The same bits with another timestamp type.
    #[must_use]
    pub fn with_timestamp_type(self, kind: TimestampType) -> Self {
        match kind {
            TimestampType::CreateTime => Self(self.0 & !LOG_APPEND_TIME),
            TimestampType::LogAppendTime => Self(self.0 | LOG_APPEND_TIME),
        }
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub fn is_transactional(self) -> bool {
        self.0 & TRANSACTIONAL != 0
    }

    /// The same bits, belonging to a transaction or not.
    #[must_use]
    pub fn with_transactional(self, on: bool) -> Self {
        if on { Self(self.0 | TRANSACTIONAL) } else { Self(self.0 & !TRANSACTIONAL) }
    }

    /// Whether the batch is a marker and not data.
    #[must_use]
    pub fn is_control(self) -> bool {
        self.0 & CONTROL != 0
    }

    /// The same bits, a marker or data.
    #[must_use]
    pub fn with_control(self, on: bool) -> Self {
        if on { Self(self.0 | CONTROL) } else { Self(self.0 & !CONTROL) }
    }

    /// Whether the base timestamp is the time from which compaction may drop the batch's tombstones or its marker.
    #[must_use]
    pub fn has_delete_horizon(self) -> bool {
        self.0 & DELETE_HORIZON != 0
    }

    /// The same bits, with a delete horizon or without.
    #[must_use]
    pub fn with_delete_horizon(self, on: bool) -> Self {
        if on { Self(self.0 | DELETE_HORIZON) } else { Self(self.0 & !DELETE_HORIZON) }
    }
}

/// Why bytes are no v2 batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("fewer bytes than a batch header has")]
    Short,
    /// Another format version.
    #[error("format version {0} is not 2")]
    Magic(i8),
    /// A length field that no v2 batch can have.
    #[error("length field {0} is too small for a batch")]
    Length(i32),
}

/// The header of a v2 batch, every field as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Bytes behind the length field.
    pub batch_length: i32,
    /// Leader epoch the batch was stored under.
    pub leader_epoch: LeaderEpoch,
    /// Format version, always 2 after `parse`.
    pub magic: i8,
    /// CRC32C of everything from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type, transactional and control bits.
    pub attributes: Attributes,
    /// Offset of the last record, from the base offset.
    pub last_offset_delta: i32,
    /// What the records' timestamp deltas count from.
    pub base_timestamp: TimestampMs,
    /// Largest timestamp of the records.
    pub max_timestamp: TimestampMs,
    /// Producer, -1 for none.
    pub producer_id: ProducerId,
    /// Epoch of the producer, -1 for none.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record, -1 for none.
    pub base_sequence: Sequence,
    /// Number of records.
    pub record_count: i32,
}

macro_rules! field {
    ($bytes:expr, $at:expr, $type:ty) => {{
        const SIZE: usize = size_of::<$type>();
        let mut raw = [0; SIZE];
        raw.copy_from_slice(&$bytes[$at..$at + SIZE]);
        <$type>::from_be_bytes(raw)
    }};
}
pub(crate) use field;

impl BatchHeader {
    /// Reads the header at the start of `bytes`. The records behind it need not be there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(raw) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else { return Err(HeaderError::Short) };
        let header = Self::of(raw);
        if header.magic != MAGIC_V2 {
            return Err(HeaderError::Magic(header.magic));
        }
        if (header.batch_length as i64) < (BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES) as i64 {
            return Err(HeaderError::Length(header.batch_length));
        }
        Ok(header)
    }

    #[inline]
    fn of(raw: &[u8; BATCH_HEADER_BYTES]) -> Self {
        Self {
            base_offset: Offset(field!(raw, 0, i64)),
            batch_length: field!(raw, 8, i32),
            leader_epoch: LeaderEpoch(field!(raw, LEADER_EPOCH_AT, i32)),
            magic: field!(raw, MAGIC_AT, i8),
            crc: field!(raw, CRC_AT, u32),
            attributes: Attributes(field!(raw, ATTRIBUTES_AT, i16)),
            last_offset_delta: field!(raw, 23, i32),
            base_timestamp: TimestampMs(field!(raw, 27, i64)),
            max_timestamp: TimestampMs(field!(raw, MAX_TIMESTAMP_AT, i64)),
            producer_id: ProducerId(field!(raw, 43, i64)),
            producer_epoch: ProducerEpoch(field!(raw, 51, i16)),
            base_sequence: Sequence(field!(raw, 53, i32)),
            record_count: field!(raw, 57, i32),
        }
    }

    /// The header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut raw = [0; BATCH_HEADER_BYTES];
        raw[0..8].copy_from_slice(&self.base_offset.0.to_be_bytes());
        raw[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        raw[12..16].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        raw[16..17].copy_from_slice(&self.magic.to_be_bytes());
        raw[17..21].copy_from_slice(&self.crc.to_be_bytes());
        raw[21..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        raw[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        raw[27..35].copy_from_slice(&self.base_timestamp.0.to_be_bytes());
        raw[35..43].copy_from_slice(&self.max_timestamp.0.to_be_bytes());
        raw[43..51].copy_from_slice(&self.producer_id.0.to_be_bytes());
        raw[51..53].copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        raw[53..57].copy_from_slice(&self.base_sequence.0.to_be_bytes());
        raw[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        raw
    }

    /// Bytes of the whole batch, from base offset to the last record.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        usize::try_from(self.batch_length).map_or(0, |length| length + LENGTH_PREFIX_BYTES)
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(i64::from(self.last_offset_delta)))
    }

    /// Offset behind the last record.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// Sequence of the last record, with the wrap to 0 (contract A3).
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        if self.base_sequence.0 < 0 || self.last_offset_delta < 0 {
            return Sequence::NONE;
        }
        self.base_sequence.plus(self.last_offset_delta)
    }

    /// Largest timestamp of the records that are there: -1 for a batch that compaction emptied, whose header still says
    /// when its producer wrote last.
    #[must_use]
    pub fn newest_timestamp(&self) -> TimestampMs {
        if self.record_count == 0 { TimestampMs(-1) } else { self.max_timestamp }
    }

    /// Time from which compaction may drop the batch's tombstones or its marker, once a clean has set it.
    #[must_use]
    pub fn delete_horizon(&self) -> Option<TimestampMs> {
        self.attributes.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// Whether a producer id is there, so that duplicates of the batch are recognised.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.producer_id.0 >= 0
    }
}

/// The headers of whole batches that are known to be right: what was served or written.
pub fn headers(batches: &[u8]) -> impl Iterator<Item = BatchHeader> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = BatchHeader::parse(batches.get(at..)?).ok()?;
        at += header.total_bytes();
        Some(header)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BatchHeader {
        BatchHeader {
            base_offset: Offset(0x0102_0304_0506_0708),
            batch_length: 49,
            leader_epoch: LeaderEpoch(7),
            magic: 2,
            crc: 0xdead_beef,
            attributes: Attributes(0x12),
            last_offset_delta: 4,
            base_timestamp: TimestampMs(-5),
            max_timestamp: TimestampMs(99),
            producer_id: ProducerId(1234),
            producer_epoch: ProducerEpoch(3),
            base_sequence: Sequence(i32::MAX - 1),
            record_count: 5,
        }
    }

    #[test]
    fn a_header_survives_its_bytes() {
        let header = sample();
        assert_eq!(BatchHeader::parse(&header.to_bytes()), Ok(header));
        assert_eq!(header.last_sequence(), Sequence(2), "the batch wraps inside (A3)");
        assert_eq!(header.total_bytes(), BATCH_HEADER_BYTES);
        assert_eq!(header.next_offset(), header.base_offset.plus(5));
    }

    #[test]
    fn what_is_no_header_is_named() {
        let bytes = sample().to_bytes();
        assert_eq!(BatchHeader::parse(&bytes[..60]), Err(HeaderError::Short));
        let mut other = bytes;
        other[MAGIC_AT] = 1;
        assert_eq!(BatchHeader::parse(&other), Err(HeaderError::Magic(1)));
        for length in [48, 0, -1, i32::MIN] {
            let mut other = bytes;
            other[8..12].copy_from_slice(&length.to_be_bytes());
            assert_eq!(BatchHeader::parse(&other), Err(HeaderError::Length(length)));
        }
    }

    #[test]
    fn attribute_bits_are_kafkas() {
        let bits = Attributes(0x40)
            .with_codec(Codec::Zstd)
            .with_timestamp_type(TimestampType::LogAppendTime)
            .with_transactional(true)
            .with_control(true);
        assert_eq!(bits, Attributes(0x7c));
        assert_eq!(bits.codec(), Some(Codec::Zstd));
        assert_eq!(bits.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!(Attributes(5).codec(), None);
    }
}
