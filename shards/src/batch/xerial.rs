//! Snappy as Kafka's clients write it: raw, or cut into blocks by the framing of xerial's snappy-java.
//!
//! A xerial stream begins with eight magic bytes and two version numbers, then blocks follow, each a big-endian length
//! and raw snappy data; streams may be written one behind the other. Everything else is raw snappy. Limits: the cap
//! given to [`Snappy::new`]; a block is refused before memory is taken when it claims more than snappy can express.

use std::io::{self, ErrorKind};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_BYTES: usize = 16;
/// Snappy's densest element turns 3 bytes into 64.
const DENSITY_MAX: usize = 22;

/// Reads one snappy stream, raw or framed.
pub(crate) struct Snappy<'a> {
    rest: &'a [u8],
    framed: bool,
    /// Raw data is one block, and even empty data has to hold it.
    started: bool,
    block: Vec<u8>,
    at: usize,
    left: usize,
}

impl<'a> Snappy<'a> {
    pub(crate) fn new(data: &'a [u8], bytes_max: usize) -> Self {
        let framed = data.len() >= HEADER_BYTES && data.starts_with(&MAGIC);
        Self { rest: data, framed, started: false, block: Vec::new(), at: 0, left: bytes_max }
    }

    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            match self.next_block()? {
                Some(packed) => self.unpack(packed)?,
                None => return Ok(0),
            }
        }
        let count = out.len().min(self.block.len() - self.at);
        out[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }

    fn next_block(&mut self) -> io::Result<Option<&'a [u8]>> {
        let first = !self.started;
        self.started = true;
        if !self.framed {
            return Ok(first.then(|| std::mem::take(&mut self.rest)));
        }
        while self.rest.len() >= HEADER_BYTES && self.rest.starts_with(&MAGIC) {
            self.rest = &self.rest[HEADER_BYTES..];
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (length, behind) = self.rest.split_first_chunk::<4>().ok_or(ErrorKind::UnexpectedEof)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| ErrorKind::InvalidData)?;
        let (packed, behind) = behind.split_at_checked(length).ok_or(ErrorKind::UnexpectedEof)?;
        self.rest = behind;
        Ok(Some(packed))
    }

    fn unpack(&mut self, packed: &[u8]) -> io::Result<()> {
        let bytes = snap::raw::decompress_len(packed).map_err(|_| ErrorKind::InvalidData)?;
        if bytes > self.left || bytes > packed.len().saturating_mul(DENSITY_MAX) {
            return Err(ErrorKind::InvalidData.into());
        }
        self.left -= bytes;
        self.block.clear();
        self.block.resize(bytes, 0);
        self.at = 0;
        let written = snap::raw::Decoder::new().decompress(packed, &mut self.block);
        match written {
            Ok(count) if count == bytes => Ok(()),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Packs `data` in xerial's framing with blocks of 32 KiB, as Java and Go clients send it.
#[cfg(test)]
pub(crate) fn frame_xerial(data: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    for block in data.chunks(32 << 10) {
        let packed = snap::raw::Encoder::new().compress_vec(block).expect("small");
        out.extend_from_slice(&(packed.len() as i32).to_be_bytes());
        out.extend_from_slice(&packed);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::compression::{Codec, Undecodable, decompress};

    fn data() -> Vec<u8> {
        (0..100_000u32).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn case_123_xerial_framing_unpacks_block_by_block() {
        let framed = frame_xerial(&data());
        assert_eq!(decompress(Codec::Snappy, &framed, 1 << 20), Ok(data()));
        let twice = [framed.clone(), framed].concat();
        assert_eq!(decompress(Codec::Snappy, &twice, 1 << 20), Ok([data(), data()].concat()));
    }

    #[test]
    fn case_123_a_broken_frame_is_refused() {
        let framed = frame_xerial(&data());
        let mut negative = framed.clone();
        negative[16] = 0xff;
        let mut short = framed.clone();
        short.truncate(framed.len() - 1);
        for bad in [negative, short, framed[..18].to_vec(), framed[..10].to_vec()] {
            assert_eq!(decompress(Codec::Snappy, &bad, 1 << 20), Err(Undecodable));
        }
        assert_eq!(decompress(Codec::Snappy, &framed, data().len() - 1), Err(Undecodable), "the cap spans blocks");
    }
}
