//! The topics, their settings and their placement: an immutable image that every shard holds a version of.
//!
//! One writer decides ([`topics`]), makes the next image out of the changes ([`Image::apply`]), makes it durable
//! ([`persist`]) and hands it to every shard. Readers share it as an `Arc`; nothing in it changes afterwards. Its size
//! is bounded by the number of topics. A change that contradicts the image is a fault of the writer and stops the
//! process.

pub mod broker_settings;
pub mod group_settings;
pub mod names;
pub mod persist;
mod topic_config;
pub mod topic_settings;
pub mod topics;
pub mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

pub use broker_settings::{BrokerSettings, Described, FixedSetting, Source};
pub use topic_config::{CleanupPolicy, CompressionType, Origin, TopicConfig, effective};
pub use topic_settings::{SettingError, TOPIC_SETTINGS, TopicSetting};

use crate::ids::{BrokerId, NodeId, ShardId, TopicId};

/// Same iteration order for the same content, so that a simulated run can be repeated.
const HASH_SEED: FixedState = FixedState::with_seed(0x0e1c_0111_a1ea_4000);

/// A topic.
#[derive(Clone, Debug, PartialEq)]
pub struct Topic {
    /// Identity; another one when the topic is created again.
    pub id: TopicId,
    /// Name.
    pub name: Arc<str>,
    /// Number of partitions, at least 1.
    pub partitions: i32,
    /// Shard of partition 0 before the modulo.
    pub placement: u32,
    /// Settings of its own, canonical.
    pub overrides: BTreeMap<String, String>,
    /// All settings, without what is set for single nodes; see [`Image::config_at`].
    pub config: TopicConfig,
}

impl Topic {
    /// Whether a partition of this index exists.
    #[must_use]
    pub fn has(&self, index: i32) -> bool {
        (0..self.partitions).contains(&index)
    }

    /// Whether the broker keeps the topic for itself.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        names::is_internal(&self.name)
    }
}

/// One step from an image to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A topic that was not there.
    CreateTopic {
        /// Its id, never used before.
        id: TopicId,
        /// Its name, free until now.
        name: String,
        /// Its partitions.
        partitions: i32,
        /// Shard of its partition 0.
        placement: u32,
        /// Its own settings, canonical.
        overrides: BTreeMap<String, String>,
    },
    /// A topic goes, with all its records.
    DeleteTopic {
        /// Which.
        id: TopicId,
    },
    /// A topic gets more partitions.
    GrowTopic {
        /// Which.
        id: TopicId,
        /// Partitions from now on; more than before.
        partitions: i32,
    },
    /// The own settings of a topic are replaced.
    SetTopicOverrides {
        /// Which.
        id: TopicId,
        /// All of them, canonical.
        overrides: BTreeMap<String, String>,
    },
    /// What is set for the cluster is replaced.
    SetClusterOverrides {
        /// All of it, canonical.
        overrides: BTreeMap<String, String>,
    },
    /// The own settings of a group are replaced; the group need not be there.
    SetGroupOverrides {
        /// Which group.
        group: String,
        /// All of them, canonical.
        overrides: BTreeMap<String, String>,
    },
    /// A feature gets another level.
    SetGroupVersion {
        /// Level of `group.version`.
        level: i16,
    },
    /// Runs the feature `transaction.version` at another level.
    SetTransactionVersion {
        /// The level.
        level: i16,
    },
    /// What is set for one node is replaced.
    SetNodeOverrides {
        /// Which node.
        node: NodeId,
        /// All of it, canonical.
        overrides: BTreeMap<String, String>,
    },
}

/// Levels of the features that can change while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `group.version`: 1 serves consumer groups of KIP-848, 0 does not (contract G20.2).
    pub group_version: i16,
    /// `transaction.version`: 2 has clients take a new epoch with every transaction, 1 and 0 do not (eos contract 0.5).
    pub transaction_version: i16,
    /// How often a level was changed: later levels have a higher epoch (contract D1).
    pub changes: u64,
}

impl Default for Features {
    fn default() -> Self {
        Self { group_version: 1, transaction_version: 2, changes: 0 }
    }
}

/// Everything that is known about topics at one moment.
#[derive(Clone, Debug)]
pub struct Image {
    /// Grows by one with every step.
    pub version: u64,
    /// 22 characters, made when the data directory was.
    pub cluster_id: Arc<str>,
    /// The broker that the data directory belongs to.
    pub broker_id: BrokerId,
    /// Shards of this run; may differ at the next start.
    pub shards: u16,
    /// Broker settings with what was set at run time.
    pub broker: BrokerSettings,
    /// Own settings of groups; none of them is empty.
    pub groups: BTreeMap<String, BTreeMap<String, String>>,
    /// Levels of features that can change while running.
    pub features: Features,
    sorted: Vec<Arc<Topic>>,
    by_name: HashMap<Arc<str>, Arc<Topic>, FixedState>,
    by_id: HashMap<TopicId, Arc<Topic>, FixedState>,
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
            && self.cluster_id == other.cluster_id
            && self.broker_id == other.broker_id
            && self.shards == other.shards
            && self.broker == other.broker
            && self.groups == other.groups
            && self.features == other.features
            && self.sorted == other.sorted
    }
}

impl Image {
    /// The image of a new data directory: no topics. Like a new Kafka cluster it sets min.insync.replicas for the
    /// cluster (contract K32.2), and so shows the same source.
    #[must_use]
    pub fn new(cluster_id: &str, broker_id: BrokerId, shards: u16, mut broker: BrokerSettings) -> Self {
        broker.cluster.insert("min.insync.replicas".to_owned(), "1".to_owned());
        Self::of_topics(0, cluster_id, broker_id, shards, broker, Vec::new())
    }

    fn of_topics(
        version: u64,
        cluster_id: &str,
        broker_id: BrokerId,
        shards: u16,
        broker: BrokerSettings,
        mut sorted: Vec<Arc<Topic>>,
    ) -> Self {
        assert!(shards > 0, "a broker has at least one shard");
        sorted.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut by_name = HashMap::with_capacity_and_hasher(sorted.len(), HASH_SEED);
        let mut by_id = HashMap::with_capacity_and_hasher(sorted.len(), HASH_SEED);
        for topic in &sorted {
            assert!(topic.partitions > 0, "topic {} has partitions", topic.name);
            assert!(by_name.insert(topic.name.clone(), topic.clone()).is_none(), "two topics named {}", topic.name);
            assert!(by_id.insert(topic.id, topic.clone()).is_none(), "two topics with id {}", topic.id);
        }
        let cluster_id = cluster_id.into();
        let (groups, features) = (BTreeMap::new(), Features::default());
        Self { version, cluster_id, broker_id, shards, broker, groups, features, sorted, by_name, by_id }
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<Topic>> {
        self.sorted.iter()
    }

    /// The topic of a name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic of an id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// The shard that owns a partition; its index must not be negative.
    #[must_use]
    pub fn owner(&self, topic: &Topic, index: i32) -> ShardId {
        let index = u64::try_from(index).expect("an index of an existing partition");
        let shard = (u64::from(topic.placement) + index) % u64::from(self.shards);
        ShardId(u16::try_from(shard).expect("below the number of shards"))
    }

    /// The settings of a topic at one node: [`Topic::config`], unless something is set for this very node.
    #[must_use]
    pub fn config_at(&self, topic: &Topic, node: NodeId) -> TopicConfig {
        if !self.broker.nodes.contains_key(&node) {
            return topic.config;
        }
        // A cross check that fails for one node only must not take its topics away.
        TopicConfig::resolve(&topic.overrides, &self.broker, Some(node)).unwrap_or(topic.config)
    }

    /// All settings of a topic as a node tells them, by name (contract K19.15, K32.8-9).
    #[must_use]
    pub fn describe_topic(&self, overrides: &BTreeMap<String, String>, node: NodeId) -> Vec<Described> {
        let describe = |setting: &TopicSetting| {
            let (value, source, synonyms) = effective(setting, overrides, &self.broker, Some(node));
            Described {
                name: setting.name.to_owned(),
                value: Some(value),
                read_only: false,
                source,
                synonyms,
                kind: setting.kind,
                doc: setting.doc,
            }
        };
        TOPIC_SETTINGS.iter().map(describe).collect()
    }

    /// The image after some changes; the same one if there are none.
    ///
    /// # Panics
    /// If a change contradicts the image: the decisions of [`topics`] never make such changes.
    #[must_use]
    pub fn apply(&self, changes: &[Change]) -> Self {
        if changes.is_empty() {
            return self.clone();
        }
        let (mut broker, mut groups, mut features) = (self.broker.clone(), self.groups.clone(), self.features);
        let mut topics: BTreeMap<TopicId, Arc<Topic>> =
            self.sorted.iter().map(|topic| (topic.id, topic.clone())).collect();
        for change in changes {
            match change {
                Change::SetGroupOverrides { group, overrides } if overrides.is_empty() => drop(groups.remove(group)),
                Change::SetGroupOverrides { group, overrides } => {
                    groups.insert(group.clone(), overrides.clone());
                }
                Change::SetGroupVersion { level } => {
                    features = Features { group_version: *level, changes: features.changes + 1, ..features };
                }
                Change::SetTransactionVersion { level } => {
                    features = Features { transaction_version: *level, changes: features.changes + 1, ..features };
                }
                of_topics => apply_one(of_topics, &mut topics, &mut broker),
            }
        }
        if broker != self.broker {
            topics.values_mut().for_each(|topic| resolve_anew(topic, &broker));
        }
        let topics = topics.into_values().collect();
        let next = Self::of_topics(self.version + 1, &self.cluster_id, self.broker_id, self.shards, broker, topics);
        Self { groups, features, ..next }
    }

    /// What is set for one group alone, if it is (contract G20.4).
    #[must_use]
    pub fn group_setting(&self, group: &str, name: &str) -> Option<i32> {
        self.groups.get(group)?.get(name)?.parse().ok()
    }
}

/// Works the settings of a topic out anew. A default of the broker that contradicts a topic's own settings leaves the
/// topic as it was.
fn resolve_anew(topic: &mut Arc<Topic>, broker: &BrokerSettings) {
    match TopicConfig::resolve(&topic.overrides, broker, None) {
        Ok(config) if config != topic.config => Arc::make_mut(topic).config = config,
        Ok(_) | Err(_) => {}
    }
}

fn apply_one(change: &Change, topics: &mut BTreeMap<TopicId, Arc<Topic>>, broker: &mut BrokerSettings) {
    match change {
        Change::CreateTopic { id, name, partitions, placement, overrides } => {
            let config = TopicConfig::resolve(overrides, broker, None).expect("a decided topic has settings that fit");
            let topic = Topic {
                id: *id,
                name: name.as_str().into(),
                partitions: *partitions,
                placement: *placement,
                overrides: overrides.clone(),
                config,
            };
            assert!(topics.insert(*id, Arc::new(topic)).is_none(), "topic id {id} is new");
        }
        Change::DeleteTopic { id } => {
            assert!(topics.remove(id).is_some(), "the deleted topic {id} exists");
        }
        Change::GrowTopic { id, partitions } => {
            let topic = topics.get_mut(id).expect("the grown topic exists");
            assert!(*partitions > topic.partitions, "topic {} grows", topic.name);
            Arc::make_mut(topic).partitions = *partitions;
        }
        Change::SetTopicOverrides { id, overrides } => {
            let topic = topics.get_mut(id).expect("the altered topic exists");
            Arc::make_mut(topic).overrides.clone_from(overrides);
            resolve_anew(topic, broker);
        }
        Change::SetGroupOverrides { .. } | Change::SetGroupVersion { .. } | Change::SetTransactionVersion { .. } => {
            unreachable!("no change of a topic")
        }
        Change::SetClusterOverrides { overrides } => broker.cluster.clone_from(overrides),
        Change::SetNodeOverrides { node, overrides } if overrides.is_empty() => {
            broker.nodes.remove(node);
        }
        Change::SetNodeOverrides { node, overrides } => {
            broker.nodes.insert(*node, overrides.clone());
        }
    }
}

const fn shared_between_threads<T: Send + Sync>() {}
const _: () = shared_between_threads::<Image>();

#[cfg(test)]
mod tests;
