//! Consumer groups as members see them, rule by rule, on the whole of the core; and the model that tries everything.

mod checks;
mod classic;
mod commits;
mod epochs;
mod model;
mod regex;
mod statics;

use crate::code::ErrorCode;
use crate::groups::testing::Harness;
use crate::groups::*;
use crate::ids::TopicId;

/// Name of the group in all tests.
pub const GROUP: &str = "g";

/// A harness without an assignment interval, and a way to speak in short.
pub struct Lab {
    pub harness: Harness,
    pub topic: TopicId,
}

impl Lab {
    /// Topic `t` with so many partitions.
    pub fn new(partitions: i32) -> Self {
        let mut harness = Harness::new();
        harness.set(|settings| settings.consumer_assignment_interval_ms = 0);
        let topic = harness.topic("t", partitions);
        Self { harness, topic }
    }

    pub fn send(&mut self, beat: ConsumerHeartbeat) -> ConsumerHeartbeatReply {
        match self.harness.answer(GROUP, Ask::ConsumerHeartbeat(beat)) {
            Reply::ConsumerHeartbeat(reply) => {
                assert_eq!(self.harness.recovered(GROUP), self.harness.snapshot(GROUP), "a crash changes nothing");
                reply
            }
            other => panic!("{other:?}"),
        }
    }

    /// Joins with topic `t`: the epoch and the partitions of `t`.
    pub fn join(&mut self, id: &str) -> Heard {
        let beat = join(id, &["t"]);
        self.heard(beat)
    }

    pub fn beat(&mut self, id: &str, epoch: i32) -> Heard {
        self.heard(beat(id, epoch))
    }

    /// A heartbeat that says what the member has of `t`.
    pub fn owning(&mut self, id: &str, epoch: i32, owned: &[i32]) -> Heard {
        let owned = if owned.is_empty() { vec![] } else { vec![(self.topic, owned.to_vec())] };
        self.heard(ConsumerHeartbeat { owned: Some(owned), ..beat(id, epoch) })
    }

    pub fn heard(&mut self, beat: ConsumerHeartbeat) -> Heard {
        let reply = self.send(beat);
        if reply.code != ErrorCode::None {
            assert_eq!(
                (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms),
                (None, 0, 0),
                "contract G11.1"
            );
            assert_eq!(reply.assignment, None);
            return Err(reply.code);
        }
        let of_topic = |listed: TopicPartitions| {
            assert!(listed.iter().all(|(topic, _)| *topic == self.topic), "{listed:?}");
            listed.into_iter().flat_map(|(_, indexes)| indexes).collect()
        };
        Ok((reply.member_epoch, reply.assignment.map(of_topic)))
    }

    pub fn describe(&mut self) -> ConsumerDescription {
        match self.harness.answer(GROUP, Ask::ConsumerDescribe) {
            Reply::ConsumerDescribe(Ok(description)) => description,
            other => panic!("{other:?}"),
        }
    }

    /// State, group epoch and assignment epoch.
    pub fn group(&mut self) -> (&'static str, i32, i32) {
        let description = self.describe();
        (description.state, description.epoch, description.assignment_epoch)
    }
}

/// Epoch and assignment of an answer.
pub type Heard = Result<(i32, Option<Vec<i32>>), ErrorCode>;

pub fn given(epoch: i32, indexes: &[i32]) -> Heard {
    Ok((epoch, Some(indexes.to_vec())))
}

pub fn null(epoch: i32) -> Heard {
    Ok((epoch, None))
}

/// A heartbeat without news.
pub fn beat(id: &str, epoch: i32) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        version: 1,
        member_id: id.to_owned(),
        member_epoch: epoch,
        rebalance_timeout_ms: -1,
        ..ConsumerHeartbeat::default()
    }
}

/// A heartbeat that joins with names.
pub fn join(id: &str, topics: &[&str]) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        rebalance_timeout_ms: 60_000,
        topics: Some(topics.iter().map(|topic| (*topic).to_owned()).collect()),
        owned: Some(Vec::new()),
        ..beat(id, 0)
    }
}
