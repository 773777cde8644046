//! Reading ahead for consumers that catch up: what to read before it is asked for.
//!
//! A consumer behind the tail cache asks for a partition from where its last answer ended, again and again. Without
//! this the disk rests while an answer travels, and the consumer waits while the disk reads. A reader is known by the
//! partition and the offset at which it will go on, whoever it is. Its first read is only remembered; from the second
//! on, the read after it is made while its answer is on its way. Looking up single records costs no read more.
//!
//! What is remembered is also where in the file it goes on. The index would only tell a batch before that one, so that
//! of batches of 1 MiB each answer would cost three of them: the one before, a piece of the right one, then all of it.
//!
//! Owner: the shard; the edges read and report. Limits: `bytes_max` for what is in work or waits to be asked for, and
//! [`READERS_FOLLOWED_MAX`] readers. At either, what nobody asked for in [`STALE_MS`] makes room; if there is no such
//! thing nothing more is read ahead, for among readers that are all alive each would only push out another's.
//! Failure: a read that fails is forgotten, and the consumer's own read meets the error.

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::ids::{Offset, PartitionKey, TimestampMs};
use crate::limits::READERS_FOLLOWED_MAX;
use crate::partition::SegmentId;

/// What was read ahead and not asked for since may make room for others.
pub const STALE_MS: i64 = 2_000;

/// Where a reader goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    /// The partition.
    pub partition: PartitionKey,
    /// First offset that it has not got.
    pub next: Offset,
}

/// Bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The segment; its name never stands for two contents.
    pub segment: SegmentId,
    /// Where they start: at a batch.
    pub position: u64,
    /// How many.
    pub bytes: usize,
}

/// What there is for a read that is due now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing, and no answer ended here.
    Unknown,
    /// Nothing, but an answer ended here: a reader goes on, at the start of this span if that is known.
    Follows(Option<Span>),
    /// It is being read: ask again when a read has ended.
    InWork,
    /// The bytes from the start of the span on. They are handed out once.
    Ready(Bytes, Span),
}

/// A read that was allowed; to be given back with [`ReadAhead::ended`], whatever became of it.
#[must_use]
#[derive(Debug)]
pub struct Ticket {
    reader: Reader,
    span: Span,
    number: u64,
}

impl Ticket {
    /// What to read.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }
}

#[derive(Debug)]
enum Stage {
    Followed,
    InWork { number: u64 },
    Ready(Bytes),
}

#[derive(Debug)]
struct Followed {
    stage: Stage,
    /// What it reads next.
    span: Span,
    since: TimestampMs,
}

/// The readers of one shard that are behind the tail cache.
#[derive(Debug)]
pub struct ReadAhead {
    bytes_max: usize,
    bytes_held: usize,
    bytes_wasted: u64,
    tickets: u64,
    readers: HashMap<Reader, Followed, FixedState>,
}

impl ReadAhead {
    /// Nobody is followed yet. With `bytes_max` of 0 nothing is read ahead, and where readers go on is still known.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes_held: 0, bytes_wasted: 0, tickets: 0, readers: HashMap::default() }
    }

    /// Bytes that are being read or wait to be asked for.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        self.bytes_held
    }

    /// Bytes that were read and never asked for, since the start.
    #[must_use]
    pub fn bytes_wasted(&self) -> u64 {
        self.bytes_wasted
    }

    /// Looks for what `reader` is about to read; `wanted` is what the index tells of it. What was read for another
    /// plan, because segments were exchanged meanwhile, is dropped.
    pub fn find(&mut self, reader: Reader, wanted: Span) -> Found {
        let Some(followed) = self.readers.get(&reader) else { return Found::Unknown };
        let span = followed.span;
        let fits = span.segment == wanted.segment && span.position >= wanted.position;
        if fits && matches!(followed.stage, Stage::InWork { .. }) {
            return Found::InWork;
        }
        // The bytes of one in work are held until its ticket comes back.
        if let Some(Followed { stage: Stage::Ready(bytes), .. }) = self.readers.remove(&reader) {
            self.bytes_held -= bytes.len();
            if fits {
                return Found::Ready(bytes, span);
            }
            self.bytes_wasted += bytes.len() as u64;
        }
        Found::Follows(fits.then_some(span))
    }

    /// A reader was answered up to `reader.next` and will read `then`, which starts at the batch there. With a ticket
    /// it is to be read now, which is wanted only where the answered read followed another.
    pub fn answered(&mut self, reader: Reader, then: Span, is_wanted: bool, now: TimestampMs) -> Option<Ticket> {
        if self.readers.contains_key(&reader) {
            return None;
        }
        if self.readers.len() >= READERS_FOLLOWED_MAX
            && !self.drop_oldest(now, |stage| !matches!(stage, Stage::InWork { .. }))
        {
            return None;
        }
        let ticket = (is_wanted && self.has_room(then.bytes, now)).then(|| {
            self.bytes_held += then.bytes;
            self.tickets += 1;
            Ticket { reader, span: then, number: self.tickets }
        });
        let stage = ticket.as_ref().map_or(Stage::Followed, |ticket| Stage::InWork { number: ticket.number });
        self.readers.insert(reader, Followed { stage, span: then, since: now });
        ticket
    }

    /// A read has ended, with its bytes or without.
    pub fn ended(&mut self, ticket: Ticket, read: Option<Bytes>, now: TimestampMs) {
        let Ticket { reader, span, number } = ticket;
        self.bytes_held -= span.bytes;
        let followed = self.readers.get_mut(&reader);
        let waiting = followed.filter(|f| matches!(f.stage, Stage::InWork { number: of } if of == number));
        match (waiting, read) {
            (Some(followed), Some(bytes)) => {
                assert!(bytes.len() <= span.bytes, "{} bytes of {span:?} were read", bytes.len());
                self.bytes_held += bytes.len();
                *followed = Followed { stage: Stage::Ready(bytes), span, since: now };
            }
            (Some(followed), None) => followed.stage = Stage::Followed,
            (None, Some(bytes)) => self.bytes_wasted += bytes.len() as u64,
            (None, None) => {}
        }
    }

    fn has_room(&mut self, bytes: usize, now: TimestampMs) -> bool {
        while self.bytes_held + bytes > self.bytes_max {
            if !self.drop_oldest(now, |stage| matches!(stage, Stage::Ready(_))) {
                return false;
            }
        }
        bytes > 0
    }

    /// Drops the reader that waits longest among those of a stage; false if none of them is stale. A look at all of
    /// them is little beside the read that it makes room for.
    fn drop_oldest(&mut self, now: TimestampMs, may_go: impl Fn(&Stage) -> bool) -> bool {
        let candidates = self.readers.iter().filter(|(_, followed)| may_go(&followed.stage));
        let oldest = candidates.min_by_key(|(reader, followed)| (followed.since, reader.partition, reader.next));
        let Some((&reader, followed)) = oldest else { return false };
        if now.0 - followed.since.0 < STALE_MS {
            return false;
        }
        if let Some(Followed { stage: Stage::Ready(bytes), .. }) = self.readers.remove(&reader) {
            self.bytes_held -= bytes.len();
            self.bytes_wasted += bytes.len() as u64;
        }
        true
    }
}

#[cfg(test)]
#[path = "read_ahead_tests.rs"]
mod tests;
