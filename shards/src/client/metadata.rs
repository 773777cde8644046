//! Who leads which partition: asked for when a record needs it, when an answer says that it changed, and from time to
//! time. What is known stays in use until something newer is known.

use std::sync::Arc;

use super::error::{ClientFailure, Next, Reason, Written};
use super::lane::Lane;
use super::machine::{Machine, Purpose};
use super::message::{MetadataAnswer, PartitionMetadata, Request, TopicMetadata};
use crate::code::ErrorCode;

impl Machine {
    pub(super) fn want_metadata(&mut self, topic: usize) {
        self.topics[topic].wanted = true;
        self.metadata_asking.wanted = true;
    }

    pub(super) fn ask_metadata(&mut self) {
        let age_ms = self.now_ms.saturating_sub(self.metadata_ms);
        let old = !self.topics.is_empty() && age_ms >= self.settings.metadata_age_ms_max;
        let asking = &self.metadata_asking;
        if !(asking.wanted || old) || asking.call.is_some() || asking.until_ms > self.now_ms || self.dead.is_some() {
            return;
        }
        match self.nodes.any(self.now_ms) {
            Ok(node) => {
                let asked: Vec<usize> = (0..self.topics.len()).filter(|at| old || self.topics[*at].wanted).collect();
                let topics: Vec<Arc<str>> = asked.iter().map(|at| self.topics[*at].name.clone()).collect();
                let call = self.call(node, Purpose::Metadata(asked), Request::Metadata { topics });
                self.metadata_asking.call = Some(call);
            }
            Err(until_ms) => self.metadata_asking.until_ms = until_ms,
        }
    }

    pub(super) fn metadata_lost(&mut self) {
        let asking = &mut self.metadata_asking;
        (asking.wanted, asking.call) = (true, None);
        asking.attempts += 1;
        asking.until_ms = self.now_ms + self.settings.backoff_ms(asking.attempts);
    }

    pub(super) fn metadata_answered(&mut self, asked: &[usize], answer: MetadataAnswer) {
        for (id, address) in &answer.nodes {
            if let Some(connection) = self.nodes.learn(*id, address) {
                self.drop_connection(connection, true);
            }
        }
        self.metadata_ms = self.now_ms;
        for topic in answer.topics {
            self.topic_answered(topic);
        }
        let again = asked.iter().any(|at| self.topics[*at].wanted);
        let wanted = self.topics.iter().any(|topic| topic.wanted);
        let asking = &mut self.metadata_asking;
        asking.call = None;
        asking.wanted = wanted;
        asking.attempts = if again { asking.attempts + 1 } else { 0 };
        // The same question right behind this one would have the same answer.
        asking.until_ms = if again { self.now_ms + self.settings.backoff_ms(asking.attempts) } else { self.now_ms };
    }

    /// One topic's trouble is not another's, and none of it fails a record before its time (but what cannot pass).
    fn topic_answered(&mut self, answer: TopicMetadata) {
        let Some(&topic) = self.topic_ids.get(answer.name.as_str()) else { return };
        let hopeless = [ErrorCode::InvalidTopicException, ErrorCode::TopicAuthorizationFailed];
        if ErrorCode::from_wire(answer.code).is_some_and(|code| hopeless.contains(&code)) {
            self.topics[topic].wanted = false;
            self.topic_failed(topic, answer.code);
            return;
        }
        // Indexes with gaps, or without end, are no answer.
        let count = answer.partitions.len();
        let sound = |partition: &PartitionMetadata| usize::try_from(partition.index).is_ok_and(|index| index < count);
        if answer.code != 0 || count == 0 || !answer.partitions.iter().all(sound) {
            return;
        }
        let mut all_led = true;
        for index in self.topics[topic].lanes.len()..count {
            let partition = i32::try_from(index).expect("an index of a partition");
            let lane = Lane::new(self.topics[topic].name.clone(), topic, partition);
            self.topics[topic].lanes.push(self.lanes.len());
            self.lanes.push(lane);
        }
        for partition in answer.partitions {
            all_led &= partition.leader >= 0;
            self.led(topic, &partition);
        }
        let needed = |lane: &usize| self.lanes[*lane].leader.is_none() && !self.lanes[*lane].is_empty();
        let needs = !all_led && self.topics[topic].lanes.iter().any(needed);
        self.topics[topic].wanted = needs;
        self.place_unplaced(topic);
    }

    /// Takes note of a leader, unless a newer one is known.
    pub(super) fn led(&mut self, topic: usize, partition: &PartitionMetadata) {
        let lanes = &self.topics[topic].lanes;
        let Some(&lane_id) = usize::try_from(partition.index).ok().and_then(|index| lanes.get(index)) else { return };
        let lane = &mut self.lanes[lane_id];
        if partition.leader_epoch >= 0 && partition.leader_epoch < lane.leader_epoch {
            return;
        }
        lane.leader = (partition.leader >= 0).then_some(partition.leader);
        lane.leader_epoch = partition.leader_epoch.max(lane.leader_epoch);
        self.touch(lane_id);
    }

    fn place_unplaced(&mut self, topic: usize) {
        let name = self.topics[topic].name.clone();
        while let Some(record) = self.topics[topic].unplaced.pop_front() {
            let placed = record.with(&name, |new| self.place(topic, record.id, new, record.created_ms));
            match placed {
                Ok(()) => self.unplaced -= 1,
                Err(_) => {
                    let code = ErrorCode::UnknownTopicOrPartition.wire();
                    self.fail_unplaced(&record, ClientFailure::new(Reason::Code(code), Written::No, Next::GoOn));
                }
            }
        }
    }

    fn topic_failed(&mut self, topic: usize, code: i16) {
        let failure = ClientFailure::new(Reason::Code(code), Written::No, self.next_of_records());
        while let Some(record) = self.topics[topic].unplaced.pop_front() {
            self.fail_unplaced(&record, failure.clone());
        }
        for lane in self.topics[topic].lanes.clone() {
            while let Some(batch) = self.lanes[lane].queue.pop_front() {
                self.fail(batch, failure.clone());
            }
        }
        self.txn_failed(failure.reason);
    }

    pub(super) fn unplaced_until_ms(&self) -> Option<u64> {
        if self.unplaced == 0 {
            return None;
        }
        let oldest =
            self.topics.iter().filter_map(|topic| topic.unplaced.front()).map(|record| record.created_ms).min();
        oldest.map(|at_ms| at_ms.saturating_add(self.settings.delivery_timeout_ms))
    }

    pub(super) fn expire_unplaced(&mut self) {
        if self.unplaced_until_ms().is_none_or(|at_ms| at_ms > self.now_ms) {
            return;
        }
        let timeout_ms = self.settings.delivery_timeout_ms;
        let failure = ClientFailure::new(Reason::DeliveryTimeout, Written::No, self.next_of_records());
        for topic in 0..self.topics.len() {
            let late = |at_ms: u64| at_ms.saturating_add(timeout_ms) <= self.now_ms;
            let records = &self.topics[topic].unplaced;
            for _ in 0..records.iter().take_while(|record| late(record.created_ms)).count() {
                let record = self.topics[topic].unplaced.pop_front().expect("just counted");
                self.fail_unplaced(&record, failure.clone());
            }
        }
        self.txn_failed(failure.reason);
    }
}
