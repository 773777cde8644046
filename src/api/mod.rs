//! One file per Kafka API, named by its key: the listing of this folder is the support matrix.
//!
//! A handler decodes its request, asks the core, and encodes the answer. No API file reads another.

use bytes::Bytes;

/// A request whose header is read; the body is not.
#[derive(Clone, Debug)]
pub struct Request {
    /// API key.
    pub key: i16,
    /// Version of the body.
    pub version: i16,
    /// Client's name of itself, as sent.
    pub client_id: Option<Bytes>,
    /// What follows the header.
    pub body: Bytes,
    /// Listener that the connection came in on: index into the settings' list.
    pub listener: usize,
}
