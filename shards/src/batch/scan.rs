//! Finds the batches in log bytes and where they end: the reading side of recovery.
//!
//! A log file is preallocated with zeros and a crash may tear its last writes, so the first batch that is not whole and
//! right ends the log: short, of another format, a wrong CRC, or an offset that does not lie behind the one before.
//! Owner: the caller, who may feed a file in pieces (continue with [`Scan::after`] at [`Scan::end`]). Failure: none;
//! [`Scan::stopped`] says why it went no further.

use crate::batch::header::{BatchHeader, HeaderError, LENGTH_PREFIX_BYTES};
use crate::batch::patch::crc_matches;
use crate::ids::Offset;
use crate::limits::BATCH_HEADER_BYTES;

/// Why a scan went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Every byte belongs to a right batch.
    End,
    /// Zeros where the next batch would begin: room that was never written.
    Zeros,
    /// The bytes end inside a batch; more bytes might complete it.
    Cut,
    /// No batch begins here.
    Header,
    /// The batch's bytes were changed.
    Crc,
    /// The batch's offsets do not lie behind those before it.
    Offsets,
}

/// Iterates over the position and header of every right batch.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    next_offset: Offset,
    stopped: Option<Stop>,
}

/// Scans `bytes` from their start, taking any base offset from 0 for the first batch.
#[must_use]
pub fn scan(bytes: &[u8]) -> Scan<'_> {
    Scan::after(bytes, Offset(0))
}

impl<'a> Scan<'a> {
    /// Scans `bytes`, whose first batch begins at `next_offset` or behind it.
    #[must_use]
    pub fn after(bytes: &'a [u8], next_offset: Offset) -> Self {
        Self { bytes, at: 0, next_offset, stopped: None }
    }

    /// Where the bytes of the batches seen so far end.
    #[must_use]
    pub fn end(&self) -> usize {
        self.at
    }

    /// The offset behind the last batch seen so far.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Why the scan ended; `None` while it has not.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        self.stopped
    }

    fn step(&self) -> Result<BatchHeader, Stop> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Err(Stop::End);
        }
        let header = match BatchHeader::parse(rest) {
            Ok(header) => header,
            Err(error) => return Err(no_header(rest, error)),
        };
        let Some(batch) = rest.get(..header.total_bytes()) else { return Err(Stop::Cut) };
        if !crc_matches(batch) {
            return Err(Stop::Crc);
        }
        // Base offset and leader epoch are outside the CRC, so that the order of offsets is all that guards them.
        let fits = header.last_offset_delta >= 0
            && header.base_offset >= self.next_offset
            && header.base_offset.0.checked_add(i64::from(header.last_offset_delta) + 1).is_some();
        if fits { Ok(header) } else { Err(Stop::Offsets) }
    }
}

fn no_header(rest: &[u8], error: HeaderError) -> Stop {
    let head = &rest[..rest.len().min(BATCH_HEADER_BYTES)];
    if head.iter().all(|&byte| byte == 0) {
        // A batch at offset 0 begins with zeros too, but its length does not.
        return if head.len() >= LENGTH_PREFIX_BYTES { Stop::Zeros } else { Stop::Cut };
    }
    match error {
        HeaderError::Short => Stop::Cut,
        HeaderError::Magic(_) | HeaderError::Length(_) => Stop::Header,
    }
}

impl Iterator for Scan<'_> {
    type Item = (usize, BatchHeader);

    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped.is_some() {
            return None;
        }
        match self.step() {
            Ok(header) => {
                let position = self.at;
                self.at += header.total_bytes();
                self.next_offset = header.next_offset();
                Some((position, header))
            }
            Err(stop) => {
                self.stopped = Some(stop);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::BatchBuilder;

    /// Three batches of 2, 1 and 3 records from offset 10 on, and where each begins.
    fn log() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for (offset, count) in [(10, 2), (12, 1), (13, 3)] {
            starts.push(bytes.len());
            bytes.extend(BatchBuilder::new().base_offset(Offset(offset)).records(count).build());
        }
        starts.push(bytes.len());
        (bytes, starts)
    }

    fn end_of(bytes: &[u8]) -> (usize, Offset, Stop) {
        let mut scan = scan(bytes);
        while scan.next().is_some() {}
        (scan.end(), scan.next_offset(), scan.stopped().expect("a scan ends"))
    }

    #[test]
    fn a_whole_log_is_read_to_its_end() {
        let (bytes, starts) = log();
        let seen: Vec<_> = scan(&bytes).map(|(at, header)| (at, header.base_offset.0)).collect();
        assert_eq!(seen, [(starts[0], 10), (starts[1], 12), (starts[2], 13)]);
        assert_eq!(end_of(&bytes), (bytes.len(), Offset(16), Stop::End));
    }

    #[test]
    fn case_135_a_cut_at_every_position_ends_at_the_cut_batch() {
        let (bytes, starts) = log();
        for cut in 0..bytes.len() {
            let whole = *starts.iter().rev().find(|&&start| start <= cut).expect("0 is a start");
            let (end, _, stop) = end_of(&bytes[..cut]);
            assert_eq!(end, whole, "cut at {cut}");
            assert_eq!(stop == Stop::End, whole == cut, "cut at {cut}");
        }
    }

    #[test]
    fn case_135_a_flipped_bit_anywhere_ends_at_its_batch() {
        let (bytes, starts) = log();
        for bit in 0..bytes.len() * 8 {
            let at = bit / 8;
            let batch = starts.iter().rposition(|&start| start <= at).expect("0 is a start");
            let inside = at - starts[batch];
            // The leader epoch is guarded by nothing, and an offset that still ascends cannot be told from a right one.
            if (12..16).contains(&inside) || inside < 8 {
                continue;
            }
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (bit % 8);
            assert_eq!(end_of(&bad).0, starts[batch], "bit {bit}");
        }
    }

    #[test]
    fn offsets_that_go_back_end_the_log() {
        let (mut bytes, starts) = log();
        bytes[starts[1]..starts[1] + 8].copy_from_slice(&11i64.to_be_bytes());
        assert_eq!(end_of(&bytes), (starts[1], Offset(12), Stop::Offsets));
        bytes[starts[1]..starts[1] + 8].copy_from_slice(&i64::MAX.to_be_bytes());
        assert_eq!(end_of(&bytes), (starts[1], Offset(12), Stop::Offsets));
        let negative = BatchBuilder::new().base_offset(Offset(-1)).records(1).build();
        assert_eq!(end_of(&negative), (0, Offset(0), Stop::Offsets));
    }

    #[test]
    fn zeros_and_garbage_behind_the_tail_end_it() {
        let (bytes, _) = log();
        for room in [12, 61, 4096] {
            let padded = [bytes.clone(), vec![0; room]].concat();
            assert_eq!(end_of(&padded), (bytes.len(), Offset(16), Stop::Zeros), "{room} zeros");
        }
        let garbage = [bytes.clone(), vec![0x5a; 37]].concat();
        assert_eq!(end_of(&garbage).0, bytes.len());
        let garbage = [bytes.clone(), vec![0x5a; 4096]].concat();
        assert_eq!(end_of(&garbage), (bytes.len(), Offset(16), Stop::Header));
    }

    #[test]
    fn a_log_is_read_in_pieces() {
        let (bytes, _) = log();
        for cut in 0..bytes.len() {
            let mut first = scan(&bytes[..cut]);
            let mut seen = first.by_ref().count();
            let mut second = Scan::after(&bytes[first.end()..], first.next_offset());
            seen += second.by_ref().count();
            assert_eq!((seen, second.next_offset()), (3, Offset(16)), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn a_scan_of_anything_ends_within_it(
            data in prop::collection::vec(prop_oneof![Just(0u8), Just(2), any::<u8>()], 0..300),
        ) {
            prop_assert!(end_of(&data).0 <= data.len());
        }
    }
}
