//! Counters of one shard: plain atomics with one writer, read by the control thread without waiting for the shard.
//!
//! Reading is never consistent over several numbers, and need not be: a scrape sees each as it is at that moment.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::ShardId;
use oncilla_shards::limits::{API_KEYS_MAX, ERROR_CODES_MAX};

use crate::group_metrics::GroupBoard;

/// A number that only grows; one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. A load and a store instead of a locked add: the shard is the only writer.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes over a number that is counted elsewhere.
    pub fn store(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down; one writer.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// Takes `n` away.
    pub fn sub(&self, n: u64) {
        self.set(self.get().wrapping_sub(n));
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts values by powers of two, from `2^FIRST` up; what is above the last bound has a bucket of its own.
#[derive(Debug)]
pub struct Histogram<const FIRST: u32, const BOUNDS: usize> {
    buckets: [Counter; BOUNDS],
    above: Counter,
    sum: Counter,
}

/// Microseconds, from 16 us to 16.8 s.
pub type LatencyHistogram = Histogram<4, 21>;

/// Things in one group, from 1 to 32768.
pub type CountHistogram = Histogram<0, 16>;

impl<const FIRST: u32, const BOUNDS: usize> Default for Histogram<FIRST, BOUNDS> {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            above: Counter::default(),
            sum: Counter::default(),
        }
    }
}

impl<const FIRST: u32, const BOUNDS: usize> Histogram<FIRST, BOUNDS> {
    /// Counts one value.
    pub fn observe(&self, value: u64) {
        // The bucket of the smallest power of two that is not below the value.
        let power = 64 - value.saturating_sub(1).leading_zeros();
        let index = power.saturating_sub(FIRST) as usize;
        self.buckets.get(index).unwrap_or(&self.above).add(1);
        self.sum.add(value);
    }

    /// Upper bounds with the values counted under each and above the bound before; the last bound is `None`.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounded = self.buckets.iter().zip(FIRST..).map(|(bucket, power)| (Some(1 << power), bucket.get()));
        bounded.chain(std::iter::once((None, self.above.get())))
    }

    /// Sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets().map(|(_, count)| count).sum()
    }
}

/// Milliseconds since the process first asked. This clock does not jump when somebody sets the time.
#[must_use]
pub fn process_uptime_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Begins the count of [`process_uptime_ms`].
pub fn start_clock() {
    let _zero = process_uptime_ms();
}

/// All numbers of one shard. The shard writes, the control thread reads.
#[derive(Debug)]
pub struct ShardMetrics {
    /// Which shard.
    pub shard: ShardId,
    /// 1 from the moment that the shard accepts connections until it drains.
    pub serving: Gauge,
    heartbeat_ms: Gauge,
    /// Time that the shard spent working rather than waiting.
    pub cpu_busy_us: Counter,
    /// Records appended.
    pub records_produced: Counter,
    /// Records in batches given to consumers, as their headers count them.
    pub records_fetched: Counter,
    /// Bytes of record batches appended.
    pub produced_bytes: Counter,
    /// Bytes of record batches given to consumers.
    pub fetched_bytes: Counter,
    /// Bytes read from clients.
    pub received_bytes: Counter,
    /// Bytes written to clients.
    pub sent_bytes: Counter,
    /// Connections open.
    pub connections_active: Gauge,
    /// Connections accepted.
    pub connections_accepted: Counter,
    /// Connections refused by `max.connections` or `max.connections.per.ip`.
    pub connections_rejected: Counter,
    /// Connections closed for a frame that is no Kafka request.
    pub connections_malformed: Counter,
    /// Connections closed because they were idle.
    pub connections_idle_closed: Counter,
    /// Bytes of requests in work.
    pub request_bytes_reserved: Gauge,
    /// Connections that wait for bytes of the budget.
    pub request_bytes_waiting: Gauge,
    /// Partitions that this shard owns.
    pub partitions: Gauge,
    /// Partitions that a failed disk took offline.
    pub partitions_offline: Gauge,
    /// Partitions on the disk that are not open yet.
    pub partitions_opening: Gauge,
    /// Batches answered from the dedupe window.
    pub duplicate_batches: Counter,
    /// Batches refused because their sequence does not follow.
    pub out_of_order_batches: Counter,
    /// Batches refused because a newer epoch of the producer is known.
    pub fenced_batches: Counter,
    /// Producer ids remembered.
    pub producer_ids: Gauge,
    /// Transactions open on partitions.
    pub open_transactions: Gauge,
    /// Age of the oldest of them, by the timestamps of its records.
    pub open_transaction_age_ms_max: Gauge,
    /// Records between a partition's last stable offset and its high watermark, where there are most.
    pub last_stable_offset_lag_max: Gauge,
    /// Durable writes, from submission to completion, in microseconds.
    pub durable_write_us: LatencyHistogram,
    /// Bytes made durable.
    pub durable_write_bytes: Counter,
    /// Batches that one durable write carried.
    pub group_commit_batches: CountHistogram,
    /// Durable writes of slot journals, from submission to completion, in microseconds.
    pub slot_write_us: LatencyHistogram,
    /// Bytes of slot journals made durable.
    pub slot_journal_bytes: Counter,
    /// Slots written anew as a checkpoint.
    pub slot_checkpoints: Counter,
    /// Slots that a failed disk took offline.
    pub slots_offline: Gauge,
    /// Bytes of batches in the tail cache.
    pub cache_bytes: Gauge,
    /// Reads answered by the tail cache.
    pub cache_hits: Counter,
    /// Reads that went to the file.
    pub cache_misses: Counter,
    /// Bytes of segments read from files.
    pub segment_read_bytes: Counter,
    /// Reads of files whose bytes had been read ahead.
    pub read_ahead_hits: Counter,
    /// Bytes that were read ahead and never asked for.
    pub read_ahead_wasted_bytes: Counter,
    /// Bytes that are being read ahead or wait to be asked for.
    pub read_ahead_bytes: Gauge,
    /// Logs that compaction went through.
    pub cleaner_runs: Counter,
    /// Bytes that compaction read.
    pub cleaner_read_bytes: Counter,
    /// Bytes that compaction wrote.
    pub cleaner_written_bytes: Counter,
    /// Logs whose compaction failed; each is left alone until the next start.
    pub cleaner_failures: Counter,
    /// Largest share of dirty bytes among the shard's compacted logs, in percent.
    pub cleaner_dirty_percent_max: Gauge,
    /// Fetch requests that wait for records.
    pub parked_fetches: Gauge,
    /// Fetch sessions remembered.
    pub fetch_sessions: Gauge,
    /// Frames sent to other shards.
    pub lane_frames: Counter,
    /// Frames that waited with their sender because the lane was full.
    pub lane_overflow: Counter,
    /// Transactional ids.
    pub txn_ids: Gauge,
    /// Open transactions.
    pub txn_open: Gauge,
    /// Age of the oldest open transaction, as of the last look.
    pub txn_oldest_ms: Gauge,
    /// Decided transactions whose markers are not all written.
    pub txn_completing: Gauge,
    /// Requests that wait for a transaction to complete.
    pub txn_parked: Gauge,
    /// Fences put up by InitProducerId.
    pub txn_fences: Counter,
    /// Transactions aborted because they were open for too long.
    pub txn_timed_out: Counter,
    /// Transactions aborted because InitProducerId took their id over.
    pub txn_taken_over: Counter,
    /// Requests to the coordinator refused because of their epoch.
    pub txn_fenced_requests: Counter,
    /// EndTxn until its decision is durable and told, in microseconds.
    pub txn_prepare_us: LatencyHistogram,
    /// Markers of one shard until all are durable, in microseconds.
    pub txn_markers_us: LatencyHistogram,
    /// Ends of pending offsets of one shard until all are durable, in microseconds.
    pub txn_offsets_us: LatencyHistogram,
    /// Rebalances of groups: generations and group epochs that began.
    pub group_rebalances: Counter,
    /// Groups of the shard as of the last look.
    pub groups: GroupBoard,
    requests: Box<[LatencyHistogram]>,
    errors: Box<[Counter]>,
}

impl ShardMetrics {
    /// All numbers at zero.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            serving: Gauge::default(),
            heartbeat_ms: Gauge::default(),
            cpu_busy_us: Counter::default(),
            records_produced: Counter::default(),
            records_fetched: Counter::default(),
            produced_bytes: Counter::default(),
            fetched_bytes: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            connections_active: Gauge::default(),
            connections_accepted: Counter::default(),
            connections_rejected: Counter::default(),
            connections_malformed: Counter::default(),
            connections_idle_closed: Counter::default(),
            request_bytes_reserved: Gauge::default(),
            request_bytes_waiting: Gauge::default(),
            partitions: Gauge::default(),
            partitions_offline: Gauge::default(),
            partitions_opening: Gauge::default(),
            duplicate_batches: Counter::default(),
            out_of_order_batches: Counter::default(),
            fenced_batches: Counter::default(),
            producer_ids: Gauge::default(),
            open_transactions: Gauge::default(),
            open_transaction_age_ms_max: Gauge::default(),
            last_stable_offset_lag_max: Gauge::default(),
            durable_write_us: LatencyHistogram::default(),
            durable_write_bytes: Counter::default(),
            group_commit_batches: CountHistogram::default(),
            slot_write_us: LatencyHistogram::default(),
            slot_journal_bytes: Counter::default(),
            slot_checkpoints: Counter::default(),
            slots_offline: Gauge::default(),
            cache_bytes: Gauge::default(),
            cache_hits: Counter::default(),
            cache_misses: Counter::default(),
            segment_read_bytes: Counter::default(),
            read_ahead_hits: Counter::default(),
            read_ahead_wasted_bytes: Counter::default(),
            read_ahead_bytes: Gauge::default(),
            cleaner_runs: Counter::default(),
            cleaner_read_bytes: Counter::default(),
            cleaner_written_bytes: Counter::default(),
            cleaner_failures: Counter::default(),
            cleaner_dirty_percent_max: Gauge::default(),
            parked_fetches: Gauge::default(),
            fetch_sessions: Gauge::default(),
            lane_frames: Counter::default(),
            lane_overflow: Counter::default(),
            txn_ids: Gauge::default(),
            txn_open: Gauge::default(),
            txn_oldest_ms: Gauge::default(),
            txn_completing: Gauge::default(),
            txn_parked: Gauge::default(),
            txn_fences: Counter::default(),
            txn_timed_out: Counter::default(),
            txn_taken_over: Counter::default(),
            txn_fenced_requests: Counter::default(),
            txn_prepare_us: LatencyHistogram::default(),
            txn_markers_us: LatencyHistogram::default(),
            txn_offsets_us: LatencyHistogram::default(),
            group_rebalances: Counter::default(),
            groups: GroupBoard::default(),
            requests: (0..API_KEYS_MAX).map(|_| LatencyHistogram::default()).collect(),
            errors: (0..ERROR_CODES_MAX).map(|_| Counter::default()).collect(),
        }
    }

    /// Counts an answered request with the time from its last byte in to its answer handed to the socket.
    pub fn request(&self, api_key: i16, latency_us: u64) {
        // A key outside the table closed its connection before any handler ran, so it is counted nowhere.
        if let Some(histogram) = usize::try_from(api_key).ok().and_then(|key| self.requests.get(key)) {
            histogram.observe(latency_us);
        }
    }

    /// Counts an error code that an answer carries.
    pub fn error(&self, code: ErrorCode) {
        // Index 0 is -1, the code of the unknown server error.
        let index = usize::try_from(i32::from(code.wire()) + 1);
        if let Some(counter) = index.ok().and_then(|index| self.errors.get(index)) {
            counter.add(1);
        }
    }

    /// Requests of every API key that was used, with their latency in microseconds.
    pub fn requests(&self) -> impl Iterator<Item = (i16, &LatencyHistogram)> {
        (0..).zip(self.requests.iter()).filter(|(_, histogram)| histogram.count() > 0)
    }

    /// Every error code that was answered, with its count.
    pub fn errors(&self) -> impl Iterator<Item = (i16, u64)> {
        (-1..).zip(self.errors.iter().map(Counter::get)).filter(|(_, count)| *count > 0)
    }

    /// Says that the shard is alive; its heartbeat calls this.
    pub fn beat(&self) {
        self.heartbeat_ms.set(process_uptime_ms());
    }

    /// Time since the last heartbeat.
    #[must_use]
    pub fn heartbeat_age_ms(&self) -> u64 {
        process_uptime_ms().saturating_sub(self.heartbeat_ms.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_under_the_smallest_bound_that_holds_it() {
        let histogram = LatencyHistogram::default();
        for value in [0, 1, 16, 17, 32, 33, 1 << 24, (1 << 24) + 1, u64::from(u32::MAX)] {
            histogram.observe(value);
        }
        let counted: Vec<_> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(Some(16), 3), (Some(32), 2), (Some(64), 1), (Some(1 << 24), 1), (None, 2)]);
        assert_eq!(histogram.count(), 9);
        assert_eq!(histogram.sum(), 1 + 16 + 17 + 32 + 33 + (1 << 24) + (1 << 24) + 1 + u64::from(u32::MAX));
    }

    #[test]
    fn only_keys_and_codes_in_use_are_listed() {
        let shard = ShardMetrics::new(ShardId(0));
        shard.request(0, 100);
        shard.request(i16::MAX, 100);
        shard.request(-1, 100);
        shard.error(ErrorCode::UnknownServerError);
        shard.error(ErrorCode::InvalidRegularExpression);
        assert_eq!(shard.requests().map(|(key, all)| (key, all.count())).collect::<Vec<_>>(), [(0, 1)]);
        assert_eq!(shard.errors().collect::<Vec<_>>(), [(-1, 1), (128, 1)]);
    }

    #[test]
    fn every_error_code_has_a_counter() {
        let highest = ErrorCode::ALL.iter().map(|code| code.wire()).max();
        assert!(usize::try_from(highest.expect("codes") + 1).expect("positive") < ERROR_CODES_MAX);
    }
}
