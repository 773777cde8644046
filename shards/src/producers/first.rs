//! Producers whose first batch was turned away and comes again.
//!
//! A producer has up to five batches under way, and while a partition is being opened the first of them may be refused
//! and the second find the partition open. A producer that nobody remembers may begin anywhere (contract A5.6): its
//! second batch would be taken before the first, whose sequence is then out of order for good. And one that is
//! remembered may send again what was written before the start: with what is taken behind that, over a second crash,
//! it would leave the window of five. So a producer that was refused begins with the batch that was refused first, at
//! that epoch; what comes before it is out of order.
//!
//! Limits: `limits::FIRST_BATCHES_MAX` producers of a partition, about 40 bytes each; those beyond begin where they
//! like.

use std::collections::BTreeMap;

use crate::batch::BatchHeader;
use crate::ids::{ProducerEpoch, ProducerId, Sequence};
use crate::limits::FIRST_BATCHES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct First {
    epoch: ProducerEpoch,
    sequence: Sequence,
}

/// Where producers have to begin.
#[derive(Clone, Debug, Default)]
pub struct FirstBatches(BTreeMap<ProducerId, First>);

impl FirstBatches {
    /// A batch was refused that its producer will send again.
    pub fn refused(&mut self, header: &BatchHeader) {
        if !header.is_idempotent() {
            return;
        }
        let first = First { epoch: header.producer_epoch, sequence: header.base_sequence };
        let is_full = self.0.len() >= FIRST_BATCHES_MAX;
        match self.0.get_mut(&header.producer_id) {
            Some(known) if known.epoch < first.epoch => *known = first,
            None if !is_full => drop(self.0.insert(header.producer_id, first)),
            _ => {}
        }
    }

    /// Whether this batch may come now.
    #[inline]
    #[must_use]
    pub(super) fn admits(&self, header: &BatchHeader) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let first = self.0.get(&header.producer_id).filter(|first| first.epoch == header.producer_epoch);
        first.is_none_or(|first| first.sequence == header.base_sequence)
    }

    /// The producer has begun.
    pub(super) fn begun(&mut self, producer_id: ProducerId) {
        self.0.remove(&producer_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchBuilder;

    fn header(producer_id: i64, epoch: i16, sequence: i32) -> BatchHeader {
        let batch = BatchBuilder::new().producer(producer_id, epoch, sequence).record(None, Some(b"v")).build();
        BatchHeader::parse(&batch).expect("whole")
    }

    #[test]
    fn the_first_batch_of_the_newest_epoch_is_where_a_producer_begins() {
        let mut first = FirstBatches::default();
        for (epoch, sequence) in [(0, 7), (0, 8), (1, 0), (1, 2), (0, 9)] {
            first.refused(&header(5, epoch, sequence));
        }
        assert!(first.admits(&header(5, 1, 0)) && !first.admits(&header(5, 1, 2)));
        assert!(
            first.admits(&header(5, 0, 9)) && first.admits(&header(5, 2, 4)),
            "other epochs have rules of their own"
        );
        assert!(first.admits(&header(6, 1, 2)));
        first.begun(ProducerId(5));
        assert!(first.admits(&header(5, 1, 2)));
    }

    #[test]
    fn producers_beyond_the_limit_begin_where_they_like() {
        let mut first = FirstBatches::default();
        let beyond = FIRST_BATCHES_MAX as i64;
        (0..=beyond).for_each(|producer_id| first.refused(&header(producer_id, 0, 1)));
        assert!(!first.admits(&header(beyond - 1, 0, 2)) && first.admits(&header(beyond, 0, 2)));
    }
}
