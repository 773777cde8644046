//! Where batches begin and end in the records field of a request, before anything in them is believed.
//!
//! [`peek`] is all that is asked of a partition's bytes before the request as a whole is let in (contract A2.2, K0.3,
//! K0.4); it looks at the first batch only.

use crate::batch::header::{ATTRIBUTES_AT, Attributes, LENGTH_PREFIX_BYTES, MAGIC_AT, MAGIC_V2, field};

/// The smallest length field of any format version, that of an empty v0 message.
const LENGTH_MIN: i32 = 14;

/// What [`peek`] says of no bytes at all.
pub const NO_BATCH: Peek = Peek { corrupt: false, transactional: false };

/// What the first batch of a partition means for the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// Every partition of the request is answered CORRUPT_MESSAGE (K0.3).
    pub corrupt: bool,
    /// The batch belongs to a transaction, so the request needs a transactional id (K0.4).
    pub transactional: bool,
}

/// One batch as far as its length and format version tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framed {
    /// Nothing, or the beginning of a batch whose rest is missing.
    None,
    /// A length or a format version that does not exist.
    Corrupt,
    /// A whole batch.
    Whole { bytes: usize, magic: i8 },
}

/// Frames the batch at the start of `bytes`.
pub(crate) fn frame(bytes: &[u8]) -> Framed {
    if bytes.len() < LENGTH_PREFIX_BYTES {
        return Framed::None;
    }
    let length = field!(bytes, 8, i32);
    // A length whose batch would end beyond i32::MAX is none either: Kafka's own sum overflows there (K0.3 (p)).
    if length < LENGTH_MIN || length > i32::MAX - LENGTH_PREFIX_BYTES as i32 {
        return Framed::Corrupt;
    }
    if bytes.len() <= MAGIC_AT {
        return Framed::None;
    }
    let magic = field!(bytes, MAGIC_AT, i8);
    if !(0..=MAGIC_V2).contains(&magic) {
        return Framed::Corrupt;
    }
    let total = length as usize + LENGTH_PREFIX_BYTES;
    if bytes.len() < total { Framed::None } else { Framed::Whole { bytes: total, magic } }
}

/// Looks at the first batch of a partition for the checks that decide about the whole request.
#[must_use]
pub fn peek(records: &[u8]) -> Peek {
    match frame(records) {
        Framed::None => NO_BATCH,
        Framed::Corrupt => Peek { corrupt: true, transactional: false },
        Framed::Whole { bytes, magic } => {
            let has_attributes = magic == MAGIC_V2 && bytes >= ATTRIBUTES_AT + 2;
            let transactional = has_attributes && Attributes(field!(records, ATTRIBUTES_AT, i16)).is_transactional();
            Peek { corrupt: false, transactional }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchBuilder;

    #[test]
    fn k0_3_a_short_length_or_an_unknown_format_condemns_the_request() {
        let batch = BatchBuilder::new().record(None, Some(b"v")).build();
        for length in [13, 0, -1, i32::MIN, i32::MAX, i32::MAX - 11] {
            let mut bad = batch.clone();
            bad[8..12].copy_from_slice(&length.to_be_bytes());
            assert!(peek(&bad).corrupt, "length {length}");
        }
        for magic in [3u8, 127, 255] {
            let mut bad = batch.clone();
            bad[16] = magic;
            assert!(peek(&bad).corrupt, "magic {magic}");
            assert!(peek(&bad[..20]).corrupt, "magic counts before the cut");
        }
    }

    #[test]
    fn k0_6_a_cut_or_old_first_batch_does_not_condemn_the_request() {
        let mut batch = BatchBuilder::new().record(None, Some(b"v")).build();
        for cut in 0..batch.len() {
            assert_eq!(peek(&batch[..cut]), NO_BATCH, "cut at {cut}");
        }
        batch[16] = 1;
        assert!(!peek(&batch).corrupt);
    }

    #[test]
    fn k0_4_the_transactional_bit_is_seen() {
        let batch = BatchBuilder::new().producer(1, 0, 0).transactional().record(None, Some(b"v")).build();
        assert_eq!(peek(&batch), Peek { corrupt: false, transactional: true });
        let plain = BatchBuilder::new().producer(1, 0, 0).record(None, Some(b"v")).build();
        assert!(!peek(&plain).transactional);
    }
}
