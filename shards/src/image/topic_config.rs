//! The settings of one topic as typed values, worked out from its overrides and the broker's.
//!
//! The log reads these on every append, so they are plain numbers and copied freely.

use std::collections::BTreeMap;

use super::broker_settings::{BrokerSettings, Source};
use super::topic_settings::{SettingError, TOPIC_SETTINGS, TopicSetting};
use super::value::elements;
use crate::batch::TimestampType;
use crate::ids::NodeId;

/// What happens to old segments; with neither flag they are kept for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Removed by age and size.
    pub delete: bool,
    /// Reduced to the last record of each key.
    pub compact: bool,
}

/// Codec that stored batches must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionType {
    /// Whatever the producer chose.
    Producer,
}

/// Settings of one topic that the log works with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`
    pub cleanup_policy: CleanupPolicy,
    /// `compression.type`
    pub compression_type: CompressionType,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: i64,
    /// `flush.messages`
    pub flush_messages: i64,
    /// `flush.ms`
    pub flush_ms: i64,
    /// `index.interval.bytes`
    pub index_interval_bytes: i32,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `max.message.bytes`
    pub max_message_bytes: i32,
    /// `message.timestamp.after.max.ms`
    pub after_max_ms: i64,
    /// `message.timestamp.before.max.ms`
    pub before_max_ms: i64,
    /// `message.timestamp.type`
    pub timestamp_type: TimestampType,
    /// `min.cleanable.dirty.ratio`
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `min.insync.replicas`
    pub min_insync_replicas: i32,
    /// `retention.bytes`; negative for no limit.
    pub retention_bytes: i64,
    /// `retention.ms`; -1 for no limit.
    pub retention_ms: i64,
    /// `segment.bytes`
    pub segment_bytes: i32,
    /// `segment.index.bytes`
    pub segment_index_bytes: i32,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: i64,
    /// `segment.ms`
    pub segment_ms: i64,
}

impl TopicConfig {
    /// Works out the settings of a topic at a node; `node` of `None` leaves out what is set for single nodes.
    ///
    /// `overrides` must have passed [`super::topic_settings::canonical_overrides`]. Fails only by the cross check.
    pub fn resolve(
        overrides: &BTreeMap<String, String>,
        broker: &BrokerSettings,
        node: Option<NodeId>,
    ) -> Result<Self, SettingError> {
        let text = |name: &str| {
            let setting = TopicSetting::by_name(name).expect("the table has every name that is read here");
            effective(setting, overrides, broker, node).0
        };
        let long = |name: &str| text(name).parse::<i64>().expect("a checked number parses");
        let int = |name: &str| text(name).parse::<i32>().expect("a checked number parses");
        let policy = text("cleanup.policy");
        let config = Self {
            cleanup_policy: CleanupPolicy {
                delete: elements(&policy).contains(&"delete"),
                compact: elements(&policy).contains(&"compact"),
            },
            compression_type: CompressionType::Producer,
            delete_retention_ms: long("delete.retention.ms"),
            file_delete_delay_ms: long("file.delete.delay.ms"),
            flush_messages: long("flush.messages"),
            flush_ms: long("flush.ms"),
            index_interval_bytes: int("index.interval.bytes"),
            max_compaction_lag_ms: long("max.compaction.lag.ms"),
            max_message_bytes: int("max.message.bytes"),
            after_max_ms: long("message.timestamp.after.max.ms"),
            before_max_ms: long("message.timestamp.before.max.ms"),
            timestamp_type: match text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: text("min.cleanable.dirty.ratio").parse().expect("a checked number parses"),
            min_compaction_lag_ms: long("min.compaction.lag.ms"),
            min_insync_replicas: int("min.insync.replicas"),
            retention_bytes: long("retention.bytes"),
            retention_ms: long("retention.ms"),
            segment_bytes: int("segment.bytes"),
            segment_index_bytes: int("segment.index.bytes"),
            segment_jitter_ms: long("segment.jitter.ms"),
            segment_ms: long("segment.ms"),
        };
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms {
            return Err(SettingError(format!(
                "min.compaction.lag.ms ({}) must not be above max.compaction.lag.ms ({})",
                config.min_compaction_lag_ms, config.max_compaction_lag_ms
            )));
        }
        Ok(config)
    }
}

/// A value and where it comes from, under the name that it has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Topic-level or broker-level name.
    pub name: String,
    /// The value there.
    pub value: String,
    /// Where "there" is.
    pub source: Source,
}

/// The value of a topic setting, where it comes from, and all that could give it, strongest first (contract K32.8-9).
#[must_use]
pub fn effective(
    setting: &TopicSetting,
    overrides: &BTreeMap<String, String>,
    broker: &BrokerSettings,
    node: Option<NodeId>,
) -> (String, Source, Vec<Origin>) {
    let mut origins = Vec::new();
    if let Some(value) = overrides.get(setting.name) {
        let value = value.clone();
        origins.push(Origin { name: setting.name.to_owned(), value, source: Source::Topic });
    }
    if let Some(synonym) = setting.synonym {
        origins.extend(broker.origins(synonym.name, node));
    }
    if let Some(first) = origins.first() {
        return (first.value.clone(), first.source, origins);
    }
    let coarser = setting.synonym.map_or(&[][..], |synonym| synonym.coarser);
    for (name, unit) in coarser {
        if let Some(count) = broker.fixed(name).and_then(|value| value.parse::<i64>().ok()) {
            // A negative count means "no limit" in every unit.
            let value = if count < 0 { -1 } else { count.saturating_mul(*unit) };
            return (value.to_string(), Source::Default, origins);
        }
    }
    (setting.default.to_owned(), Source::Default, origins)
}

/// Whether every topic setting can be worked out from the broker's settings alone.
pub fn check_defaults(broker: &BrokerSettings, node: Option<NodeId>) -> Result<(), SettingError> {
    assert!(!TOPIC_SETTINGS.is_empty());
    TopicConfig::resolve(&BTreeMap::new(), broker, node).map(|_| ())
}
