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
