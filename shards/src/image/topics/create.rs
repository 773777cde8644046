//! CreateTopics (contract K19).

use std::collections::{BTreeMap, BTreeSet};

use super::{Refusal, refuse, timed_out};
use crate::code::ErrorCode;
use crate::ids::{NodeId, ShardId, TopicId};
use crate::image::topic_settings::canonical_overrides;
use crate::image::{Change, Described, Image, TopicConfig, names};
use crate::limits::{CREATE_PARTITIONS_MAX, TOPIC_PARTITIONS_MAX};

/// A topic as a request describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Name.
    pub name: String,
    /// Partitions; -1 for the default.
    pub partitions: i32,
    /// Replicas; -1 for the default.
    pub replication_factor: i16,
    /// Partition index and replicas; empty if the broker is to choose.
    pub assignments: Vec<(i32, Vec<NodeId>)>,
    /// Settings in the order of the request.
    pub configs: Vec<(String, Option<String>)>,
}

/// What the decision needs beside the image and the topics.
#[derive(Clone, Debug)]
pub struct CreateRules {
    /// `num.partitions`
    pub num_partitions: i32,
    /// `default.replication.factor`
    pub default_replication_factor: i16,
    /// `replication.factor.accept.max`
    pub replication_factor_max: i16,
    /// Nodes of the cluster: of each shard in order, or one for all of them.
    pub nodes: Vec<NodeId>,
    /// Node that answers.
    pub answering: NodeId,
    /// Timeout of the request.
    pub timeout_ms: i32,
    /// Whether to check only.
    pub validate_only: bool,
}

/// A topic that was created, or would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its id.
    pub id: TopicId,
    /// Its partitions.
    pub partitions: i32,
    /// All its settings, by name.
    pub settings: Vec<Described>,
}

/// The answer for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateAnswer {
    /// The name.
    pub name: String,
    /// What came of it.
    pub result: Result<Created, Refusal>,
}

/// Decides a CreateTopics request; `ids` gives ids that were never used.
pub fn decide_create(
    image: &Image,
    topics: &[NewTopic],
    rules: &CreateRules,
    mut ids: impl FnMut() -> TopicId,
) -> (Vec<Change>, Vec<CreateAnswer>) {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in topics {
        *count.entry(&topic.name).or_default() += 1;
    }
    let first = |topic: &NewTopic| -> Result<(), Refusal> {
        if count[topic.name.as_str()] > 1 {
            return refuse(ErrorCode::InvalidRequest, "Duplicate topic name.");
        }
        if topic.name == names::CLUSTER_METADATA {
            return refuse(ErrorCode::InvalidRequest, format!("{} is reserved", topic.name));
        }
        if rules.timeout_ms <= 0 { timed_out() } else { Ok(()) }
    };
    let asked: i64 =
        topics.iter().filter(|topic| first(topic).is_ok()).map(|topic| partitions_asked(topic, rules)).sum();
    let mut room = Room::new(image);
    let mut changes = Vec::new();
    let mut answers = Vec::with_capacity(count.len());
    let mut told = BTreeSet::new();
    for topic in topics {
        if !told.insert(topic.name.as_str()) {
            continue;
        }
        let result = first(topic)
            .and_then(|()| if asked > CREATE_PARTITIONS_MAX { too_many(asked) } else { Ok(()) })
            .and_then(|()| plan(image, topic, rules, &room))
            .map(|plan| {
                let id = ids();
                let settings = image.describe_topic(&plan.overrides, rules.answering);
                let created = Created { id, partitions: plan.partitions, settings };
                room.take(&topic.name, &plan);
                changes.push(Change::CreateTopic {
                    id,
                    name: topic.name.clone(),
                    partitions: plan.partitions,
                    placement: plan.placement,
                    overrides: plan.overrides,
                });
                created
            });
        answers.push(CreateAnswer { name: topic.name.clone(), result });
    }
    if rules.validate_only {
        changes.clear();
    }
    (changes, answers)
}

fn too_many<T>(asked: i64) -> Result<T, Refusal> {
    let message = format!("The request asks for {asked} partitions, at most {CREATE_PARTITIONS_MAX} are allowed");
    refuse(ErrorCode::PolicyViolation, message)
}

fn partitions_asked(topic: &NewTopic, rules: &CreateRules) -> i64 {
    let count = match topic.partitions {
        _ if !topic.assignments.is_empty() => topic.assignments.len() as i64,
        -1 => i64::from(rules.num_partitions),
        count => i64::from(count),
    };
    count.max(0)
}

/// A topic that passed all checks.
struct Plan {
    partitions: i32,
    placement: u32,
    overrides: BTreeMap<String, String>,
}

fn plan(image: &Image, topic: &NewTopic, rules: &CreateRules, room: &Room) -> Result<Plan, Refusal> {
    if let Err(why) = names::check(&topic.name) {
        return refuse(ErrorCode::InvalidTopicException, why);
    }
    let form = names::collision_form(&topic.name);
    match room.forms.get(&form) {
        Some(taken) if *taken == topic.name => {
            return refuse(ErrorCode::TopicAlreadyExists, format!("Topic {} exists", topic.name));
        }
        Some(taken) => {
            let message = format!("Topic {} differs from {taken} by '.' and '_' only", topic.name);
            // Two names of one form may exist from a directory that another program wrote.
            let code = match image.topic(&topic.name) {
                Some(_) => ErrorCode::TopicAlreadyExists,
                None => ErrorCode::InvalidTopicException,
            };
            return refuse(code, message);
        }
        None => {}
    }
    let overrides = settings(image, topic)?;
    if topic.assignments.is_empty() {
        let partitions = chosen_partitions(topic, rules)?;
        return Ok(Plan { partitions, placement: room.emptiest(), overrides });
    }
    let (partitions, placement) = assigned(image, topic, rules)?;
    Ok(Plan { partitions, placement: placement.unwrap_or_else(|| room.emptiest()), overrides })
}

/// K19.8: the last value of a name counts, and what is told is the first problem.
fn settings(image: &Image, topic: &NewTopic) -> Result<BTreeMap<String, String>, Refusal> {
    let mut last = BTreeMap::new();
    for (name, value) in &topic.configs {
        last.insert(name.clone(), value.clone());
    }
    let mut given = BTreeMap::new();
    for (name, value) in last {
        let Some(value) = value else {
            return refuse(ErrorCode::InvalidConfig, format!("Null value not supported for topic configs: {name}"));
        };
        given.insert(name, value);
    }
    canonical_overrides(&given)
        .and_then(|overrides| TopicConfig::resolve(&overrides, &image.broker, None).map(|_| overrides))
        .or_else(|error| refuse(ErrorCode::InvalidConfig, error.0))
}

/// K19.11-14.
fn chosen_partitions(topic: &NewTopic, rules: &CreateRules) -> Result<i32, Refusal> {
    let replicas = match topic.replication_factor {
        -1 => rules.default_replication_factor,
        given if given < 1 => {
            let message = format!("Replication factor must be above 0, or -1 for the default, not {given}");
            return refuse(ErrorCode::InvalidReplicationFactor, message);
        }
        given => given,
    };
    let partitions = match topic.partitions {
        -1 => rules.num_partitions,
        given if given < 1 => {
            let message = format!("Number of partitions must be above 0, or -1 for the default, not {given}");
            return refuse(ErrorCode::InvalidPartitions, message);
        }
        given => given,
    };
    if replicas > rules.replication_factor_max {
        let most = rules.replication_factor_max;
        let message = format!("Replication factor {replicas} is above replication.factor.accept.max = {most}");
        return refuse(ErrorCode::InvalidReplicationFactor, message);
    }
    if partitions > TOPIC_PARTITIONS_MAX {
        let message = format!("{partitions} partitions, a topic may have {TOPIC_PARTITIONS_MAX}");
        return refuse(ErrorCode::InvalidPartitions, message);
    }
    Ok(partitions)
}

/// K19.9-10. The leaders must be those of some placement, because partition i + 1 lives on the shard after that of
/// partition i; with one node for all shards every placement will do, and none is given back.
fn assigned(image: &Image, topic: &NewTopic, rules: &CreateRules) -> Result<(i32, Option<u32>), Refusal> {
    if topic.replication_factor != -1 {
        return refuse(ErrorCode::InvalidRequest, "Replication factor must be -1 beside a replica assignment");
    }
    if topic.partitions != -1 {
        return refuse(ErrorCode::InvalidRequest, "Number of partitions must be -1 beside a replica assignment");
    }
    let mut by_index = BTreeMap::new();
    for (index, replicas) in &topic.assignments {
        if by_index.insert(*index, replicas.as_slice()).is_some() {
            return refuse(ErrorCode::InvalidReplicaAssignment, format!("Partition {index} is assigned twice"));
        }
        check_replicas(replicas, rules)?;
    }
    if !by_index.keys().copied().eq(0..by_index.len() as i32) {
        return refuse(ErrorCode::InvalidReplicaAssignment, "Partitions must be numbered from 0 without gaps");
    }
    let lists: Vec<&[NodeId]> = by_index.into_values().collect();
    if lists.iter().any(|list| list.len() != lists[0].len()) {
        return refuse(ErrorCode::InvalidReplicaAssignment, "All partitions must have the same number of replicas");
    }
    let placement = placement_of(image, &lists, &rules.nodes)?;
    Ok((i32::try_from(lists.len()).expect("bounded by K19.4"), placement))
}

/// Checks one list of replicas (contract K19.10, K37.5).
pub(super) fn check_replicas(replicas: &[NodeId], rules: &CreateRules) -> Result<(), Refusal> {
    check_nodes(replicas, &rules.nodes, rules.replication_factor_max)
}

/// The same, for callers without [`CreateRules`].
pub(super) fn check_nodes(replicas: &[NodeId], nodes: &[NodeId], most: i16) -> Result<(), Refusal> {
    let bad = |message: String| refuse(ErrorCode::InvalidReplicaAssignment, message);
    if replicas.is_empty() {
        return bad("A partition is assigned to no node".to_owned());
    }
    if let Some(unknown) = replicas.iter().find(|node| !nodes.contains(node)) {
        return bad(format!("Node {unknown} does not exist"));
    }
    if replicas.iter().collect::<BTreeSet<_>>().len() != replicas.len() {
        return bad("A partition is assigned to one node twice".to_owned());
    }
    if replicas.len() > usize::try_from(most).unwrap_or(0) {
        return bad(format!("{} replicas are above replication.factor.accept.max = {most}", replicas.len()));
    }
    Ok(())
}

fn placement_of(image: &Image, lists: &[&[NodeId]], nodes: &[NodeId]) -> Result<Option<u32>, Refusal> {
    if nodes.len() == 1 {
        return Ok(None);
    }
    assert_eq!(nodes.len(), usize::from(image.shards), "a node for each shard, or one for all");
    let shard = |node: &NodeId| nodes.iter().position(|other| other == node).expect("the nodes were checked");
    let first = shard(&lists[0][0]);
    let fits = lists.iter().enumerate().all(|(i, list)| shard(&list[0]) == (first + i) % nodes.len());
    if !fits {
        let message = "Leaders must follow each other in node order: partition i + 1 is led by the node after \
                       that of partition i";
        return refuse(ErrorCode::InvalidReplicaAssignment, message);
    }
    Ok(Some(u32::try_from(first).expect("a shard number")))
}

/// Names that are taken and partitions of each shard, with what this request added.
struct Room {
    forms: BTreeMap<String, String>,
    load: Vec<u64>,
}

impl Room {
    fn new(image: &Image) -> Self {
        let mut load = vec![0; usize::from(image.shards)];
        let mut forms = BTreeMap::new();
        for topic in image.topics() {
            forms.insert(names::collision_form(&topic.name), topic.name.to_string());
            spread(&mut load, image.owner(topic, 0), topic.partitions);
        }
        Self { forms, load }
    }

    fn emptiest(&self) -> u32 {
        let (shard, _) = self.load.iter().enumerate().min_by_key(|(_, load)| **load).expect("at least one shard");
        u32::try_from(shard).expect("a shard number")
    }

    fn take(&mut self, name: &str, plan: &Plan) {
        self.forms.insert(names::collision_form(name), name.to_owned());
        let shards = u32::try_from(self.load.len()).expect("shards are counted in 16 bits");
        let first = u16::try_from(plan.placement % shards).expect("below the number of shards");
        spread(&mut self.load, ShardId(first), plan.partitions);
    }
}

fn spread(load: &mut [u64], first: ShardId, partitions: i32) {
    let shards = load.len();
    let partitions = usize::try_from(partitions).expect("a topic has partitions");
    for i in 0..shards {
        let extra = usize::from(i < partitions % shards);
        load[(usize::from(first.0) + i) % shards] += (partitions / shards + extra) as u64;
    }
}
