//! What a producer may be told; defaults are those of Apache Kafka's producer.

use crate::batch::Codec;
use crate::limits::PRODUCER_BATCHES_MAX;

/// Settings of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a batch waits for more records (`linger.ms`).
    pub linger_ms: u64,
    /// Size from which a batch waits no longer (`batch.size`), before compression. One that stands behind a full batch
    /// of its partition grows on, up to 1 MiB and `request_bytes_max`, unless the broker has refused a large one.
    pub batch_bytes: usize,
    /// Memory of all records that have no outcome (`buffer.memory`); more are refused with [`super::SendError::Full`].
    pub memory_bytes: usize,
    /// Largest Produce request and largest record (`max.request.size`).
    pub request_bytes_max: usize,
    /// Batches of a partition, and Produce requests of a connection, without an answer
    /// (`max.in.flight.requests.per.connection`), at most the five that brokers remember.
    pub in_flight_max: usize,
    /// First pause before something is tried again (`retry.backoff.ms`); it doubles.
    pub retry_backoff_ms: u64,
    /// Longest such pause (`retry.backoff.max.ms`).
    pub retry_backoff_ms_max: u64,
    /// Longest wait for one answer (`request.timeout.ms`); then the connection is given up.
    pub request_timeout_ms: u64,
    /// Longest time from `send` to the outcome (`delivery.timeout.ms`).
    pub delivery_timeout_ms: u64,
    /// Longest wait of a transactional call (`max.block.ms`); the same call may be made again.
    pub block_ms_max: u64,
    /// Age at which leaders are asked for again (`metadata.max.age.ms`).
    pub metadata_age_ms_max: u64,
    /// Codec of batches (`compression.type`).
    pub codec: Codec,
    /// `transactional.id`.
    pub transactional_id: Option<String>,
    /// How long the broker lets a transaction be open (`transaction.timeout.ms`).
    pub transaction_timeout_ms: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            linger_ms: 5,
            batch_bytes: 16_384,
            memory_bytes: 32 << 20,
            request_bytes_max: 1 << 20,
            in_flight_max: PRODUCER_BATCHES_MAX,
            retry_backoff_ms: 100,
            retry_backoff_ms_max: 1000,
            request_timeout_ms: 30_000,
            delivery_timeout_ms: 120_000,
            block_ms_max: 60_000,
            metadata_age_ms_max: 300_000,
            codec: Codec::None,
            transactional_id: None,
            transaction_timeout_ms: 60_000,
        }
    }
}

impl Settings {
    /// Says what contradicts what.
    pub fn check(&self) -> Result<(), String> {
        let between = |name: &str, value: usize, max: usize| match value {
            0 => Err(format!("{name} must be at least 1")),
            _ if value > max => Err(format!("{name} {value} is above {max}")),
            _ => Ok(()),
        };
        between("max.in.flight.requests.per.connection", self.in_flight_max, PRODUCER_BATCHES_MAX)?;
        between("batch.size", self.batch_bytes, i32::MAX as usize / 2)?;
        between("max.request.size", self.request_bytes_max, i32::MAX as usize / 2)?;
        between("buffer.memory", self.memory_bytes, usize::MAX)?;
        if self.delivery_timeout_ms < self.linger_ms.saturating_add(self.request_timeout_ms) {
            return Err("delivery.timeout.ms must be at least linger.ms + request.timeout.ms".into());
        }
        if self.retry_backoff_ms == 0 || self.request_timeout_ms == 0 {
            return Err("retry.backoff.ms and request.timeout.ms must be at least 1".into());
        }
        if self.transactional_id.as_deref() == Some("") {
            return Err("transactional.id is empty".into());
        }
        Ok(())
    }

    /// Pause before try number `attempts` + 1.
    pub(super) fn backoff_ms(&self, attempts: u32) -> u64 {
        let doubled = self.retry_backoff_ms.saturating_mul(1 << attempts.saturating_sub(1).min(20));
        doubled.min(self.retry_backoff_ms_max.max(self.retry_backoff_ms))
    }
}
