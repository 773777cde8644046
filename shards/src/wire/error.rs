//! What is wrong with bytes that a client sent, and where.

/// A frame or body that does not parse; the connection it came from is closed (contract KC.5, KC.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {at}")]
pub struct WireError {
    /// Position in the bytes given to the parser, of the field that failed.
    pub at: usize,
    /// What failed.
    pub fault: WireFault,
}

/// The ways in which bytes can fail to be a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// The field ends behind the last byte.
    #[error("{wanted} bytes wanted, {left} left")]
    Short {
        /// Bytes that the field takes.
        wanted: usize,
        /// Bytes that were there.
        left: usize,
    },
    /// A varint does not end within its 5 or 10 bytes.
    #[error("varint too long")]
    VarintTooLong,
    /// An array claims more elements than bytes are left.
    #[error("array of {count} elements with {left} bytes left")]
    CountAboveFrame {
        /// Elements claimed.
        count: usize,
        /// Bytes that were there.
        left: usize,
    },
    /// Null for a field that may not be null.
    #[error("null where a value must be")]
    Null,
    /// Text for the crate that decodes the body is not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// More elements than [`crate::limits::REQUEST_ELEMENTS_MAX`].
    #[error("more than {} elements in one request", crate::limits::REQUEST_ELEMENTS_MAX)]
    TooManyElements,
    /// The marker of a nullable struct says neither null nor struct.
    #[error("struct marker {0} is neither negative nor 1")]
    StructMarker(i8),
    /// The API key is not announced.
    #[error("API key {0} is not served")]
    UnknownKey(i16),
    /// The version is outside the range of its API.
    #[error("version {version} of API key {key} is not served")]
    UnservedVersion {
        /// API key of the request.
        key: i16,
        /// Version asked for.
        version: i16,
    },
}
