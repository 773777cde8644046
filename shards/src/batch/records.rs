//! The records of one batch, for everything that looks inside: time lookups, consuming on the command line, markers.
//!
//! Owner: the caller; a compressed batch is unpacked once into memory of its own, a plain one is borrowed. Limits:
//! `limits::BATCH_UNPACKED_BYTES_MAX`. Failure: [`BadRecords`], as an item of the iteration when it shows up there.

use std::borrow::Cow;

use crate::batch::compression::{Codec, decompress};
use crate::batch::header::{BatchHeader, HeaderError, TimestampType};
use crate::batch::walk::{Malformed, Slice, Source, next_record};
use crate::ids::{Offset, TimestampMs};
use crate::limits::{BATCH_HEADER_BYTES, BATCH_UNPACKED_BYTES_MAX};

/// Why records cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecords {
    /// The batch has no header, or ends before its length says.
    #[error("not a whole batch")]
    Cut,
    /// A codec that does not exist.
    #[error("unassigned codec")]
    Codec,
    /// The data does not unpack.
    #[error("compressed data does not unpack")]
    Undecodable,
    /// The records do not follow the format.
    #[error("a record does not parse")]
    Malformed,
}

impl From<HeaderError> for BadRecords {
    fn from(_: HeaderError) -> Self {
        Self::Cut
    }
}

impl From<Malformed> for BadRecords {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The records of one batch.
#[derive(Debug)]
pub struct Records<'a> {
    header: BatchHeader,
    body: Cow<'a, [u8]>,
}

/// One record. Key, value and header values tell null and empty apart (case 129).
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: Offset,
    /// Its offset from the batch's base offset.
    pub offset_delta: i32,
    /// Its time, or the batch's under LogAppendTime.
    pub timestamp: TimestampMs,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers, in the order and with the repetitions they were sent in.
    pub headers: Headers<'a>,
}

/// The headers of one record; iterates over name and value.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) left: usize,
}

impl<'a> Records<'a> {
    /// Opens the batch at the start of `batch`, unpacking it if it is compressed. The CRC is not looked at.
    pub fn open(batch: &'a [u8]) -> Result<Self, BadRecords> {
        let header = BatchHeader::parse(batch)?;
        let body = batch.get(BATCH_HEADER_BYTES..header.total_bytes()).ok_or(BadRecords::Cut)?;
        let body = match header.attributes.codec().ok_or(BadRecords::Codec)? {
            Codec::None => Cow::Borrowed(body),
            codec => {
                Cow::Owned(decompress(codec, body, BATCH_UNPACKED_BYTES_MAX).map_err(|_| BadRecords::Undecodable)?)
            }
        };
        Ok(Self { header, body })
    }

    /// The batch's header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The records in their order. Ends after the first error.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        let left = usize::try_from(self.header.record_count).unwrap_or(0);
        Iter { header: self.header, source: Slice::new(&self.body), left }
    }
}

impl<'r> IntoIterator for &'r Records<'_> {
    type Item = Result<Record<'r>, BadRecords>;
    type IntoIter = Iter<'r>;

    fn into_iter(self) -> Iter<'r> {
        self.iter()
    }
}

/// Iterates over the records of a batch.
pub struct Iter<'r> {
    header: BatchHeader,
    source: Slice<'r>,
    left: usize,
}

impl<'r> Iterator for Iter<'r> {
    type Item = Result<Record<'r>, BadRecords>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let raw = match next_record(&mut self.source) {
            Ok(raw) => raw,
            Err(malformed) => {
                self.left = 0;
                return Some(Err(malformed.into()));
            }
        };
        let timestamp = match self.header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => self.header.max_timestamp,
            TimestampType::CreateTime => TimestampMs(self.header.base_timestamp.0.wrapping_add(raw.timestamp_delta)),
        };
        Some(Ok(Record {
            offset: Offset(self.header.base_offset.0.saturating_add(i64::from(raw.offset_delta))),
            offset_delta: raw.offset_delta,
            timestamp,
            key: raw.key,
            value: raw.value,
            headers: Headers { bytes: raw.headers, left: raw.header_count },
        }))
    }
}

impl Headers<'_> {
    /// Number of headers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut source = Slice::new(self.bytes);
        let name = source.nullable().ok()??;
        let value = source.nullable().ok()?;
        self.bytes = source.rest();
        Some((name, value))
    }
}
