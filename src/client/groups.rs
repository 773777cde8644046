//! Consumer groups: list, describe, delete, and their offsets.
//!
//! Every call asks for the coordinator first, and once more when it has moved.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerProtocolAssignment, DeleteGroupsRequest, DescribeGroupsRequest,
    FindCoordinatorRequest, GroupId, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    consumer_group_describe_response, describe_groups_response,
};
use kafka_protocol::protocol::{Decodable, Request, StrBytes};
use oncilla_shards::code::ErrorCode;

use super::{Client, ClientError, accepted, text, topic_name};

/// Last version of FindCoordinator with one key.
const FIND_ONE: i16 = 3;
/// Last version of OffsetFetch with one group.
const FETCH_ONE: i16 = 7;
/// Last version of OffsetCommit with topic names.
const COMMIT_BY_NAME: i16 = 9;
/// Times that a coordinator that has moved is looked for.
const ATTEMPTS: usize = 3;

/// A group as ListGroups tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupSummary {
    /// Its id.
    pub name: String,
    /// `classic` or `consumer`.
    pub kind: String,
    /// Its protocol type.
    pub protocol: String,
    /// Its state.
    pub state: String,
}

/// Partitions by topic.
pub type Assigned = BTreeMap<String, Vec<i32>>;

/// Topic ids and partitions.
pub type Share = BTreeSet<(u128, i32)>;

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its id.
    pub id: String,
    /// Of a static member.
    pub instance: Option<String>,
    /// The client's name of itself.
    pub client: String,
    /// Where it is.
    pub host: String,
    /// Generation or member epoch.
    pub epoch: Option<i32>,
    /// What it has; `None` where that is no assignment of consumers.
    pub assigned: Option<Assigned>,
}

/// A group with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// `classic` or `consumer`.
    pub kind: &'static str,
    /// Its state.
    pub state: String,
    /// Protocol or assignor.
    pub assignor: String,
    /// Its members.
    pub members: Vec<MemberView>,
}

/// What is committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommittedOffset {
    /// Topic.
    pub topic: String,
    /// Index.
    pub partition: i32,
    /// Next offset to read.
    pub offset: i64,
    /// The client's own.
    pub metadata: String,
}

/// Who commits.
#[derive(Clone, Copy, Debug)]
pub struct Committer<'a> {
    /// Member, "" without a membership.
    pub member: &'a str,
    /// Its epoch, -1 without a membership.
    pub epoch: i32,
}

impl Committer<'static> {
    /// Nobody of the group.
    pub const OUTSIDE: Self = Self { member: "", epoch: -1 };
}

pub(super) fn group_id(group: &str) -> GroupId {
    GroupId(text(group))
}

fn by_topic<T>(rows: impl IntoIterator<Item = (String, T)>) -> BTreeMap<String, Vec<T>> {
    let mut topics: BTreeMap<String, Vec<T>> = BTreeMap::new();
    rows.into_iter().for_each(|(topic, row)| topics.entry(topic).or_default().push(row));
    topics
}

impl Client {
    /// Node that answers for a group.
    pub(super) fn coordinator(&mut self, group: &str) -> Result<i32, ClientError> {
        let request = FindCoordinatorRequest::default().with_key(text(group)).with_key_type(0);
        let first = self.cluster().nodes.keys().next().copied().unwrap_or(-1);
        let answer = self.call(first, &request, FIND_ONE)?;
        accepted(answer.error_code, answer.error_message.as_ref(), || format!("coordinator of group {group}"))?;
        Ok(answer.node_id.0)
    }

    /// Sends a request to the group's coordinator; `check` looks into the answer for its code.
    pub(super) fn ask_group<R: Request, T>(
        &mut self,
        group: &str,
        request: &R,
        version_max: i16,
        check: impl Fn(R::Response) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let node = self.coordinator(group)?;
            match self.call(node, request, version_max).and_then(&check) {
                Err(error) if attempt < ATTEMPTS && error.is_moved() => self.refresh(Some(&[]), false).map(drop)?,
                other => return other,
            }
        }
    }

    /// All groups of the cluster, by name.
    pub fn groups(&mut self) -> Result<Vec<GroupSummary>, ClientError> {
        let nodes: Vec<i32> = self.cluster().nodes.keys().copied().collect();
        let mut all = Vec::new();
        for node in nodes {
            let answer = self.call(node, &ListGroupsRequest::default(), i16::MAX)?;
            accepted(answer.error_code, None, || format!("groups of node {node}"))?;
            all.extend(answer.groups.into_iter().map(|group| GroupSummary {
                name: group.group_id.to_string(),
                kind: group.group_type.to_string(),
                protocol: group.protocol_type.to_string(),
                state: group.group_state.to_string(),
            }));
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// A group of either protocol with its members.
    pub fn group(&mut self, group: &str) -> Result<GroupView, ClientError> {
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        let found = self.ask_group(group, &request, i16::MAX, |answer| {
            let one = answer.groups.into_iter().next().ok_or_else(|| left_out(group))?;
            accepted(one.error_code, one.error_message.as_ref(), || format!("group {group}"))?;
            Ok(consumer_view(one))
        });
        match found {
            Err(error) if error.is_no_consumer_group() => self.classic_group(group),
            other => other,
        }
    }

    fn classic_group(&mut self, group: &str) -> Result<GroupView, ClientError> {
        let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
        self.ask_group(group, &request, i16::MAX, |answer| {
            let one = answer.groups.into_iter().next().ok_or_else(|| left_out(group))?;
            accepted(one.error_code, one.error_message.as_ref(), || format!("group {group}"))?;
            Ok(classic_view(one))
        })
    }

    /// Deletes a group with its offsets.
    pub fn delete_group(&mut self, group: &str) -> Result<(), ClientError> {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(group)]);
        self.ask_group(group, &request, i16::MAX, |answer| {
            let code = answer.results.first().map_or(0, |result| result.error_code);
            accepted(code, None, || format!("delete group {group}"))
        })
    }

    /// All that a group has committed, by topic and partition.
    pub fn committed(&mut self, group: &str) -> Result<Vec<CommittedOffset>, ClientError> {
        let request = OffsetFetchRequest::default().with_group_id(group_id(group)).with_topics(None);
        let mut all = self.ask_group(group, &request, FETCH_ONE, |answer| {
            accepted(answer.error_code, None, || format!("offsets of group {group}"))?;
            let mut all = Vec::new();
            for topic in answer.topics {
                for one in topic.partitions {
                    let what = || format!("offset of group {group} in {}-{}", &*topic.name, one.partition_index);
                    accepted(one.error_code, None, what)?;
                    all.push(CommittedOffset {
                        topic: topic.name.to_string(),
                        partition: one.partition_index,
                        offset: one.committed_offset,
                        metadata: one.metadata.map(|text| text.to_string()).unwrap_or_default(),
                    });
                }
            }
            Ok(all)
        })?;
        all.sort_unstable();
        Ok(all)
    }

    /// What a group has committed for some partitions of a topic; a transaction that is about to commit an offset for
    /// one of them is an error that goes away (UNSTABLE_OFFSET_COMMIT).
    pub fn committed_for(
        &mut self,
        group: &str,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, i64>, ClientError> {
        let asked =
            OffsetFetchRequestTopic::default().with_name(topic_name(topic)).with_partition_indexes(partitions.to_vec());
        let request = OffsetFetchRequest::default()
            .with_group_id(group_id(group))
            .with_topics(Some(vec![asked]))
            .with_require_stable(true);
        self.ask_group(group, &request, FETCH_ONE, |answer| {
            accepted(answer.error_code, None, || format!("offsets of group {group}"))?;
            let mut found = BTreeMap::new();
            for one in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                let what = || format!("offset of group {group} in {topic}-{}", one.partition_index);
                accepted(one.error_code, None, what)?;
                if one.committed_offset >= 0 {
                    found.insert(one.partition_index, one.committed_offset);
                }
            }
            Ok(found)
        })
    }

    /// What a member has, if it is all that its group means it to have (KIP-848): topic ids and partitions.
    pub fn settled_share(&mut self, group: &str, member: &str) -> Result<Option<Share>, ClientError> {
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        self.ask_group(group, &request, i16::MAX, |answer| {
            let one = answer.groups.into_iter().next().ok_or_else(|| left_out(group))?;
            accepted(one.error_code, one.error_message.as_ref(), || format!("group {group}"))?;
            let Some(found) = one.members.iter().find(|known| &*known.member_id == member) else { return Ok(None) };
            let (has, is_to_have) = (share(&found.assignment), share(&found.target_assignment));
            let is_new = one.group_epoch == one.assignment_epoch && found.member_epoch == one.assignment_epoch;
            Ok((is_new && has == is_to_have).then_some(has))
        })
    }

    /// Commits offsets of (topic, partition), all or with the first refusal as the error.
    pub fn commit(
        &mut self,
        group: &str,
        by: Committer<'_>,
        offsets: &BTreeMap<(String, i32), i64>,
    ) -> Result<(), ClientError> {
        let rows = offsets.iter().map(|((topic, partition), offset)| {
            let row = OffsetCommitRequestPartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(*offset)
                .with_committed_leader_epoch(-1);
            (topic.clone(), row)
        });
        let topics = by_topic(rows).into_iter().map(|(topic, partitions)| {
            OffsetCommitRequestTopic::default().with_name(topic_name(&topic)).with_partitions(partitions)
        });
        let request = OffsetCommitRequest::default()
            .with_group_id(group_id(group))
            .with_member_id(text(by.member))
            .with_generation_id_or_member_epoch(by.epoch)
            .with_topics(topics.collect());
        self.ask_group(group, &request, COMMIT_BY_NAME, |answer| {
            for topic in &answer.topics {
                for one in &topic.partitions {
                    let what = || format!("commit {}-{} for group {group}", &*topic.name, one.partition_index);
                    accepted(one.error_code, hint(one.error_code).as_ref(), what)?;
                }
            }
            Ok(())
        })
    }

    /// Forgets offsets of (topic, partition).
    pub fn delete_offsets(&mut self, group: &str, partitions: &[(String, i32)]) -> Result<(), ClientError> {
        let row = |index| OffsetDeleteRequestPartition::default().with_partition_index(index);
        let rows = partitions.iter().map(|(topic, index)| (topic.clone(), row(*index)));
        let topics = by_topic(rows).into_iter().map(|(topic, partitions)| {
            OffsetDeleteRequestTopic::default().with_name(topic_name(&topic)).with_partitions(partitions)
        });
        let request = OffsetDeleteRequest::default().with_group_id(group_id(group)).with_topics(topics.collect());
        self.ask_group(group, &request, i16::MAX, |answer| {
            accepted(answer.error_code, None, || format!("delete offsets of group {group}"))?;
            for topic in &answer.topics {
                for one in &topic.partitions {
                    let what =
                        || format!("delete the offset of group {group} in {}-{}", &*topic.name, one.partition_index);
                    accepted(one.error_code, None, what)?;
                }
            }
            Ok(())
        })
    }
}

impl ClientError {
    /// Whether another node answers for the group now.
    fn is_moved(&self) -> bool {
        let moved = [ErrorCode::NotCoordinator, ErrorCode::CoordinatorNotAvailable].map(ErrorCode::wire);
        matches!(self, Self::Refused { code, .. } if moved.contains(code))
    }

    /// Whether the group is not one of KIP-848, or the broker does not know of such.
    fn is_no_consumer_group(&self) -> bool {
        let codes = [ErrorCode::GroupIdNotFound, ErrorCode::UnsupportedVersion].map(ErrorCode::wire);
        match self {
            Self::Refused { code, .. } => codes.contains(code),
            Self::Protocol(_) => true,
            Self::Io { .. } => false,
        }
    }
}

fn left_out(group: &str) -> ClientError {
    ClientError::Protocol(format!("the broker's answer leaves out the group {group}"))
}

/// Kafka's code for a commit from outside says nothing about the reason.
fn hint(code: i16) -> Option<StrBytes> {
    let unknown = code == ErrorCode::UnknownMemberId.wire();
    unknown.then(|| StrBytes::from_static_str("only members may commit while a group has some; stop them first"))
}

fn some(text: &StrBytes) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

fn consumer_view(group: consumer_group_describe_response::DescribedGroup) -> GroupView {
    let member = |member: consumer_group_describe_response::Member| {
        let topics = member.assignment.topic_partitions.into_iter();
        let assigned = topics.map(|topic| (topic.topic_name.to_string(), topic.partitions)).collect();
        MemberView {
            id: member.member_id.to_string(),
            instance: member.instance_id.as_ref().and_then(some),
            client: member.client_id.to_string(),
            host: member.client_host.to_string(),
            epoch: Some(member.member_epoch),
            assigned: Some(assigned),
        }
    };
    GroupView {
        kind: "consumer",
        state: group.group_state.to_string(),
        assignor: group.assignor_name.to_string(),
        members: group.members.into_iter().map(member).collect(),
    }
}

fn classic_view(group: describe_groups_response::DescribedGroup) -> GroupView {
    let member = |member: describe_groups_response::DescribedGroupMember| MemberView {
        id: member.member_id.to_string(),
        instance: member.group_instance_id.as_ref().and_then(some),
        client: member.client_id.to_string(),
        host: member.client_host.to_string(),
        epoch: None,
        assigned: assignment(member.member_assignment),
    };
    GroupView {
        kind: "classic",
        state: group.group_state.to_string(),
        assignor: group.protocol_data.to_string(),
        members: group.members.into_iter().map(member).collect(),
    }
}

fn share(assignment: &consumer_group_describe_response::Assignment) -> Share {
    let of_topic = |topic: &consumer_group_describe_response::TopicPartitions| {
        let id = topic.topic_id.as_u128();
        topic.partitions.iter().map(|index| (id, *index)).collect::<Vec<_>>()
    };
    assignment.topic_partitions.iter().flat_map(of_topic).collect()
}

/// What the leader of a classic group of consumers gave a member.
fn assignment(mut bytes: Bytes) -> Option<Assigned> {
    if bytes.is_empty() {
        return Some(Assigned::new());
    }
    let version = bytes.try_get_i16().ok()?.clamp(0, 3);
    let assignment = ConsumerProtocolAssignment::decode(&mut bytes, version).ok()?;
    Some(assignment.assigned_partitions.into_iter().map(|one| (one.topic.to_string(), one.partitions)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_of_consumers_is_read_and_another_one_is_not() {
        let bytes = b"\0\x01\0\0\0\x01\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x03\xff\xff\xff\xff";
        assert_eq!(assignment(Bytes::from_static(bytes)), Some(Assigned::from([("t".to_owned(), vec![0, 3])])));
        assert_eq!(assignment(Bytes::new()), Some(Assigned::new()));
        assert_eq!(assignment(Bytes::from_static(b"x")), None);
    }
}
