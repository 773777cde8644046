//! Whether the bytes of one partition in a Produce request may be appended (contract A2.4-A2.5, K0.6, K0.11-K0.19).
//!
//! The checks run in Kafka's order, because the first that fails decides the answer. Every record is walked, compressed
//! ones while they are unpacked, since a client's largest timestamp is not to be trusted (contract 0.2). A plain batch
//! is walked without allocating. Limits: `limits::BATCH_UNPACKED_BYTES_MAX`, `limits::RECORD_ERRORS_MAX`. Failure:
//! [`Refused`], with what the answer needs. What this module cannot know comes after it: sequences and epochs.

use std::borrow::Cow;

use crate::batch::compression::{Codec, Pieces, Unpacker};
use crate::batch::frame::{Framed, frame};
use crate::batch::header::{ATTRIBUTES_AT, Attributes, BatchHeader, MAGIC_V2, TimestampType, field};
use crate::batch::patch::{StoredFields, crc_matches, crc_with};
use crate::batch::walk::{Malformed, Slice, Source, Streamed, next_record};
use crate::code::ErrorCode;
use crate::ids::TimestampMs;
use crate::limits::{BATCH_HEADER_BYTES, BATCH_UNPACKED_BYTES_MAX, RECORD_ERRORS_MAX};

/// The first request version that may carry zstd (contract K0.29).
const ZSTD_VERSION_MIN: i16 = 7;

const TIMESTAMPS_REFUSED: &str = "One or more records have a timestamp outside the limits of the topic";
const TIMESTAMP_OUTSIDE: &str = "timestamp outside message.timestamp.before.max.ms and message.timestamp.after.max.ms";
const TIMESTAMP_TYPE: &str = "only the broker may set the timestamp type to LogAppendTime";
const KEY_MISSING: &str = "a compacted topic takes no record without a key";

/// The topic's settings that an append depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendRules {
    /// `max.message.bytes`.
    pub max_message_bytes: i32,
    /// `segment.bytes`.
    pub segment_bytes: i32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
    /// Whether `cleanup.policy` contains compact.
    pub compacted: bool,
}

impl Default for AppendRules {
    /// Kafka's defaults (contract K0.30).
    fn default() -> Self {
        Self {
            max_message_bytes: 1_048_588,
            segment_bytes: 1 << 30,
            timestamp_type: TimestampType::CreateTime,
            before_max_ms: i64::MAX,
            after_max_ms: 3_600_000,
            compacted: false,
        }
    }
}

/// A batch that may be appended as far as its bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The header as sent.
    pub header: BatchHeader,
    /// The fields that are stored instead of what was sent.
    pub stored: StoredFields,
    /// Length of the batch; what stands behind it in the request is dropped.
    pub bytes: usize,
}

/// One record that made its batch be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Which record, from 0.
    pub index: i32,
    /// Why.
    pub message: &'static str,
}

/// Why a batch is not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The partition's error code.
    pub code: ErrorCode,
    /// Text for request versions that carry one (contract K0.23).
    pub message: Option<Cow<'static, str>>,
    /// The bad records of K0.16-K0.18, by index, the first `limits::RECORD_ERRORS_MAX` of them.
    pub record_errors: Vec<RecordError>,
    /// The answer names the log start offset (contract K0.22).
    pub reached_log: bool,
}

impl Refused {
    fn early(code: ErrorCode) -> Self {
        Self { code, message: None, record_errors: Vec::new(), reached_log: false }
    }

    fn invalid() -> Self {
        Self { reached_log: true, ..Self::early(ErrorCode::InvalidRecord) }
    }
}

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Self {
        Self::invalid()
    }
}

/// Decides about one partition's bytes in a Produce request of `api_version`, arrived at `now`.
pub fn validate(records: &[u8], api_version: i16, rules: &AppendRules, now: TimestampMs) -> Result<Accepted, Refused> {
    let batch = one_batch(records, api_version)?;
    // The base offset and the size are looked at before it is known that there is room for a header (K0.11-K0.13).
    if batch[..8] != [0; 8] {
        return Err(Refused::invalid());
    }
    if batch.len() as i64 > i64::from(rules.max_message_bytes) {
        return Err(Refused::early(ErrorCode::MessageTooLarge));
    }
    let header = BatchHeader::parse(batch).map_err(|_| Refused::early(ErrorCode::CorruptMessage))?;
    if !crc_matches(batch) {
        return Err(Refused::early(ErrorCode::CorruptMessage));
    }
    check_header(&header)?;
    let largest = walk(batch, &header, rules, now)?;
    if batch.len() as i64 > i64::from(rules.segment_bytes) {
        return Err(Refused::early(ErrorCode::RecordListTooLarge));
    }
    Ok(Accepted { header, stored: stored_fields(batch, &header, rules, now, largest), bytes: batch.len() })
}

/// Whether the bytes are exactly one whole batch of the present format (K0.6): what is checked before anything else of
/// a partition.
pub fn check_framing(records: &[u8], api_version: i16) -> Result<(), Refused> {
    one_batch(records, api_version).map(drop)
}

/// Exactly one batch of the present format (K0.6). A second one that is cut off is dropped silently (A2.4).
fn one_batch(records: &[u8], api_version: i16) -> Result<&[u8], Refused> {
    let (bytes, magic) = match frame(records) {
        Framed::Whole { bytes, magic } => (bytes, magic),
        Framed::None => return Err(Refused::early(ErrorCode::InvalidRecord)),
        Framed::Corrupt => return Err(Refused::early(ErrorCode::CorruptMessage)),
    };
    if magic != MAGIC_V2 {
        return Err(Refused::early(ErrorCode::InvalidRecord));
    }
    let (batch, behind) = records.split_at(bytes);
    if api_version < ZSTD_VERSION_MIN && batch.len() >= ATTRIBUTES_AT + 2 {
        let attributes = Attributes(field!(batch, ATTRIBUTES_AT, i16));
        if attributes.codec() == Some(Codec::Zstd) {
            return Err(Refused::early(ErrorCode::UnsupportedCompressionType));
        }
    }
    match frame(behind) {
        Framed::None => Ok(batch),
        Framed::Whole { .. } => Err(Refused::early(ErrorCode::InvalidRecord)),
        Framed::Corrupt => Err(Refused::early(ErrorCode::CorruptMessage)),
    }
}

/// What the header alone shows (K0.14). A producer id without an epoch, which Kafka takes, is refused: it would never
/// be fenced (A2.5 leaves it open).
fn check_header(header: &BatchHeader) -> Result<(), Refused> {
    let counted = i64::from(header.last_offset_delta) + 1 == i64::from(header.record_count) && header.record_count > 0;
    let sequenced = !header.is_idempotent() || (header.base_sequence.0 >= 0 && header.producer_epoch.0 >= 0);
    if counted && sequenced && !header.attributes.is_control() { Ok(()) } else { Err(Refused::invalid()) }
}

/// Walks the records; gives the largest timestamp (K0.15-K0.18).
fn walk(batch: &[u8], header: &BatchHeader, rules: &AppendRules, now: TimestampMs) -> Result<TimestampMs, Refused> {
    let body = &batch[BATCH_HEADER_BYTES..];
    let mut check = RecordCheck::new(header, rules, now);
    match header.attributes.codec() {
        None => return Err(Refused::invalid()),
        Some(Codec::None) => check.all(&mut Slice::new(body))?,
        Some(codec) => {
            let stream = Unpacker::new(codec, body, BATCH_UNPACKED_BYTES_MAX).map_err(Malformed::from)?;
            check.all(&mut Streamed::new(Pieces::new(stream)))?;
        }
    }
    check.verdict()
}

/// What is held against every record, and what came out.
struct RecordCheck {
    base_timestamp: i64,
    record_count: i32,
    oldest: i64,
    newest: i64,
    compacted: bool,
    timestamp_type_refused: bool,
    largest: i64,
    bad: u32,
    bad_timestamps: u32,
    errors: Vec<RecordError>,
}

impl RecordCheck {
    fn new(header: &BatchHeader, rules: &AppendRules, now: TimestampMs) -> Self {
        let create_time = rules.timestamp_type == TimestampType::CreateTime;
        let log_append_bit = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
        Self {
            base_timestamp: header.base_timestamp.0,
            record_count: header.record_count,
            // Limits do not apply to LogAppendTime topics (K0.30), and the largest one means none.
            oldest: match rules.before_max_ms {
                limit if create_time && limit < i64::MAX => now.0.saturating_sub(limit),
                _ => i64::MIN,
            },
            newest: if create_time { now.0.saturating_add(rules.after_max_ms) } else { i64::MAX },
            compacted: rules.compacted,
            timestamp_type_refused: !create_time && log_append_bit,
            largest: -1,
            bad: 0,
            bad_timestamps: 0,
            errors: Vec::new(),
        }
    }

    /// Reads exactly the records that the header counts. Their offset deltas are 0, 1, 2 and so on, also in a plain
    /// batch (K0.15, K0.27 (p)).
    fn all<S: Source>(&mut self, source: &mut S) -> Result<(), Malformed> {
        for index in 0..self.record_count {
            let record = next_record(source)?;
            if record.offset_delta != index {
                return Err(Malformed);
            }
            let timestamp = self.base_timestamp.wrapping_add(record.timestamp_delta);
            self.largest = self.largest.max(timestamp);
            let outside = timestamp != -1 && (timestamp < self.oldest || timestamp > self.newest);
            let keyless = self.compacted && record.key.is_none();
            if outside || keyless || self.timestamp_type_refused {
                self.note(index, outside, keyless);
            }
        }
        if source.at_end()? { Ok(()) } else { Err(Malformed) }
    }

    #[cold]
    fn note(&mut self, index: i32, outside: bool, keyless: bool) {
        self.bad += 1;
        if outside || self.timestamp_type_refused {
            self.bad_timestamps += 1;
        }
        let message = match (self.timestamp_type_refused, outside, keyless) {
            (true, ..) => TIMESTAMP_TYPE,
            (_, true, _) => TIMESTAMP_OUTSIDE,
            _ => KEY_MISSING,
        };
        if self.errors.len() < RECORD_ERRORS_MAX {
            self.errors.push(RecordError { index, message });
        }
    }

    /// A bad timestamp anywhere decides the code; records without a key are listed with it (K0.18).
    fn verdict(self) -> Result<TimestampMs, Refused> {
        if self.bad == 0 {
            return Ok(TimestampMs(self.largest));
        }
        let (code, message) = if self.bad_timestamps > 0 {
            (ErrorCode::InvalidTimestamp, Cow::Borrowed(TIMESTAMPS_REFUSED))
        } else {
            (ErrorCode::InvalidRecord, Cow::Owned(format!("{} records of the batch have no key", self.bad)))
        };
        Err(Refused { code, message: Some(message), record_errors: self.errors, reached_log: true })
    }
}

/// The stored header fields (K0.26). The CRC is computed anew only if what it covers has changed.
fn stored_fields(
    batch: &[u8],
    header: &BatchHeader,
    rules: &AppendRules,
    now: TimestampMs,
    largest: TimestampMs,
) -> StoredFields {
    let attributes = header.attributes.with_timestamp_type(rules.timestamp_type).0;
    let max_timestamp = match rules.timestamp_type {
        TimestampType::CreateTime => largest,
        TimestampType::LogAppendTime => now,
    };
    let as_sent = attributes == header.attributes.0 && max_timestamp == header.max_timestamp;
    let crc = if as_sent { header.crc } else { crc_with(batch, attributes, max_timestamp) };
    StoredFields { attributes, max_timestamp, crc }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
