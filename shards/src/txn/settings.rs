//! Broker settings that transactions act on (contract E), with Kafka's names and defaults.

/// Settings of all transactions of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnSettings {
    /// `transaction.max.timeout.ms`
    pub timeout_ms_max: i32,
    /// `transactional.id.expiration.ms`
    pub id_expiration_ms: i64,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`
    pub abort_interval_ms: u64,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`
    pub remove_interval_ms: u64,
    /// `transaction.two.phase.commit.enable`
    pub two_phase_commit: bool,
    /// `request.timeout.ms`: silence after which a marker for another broker is sent again.
    pub request_timeout_ms: u64,
    /// Finalized level of `transaction.version`: 0, 1 or 2.
    pub version: i16,
}

impl Default for TxnSettings {
    fn default() -> Self {
        Self {
            timeout_ms_max: 900_000,
            id_expiration_ms: 604_800_000,
            abort_interval_ms: 10_000,
            remove_interval_ms: 3_600_000,
            two_phase_commit: false,
            request_timeout_ms: 30_000,
            version: 2,
        }
    }
}
