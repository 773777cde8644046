//! Puts a partition together again from what its files hold after a start.
//!
//! The edges (and the simulator) read files, cut each at its last whole batch and feed the batches in here, oldest
//! first. A start never appends to a segment it found, so every segment has one leader epoch, the one in its name; of
//! one that was cleaned the edge knows the epochs that it was made of, and hands the whole history over.

use super::{EpochHistory, Recovered, Segment, SegmentId};
use crate::batch::{BatchHeader, ControlRecord};
use crate::ids::{Offset, TimestampMs};
use crate::producers::{AbortedTxn, Producers};

/// A partition being put together.
#[derive(Debug)]
pub struct Rebuild {
    segments: Vec<Segment>,
    epochs: EpochHistory,
    producers: Producers,
}

impl Rebuild {
    /// Starts from a snapshot of the producers; it knows which records it covers.
    #[must_use]
    pub fn new(producers: Producers) -> Self {
        Self { segments: Vec::new(), epochs: EpochHistory::default(), producers }
    }

    /// End of what was fed so far.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.segments.last().map_or(Offset(0), |segment| segment.next_offset())
    }

    /// Takes in a segment whose index is trusted; its batches need not be fed unless the producers lack them.
    pub fn segment(&mut self, segment: Segment) {
        assert!(self.end() <= segment.id.base, "segments come oldest first and do not overlap");
        if segment.bytes() > 0 {
            self.epochs.appended(segment.id.epoch, segment.id.base);
        }
        self.segments.push(segment);
    }

    /// Starts a segment whose batches are fed one by one.
    pub fn begin(&mut self, id: SegmentId, opened_at: TimestampMs) {
        self.segment(Segment::new(id, opened_at));
    }

    /// Takes in the next batch of the segment that was begun last.
    pub fn batch(&mut self, header: &BatchHeader, control: Option<ControlRecord>) {
        let segment = self.segments.last_mut().expect("a segment was begun");
        if segment.bytes() == 0 {
            self.epochs.appended(segment.id.epoch, header.base_offset);
        }
        segment.grow(header.next_offset(), header.total_bytes(), header.newest_timestamp());
        if let Some(aborted) = self.replay(header, control) {
            self.segments.last_mut().expect("a segment was begun").aborted.push(aborted);
        }
    }

    /// Feeds only the producers: for batches of a trusted segment that no snapshot covers. Gives what a marker aborted.
    pub fn replay(&mut self, header: &BatchHeader, control: Option<ControlRecord>) -> Option<AbortedTxn> {
        self.producers.replay(header, control)
    }

    /// The partition; what lies below `log_start` was deleted before.
    #[must_use]
    pub fn finish(self, log_start: Offset) -> Recovered {
        let first = self.segments.first().map_or(log_start, |segment| segment.id.base);
        Recovered {
            segments: self.segments,
            producers: self.producers,
            log_start: log_start.max(first),
            epochs: self.epochs,
            cleaned_to: Offset(0),
        }
    }
}
