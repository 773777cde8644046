//! An idempotent producer as clients are: at most five batches in flight a partition, sent in order, sent again in
//! order after a crash, with the epoch bumped only when nothing is in flight.

use std::collections::VecDeque;

use bytes::Bytes;
use oncilla_shards::batch::BatchBuilder;
use oncilla_shards::ids::{Offset, TimestampMs};

/// Batches in flight that clients allow themselves.
pub const IN_FLIGHT_MAX: usize = 5;

/// One batch, until it is acknowledged.
#[derive(Clone, Debug)]
pub struct Batch {
    /// First sequence.
    pub sequence: i32,
    /// Values of its records: unique in the run, ascending for each client and partition.
    pub values: Vec<u64>,
    /// Its bytes.
    pub bytes: Bytes,
    /// Whether the broker has it since its last start.
    pub sent: bool,
    /// Where the broker said it is.
    pub base: Option<Offset>,
    /// It was refused, which the client has not heard yet.
    pub refused: bool,
}

/// State of one client for one partition.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Next sequence to use.
    pub next_sequence: i32,
    /// Epoch of `next_sequence`; lags behind the client's until nothing is in flight.
    pub epoch: i16,
    /// In flight, oldest first.
    pub in_flight: VecDeque<Batch>,
    /// A batch of an older epoch, for a zombie to send.
    pub stale: Option<Bytes>,
}

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its producer id.
    pub producer_id: i64,
    /// One lane a partition.
    pub lanes: Vec<Lane>,
}

impl Client {
    /// A client for `partitions` partitions.
    pub fn new(producer_id: i64, partitions: usize) -> Self {
        Self { producer_id, lanes: vec![Lane::default(); partitions] }
    }

    /// Makes the next batch of a lane.
    pub fn make(&mut self, lane: usize, values: Vec<u64>, now: TimestampMs) {
        let id = self.producer_id;
        let lane = &mut self.lanes[lane];
        assert!(lane.in_flight.len() < IN_FLIGHT_MAX);
        let mut builder = BatchBuilder::new().producer(id, lane.epoch, lane.next_sequence).base_timestamp(now);
        for value in &values {
            builder = builder.record(None, Some(&value.to_be_bytes()));
        }
        let batch = Batch {
            sequence: lane.next_sequence,
            bytes: Bytes::from(builder.build()),
            sent: false,
            base: None,
            refused: false,
            values,
        };
        lane.next_sequence += i32::try_from(batch.values.len()).expect("small batches");
        lane.in_flight.push_back(batch);
    }

    /// Starts a new epoch on a lane that has nothing in flight.
    pub fn bump(&mut self, lane: usize, now: TimestampMs) {
        let id = self.producer_id;
        let lane = &mut self.lanes[lane];
        assert!(lane.in_flight.is_empty());
        let zombie = BatchBuilder::new().producer(id, lane.epoch, lane.next_sequence).base_timestamp(now);
        lane.stale = Some(Bytes::from(zombie.record(None, Some(b"zombie!!")).build()));
        lane.epoch += 1;
        lane.next_sequence = 0;
    }

    /// Another producer takes its place, if nothing is in flight.
    pub fn renew(&mut self, producer_id: i64) {
        if self.lanes.iter().all(|lane| lane.in_flight.is_empty()) {
            self.producer_id = producer_id;
            self.lanes.fill(Lane::default());
        }
    }

    /// The answers come in that refused batches of a lane.
    pub fn hear(&mut self, lane: usize) {
        for batch in self.lanes[lane].in_flight.iter_mut().filter(|batch| batch.refused) {
            batch.sent = false;
            batch.refused = false;
        }
    }

    /// The broker went away: everything unacknowledged has to be sent again.
    pub fn disconnected(&mut self) {
        for batch in self.lanes.iter_mut().flat_map(|lane| &mut lane.in_flight) {
            batch.sent = false;
            batch.base = None;
            batch.refused = false;
        }
    }
}
