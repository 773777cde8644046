//! Bytes of clients in entries: base64 text with padding (RFC 4648), because JSON has no bytes.
//!
//! For `#[serde(with = "...")]` on [`Bytes`]. Text that is no base64 is an error of the entry.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serializer, de};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes the bytes.
#[allow(clippy::missing_errors_doc)]
pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode(bytes))
}

/// Reads what [`serialize`] wrote.
#[allow(clippy::missing_errors_doc)]
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(deserializer)?;
    decode(&text).map(Bytes::from).ok_or_else(|| de::Error::custom("bytes that are not base64"))
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let group = part.iter().enumerate().fold(0u32, |group, (i, byte)| group | u32::from(*byte) << (16 - 8 * i));
        for i in 0..4 {
            let six = (group >> (18 - 6 * i) & 0x3f) as usize;
            text.push(if i <= part.len() { char::from(ALPHABET[six]) } else { '=' });
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for part in digits.chunks(4) {
        let mut group = 0u32;
        for (i, digit) in part.iter().enumerate() {
            group |= six_bits(*digit)? << (18 - 6 * i);
        }
        let whole = part.len() * 6 / 8;
        let [_, decoded @ ..] = group.to_be_bytes();
        // The bits behind the last byte are zero, so that bytes have one text only.
        if decoded[whole..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&decoded[..whole]);
    }
    Some(bytes)
}

fn six_bits(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rfc_4648_examples() {
        let examples =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (bytes, text) in examples {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zm 9", "Zm9v\n", "Zg==Zg=="] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn bytes_survive(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn hostile_text_has_at_most_one_reading(text in "[A-Da-d+/=]{0,12}") {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
