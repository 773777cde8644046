//! The first pass of a clean: which record of each key is the newest one that counts.
//!
//! Owner: one clean, which feeds the batches of the dirty part in order. Only records that every reader sees count:
//! aborted ones and control batches say nothing about a key (cases 104, 105). Limits and failure: those of [`KeyMap`]
//! and [`Fates`]; when either is full the clean ends where it is, and the next one goes on from there.

use super::fates::{Fate, Fates};
use super::hash::HashSecret;
use super::key_map::KeyMap;
use crate::batch::records::{BadRecords, Records};
use crate::batch::{BatchHeader, ControlRecord};
use crate::ids::Offset;

/// Whether the first pass goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// With the next batch.
    Next,
    /// No further: there is no room for more keys.
    Full,
}

/// The newest record of each key.
#[derive(Debug)]
pub struct Latest {
    keys: KeyMap,
    fates: Fates,
    start: Offset,
    end: Offset,
}

impl Latest {
    /// Nothing is known yet of the part from `start` to `end`; memory for keys is at most `bytes_max`.
    #[must_use]
    pub fn new(start: Offset, end: Offset, bytes_max: usize, secret: HashSecret) -> Self {
        assert!(start < end, "something is dirty");
        let records = (end.0 - start.0) as u64;
        Self { keys: KeyMap::new(bytes_max, records, secret), fates: Fates::default(), start, end: start }
    }

    /// Whether batches behind this one have to be shown to [`Latest::look_ahead`] before it can be added: its
    /// transaction's marker was not seen yet.
    #[must_use]
    pub fn needs_look_ahead(&self, header: &BatchHeader) -> bool {
        is_transactional_data(header)
            && header.next_offset() > self.start
            && !self.fates.is_full()
            && self.fates.of(header).is_none()
    }

    /// Where a look ahead goes on, if it has begun.
    #[must_use]
    pub fn looked_to(&self) -> Offset {
        self.fates.end()
    }

    /// Shows a batch that lies ahead; they come in order.
    pub fn look_ahead(&mut self, header: &BatchHeader, control: Option<ControlRecord>) {
        self.fates.observe(header, control);
    }

    /// Takes in the next batch of the dirty part.
    pub fn add(&mut self, batch: &[u8]) -> Result<Step, BadRecords> {
        let header = BatchHeader::parse(batch)?;
        if header.next_offset() <= self.end {
            return Ok(Step::Next);
        }
        if header.attributes.is_control() {
            self.end = header.next_offset();
            return Ok(Step::Next);
        }
        if is_transactional_data(&header) {
            match self.fates.of(&header) {
                Some(Fate::Committed) => {}
                Some(Fate::Aborted) => {
                    self.end = header.next_offset();
                    return Ok(Step::Next);
                }
                None => {
                    assert!(self.fates.is_full(), "the look ahead goes as far as it must");
                    return Ok(Step::Full);
                }
            }
        }
        for record in &Records::open(batch)? {
            let record = record?;
            let Some(key) = record.key.filter(|_| record.offset >= self.start) else { continue };
            if !self.keys.put(key, record.offset) {
                self.end = self.end.max(record.offset);
                return Ok(Step::Full);
            }
            self.end = record.offset.plus(1);
        }
        self.end = header.next_offset();
        Ok(Step::Next)
    }

    /// Offset behind what was taken in: the log is clean up to here when the second pass is done.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Whether a data batch was aborted. What lies before the dirty part was asked in an earlier clean, which left
    /// nothing of aborted transactions.
    #[must_use]
    pub(super) fn is_aborted(&self, header: &BatchHeader) -> bool {
        is_transactional_data(header)
            && header.base_offset >= self.start
            && self.fates.of(header) == Some(Fate::Aborted)
    }

    /// Whether a newer record with this key counts.
    #[must_use]
    pub(super) fn is_superseded(&self, key: &[u8], offset: Offset) -> bool {
        self.keys.get(key).is_some_and(|newest| newest > offset)
    }
}

fn is_transactional_data(header: &BatchHeader) -> bool {
    header.attributes.is_transactional() && !header.attributes.is_control()
}
