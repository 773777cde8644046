//! What a slot of transactions writes to its journal: each entry is one transition of one transactional id, and a
//! checkpoint is a list of them.
//!
//! Applying the entries in their order rebuilds the slot. The live coordinator changes its state by the same
//! functions, so what is replayed cannot differ from what was decided. A transition that contract B1 does not allow is
//! a defect of this program and stops it before it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ask::{Identity, Outcome};
use super::state::{Head, Joining, Members, State};
use crate::ids::{PartitionKey, ProducerEpoch, ProducerId, TimestampMs, TopicId};
use crate::slot::Position;

/// One transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The transactional id.
    pub id: Arc<str>,
    /// What changes.
    pub change: Change,
}

/// What changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// InitProducerId: to Empty.
    Init {
        /// Who the producer is from now on.
        producer_id: ProducerId,
        /// At which epoch.
        epoch: ProducerEpoch,
        /// Which epoch a repeated request may name.
        last_epoch: ProducerEpoch,
        /// How long its transactions may stay open.
        timeout_ms: i32,
        /// When.
        at: TimestampMs,
    },
    /// To Ongoing, or more members of it.
    Add {
        /// Those that were not in it.
        members: Joining,
        /// 2 if the broker added them for the client, else 0.
        client_version: i8,
        /// When.
        at: TimestampMs,
    },
    /// The transaction is decided.
    Prepare {
        /// How.
        outcome: Outcome,
        /// Epoch of its markers.
        epoch: ProducerEpoch,
        /// Which epoch a repeated request may name.
        last_epoch: ProducerEpoch,
        /// Who the producer is once all is complete, -1 if the same.
        next_producer_id: ProducerId,
        /// 2 for path B, 0 for path A.
        client_version: i8,
        /// When.
        at: TimestampMs,
    },
    /// All markers are written.
    Complete {
        /// When.
        at: TimestampMs,
    },
    /// The id is forgotten.
    Gone,
    /// The id as it is, in a checkpoint.
    Whole {
        /// All but its members.
        head: Head,
        /// Its members.
        members: Joining,
    },
}

impl Change {
    /// The state after it.
    ///
    /// # Panics
    /// If it may not follow the state before (contract B1).
    #[must_use]
    pub(super) fn applied(&self, before: Option<&Head>) -> Option<Head> {
        assert!(self.may_follow(before.map(|head| head.state)), "{self:?} does not follow {before:?}");
        let known = || {
            let mut head = before.expect("checked").clone();
            head.prev_producer_id = head.producer_id;
            head
        };
        Some(match self {
            Self::Init { producer_id, epoch, last_epoch, timeout_ms, at } => Head {
                producer_id: *producer_id,
                prev_producer_id: before.map_or(*producer_id, |head| head.producer_id),
                next_producer_id: ProducerId::NONE,
                epoch: *epoch,
                last_epoch: *last_epoch,
                timeout_ms: *timeout_ms,
                state: State::Empty,
                start: TimestampMs(-1),
                update: *at,
                client_version: 0,
                sequence: before.map_or(0, |head| head.sequence),
            },
            Self::Add { client_version, at, .. } => {
                let head = known();
                let start = if head.state == State::Ongoing { head.start } else { *at };
                Head { state: State::Ongoing, start, update: *at, client_version: *client_version, ..head }
            }
            Self::Prepare { outcome, epoch, last_epoch, next_producer_id, client_version, at } => {
                let head = known();
                Head {
                    state: State::prepared(*outcome),
                    // An abort of nothing counts as a transaction that begins and ends now (B6).
                    start: if head.state == State::Ongoing { head.start } else { *at },
                    epoch: *epoch,
                    last_epoch: *last_epoch,
                    next_producer_id: *next_producer_id,
                    client_version: *client_version,
                    update: *at,
                    sequence: head.sequence + 1,
                    ..head
                }
            }
            Self::Complete { at } => {
                let head = known();
                let Identity { producer_id, epoch } = head.next_identity();
                let state = State::completed(head.state.completing().expect("checked"));
                let next_producer_id = ProducerId::NONE;
                Head { state, producer_id, epoch, next_producer_id, update: *at, ..head }
            }
            Self::Whole { head, .. } => head.clone(),
            Self::Gone => return None,
        })
    }

    fn may_follow(&self, before: Option<State>) -> bool {
        match self {
            Self::Init { .. } => before.is_none_or(State::is_idle),
            Self::Add { .. } => before.is_some_and(|state| state.is_idle() || state == State::Ongoing),
            Self::Prepare { outcome, .. } => {
                before.is_some_and(|state| state == State::Ongoing || (*outcome == Outcome::Abort && state.is_idle()))
            }
            Self::Complete { .. } => before.is_some_and(|state| state.completing().is_some()),
            Self::Gone => before.is_some_and(State::is_idle),
            Self::Whole { .. } => true,
        }
    }

    /// Changes the members as the transition does; new ones are durable from `position` on.
    pub(super) fn apply_members(&self, members: &mut Members, position: Position) {
        let joining = match self {
            Self::Prepare { .. } => return,
            Self::Init { .. } | Self::Complete { .. } | Self::Gone => return members.clear(),
            Self::Add { members: joining, .. } => joining,
            Self::Whole { members: joining, .. } => {
                members.clear();
                joining
            }
        };
        members.partitions.extend(joining.partitions.iter().map(|key| (*key, position)));
        members.groups.extend(joining.groups.iter().map(|group| (group.clone(), position)));
    }
}

/// Members as written: partitions by topic, because most transactions touch many of few topics.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    topics: Vec<(String, Vec<i32>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Arc<str>>,
}

impl Serialize for Joining {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
        for key in &self.partitions {
            topics.entry(key.topic).or_default().push(key.index);
        }
        let topics = topics.into_iter().map(|(topic, indexes)| (topic.to_base64(), indexes)).collect();
        Stored { topics, groups: self.groups.clone() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Joining {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        let mut partitions = Vec::new();
        for (name, indexes) in stored.topics {
            let topic = TopicId::from_base64(&name).ok_or_else(|| D::Error::custom("a topic id is not one"))?;
            partitions.extend(indexes.into_iter().map(|index| PartitionKey { topic, index }));
        }
        Ok(Self { partitions, groups: stored.groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(entry: &Entry) -> Entry {
        let mut json = serde_json::to_vec(entry).unwrap();
        simd_json::serde::from_slice(&mut json).unwrap()
    }

    fn add(partitions: Vec<PartitionKey>, groups: Vec<Arc<str>>) -> Change {
        Change::Add { members: Joining { partitions, groups }, client_version: 2, at: TimestampMs(5) }
    }

    #[test]
    fn any_id_and_any_member_reads_back_as_it_was_written() {
        let key = |topic, index| PartitionKey { topic: TopicId(topic), index };
        let partitions = vec![key(1, 0), key(1, 7), key(u128::MAX, i32::MAX)];
        for id in ["t", "", "\0/\"\\\n", "\u{1F980}", &"x".repeat(30_000)] {
            let entry = Entry { id: id.into(), change: add(partitions.clone(), vec![id.into(), "g".into()]) };
            assert_eq!(round_trip(&entry), entry);
        }
        let gone = Entry { id: "t".into(), change: Change::Gone };
        assert_eq!(round_trip(&gone), gone);
    }

    #[test]
    fn the_written_form_stays_as_it_is() {
        let partitions =
            vec![PartitionKey { topic: TopicId(1), index: 0 }, PartitionKey { topic: TopicId(1), index: 2 }];
        let written = |change| serde_json::to_string(&Entry { id: "t".into(), change }).unwrap();
        let members = r#"{"topics":[["AAAAAAAAAAAAAAAAAAAAAQ",[0,2]]],"groups":["g"]}"#;
        let expected = format!(r#"{{"id":"t","change":{{"add":{{"members":{members},"client_version":2,"at":5}}}}}}"#);
        assert_eq!(written(add(partitions, vec!["g".into()])), expected);
        assert_eq!(written(Change::Gone), r#"{"id":"t","change":"gone"}"#);
        assert_eq!(written(Change::Complete { at: TimestampMs(5) }), r#"{"id":"t","change":{"complete":{"at":5}}}"#);
    }

    #[test]
    fn a_topic_id_that_is_none_is_refused() {
        let mut json =
            br#"{"id":"t","change":{"add":{"members":{"topics":[["short",[0]]]},"client_version":2,"at":5}}}"#.to_vec();
        assert!(simd_json::serde::from_slice::<Entry>(&mut json).is_err());
    }

    #[test]
    #[should_panic(expected = "does not follow")]
    fn b1_a_transition_that_is_not_allowed_stops_the_program() {
        let _ = Change::Complete { at: TimestampMs(5) }.applied(None);
    }
}
