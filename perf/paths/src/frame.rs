//! Frames of requests as a client writes them, in the flexible encoding that every version used here has.

use bytes::{BufMut, Bytes, BytesMut};
use oncilla_shards::ids::TopicId;

/// What a client calls itself.
const CLIENT_ID: &[u8] = b"client-1";

/// A frame being written.
pub struct Frame(BytesMut);

impl Frame {
    /// A frame with its header, without the size in front.
    #[must_use]
    pub fn new(key: i16, version: i16, capacity_bytes: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(64 + capacity_bytes);
        bytes.put_i16(key);
        bytes.put_i16(version);
        bytes.put_i32(1);
        bytes.put_i16(CLIENT_ID.len() as i16);
        bytes.put_slice(CLIENT_ID);
        Self(bytes).no_tags()
    }

    /// A byte.
    #[must_use]
    pub fn i8(mut self, value: i8) -> Self {
        self.0.put_i8(value);
        self
    }

    /// Two bytes.
    #[must_use]
    pub fn i16(mut self, value: i16) -> Self {
        self.0.put_i16(value);
        self
    }

    /// Four bytes.
    #[must_use]
    pub fn i32(mut self, value: i32) -> Self {
        self.0.put_i32(value);
        self
    }

    /// Eight bytes.
    #[must_use]
    pub fn i64(mut self, value: i64) -> Self {
        self.0.put_i64(value);
        self
    }

    /// A topic id.
    #[must_use]
    pub fn topic_id(mut self, id: TopicId) -> Self {
        self.0.put_u128(id.0);
        self
    }

    /// Elements of an array, or bytes of a field.
    #[must_use]
    pub fn count(mut self, count: usize) -> Self {
        let mut left = count as u32 + 1;
        while left >= 0x80 {
            self.0.put_u8(left as u8 | 0x80);
            left >>= 7;
        }
        self.0.put_u8(left as u8);
        self
    }

    /// A null text or array.
    #[must_use]
    pub fn null(self) -> Self {
        self.i8(0)
    }

    /// Text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.payload(text.as_bytes())
    }

    /// A field of bytes.
    #[must_use]
    pub fn payload(self, bytes: &[u8]) -> Self {
        let mut frame = self.count(bytes.len());
        frame.0.put_slice(bytes);
        frame
    }

    /// No tags.
    #[must_use]
    pub fn no_tags(self) -> Self {
        self.i8(0)
    }

    /// The frame, as a connection cuts it from its read buffer: shared memory, so that slices of it allocate nothing.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        self.0.split().freeze()
    }
}
