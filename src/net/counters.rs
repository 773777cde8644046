//! What the connections of one shard count.

use crate::metrics::{Counter, Gauge};

/// Counters of one shard; it alone writes them.
#[derive(Debug, Default)]
pub struct NetCounters {
    /// Open connections.
    pub connections: Gauge,
    /// Connections accepted and served.
    pub accepted: Counter,
    /// Connections closed at once for `max.connections` or `max.connections.per.ip` (contract KC.14).
    pub refused: Counter,
    /// Accepts that failed, for want of descriptors for instance.
    pub accept_errors: Counter,
    /// Frames received in full.
    pub requests: Counter,
    /// Bytes received.
    pub bytes_in: Counter,
    /// Bytes sent.
    pub bytes_out: Counter,
    /// Vectored writes that sent them.
    pub writes: Counter,
    /// Connections closed for what they sent.
    pub refusals: Counter,
    /// Connections cut off for silence.
    pub idle_cut: Counter,
    /// Frames that had to wait for the budget of the shard or of their connection.
    pub budget_waits: Counter,
    /// Times that a connection was not read because its client does not read answers.
    pub slow_reader_stops: Counter,
    /// Connections that were lost while requests of theirs were in work.
    pub lost_in_work: Counter,
}
