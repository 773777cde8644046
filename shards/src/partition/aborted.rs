//! The aborted transactions whose markers lie in one segment, in memory and as a file (contract A10).
//!
//! Owner: the segment. An entry comes with the write that made its marker durable and goes with the segment, or with
//! its marker when compaction drops that, so the memory is bounded by the markers that live. Empty transactions cost
//! nothing (case 162).
//! The file is this broker's own format, because Kafka's has no checksum and none for "nothing was aborted": `OABT`,
//! u16 version, u32 CRC32C of all that follows, i64 base offset and i64 bytes of the segment, then each entry in the
//! order of the markers: i64 producer id, i64 first offset, i64 marker offset, i64 stable offset. Big-endian. Every
//! sealed segment has one, so a missing file is told from an empty list. Failure: bytes that are no such file are
//! refused as a whole, and the edges rebuild the list from the log.

use crate::ids::{Offset, ProducerId};
use crate::producers::AbortedTxn;

const MAGIC: [u8; 4] = *b"OABT";
const VERSION: u16 = 1;
const CHECKED_FROM: usize = 10;
const HEAD_BYTES: usize = CHECKED_FROM + 16;
const ENTRY_BYTES: usize = 32;

/// Aborted transactions in the order of their markers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortedIndex {
    entries: Vec<AbortedTxn>,
}

impl AbortedIndex {
    /// Notes the next one.
    pub fn push(&mut self, entry: AbortedTxn) {
        let last = self.entries.last();
        assert!(last.is_none_or(|last| last.marker_offset < entry.marker_offset), "markers ascend");
        self.entries.push(entry);
    }

    /// All of them.
    #[must_use]
    pub fn entries(&self) -> &[AbortedTxn] {
        &self.entries
    }

    /// Those whose marker lies at `offset` or behind it.
    #[must_use]
    pub fn since(&self, offset: Offset) -> &[AbortedTxn] {
        &self.entries[self.entries.partition_point(|entry| entry.marker_offset < offset)..]
    }

    /// The one that the marker at `offset` ended.
    #[must_use]
    pub fn ended_at(&self, offset: Offset) -> Option<AbortedTxn> {
        self.since(offset).first().copied().filter(|entry| entry.marker_offset == offset)
    }

    /// The file beside the sealed segment that begins at `base` and has `log_bytes`.
    #[must_use]
    pub fn encode(&self, base: Offset, log_bytes: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.entries.len() * ENTRY_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&base.0.to_be_bytes());
        out.extend_from_slice(&log_bytes.to_be_bytes());
        for entry in &self.entries {
            let fields = [entry.producer_id.0, entry.first_offset.0, entry.marker_offset.0, entry.stable_offset.0];
            out.extend(fields.into_iter().flat_map(i64::to_be_bytes));
        }
        let crc = crc32c::crc32c(&out[CHECKED_FROM..]);
        out[6..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// The list from its file, if that is of a segment of `log_bytes` with the offsets from `base` up to `end`.
    pub fn decode(bytes: &[u8], log_bytes: u64, base: Offset, end: Offset) -> Result<Self, &'static str> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or("the aborted index is cut")?;
        if head[..4] != MAGIC || head[4..6] != VERSION.to_be_bytes() {
            return Err("the aborted index has an unknown format");
        }
        if head[6..CHECKED_FROM] != crc32c::crc32c(&bytes[CHECKED_FROM..]).to_be_bytes() {
            return Err("the checksum of the aborted index is wrong");
        }
        let (of_base, of_bytes) = head[CHECKED_FROM..].split_at(8);
        if of_base != base.0.to_be_bytes() || of_bytes != log_bytes.to_be_bytes() {
            return Err("the aborted index is of another segment");
        }
        let (entries, cut) = rest.as_chunks::<ENTRY_BYTES>();
        let entries: Vec<AbortedTxn> = entries.iter().map(entry).collect();
        let is_sane = |entry: &AbortedTxn| {
            entry.producer_id.0 >= 0
                && (base..end).contains(&entry.marker_offset)
                && (Offset(0)..entry.marker_offset).contains(&entry.first_offset)
        };
        let ascends = entries.is_sorted_by(|a, b| a.marker_offset < b.marker_offset);
        if cut.is_empty() && ascends && entries.iter().all(is_sane) {
            Ok(Self { entries })
        } else {
            Err("the aborted index contradicts its segment")
        }
    }
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> AbortedTxn {
    let field = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    AbortedTxn {
        producer_id: ProducerId(field(0)),
        first_offset: Offset(field(8)),
        marker_offset: Offset(field(16)),
        stable_offset: Offset(field(24)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> AbortedIndex {
        let mut index = AbortedIndex::default();
        for (id, first, marker, stable) in [(7, 2, 10, 11), (8, 4, 12, 5), (7, 11, 19, 5)] {
            index.push(AbortedTxn {
                producer_id: ProducerId(id),
                first_offset: Offset(first),
                marker_offset: Offset(marker),
                stable_offset: Offset(stable),
            });
        }
        index
    }

    fn decode(bytes: &[u8]) -> Result<AbortedIndex, &'static str> {
        AbortedIndex::decode(bytes, 5000, Offset(5), Offset(20))
    }

    #[test]
    fn a10_the_file_reads_back_empty_or_not() {
        for index in [sample(), AbortedIndex::default()] {
            assert_eq!(decode(&index.encode(Offset(5), 5000)), Ok(index));
        }
    }

    #[test]
    fn a10_a_file_that_is_damaged_cut_or_of_another_segment_is_refused() {
        let good = sample().encode(Offset(5), 5000);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&good[..at]).is_err(), "cut at {at}");
        }
        assert!(decode(&sample().encode(Offset(5), 5001)).is_err());
        assert!(AbortedIndex::decode(&good, 5000, Offset(5), Offset(19)).is_err(), "a marker behind the segment");
        let early = sample().encode(Offset(11), 5000);
        assert!(AbortedIndex::decode(&early, 5000, Offset(11), Offset(20)).is_err(), "a marker before the segment");
        let empty = AbortedIndex::default().encode(Offset(4), 5000);
        assert!(decode(&empty).is_err(), "also where nothing was aborted");
        assert!(decode(&[good, vec![0]].concat()).is_err());
    }

    #[test]
    fn a10_a_marker_before_the_offset_is_passed_over_and_one_at_it_is_not() {
        let index = sample();
        let since = |offset| index.since(Offset(offset)).len();
        assert_eq!([0, 10, 11, 12, 19, 20].map(since), [3, 3, 2, 2, 1, 0]);
        assert_eq!(index.ended_at(Offset(12)).map(|entry| entry.producer_id), Some(ProducerId(8)));
        assert_eq!(index.ended_at(Offset(13)), None);
    }
}
