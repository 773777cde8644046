//! What one slot has decided and not yet made durable, and how far its journal has grown.
//!
//! Owned by the slot. Entries become lines at once, so what a write carries is what was decided, in its order. One
//! write is in flight at a time; what is appended meanwhile goes out together with the next one (group commit).
//! Failure: a failed write takes the journal offline for good. Entries are dropped from then on and `durable` stays
//! where it is, so nothing that waits for it is acknowledged.

use serde::Serialize;

use super::Position;
use super::line::write_line;
use crate::limits::{SLOT_BUFFER_BYTES_MAX, SLOT_JOURNAL_BYTES_MAX, SLOT_WRITE_BYTES_MAX};

/// One write: whole lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalWrite {
    /// The lines.
    pub bytes: Vec<u8>,
    /// Position of the last of them.
    pub end: Position,
    /// Whether they begin a new journal file, because a checkpoint was started since the write before.
    pub roll: bool,
}

/// A checkpoint that is being written.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// Journal bytes that are not needed any more when it is durable.
    covered_bytes: u64,
}

/// The journal of one slot; the default is that of a slot without entries.
#[derive(Debug, Default)]
pub struct Journal {
    /// Lines of the entries after `taken`.
    pending: Vec<u8>,
    /// The buffer of an earlier write, to be used again.
    spare: Vec<u8>,
    end: Position,
    /// Last entry that a write has carried.
    taken: Position,
    durable: Position,
    has_writer: bool,
    is_writing: bool,
    is_offline: bool,
    roll: bool,
    journal_bytes: u64,
    checkpoint_bytes: u64,
    checkpoint: Option<Checkpoint>,
    /// Journal bytes below which no checkpoint is tried again after one has failed.
    retry_bytes: u64,
}

impl Journal {
    /// The journal of a slot whose files hold everything up to `end`: a checkpoint of so many bytes, and so many bytes
    /// of lines that it does not cover.
    #[must_use]
    pub fn recovered(end: Position, checkpoint_bytes: u64, journal_bytes: u64) -> Self {
        Self { end, taken: end, durable: end, checkpoint_bytes, journal_bytes, ..Self::default() }
    }

    /// Adds an entry; it is durable when [`Journal::durable`] has reached the position returned.
    pub fn append<E: Serialize>(&mut self, entry: &E) -> Position {
        self.end = self.end.next();
        if !self.is_offline {
            write_line(self.end, entry, &mut self.pending);
        }
        self.end
    }

    /// Position of the last entry.
    #[must_use]
    pub fn end(&self) -> Position {
        self.end
    }

    /// Position up to which everything is durable.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// Whether a writer has to be started: something is pending and none is at work. Answered once for each writer.
    pub fn take_writer(&mut self) -> bool {
        let wanted = !self.has_writer && !self.pending.is_empty();
        self.has_writer |= wanted;
        wanted
    }

    /// The next write: everything pending that fits one. With `None` the writer ends.
    ///
    /// # Panics
    /// If the write before it has not been reported.
    pub fn take_write(&mut self) -> Option<JournalWrite> {
        assert!(!self.is_writing, "one write at a time");
        if self.pending.is_empty() {
            self.has_writer = false;
            return None;
        }
        let spare = std::mem::take(&mut self.spare);
        let mut bytes = std::mem::replace(&mut self.pending, spare);
        self.taken = self.end;
        if bytes.len() > SLOT_WRITE_BYTES_MAX {
            let at = split_at(&bytes);
            self.pending.extend_from_slice(&bytes[at..]);
            bytes.truncate(at);
            let left = self.pending.iter().filter(|byte| **byte == b'\n').count();
            self.taken = Position(self.end.0 - left as u64);
        }
        self.is_writing = true;
        self.journal_bytes += bytes.len() as u64;
        Some(JournalWrite { bytes, end: self.taken, roll: std::mem::take(&mut self.roll) })
    }

    /// Takes back the buffer of a write that is done, for later entries.
    pub fn reuse(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if buffer.capacity() <= SLOT_BUFFER_BYTES_MAX && buffer.capacity() > self.spare.capacity() {
            self.spare = buffer;
        }
    }

    /// The write in flight is durable.
    ///
    /// # Panics
    /// If there is none.
    pub fn wrote(&mut self) {
        assert!(self.is_writing, "a write is reported once");
        self.is_writing = false;
        self.durable = self.taken;
    }

    /// A write has failed: nothing becomes durable any more.
    pub fn fail(&mut self) {
        self.is_writing = false;
        self.has_writer = false;
        self.is_offline = true;
        self.pending = Vec::new();
        self.spare = Vec::new();
    }

    /// Whether a write has failed.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// Whether the journal has outgrown what a checkpoint would cost, and none is being written.
    #[must_use]
    pub fn checkpoint_due(&self) -> bool {
        let is_large = self.journal_bytes > self.journal_bytes_max().max(self.retry_bytes);
        is_large && self.checkpoint.is_none() && !self.is_offline
    }

    /// Size to which the journal grows before it is replaced by a checkpoint.
    #[must_use]
    pub fn journal_bytes_max(&self) -> u64 {
        SLOT_JOURNAL_BYTES_MAX.max(self.checkpoint_bytes.saturating_mul(2))
    }

    /// A checkpoint of the slot as it is now begins to be written; returns the position that it covers. The next write
    /// begins a new journal file. Lines up to that position may still follow in it; the ones before it hold none
    /// beyond, so they can go when the checkpoint is durable.
    ///
    /// # Panics
    /// If a write is in flight, whose file would be among those, or another checkpoint.
    pub fn checkpoint_started(&mut self) -> Position {
        assert!(!self.is_writing, "a checkpoint starts between two writes");
        assert!(self.checkpoint.is_none(), "one checkpoint at a time");
        self.checkpoint = Some(Checkpoint { covered_bytes: self.journal_bytes });
        self.roll = true;
        self.end
    }

    /// The checkpoint is durable and has so many bytes.
    ///
    /// # Panics
    /// If none was started.
    pub fn checkpointed(&mut self, bytes: u64) {
        let checkpoint = self.checkpoint.take().expect("a checkpoint was started");
        self.journal_bytes -= checkpoint.covered_bytes;
        self.checkpoint_bytes = bytes;
        self.retry_bytes = 0;
    }

    /// The checkpoint could not be written: the journals stay, and another one is due when they have grown as much
    /// again.
    ///
    /// # Panics
    /// If none was started.
    pub fn checkpoint_failed(&mut self) {
        self.checkpoint.take().expect("a checkpoint was started");
        self.retry_bytes = self.journal_bytes.saturating_add(self.journal_bytes_max());
    }
}

/// Where the lines of one write end: the last end of a line within the bound, or that of the first line.
fn split_at(bytes: &[u8]) -> usize {
    let within = bytes[..SLOT_WRITE_BYTES_MAX].iter().rposition(|byte| *byte == b'\n');
    let first =
        || SLOT_WRITE_BYTES_MAX + bytes[SLOT_WRITE_BYTES_MAX..].iter().position(|b| *b == b'\n').expect("lines");
    within.unwrap_or_else(first) + 1
}
