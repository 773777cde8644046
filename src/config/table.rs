//! The table of settings: one row says all there is to know about one.
//!
//! The parser, `config show`, the documentation of DescribeConfigs and the environment names are all made from it.
//! Names are Kafka's where Kafka has the setting. One name may begin another (`max.connections` and
//! `max.connections.per.ip`); in TOML the longer one is then written in quotes.

pub use super::row::{DefaultValue, Kind, Place, Row, TimeUnit};

/// The row of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

/// The known name that an unknown one most likely meant; `None` when nothing is near.
#[must_use]
pub fn nearest(unknown: &str) -> Option<&'static str> {
    let topic = TABLE.iter().find(|row| matches!(row.place, Place::Topic(name) if name == unknown));
    if let Some(row) = topic {
        return Some(row.name);
    }
    let lower = unknown.to_ascii_lowercase().replace(['_', '-'], ".");
    // A quarter of the letters may differ: beyond that two names of this table are as near as a stranger.
    let cut_off = (lower.len() / 4).max(1);
    TABLE
        .iter()
        .map(|row| (strsim::osa_distance(&lower, row.name), row.name))
        .filter(|(distance, _)| *distance <= cut_off)
        .min()
        .map(|(_, name)| name)
}

const I32: i64 = i32::MAX as i64;
const I64: i64 = i64::MAX;

const fn broker(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Row {
    Row { name, kind, default: DefaultValue::Fixed(default), place: Place::Broker, doc }
}

const fn special(name: &'static str, kind: Kind, default: DefaultValue, doc: &'static str) -> Row {
    Row { name, kind, default, place: Place::Broker, doc }
}

const fn topic(
    name: &'static str,
    topic_name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Row {
    Row { name, kind, default: DefaultValue::Fixed(default), place: Place::Topic(topic_name), doc }
}

const fn finer(name: &'static str, topic_name: &'static str, kind: Kind, doc: &'static str) -> Row {
    Row { name, kind, default: DefaultValue::Unset, place: Place::Topic(topic_name), doc }
}

/// Of the topic that Kafka keeps transactions in.
const KEPT: &str = "Kept for tools: the state of transactions is no topic.";

use DefaultValue::{CacheBytes, Cores, RequestBytes, Unset};
use Kind::{Address, Bool, Bytes, Choice, Count, Listeners, Path, Ratio, Text, Time, Words};
use TimeUnit::{Hours, Minutes, Ms, Us};

/// Every setting, sorted by name.
pub static TABLE: &[Row] = &[
    broker(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Time(Ms, 0, I32),
        "100",
        "Longest wait of a Produce request for the transaction before its own to be complete.",
    ),
    broker(
        "add.partitions.to.txn.retry.backoff.ms",
        Time(Ms, 1, I32),
        "20",
        "Kept for tools: such a wait needs no pauses.",
    ),
    special(
        "advertised.listeners",
        Listeners,
        Unset,
        "Addresses given to clients, one for each listener named; unset gives what is bound.",
    ),
    broker("auto.create.topics.enable", Bool, "true", "Creates a topic when a client asks for one that is not there."),
    // Producer ids carry the broker in the bits above 40, node ids in what is above 1000: both end near here.
    broker("broker.id", Count(0, 2_147_482), "0", "Number of this broker, unique in the cluster and never changed."),
    topic(
        "compression.gzip.level",
        "compression.gzip.level",
        Count(-1, 9),
        "-1",
        "Kept for tools: batches stay as the producer compressed them.",
    ),
    topic(
        "compression.lz4.level",
        "compression.lz4.level",
        Count(1, 17),
        "9",
        "Kept for tools: batches stay as the producer compressed them.",
    ),
    topic(
        "compression.type",
        "compression.type",
        Choice(&["producer"]),
        "producer",
        "Batches are stored as the producer compressed them.",
    ),
    topic(
        "compression.zstd.level",
        "compression.zstd.level",
        Count(-131_072, 22),
        "3",
        "Kept for tools: batches stay as the producer compressed them.",
    ),
    special(
        "connection.max.request.bytes",
        Bytes(1024, I64),
        RequestBytes(1),
        "Bytes of requests in work on one connection; beyond it the connection is not read.",
    ),
    broker(
        "connections.max.idle.ms",
        Time(Ms, -1, I64),
        "600000",
        "A connection idle for so long is closed; -1 keeps it for ever.",
    ),
    broker(
        "default.replication.factor",
        Count(1, 32_767),
        "1",
        "Replication factor of topics whose creator leaves it to the broker; Oncilla keeps one copy.",
    ),
    broker("delete.topic.enable", Bool, "true", "Lets clients delete topics."),
    broker("fetch.max.bytes", Bytes(1024, I32), "57671680", "Most bytes of records in one Fetch answer."),
    broker(
        "group.consumer.assignment.interval.ms",
        Time(Ms, 0, I32),
        "1000",
        "Shortest time between two targets of a consumer group.",
    ),
    broker(
        "group.consumer.assignors",
        Words(&["uniform", "range"]),
        "uniform,range",
        "Assignors of consumer groups; the first is the default.",
    ),
    broker(
        "group.consumer.heartbeat.interval.ms",
        Time(Ms, 1, I32),
        "5000",
        "Time between two heartbeats of a consumer member.",
    ),
    broker(
        "group.consumer.max.assignment.interval.ms",
        Time(Ms, 0, I32),
        "15000",
        "Most that an assignment interval may be set to.",
    ),
    broker(
        "group.consumer.max.heartbeat.interval.ms",
        Time(Ms, 1, I32),
        "15000",
        "Most that a heartbeat interval may be set to.",
    ),
    broker(
        "group.consumer.max.session.timeout.ms",
        Time(Ms, 1, I32),
        "60000",
        "Most that a session timeout may be set to.",
    ),
    broker("group.consumer.max.size", Count(1, I32), "2147483647", "Most members of a consumer group."),
    broker(
        "group.consumer.migration.policy",
        Choice(&["bidirectional", "upgrade", "downgrade", "disabled"]),
        "bidirectional",
        "Which protocol changes of a group are allowed.",
    ),
    broker(
        "group.consumer.min.assignment.interval.ms",
        Time(Ms, 0, I32),
        "0",
        "Least that an assignment interval may be set to.",
    ),
    broker(
        "group.consumer.min.heartbeat.interval.ms",
        Time(Ms, 1, I32),
        "5000",
        "Least that a heartbeat interval may be set to.",
    ),
    broker(
        "group.consumer.min.session.timeout.ms",
        Time(Ms, 1, I32),
        "45000",
        "Least that a session timeout may be set to.",
    ),
    broker(
        "group.consumer.session.timeout.ms",
        Time(Ms, 1, I32),
        "45000",
        "Silence after which a consumer member is removed.",
    ),
    broker(
        "group.coordinator.rebalance.protocols",
        Words(&["classic", "consumer", "streams"]),
        "classic,consumer,streams",
        "Protocols of groups; streams is not served.",
    ),
    broker(
        "group.initial.rebalance.delay.ms",
        Time(Ms, 0, I32),
        "3000",
        "Time that the first members of a group are waited for.",
    ),
    broker(
        "group.max.session.timeout.ms",
        Time(Ms, 0, I32),
        "1800000",
        "Longest session timeout that a classic member may ask for.",
    ),
    broker("group.max.size", Count(1, I32), "2147483647", "Most members of a classic group."),
    broker(
        "group.min.session.timeout.ms",
        Time(Ms, 0, I32),
        "6000",
        "Shortest session timeout that a classic member may ask for.",
    ),
    special(
        "http.listen",
        Address,
        DefaultValue::Fixed("127.0.0.1:9644"),
        "Address of metrics and health; port 0 picks one, off has none.",
    ),
    special(
        "listeners",
        Listeners,
        DefaultValue::Fixed("PLAINTEXT://127.0.0.1:9092"),
        "Addresses that clients connect to, NAME://host:port or host:port; core k adds k to the port.",
    ),
    special(
        "log.cache.bytes",
        Bytes(0, I64),
        CacheBytes,
        "Newest batches kept in memory for consumers, all cores together.",
    ),
    broker(
        "log.cleaner.backoff.ms",
        Time(Ms, 1, I64),
        "15000",
        "Time between two looks for logs to compact while none is due.",
    ),
    broker(
        "log.cleaner.dedupe.buffer.size",
        Bytes(24, I64),
        "134217728",
        "Memory for the keys of logs that are being compacted, all cores together; 24 bytes a key.",
    ),
    topic(
        "log.cleaner.delete.retention.ms",
        "delete.retention.ms",
        Time(Ms, 0, I64),
        "86400000",
        "Time that tombstones and markers stay in a compacted topic after it was first compacted with them.",
    ),
    broker("log.cleaner.enable", Bool, "true", "Compacts the topics that ask for it."),
    special(
        "log.cleaner.io.max.bytes.per.second",
        Bytes(1, I64),
        Unset,
        "Bytes that compaction reads and writes in a second, all cores together; unset has no limit.",
    ),
    topic(
        "log.cleaner.max.compaction.lag.ms",
        "max.compaction.lag.ms",
        Time(Ms, 1, I64),
        "9223372036854775807",
        "Longest time that a record may stay uncompacted.",
    ),
    topic(
        "log.cleaner.min.cleanable.ratio",
        "min.cleanable.dirty.ratio",
        Ratio,
        "0.5",
        "Share of uncompacted bytes from which a log is compacted.",
    ),
    topic(
        "log.cleaner.min.compaction.lag.ms",
        "min.compaction.lag.ms",
        Time(Ms, 0, I64),
        "0",
        "Shortest time that a record stays uncompacted.",
    ),
    topic(
        "log.cleanup.policy",
        "cleanup.policy",
        Words(&["compact", "delete"]),
        "delete",
        "What happens to old segments: delete removes them, compact keeps the last record of each key.",
    ),
    special("log.dirs", Path, DefaultValue::Fixed("./oncilla-data"), "Data directory; one."),
    topic(
        "log.flush.interval.messages",
        "flush.messages",
        Count(1, I64),
        "1",
        "Records after which a log is made durable; 1 acknowledges nothing that a crash can take back.",
    ),
    finer(
        "log.flush.interval.ms",
        "flush.ms",
        Time(Ms, 0, I64),
        "Time after which a log is made durable where flush.messages is above 1; unset leaves it to the count.",
    ),
    broker("log.format", Choice(&["text", "json"]), "text", "Form of the log lines on stderr."),
    topic(
        "log.index.interval.bytes",
        "index.interval.bytes",
        Bytes(0, I32),
        "4096",
        "Bytes of log between two entries of an index.",
    ),
    topic("log.index.size.max.bytes", "segment.index.bytes", Bytes(4, I32), "10485760", "Most bytes of an index file."),
    broker(
        "log.io",
        Choice(&["direct", "buffered"]),
        "direct",
        "How segments are written and read: past the page cache, or through it.",
    ),
    broker("log.level", Text, "info", "What is logged, in the form of RUST_LOG, which wins over it."),
    topic(
        "log.local.retention.bytes",
        "local.retention.bytes",
        Bytes(-2, I64),
        "-2",
        "Kept for tools: there is no second tier.",
    ),
    topic(
        "log.local.retention.ms",
        "local.retention.ms",
        Time(Ms, -2, I64),
        "-2",
        "Kept for tools: there is no second tier.",
    ),
    topic(
        "log.message.timestamp.after.max.ms",
        "message.timestamp.after.max.ms",
        Time(Ms, 0, I64),
        "3600000",
        "How far a record's time may be ahead of the broker's clock.",
    ),
    topic(
        "log.message.timestamp.before.max.ms",
        "message.timestamp.before.max.ms",
        Time(Ms, 0, I64),
        "9223372036854775807",
        "How far a record's time may be behind the broker's clock.",
    ),
    topic(
        "log.message.timestamp.type",
        "message.timestamp.type",
        Choice(&["CreateTime", "LogAppendTime"]),
        "CreateTime",
        "Whose clock stamps records: the producer's or the broker's.",
    ),
    topic("log.preallocate", "preallocate", Bool, "false", "Kept for tools: segments are always preallocated."),
    broker(
        "log.read.ahead.bytes",
        Bytes(0, I64),
        "33554432",
        "Memory for segments read ahead of consumers that catch up, all cores together; 0 reads nothing ahead.",
    ),
    topic(
        "log.retention.bytes",
        "retention.bytes",
        Bytes(-1, I64),
        "-1",
        "Bytes of a partition above which old segments are deleted; -1 has no limit.",
    ),
    broker(
        "log.retention.check.interval.ms",
        Time(Ms, 1, I64),
        "300000",
        "Time between two looks for segments to delete.",
    ),
    topic(
        "log.retention.hours",
        "retention.ms",
        Time(Hours, -1, I32),
        "168",
        "Age at which segments are deleted; -1 keeps them.",
    ),
    finer(
        "log.retention.minutes",
        "retention.ms",
        Time(Minutes, -1, I32),
        "Age at which segments are deleted; wins over log.retention.hours.",
    ),
    finer(
        "log.retention.ms",
        "retention.ms",
        Time(Ms, -1, I64),
        "Age at which segments are deleted; wins over log.retention.minutes.",
    ),
    topic(
        "log.roll.hours",
        "segment.ms",
        Time(Hours, 1, I32),
        "168",
        "Age at which a segment is closed and the next one opened.",
    ),
    topic(
        "log.roll.jitter.hours",
        "segment.jitter.ms",
        Time(Hours, 0, I32),
        "0",
        "Kept for tools: segments roll at their own first write after the age.",
    ),
    finer(
        "log.roll.jitter.ms",
        "segment.jitter.ms",
        Time(Ms, 0, I64),
        "Kept for tools; wins over log.roll.jitter.hours.",
    ),
    finer("log.roll.ms", "segment.ms", Time(Ms, 1, I64), "Age at which a segment is closed; wins over log.roll.hours."),
    topic(
        "log.segment.bytes",
        "segment.bytes",
        Bytes(1 << 20, I32),
        "1073741824",
        "Bytes at which a segment is closed and the next one opened.",
    ),
    topic(
        "log.segment.delete.delay.ms",
        "file.delete.delay.ms",
        Time(Ms, 0, I64),
        "60000",
        "Kept for tools: a segment's files go when its last reader does.",
    ),
    broker("max.connections", Count(1, I32), "65536", "Connections of the whole broker; one more is closed at once."),
    broker(
        "max.connections.per.ip",
        Count(0, I32),
        "2147483647",
        "Connections from one address; one more is closed at once.",
    ),
    broker(
        "max.incremental.fetch.session.cache.slots",
        Count(0, 1_000_000),
        "1000",
        "Fetch sessions that one core remembers.",
    ),
    topic("message.max.bytes", "max.message.bytes", Bytes(0, I32), "1048588", "Most bytes of one record batch."),
    broker(
        "metrics.groups.max",
        Count(0, 100_000),
        "100",
        "Groups with series of their own in the metrics; 0 tells of none.",
    ),
    topic(
        "min.insync.replicas",
        "min.insync.replicas",
        Count(1, I32),
        "1",
        "Kept for tools: there is one copy, and it is durable before it is acknowledged.",
    ),
    broker("num.partitions", Count(1, 10_000), "1", "Partitions of topics whose creator leaves them to the broker."),
    broker(
        "offset.metadata.max.bytes",
        Bytes(0, I32),
        "4096",
        "Longest text that a client may store beside an offset, in UTF-16 units.",
    ),
    broker(
        "offsets.retention.check.interval.ms",
        Time(Ms, 1, I64),
        "600000",
        "Time between two looks for offsets to forget.",
    ),
    broker(
        "offsets.retention.minutes",
        Time(Minutes, 1, I32),
        "10080",
        "Age at which committed offsets are forgotten.",
    ),
    broker("offsets.topic.num.partitions", Count(1, I32), "50", "Kept for tools: the state of groups is no topic."),
    broker(
        "offsets.topic.replication.factor",
        Count(1, 32_767),
        "3",
        "Kept for tools: the state of groups is no topic.",
    ),
    broker(
        "offsets.topic.segment.bytes",
        Bytes(1, I32),
        "104857600",
        "Kept for tools: the state of groups is no topic.",
    ),
    broker(
        "poll.spin.us",
        Time(Us, 0, 1_000_000),
        "0",
        "Time that an idle core looks for work before it sleeps; gives the core away for latency.",
    ),
    broker(
        "producer.id.expiration.check.interval.ms",
        Time(Ms, 1, I64),
        "600000",
        "Time between two looks for idle producer ids.",
    ),
    broker("producer.id.expiration.ms", Time(Ms, 1, I64), "86400000", "A producer id idle for so long is forgotten."),
    broker(
        "producer.ids.per.partition.max",
        Count(1, 100_000_000),
        "100000",
        "Producer ids that one partition remembers; the longest idle one leaves first.",
    ),
    special(
        "queued.max.request.bytes",
        Bytes(1024, I64),
        RequestBytes(2),
        "Bytes of requests in work on one core; beyond it no connection of the core is read.",
    ),
    broker(
        "replication.factor.accept.max",
        Count(1, 32_767),
        "3",
        "Highest replication factor that tools may ask for; one copy is kept, and Metadata says so.",
    ),
    broker("request.timeout.ms", Time(Ms, 1, I32), "30000", "Silence after which another broker is asked again."),
    special("shard.count", Count(1, 1000), Cores, "Cores used."),
    broker(
        "shard.listeners",
        Choice(&["per-core", "shared"]),
        "per-core",
        "One port and Kafka node for each core, or one port for all.",
    ),
    broker(
        "shutdown.drain.timeout.ms",
        Time(Ms, 0, 3_600_000),
        "10000",
        "Longest wait for requests in work when the broker is told to end.",
    ),
    broker(
        "socket.request.max.bytes",
        Bytes(1024, I32),
        "104857600",
        "Most bytes of one request; a longer one closes its connection.",
    ),
    broker(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Time(Ms, 1, I32),
        "10000",
        "Time between two looks for transactions that are open for too long.",
    ),
    broker("transaction.max.timeout.ms", Time(Ms, 1, I32), "900000", "Longest timeout that a producer may ask for."),
    broker(
        "transaction.partition.verification.enable",
        Bool,
        "true",
        "Asks for the transaction of older clients' batches.",
    ),
    broker(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Time(Ms, 1, I32),
        "3600000",
        "Time between two looks for idle ids.",
    ),
    broker("transaction.state.log.load.buffer.size", Bytes(1, I32), "5242880", KEPT),
    broker("transaction.state.log.min.isr", Count(1, 32_767), "2", KEPT),
    broker("transaction.state.log.num.partitions", Count(1, I32), "50", KEPT),
    broker("transaction.state.log.replication.factor", Count(1, 32_767), "3", KEPT),
    broker("transaction.state.log.segment.bytes", Bytes(1, I32), "104857600", KEPT),
    broker(
        "transaction.two.phase.commit.enable",
        Bool,
        "false",
        "Allows transactions without a timeout, by a version that clients do not use yet.",
    ),
    broker(
        "transactional.id.expiration.ms",
        Time(Ms, 1, I32),
        "604800000",
        "Idle time of a transactional id that is forgotten.",
    ),
    topic(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        Bool,
        "false",
        "Kept for tools: there is one copy, so no election loses records.",
    ),
];

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
