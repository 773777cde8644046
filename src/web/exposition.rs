//! The metrics page. Names mirror those that dashboards for Kafka-compatible brokers use, with `oncilla_` in front.
//!
//! Series of API keys and error codes appear once they are in use; everything else is one series a shard.

#[path = "exposition_groups.rs"]
mod groups;

use std::fmt;
use std::sync::Arc;

use kafka_protocol::messages::ApiKey;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::logs;
use crate::metrics::{Counter, Gauge, Histogram, LatencyHistogram, ShardMetrics, process_uptime_ms};

/// No labels beyond those of the family.
type Bare = [(&'static str, &'static str); 0];

type CounterRow = (&'static str, &'static str, fn(&ShardMetrics) -> &Counter);
type GaugeRow = (&'static str, &'static str, fn(&ShardMetrics) -> &Gauge);

/// Counters; the page adds `_total`.
const COUNTERS: &[CounterRow] = &[
    ("kafka_records_produced", "Records appended", |s| &s.records_produced),
    ("kafka_records_fetched", "Records given to consumers", |s| &s.records_fetched),
    ("kafka_produced_bytes", "Bytes of record batches appended", |s| &s.produced_bytes),
    ("kafka_fetched_bytes", "Bytes of record batches given to consumers", |s| &s.fetched_bytes),
    ("kafka_duplicate_batches", "Batches answered from the dedupe window", |s| &s.duplicate_batches),
    ("kafka_out_of_order_batches", "Batches whose sequence does not follow", |s| &s.out_of_order_batches),
    ("kafka_fenced_batches", "Batches of an old producer epoch", |s| &s.fenced_batches),
    ("kafka_consumer_group_rebalances", "Rebalances of groups", |s| &s.group_rebalances),
    ("kafka_transaction_fences", "Fences put up by InitProducerId", |s| &s.txn_fences),
    ("kafka_transactions_timed_out", "Transactions aborted for their age", |s| &s.txn_timed_out),
    ("kafka_transactions_taken_over", "Transactions aborted for a new instance", |s| &s.txn_taken_over),
    ("kafka_transaction_fenced_requests", "Requests refused because of their epoch", |s| &s.txn_fenced_requests),
    ("rpc_received_bytes", "Bytes read from clients", |s| &s.received_bytes),
    ("rpc_sent_bytes", "Bytes written to clients", |s| &s.sent_bytes),
    ("rpc_connections_accepted", "Connections accepted", |s| &s.connections_accepted),
    ("rpc_connections_rejected", "Connections refused by a limit", |s| &s.connections_rejected),
    ("rpc_connections_malformed", "Connections closed for what is no Kafka request", |s| &s.connections_malformed),
    ("rpc_connections_idle_closed", "Connections closed because they were idle", |s| &s.connections_idle_closed),
    ("storage_durable_write_bytes", "Bytes made durable", |s| &s.durable_write_bytes),
    ("storage_slot_journal_bytes", "Bytes of slot journals made durable", |s| &s.slot_journal_bytes),
    ("storage_slot_checkpoints", "Slots written anew as a checkpoint", |s| &s.slot_checkpoints),
    ("storage_cache_hits", "Reads answered by the tail cache", |s| &s.cache_hits),
    ("storage_cache_misses", "Reads that went to a file", |s| &s.cache_misses),
    ("storage_segment_read_bytes", "Bytes of segments read from files", |s| &s.segment_read_bytes),
    ("storage_read_ahead_hits", "Reads of files whose bytes had been read ahead", |s| &s.read_ahead_hits),
    ("storage_read_ahead_wasted_bytes", "Bytes read ahead that nobody asked for", |s| &s.read_ahead_wasted_bytes),
    ("storage_cleaner_runs", "Logs that compaction went through", |s| &s.cleaner_runs),
    ("storage_cleaner_read_bytes", "Bytes that compaction read", |s| &s.cleaner_read_bytes),
    ("storage_cleaner_written_bytes", "Bytes that compaction wrote", |s| &s.cleaner_written_bytes),
    ("storage_cleaner_failures", "Logs whose compaction failed", |s| &s.cleaner_failures),
    ("lane_frames", "Frames sent to other shards", |s| &s.lane_frames),
    ("lane_overflow_frames", "Frames that waited because a lane was full", |s| &s.lane_overflow),
];

const GAUGES: &[GaugeRow] = &[
    ("shard_serving", "Whether the shard accepts connections", |s| &s.serving),
    ("rpc_active_connections", "Connections open", |s| &s.connections_active),
    ("rpc_request_reserved_bytes", "Bytes of requests in work", |s| &s.request_bytes_reserved),
    ("rpc_request_waiting_connections", "Connections that wait for the budget", |s| &s.request_bytes_waiting),
    ("kafka_partitions", "Partitions of the shard", |s| &s.partitions),
    ("kafka_opening_partitions", "Partitions that the start has not opened yet", |s| &s.partitions_opening),
    ("kafka_unavailable_partitions", "Partitions whose disk failed", |s| &s.partitions_offline),
    ("kafka_unavailable_slots", "Slots whose disk failed", |s| &s.slots_offline),
    ("kafka_producer_ids", "Producer ids remembered", |s| &s.producer_ids),
    ("kafka_transactional_ids", "Transactional ids", |s| &s.txn_ids),
    ("kafka_open_transactions", "Open transactions", |s| &s.txn_open),
    ("kafka_oldest_transaction_age_ms", "Age of the oldest open transaction", |s| &s.txn_oldest_ms),
    ("kafka_completing_transactions", "Decided transactions without all markers", |s| &s.txn_completing),
    ("kafka_parked_transaction_requests", "Requests that wait for a transaction", |s| &s.txn_parked),
    ("kafka_partition_open_transactions", "Transactions open on partitions", |s| &s.open_transactions),
    ("kafka_partition_open_transaction_age_ms_max", "Age of the oldest of them", |s| &s.open_transaction_age_ms_max),
    ("kafka_last_stable_offset_lag_max", "Most records of a partition that wait for a transaction to end", |s| {
        &s.last_stable_offset_lag_max
    }),
    ("kafka_parked_fetches", "Fetch requests that wait for records", |s| &s.parked_fetches),
    ("kafka_fetch_sessions", "Fetch sessions remembered", |s| &s.fetch_sessions),
    ("storage_cleaner_dirty_percent_max", "Largest share of uncompacted bytes", |s| &s.cleaner_dirty_percent_max),
    ("storage_cache_bytes", "Bytes in the tail cache", |s| &s.cache_bytes),
    ("storage_read_ahead_bytes", "Bytes being read ahead or waiting to be asked for", |s| &s.read_ahead_bytes),
];

#[derive(Debug)]
struct Page(Vec<Arc<ShardMetrics>>);

/// The whole page.
pub fn text(shards: &[Arc<ShardMetrics>]) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("oncilla");
    registry.register_collector(Box::new(Page(shards.to_vec())));
    let mut out = String::with_capacity(16 << 10);
    prometheus_client::encoding::prometheus_text::encode(&mut out, &registry)?;
    Ok(out)
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        process(&mut encoder)?;
        for (name, help, of) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for shard in &self.0 {
                counter(&mut family, &[("shard", shard.shard.0)], of(shard).get())?;
            }
        }
        for (name, help, of) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for shard in &self.0 {
                let labels = [("shard", shard.shard.0)];
                family.encode_family(&labels)?.encode_gauge(&gauge_value(of(shard).get()))?;
            }
        }
        self.shard_times(&mut encoder)?;
        self.writes(&mut encoder)?;
        self.transactions(&mut encoder)?;
        self.requests(&mut encoder)?;
        self.errors(&mut encoder)?;
        groups::encode(&self.0, &mut encoder)
    }
}

fn process(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let uptime = process_uptime_ms() as f64 / 1e3;
    let help = "Time since the start";
    let mut one = encoder.encode_descriptor("application_uptime_seconds", help, None, MetricType::Counter)?;
    one.encode_counter::<Bare, f64, f64>(&uptime, None)?;
    let mut one = encoder.encode_descriptor("application_build", "Version", None, MetricType::Info)?;
    one.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
    let help = "Log lines dropped because stderr was too slow";
    let mut one = encoder.encode_descriptor("log_lines_dropped", help, None, MetricType::Counter)?;
    one.encode_counter::<Bare, u64, f64>(&logs::dropped(), None)
}

impl Page {
    fn shard_times(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time that the shard worked";
        let mut family = encoder.encode_descriptor("cpu_busy_seconds", help, None, MetricType::Counter)?;
        for shard in &self.0 {
            let labels = [("shard", shard.shard.0)];
            let busy = shard.cpu_busy_us.get() as f64 / 1e6;
            family.encode_family(&labels)?.encode_counter::<Bare, f64, f64>(&busy, None)?;
        }
        let help = "Age of the shard's last heartbeat";
        let mut family = encoder.encode_descriptor("shard_heartbeat_age_seconds", help, None, MetricType::Gauge)?;
        for shard in &self.0 {
            let labels = [("shard", shard.shard.0)];
            family.encode_family(&labels)?.encode_gauge(&(shard.heartbeat_age_ms() as f64 / 1e3))?;
        }
        Ok(())
    }

    fn writes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = ("storage_durable_write_seconds", "Durable writes, from submission to completion");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for shard in &self.0 {
            histogram(&mut family, &[("shard", shard.shard.0)], &shard.durable_write_us, 1e6)?;
        }
        let (name, help) = ("storage_slot_write_seconds", "Durable writes of slot journals");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for shard in &self.0 {
            histogram(&mut family, &[("shard", shard.shard.0)], &shard.slot_write_us, 1e6)?;
        }
        let (name, help) = ("storage_group_commit_batches", "Batches that one durable write carried");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for shard in &self.0 {
            histogram(&mut family, &[("shard", shard.shard.0)], &shard.group_commit_batches, 1.0)?;
        }
        Ok(())
    }

    fn transactions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Phase = (&'static str, fn(&ShardMetrics) -> &LatencyHistogram);
        const PHASES: [Phase; 3] = [
            ("prepare", |shard| &shard.txn_prepare_us),
            ("markers", |shard| &shard.txn_markers_us),
            ("offsets", |shard| &shard.txn_offsets_us),
        ];
        let (name, help) = ("kafka_end_transaction_seconds", "Ends of transactions by phase, until it is durable");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for shard in &self.0 {
            for (phase, of) in PHASES {
                let labels = [("shard", shard.shard.0.to_string()), ("phase", phase.to_string())];
                histogram(&mut family, &labels, of(shard), 1e6)?;
            }
        }
        Ok(())
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = ("kafka_handler_latency_seconds", "Requests by API, from read to answered");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (shard, key, latency) in self.in_use() {
            let labels = [("shard", shard.to_string()), ("handler", api_name(key))];
            histogram(&mut family, &labels, latency, 1e6)?;
        }
        // The same numbers again under the two labels that dashboards ask for.
        let (name, help) = ("kafka_request_latency_seconds", "Produce and Fetch requests, from read to answered");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (shard, key, latency) in self.in_use() {
            let request = match key {
                0 => "produce",
                1 => "consume",
                _ => continue,
            };
            let labels = [("shard", shard.to_string()), ("request", request.to_string())];
            histogram(&mut family, &labels, latency, 1e6)?;
        }
        Ok(())
    }

    fn in_use(&self) -> impl Iterator<Item = (u16, i16, &LatencyHistogram)> {
        self.0.iter().flat_map(|shard| shard.requests().map(|(key, latency)| (shard.shard.0, key, latency)))
    }

    fn errors(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Error codes in answers";
        let mut family = encoder.encode_descriptor("rpc_request_errors", help, None, MetricType::Counter)?;
        for shard in &self.0 {
            for (code, count) in shard.errors() {
                let labels = [("shard", shard.shard.0.to_string()), ("code", code.to_string())];
                counter(&mut family, &labels, count)?;
            }
        }
        Ok(())
    }
}

fn counter(family: &mut MetricEncoder<'_>, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
    family.encode_family(labels)?.encode_counter::<Bare, u64, f64>(&value, None)
}

fn gauge_value(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// `scale` is how many of the histogram's units make one of the page's.
fn histogram<const FIRST: u32, const BOUNDS: usize>(
    family: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    histogram: &Histogram<FIRST, BOUNDS>,
    scale: f64,
) -> fmt::Result {
    let buckets: Vec<(f64, u64)> = histogram
        .buckets()
        .map(|(bound, count)| (bound.map_or(f64::INFINITY, |bound| bound as f64 / scale), count))
        .collect();
    // From the same reading, so that the last bucket and the count agree.
    let count = buckets.iter().map(|(_, count)| count).sum();
    let sum = histogram.sum() as f64 / scale;
    family.encode_family(labels)?.encode_histogram::<Bare>(sum, count, &buckets, None)
}

/// `Produce` as `produce`, `ListOffsets` as `list_offsets`; a key without a name as its number.
fn api_name(key: i16) -> String {
    let Ok(api) = ApiKey::try_from(key) else {
        return key.to_string();
    };
    let mut name = String::new();
    for c in format!("{api:?}").chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use oncilla_shards::code::ErrorCode;
    use oncilla_shards::ids::ShardId;

    use super::*;

    #[test]
    fn series_of_keys_and_codes_appear_when_in_use() {
        let shard = Arc::new(ShardMetrics::new(ShardId(3)));
        let before = text(std::slice::from_ref(&shard)).expect("a page");
        assert!(!before.contains("handler=") && !before.contains("code="), "{before}");
        shard.request(2, 100);
        shard.request(1, 20_000_000);
        shard.error(ErrorCode::NotLeaderOrFollower);
        let page = text(&[shard]).expect("a page");
        for line in [
            "oncilla_kafka_handler_latency_seconds_bucket{shard=\"3\",handler=\"list_offsets\",le=\"0.000128\"} 1\n",
            "oncilla_kafka_handler_latency_seconds_bucket{shard=\"3\",handler=\"list_offsets\",le=\"6.4e-05\"} 0\n",
            "oncilla_kafka_handler_latency_seconds_count{shard=\"3\",handler=\"list_offsets\"} 1\n",
            "oncilla_kafka_request_latency_seconds_bucket{shard=\"3\",request=\"consume\",le=\"16.777216\"} 0\n",
            "oncilla_kafka_request_latency_seconds_bucket{shard=\"3\",request=\"consume\",le=\"+Inf\"} 1\n",
            "oncilla_kafka_request_latency_seconds_sum{shard=\"3\",request=\"consume\"} 20.0\n",
            "oncilla_rpc_request_errors_total{shard=\"3\",code=\"6\"} 1\n",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn every_series_has_help_and_a_type_and_names_are_given_once() {
        let page = text(&[Arc::new(ShardMetrics::new(ShardId(0)))]).expect("a page");
        let types: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let mut names: Vec<_> = types.iter().map(|line| line.split(' ').next().expect("a name")).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "a name twice");
        assert!(count >= COUNTERS.len() + GAUGES.len());
        assert!(names.iter().all(|name| name.starts_with("oncilla_") && !name.contains("_total_total")));
    }
}
