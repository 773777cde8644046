//! The coordinator against the contract: tables cell by cell, cases by number, and a model under crashes.

mod b10;
mod b2;
mod b6;
mod cases;
mod cases_markers;
mod look;
mod model;
mod world;

use super::*;
use crate::ids::{PartitionKey, ProducerEpoch, TimestampMs, TopicId};

pub(super) fn partition(index: i32) -> PartitionKey {
    PartitionKey { topic: TopicId(1), index }
}

pub(super) fn who(producer_id: i64, epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(producer_id), epoch: ProducerEpoch(epoch) }
}

pub(super) const TIMEOUT_MS: i32 = 60_000;

pub(super) fn init(given: Identity) -> Request {
    Request::Init(Init { timeout_ms: TIMEOUT_MS, given, two_phase: false, keep_prepared: false })
}

pub(super) fn add(producer: Identity, by: AddBy, indexes: &[i32]) -> Request {
    let partitions = indexes.iter().map(|index| partition(*index)).collect();
    Request::Add(Add { producer, partitions, groups: vec![], by })
}

pub(super) fn add_groups(producer: Identity, by: AddBy, groups: &[&str]) -> Request {
    let groups = groups.iter().map(|group| Arc::from(*group)).collect();
    Request::Add(Add { producer, partitions: vec![], groups, by })
}

/// An add by Produce 12 whose write waits for its answer.
pub(super) const BROKER: AddBy = AddBy::Broker { early: false };
/// An add by Produce 12 whose write may start before.
pub(super) const EARLY: AddBy = AddBy::Broker { early: true };

pub(super) fn verify(producer: Identity, indexes: &[i32]) -> Request {
    let partitions = indexes.iter().map(|index| partition(*index)).collect();
    Request::Verify(Verify { producer, partitions, groups: vec![] })
}

/// EndTxn up to version 4.
pub(super) fn end_a(producer: Identity, outcome: Outcome) -> Request {
    Request::End(End { producer, outcome, bumps: false })
}

/// EndTxn 5.
pub(super) fn end_b(producer: Identity, outcome: Outcome) -> Request {
    Request::End(End { producer, outcome, bumps: true })
}

/// What would be answered, by the number of the code; 0 is success.
pub(super) fn code(reply: &Result<Reply, ErrorCode>) -> i16 {
    match reply {
        Ok(_) => 0,
        Err(code) => code.wire(),
    }
}

pub(super) fn head(state: State, producer: Identity) -> Head {
    Head {
        producer_id: producer.producer_id,
        prev_producer_id: producer.producer_id,
        next_producer_id: ProducerId::NONE,
        epoch: producer.epoch,
        last_epoch: ProducerEpoch::NONE,
        timeout_ms: TIMEOUT_MS,
        state,
        start: TimestampMs(1000),
        update: TimestampMs(1000),
        client_version: 0,
        sequence: 3,
    }
}
