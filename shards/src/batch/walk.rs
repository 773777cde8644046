//! The record format of v2 batches, read from a slice or from a stream that is being unpacked.
//!
//! One parser serves both, so that what is accepted compressed is what is accepted plain. It allocates nothing and
//! believes no length: each is held against the bytes of the record around it. Failure: [`Malformed`].

use crate::batch::compression::{Pieces, Undecodable};

/// Records that do not follow the format (contract K0.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record does not parse")]
pub struct Malformed;

impl From<Undecodable> for Malformed {
    fn from(_: Undecodable) -> Self {
        Self
    }
}

/// Where record bytes come from. `enter` opens a record of known length, `leave` insists that it was used up.
pub(crate) trait Source {
    /// A run of bytes: the slice itself, or nothing when only the format is checked.
    type Run: Copy;
    fn byte(&mut self) -> Result<u8, Malformed>;
    fn run(&mut self, count: usize) -> Result<Self::Run, Malformed>;
    /// What is left of the record, not consumed.
    fn rest(&self) -> Self::Run;
    fn enter(&mut self, count: usize) -> Result<(), Malformed>;
    fn leave(&mut self) -> Result<(), Malformed>;
    /// Whether all records' bytes were used.
    fn at_end(&mut self) -> Result<bool, Malformed>;

    #[inline]
    fn varlong(&mut self) -> Result<i64, Malformed> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(zigzag(u64::from(first)));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(zigzag(value));
            }
        }
        Err(Malformed)
    }

    #[inline]
    fn varint(&mut self) -> Result<i32, Malformed> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(zigzag(u64::from(first)) as i32);
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..35).step_by(7) {
            let byte = self.byte()?;
            if shift == 28 && byte > 0x0f {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(zigzag(value) as i32);
            }
        }
        Err(Malformed)
    }

    /// A field with its length in front, -1 for null.
    #[inline]
    fn nullable(&mut self) -> Result<Option<Self::Run>, Malformed> {
        match self.varint()? {
            -1 => Ok(None),
            length => self.run(usize::try_from(length).map_err(|_| Malformed)?).map(Some),
        }
    }
}

#[inline]
fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Record bytes that lie in memory.
pub(crate) struct Slice<'a> {
    bytes: &'a [u8],
    outer: &'a [u8],
}

impl<'a> Slice<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, outer: &[] }
    }
}

impl<'a> Source for Slice<'a> {
    type Run = &'a [u8];

    #[inline]
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.bytes.split_first().ok_or(Malformed)?;
        self.bytes = rest;
        Ok(byte)
    }

    #[inline]
    fn run(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (run, rest) = self.bytes.split_at_checked(count).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(run)
    }

    #[inline]
    fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    fn enter(&mut self, count: usize) -> Result<(), Malformed> {
        let (record, outer) = self.bytes.split_at_checked(count).ok_or(Malformed)?;
        (self.bytes, self.outer) = (record, outer);
        Ok(())
    }

    #[inline]
    fn leave(&mut self) -> Result<(), Malformed> {
        let whole = self.bytes.is_empty();
        self.bytes = self.outer;
        if whole { Ok(()) } else { Err(Malformed) }
    }

    fn at_end(&mut self) -> Result<bool, Malformed> {
        Ok(self.bytes.is_empty())
    }
}

/// Record bytes that are unpacked while they are read; runs are skipped.
pub(crate) struct Streamed<'a> {
    pieces: Pieces<'a>,
    /// Bytes left of the open record; between records only the stream's end bounds.
    left: usize,
}

impl<'a> Streamed<'a> {
    pub(crate) fn new(pieces: Pieces<'a>) -> Self {
        Self { pieces, left: usize::MAX }
    }
}

impl Source for Streamed<'_> {
    type Run = ();

    #[inline]
    fn byte(&mut self) -> Result<u8, Malformed> {
        self.left = self.left.checked_sub(1).ok_or(Malformed)?;
        let &byte = self.pieces.available()?.first().ok_or(Malformed)?;
        self.pieces.consume(1);
        Ok(byte)
    }

    fn run(&mut self, mut count: usize) -> Result<(), Malformed> {
        self.left = self.left.checked_sub(count).ok_or(Malformed)?;
        while count > 0 {
            let step = count.min(self.pieces.available()?.len());
            if step == 0 {
                return Err(Malformed);
            }
            self.pieces.consume(step);
            count -= step;
        }
        Ok(())
    }

    fn rest(&self) {}

    fn enter(&mut self, count: usize) -> Result<(), Malformed> {
        self.left = count;
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Malformed> {
        let whole = self.left == 0;
        self.left = usize::MAX;
        if whole { Ok(()) } else { Err(Malformed) }
    }

    fn at_end(&mut self) -> Result<bool, Malformed> {
        Ok(self.pieces.available()?.is_empty())
    }
}

/// One record as it stands in the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRecord<R> {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<R>,
    pub(crate) value: Option<R>,
    pub(crate) header_count: usize,
    /// The headers' bytes, known to parse.
    pub(crate) headers: R,
}

/// Reads the next record. Its fields must fill it exactly.
#[inline]
pub(crate) fn next_record<S: Source>(source: &mut S) -> Result<RawRecord<S::Run>, Malformed> {
    let length = usize::try_from(source.varint()?).map_err(|_| Malformed)?;
    source.enter(length)?;
    // The record's own attributes have no assigned bit.
    source.byte()?;
    let timestamp_delta = source.varlong()?;
    let offset_delta = source.varint()?;
    let key = source.nullable()?;
    let value = source.nullable()?;
    let header_count = usize::try_from(source.varint()?).map_err(|_| Malformed)?;
    let headers = source.rest();
    for _ in 0..header_count {
        source.nullable()?.ok_or(Malformed)?;
        source.nullable()?;
    }
    source.leave()?;
    Ok(RawRecord { timestamp_delta, offset_delta, key, value, header_count, headers })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::compression::{Codec, Unpacker};
    use crate::batch::varint::put_varint;

    fn streamed(data: &[u8]) -> Streamed<'_> {
        Streamed::new(Pieces::new(Unpacker::new(Codec::None, data, 1 << 20).expect("plain data")))
    }

    #[test]
    fn the_largest_varints_are_read_and_longer_ones_refused() {
        for value in [0, -1, 1, 63, 64, -65, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(Slice::new(&out).varlong(), Ok(value));
            let fits = i32::try_from(value).map_err(|_| Malformed);
            assert_eq!(Slice::new(&out).varint(), fits, "{value}");
        }
        assert_eq!(Slice::new(&[0x80; 11]).varlong(), Err(Malformed));
        assert_eq!(Slice::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]).varint(), Err(Malformed));
    }

    proptest! {
        #[test]
        fn a_stream_reads_what_a_slice_reads(data in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..64)) {
            let (mut slice, mut stream) = (Slice::new(&data), streamed(&data));
            for _ in 0..data.len() + 1 {
                let (a, b) = (next_record(&mut slice), next_record(&mut stream));
                prop_assert_eq!(a.is_ok(), b.is_ok());
                let (Ok(a), Ok(b)) = (a, b) else { break };
                prop_assert_eq!((a.offset_delta, a.timestamp_delta), (b.offset_delta, b.timestamp_delta));
                prop_assert_eq!((a.key.is_some(), a.value.is_some()), (b.key.is_some(), b.value.is_some()));
                prop_assert_eq!(slice.at_end(), stream.at_end());
            }
        }
    }
}
