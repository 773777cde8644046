//! Broker-level settings: what DescribeConfigs lists for a node, and which of it may change at run time.
//!
//! Values come from four places, strongest first: set for one node, set for the whole cluster (both at run time and
//! kept in the image), set in the file or on the command line (handed in by the edge at start), and the default.
//! Settings that give topic settings their defaults are taken from the topic table, so one check holds for both.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::topic_config::{Origin, check_defaults};
use super::topic_settings::{SettingError, TOPIC_SETTINGS, TopicSetting};
use super::value::{Allowed, Kind, canonical};
use crate::ids::NodeId;

/// Where a value comes from (contract K32.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Source {
    /// Set for the topic.
    Topic = 1,
    /// Set for this node at run time.
    Node = 2,
    /// Set for the cluster at run time.
    Cluster = 3,
    /// Set in the file, the environment or on the command line.
    File = 4,
    /// Nothing sets it.
    Default = 5,
    /// Set for the group.
    Group = 8,
}

impl Source {
    /// The number on the wire.
    #[must_use]
    pub fn wire(self) -> i8 {
        self as i8
    }
}

/// A setting that is fixed while the broker runs, as the edge read it at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedSetting {
    /// Kafka's name of it, or Oncilla's own.
    pub name: String,
    /// The value in force; `None` when it is unset.
    pub value: Option<String>,
    /// The value that would be in force if nothing set it.
    pub default: Option<String>,
    /// [`Source::File`] or [`Source::Default`].
    pub source: Source,
}

/// A broker setting that is not a topic setting's default.
struct Own {
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    /// Range, if the setting may change at run time.
    dynamic: Option<Allowed>,
    doc: &'static str,
}

macro_rules! own {
    ($($name:literal $kind:ident $default:expr, $dynamic:expr, $doc:literal;)*) => {
        /// In name order.
        static OWN: &[Own] = &[$(Own {
            name: $name, kind: Kind::$kind, default: $default, dynamic: $dynamic, doc: $doc,
        }),*];
    };
}

own! {
    "add.partitions.to.txn.retry.backoff.max.ms" Int Some("100"), None,
        "Longest wait of a Produce request for the transaction before its own to be complete.";
    "add.partitions.to.txn.retry.backoff.ms" Int Some("20"), None,
        "Kept for tools: such a wait ends when the transaction is complete.";
    "advertised.listeners" List None, None, "Addresses that Metadata gives to clients.";
    "auto.create.topics.enable" Boolean None, None, "Whether asking for an unknown topic creates it.";
    "broker.id" Int None, None, "Number of this broker; its nodes are numbered from it.";
    "connections.max.idle.ms" Long None, None, "Idle time after which a connection is closed.";
    "default.replication.factor" Int None, None, "Replicas asked for when a request leaves them open; there is one.";
    "delete.topic.enable" Boolean None, None, "Whether topics can be deleted.";
    "fetch.max.bytes" Int None, None, "Most bytes of records in one Fetch answer.";
    "group.consumer.assignment.interval.ms" Int Some("1000"), Some(Allowed::AtLeast(0)),
        "Shortest time between two targets of a consumer group.";
    "group.consumer.assignors" List Some("uniform,range"), None,
        "Assignors of consumer groups; the first is the default.";
    "group.consumer.heartbeat.interval.ms" Int Some("5000"), None,
        "Time between two heartbeats of a consumer member.";
    "group.consumer.max.assignment.interval.ms" Int Some("15000"), None,
        "Most that an assignment interval may be set to.";
    "group.consumer.max.heartbeat.interval.ms" Int Some("15000"), None,
        "Most that a heartbeat interval may be set to.";
    "group.consumer.max.session.timeout.ms" Int Some("60000"), None, "Most that a session timeout may be set to.";
    "group.consumer.max.size" Int Some("2147483647"), None, "Most members of a consumer group.";
    "group.consumer.migration.policy" String Some("bidirectional"), None,
        "Which protocol changes of a group are allowed.";
    "group.consumer.min.assignment.interval.ms" Int Some("0"), None,
        "Least that an assignment interval may be set to.";
    "group.consumer.min.heartbeat.interval.ms" Int Some("5000"), None,
        "Least that a heartbeat interval may be set to.";
    "group.consumer.min.session.timeout.ms" Int Some("45000"), None, "Least that a session timeout may be set to.";
    "group.consumer.session.timeout.ms" Int Some("45000"), None, "Silence after which a consumer member is removed.";
    "group.coordinator.append.linger.ms" Int Some("-1"), None,
        "Kept for tools: entries are written as soon as the disk is free.";
    "group.coordinator.background.threads" Int Some("2"), None, "Kept for tools: each core decides about its groups.";
    "group.coordinator.cached.buffer.max.bytes" Int Some("1048588"), Some(Allowed::AtLeast(1)),
        "Kept for tools: write buffers have a bound of their own.";
    "group.coordinator.rebalance.protocols" List Some("classic,consumer,streams"), None,
        "Protocols of groups; streams is not served.";
    "group.coordinator.threads" Int Some("4"), None, "Kept for tools: each core decides about its groups.";
    "group.initial.rebalance.delay.ms" Int Some("3000"), None,
        "Time that the first members of a group are waited for.";
    "group.max.session.timeout.ms" Int Some("1800000"), None,
        "Longest session timeout that a classic member may ask for.";
    "group.max.size" Int Some("2147483647"), None, "Most members of a classic group.";
    "group.min.session.timeout.ms" Int Some("6000"), None,
        "Shortest session timeout that a classic member may ask for.";
    "group.share.assignment.interval.ms" Int Some("1000"), Some(Allowed::AtLeast(0)),
        "Kept for tools: share groups are not served.";
    "group.share.assignors" List Some("simple"), None, "Kept for tools: share groups are not served.";
    "group.share.heartbeat.interval.ms" Int Some("5000"), None, "Kept for tools: share groups are not served.";
    "group.share.max.assignment.interval.ms" Int Some("15000"), None, "Kept for tools: share groups are not served.";
    "group.share.max.heartbeat.interval.ms" Int Some("15000"), None, "Kept for tools: share groups are not served.";
    "group.share.max.session.timeout.ms" Int Some("60000"), None, "Kept for tools: share groups are not served.";
    "group.share.max.size" Int Some("200"), None, "Kept for tools: share groups are not served.";
    "group.share.min.assignment.interval.ms" Int Some("0"), None, "Kept for tools: share groups are not served.";
    "group.share.min.heartbeat.interval.ms" Int Some("5000"), None, "Kept for tools: share groups are not served.";
    "group.share.min.session.timeout.ms" Int Some("45000"), None, "Kept for tools: share groups are not served.";
    "group.share.session.timeout.ms" Int Some("45000"), None, "Kept for tools: share groups are not served.";
    "group.streams.assignment.interval.ms" Int Some("1000"), Some(Allowed::AtLeast(0)),
        "Kept for tools: streams groups are not served.";
    "group.streams.heartbeat.interval.ms" Int Some("5000"), None, "Kept for tools: streams groups are not served.";
    "group.streams.initial.rebalance.delay.ms" Int Some("3000"), None,
        "Kept for tools: streams groups are not served.";
    "group.streams.max.assignment.interval.ms" Int Some("15000"), None,
        "Kept for tools: streams groups are not served.";
    "group.streams.max.heartbeat.interval.ms" Int Some("15000"), None,
        "Kept for tools: streams groups are not served.";
    "group.streams.max.session.timeout.ms" Int Some("60000"), None, "Kept for tools: streams groups are not served.";
    "group.streams.max.standby.replicas" Int Some("2"), None, "Kept for tools: streams groups are not served.";
    "group.streams.min.assignment.interval.ms" Int Some("0"), None, "Kept for tools: streams groups are not served.";
    "group.streams.min.heartbeat.interval.ms" Int Some("5000"), None,
        "Kept for tools: streams groups are not served.";
    "group.streams.min.session.timeout.ms" Int Some("45000"), None, "Kept for tools: streams groups are not served.";
    "group.streams.num.standby.replicas" Int Some("0"), None, "Kept for tools: streams groups are not served.";
    "group.streams.session.timeout.ms" Int Some("45000"), None, "Kept for tools: streams groups are not served.";
    "listeners" List None, None, "Addresses that the broker binds.";
    "log.cleaner.backoff.ms" Long None, None, "Time between two looks for logs to compact.";
    "log.cleaner.dedupe.buffer.size" Long None, None, "Memory for the keys of logs that are being compacted.";
    "log.cleaner.enable" Boolean None, None, "Whether topics that ask for it are compacted.";
    "log.cleaner.io.max.bytes.per.second" Double Some("1.7976931348623157E308"), None,
        "Bytes that compaction reads and writes in a second.";
    "log.dirs" String None, None, "The data directory.";
    "log.retention.check.interval.ms" Long None, None, "Time between two looks for segments to remove.";
    "log.retention.hours" Int Some("168"), None, "Age above which segments are removed, if no finer setting is set.";
    "log.retention.minutes" Int None, None, "Age above which segments are removed, if log.retention.ms is not set.";
    "log.roll.hours" Int Some("168"), None, "Age at which a new segment is started, if log.roll.ms is not set.";
    "log.roll.jitter.hours" Int Some("0"), None, "Random part of log.roll.hours.";
    "max.connections" Int Some("2147483647"), Some(Allowed::AtLeast(0)), "Most connections of one broker.";
    "max.connections.per.ip" Int Some("2147483647"), Some(Allowed::AtLeast(0)), "Most connections of one address.";
    "max.incremental.fetch.session.cache.slots" Int None, None, "Fetch sessions kept.";
    "node.id" Int None, None, "Number of this node.";
    "num.partitions" Int None, None, "Partitions of a topic when a request leaves them open.";
    "offset.metadata.max.bytes" Int Some("4096"), None,
        "Longest text that a client may store beside an offset, in UTF-16 units.";
    "offsets.commit.timeout.ms" Int Some("5000"), None, "Kept for tools: a commit waits for the disk only.";
    "offsets.load.buffer.size" Int Some("5242880"), None, "Kept for tools: the state of groups is no topic.";
    "offsets.retention.check.interval.ms" Long Some("600000"), None, "Time between two looks for offsets to forget.";
    "offsets.retention.minutes" Int Some("10080"), None, "Age at which committed offsets are forgotten.";
    "offsets.topic.compression.codec" Int Some("0"), None, "Kept for tools: the state of groups is no topic.";
    "offsets.topic.num.partitions" Int Some("50"), None, "Kept for tools: the state of groups is no topic.";
    "offsets.topic.replication.factor" Short Some("3"), None, "Kept for tools: the state of groups is no topic.";
    "offsets.topic.segment.bytes" Int Some("104857600"), None, "Kept for tools: the state of groups is no topic.";
    "producer.id.expiration.check.interval.ms" Int None, None, "Time between two looks for idle producer ids.";
    "producer.id.expiration.ms" Int Some("86400000"), Some(Allowed::AtLeast(1)),
        "Idle time after which a partition forgets a producer id.";
    "replication.factor.accept.max" Int None, None, "Largest replication factor that is accepted and told as 1.";
    "request.timeout.ms" Int Some("30000"), None, "Silence of another broker after which a marker is sent to it again.";
    "shard.count" Int None, None, "Cores that the broker uses.";
    "shard.listeners" String None, None, "Whether each core is a node of its own, or all cores are one.";
    "socket.request.max.bytes" Int None, None, "Largest request.";
    "transaction.abort.timed.out.transaction.cleanup.interval.ms" Int Some("10000"), None,
        "Time between two looks for transactions that are open for too long.";
    "transaction.max.timeout.ms" Int Some("900000"), None, "Longest timeout that a producer may ask for.";
    "transaction.partition.verification.enable" Boolean Some("true"), Some(Allowed::Any),
        "Asks for the transaction of a batch whose client does not add partitions itself.";
    "transaction.remove.expired.transaction.cleanup.interval.ms" Int Some("3600000"), None,
        "Time between two looks for transactional ids that nobody uses.";
    "transaction.state.log.load.buffer.size" Int Some("5242880"), None,
        "Kept for tools: the state of transactions is no topic.";
    "transaction.state.log.min.isr" Int Some("2"), None,
        "Kept for tools: the state of transactions is no topic.";
    "transaction.state.log.num.partitions" Int Some("50"), None,
        "Kept for tools: the state of transactions is no topic.";
    "transaction.state.log.replication.factor" Short Some("3"), None,
        "Kept for tools: the state of transactions is no topic.";
    "transaction.state.log.segment.bytes" Int Some("104857600"), None,
        "Kept for tools: the state of transactions is no topic.";
    "transaction.two.phase.commit.enable" Boolean Some("false"), None,
        "Allows transactions without a timeout, by a version that clients do not use yet.";
    "transactional.id.expiration.ms" Int Some("604800000"), None, "A transactional id idle for so long is forgotten.";
}

fn own(name: &str) -> Option<&'static Own> {
    OWN.binary_search_by(|own| own.name.cmp(name)).ok().map(|i| &OWN[i])
}

fn default_of(name: &str) -> Option<&'static str> {
    match TopicSetting::by_broker_name(name) {
        Some(topic) => topic.synonym.filter(|synonym| synonym.has_default).map(|_| topic.default),
        None => own(name).and_then(|own| own.default),
    }
}

fn kind_of(name: &str) -> Kind {
    TopicSetting::by_broker_name(name).map(|topic| topic.kind).or(own(name).map(|own| own.kind)).unwrap_or(Kind::String)
}

/// Whether a broker setting exists and may change at run time (contract K44.10-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changeable {
    /// It may.
    Yes,
    /// It is fixed at start.
    No,
    /// There is no such setting.
    Unknown,
}

/// All broker settings with their sources.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BrokerSettings {
    fixed: Arc<BTreeMap<String, FixedSetting>>,
    /// Set for the whole cluster at run time; canonical.
    pub cluster: BTreeMap<String, String>,
    /// Set for single nodes at run time; canonical.
    pub nodes: BTreeMap<NodeId, BTreeMap<String, String>>,
}

/// One setting as DescribeConfigs tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Name.
    pub name: String,
    /// Value; `None` when unset.
    pub value: Option<String>,
    /// Whether it can change at run time.
    pub read_only: bool,
    /// Where the value comes from.
    pub source: Source,
    /// What could give it a value, strongest first.
    pub synonyms: Vec<Origin>,
    /// Type.
    pub kind: Kind,
    /// One sentence.
    pub doc: &'static str,
}

impl BrokerSettings {
    /// Takes the settings that are fixed at start.
    ///
    /// Those with a check here (topic defaults, settings that may change at run time) are checked and rendered
    /// canonically; `log.retention.hours` and its like must be numbers.
    pub fn new(fixed: Vec<FixedSetting>) -> Result<Self, SettingError> {
        let mut map = BTreeMap::new();
        for mut setting in fixed {
            if let Some(value) = &setting.value {
                setting.value = Some(check_fixed(&setting.name, value)?);
            }
            map.insert(setting.name.clone(), setting);
        }
        let settings = Self { fixed: Arc::new(map), ..Self::default() };
        check_defaults(&settings, None)?;
        Ok(settings)
    }

    /// The value of a setting as it was fixed at start by the file or the command line.
    #[must_use]
    pub fn fixed(&self, name: &str) -> Option<&str> {
        let setting = self.fixed.get(name).filter(|setting| setting.source == Source::File)?;
        setting.value.as_deref()
    }

    /// All that gives a setting a value at a node, strongest first.
    #[must_use]
    pub fn origins(&self, name: &str, node: Option<NodeId>) -> Vec<Origin> {
        let mut origins = Vec::new();
        let mut push = |value: Option<&str>, source| {
            origins.extend(value.map(|value| Origin { name: name.to_owned(), value: value.to_owned(), source }));
        };
        let at_node = node.and_then(|node| self.nodes.get(&node)).and_then(|settings| settings.get(name));
        push(at_node.map(String::as_str), Source::Node);
        push(self.cluster.get(name).map(String::as_str), Source::Cluster);
        push(self.fixed(name), Source::File);
        let told = self.fixed.get(name).and_then(|setting| setting.default.as_deref());
        // The edge knows its own default better than Kafka's table: a value told here must be the one in force.
        push(told.or(default_of(name)), Source::Default);
        origins
    }

    /// The value of a setting at a node, if anything gives it one.
    #[must_use]
    pub fn value(&self, name: &str, node: Option<NodeId>) -> Option<String> {
        self.origins(name, node).into_iter().next().map(|origin| origin.value)
    }

    /// The value of a numeric setting at a node, if anything gives it one.
    #[must_use]
    pub fn number(&self, name: &str, node: Option<NodeId>) -> Option<i64> {
        self.value(name, node)?.parse().ok()
    }

    /// Whether a setting may change at run time.
    #[must_use]
    pub fn changeable(&self, name: &str) -> Changeable {
        if TopicSetting::by_broker_name(name).is_some() {
            return Changeable::Yes;
        }
        match own(name) {
            Some(Own { dynamic: Some(_), .. }) => Changeable::Yes,
            Some(_) => Changeable::No,
            None if self.fixed.contains_key(name) => Changeable::No,
            None => Changeable::Unknown,
        }
    }

    /// Every setting at a node, by name (contract K32.10-11).
    #[must_use]
    pub fn describe(&self, node: NodeId) -> Vec<Described> {
        let from_topics = TOPIC_SETTINGS.iter().filter_map(|topic| topic.synonym).map(|synonym| synonym.name);
        let mut names: Vec<&str> =
            from_topics.chain(OWN.iter().map(|own| own.name)).chain(self.fixed.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.describe_one(name, self.origins(name, Some(node)))).collect()
    }

    /// What is set for the whole cluster at run time, by name (contract K32.2).
    #[must_use]
    pub fn describe_cluster(&self) -> Vec<Described> {
        self.cluster.keys().map(|name| self.describe_one(name, self.origins(name, None))).collect()
    }

    fn describe_one(&self, name: &str, origins: Vec<Origin>) -> Described {
        Described {
            name: name.to_owned(),
            value: origins.first().map(|origin| origin.value.clone()),
            read_only: self.changeable(name) != Changeable::Yes,
            source: origins.first().map_or(Source::Default, |origin| origin.source),
            synonyms: origins,
            kind: kind_of(name),
            doc: TopicSetting::by_broker_name(name)
                .map(|topic| topic.doc)
                .or(own(name).map(|own| own.doc))
                .unwrap_or(""),
        }
    }
}

/// Checks a value that is set at run time; the setting must be changeable.
pub fn canonical_dynamic(name: &str, value: &str) -> Result<String, SettingError> {
    if let Some(topic) = TopicSetting::by_broker_name(name) {
        return topic.canonical(name, value);
    }
    let setting = own(name).filter(|own| own.dynamic.is_some());
    let setting = setting.ok_or_else(|| SettingError(format!("{name} cannot change at run time")))?;
    canonical(setting.kind, setting.dynamic.unwrap_or(Allowed::Any), value)
        .map_err(|why| SettingError(format!("Invalid value {} for {name}: {why}", value.trim())))
}

/// Checks a value of the file or the command line, as far as this module knows the setting.
fn check_fixed(name: &str, value: &str) -> Result<String, SettingError> {
    let invalid = |why| SettingError(format!("Invalid value {} for {name}: {why}", value.trim()));
    match own(name) {
        Some(Own { dynamic: Some(allowed), kind, .. }) => canonical(*kind, *allowed, value).map_err(invalid),
        Some(Own { kind, .. }) => canonical(*kind, Allowed::Any, value).map_err(invalid),
        None if TopicSetting::by_broker_name(name).is_some() => canonical_dynamic(name, value),
        None => Ok(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::TopicConfig;

    fn file(name: &str, value: &str) -> FixedSetting {
        FixedSetting { name: name.into(), value: Some(value.into()), default: None, source: Source::File }
    }

    #[test]
    fn own_settings_are_in_name_order_and_none_is_a_topic_default() {
        assert!(OWN.is_sorted_by(|a, b| a.name < b.name));
        assert!(OWN.iter().all(|own| TopicSetting::by_broker_name(own.name).is_none()));
    }

    #[test]
    fn k32_9_hours_of_the_file_show_as_milliseconds_of_the_topic_without_a_synonym() {
        let broker = BrokerSettings::new(vec![file("log.retention.hours", "5")]).expect("valid");
        let setting = TopicSetting::by_name("retention.ms").expect("known");
        let (value, source, origins) = super::super::effective(setting, &BTreeMap::new(), &broker, None);
        assert_eq!((value.as_str(), source, origins.len()), ("18000000", Source::Default, 0));
        let config = TopicConfig::resolve(&BTreeMap::new(), &broker, None).expect("valid");
        assert_eq!(config.retention_ms, 18_000_000);
    }

    #[test]
    fn k32_9_minutes_are_stronger_than_hours_and_milliseconds_than_both() {
        let both = vec![file("log.retention.hours", "5"), file("log.retention.minutes", "2")];
        let broker = BrokerSettings::new(both.clone()).expect("valid");
        assert_eq!(TopicConfig::resolve(&BTreeMap::new(), &broker, None).expect("valid").retention_ms, 120_000);
        let all = both.into_iter().chain([file("log.retention.ms", "7")]).collect();
        let broker = BrokerSettings::new(all).expect("valid");
        assert_eq!(TopicConfig::resolve(&BTreeMap::new(), &broker, None).expect("valid").retention_ms, 7);
        let unlimited = BrokerSettings::new(vec![file("log.retention.hours", "-1")]).expect("valid");
        assert_eq!(TopicConfig::resolve(&BTreeMap::new(), &unlimited, None).expect("valid").retention_ms, -1);
    }

    #[test]
    fn k32_8_the_strongest_place_wins_and_all_are_listed() {
        let mut broker = BrokerSettings::new(vec![file("message.max.bytes", "3000")]).expect("valid");
        broker.cluster.insert("message.max.bytes".into(), "2000".into());
        broker.nodes.insert(NodeId(4), BTreeMap::from([("message.max.bytes".into(), "1000".into())]));
        let sources = |node| -> Vec<_> {
            broker.origins("message.max.bytes", node).into_iter().map(|o| (o.value, o.source)).collect()
        };
        let text = |value: &str, source| (value.to_owned(), source);
        assert_eq!(
            sources(Some(NodeId(4))),
            [
                text("1000", Source::Node),
                text("2000", Source::Cluster),
                text("3000", Source::File),
                text("1048588", Source::Default)
            ]
        );
        assert_eq!(sources(Some(NodeId(5)))[0], text("2000", Source::Cluster));
        assert_eq!(broker.number("message.max.bytes", Some(NodeId(4))), Some(1000));
    }

    #[test]
    fn k32_11_lists_the_settings_that_tools_read() {
        let names: Vec<String> = BrokerSettings::default().describe(NodeId(0)).into_iter().map(|d| d.name).collect();
        assert!(names.is_sorted_by(|a, b| a < b));
        for name in [
            "auto.create.topics.enable",
            "broker.id",
            "delete.topic.enable",
            "log.dirs",
            "log.retention.bytes",
            "log.retention.hours",
            "log.retention.ms",
            "message.max.bytes",
            "num.partitions",
        ] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
    }

    #[test]
    fn k32_11_a_setting_that_nobody_set_has_the_value_that_the_edge_starts_with() {
        let edge = |name: &str, value: &str| FixedSetting {
            name: name.into(),
            value: Some(value.into()),
            default: Some(value.into()),
            source: Source::Default,
        };
        let all = vec![edge("auto.create.topics.enable", "true"), edge("max.connections", "65536")];
        let broker = BrokerSettings::new(all).expect("valid");
        for (name, value) in [("auto.create.topics.enable", "true"), ("max.connections", "65536")] {
            let described = broker.describe(NodeId(0)).into_iter().find(|d| d.name == name).expect("listed");
            assert_eq!((described.value.as_deref(), described.source), (Some(value), Source::Default), "{name}");
        }
    }

    #[test]
    fn k44_10_what_may_change_is_what_has_an_effect_on_topics_and_connections() {
        let broker = BrokerSettings::new(vec![file("http.listen", "127.0.0.1:9644")]).expect("valid");
        for name in ["log.retention.ms", "message.max.bytes", "max.connections.per.ip", "producer.id.expiration.ms"] {
            assert_eq!(broker.changeable(name), Changeable::Yes, "{name}");
        }
        for name in ["broker.id", "log.dirs", "log.retention.hours", "http.listen"] {
            assert_eq!(broker.changeable(name), Changeable::No, "{name}");
        }
        assert_eq!(broker.changeable("log.retention"), Changeable::Unknown);
        assert!(canonical_dynamic("max.connections.per.ip", "-1").is_err());
        assert_eq!(canonical_dynamic("max.connections.per.ip", " 07 ").as_deref(), Ok("7"));
    }

    #[test]
    fn a_bad_default_stops_the_start() {
        assert!(BrokerSettings::new(vec![file("log.segment.bytes", "5")]).is_err());
        assert!(BrokerSettings::new(vec![file("log.retention.hours", "soon")]).is_err());
        let crossed =
            vec![file("log.cleaner.min.compaction.lag.ms", "9"), file("log.cleaner.max.compaction.lag.ms", "8")];
        assert!(BrokerSettings::new(crossed).is_err());
    }
}
