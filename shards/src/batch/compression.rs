//! The codecs of record batches: packing, and unpacking that hostile data cannot make expensive.
//!
//! Unpacking is a stream of pieces, so that checking a batch takes a fixed amount of memory however much it unpacks to;
//! [`decompress`] gathers the stream for readers that need the bytes. Limits: the caller's cap, which is
//! `limits::BATCH_UNPACKED_BYTES_MAX` for batches. Failure: [`Undecodable`] for anything that is not exactly one
//! well-formed stream, including bytes left over behind it. lz4 is the frame format with independent blocks only
//! (contract K0.15, K0.29), snappy is raw or framed as xerial does it (case 123).

use std::io::{Read, Write};

use crate::batch::xerial::Snappy;

/// Pieces in which a stream is unpacked.
const PIECE_BYTES: usize = 32 << 10;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy, raw or in xerial's framing.
    Snappy,
    /// The lz4 frame format.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Codec {
    /// Every codec, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of the three attribute bits; `None` for those unassigned.
    #[must_use]
    pub fn from_bits(bits: i16) -> Option<Self> {
        usize::try_from(bits).ok().and_then(|at| Self::ALL.get(at)).copied()
    }

    /// The three attribute bits.
    #[must_use]
    pub fn bits(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The name in settings and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Data that does not unpack, or unpacks to more than the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compressed data does not unpack")]
pub struct Undecodable;

/// Unpacks a stream piece by piece.
pub(crate) struct Unpacker<'a> {
    stream: Stream<'a>,
    left: usize,
}

enum Stream<'a> {
    Plain(&'a [u8]),
    Gzip(Box<flate2::bufread::MultiGzDecoder<&'a [u8]>>),
    Snappy(Snappy<'a>),
    Lz4(Box<lz4_flex::frame::FrameDecoder<&'a [u8]>>),
    Zstd(zstd::stream::read::Decoder<'static, &'a [u8]>),
}

impl<'a> Unpacker<'a> {
    /// Starts on `data`, which may unpack to `bytes_max` bytes.
    pub(crate) fn new(codec: Codec, data: &'a [u8], bytes_max: usize) -> Result<Self, Undecodable> {
        let stream = match codec {
            Codec::None => Stream::Plain(data),
            Codec::Gzip => Stream::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(data))),
            Codec::Snappy => Stream::Snappy(Snappy::new(data, bytes_max)),
            Codec::Lz4 => {
                check_lz4_layout(data)?;
                Stream::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(data)))
            }
            Codec::Zstd => Stream::Zstd(zstd::stream::read::Decoder::with_buffer(data).map_err(|_| Undecodable)?),
        };
        Ok(Self { stream, left: bytes_max })
    }

    /// Fills the front of `out`; 0 is the end, which is only reported when all of the input was used.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> Result<usize, Undecodable> {
        let (count, unread) = match &mut self.stream {
            Stream::Plain(data) => (data.read(out), 0),
            Stream::Gzip(decoder) => (decoder.read(out), decoder.get_ref().len()),
            Stream::Snappy(decoder) => (decoder.read(out), 0),
            Stream::Lz4(decoder) => (decoder.read(out), decoder.get_ref().len()),
            Stream::Zstd(decoder) => (decoder.read(out), decoder.get_ref().len()),
        };
        let count = count.map_err(|_| Undecodable)?;
        if count == 0 && !out.is_empty() && unread > 0 {
            return Err(Undecodable);
        }
        self.left = self.left.checked_sub(count).ok_or(Undecodable)?;
        Ok(count)
    }
}

/// Walks the blocks of an lz4 frame without unpacking them: one frame with independent blocks, its end mark there and
/// nothing behind it. The decoder itself takes a frame that stops early for a complete one.
fn check_lz4_layout(data: &[u8]) -> Result<(), Undecodable> {
    const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
    const STORED_BIT: u32 = 1 << 31;
    let [m0, m1, m2, m3, flags, ..] = *data else { return Err(Undecodable) };
    // Version 01 and bit 5, independent blocks; bit 0 would name a dictionary, which nobody has.
    if [m0, m1, m2, m3] != MAGIC || flags & 0xe1 != 0x60 {
        return Err(Undecodable);
    }
    let content_size_bytes = if flags & 0x08 == 0 { 0 } else { 8 };
    let block_checksum_bytes = if flags & 0x10 == 0 { 0 } else { 4 };
    let content_checksum_bytes = if flags & 0x04 == 0 { 0 } else { 4 };
    let mut rest = data.get(7 + content_size_bytes..).ok_or(Undecodable)?;
    loop {
        let (size, behind) = rest.split_first_chunk::<4>().ok_or(Undecodable)?;
        let size = u32::from_le_bytes(*size);
        if size == 0 {
            return if behind.len() == content_checksum_bytes { Ok(()) } else { Err(Undecodable) };
        }
        let bytes = (size & !STORED_BIT) as usize;
        if bytes == 0 {
            return Err(Undecodable);
        }
        rest = behind.get(bytes + block_checksum_bytes..).ok_or(Undecodable)?;
    }
}

/// Unpacks all of `data`, which may become `bytes_max` bytes.
pub fn decompress(codec: Codec, data: &[u8], bytes_max: usize) -> Result<Vec<u8>, Undecodable> {
    let mut stream = Unpacker::new(codec, data, bytes_max)?;
    // Grown as the stream delivers: the sizes that headers claim are the sender's.
    let mut out = Vec::with_capacity(data.len().saturating_mul(2).min(bytes_max));
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(out),
            count => out.extend_from_slice(&piece[..count]),
        }
    }
}

/// Packs `data`. Snappy is written raw, lz4 as a frame with independent blocks.
#[must_use]
pub fn compress(codec: Codec, data: &[u8]) -> Vec<u8> {
    const TO_MEMORY: &str = "writing to memory does not fail";
    match codec {
        Codec::None => data.to_vec(),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(data).expect(TO_MEMORY);
            encoder.finish().expect(TO_MEMORY)
        }
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(data).expect("a batch is far below snappy's 4 GiB"),
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(data).expect(TO_MEMORY);
            encoder.finish().expect(TO_MEMORY)
        }
        Codec::Zstd => zstd::stream::encode_all(data, 0).expect(TO_MEMORY),
    }
}

/// Checks a stream while it is unpacked; what the record walk reads from when a batch is compressed.
pub(crate) struct Pieces<'a> {
    stream: Unpacker<'a>,
    piece: Vec<u8>,
    at: usize,
    filled: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(stream: Unpacker<'a>) -> Self {
        Self { stream, piece: vec![0; PIECE_BYTES], at: 0, filled: 0 }
    }

    /// What is unpacked and not consumed; empty at the end of the stream.
    #[inline]
    pub(crate) fn available(&mut self) -> Result<&[u8], Undecodable> {
        if self.at == self.filled {
            self.at = 0;
            self.filled = self.stream.read(&mut self.piece)?;
        }
        Ok(&self.piece[self.at..self.filled])
    }

    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.filled - self.at, "only what is available is consumed");
        self.at += count;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAP: usize = 1 << 20;

    fn unpack(codec: Codec, data: &[u8]) -> Result<Vec<u8>, Undecodable> {
        decompress(codec, data, CAP)
    }

    fn text() -> Vec<u8> {
        (0..9000u32).flat_map(|n| (n % 97).to_be_bytes()).collect()
    }

    #[test]
    fn every_codec_gives_back_what_it_was_given() {
        for codec in Codec::ALL {
            for data in [Vec::new(), b"x".to_vec(), text(), vec![0; CAP]] {
                assert_eq!(unpack(codec, &compress(codec, &data)), Ok(data), "{codec:?}");
            }
        }
    }

    #[test]
    fn a_bomb_stops_at_the_cap() {
        for codec in Codec::ALL {
            let packed = compress(codec, &vec![0; CAP + 1]);
            assert_eq!(unpack(codec, &packed), Err(Undecodable), "{codec:?}");
        }
        // Snappy names its size up front: four gigabytes in a few bytes are refused before any memory is asked for.
        assert_eq!(decompress(Codec::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0], usize::MAX), Err(Undecodable));
    }

    #[test]
    fn case_123_every_cut_of_a_stream_is_refused() {
        let data = text();
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let packed = compress(codec, &data);
            for cut in 1..packed.len() {
                assert_eq!(unpack(codec, &packed[..cut]), Err(Undecodable), "{codec:?} cut at {cut}");
            }
            let mut longer = packed.clone();
            longer.push(0x55);
            assert_eq!(unpack(codec, &longer), Err(Undecodable), "{codec:?} with a byte left over");
        }
    }

    #[test]
    fn k0_15_lz4_with_linked_blocks_or_in_the_legacy_format_is_refused() {
        use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
        let data = text();
        for (info, accepted) in [
            (FrameInfo::new().block_mode(BlockMode::Linked), false),
            (FrameInfo::new().block_mode(BlockMode::Independent).block_checksums(true), true),
            (FrameInfo::new().block_mode(BlockMode::Independent).content_checksum(true), true),
            (FrameInfo::new().block_mode(BlockMode::Independent).content_size(Some(data.len() as u64)), true),
        ] {
            let mut encoder = FrameEncoder::with_frame_info(info.clone(), Vec::new());
            encoder.write_all(&data).expect("memory");
            let packed = encoder.finish().expect("memory");
            assert_eq!(unpack(Codec::Lz4, &packed).is_ok(), accepted, "{info:?}");
        }
        let mut legacy = compress(Codec::Lz4, &data);
        legacy[..4].copy_from_slice(&0x184c_2102_u32.to_le_bytes());
        assert_eq!(unpack(Codec::Lz4, &legacy), Err(Undecodable));
    }

    #[test]
    fn an_lz4_block_that_unpacks_to_nothing_does_not_hide_those_behind_it() {
        let packed = compress(Codec::Lz4, b"behind");
        // A token alone: no literals and no match.
        let hidden = [&packed[..7], &1u32.to_le_bytes(), &[0], &packed[7..]].concat();
        assert_eq!(unpack(Codec::Lz4, &hidden), Err(Undecodable));
    }

    #[test]
    fn gzip_members_and_zstd_frames_may_follow_each_other() {
        for codec in [Codec::Gzip, Codec::Zstd] {
            let twice = [compress(codec, b"one"), compress(codec, b"two")].concat();
            assert_eq!(unpack(codec, &twice), Ok(b"onetwo".to_vec()), "{codec:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_data_never_panics_and_never_exceeds_the_cap(
            codec in prop::sample::select(Codec::ALL.to_vec()),
            data in prop::collection::vec(any::<u8>(), 0..300),
            flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..4),
            noise in any::<bool>(),
        ) {
            let mut packed = if noise { data.clone() } else { compress(codec, &data.repeat(7)) };
            for (at, bit) in flips {
                if !packed.is_empty() {
                    let at = at.index(packed.len());
                    packed[at] ^= 1 << bit;
                }
            }
            if let Ok(out) = decompress(codec, &packed, 4096) {
                prop_assert!(out.len() <= 4096);
            }
        }
    }
}
