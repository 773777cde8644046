//! Markers: the batches that end a transaction on a partition (contract A6).
//!
//! Owned by the partition. A marker is enqueued as any batch is, so all that are due leave with one write. It is not a
//! client's batch: no limit on sizes applies to it (B11.3), and a write with one is durable before it counts, also
//! where a topic's settings would let it wait. Failure: [`MarkerRefusal`], and nothing changed.

use bytes::Bytes;

use super::{Enqueue, Partition, Placed};
use crate::batch::build::control_batch;
use crate::batch::{BatchHeader, ControlKind, ControlRecord, Patch};
use crate::code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId, TimestampMs};

/// The end of a producer's transaction, as a coordinator or an administrator sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// Whose.
    pub producer_id: ProducerId,
    /// Epoch of the marker.
    pub epoch: ProducerEpoch,
    /// Epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
    /// TransactionVersion of A6.1: 2 for path B, else 0.
    pub transaction_version: i16,
    /// How it ended.
    pub kind: ControlKind,
}

/// Why a marker was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerRefusal {
    /// The code.
    pub code: ErrorCode,
    /// Epoch of the coordinator that ended the producer's last transaction here, -1 if none did.
    pub coordinator_epoch: i32,
}

impl MarkerRefusal {
    /// A refusal that has nothing to do with coordinators.
    #[must_use]
    pub fn code(code: ErrorCode) -> Self {
        Self { code, coordinator_epoch: -1 }
    }
}

impl Partition {
    /// Appends a marker, whether a transaction is open here or not; it counts when the log is durable up to the end.
    ///
    /// # Errors
    /// INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED (A6.1, A6.2), INVALID_REQUEST for negative numbers,
    /// KAFKA_STORAGE_ERROR if the disk has failed.
    pub fn append_marker(&mut self, marker: &EndMarker, now: TimestampMs) -> Result<Placed, MarkerRefusal> {
        if self.offline {
            return Err(MarkerRefusal::code(ErrorCode::KafkaStorageError));
        }
        let EndMarker { producer_id, epoch, coordinator_epoch, transaction_version, kind } = *marker;
        let checked = self.producers.check_marker(producer_id, epoch, coordinator_epoch, transaction_version);
        if let Err(code) = checked {
            let coordinator_epoch = self.producers.coordinator_epoch_of(producer_id);
            return Err(MarkerRefusal { code, coordinator_epoch });
        }
        let record = ControlRecord { kind, coordinator_epoch };
        let batch = control_batch(producer_id, epoch, record, now, self.rules.append.timestamp_type);
        let header = BatchHeader::parse(&batch).expect("it was just made");
        let patch = Patch {
            base_offset: self.next_offset,
            leader_epoch: self.epoch,
            attributes: header.attributes.0,
            max_timestamp: header.max_timestamp,
            crc: header.crc,
        };
        Ok(self.enqueue(&header, patch, Bytes::from(batch), Enqueue::Marker(record), now))
    }
}

#[cfg(test)]
#[path = "marker_tests.rs"]
mod tests;
