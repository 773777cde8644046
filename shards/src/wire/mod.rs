//! Kafka's wire protocol: from the bytes of a frame to requests, and from answers to the bytes of a frame.
//!
//! Purpose: own codecs for what every client sends all the time (Produce, Fetch, OffsetCommit, OffsetFetch,
//! ApiVersions, the headers), and a
//! preflight ([`schema`]) for everything else, which the crate kafka-protocol decodes.
//! Owner: the shard that owns the connection; nothing here keeps state between frames.
//! Limits: no read passes the end of its frame and nothing is allocated in proportion to a length that was only
//! claimed (contract KC.6); a body holds at most [`crate::limits::REQUEST_ELEMENTS_MAX`] elements.
//! Failure: a body that does not parse is a [`WireError`], and the connection is closed without an answer.

pub mod api_versions;
pub mod apis;
pub mod error;
pub mod fetch;
mod fetch_answer;
pub mod header;
pub mod offset_commit;
pub mod offset_fetch;
pub mod produce;
mod produce_answer;
pub mod reader;
pub mod schema;
mod schemas;
pub mod types;
pub mod write_txn_markers;
pub mod writer;

#[cfg(test)]
mod hostile_tests;

pub use error::{WireError, WireFault};
pub use header::{ParsedHeader, RequestHeader, parse_header};
pub use reader::Reader;
pub use types::{CurrentLeader, NodeEndpoint, TopicRef};
pub use writer::{Body, FramePrefix, Writer};
