//! Record batches of format v2: reading, checking, restamping and building them.
//!
//! Owner: the caller; nothing here keeps state between calls. A batch is stored and fetched as the bytes the client
//! sent, but for the five header fields of [`Patch`]; [`validate`] decides whether a batch may be stored at all and
//! what these fields become. Limits: `limits::BATCH_UNPACKED_BYTES_MAX`, `limits::RECORD_ERRORS_MAX`. Failure: every
//! function takes arbitrary bytes and answers with an error, never a panic.

pub mod build;
pub mod compression;
pub mod control;
mod frame;
mod header;
mod patch;
pub mod records;
pub mod rewrite;
pub mod scan;
mod validate;
mod varint;
mod walk;
mod xerial;

pub use build::BatchBuilder;
pub use compression::{Codec, Undecodable};
pub use control::{ControlKind, ControlRecord};
pub use frame::{NO_BATCH, Peek, peek};
pub use header::{Attributes, BatchHeader, HeaderError, TimestampType, headers};
pub use patch::{Patch, StoredFields, crc_matches, crc_of, write_patched};
pub use validate::{Accepted, AppendRules, RecordError, Refused, check_framing, validate};
