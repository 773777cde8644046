//! A slot from what its files hold after any crash: the checkpoint, then the journals from the oldest to the newest.
//!
//! Damage ends a journal: a torn write, of which nothing was acknowledged. The next journal goes on where the last
//! whole line was, so it shows whether more than that is missing. Failure: a hole, positions twice, or an entry that
//! this version does not know is an error, because going on would lose what was acknowledged or apply it twice.

use serde::de::DeserializeOwned;

use super::checkpoint::{self, DecodeError};
use super::line::{Lines, Stop};
use super::{Journal, Position};

/// Where the lines of one journal end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    /// Bytes of whole lines.
    pub bytes: usize,
    /// What follows them.
    pub stop: Stop,
}

/// Why a journal cannot continue the slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// Entries between what is known and this journal are missing.
    #[error(
        "it begins with entry {found}, and entries from {expected} on are missing: an older file is lost or damaged"
    )]
    Hole {
        /// The first one missing.
        expected: Position,
        /// The first one of the journal.
        found: Position,
    },
    /// Entries that an older journal has too.
    #[error("it begins with entry {found}, but older journals go up to {end}: the files are of two histories")]
    Overlap {
        /// The first one of the journal.
        found: Position,
        /// The last one known.
        end: Position,
    },
    /// A whole line that is no entry.
    #[error("entry {position} cannot be read, a later version may have written it: {message}")]
    Entry {
        /// Its position.
        position: Position,
        /// What is wrong.
        message: String,
    },
}

/// A slot that is being put together.
#[derive(Debug)]
pub struct Rebuild<E> {
    entries: Vec<E>,
    /// What the checkpoint covers.
    covered: Position,
    end: Position,
    checkpoint_bytes: u64,
    journal_bytes: u64,
    scratch: Vec<u8>,
}

impl<E: DeserializeOwned> Rebuild<E> {
    /// Begins with the bytes of the checkpoint, or with nothing.
    ///
    /// # Errors
    /// If they are no checkpoint.
    pub fn new(checkpoint: Option<&[u8]>) -> Result<Self, DecodeError> {
        let (covered, entries) = checkpoint.map_or(Ok((Position(0), Vec::new())), checkpoint::decode)?;
        let checkpoint_bytes = checkpoint.map_or(0, <[u8]>::len) as u64;
        Ok(Self { entries, covered, end: covered, checkpoint_bytes, journal_bytes: 0, scratch: Vec::new() })
    }

    /// Takes the next journal in; entries that the checkpoint covers are passed over.
    ///
    /// # Errors
    /// If it does not continue what is there, or holds what is no entry.
    pub fn journal(&mut self, bytes: &[u8]) -> Result<JournalEnd, RebuildError> {
        let mut lines = Lines::new(bytes);
        let mut at = 0;
        let mut is_first = true;
        while let Some(line) = lines.next() {
            if std::mem::take(&mut is_first) {
                self.continues(line.position)?;
            }
            let line_bytes = lines.bytes() - at;
            at = lines.bytes();
            if line.position <= self.covered {
                continue;
            }
            let entry = line.decode(&mut self.scratch);
            let unreadable = |message| RebuildError::Entry { position: line.position, message };
            self.entries.push(entry.map_err(unreadable)?);
            self.end = line.position;
            self.journal_bytes += line_bytes as u64;
        }
        Ok(JournalEnd { bytes: at, stop: lines.stop().expect("all lines were read") })
    }

    fn continues(&self, found: Position) -> Result<(), RebuildError> {
        if found > self.end.next() {
            return Err(RebuildError::Hole { expected: self.end.next(), found });
        }
        if found <= self.end && self.end > self.covered {
            return Err(RebuildError::Overlap { found, end: self.end });
        }
        Ok(())
    }

    /// The slot's journal, all of it durable, and the entries that rebuild the slot in their order.
    #[must_use]
    pub fn finish(self) -> (Journal, Vec<E>) {
        (Journal::recovered(self.end, self.checkpoint_bytes, self.journal_bytes), self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::write_line;
    use super::*;

    fn lines(positions: std::ops::RangeInclusive<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        positions.for_each(|position| write_line(Position(position), &position, &mut bytes));
        bytes
    }

    fn rebuild(checkpoint: u64, journals: &[Vec<u8>]) -> Result<(u64, Vec<u64>), RebuildError> {
        let stored = checkpoint::encode(Position(checkpoint), &(1..=checkpoint).collect::<Vec<_>>());
        let mut rebuild = Rebuild::new((checkpoint > 0).then_some(&stored[..])).expect("a checkpoint");
        for journal in journals {
            rebuild.journal(journal)?;
        }
        let (journal, entries) = rebuild.finish();
        assert_eq!(journal.end(), journal.durable());
        Ok((journal.end().0, entries))
    }

    #[test]
    fn entries_the_checkpoint_covers_are_applied_once() {
        let all: Vec<u64> = (1..=9).collect();
        assert_eq!(rebuild(5, &[lines(1..=3), lines(4..=7), lines(8..=9)]), Ok((9, all.clone())));
        assert_eq!(rebuild(5, &[lines(6..=9)]), Ok((9, all)));
        assert_eq!(rebuild(5, &[lines(1..=2), lines(4..=4)]), Ok((5, (1..=5).collect())), "removed in any order");
        assert_eq!(rebuild(0, &[]), Ok((0, vec![])));
    }

    #[test]
    fn a_torn_tail_is_passed_over_when_the_next_journal_goes_on_there() {
        let torn = lines(1..=3)[..lines(1..=3).len() - 2].to_vec();
        assert_eq!(rebuild(0, &[torn.clone(), Vec::new(), lines(3..=4)]), Ok((4, vec![1, 2, 3, 4])));
        let hole = RebuildError::Hole { expected: Position(3), found: Position(4) };
        assert_eq!(rebuild(0, &[torn, lines(4..=4)]), Err(hole));
    }

    #[test]
    fn holes_and_positions_twice_are_refused() {
        let hole = RebuildError::Hole { expected: Position(6), found: Position(7) };
        assert_eq!(rebuild(5, &[lines(7..=8)]), Err(hole));
        let overlap = RebuildError::Overlap { found: Position(3), end: Position(4) };
        assert_eq!(rebuild(0, &[lines(1..=4), lines(3..=5)]), Err(overlap));
    }

    #[test]
    fn a_whole_line_that_is_no_entry_is_an_error_and_not_the_end() {
        let mut bytes = lines(1..=1);
        write_line(Position(2), &"text", &mut bytes);
        assert!(matches!(rebuild(0, &[bytes]), Err(RebuildError::Entry { position: Position(2), .. })));
    }
}
