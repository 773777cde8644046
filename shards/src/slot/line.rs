//! Lines of a slot's journal: `<8 hex digits of CRC-32C over the rest> <position> <JSON>\n`.
//!
//! The checksum covers everything behind the first space, the line feed included. JSON has no raw line feed, so a line
//! ends at the first one. [`Lines`] takes bytes as a file holds them after any crash: it gives the whole lines from the
//! beginning, each one position further, and says where and why it stopped.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Position;

const CRC_DIGITS: usize = 8;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends the line of an entry to `out`.
///
/// # Panics
/// If the entry is of a type that JSON cannot hold: a map with keys other than text.
pub fn write_line<E: Serialize>(position: Position, entry: &E, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(b"00000000 ");
    write_decimal(position.0, out);
    out.push(b' ');
    serde_json::to_writer(&mut *out, entry).expect("entries are types that JSON can hold");
    out.push(b'\n');
    let crc = crc32c::crc32c(&out[start + CRC_DIGITS + 1..]);
    out[start..start + CRC_DIGITS].copy_from_slice(&hex(crc));
}

fn write_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn hex(crc: u32) -> [u8; CRC_DIGITS] {
    std::array::from_fn(|i| HEX[(crc >> (28 - 4 * i)) as usize & 0xf])
}

/// A whole line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Of its entry.
    pub position: Position,
    /// The entry.
    pub json: &'a [u8],
}

impl Line<'_> {
    /// The entry; `scratch` is overwritten, and saves an allocation a line.
    ///
    /// # Errors
    /// If whole JSON is no such entry: another version wrote it.
    pub fn decode<E: DeserializeOwned>(&self, scratch: &mut Vec<u8>) -> Result<E, String> {
        scratch.clear();
        scratch.extend_from_slice(self.json);
        simd_json::serde::from_slice(scratch).map_err(|error| error.to_string())
    }
}

/// Why the lines end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The last line ends where the bytes do.
    Complete,
    /// Zeros up to the end of the bytes: space made ready for lines that were not written.
    Zeros,
    /// A zero where a line would begin, but not zeros only: part of a write.
    Gap,
    /// No line feed up to the end of the bytes.
    Cut,
    /// The line has not the form of one.
    Form,
    /// The checksum of the line is wrong.
    Checksum,
    /// A whole line, but not the one that follows.
    Position {
        /// The one that would follow.
        expected: Position,
        /// The one that is there.
        found: Position,
    },
}

impl Stop {
    /// Whether nothing but space made ready follows the last line.
    #[must_use]
    pub fn is_clean(self) -> bool {
        matches!(self, Self::Complete | Self::Zeros)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("the last line ends the file"),
            Self::Zeros => f.write_str("only zeros follow"),
            Self::Gap => f.write_str("zeros instead of a line"),
            Self::Cut => f.write_str("the line is cut off"),
            Self::Form => f.write_str("the line does not have the form of one"),
            Self::Checksum => f.write_str("the line's checksum is wrong"),
            Self::Position { expected, found } => {
                write!(f, "the line is at position {found} where {expected} would follow")
            }
        }
    }
}

/// The lines at the beginning of a journal's bytes. The first may have any position, from 1 on.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    last: Option<Position>,
    stop: Option<Stop>,
}

impl<'a> Lines<'a> {
    /// The lines of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, last: None, stop: None }
    }

    /// Bytes of the lines given so far: where the next one would begin.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.at
    }

    /// Why there is no further line; `None` before the last one was asked for.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    fn read(&self) -> Result<(Line<'a>, usize), Stop> {
        let rest = &self.bytes[self.at..];
        match rest.first() {
            None => return Err(Stop::Complete),
            Some(0) => return Err(if rest.iter().all(|byte| *byte == 0) { Stop::Zeros } else { Stop::Gap }),
            Some(_) => {}
        }
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or(Stop::Cut)? + 1;
        let (crc, covered) = rest[..length].split_at_checked(CRC_DIGITS + 1).ok_or(Stop::Form)?;
        if hex(crc32c::crc32c(covered)) != crc[..CRC_DIGITS] || crc[CRC_DIGITS] != b' ' {
            return Err(Stop::Checksum);
        }
        let content = &covered[..covered.len() - 1];
        let space = content.iter().position(|byte| *byte == b' ').ok_or(Stop::Form)?;
        let position = read_decimal(&content[..space]).map(Position).ok_or(Stop::Form)?;
        let line = Line { position, json: &content[space + 1..] };
        match self.last.map(|last| last.0.checked_add(1).map(Position)) {
            Some(expected) if expected != Some(position) => {
                Err(Stop::Position { expected: expected.unwrap_or_default(), found: position })
            }
            None if position.0 == 0 => Err(Stop::Position { expected: Position(1), found: position }),
            _ => Ok((line, length)),
        }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.stop.is_some() {
            return None;
        }
        match self.read() {
            Ok((line, length)) => {
                self.at += length;
                self.last = Some(line.position);
                Some(line)
            }
            Err(stop) => {
                self.stop = Some(stop);
                None
            }
        }
    }
}

/// A number as [`write_decimal`] writes it: digits only, none of them a leading zero.
fn read_decimal(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let is_plain = all_digits && (digits[0] != b'0' || digits.len() == 1);
    if is_plain { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// An entry with what is hard about text and numbers.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Entry {
        Gone { group: String },
        Commit { group: String, offset: i64, epoch: Option<i32>, metadata: Vec<String> },
    }

    fn entry() -> impl Strategy<Value = Entry> {
        prop_oneof![
            ".{0,40}".prop_map(|group| Entry::Gone { group }),
            ("\\PC{0,20}", any::<i64>(), any::<Option<i32>>(), vec("(?s).{0,30}", 0..3))
                .prop_map(|(group, offset, epoch, metadata)| Entry::Commit { group, offset, epoch, metadata }),
        ]
    }

    fn encode(first: u64, entries: &[Entry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        (first..).zip(entries).for_each(|(position, entry)| write_line(Position(position), entry, &mut bytes));
        bytes
    }

    fn decode(bytes: &[u8]) -> (Vec<(u64, Entry)>, usize, Stop) {
        let mut lines = Lines::new(bytes);
        let mut scratch = Vec::new();
        let read = lines.by_ref().map(|l| (l.position.0, l.decode(&mut scratch).expect("an entry"))).collect();
        (read, lines.bytes(), lines.stop().expect("they ended"))
    }

    #[test]
    fn a_line_is_readable_and_has_the_published_form() {
        let mut bytes = Vec::new();
        write_line(Position(12), &Entry::Gone { group: "a\nb".into() }, &mut bytes);
        let crc = crc32c::crc32c(&bytes[9..]);
        let expected = format!("{crc:08x} 12 {{\"gone\":{{\"group\":\"a\\nb\"}}}}\n");
        assert_eq!(String::from_utf8(bytes), Ok(expected));
    }

    #[test]
    fn why_the_lines_end_is_told() {
        let entries = vec![Entry::Gone { group: "g".into() }; 2];
        let whole = encode(5, &entries);
        let one = whole.len() / 2;
        let with = |tail: &[u8]| [&whole[..], tail].concat();
        let stop = |bytes: &[u8]| {
            let (read, at, stop) = decode(bytes);
            assert_eq!((read.len(), at), (2, whole.len()));
            stop
        };
        assert_eq!(stop(&whole), Stop::Complete);
        assert_eq!(stop(&with(&[0; 100])), Stop::Zeros);
        assert_eq!(stop(&with(&[0, 0, b'x'])), Stop::Gap);
        assert_eq!(stop(&with(&whole[..one - 1])), Stop::Cut);
        assert_eq!(stop(&with(b"x\n")), Stop::Form);
        assert_eq!(stop(&with(b"00000000 7 {}\n")), Stop::Checksum);
        let position = Stop::Position { expected: Position(7), found: Position(8) };
        assert_eq!(stop(&with(&encode(8, &entries))), position);
        assert_eq!(decode(&encode(0, &entries)).2, Stop::Position { expected: Position(1), found: Position(0) });
    }

    #[test]
    fn a_position_after_the_largest_is_no_line_and_no_panic() {
        let entry = Entry::Gone { group: String::new() };
        let mut bytes = Vec::new();
        [u64::MAX, 0].into_iter().for_each(|position| write_line(Position(position), &entry, &mut bytes));
        assert_eq!(decode(&bytes).0.len(), 1);
    }

    proptest! {
        #[test]
        fn any_entries_round_trip(first in 1..u64::MAX - 100, entries in vec(entry(), 0..20), zeros in 0..5000_usize) {
            let mut bytes = encode(first, &entries);
            let end = bytes.len();
            bytes.resize(end + zeros, 0);
            let (read, at, stop) = decode(&bytes);
            prop_assert_eq!(read, (first..).zip(entries).collect::<Vec<_>>());
            prop_assert_eq!((at, stop), (end, if zeros == 0 { Stop::Complete } else { Stop::Zeros }));
        }

        #[test]
        fn a_changed_byte_anywhere_leaves_exactly_the_lines_before_it(
            entries in vec(entry(), 1..8), at in any::<prop::sample::Index>(), change in 1..=255_u8
        ) {
            let mut bytes = encode(1, &entries);
            let at = at.index(bytes.len());
            let whole_before = bytes[..at].iter().filter(|byte| **byte == b'\n').count();
            bytes[at] ^= change;
            let (read, _, stop) = decode(&bytes);
            prop_assert!(!stop.is_clean());
            prop_assert_eq!(read, (1..).zip(entries).take(whole_before).collect::<Vec<_>>());
        }

        #[test]
        fn a_cut_anywhere_leaves_exactly_the_whole_lines(
            entries in vec(entry(), 1..8), at in any::<prop::sample::Index>()
        ) {
            let bytes = encode(1, &entries);
            let cut = &bytes[..at.index(bytes.len())];
            let whole = cut.iter().filter(|byte| **byte == b'\n').count();
            let (read, _, stop) = decode(cut);
            prop_assert_eq!(stop == Stop::Complete, cut.is_empty() || cut.ends_with(b"\n"));
            prop_assert_eq!(read, (1..).zip(entries).take(whole).collect::<Vec<_>>());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in vec(any::<u8>(), 0..300), json in "[\\[\\]{}\",:0-9a-z\\\\ ]{0,200}") {
            Lines::new(&bytes).for_each(drop);
            let mut signed = b" 1 ".to_vec();
            signed.extend_from_slice(json.as_bytes());
            signed.push(b'\n');
            let crc = crc32c::crc32c(&signed[1..]);
            let line = [format!("{crc:08x}").as_bytes(), &signed].concat();
            let mut scratch = Vec::new();
            let mut lines = Lines::new(&line);
            let read = lines.next().expect("the checksum is right");
            prop_assert_eq!(read.json, json.as_bytes());
            let _ = read.decode::<Entry>(&mut scratch);
            let _ = read.decode::<serde_json::Value>(&mut scratch);
        }
    }
}
