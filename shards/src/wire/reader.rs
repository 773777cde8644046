//! Length-checked reading of request bytes.
//!
//! A [`Reader`] borrows the body and hands out parts of it; nothing is copied, and no read passes the end. Whoever
//! keeps a part longer than the body's borrow turns it into a slice of the frame with [`share`] or [`share_text`].
//! One reader serves both encodings: `flexible` says whether lengths are varints counted from one and structs end in
//! tag sections.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::error::{WireError, WireFault};
use crate::ids::TopicId;
use crate::limits::REQUEST_ELEMENTS_MAX;

/// Longest encoding of a 32-bit varint.
const VARINT_BYTES_MAX: usize = 5;

/// Longest encoding of a 64-bit varint.
const VARLONG_BYTES_MAX: usize = 10;

/// A position in the bytes of one request.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    flexible: bool,
    elements_left: usize,
}

macro_rules! integers {
    ($($(#[$doc:meta])* $name:ident: $int:ty),*) => {
        $($(#[$doc])*
        #[inline]
        pub fn $name(&mut self) -> Result<$int, WireError> {
            self.fixed().map(<$int>::from_be_bytes)
        })*
    };
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of a body (or header) in the plain or the flexible encoding.
    #[must_use]
    pub fn new(bytes: &'a [u8], flexible: bool) -> Self {
        Self { bytes, at: 0, flexible, elements_left: REQUEST_ELEMENTS_MAX }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    integers! {
        /// A signed byte.
        i8: i8,
        /// Two bytes.
        i16: i16,
        /// Four bytes.
        i32: i32,
        /// Eight bytes.
        i64: i64
    }

    /// A boolean; every byte other than 0 is true (contract KC.6).
    #[inline]
    pub fn bool(&mut self) -> Result<bool, WireError> {
        Ok(self.i8()? != 0)
    }

    /// A topic id, 16 bytes.
    #[inline]
    pub fn topic_id(&mut self) -> Result<TopicId, WireError> {
        self.fixed().map(|id| TopicId(u128::from_be_bytes(id)))
    }

    /// An unsigned varint of at most five bytes; bits above the 32nd are dropped, as Kafka drops them.
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32, WireError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u32::from(byte))
            }
            _ => self.long_varint(VARINT_BYTES_MAX).map(|value| value as u32),
        }
    }

    /// A zigzag varint of at most five bytes.
    pub fn varint(&mut self) -> Result<i32, WireError> {
        let zigzag = self.uvarint()?;
        Ok((zigzag >> 1) as i32 ^ -((zigzag & 1) as i32))
    }

    /// An unsigned varint of at most ten bytes.
    pub fn uvarlong(&mut self) -> Result<u64, WireError> {
        self.long_varint(VARLONG_BYTES_MAX)
    }

    /// A zigzag varint of at most ten bytes.
    pub fn varlong(&mut self) -> Result<i64, WireError> {
        let zigzag = self.uvarlong()?;
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    /// Text or null; every length below 0 of the plain encoding is null (contract KC.3).
    #[inline]
    pub fn nullable_text(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        let length = if self.flexible { self.compact_length()? } else { usize::try_from(self.i16()?).ok() };
        length.map(|length| self.take(length)).transpose()
    }

    /// Text that may not be null.
    #[inline]
    pub fn text(&mut self) -> Result<&'a [u8], WireError> {
        let at = self.at;
        self.nullable_text()?.ok_or(WireError { at, fault: WireFault::Null })
    }

    /// Bytes or null; every length below 0 of the plain encoding is null.
    #[inline]
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        let length = if self.flexible { self.compact_length()? } else { usize::try_from(self.i32()?).ok() };
        length.map(|length| self.take(length)).transpose()
    }

    /// Bytes that may not be null.
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let at = self.at;
        self.nullable_bytes()?.ok_or(WireError { at, fault: WireFault::Null })
    }

    /// The element count of an array or null; at most one element for each byte left (contract KC.6).
    #[inline]
    pub fn nullable_count(&mut self) -> Result<Option<usize>, WireError> {
        let at = self.at;
        let count = if self.flexible { self.compact_length()? } else { usize::try_from(self.i32()?).ok() };
        if let Some(count) = count {
            self.claim_elements(at, count)?;
        }
        Ok(count)
    }

    /// The element count of an array that may not be null.
    #[inline]
    pub fn count(&mut self) -> Result<usize, WireError> {
        let at = self.at;
        self.nullable_count()?.ok_or(WireError { at, fault: WireFault::Null })
    }

    /// Skips the tag section that ends a struct of the flexible encoding; the plain one has none (contract KC.4).
    #[inline]
    pub fn skip_tags(&mut self) -> Result<(), WireError> {
        self.tags(|_, _| Ok(()))
    }

    /// Shows every tag of the section to `known`, as its number and a reader over its bytes alone.
    #[inline]
    pub fn tags(
        &mut self,
        mut known: impl FnMut(u32, &mut Reader<'a>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        if !self.flexible {
            return Ok(());
        }
        let at = self.at;
        let count = self.uvarint()? as usize;
        if count == 0 {
            return Ok(());
        }
        self.claim_elements(at, count)?;
        for _ in 0..count {
            let tag = self.uvarint()?;
            let bytes = self.uvarint()? as usize;
            let start = self.at;
            self.take(bytes)?;
            let mut field = Reader { bytes: &self.bytes[..self.at], at: start, ..*self };
            known(tag, &mut field)?;
        }
        Ok(())
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let left = self.left();
        if count > left {
            return Err(self.error(WireFault::Short { wanted: count, left }));
        }
        let part = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(part)
    }

    /// An error at the current position.
    #[must_use]
    pub fn error(&self, fault: WireFault) -> WireError {
        WireError { at: self.at, fault }
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => Err(self.error(WireFault::Short { wanted: N, left: self.left() })),
        }
    }

    #[inline]
    fn compact_length(&mut self) -> Result<Option<usize>, WireError> {
        Ok((self.uvarint()? as usize).checked_sub(1))
    }

    fn claim_elements(&mut self, at: usize, count: usize) -> Result<(), WireError> {
        let left = self.left();
        if count > left {
            return Err(WireError { at, fault: WireFault::CountAboveFrame { count, left } });
        }
        match self.elements_left.checked_sub(count) {
            Some(elements) => self.elements_left = elements,
            None => return Err(WireError { at, fault: WireFault::TooManyElements }),
        }
        Ok(())
    }

    fn long_varint(&mut self, bytes_max: usize) -> Result<u64, WireError> {
        let mut value = 0u64;
        for i in 0..bytes_max {
            let Some(&byte) = self.bytes.get(self.at + i) else {
                return Err(self.error(WireFault::Short { wanted: i + 1, left: self.left() }));
            };
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(self.error(WireFault::VarintTooLong))
    }
}

/// The part of `frame` that `part` borrows, as a slice that keeps the frame alive.
///
/// # Panics
/// If `part` was not read from `frame`.
#[inline]
#[must_use]
pub fn share(frame: &Bytes, part: &[u8]) -> Bytes {
    frame.slice_ref(part)
}

/// Text of a frame as a string slice of it. Bytes that are no UTF-8 become U+FFFD, as in Kafka: such a name then fails
/// as a name, not as a frame (contract KC.3).
#[inline]
#[must_use]
pub fn share_text(frame: &Bytes, part: &[u8]) -> StrBytes {
    StrBytes::from_utf8(share(frame, part))
        .unwrap_or_else(|_| StrBytes::from_string(String::from_utf8_lossy(part).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault<T: std::fmt::Debug>(result: Result<T, WireError>) -> WireFault {
        result.expect_err("must fail").fault
    }

    #[test]
    fn kc_6_varints_end_within_five_and_ten_bytes() {
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f], true).uvarint(), Ok(u32::MAX));
        assert_eq!(fault(Reader::new(&[0xff; 9], true).uvarint()), WireFault::VarintTooLong);
        assert_eq!(fault(Reader::new(&[0xff; 12], true).uvarlong()), WireFault::VarintTooLong);
        assert_eq!(fault(Reader::new(&[0x80, 0x80], true).uvarint()), WireFault::Short { wanted: 3, left: 2 });
        assert_eq!(Reader::new(&[0xd8, 0x04], true).varint(), Ok(300));
        assert_eq!(Reader::new(&[0x01], true).varint(), Ok(-1));
        let least = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Reader::new(&least, true).varlong(), Ok(i64::MIN));
    }

    #[test]
    fn kc_6_array_counts_are_held_against_the_bytes_left() {
        assert_eq!(Reader::new(&[0, 0, 0, 2, 9, 9], false).count(), Ok(2));
        let claim = Reader::new(&[0, 0, 0, 3, 9, 9], false).count();
        assert_eq!(fault(claim), WireFault::CountAboveFrame { count: 3, left: 2 });
        let claim = Reader::new(&[0x7f, 0xff, 0xff, 0xff], false).count();
        assert_eq!(fault(claim), WireFault::CountAboveFrame { count: i32::MAX as usize, left: 0 });
        let claim = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f], true).count();
        assert_eq!(fault(claim), WireFault::CountAboveFrame { count: u32::MAX as usize - 1, left: 0 });
    }

    #[test]
    fn kc_6_counts_and_lengths_below_minus_one_are_null() {
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xfe], false).nullable_count(), Ok(None));
        assert_eq!(Reader::new(&[0x80, 0, 0, 0], false).nullable_count(), Ok(None));
        assert_eq!(Reader::new(&[0xff, 0xfe], false).nullable_text(), Ok(None));
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xfe], false).nullable_bytes(), Ok(None));
        assert_eq!(fault(Reader::new(&[0xff, 0xff, 0xff, 0xfe], false).count()), WireFault::Null);
        assert_eq!(fault(Reader::new(&[0], true).text()), WireFault::Null);
    }

    #[test]
    fn kc_4_unknown_tags_are_skipped_also_twice_and_never_past_the_frame() {
        let mut reader = Reader::new(&[2, 9, 2, 1, 2, 9, 0, 7], true);
        assert_eq!(reader.skip_tags(), Ok(()));
        assert_eq!(reader.i8(), Ok(7));
        let past = Reader::new(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f], true).skip_tags();
        assert_eq!(fault(past), WireFault::Short { wanted: u32::MAX as usize, left: 0 });
        assert_eq!(fault(Reader::new(&[], true).skip_tags()), WireFault::Short { wanted: 1, left: 0 });
    }

    #[test]
    fn a_tag_reader_ends_with_its_tag() {
        let mut reader = Reader::new(&[1, 0, 1, 5, 6, 6, 6, 6], true);
        let read = reader.tags(|_, field| field.i32().map(|_| ()));
        assert_eq!(read.expect_err("four bytes in a tag of one").fault, WireFault::Short { wanted: 4, left: 1 });
    }

    #[test]
    fn elements_of_one_request_are_bounded_over_all_its_arrays() {
        let half = REQUEST_ELEMENTS_MAX / 2 + 1;
        let mut body = (half as i32).to_be_bytes().to_vec();
        body.extend_from_slice(&(half as i32).to_be_bytes());
        body.resize(8 + half, 0);
        let mut reader = Reader::new(&body, false);
        assert_eq!(reader.count(), Ok(half));
        assert_eq!(fault(reader.count()), WireFault::TooManyElements);
    }

    #[test]
    fn kc_3_text_that_is_no_utf8_is_replaced_not_refused() {
        let frame = Bytes::from_static(&[b'a', 0xff]);
        assert_eq!(share_text(&frame, &frame).as_str(), "a\u{fffd}");
        let frame = Bytes::from_static(b"topic");
        assert_eq!(share_text(&frame, &frame[..3]).as_ptr(), frame.as_ptr(), "a slice, not a copy");
    }
}
