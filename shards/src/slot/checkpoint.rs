//! The durable form of a whole slot: the entries that rebuild it, and the position up to which they do.
//!
//! `{"crc32c":"xxxxxxxx","checkpoint":{"version":1,"position":N,"entries":[...]}}`, with one entry a line. The prefix
//! has a fixed width, so the checksum covers exact bytes and the file still reads as JSON. What does not check out is
//! refused as a whole: half a slot would be a loss of what was acknowledged.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Position;

/// Version of the form; another one is refused.
const VERSION: u32 = 1;
const BEFORE_CRC: &[u8] = b"{\"crc32c\":\"";
const AFTER_CRC: &[u8] = b"\",\"checkpoint\":";
const END: &[u8] = b"}\n";
const CRC_DIGITS: usize = 8;

/// Why bytes are no checkpoint.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Beginning or end is not what this module writes: cut, or another file.
    #[error("it does not have the form of a checkpoint: it is cut, or not Oncilla's")]
    Form,
    /// Some bytes changed.
    #[error("its checksum is wrong: {stored} is stored, {computed:08x} is computed")]
    Checksum {
        /// Digits in the file.
        stored: String,
        /// Of the bytes that are there.
        computed: u32,
    },
    /// Bytes are as written, but this version does not understand them.
    #[error("its content cannot be read: {0}")]
    Content(String),
    /// Written by another version of the form.
    #[error("it has version {0}, this broker reads version {VERSION}")]
    Version(u32),
}

/// The version alone: the entries of another one need not be readable.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Deserialize)]
struct Stored<E> {
    position: u64,
    entries: Vec<E>,
}

/// The bytes to store for a slot that `entries` rebuild as it is at `position`.
///
/// # Panics
/// If an entry is of a type that JSON cannot hold, as for journal lines.
#[must_use]
pub fn encode<E: Serialize>(position: Position, entries: &[E]) -> Vec<u8> {
    let mut bytes = [BEFORE_CRC, &[b'0'; CRC_DIGITS], AFTER_CRC].concat();
    let content = bytes.len();
    bytes.extend_from_slice(format!("{{\"version\":{VERSION},\"position\":{position},\"entries\":[").as_bytes());
    for (index, entry) in entries.iter().enumerate() {
        bytes.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
        serde_json::to_writer(&mut bytes, entry).expect("entries are types that JSON can hold");
    }
    bytes.extend_from_slice(b"]}");
    let crc = format!("{:08x}", crc32c::crc32c(&bytes[content..]));
    bytes[BEFORE_CRC.len()..BEFORE_CRC.len() + CRC_DIGITS].copy_from_slice(crc.as_bytes());
    bytes.extend_from_slice(END);
    bytes
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// If it is anything else.
pub fn decode<E: DeserializeOwned>(bytes: &[u8]) -> Result<(Position, Vec<E>), DecodeError> {
    let rest = bytes.strip_prefix(BEFORE_CRC).ok_or(DecodeError::Form)?;
    let (stored, rest) = rest.split_at_checked(CRC_DIGITS).ok_or(DecodeError::Form)?;
    let content = rest.strip_prefix(AFTER_CRC).and_then(|rest| rest.strip_suffix(END)).ok_or(DecodeError::Form)?;
    let computed = crc32c::crc32c(content);
    if format!("{computed:08x}").as_bytes() != stored {
        return Err(DecodeError::Checksum { stored: String::from_utf8_lossy(stored).into_owned(), computed });
    }
    let unreadable = |error: simd_json::Error| DecodeError::Content(error.to_string());
    let Versioned { version } = simd_json::serde::from_slice(&mut content.to_vec()).map_err(unreadable)?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let stored: Stored<E> = simd_json::serde::from_slice(&mut content.to_vec()).map_err(unreadable)?;
    Ok((Position(stored.position), stored.entries))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn signed(content: &str) -> Vec<u8> {
        let crc = format!("{:08x}", crc32c::crc32c(content.as_bytes()));
        [BEFORE_CRC, crc.as_bytes(), AFTER_CRC, content.as_bytes(), END].concat()
    }

    #[test]
    fn a_checkpoint_is_json_of_the_published_form() {
        let bytes = encode(Position(7), &["a", "b"]);
        let read: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let expected = serde_json::json!({ "version": 1, "position": 7, "entries": ["a", "b"] });
        assert_eq!(read["checkpoint"], expected);
    }

    #[test]
    fn other_versions_and_other_content_are_refused_with_the_reason() {
        let error = |content| decode::<String>(&signed(content)).unwrap_err();
        assert_eq!(error("{\"version\":2,\"entries\":{}}"), DecodeError::Version(2));
        for content in ["", "{}", "{\"version\":1}", "{\"version\":1,\"position\":-1,\"entries\":[]}", "[1"] {
            assert!(matches!(error(content), DecodeError::Content(_)), "{content}");
        }
        assert!(matches!(error("{\"version\":1,\"position\":1,\"entries\":[1]}"), DecodeError::Content(_)));
    }

    proptest! {
        #[test]
        fn any_entries_round_trip(position in any::<u64>(), entries in vec("(?s).{0,40}", 0..20)) {
            prop_assert_eq!(decode(&encode(Position(position), &entries)), Ok((Position(position), entries)));
        }

        #[test]
        fn any_changed_byte_and_any_cut_is_refused(
            entries in vec("\\PC{0,20}", 0..5), at in any::<prop::sample::Index>(), change in 1..=255_u8
        ) {
            let whole = encode(Position(3), &entries);
            let at = at.index(whole.len());
            prop_assert!(decode::<String>(&whole[..at]).is_err());
            let mut changed = whole;
            changed[at] ^= change;
            prop_assert!(decode::<String>(&changed).is_err());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), json in "[\\[\\]{}\",:0-9a-z\\\\ ]{0,200}") {
            let _ = decode::<String>(&bytes);
            let _ = decode::<String>(&signed(&json));
        }
    }
}
