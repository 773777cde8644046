//! The state of a partition's producers as bytes (contract A8; the format is this broker's own).
//!
//! `OPRS`, u16 version, u32 CRC32C of all that follows, i64 end offset, u32 number of producers, then each producer:
//! i64 id, i16 epoch, i32 coordinator epoch, i64 last timestamp, i64 first offset of the open transaction or -1, u8
//! number of batches, and each batch, oldest first: i64 last offset, i64 largest timestamp, i32 last sequence, i32
//! offset delta. Big-endian. All five batches are kept, so a restart forgets no duplicate. Producers stand in the order
//! of their last use, those with open transactions behind them by first offset: equal states give equal bytes.
//!
//! A snapshot counts only if its end offset is not above the recovered end of the log: it may have been taken of
//! batches that never became durable. Transactions whose marker is not yet committed are not in it, since a marker that
//! was recovered is. Failure: [`SnapshotError`] for any damage; the caller then tries an older one, or the whole log.

use crate::ids::{Offset, ProducerId, TimestampMs};
use crate::limits::PRODUCER_BATCHES_MAX;
use crate::producers::entry::{Cached, Entry};
use crate::producers::{Ongoing, Producers};

const MAGIC: [u8; 4] = *b"OPRS";
const VERSION: u16 = 1;
const CHECKED_FROM: usize = 10;
const ENTRY_BYTES: usize = 31;
const BATCH_BYTES: usize = 24;

/// Why bytes are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Not a snapshot, or one of another version.
    #[error("not a producer snapshot of a known version")]
    Unknown,
    /// The checksum is wrong: the bytes were changed or cut.
    #[error("producer snapshot is damaged")]
    Damaged,
    /// The checksum is right and the content is impossible.
    #[error("producer snapshot contradicts itself")]
    Impossible,
}

impl Producers {
    /// The state as bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let entries = self.table.len();
        let mut out = Vec::with_capacity(CHECKED_FROM + 12 + entries * (ENTRY_BYTES + BATCH_BYTES));
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.end.0.to_be_bytes());
        out.extend_from_slice(&u32::try_from(entries).expect("fewer producers than 2^32").to_be_bytes());
        for entry in self.table.by_use() {
            put_entry(&mut out, entry);
        }
        for ongoing in self.ongoing.values() {
            put_entry(&mut out, self.table.get(ongoing.producer_id).expect("an open transaction keeps its producer"));
        }
        let crc = crc32c::crc32c(&out[CHECKED_FROM..]);
        out[6..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// The state of a snapshot. Replay the log from [`Producers::end_offset`] on, then let entries expire (A7).
    pub fn restore(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let (head, content) = bytes.split_at_checked(CHECKED_FROM).ok_or(SnapshotError::Unknown)?;
        if head[..4] != MAGIC || head[4..6] != VERSION.to_be_bytes() {
            return Err(SnapshotError::Unknown);
        }
        if head[6..] != crc32c::crc32c(content).to_be_bytes() {
            return Err(SnapshotError::Damaged);
        }
        let mut fields = Fields(content);
        let mut producers = Self::new();
        producers.end = Offset(fields.i64()?);
        let count = fields.i32()? as u32;
        for _ in 0..count {
            producers.restore_entry(fields.entry()?)?;
        }
        if fields.0.is_empty() && producers.end.0 >= 0 { Ok(producers) } else { Err(SnapshotError::Impossible) }
    }

    fn restore_entry(&mut self, entry: Entry) -> Result<(), SnapshotError> {
        let id = ProducerId(entry.producer_id);
        let below_end =
            entry.txn_first_offset < self.end.0 && entry.batches().iter().all(|b| b.last_offset < self.end.0);
        if id.0 < 0 || !below_end || self.table.find(id).is_some() {
            return Err(SnapshotError::Impossible);
        }
        let ongoing = Ongoing { producer_id: id, since: TimestampMs(entry.last_timestamp) };
        if entry.has_open_txn() && self.ongoing.insert(Offset(entry.txn_first_offset), ongoing).is_some() {
            return Err(SnapshotError::Impossible);
        }
        let at = self.table.insert(entry);
        self.put(at);
        Ok(())
    }
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.extend_from_slice(&entry.producer_id.to_be_bytes());
    out.extend_from_slice(&entry.epoch.to_be_bytes());
    out.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
    out.extend_from_slice(&entry.last_timestamp.to_be_bytes());
    out.extend_from_slice(&entry.txn_first_offset.to_be_bytes());
    out.push(entry.batches().len() as u8);
    for cached in entry.batches() {
        out.extend_from_slice(&cached.last_offset.to_be_bytes());
        out.extend_from_slice(&cached.max_timestamp.to_be_bytes());
        out.extend_from_slice(&cached.last_sequence.to_be_bytes());
        out.extend_from_slice(&cached.offset_delta.to_be_bytes());
    }
}

/// What is left to read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (value, rest) = self.0.split_first_chunk::<N>().ok_or(SnapshotError::Impossible)?;
        self.0 = rest;
        Ok(*value)
    }

    fn i64(&mut self) -> Result<i64, SnapshotError> {
        self.array().map(i64::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, SnapshotError> {
        self.array().map(i32::from_be_bytes)
    }

    fn entry(&mut self) -> Result<Entry, SnapshotError> {
        let mut entry = Entry::new(ProducerId(self.i64()?));
        entry.epoch = i16::from_be_bytes(self.array()?);
        entry.coordinator_epoch = self.i32()?;
        entry.last_timestamp = self.i64()?;
        entry.txn_first_offset = self.i64()?;
        let [batches] = self.array()?;
        if usize::from(batches) > PRODUCER_BATCHES_MAX || entry.txn_first_offset < -1 {
            return Err(SnapshotError::Impossible);
        }
        for _ in 0..batches {
            let cached = Cached {
                last_offset: self.i64()?,
                max_timestamp: self.i64()?,
                last_sequence: self.i32()?,
                offset_delta: self.i32()?,
            };
            if cached.offset_delta < 0 || cached.last_offset < i64::from(cached.offset_delta) {
                return Err(SnapshotError::Impossible);
            }
            entry.push_cached(cached);
        }
        Ok(entry)
    }
}
