//! The durable form of the image: one JSON object that carries the CRC-32C of its content.
//!
//! `{"crc32c":"xxxxxxxx","image":{...}}`. The prefix has a fixed width, so the checksum covers exact bytes and the file
//! still reads as JSON. What does not check out is refused as a whole: half a list of topics would be a loss of data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::broker_settings::{BrokerSettings, canonical_dynamic};
use super::topic_settings::canonical_overrides;
use super::{Features, Image, Topic, TopicConfig, group_settings, names};
use crate::ids::{BrokerId, NodeId, TopicId};

/// Version of the form; another one is refused.
const FORMAT: u32 = 1;
const BEFORE_CRC: &[u8] = b"{\"crc32c\":\"";
const AFTER_CRC: &[u8] = b"\",\"image\":";
const END: &[u8] = b"}\n";
const CRC_DIGITS: usize = 8;

/// Why stored bytes are no image.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Beginning or end is not what this module writes: cut, or another file.
    #[error("the file does not have the form of topic metadata: it is cut, or not Oncilla's")]
    Form,
    /// Some bytes changed.
    #[error("the checksum of the topic metadata is wrong: {stored} is stored, {computed:08x} is computed")]
    Checksum {
        /// Digits in the file.
        stored: String,
        /// Of the bytes that are there.
        computed: u32,
    },
    /// Bytes are as written, but this version does not understand them.
    #[error("the topic metadata cannot be read: {0}")]
    Content(String),
    /// Written by another version of the form.
    #[error("the topic metadata has format {0}, this version reads format {FORMAT}")]
    Format(u32),
}

#[derive(Serialize, Deserialize)]
struct StoredImage {
    format: u32,
    version: u64,
    cluster_id: String,
    broker_id: BrokerId,
    topics: Vec<StoredTopic>,
    cluster_overrides: BTreeMap<String, String>,
    node_overrides: Vec<StoredNode>,
    #[serde(default)]
    group_overrides: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    features: StoredFeatures,
}

#[derive(Serialize, Deserialize)]
struct StoredFeatures {
    group_version: i16,
    #[serde(default = "default_transaction_version")]
    transaction_version: i16,
    changes: u64,
}

fn default_transaction_version() -> i16 {
    Features::default().transaction_version
}

impl From<Features> for StoredFeatures {
    fn from(features: Features) -> Self {
        let Features { group_version, transaction_version, changes } = features;
        Self { group_version, transaction_version, changes }
    }
}

impl Default for StoredFeatures {
    fn default() -> Self {
        Features::default().into()
    }
}

#[derive(Serialize, Deserialize)]
struct StoredTopic {
    name: String,
    id: String,
    partitions: i32,
    placement: u32,
    overrides: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct StoredNode {
    node: NodeId,
    overrides: BTreeMap<String, String>,
}

impl Image {
    /// The bytes to store: everything but what a start brings along (shards, fixed settings).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let topic = |topic: &Arc<Topic>| StoredTopic {
            name: topic.name.to_string(),
            id: topic.id.to_base64(),
            partitions: topic.partitions,
            placement: topic.placement,
            overrides: topic.overrides.clone(),
        };
        let node =
            |(node, overrides): (&NodeId, &BTreeMap<_, _>)| StoredNode { node: *node, overrides: overrides.clone() };
        let stored = StoredImage {
            format: FORMAT,
            version: self.version,
            cluster_id: self.cluster_id.to_string(),
            broker_id: self.broker_id,
            topics: self.topics().map(topic).collect(),
            cluster_overrides: self.broker.cluster.clone(),
            node_overrides: self.broker.nodes.iter().map(node).collect(),
            group_overrides: self.groups.clone(),
            features: self.features.into(),
        };
        let content = serde_json::to_vec(&stored).expect("strings and numbers always render");
        let crc = format!("{:08x}", crc32c::crc32c(&content));
        [BEFORE_CRC, crc.as_bytes(), AFTER_CRC, &content, END].concat()
    }

    /// Reads stored bytes; `broker` has the fixed settings of this start and nothing else.
    pub fn decode(bytes: &[u8], shards: u16, broker: BrokerSettings) -> Result<Self, DecodeError> {
        let mut content = checked_content(bytes)?.to_vec();
        let stored: StoredImage =
            simd_json::serde::from_slice(&mut content).map_err(|error| DecodeError::Content(error.to_string()))?;
        if stored.format != FORMAT {
            return Err(DecodeError::Format(stored.format));
        }
        if TopicId::from_base64(&stored.cluster_id).is_none() {
            return Err(DecodeError::Content(format!("cluster id {} is not one", stored.cluster_id)));
        }
        let mut broker = broker;
        broker.cluster = checked_dynamic(&stored.cluster_overrides)?;
        for StoredNode { node, overrides } in &stored.node_overrides {
            broker.nodes.insert(*node, checked_dynamic(overrides)?);
        }
        let mut seen = (BTreeSet::new(), BTreeSet::new());
        let mut topics = Vec::with_capacity(stored.topics.len());
        for topic in stored.topics {
            let topic = checked_topic(topic, &broker)?;
            if !seen.0.insert(topic.name.clone()) || !seen.1.insert(topic.id) {
                return Err(DecodeError::Content(format!("topic {} is there twice", topic.name)));
            }
            topics.push(Arc::new(topic));
        }
        let mut groups = stored.group_overrides;
        for overrides in groups.values_mut() {
            *overrides = group_settings::canonical_overrides(overrides)
                .map_err(|error| DecodeError::Content(error.to_string()))?;
        }
        let StoredFeatures { group_version, transaction_version, changes } = stored.features;
        let image = Self::of_topics(stored.version, &stored.cluster_id, stored.broker_id, shards, broker, topics);
        Ok(Self { groups, features: Features { group_version, transaction_version, changes }, ..image })
    }
}

fn checked_content(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let rest = bytes.strip_prefix(BEFORE_CRC).and_then(|rest| rest.strip_suffix(END)).ok_or(DecodeError::Form)?;
    let (digits, rest) = rest.split_at_checked(CRC_DIGITS).ok_or(DecodeError::Form)?;
    let content = rest.strip_prefix(AFTER_CRC).ok_or(DecodeError::Form)?;
    let computed = crc32c::crc32c(content);
    if digits != format!("{computed:08x}").as_bytes() {
        return Err(DecodeError::Checksum { stored: String::from_utf8_lossy(digits).into_owned(), computed });
    }
    Ok(content)
}

fn checked_topic(stored: StoredTopic, broker: &BrokerSettings) -> Result<Topic, DecodeError> {
    let refuse = |why: String| DecodeError::Content(format!("topic {}: {why}", stored.name));
    names::check(&stored.name).map_err(refuse)?;
    let id = TopicId::from_base64(&stored.id).filter(|id| *id != TopicId::ZERO);
    let id = id.ok_or_else(|| refuse(format!("{} is no topic id", stored.id)))?;
    if stored.partitions < 1 {
        return Err(refuse(format!("{} partitions", stored.partitions)));
    }
    let overrides = canonical_overrides(&stored.overrides).map_err(|error| refuse(error.to_string()))?;
    let config = TopicConfig::resolve(&overrides, broker, None);
    // Its own settings fitted when they were stored; defaults of the file that contradict them are named here.
    let config = config.map_err(|error| refuse(error.to_string()))?;
    let name = stored.name.as_str().into();
    Ok(Topic { id, name, partitions: stored.partitions, placement: stored.placement, overrides, config })
}

fn checked_dynamic(stored: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, DecodeError> {
    let check = |(name, value): (&String, &String)| match canonical_dynamic(name, value) {
        Ok(value) => Ok((name.clone(), value)),
        Err(error) => Err(DecodeError::Content(error.to_string())),
    };
    stored.iter().map(check).collect()
}
