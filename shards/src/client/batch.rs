//! One batch of a producer, from its first record to its outcome.

use super::error::Written;
use super::message::{CallId, ConnectionId, Identity, NewRecord, RecordId};
use super::payload::Payload;
use crate::batch::build::restamp;
use crate::batch::records::Records;
use crate::batch::{BatchBuilder, Codec};
use crate::ids::Sequence;
use crate::limits::BATCH_HEADER_BYTES;

/// Bytes that a record takes beside its key, value and headers, at most.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// Bytes that a header takes beside its name and value, at most.
const HEADER_OVERHEAD_BYTES: usize = 10;

/// Records that a batch has room for before its list grows.
const RECORDS_AT_FIRST: usize = 32;

/// Bytes that a record may take in a batch: an upper bound, before compression.
pub(super) fn record_bytes(record: &NewRecord<'_>) -> usize {
    let of = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = record.headers.iter().map(|(name, value)| name.len() + of(*value) + HEADER_OVERHEAD_BYTES);
    RECORD_OVERHEAD_BYTES + of(record.key) + of(record.value) + headers.sum::<usize>()
}

/// Names a batch for as long as it has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BatchId(pub u64);

/// Under what a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub identity: Identity,
    pub first: Sequence,
}

/// Where a batch with a stamp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Waits to be sent, again or for the first time.
    Parked { until_ms: u64 },
    /// Waits for its epoch to end: every try was refused for certain, and the sequence before it will not be filled.
    Rejected,
    /// Sent.
    Under { connection: ConnectionId, call: CallId, as_first: bool },
}

#[derive(Debug)]
enum Content {
    Open(Box<BatchBuilder>),
    Stamped(Payload),
}

/// The batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub id: BatchId,
    pub records: Vec<RecordId>,
    /// Upper bound of its bytes, which it holds of the producer's memory.
    pub bytes: usize,
    pub created_ms: u64,
    pub stamp: Option<Stamp>,
    pub place: Place,
    /// Whether a try of it that has no certain answer may be in the log, or may still get there.
    pub written: Written,
    pub attempts: u32,
    content: Option<Content>,
}

impl Batch {
    /// A batch without records, in memory that was used before.
    pub fn new(id: BatchId, codec: Codec, transactional: bool, now_ms: u64, memory: Vec<u8>) -> Self {
        let builder = BatchBuilder::in_memory(memory).codec(codec);
        let builder = if transactional { builder.transactional() } else { builder };
        Self {
            id,
            records: Vec::with_capacity(RECORDS_AT_FIRST),
            bytes: BATCH_HEADER_BYTES,
            created_ms: now_ms,
            stamp: None,
            place: Place::Parked { until_ms: 0 },
            written: Written::No,
            attempts: 0,
            content: Some(Content::Open(Box::new(builder))),
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.content, Some(Content::Open(_)))
    }

    pub fn push(&mut self, id: RecordId, record: &NewRecord<'_>) {
        let Some(Content::Open(builder)) = &mut self.content else { panic!("a stamped batch takes no records") };
        builder.push(record.timestamp, record.key, record.value, record.headers);
        self.records.push(id);
        self.bytes += record_bytes(record);
    }

    /// Number of records.
    pub fn count(&self) -> i32 {
        i32::try_from(self.records.len()).expect("a batch holds fewer records than its bytes")
    }

    /// The batch as it goes out under this stamp; its bytes are finished when they are sent.
    pub fn stamped(&mut self, stamp: Stamp) {
        let Stamp { identity, first } = stamp;
        let payload = match self.content.take() {
            Some(Content::Open(builder)) => Payload::of(builder.producer(identity.id.0, identity.epoch.0, first.0)),
            Some(Content::Stamped(payload)) => {
                let mut bytes = payload.into_vec();
                restamp(&mut bytes, identity.id, identity.epoch, first);
                Payload::finished(bytes)
            }
            None => panic!("a batch always has its content"),
        };
        self.stamp = Some(stamp);
        self.content = Some(Content::Stamped(payload));
    }

    /// What is sent.
    pub fn wire(&self) -> &Payload {
        match &self.content {
            Some(Content::Stamped(payload)) => payload,
            _ => panic!("a batch is stamped before it is sent"),
        }
    }

    /// Takes it apart: its records, and its memory if nobody else has it.
    pub fn ended(self) -> (Vec<RecordId>, Option<Vec<u8>>) {
        let memory = match self.content {
            Some(Content::Stamped(payload)) => payload.into_memory(),
            _ => None,
        };
        (self.records, memory)
    }

    pub fn is_rejected(&self) -> bool {
        self.place == Place::Rejected
    }

    /// Whether it may be in the log when it is given up now.
    pub fn fate(&self) -> Written {
        if matches!(self.place, Place::Under { .. }) { Written::Unknown } else { self.written }
    }

    /// Two batches with half the records each, under the same sequences.
    pub fn split(self, second: BatchId, codec: Codec) -> (Self, Self) {
        assert!(self.records.len() > 1, "a record cannot be halved");
        let half = self.records.len() / 2;
        let opened = Records::open(self.wire().bytes()).expect("a batch of our own can be read");
        let transactional = opened.header().attributes.is_transactional();
        let mut parts = [(self.id, 0..half), (second, half..self.records.len())].map(|(id, range)| {
            let mut part = Self::new(id, codec, transactional, self.created_ms, Vec::new());
            for (at, record) in opened.iter().enumerate().skip(range.start).take(range.len()) {
                let record = record.expect("a record of our own can be read");
                let headers: Vec<_> = record.headers.collect();
                let (key, value, timestamp) = (record.key, record.value, record.timestamp);
                let again = NewRecord { key, value, headers: &headers, timestamp, ..NewRecord::default() };
                part.push(self.records[at], &again);
            }
            part.written = self.written;
            part.attempts = self.attempts;
            part
        });
        if let Some(stamp) = self.stamp {
            let first = parts[0].count();
            parts[0].stamped(stamp);
            parts[1].stamped(Stamp { first: stamp.first.plus(first), ..stamp });
        }
        let [one, two] = parts;
        (one, two)
    }
}
