//! The second pass of a clean: what stays of each batch, from the log start on.
//!
//! Owner: one clean. Contract A10's rules for compaction, as Kafka's cleaner has them:
//! - a record goes when a newer one of its key counts, when its transaction was aborted, or when it has no key;
//! - a tombstone goes, and a marker whose transaction has no batch left, once the delete horizon of its batch is over;
//!   the first clean that finds one sets the horizon `delete.retention.ms` ahead;
//! - the last data batch of a known producer stays, emptied if it must be, and so does a marker that is the last thing
//!   of one; nothing of a control batch is looked up by key (case 104);
//! - the last batch of what becomes one segment stays, as a placeholder if it must, so the log has no gap between
//!   segments and every offset can be reached (case 108).
//!
//! Limit: one entry for each producer with a transaction that has batches left. Failure: a batch that does not parse
//! ends the clean.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::latest::Latest;
use crate::batch::records::{BadRecords, Record, Records};
use crate::batch::{BatchHeader, ControlRecord, rewrite};
use crate::ids::{Offset, ProducerId, TimestampMs};
use crate::producers::{LastOf, Producers};

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It stays as it is.
    Same,
    /// This takes its place.
    Rewritten(Vec<u8>),
    /// It goes.
    Gone,
}

/// The state of the second pass.
#[derive(Debug)]
pub struct Filter {
    latest: Latest,
    now: TimestampMs,
    delete_retention_ms: i64,
    /// Producers whose present transaction has data batches before this point.
    with_data: HashSet<ProducerId, FixedState>,
}

impl Filter {
    /// Begins at the log start.
    #[must_use]
    pub fn new(latest: Latest, now: TimestampMs, delete_retention_ms: i64) -> Self {
        Self { latest, now, delete_retention_ms, with_data: HashSet::default() }
    }

    /// Offset behind the last record that this clean decides about.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.latest.end()
    }

    /// Decides about the next batch. `is_last` says that a segment ends with it. `durable_end` bounds what counts as a
    /// producer's last batch: one that a crash can take back does not stand for those before it.
    pub fn batch(
        &mut self,
        batch: &[u8],
        is_last: bool,
        producers: &Producers,
        durable_end: Offset,
    ) -> Result<Kept, BadRecords> {
        let header = BatchHeader::parse(batch)?;
        if header.base_offset >= self.end() {
            return Ok(Kept::Same);
        }
        let last = producers.last_of(header.producer_id, durable_end);
        let kept = if header.attributes.is_control() {
            self.control(batch, &header, last)?
        } else {
            self.data(batch, &header, last)?
        };
        Ok(match kept {
            Kept::Gone if is_last => same_or(batch, rewrite::placeholder(&header)),
            kept => kept,
        })
    }

    fn control(&mut self, batch: &[u8], header: &BatchHeader, last: Option<LastOf>) -> Result<Kept, BadRecords> {
        let has_data = self.with_data.remove(&header.producer_id);
        let is_last_of_producer = last == Some(LastOf::Marker(header.producer_epoch));
        if ControlRecord::of_batch(batch).is_none() {
            // It ends nothing, so there is nothing to wait for.
            return Ok(if is_last_of_producer { Kept::Same } else { Kept::Gone });
        }
        if has_data || is_last_of_producer {
            return Ok(Kept::Same);
        }
        match header.delete_horizon() {
            Some(horizon) if horizon <= self.now => Ok(Kept::Gone),
            Some(_) => Ok(Kept::Same),
            None => Ok(Kept::Rewritten(rewrite::retain(&Records::open(batch)?, Some(self.horizon()), |_| true))),
        }
    }

    fn data(&mut self, batch: &[u8], header: &BatchHeader, last: Option<LastOf>) -> Result<Kept, BadRecords> {
        if header.attributes.is_transactional() {
            self.with_data.insert(header.producer_id);
        }
        let records = Records::open(batch)?;
        let is_aborted = self.latest.is_aborted(header);
        let keeps = |record: &Record<'_>| !is_aborted && self.keeps(header, record);
        let (mut kept, mut tombstones) = (0, false);
        for record in &records {
            let record = record?;
            if keeps(&record) {
                kept += 1;
                tombstones |= record.value.is_none();
            }
        }
        if kept == 0 {
            let is_last_of_producer = last == Some(LastOf::Data(header.last_offset()));
            return Ok(if is_last_of_producer { same_or(batch, rewrite::emptied(header)) } else { Kept::Gone });
        }
        let horizon = (tombstones && header.delete_horizon().is_none()).then(|| self.horizon());
        if kept == header.record_count && horizon.is_none() {
            return Ok(Kept::Same);
        }
        Ok(Kept::Rewritten(rewrite::retain(&records, horizon, keeps)))
    }

    fn keeps(&self, header: &BatchHeader, record: &Record<'_>) -> bool {
        if record.offset >= self.end() {
            return true;
        }
        let Some(key) = record.key else { return false };
        let is_over = record.value.is_none() && header.delete_horizon().is_some_and(|horizon| horizon <= self.now);
        !is_over && !self.latest.is_superseded(key, record.offset)
    }

    fn horizon(&self) -> TimestampMs {
        TimestampMs(self.now.0.saturating_add(self.delete_retention_ms))
    }
}

fn same_or(batch: &[u8], other: Vec<u8>) -> Kept {
    if batch == other { Kept::Same } else { Kept::Rewritten(other) }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
