//! The broker's settings as typed values, resolved once at start from flags, environment and file.
//!
//! `table` says what settings there are, `file` and `value` read them, `resolve` decides who wins, `typed` makes the
//! [`Config`] that everything else uses. A wrong setting stops the start with a sentence for each problem.

pub mod file;
mod groups;
pub mod listeners;
pub mod machine;
pub mod resolve;
mod row;
pub mod table;
mod txn;
mod typed;
pub mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use oncilla_shards::groups::GroupSettings;
use oncilla_shards::ids::BrokerId;
use oncilla_shards::txn::TxnSettings;

pub use machine::Machine;
pub use resolve::{ConfigError, Inputs, Resolved, Setting, Source};

/// How cores listen (`shard.listeners`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerMode {
    /// Core k listens on port + k and is a Kafka node of its own; clients route to the owner themselves.
    PerCore,
    /// All cores accept on one port and are one node; requests for partitions of other cores hop over the mesh.
    Shared,
}

/// How segment files are written and read (`log.io`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// O_DIRECT, past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// How log lines look (`log.format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// One address that clients use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Name of the listener, `PLAINTEXT` unless set.
    pub name: String,
    /// Address to bind; port 0 picks one. In per-core mode core k binds port + k.
    pub bind: SocketAddr,
    /// Host that Metadata gives to clients that came in here; the bound one unless set.
    pub advertised_host: Option<String>,
    /// Port that Metadata gives for core 0; the bound one unless set. Core k is advertised at + k in per-core mode.
    pub advertised_port: Option<u16>,
}

/// All settings of a broker.
#[derive(Clone, Debug)]
pub struct Config {
    /// `broker.id`
    pub broker_id: BrokerId,
    /// `log.dirs`, one directory.
    pub data_dir: PathBuf,
    /// `listeners` with `advertised.listeners`
    pub listeners: Vec<Listener>,
    /// `shard.listeners`
    pub listener_mode: ListenerMode,
    /// `shard.count`: cores used, at least 1.
    pub shards: u16,
    /// `poll.spin.us`
    pub poll_spin_us: u64,
    /// `http.listen`; `None` for `off`.
    pub http_listen: Option<SocketAddr>,
    /// Groups with series of their own in the metrics.
    pub metrics_groups_max: usize,
    /// `num.partitions`
    pub num_partitions: i32,
    /// `default.replication.factor`
    pub default_replication_factor: i16,
    /// `replication.factor.accept.max`
    pub replication_factor_accept_max: i16,
    /// `auto.create.topics.enable`
    pub auto_create_topics: bool,
    /// `delete.topic.enable`
    pub delete_topic_enable: bool,
    /// `socket.request.max.bytes`
    pub socket_request_max_bytes: usize,
    /// `queued.max.request.bytes`: bytes of requests in work on one shard.
    pub shard_request_bytes_max: usize,
    /// `connection.max.request.bytes`: bytes of requests in work on one connection.
    pub connection_request_bytes_max: usize,
    /// `connections.max.idle.ms`; `None` for -1.
    pub connections_max_idle_ms: Option<u64>,
    /// `max.connections`
    pub max_connections: usize,
    /// `max.connections.per.ip`
    pub max_connections_per_ip: usize,
    /// `log.io`
    pub io_mode: IoMode,
    /// `log.cache.bytes`: tail cache of all shards together.
    pub log_cache_bytes: usize,
    /// `log.read.ahead.bytes`: for all shards together.
    pub log_read_ahead_bytes: usize,
    /// `fetch.max.bytes`: most bytes of records in one Fetch answer.
    pub fetch_max_bytes: usize,
    /// `max.incremental.fetch.session.cache.slots`
    pub fetch_session_slots: usize,
    /// `log.retention.check.interval.ms`
    pub retention_check_interval_ms: u64,
    /// `log.cleaner.enable`
    pub cleaner_enable: bool,
    /// `log.cleaner.backoff.ms`
    pub cleaner_backoff_ms: u64,
    /// `log.cleaner.dedupe.buffer.size`: memory for keys of all shards together.
    pub cleaner_dedupe_bytes: usize,
    /// `log.cleaner.io.max.bytes.per.second`, all shards together; `None` for no limit.
    pub cleaner_io_bytes_per_second_max: Option<u64>,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
    /// `producer.id.expiration.check.interval.ms`
    pub producer_id_expiration_check_interval_ms: u64,
    /// `producer.ids.per.partition.max`: producer ids remembered for one partition; the longest idle one leaves first.
    pub producer_ids_max: usize,
    /// Settings of consumer groups, as fixed at start.
    pub groups: GroupSettings,
    /// Settings of transactions, as fixed at start.
    pub txn: TxnSettings,
    /// `add.partitions.to.txn.retry.backoff.max.ms`: how long Produce waits for a transaction that is completing.
    pub add_partitions_wait_ms_max: u64,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_interval_ms: u64,
    /// `shutdown.drain.timeout.ms`: longest wait for requests in work at SIGTERM.
    pub shutdown_drain_ms: u64,
    /// `log.level`
    pub log_level: String,
    /// `log.format`
    pub log_format: LogFormat,
    /// Topic settings set for all topics, by the broker's name (`log.retention.hours`), in the unit of that name.
    /// Only what somebody set: what is not here has Kafka's default.
    pub topic_defaults: BTreeMap<String, String>,
    /// Every setting with its value and where it came from, for DescribeConfigs and `config show`.
    pub settings: Vec<Setting>,
    /// What looks wrong with the settings but stops nothing.
    pub warnings: Vec<String>,
}
