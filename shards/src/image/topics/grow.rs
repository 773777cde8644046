//! CreatePartitions (contract K37).

use std::collections::{BTreeMap, BTreeSet};

use super::create::check_nodes;
use super::{Refusal, refuse, timed_out};
use crate::code::ErrorCode;
use crate::ids::NodeId;
use crate::image::{Change, Image, Topic};
use crate::limits::TOPIC_PARTITIONS_MAX;

/// A topic that is to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowRequest {
    /// Its name.
    pub name: String,
    /// Partitions from now on.
    pub count: i32,
    /// Replicas of each new partition; `None` if the broker is to choose.
    pub assignments: Option<Vec<Vec<NodeId>>>,
}

/// What the decision needs beside the image and the topics.
#[derive(Clone, Debug)]
pub struct GrowRules {
    /// Nodes of the cluster: of each shard in order, or one for all of them.
    pub nodes: Vec<NodeId>,
    /// `replication.factor.accept.max`
    pub replication_factor_max: i16,
    /// Timeout of the request.
    pub timeout_ms: i32,
    /// Whether to check only.
    pub validate_only: bool,
}

/// The answer for one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowAnswer {
    /// Its name.
    pub name: String,
    /// What came of it.
    pub result: Result<(), Refusal>,
}

/// Decides a CreatePartitions request.
#[must_use]
pub fn decide_create_partitions(
    image: &Image,
    requests: &[GrowRequest],
    rules: &GrowRules,
) -> (Vec<Change>, Vec<GrowAnswer>) {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for request in requests {
        *count.entry(&request.name).or_default() += 1;
    }
    let mut changes = Vec::new();
    let mut answers = Vec::with_capacity(count.len());
    let mut told = BTreeSet::new();
    for request in requests {
        if !told.insert(request.name.as_str()) {
            continue;
        }
        let result = if count[request.name.as_str()] > 1 {
            refuse(ErrorCode::InvalidRequest, "Duplicate topic name.")
        } else if rules.timeout_ms <= 0 {
            timed_out()
        } else {
            check(image, request, rules)
        };
        if let Ok(topic) = &result {
            changes.push(Change::GrowTopic { id: topic.id, partitions: request.count });
        }
        answers.push(GrowAnswer { name: request.name.clone(), result: result.map(|_| ()) });
    }
    if rules.validate_only {
        changes.clear();
    }
    (changes, answers)
}

fn check<'a>(image: &'a Image, request: &GrowRequest, rules: &GrowRules) -> Result<&'a Topic, Refusal> {
    let Some(topic) = image.topic(&request.name) else {
        return refuse(ErrorCode::UnknownTopicOrPartition, "");
    };
    let (now, then) = (topic.partitions, request.count);
    if then == now {
        return refuse(ErrorCode::InvalidPartitions, format!("Topic already has {now} partitions."));
    }
    if then < now {
        let message = format!("Topic has {now} partitions, it cannot shrink to {then}");
        return refuse(ErrorCode::InvalidPartitions, message);
    }
    if then > TOPIC_PARTITIONS_MAX {
        let message = format!("{then} partitions, a topic may have {TOPIC_PARTITIONS_MAX}");
        return refuse(ErrorCode::InvalidPartitions, message);
    }
    if topic.is_internal() {
        // The slot of a group or transaction depends on the number of partitions (contract K37.7).
        return refuse(ErrorCode::InvalidRequest, "The partitions of an internal topic cannot change");
    }
    if let Some(lists) = &request.assignments {
        check_lists(image, topic, then, lists, rules)?;
    }
    Ok(topic)
}

fn check_lists(
    image: &Image,
    topic: &Topic,
    then: i32,
    lists: &[Vec<NodeId>],
    rules: &GrowRules,
) -> Result<(), Refusal> {
    let bad = |message: String| refuse(ErrorCode::InvalidReplicaAssignment, message);
    let new = topic.partitions..then;
    if lists.len() != new.len() {
        return bad(format!("{} partitions are new, {} are assigned", new.len(), lists.len()));
    }
    for (index, list) in new.zip(lists) {
        check_nodes(list, &rules.nodes, rules.replication_factor_max)?;
        if list.len() != lists[0].len() {
            return bad("All partitions must have the same number of replicas".to_owned());
        }
        let owner = usize::from(image.owner(topic, index).0);
        let leader = rules.nodes.get(owner).unwrap_or(&rules.nodes[0]);
        if list[0] != *leader {
            return bad(format!("Partition {index} is led by node {leader} by its topic's placement"));
        }
    }
    Ok(())
}
