//! How the transactions of the part of a log that is being cleaned ended, learned from headers and markers in order.
//!
//! Owner: one clean. A marker lies behind the data that it decides about, so whoever asks has to have looked ahead far
//! enough; below the last stable offset everything is decided. Limit: `limits::CLEAN_ABORTED_MAX` aborted
//! transactions. Failure: at the limit [`Fates::is_full`] says so, and the clean ends where it is.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::batch::{BatchHeader, ControlKind, ControlRecord};
use crate::ids::{Offset, ProducerId};
use crate::limits::CLEAN_ABORTED_MAX;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its records count.
    Committed,
    /// They do not.
    Aborted,
}

/// What is known.
#[derive(Debug, Default)]
pub struct Fates {
    /// First offset of each transaction that was seen to begin and not to end.
    open: HashMap<ProducerId, Offset, FixedState>,
    /// First offset and marker of each aborted transaction, ascending.
    aborted: HashMap<ProducerId, Vec<(Offset, Offset)>, FixedState>,
    aborted_len: usize,
    /// Offset behind the last batch seen.
    end: Offset,
}

impl Fates {
    /// Takes note of the next batch. Those that were seen before are passed over.
    pub fn observe(&mut self, header: &BatchHeader, control: Option<ControlRecord>) {
        if header.base_offset < self.end {
            return;
        }
        self.end = header.next_offset();
        if !header.attributes.is_transactional() {
            return;
        }
        if !header.attributes.is_control() {
            self.open.entry(header.producer_id).or_insert(header.base_offset);
            return;
        }
        let Some(control) = control else { return };
        let first = self.open.remove(&header.producer_id);
        if let Some(first) = first
            && control.kind == ControlKind::Abort
        {
            self.aborted.entry(header.producer_id).or_default().push((first, header.base_offset));
            self.aborted_len += 1;
        }
    }

    /// How the transaction of a data batch ended; `None` if its marker was not seen yet.
    #[must_use]
    pub fn of(&self, header: &BatchHeader) -> Option<Fate> {
        let offset = header.base_offset;
        if offset >= self.end || self.open.get(&header.producer_id).is_some_and(|first| *first <= offset) {
            return None;
        }
        let aborted = self.aborted.get(&header.producer_id).map_or(&[][..], Vec::as_slice);
        let at = aborted.partition_point(|(_, marker)| *marker < offset);
        let is_aborted = aborted.get(at).is_some_and(|(first, _)| *first <= offset);
        Some(if is_aborted { Fate::Aborted } else { Fate::Committed })
    }

    /// Offset behind the last batch seen.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Whether no more aborted transactions can be remembered.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.aborted_len >= CLEAN_ABORTED_MAX
    }
}
