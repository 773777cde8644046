//! IncrementalAlterConfigs and AlterConfigs (contract K44, K33).

use std::collections::{BTreeMap, BTreeSet};

use super::{Refusal, refuse};
use crate::code::ErrorCode;
use crate::ids::NodeId;
use crate::image::broker_settings::{Changeable, canonical_dynamic};
use crate::image::topic_settings::canonical_overrides;
use crate::image::value::{Kind, elements};
use crate::image::{Change, Image, TopicConfig, TopicSetting, effective, group_settings, names};

/// Types of resources on the wire.
pub mod resource {
    /// A topic.
    pub const TOPIC: i8 = 2;
    /// A node, or with an empty name all of them.
    pub const BROKER: i8 = 4;
    /// Log levels of a node.
    pub const BROKER_LOGGER: i8 = 8;
    /// Telemetry subscriptions.
    pub const CLIENT_METRICS: i8 = 16;
    /// A consumer group.
    pub const GROUP: i8 = 32;
}

/// Which of the two requests it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlterMode {
    /// IncrementalAlterConfigs: each entry changes one setting.
    Incremental,
    /// AlterConfigs: what is not named goes back to its default (contract K33.1).
    Replace,
}

/// One setting of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterEntry {
    /// Name.
    pub name: String,
    /// 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT; 0 in AlterConfigs.
    pub operation: i8,
    /// Value.
    pub value: Option<String>,
}

/// One resource of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterResource {
    /// Type, see [`resource`].
    pub kind: i8,
    /// Name.
    pub name: String,
    /// What is to change.
    pub entries: Vec<AlterEntry>,
}

/// What the decision needs beside the image and the resources.
#[derive(Clone, Copy, Debug)]
pub struct AlterRules {
    /// Which request it is.
    pub mode: AlterMode,
    /// Node that the request came to; the only one whose own settings it may change (contract K44.9).
    pub node: NodeId,
    /// Whether to check only.
    pub validate_only: bool,
}

/// The answer for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterAnswer {
    /// Type as asked.
    pub kind: i8,
    /// Name as asked.
    pub name: String,
    /// What came of it.
    pub result: Result<(), Refusal>,
}

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Decides an IncrementalAlterConfigs or AlterConfigs request.
#[must_use]
pub fn decide_alter(image: &Image, resources: &[AlterResource], rules: AlterRules) -> (Vec<Change>, Vec<AlterAnswer>) {
    let mut count: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for resource in resources {
        *count.entry((resource.kind, &resource.name)).or_default() += 1;
    }
    let mut changes = Vec::new();
    let mut answers = Vec::with_capacity(resources.len());
    for resource in resources {
        let result = if count[&(resource.kind, resource.name.as_str())] > 1 {
            refuse(ErrorCode::InvalidRequest, "The resource is named twice")
        } else {
            decide_one(image, resource, rules)
        };
        let result = result.map(|change| changes.extend(change));
        answers.push(AlterAnswer { kind: resource.kind, name: resource.name.clone(), result });
    }
    if rules.validate_only {
        changes.clear();
    }
    (changes, answers)
}

fn decide_one(image: &Image, resource: &AlterResource, rules: AlterRules) -> Result<Option<Change>, Refusal> {
    let kind = resource.kind;
    let served = match kind {
        resource::TOPIC | resource::BROKER | resource::GROUP => true,
        resource::BROKER_LOGGER | resource::CLIENT_METRICS => false,
        _ => return refuse(ErrorCode::InvalidRequest, format!("Unknown resource type {kind}")),
    };
    check_entries(resource)?;
    if !served {
        return refuse(ErrorCode::InvalidRequest, format!("Resource type {kind} has no settings here"));
    }
    match kind {
        resource::TOPIC => topic(image, resource, rules),
        resource::GROUP => group(image, resource, rules),
        _ => broker(image, resource, rules),
    }
}

/// G20.4.
fn group(image: &Image, resource: &AlterResource, rules: AlterRules) -> Result<Option<Change>, Refusal> {
    let empty = BTreeMap::new();
    let before = image.groups.get(&resource.name).unwrap_or(&empty);
    let after = outcome(before, resource, rules.mode, |_| None)?;
    if resource.name.is_empty() {
        return refuse(ErrorCode::InvalidRequest, "The group has no name");
    }
    let checked =
        group_settings::check(&after, &image.broker).or_else(|error| refuse(ErrorCode::InvalidConfig, error.0))?;
    let changed = checked != *before;
    Ok(changed.then(|| Change::SetGroupOverrides { group: resource.name.clone(), overrides: checked }))
}

/// K44.3-4: what is wrong with the entries alone.
fn check_entries(resource: &AlterResource) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for entry in &resource.entries {
        if !seen.insert(&entry.name) {
            return refuse(ErrorCode::InvalidRequest, format!("{} is named twice", entry.name));
        }
        if matches!(entry.operation, SET | APPEND | SUBTRACT) && entry.value.is_none() {
            return refuse(ErrorCode::InvalidRequest, format!("Null value not supported for {}", entry.name));
        }
    }
    match resource.entries.iter().find(|entry| !matches!(entry.operation, SET | DELETE | APPEND | SUBTRACT)) {
        Some(entry) => refuse(ErrorCode::InvalidRequest, format!("Unknown operation {}", entry.operation)),
        None => Ok(()),
    }
}

fn topic(image: &Image, resource: &AlterResource, rules: AlterRules) -> Result<Option<Change>, Refusal> {
    let topic = image.topic(&resource.name);
    let empty = BTreeMap::new();
    let before = topic.map_or(&empty, |topic| &topic.overrides);
    let list = |name: &str| {
        let setting = TopicSetting::by_name(name).filter(|setting| setting.kind == Kind::List)?;
        Some(effective(setting, before, &image.broker, None).0)
    };
    let after = outcome(before, resource, rules.mode, list)?;
    if resource.name.is_empty() {
        return refuse(ErrorCode::InvalidRequest, "The topic has no name");
    }
    if let Err(why) = names::check(&resource.name) {
        return refuse(ErrorCode::InvalidTopicException, why);
    }
    let checked = canonical_overrides(&after)
        .and_then(|after| TopicConfig::resolve(&after, &image.broker, None).map(|_| after))
        .or_else(|error| refuse(ErrorCode::InvalidConfig, error.0))?;
    let Some(topic) = topic else {
        return refuse(ErrorCode::UnknownTopicOrPartition, format!("There is no topic {}", resource.name));
    };
    let changed = checked != topic.overrides;
    Ok(changed.then(|| Change::SetTopicOverrides { id: topic.id, overrides: checked }))
}

fn broker(image: &Image, resource: &AlterResource, rules: AlterRules) -> Result<Option<Change>, Refusal> {
    let node = broker_name(&resource.name, rules.node);
    let empty = BTreeMap::new();
    let before = match node {
        Ok(Some(node)) => image.broker.nodes.get(&node).unwrap_or(&empty),
        Ok(None) => &image.broker.cluster,
        Err(_) => &empty,
    };
    let scope = node.as_ref().ok().copied().flatten();
    let list = |name: &str| {
        let setting = TopicSetting::by_broker_name(name).filter(|setting| setting.kind == Kind::List)?;
        Some(image.broker.value(name, scope).unwrap_or_else(|| setting.default.to_owned()))
    };
    let after = outcome(before, resource, rules.mode, list)?;
    let node = node?;
    let mut checked = BTreeMap::new();
    for (name, value) in after {
        let fixed = |why: String| {
            refuse(ErrorCode::InvalidRequest, format!("Cannot update these configs dynamically: [{name}]{why}"))
        };
        let value = match image.broker.changeable(&name) {
            Changeable::Unknown => {
                return refuse(ErrorCode::InvalidConfig, format!("Unknown broker config name: {name}"));
            }
            Changeable::No => fixed(String::new()),
            Changeable::Yes => canonical_dynamic(&name, &value)
                .and_then(|value| {
                    let of_groups = name.strip_prefix("group.");
                    of_groups.map_or(Ok(()), |own| group_settings::within_bounds(own, &value, &image.broker))?;
                    Ok(value)
                })
                .or_else(|error| fixed(format!(": {error}"))),
        }?;
        checked.insert(name, value);
    }
    if checked == *before {
        return Ok(None);
    }
    let change = match node {
        Some(node) => Change::SetNodeOverrides { node, overrides: checked },
        None => Change::SetClusterOverrides { overrides: checked },
    };
    defaults_fit(image, &change, node)?;
    Ok(Some(change))
}

/// Broker settings that the cross check of topic settings compares.
const CROSS_CHECKED: [&str; 2] = ["log.cleaner.max.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"];

/// The cross check of topics holds for the defaults too: at the node, or at the cluster and every node.
fn defaults_fit(image: &Image, change: &Change, node: Option<NodeId>) -> Result<(), Refusal> {
    let mut broker = image.broker.clone();
    match change {
        Change::SetNodeOverrides { node, overrides } => drop(broker.nodes.insert(*node, overrides.clone())),
        Change::SetClusterOverrides { overrides } => broker.cluster.clone_from(overrides),
        _ => unreachable!("a broker's settings change"),
    }
    let same = |name: &&str| {
        broker.cluster.get(*name) == image.broker.cluster.get(*name)
            && node.is_none_or(|node| broker.value(name, Some(node)) == image.broker.value(name, Some(node)))
    };
    if CROSS_CHECKED.iter().all(same) {
        return Ok(());
    }
    let nodes: Vec<Option<NodeId>> = match node {
        Some(node) => vec![Some(node)],
        None => std::iter::once(None).chain(broker.nodes.keys().copied().map(Some)).collect(),
    };
    for node in nodes {
        for overrides in std::iter::once(&BTreeMap::new()).chain(image.topics().map(|topic| &topic.overrides)) {
            if let Err(error) = TopicConfig::resolve(overrides, &broker, node) {
                return refuse(ErrorCode::InvalidRequest, error.0);
            }
        }
    }
    Ok(())
}

/// The node that a name means; `None` for all of them (contract K44.9).
fn broker_name(name: &str, own: NodeId) -> Result<Option<NodeId>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    match name.parse::<i32>() {
        Ok(id) if NodeId(id) == own => Ok(Some(own)),
        Ok(id) => refuse(ErrorCode::InvalidRequest, format!("Unexpected broker id, expected {own}, but received {id}")),
        Err(_) => refuse(ErrorCode::InvalidRequest, format!("{name} is not a broker id")),
    }
}

/// What a resource's own settings are after the entries; `list` gives the value in force of a list setting, and `None`
/// for a name that is none (contract K44.5, K44.15).
fn outcome(
    before: &BTreeMap<String, String>,
    resource: &AlterResource,
    mode: AlterMode,
    list: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, Refusal> {
    let mut after = if mode == AlterMode::Replace { BTreeMap::new() } else { before.clone() };
    for entry in &resource.entries {
        let value = entry.value.as_deref().unwrap_or_default();
        match entry.operation {
            DELETE => {
                after.remove(&entry.name);
            }
            SET => {
                after.insert(entry.name.clone(), value.to_owned());
            }
            operation => {
                let Some(now) = list(&entry.name) else {
                    let message = format!("Can't append to or subtract from {}: it is no list", entry.name);
                    return refuse(ErrorCode::InvalidConfig, message);
                };
                // K44.15: set even if it is the value in force already, which is the resource's own from then on.
                after.insert(entry.name.clone(), changed_list(&now, value, operation == APPEND));
            }
        }
    }
    Ok(after)
}

/// The list with elements added or taken away.
fn changed_list(now: &str, value: &str, append: bool) -> String {
    let (mut list, given) = (elements(now), elements(value));
    if append {
        for element in given {
            if !list.contains(&element) {
                list.push(element);
            }
        }
    } else {
        list.retain(|element| !given.contains(element));
    }
    list.join(",")
}
