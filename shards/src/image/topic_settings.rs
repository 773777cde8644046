//! The table of topic settings (contract KT): name, type, default, range, broker synonym, what Oncilla does with it.
//!
//! A name that is not here is refused (KT.34), so nothing is ever accepted and forgotten.

use std::collections::BTreeMap;

use super::value::{Allowed, Kind, canonical};

/// What Oncilla does with a value that Kafka would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It has its effect.
    Act,
    /// It is accepted and shown, and changes nothing that a client sees.
    Keep,
    /// Every value but this one is refused.
    Only(&'static str),
}

/// Broker settings that give a topic setting its default.
#[derive(Clone, Copy, Debug)]
pub struct Synonym {
    /// Broker setting in the topic setting's own unit; it can change at run time.
    pub name: &'static str,
    /// Whether the broker setting has the table's default, or none until it is set (contract K32.9).
    pub has_default: bool,
    /// Settings of the file in coarser units, strongest first, with their length in the topic setting's unit.
    pub coarser: &'static [(&'static str, i64)],
}

/// One topic setting.
#[derive(Clone, Copy, Debug)]
pub struct TopicSetting {
    /// Name in CreateTopics and DescribeConfigs.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Value when nothing sets it.
    pub default: &'static str,
    /// Range that Kafka allows.
    pub allowed: Allowed,
    /// What Oncilla does with it.
    pub decision: Decision,
    /// Where the default comes from, if a broker setting gives it.
    pub synonym: Option<Synonym>,
    /// One sentence for DescribeConfigs.
    pub doc: &'static str,
}

/// Why settings were refused; the text names the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingError(pub String);

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

const fn broker(name: &'static str) -> Option<Synonym> {
    Some(Synonym { name, has_default: true, coarser: &[] })
}

const fn unset(name: &'static str, coarser: &'static [(&'static str, i64)]) -> Option<Synonym> {
    Some(Synonym { name, has_default: false, coarser })
}

const LONG_MAX: &str = "9223372036854775807";
const CODECS: Allowed = Allowed::Words(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]);

macro_rules! settings {
    ($($name:literal $kind:ident $default:tt $allowed:expr, $decision:expr, $synonym:expr, $doc:literal;)*) => {
        /// All topic settings, in name order.
        pub static TOPIC_SETTINGS: &[TopicSetting] = &[$(TopicSetting {
            name: $name, kind: Kind::$kind, default: $default, allowed: $allowed, decision: $decision,
            synonym: $synonym, doc: $doc,
        }),*];
    };
}

use Allowed::{Any, AtLeast, Between, Fraction, MinusOneOrBetween, ThrottledReplicas, Words};
use Decision::{Act, Keep, Only};

settings! {
    "cleanup.policy" List "delete" Words(&["compact", "delete"]), Act, broker("log.cleanup.policy"),
        "What happens to old segments: delete removes them by age and size, compact keeps the last record of each key.";
    "compression.gzip.level" Int "-1" MinusOneOrBetween(1, 9), Keep, broker("compression.gzip.level"),
        "Level for recompression with gzip; only compaction recompresses, at gzip's own default.";
    "compression.lz4.level" Int "9" Between(1, 17), Keep, broker("compression.lz4.level"),
        "Level for recompression with lz4; only compaction recompresses, at lz4's own default.";
    "compression.type" String "producer" CODECS, Only("producer"), broker("compression.type"),
        "Batches are stored in the codec that their producer chose.";
    "compression.zstd.level" Int "3" Between(-131_072, 22), Keep, broker("compression.zstd.level"),
        "Level for recompression with zstd; only compaction recompresses, at zstd's own default.";
    "delete.retention.ms" Long "86400000" AtLeast(0), Act, broker("log.cleaner.delete.retention.ms"),
        "How long compaction keeps tombstones and markers after it first saw them.";
    "file.delete.delay.ms" Long "60000" AtLeast(0), Keep, broker("log.segment.delete.delay.ms"),
        "How long a removed segment stays on disk.";
    "flush.messages" Long "1" AtLeast(1), Act, broker("log.flush.interval.messages"),
        "Records after which a durable write is forced; 1 makes every acknowledged record durable first.";
    "flush.ms" Long LONG_MAX AtLeast(0), Act, unset("log.flush.interval.ms", &[]),
        "Longest time that a record may wait for its durable write when flush.messages is above 1.";
    "follower.replication.throttled.replicas" List "" ThrottledReplicas, Keep, None,
        "Replicas under a replication quota; there is one replica.";
    "index.interval.bytes" Int "4096" AtLeast(0), Keep, broker("log.index.interval.bytes"),
        "Bytes of log between two entries of the offset index.";
    "leader.replication.throttled.replicas" List "" ThrottledReplicas, Keep, None,
        "Replicas under a replication quota; there is one replica.";
    "local.retention.bytes" Long "-2" AtLeast(-2), Keep, broker("log.local.retention.bytes"),
        "Local part of a tiered log; nothing is tiered.";
    "local.retention.ms" Long "-2" AtLeast(-2), Keep, broker("log.local.retention.ms"),
        "Local part of a tiered log; nothing is tiered.";
    "max.compaction.lag.ms" Long LONG_MAX AtLeast(1), Act, broker("log.cleaner.max.compaction.lag.ms"),
        "Longest time that a record may stay uncompacted.";
    "max.message.bytes" Int "1048588" AtLeast(0), Act, broker("message.max.bytes"),
        "Largest batch, as it is sent.";
    "message.timestamp.after.max.ms" Long "3600000" AtLeast(0), Act, broker("log.message.timestamp.after.max.ms"),
        "How far a record's time may be ahead of the broker's.";
    "message.timestamp.before.max.ms" Long LONG_MAX AtLeast(0), Act, broker("log.message.timestamp.before.max.ms"),
        "How far a record's time may be behind the broker's.";
    "message.timestamp.type" String "CreateTime" Words(&["CreateTime", "LogAppendTime"]), Act,
        broker("log.message.timestamp.type"), "Whether records carry their producer's time or the broker's.";
    "min.cleanable.dirty.ratio" Double "0.5" Fraction, Act, broker("log.cleaner.min.cleanable.ratio"),
        "Share of uncompacted log from which compaction starts.";
    "min.compaction.lag.ms" Long "0" AtLeast(0), Act, broker("log.cleaner.min.compaction.lag.ms"),
        "Shortest time that a record stays uncompacted.";
    "min.insync.replicas" Int "1" AtLeast(1), Keep, broker("min.insync.replicas"),
        "Replicas that must hold a batch; there is one, so more than one asks for no more than that.";
    "preallocate" Boolean "false" Any, Keep, broker("log.preallocate"),
        "Whether segments are allocated ahead; they always are.";
    "remote.log.copy.disable" Boolean "false" Any, Only("false"), None,
        "Part of tiered storage, which this broker does not have.";
    "remote.log.delete.on.disable" Boolean "false" Any, Only("false"), None,
        "Part of tiered storage, which this broker does not have.";
    "remote.storage.enable" Boolean "false" Any, Only("false"), None,
        "Part of tiered storage, which this broker does not have.";
    "retention.bytes" Long "-1" Any, Act, broker("log.retention.bytes"),
        "Bytes of a partition above which the oldest segments are removed; -1 for no limit.";
    "retention.ms" Long "604800000" AtLeast(-1), Act,
        unset("log.retention.ms", &[("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)]),
        "Age above which segments are removed; -1 for no limit.";
    "segment.bytes" Int "1073741824" AtLeast(1_048_576), Act, broker("log.segment.bytes"),
        "Size at which a new segment is started.";
    "segment.index.bytes" Int "10485760" AtLeast(4), Keep, broker("log.index.size.max.bytes"),
        "Largest index file.";
    "segment.jitter.ms" Long "0" AtLeast(0), Keep, unset("log.roll.jitter.ms", &[("log.roll.jitter.hours", HOUR_MS)]),
        "Random part of segment.ms.";
    "segment.ms" Long "604800000" AtLeast(1), Act, unset("log.roll.ms", &[("log.roll.hours", HOUR_MS)]),
        "Age at which a new segment is started.";
    "unclean.leader.election.enable" Boolean "false" Any, Keep, broker("unclean.leader.election.enable"),
        "Whether a stale replica may lead; there is one replica.";
}

impl TopicSetting {
    /// The setting of a topic-level name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        TOPIC_SETTINGS.binary_search_by(|setting| setting.name.cmp(name)).ok().map(|i| &TOPIC_SETTINGS[i])
    }

    /// The setting whose default the broker-level `name` gives, if it is in the setting's own unit.
    #[must_use]
    pub fn by_broker_name(name: &str) -> Option<&'static Self> {
        TOPIC_SETTINGS.iter().find(|setting| setting.synonym.is_some_and(|synonym| synonym.name == name))
    }

    /// The canonical text of a value, or why it is refused; the text calls the setting `shown_as`.
    pub fn canonical(&self, shown_as: &str, value: &str) -> Result<String, SettingError> {
        let text = canonical(self.kind, self.allowed, value)
            .map_err(|why| SettingError(format!("Invalid value {} for {shown_as}: {why}", value.trim())))?;
        let refused = match self.decision {
            Decision::Act | Decision::Keep => false,
            Decision::Only(value) => text != value,
        };
        if refused {
            let why = match self.decision {
                Decision::Only(value) => format!("only {value} is served"),
                Decision::Act | Decision::Keep => unreachable!("these refuse nothing"),
            };
            return Err(SettingError(format!("Invalid value {text} for {shown_as}: {why}")));
        }
        Ok(text)
    }
}

/// Checks the settings of one topic and renders them canonically (contract K19.8, KT, KT.34).
///
/// The first problem in name order is the one that is told. Cross checks need the defaults too and are in
/// [`super::TopicConfig::resolve`].
pub fn canonical_overrides(overrides: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, SettingError> {
    overrides
        .iter()
        .map(|(name, value)| {
            let setting = TopicSetting::by_name(name)
                .ok_or_else(|| SettingError(format!("Unknown topic config name: {name}")))?;
            Ok((name.clone(), setting.canonical(name, value)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> Result<BTreeMap<String, String>, SettingError> {
        canonical_overrides(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn kt_1_to_33_are_all_there_in_name_order() {
        assert_eq!(TOPIC_SETTINGS.len(), 33);
        assert!(TOPIC_SETTINGS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn kt_defaults_pass_their_own_checks_and_are_canonical() {
        for setting in TOPIC_SETTINGS {
            assert_eq!(setting.canonical(setting.name, setting.default).as_deref(), Ok(setting.default));
        }
    }

    #[test]
    fn kt_bounds_are_kafkas() {
        #[rustfmt::skip]
        let rows: &[(&str, &[&str], &[&str])] = &[
            ("cleanup.policy", &["delete", "", "delete,delete", "compact", "compact, delete"], &["keep", "compact,x"]),
            ("compression.type", &["producer"], &["gzip", "zstd", "none", "uncompressed"]),
            ("compression.gzip.level", &["-1", "1", "9"], &["0", "10", "-2"]),
            ("compression.lz4.level", &["1", "17"], &["0", "18"]),
            ("compression.zstd.level", &["-131072", "22"], &["-131073", "23"]),
            ("delete.retention.ms", &["0"], &["-1"]),
            ("file.delete.delay.ms", &["0"], &["-1"]),
            ("flush.messages", &["1", LONG_MAX], &["0", "-1"]),
            ("flush.ms", &["0"], &["-1"]),
            ("follower.replication.throttled.replicas", &["", "*", "0:0"], &["0"]),
            ("index.interval.bytes", &["0"], &["-1", "2147483648"]),
            ("leader.replication.throttled.replicas", &["", "*", "0:0"], &["0"]),
            ("local.retention.bytes", &["-2", "5"], &["-3"]),
            ("local.retention.ms", &["-2"], &["-3"]),
            ("max.compaction.lag.ms", &["1"], &["0"]),
            ("max.message.bytes", &["0", "2147483647"], &["-1", "2147483648"]),
            ("message.timestamp.after.max.ms", &["0"], &["-1"]),
            ("message.timestamp.before.max.ms", &["0", LONG_MAX], &["-1", "9223372036854775808"]),
            ("message.timestamp.type", &["CreateTime", "LogAppendTime"], &["createtime", ""]),
            ("min.cleanable.dirty.ratio", &["0", "1", "0.25"], &["-0.1", "1.1", "x"]),
            ("min.compaction.lag.ms", &["0"], &["-1"]),
            ("min.insync.replicas", &["1", "3"], &["0"]),
            ("preallocate", &["true", "FALSE"], &["1", ""]),
            ("remote.log.copy.disable", &["false"], &["true"]),
            ("remote.log.delete.on.disable", &["false"], &["true"]),
            ("remote.storage.enable", &["False"], &["true"]),
            ("retention.bytes", &["-1", "-5", "0"], &["1.5"]),
            ("retention.ms", &["-1", "0"], &["-2"]),
            ("segment.bytes", &["1048576"], &["1048575"]),
            ("segment.index.bytes", &["4"], &["3"]),
            ("segment.jitter.ms", &["0", LONG_MAX], &["-1"]),
            ("segment.ms", &["1"], &["0"]),
            ("unclean.leader.election.enable", &["true"], &["maybe"]),
        ];
        assert_eq!(rows.len(), TOPIC_SETTINGS.len());
        for (name, good, bad) in rows {
            for value in *good {
                assert!(one(name, value).is_ok(), "{name}={value}");
            }
            for value in *bad {
                assert!(one(name, value).is_err(), "{name}={value}");
            }
        }
    }

    #[test]
    fn kt_34_unknown_and_retired_names_are_refused() {
        for name in ["", "retention", "message.format.version", "message.downconversion.enable", "log.retention.ms"] {
            assert_eq!(one(name, "1"), Err(SettingError(format!("Unknown topic config name: {name}"))));
        }
    }

    #[test]
    fn k32_9_broker_names_lead_back_to_their_topic_setting() {
        assert_eq!(TopicSetting::by_broker_name("message.max.bytes").map(|s| s.name), Some("max.message.bytes"));
        assert_eq!(TopicSetting::by_broker_name("log.roll.ms").map(|s| s.name), Some("segment.ms"));
        assert!(TopicSetting::by_broker_name("log.retention.hours").is_none());
    }
}
