//! The one record of a control batch: the marker that ends a transaction (contract A6).
//!
//! Failure: [`ControlRecord::of_batch`] gives `None` for a control batch without a readable marker; compaction leaves
//! such batches behind, and rebuilding state ignores them.

use crate::batch::records::Records;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// Its records do not count.
    Abort,
    /// Its records count.
    Commit,
}

/// The content of an end-transaction marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlRecord {
    /// How the transaction ended.
    pub kind: ControlKind,
    /// Epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
}

impl ControlRecord {
    /// The record's key: version 0 and the kind.
    #[must_use]
    pub fn key(&self) -> [u8; 4] {
        match self.kind {
            ControlKind::Abort => [0, 0, 0, 0],
            ControlKind::Commit => [0, 0, 0, 1],
        }
    }

    /// The record's value: version 0 and the coordinator's epoch.
    #[must_use]
    pub fn value(&self) -> [u8; 6] {
        let [a, b, c, d] = self.coordinator_epoch.to_be_bytes();
        [0, 0, a, b, c, d]
    }

    /// Reads key and value; higher versions of the value begin as version 0 does.
    #[must_use]
    pub fn parse(key: &[u8], value: &[u8]) -> Option<Self> {
        let kind = match key {
            [_, _, 0, 0, ..] => ControlKind::Abort,
            [_, _, 0, 1, ..] => ControlKind::Commit,
            _ => return None,
        };
        let [v0, _, a, b, c, d, ..] = *value else { return None };
        (v0 < 0x80).then(|| Self { kind, coordinator_epoch: i32::from_be_bytes([a, b, c, d]) })
    }

    /// The marker of a whole batch; `None` for data batches and for control batches that carry none.
    #[must_use]
    pub fn of_batch(batch: &[u8]) -> Option<Self> {
        let records = Records::open(batch).ok()?;
        if !records.header().attributes.is_control() {
            return None;
        }
        let record = records.iter().next()?.ok()?;
        Self::parse(record.key?, record.value?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::build::control_batch;
    use crate::batch::{BatchBuilder, BatchHeader, TimestampType, crc_matches};
    use crate::ids::{ProducerEpoch, ProducerId, Sequence, TimestampMs};

    #[test]
    fn a6_a_marker_is_78_bytes_and_reads_back() {
        for kind in [ControlKind::Abort, ControlKind::Commit] {
            let record = ControlRecord { kind, coordinator_epoch: 17 };
            for (timestamp_type, attributes) in
                [(TimestampType::CreateTime, 0x30), (TimestampType::LogAppendTime, 0x38)]
            {
                let batch = control_batch(ProducerId(5), ProducerEpoch(2), record, TimestampMs(1234), timestamp_type);
                assert_eq!(batch.len(), 78);
                assert!(crc_matches(&batch));
                let header = BatchHeader::parse(&batch).expect("a header");
                assert_eq!((header.attributes.0, header.base_sequence), (attributes, Sequence(-1)));
                assert_eq!((header.max_timestamp, header.record_count), (TimestampMs(1234), 1));
                assert_eq!(ControlRecord::of_batch(&batch), Some(record));
            }
        }
    }

    #[test]
    fn a6_a_higher_version_is_read_and_everything_else_is_no_marker() {
        let record = ControlRecord { kind: ControlKind::Commit, coordinator_epoch: 3 };
        assert_eq!(ControlRecord::parse(&[0, 0, 0, 1], &[0, 9, 0, 0, 0, 3, 1, 2]), Some(record));
        assert_eq!(ControlRecord::parse(&[0, 0, 0, 2], &[0, 0, 0, 0, 0, 3]), None);
        assert_eq!(ControlRecord::parse(&[0, 0, 0], &record.value()), None);
        assert_eq!(ControlRecord::parse(&record.key(), &[0, 0, 0, 0, 0]), None);
        let data = BatchBuilder::new().record(Some(&record.key()), Some(&record.value())).build();
        assert_eq!(ControlRecord::of_batch(&data), None, "data that looks like a marker");
    }
}
