//! Requests on their way to a socket: their heads in one buffer, their batches by reference.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Requests one behind the other, to be written in one go.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// What is complete, and how long it is.
    chunks: VecDeque<Bytes>,
    bytes: usize,
    /// What comes behind it.
    head: BytesMut,
}

impl Outbound {
    /// Where the next request is written. Bytes put into the midst of it follow with [`Outbound::insert`].
    pub fn head(&mut self) -> &mut BytesMut {
        &mut self.head
    }

    /// Bytes that are not written yet.
    pub fn len(&self) -> usize {
        self.bytes + self.head.len()
    }

    /// Puts bytes at places of what was written to the head, in order.
    pub fn insert(&mut self, payloads: impl IntoIterator<Item = (usize, Bytes)>) {
        let mut done = 0;
        for (at, payload) in payloads {
            let before = self.head.split_to(at - done).freeze();
            done = at;
            self.push(before);
            self.push(payload);
        }
    }

    /// Makes everything ready to be taken out.
    pub fn finish(&mut self) {
        let rest = self.head.split().freeze();
        self.push(rest);
    }

    fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }
}

/// What is finished.
impl Buf for Outbound {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| chunk)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let count = slices.len().min(self.chunks.len());
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(chunk);
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "no more is written than there is");
        self.bytes -= count;
        while count > 0 {
            let front = self.chunks.front_mut().expect("chunks are as long as all bytes");
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> (Outbound, Vec<u8>) {
        let mut out = Outbound::default();
        out.head().extend_from_slice(b"first.");
        out.insert([(2, Bytes::from_static(b"IN")), (6, Bytes::new()), (6, Bytes::from_static(b"END"))]);
        out.head().extend_from_slice(b"second");
        assert_eq!(out.len(), 17);
        out.finish();
        (out, b"fiINrst.ENDsecond".to_vec())
    }

    #[test]
    fn what_is_inserted_stands_where_it_belongs() {
        let (mut out, expected) = all();
        assert_eq!(out.copy_to_bytes(out.remaining()), expected);
        assert_eq!((out.len(), out.chunks.len()), (0, 0));
    }

    #[test]
    fn a_write_may_end_anywhere() {
        let (whole, expected) = all();
        for count in 0..=whole.remaining() {
            let (mut out, _) = all();
            out.advance(count);
            let mut slices = [IoSlice::new(&[]); 9];
            let used = out.chunks_vectored(&mut slices);
            let left: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(left, expected[count..], "{count}");
            assert_eq!(out.remaining(), expected.len() - count);
        }
    }
}
