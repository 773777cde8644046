//! What a consumer sees of transactions, and the filter for aborted ones that the protocol leaves to clients.

use std::collections::BTreeSet;

use oncilla_shards::batch::{BatchHeader, ControlKind, ControlRecord};

/// Which records of transactions are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All, also of transactions that are open or were aborted.
    Uncommitted,
    /// Those of committed transactions; nothing behind one that is open.
    #[default]
    Committed,
}

impl Isolation {
    /// As Fetch and ListOffsets name it.
    #[must_use]
    pub fn wire(self) -> i8 {
        match self {
            Self::Uncommitted => 0,
            Self::Committed => 1,
        }
    }
}

/// The aborted transactions of one partition's part of an answer.
#[derive(Debug, Default)]
pub(super) struct Aborted {
    /// First offset and producer id, the last one first.
    coming: Vec<(i64, i64)>,
    producers: BTreeSet<i64>,
}

impl Aborted {
    /// First offsets and producer ids, as the answer lists them.
    pub fn new(listed: impl Iterator<Item = (i64, i64)>) -> Self {
        let mut coming: Vec<_> = listed.collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        Self { coming, producers: BTreeSet::new() }
    }

    /// Whether a batch is of an aborted transaction. Every batch of the answer is asked about, in their order: a marker
    /// ends its producer's transaction.
    pub fn hides(&mut self, header: &BatchHeader, batch: &[u8]) -> bool {
        let last = header.last_offset().0;
        while let Some((_, producer)) = self.coming.pop_if(|(first, _)| *first <= last) {
            self.producers.insert(producer);
        }
        let producer = header.producer_id.0;
        if header.attributes.is_control() {
            if ControlRecord::of_batch(batch).is_some_and(|record| record.kind == ControlKind::Abort) {
                self.producers.remove(&producer);
            }
            return true;
        }
        header.attributes.is_transactional() && self.producers.contains(&producer)
    }
}

#[cfg(test)]
mod tests {
    use oncilla_shards::batch::build::control_batch;
    use oncilla_shards::batch::{BatchBuilder, TimestampType};
    use oncilla_shards::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};

    use super::*;

    fn hidden(aborted: &mut Aborted, batch: &[u8]) -> bool {
        aborted.hides(&BatchHeader::parse(batch).expect("a batch"), batch)
    }

    fn data(offset: i64, producer: i64) -> Vec<u8> {
        let batch = BatchBuilder::new().base_offset(Offset(offset)).producer(producer, 0, 0);
        if producer < 0 { batch.records(1).build() } else { batch.transactional().records(1).build() }
    }

    fn marker(producer: i64, kind: ControlKind) -> Vec<u8> {
        let record = ControlRecord { kind, coordinator_epoch: 0 };
        control_batch(ProducerId(producer), ProducerEpoch(0), record, TimestampMs(0), TimestampType::CreateTime)
    }

    #[test]
    fn an_aborted_transaction_is_hidden_up_to_its_marker_and_others_are_not() {
        let mut aborted = Aborted::new([(4, 7), (0, 7)].into_iter());
        assert!(hidden(&mut aborted, &data(0, 7)));
        assert!(!hidden(&mut aborted, &data(1, 8)), "another producer");
        assert!(!hidden(&mut aborted, &data(2, -1)), "no transaction");
        assert!(hidden(&mut aborted, &marker(7, ControlKind::Abort)), "markers are never data");
        assert!(!hidden(&mut aborted, &data(3, 7)), "its next transaction");
        assert!(hidden(&mut aborted, &data(4, 7)), "the one after it");
    }
}
