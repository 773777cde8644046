//! The preflight: walks a request body by the schema of its API before the crate kafka-protocol decodes it.
//!
//! That crate allocates what an array claims to hold and aborts the process on a hostile claim; it also takes varints
//! that never end. A body that passes here is decoded by it without such surprises, and with at most
//! [`crate::limits::REQUEST_ELEMENTS_MAX`] elements. Bytes behind the body are fine (contract KC.6).
//!
//! One thing Kafka allows and the crate refuses is repaired on the way: a length or count below -1 of the plain
//! encoding is null (contract KC.3, KC.6). One thing stays stricter than Kafka: text must be UTF-8.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use super::apis;
use super::error::{WireError, WireFault};
use super::reader::Reader;
use super::schemas;

/// What no version reaches.
pub(super) const NEVER: i16 = i16::MAX;

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// One byte, any value.
    Bool,
    /// One byte.
    I8,
    /// Two bytes.
    I16,
    /// Four bytes.
    I32,
    /// Eight bytes.
    I64,
    /// Eight bytes.
    F64,
    /// Sixteen bytes.
    Uuid,
    /// Text with its length.
    Text,
    /// Bytes with their length.
    Bytes,
    /// Elements with their count.
    Array(&'static Kind),
    /// Fields, and a tag section in flexible versions.
    Struct(&'static [Field]),
    /// A marker byte and, if it is 1, the struct; below 0 is null. Kafka also takes other markers for a struct, the
    /// crate for null, so they are refused.
    OptionalStruct(&'static [Field]),
}

/// One field of a request, in the versions that have it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// What it holds.
    pub kind: Kind,
    /// First version that has it.
    pub from: i16,
    /// Last version that has it.
    pub to: i16,
    /// First version in which it may be null.
    pub null_from: i16,
}

impl Field {
    /// A field of every version that is never null.
    pub(super) const fn new(kind: Kind) -> Self {
        Self { kind, from: 0, to: NEVER, null_from: NEVER }
    }

    pub(super) const fn from(self, version: i16) -> Self {
        Self { from: version, ..self }
    }

    pub(super) const fn to(self, version: i16) -> Self {
        Self { to: version, ..self }
    }

    pub(super) const fn null_from(self, version: i16) -> Self {
        Self { null_from: version, ..self }
    }

    /// Whether this version has the field.
    #[must_use]
    pub fn is_in(&self, version: i16) -> bool {
        (self.from..=self.to).contains(&version)
    }
}

/// The schema of an API's requests: its fields in order. `None` for Produce, Fetch, OffsetCommit, OffsetFetch and
/// ApiVersions, which have codecs of their own, and for keys that are not announced.
#[must_use]
pub fn fields(key: i16) -> Option<&'static [Field]> {
    schemas::SCHEMAS.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| schemas::SCHEMAS[at].1)
}

/// Checks that the crate kafka-protocol may decode this body.
pub fn preflight(key: i16, version: i16, body: &[u8]) -> Result<(), WireError> {
    walk(key, version, body).map(|_| ())
}

/// The body as the crate kafka-protocol decodes it: `body` itself, or a copy in which lengths below -1 are -1.
pub fn checked(key: i16, version: i16, body: &Bytes) -> Result<Bytes, WireError> {
    let repairs = walk(key, version, body)?;
    if repairs.is_empty() {
        return Ok(body.clone());
    }
    let mut repaired = BytesMut::from(&body[..]);
    for Repair { at, bytes } in repairs {
        repaired[at..at + bytes].fill(0xff);
    }
    Ok(repaired.freeze())
}

/// A length below -1.
struct Repair {
    at: usize,
    bytes: usize,
}

type Repairs = SmallVec<[Repair; 4]>;

fn walk(key: i16, version: i16, body: &[u8]) -> Result<Repairs, WireError> {
    let Some(fields) = fields(key) else {
        return Err(WireError { at: 0, fault: WireFault::UnknownKey(key) });
    };
    if !apis::is_known(key, version) {
        return Err(WireError { at: 0, fault: WireFault::UnservedVersion { key, version } });
    }
    let flexible = apis::is_flexible(key, version);
    let mut walk = Walk { reader: Reader::new(body, flexible), body, version, flexible, repairs: Repairs::new() };
    walk.fields(fields)?;
    Ok(walk.repairs)
}

struct Walk<'a> {
    reader: Reader<'a>,
    body: &'a [u8],
    version: i16,
    flexible: bool,
    repairs: Repairs,
}

impl Walk<'_> {
    fn fields(&mut self, fields: &'static [Field]) -> Result<(), WireError> {
        let version = self.version;
        for field in fields.iter().filter(|field| field.is_in(version)) {
            self.value(field.kind, version >= field.null_from)?;
        }
        self.reader.skip_tags()
    }

    fn value(&mut self, kind: Kind, nullable: bool) -> Result<(), WireError> {
        let at = self.reader.at();
        let is_null = match kind {
            Kind::Text => self.text(at)?,
            Kind::Bytes => {
                let is_null = self.reader.nullable_bytes()?.is_none();
                self.note_null(is_null, at, 4);
                is_null
            }
            Kind::Array(element) => self.array(*element, at)?,
            Kind::OptionalStruct(fields) => match self.reader.i8()? {
                ..=-1 => true,
                1 => self.fields(fields).map(|()| false)?,
                other => return Err(WireError { at, fault: WireFault::StructMarker(other) }),
            },
            Kind::Struct(fields) => self.fields(fields).map(|()| false)?,
            fixed => self.reader.take(fixed_bytes(fixed)).map(|_| false)?,
        };
        if is_null && !nullable { Err(WireError { at, fault: WireFault::Null }) } else { Ok(()) }
    }

    fn text(&mut self, at: usize) -> Result<bool, WireError> {
        let text = self.reader.nullable_text()?;
        self.note_null(text.is_none(), at, 2);
        match text.map(std::str::from_utf8) {
            Some(Err(_)) => Err(WireError { at, fault: WireFault::NotUtf8 }),
            Some(Ok(_)) => Ok(false),
            None => Ok(true),
        }
    }

    fn array(&mut self, element: Kind, at: usize) -> Result<bool, WireError> {
        let count = self.reader.nullable_count()?;
        self.note_null(count.is_none(), at, 4);
        for _ in 0..count.unwrap_or(0) {
            self.value(element, false)?;
        }
        Ok(count.is_none())
    }

    /// Remembers a null whose length field the crate does not know; -1 rewritten as -1 would be the same.
    fn note_null(&mut self, is_null: bool, at: usize, bytes: usize) {
        if is_null && !self.flexible && self.body[at..at + bytes].iter().any(|&byte| byte != 0xff) {
            self.repairs.push(Repair { at, bytes });
        }
    }
}

/// Bytes of a kind that has one length.
pub(super) fn fixed_bytes(kind: Kind) -> usize {
    match kind {
        Kind::Bool | Kind::I8 => 1,
        Kind::I16 => 2,
        Kind::I32 => 4,
        Kind::I64 | Kind::F64 => 8,
        Kind::Uuid => 16,
        Kind::Text | Kind::Bytes | Kind::Array(_) | Kind::Struct(_) | Kind::OptionalStruct(_) => {
            unreachable!("{kind:?} has no fixed length")
        }
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
