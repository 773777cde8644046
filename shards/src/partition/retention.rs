//! The old end of a partition: where DeleteRecords and retention let the log start, and which segments go with it.
//!
//! Owned by the partition. Only decides: the edges make a new log start durable before they report it here, and remove
//! files after.

use super::{Partition, SegmentId};
use crate::code::ErrorCode;
use crate::ids::{Offset, TimestampMs};

impl Partition {
    /// Where the log would start after DeleteRecords up to `offset`, -1 meaning the high watermark.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE above the high watermark or below -1 (K21.5).
    pub fn delete_target(&self, offset: Offset) -> Result<Offset, ErrorCode> {
        let target = if offset.0 == -1 { self.high_watermark } else { offset };
        if target.0 < 0 || target > self.high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        Ok(target.max(self.log_start))
    }

    /// Moves the log start up to `start`, which is durable as such; returns the segments whose files may go.
    pub fn set_log_start(&mut self, start: Offset) -> Vec<SegmentId> {
        assert!(start <= self.high_watermark, "only durable records are deleted");
        self.log_start = self.log_start.max(start);
        self.producers.log_start_moved(self.log_start);
        self.segments.drop_below(self.log_start)
    }

    /// Where retention by age and size wants the log to start; `None` if nothing may go.
    ///
    /// Whole segments go, oldest first; the active one goes with the rest when all its records are too old.
    #[must_use]
    pub fn retention_target(&self, now: TimestampMs) -> Option<Offset> {
        if !self.rules.deletes {
            return None;
        }
        let mut bytes_left = self.segments.bytes();
        let mut target = None;
        for segment in self.segments.all() {
            let is_active = self.segments.active().is_some_and(|active| active.id == segment.id);
            let newest = segment.max_timestamp().filter(|newest| newest.0 >= 0).unwrap_or(segment.opened_at);
            let aged = self.rules.retention_ms >= 0 && now.0 - newest.0 > self.rules.retention_ms;
            let limit = self.rules.retention_bytes;
            let surplus = limit >= 0 && !is_active && bytes_left - segment.bytes() >= limit as u64;
            let busy = is_active && (self.in_flight.is_some() || !self.pending.is_empty());
            if segment.bytes() == 0 || busy || !(aged || surplus) {
                break;
            }
            bytes_left -= segment.bytes();
            target = Some(segment.next_offset());
        }
        target.filter(|target| *target > self.log_start)
    }

    /// Closes the active segment when a retention target or the end of serving asks for it; returns its name.
    ///
    /// # Panics
    /// If a write is in flight.
    pub fn close_active(&mut self) -> Option<SegmentId> {
        assert!(self.in_flight.is_none(), "a write is in flight");
        let id = self.segments.active().map(|active| active.id);
        self.segments.close();
        id
    }
}
