//! Checksums, and the header fields that the broker stores instead of what was sent.
//!
//! The client's frame is never changed: [`write_patched`] stamps the copy in the write buffer (contract K0.26). The CRC
//! covers everything from the attributes on, so base offset and leader epoch are stamped without touching it.

use crate::batch::header::{ATTRIBUTES_AT, CRC_AT, LEADER_EPOCH_AT, MAX_TIMESTAMP_AT};
use crate::ids::{LeaderEpoch, Offset, TimestampMs};
use crate::limits::BATCH_HEADER_BYTES;

/// The stored fields that depend on the batch and the topic alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFields {
    /// Attributes with the topic's timestamp type.
    pub attributes: i16,
    /// Largest timestamp of the records, or the broker's time under LogAppendTime.
    pub max_timestamp: TimestampMs,
    /// CRC over the batch with these two.
    pub crc: u32,
}

/// What the broker stores instead of what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Offset given to the first record.
    pub base_offset: Offset,
    /// Leader epoch of the partition.
    pub leader_epoch: LeaderEpoch,
    /// Attributes with the topic's timestamp type.
    pub attributes: i16,
    /// Largest timestamp of the records, or the broker's time under LogAppendTime.
    pub max_timestamp: TimestampMs,
    /// CRC over the batch with these.
    pub crc: u32,
}

impl Patch {
    /// The patch of an accepted batch that gets `base_offset` under `leader_epoch`.
    #[must_use]
    pub fn new(stored: &StoredFields, base_offset: Offset, leader_epoch: LeaderEpoch) -> Self {
        let StoredFields { attributes, max_timestamp, crc } = *stored;
        Self { base_offset, leader_epoch, attributes, max_timestamp, crc }
    }
}

/// CRC32C of a batch as the format defines it. `batch` holds a whole header.
#[must_use]
pub fn crc_of(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[ATTRIBUTES_AT..])
}

/// Whether the CRC of a whole batch is right; `false` too for fewer bytes than a header.
#[must_use]
pub fn crc_matches(batch: &[u8]) -> bool {
    match batch.get(CRC_AT..ATTRIBUTES_AT) {
        Some(stored) if batch.len() >= BATCH_HEADER_BYTES => stored == crc_of(batch).to_be_bytes(),
        _ => false,
    }
}

/// CRC of `batch` as it will be with other attributes and another largest timestamp.
pub(crate) fn crc_with(batch: &[u8], attributes: i16, max_timestamp: TimestampMs) -> u32 {
    let mut head = [0; BATCH_HEADER_BYTES - ATTRIBUTES_AT];
    head.copy_from_slice(&batch[ATTRIBUTES_AT..BATCH_HEADER_BYTES]);
    head[..2].copy_from_slice(&attributes.to_be_bytes());
    let at = MAX_TIMESTAMP_AT - ATTRIBUTES_AT;
    head[at..at + 8].copy_from_slice(&max_timestamp.0.to_be_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), &batch[BATCH_HEADER_BYTES..])
}

/// Copies `batch` to `out` with the fields of `patch`. Both have the same length, at least a header.
#[inline]
pub fn write_patched(batch: &[u8], patch: &Patch, out: &mut [u8]) {
    assert!(batch.len() == out.len() && out.len() >= BATCH_HEADER_BYTES, "a whole batch is written to its own room");
    out.copy_from_slice(batch);
    out[0..8].copy_from_slice(&patch.base_offset.0.to_be_bytes());
    out[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].copy_from_slice(&patch.leader_epoch.0.to_be_bytes());
    out[CRC_AT..CRC_AT + 4].copy_from_slice(&patch.crc.to_be_bytes());
    out[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&patch.attributes.to_be_bytes());
    out[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&patch.max_timestamp.0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, BatchHeader};

    #[test]
    fn k0_26_a_patched_batch_has_the_new_fields_and_a_right_crc() {
        let batch = BatchBuilder::new().producer(7, 1, 0).record(None, Some(b"value")).build();
        let crc = crc_with(&batch, 0x18, TimestampMs(77));
        let patch = Patch {
            base_offset: Offset(1000),
            leader_epoch: LeaderEpoch(3),
            attributes: 0x18,
            max_timestamp: TimestampMs(77),
            crc,
        };
        let mut out = vec![0; batch.len()];
        write_patched(&batch, &patch, &mut out);
        assert!(crc_matches(&out));
        let header = BatchHeader::parse(&out).expect("a header");
        assert_eq!((header.base_offset, header.leader_epoch), (Offset(1000), LeaderEpoch(3)));
        assert_eq!((header.attributes.0, header.max_timestamp), (0x18, TimestampMs(77)));
        assert_eq!(out[43..], batch[43..], "nothing behind the largest timestamp changes");
    }

    #[test]
    fn every_flipped_bit_under_the_crc_is_seen() {
        let batch = BatchBuilder::new().record(Some(b"k"), Some(b"v")).build();
        assert!(crc_matches(&batch));
        for bit in CRC_AT * 8..batch.len() * 8 {
            let mut bad = batch.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!crc_matches(&bad), "bit {bit}");
        }
        assert!(!crc_matches(&batch[..60]));
        assert!(!crc_matches(&[]));
    }
}
