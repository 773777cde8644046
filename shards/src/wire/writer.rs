//! Encoding of answers, with payloads referenced instead of copied.
//!
//! A [`Writer`] copies small fields into a growing buffer and keeps payloads from
//! [`crate::limits::PAYLOAD_COPIED_BYTES_MAX`] on as they are; the result is a [`Body`], a list of chunks for one
//! vectored write. Whoever builds an answer decides what is in it, so nothing here fails: text longer than its field
//! is cut.

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::ids::TopicId;
use crate::limits::PAYLOAD_COPIED_BYTES_MAX;

/// Chunks that a body holds without another allocation: one payload between two runs of fields, and the frame's start.
const CHUNKS_INLINE: usize = 4;

/// Longest text of the plain encoding, whose length is an i16.
const PLAIN_TEXT_BYTES_MAX: usize = i16::MAX as usize;

/// Size and correlation id, and the empty tag section of a flexible answer header.
const PREFIX_BYTES_MAX: usize = 4 + 4 + 1;

/// An encoded answer, ready for a vectored write. No chunk is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    chunks: SmallVec<[Bytes; CHUNKS_INLINE]>,
    bytes: usize,
}

/// The first bytes of an answer frame, in front of its [`Body`].
#[derive(Clone, Copy, Debug)]
pub struct FramePrefix {
    bytes: [u8; PREFIX_BYTES_MAX],
    length: usize,
}

impl FramePrefix {
    /// The 8 or 9 bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Body {
    /// The chunks in the order of the wire.
    #[must_use]
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// The chunks by value.
    #[must_use]
    pub fn into_chunks(self) -> SmallVec<[Bytes; CHUNKS_INLINE]> {
        self.chunks
    }

    /// Bytes of all chunks together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Size, correlation id and header tags of the frame around this body. `flexible_header` is
    /// [`super::apis::has_flexible_answer_header`] of the request: never for ApiVersions (contract KC.2, case 116).
    ///
    /// # Panics
    /// If the body is above 2 GiB, which the limits on fetched bytes exclude.
    #[must_use]
    pub fn prefix(&self, correlation_id: i32, flexible_header: bool) -> FramePrefix {
        let length = PREFIX_BYTES_MAX - usize::from(!flexible_header);
        let size = i32::try_from(self.bytes + length - 4).expect("an answer is below 2 GiB");
        let mut bytes = [0; PREFIX_BYTES_MAX];
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        bytes[4..8].copy_from_slice(&correlation_id.to_be_bytes());
        FramePrefix { bytes, length }
    }

    /// The whole frame: [`Body::prefix`] as a chunk of its own in front.
    #[must_use]
    pub fn framed(mut self, correlation_id: i32, flexible_header: bool) -> Self {
        let prefix = self.prefix(correlation_id, flexible_header);
        self.bytes += prefix.as_slice().len();
        self.chunks.insert(0, Bytes::copy_from_slice(prefix.as_slice()));
        self
    }

    /// All bytes in one piece; copies unless there is one chunk.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        if let [one] = self.chunks.as_slice() {
            return one.clone();
        }
        let mut all = BytesMut::with_capacity(self.bytes);
        self.chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
        all.freeze()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        let mut body = Self { bytes: bytes.len(), chunks: SmallVec::new() };
        if !bytes.is_empty() {
            body.chunks.push(bytes);
        }
        body
    }
}

/// Writes the fields of an answer one after the other.
#[derive(Debug)]
pub struct Writer {
    fields: BytesMut,
    chunks: SmallVec<[Bytes; CHUNKS_INLINE]>,
    chunks_bytes: usize,
    flexible: bool,
}

impl Writer {
    /// An empty answer in the plain or the flexible encoding. `capacity_bytes` is what the fields are expected to
    /// take; it only spares growing.
    #[must_use]
    pub fn new(flexible: bool, capacity_bytes: usize) -> Self {
        let fields = BytesMut::with_capacity(capacity_bytes);
        Self { fields, chunks: SmallVec::new(), chunks_bytes: 0, flexible }
    }

    /// Makes room for so many payloads that are referenced, each with the fields before it, and for the fields behind
    /// the last; it only spares growing.
    pub fn reserve_payloads(&mut self, payloads: usize) {
        // One more for the frame's start.
        self.chunks.reserve(2 * payloads + 2);
    }

    /// A signed byte.
    pub fn i8(&mut self, value: i8) {
        self.fields.put_i8(value);
    }

    /// Two bytes.
    pub fn i16(&mut self, value: i16) {
        self.fields.put_i16(value);
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) {
        self.fields.put_i32(value);
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.fields.put_i64(value);
    }

    /// A topic id.
    pub fn topic_id(&mut self, id: TopicId) {
        self.fields.put_u128(id.0);
    }

    /// An unsigned varint.
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.fields.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.fields.put_u8(value as u8);
    }

    /// The element count of an array.
    pub fn count(&mut self, count: usize) {
        self.length(count);
    }

    /// A null array.
    pub fn null_count(&mut self) {
        if self.flexible { self.uvarint(0) } else { self.i32(-1) }
    }

    /// Text; what the length field cannot express is cut at a character.
    pub fn text(&mut self, text: &str) {
        if self.flexible {
            self.length(text.len());
            self.fields.put_slice(text.as_bytes());
        } else {
            let length = text.floor_char_boundary(PLAIN_TEXT_BYTES_MAX);
            self.i16(length as i16);
            self.fields.put_slice(&text.as_bytes()[..length]);
        }
    }

    /// Text or null.
    pub fn nullable_text(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None if self.flexible => self.uvarint(0),
            None => self.i16(-1),
        }
    }

    /// One bytes field made of `parts`, in order: long parts are referenced, short ones copied. No parts make a field
    /// of length zero, never null (case 78).
    pub fn payload(&mut self, parts: &[Bytes]) {
        self.length(parts.iter().map(Bytes::len).sum());
        for part in parts {
            if part.len() < PAYLOAD_COPIED_BYTES_MAX {
                self.fields.put_slice(part);
            } else {
                self.cut_fields();
                self.chunks_bytes += part.len();
                self.chunks.push(part.clone());
            }
        }
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.fields.put_slice(bytes);
    }

    /// An empty tag section in the flexible encoding, nothing in the plain one.
    pub fn no_tags(&mut self) {
        self.tag_count(0);
    }

    /// Starts a tag section of `count` tags in the flexible encoding; the plain one cannot carry any.
    pub fn tag_count(&mut self, count: u32) {
        if self.flexible {
            self.uvarint(count);
        } else {
            assert!(count == 0, "tags exist in the flexible encoding only");
        }
    }

    /// Number and length of one tag, whose content follows.
    pub fn tag(&mut self, tag: u32, bytes: u32) {
        assert!(self.flexible, "tags exist in the flexible encoding only");
        self.uvarint(tag);
        self.uvarint(bytes);
    }

    /// The answer.
    #[must_use]
    pub fn finish(mut self) -> Body {
        let bytes = self.chunks_bytes + self.fields.len();
        if !self.fields.is_empty() {
            self.chunks.push(self.fields.freeze());
        }
        Body { bytes, chunks: self.chunks }.checked()
    }

    fn length(&mut self, length: usize) {
        if self.flexible {
            self.uvarint(u32::try_from(length + 1).expect("an answer is below 2 GiB"));
        } else {
            self.i32(i32::try_from(length).expect("an answer is below 2 GiB"));
        }
    }

    fn cut_fields(&mut self) {
        if !self.fields.is_empty() {
            let fields = self.fields.split().freeze();
            self.chunks_bytes += fields.len();
            self.chunks.push(fields);
        }
    }
}

impl Body {
    fn checked(self) -> Self {
        debug_assert_eq!(self.bytes, self.chunks.iter().map(Bytes::len).sum::<usize>());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_payloads_are_referenced_and_short_ones_copied() {
        let long = Bytes::from(vec![7; PAYLOAD_COPIED_BYTES_MAX]);
        let short = Bytes::from(vec![8; PAYLOAD_COPIED_BYTES_MAX - 1]);
        let mut writer = Writer::new(false, 16);
        writer.payload(&[short.clone(), long.clone(), short.clone()]);
        writer.i16(5);
        let body = writer.finish();
        assert_eq!(body.chunks().len(), 3);
        assert_eq!(body.chunks()[1].as_ptr(), long.as_ptr());
        assert_eq!(body.bytes(), 4 + long.len() + 2 * short.len() + 2);
        assert_eq!(body.to_bytes().len(), body.bytes());
    }

    #[test]
    fn kc_2_the_prefix_counts_what_follows_the_size() {
        let body = Body::from(Bytes::from_static(&[1, 2, 3]));
        assert_eq!(body.prefix(-2, false).as_slice(), [0, 0, 0, 7, 0xff, 0xff, 0xff, 0xfe]);
        assert_eq!(body.prefix(1, true).as_slice(), [0, 0, 0, 8, 0, 0, 0, 1, 0]);
        let frame = body.framed(1, true);
        assert_eq!(frame.to_bytes(), Bytes::from_static(&[0, 0, 0, 8, 0, 0, 0, 1, 0, 1, 2, 3]));
        assert_eq!(frame.bytes(), 12);
        assert_eq!(Body::default().framed(9, false).to_bytes(), Bytes::from_static(&[0, 0, 0, 4, 0, 0, 0, 9]));
    }

    #[test]
    fn case_78_no_payload_is_a_field_of_length_zero() {
        let mut plain = Writer::new(false, 8);
        plain.payload(&[]);
        assert_eq!(plain.finish().to_bytes(), Bytes::from_static(&[0, 0, 0, 0]));
        let mut flexible = Writer::new(true, 8);
        flexible.payload(&[]);
        assert_eq!(flexible.finish().to_bytes(), Bytes::from_static(&[1]));
    }

    #[test]
    fn plain_text_longer_than_its_length_field_is_cut_at_a_character() {
        let text = "\u{e9}".repeat(PLAIN_TEXT_BYTES_MAX);
        let mut writer = Writer::new(false, 8);
        writer.text(&text);
        let body = writer.finish().to_bytes();
        assert_eq!(body[..2], (PLAIN_TEXT_BYTES_MAX as i16 - 1).to_be_bytes());
        assert_eq!(body.len(), 2 + PLAIN_TEXT_BYTES_MAX - 1);
    }
}
