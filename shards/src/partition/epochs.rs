//! First offset of each leader epoch that wrote to a partition: what OffsetForLeaderEpoch and truncation checks ask.
//!
//! Owned by the partition, derived from the batches of the log, so it survives whatever the log survives.

use crate::ids::{LeaderEpoch, Offset};

/// End of an epoch, as K23 answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// Largest epoch with records that is at most the one asked for; -1 if none.
    pub epoch: LeaderEpoch,
    /// First offset after it; -1 if none.
    pub end: Offset,
}

/// The history, oldest first, both columns strictly ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochHistory {
    starts: Vec<(LeaderEpoch, Offset)>,
}

impl EpochHistory {
    /// A history that was kept, oldest first.
    #[must_use]
    pub fn of(starts: Vec<(LeaderEpoch, Offset)>) -> Self {
        assert!(starts.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "epochs ascend");
        Self { starts }
    }

    /// Notes that `epoch` wrote a batch at `base`.
    pub fn appended(&mut self, epoch: LeaderEpoch, base: Offset) {
        match self.starts.last() {
            Some(&(last, _)) if last == epoch => {}
            Some(&(last, start)) => {
                assert!(last < epoch && start < base, "epochs ascend: {epoch} at {base} after {last} at {start}");
                self.starts.push((epoch, base));
            }
            None => self.starts.push((epoch, base)),
        }
    }

    /// The newest epoch that wrote.
    #[must_use]
    pub fn last(&self) -> Option<(LeaderEpoch, Offset)> {
        self.starts.last().copied()
    }

    /// All of them, oldest first.
    #[must_use]
    pub fn all(&self) -> &[(LeaderEpoch, Offset)] {
        &self.starts
    }

    /// The epoch that wrote the record at `offset`.
    #[must_use]
    pub fn at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.starts.partition_point(|&(_, start)| start <= offset);
        if after == 0 { None } else { Some(self.starts[after - 1].0) }
    }

    /// Where `asked` ends (K23.4 to K23.6); `current` is the leader's epoch and `end` the end of its log.
    #[must_use]
    pub fn end_of(&self, asked: LeaderEpoch, current: LeaderEpoch, end: Offset) -> EpochEnd {
        let unknown = EpochEnd { epoch: LeaderEpoch(-1), end: Offset(-1) };
        if asked.0 < 0 || asked > current {
            return unknown;
        }
        if asked == current {
            return EpochEnd { epoch: current, end };
        }
        let after = self.starts.partition_point(|&(epoch, _)| epoch <= asked);
        let end = self.starts.get(after).map_or(end, |&(_, start)| start);
        match after.checked_sub(1) {
            Some(at) => EpochEnd { epoch: self.starts[at].0, end },
            None => EpochEnd { epoch: asked, end },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> EpochHistory {
        let mut history = EpochHistory::default();
        for (epoch, base) in [(2, 0), (2, 5), (4, 10), (7, 30)] {
            history.appended(LeaderEpoch(epoch), Offset(base));
        }
        history
    }

    fn end_of(asked: i32) -> (i32, i64) {
        let end = history().end_of(LeaderEpoch(asked), LeaderEpoch(9), Offset(40));
        (end.epoch.0, end.end.0)
    }

    #[test]
    fn k23_4_the_current_epoch_ends_at_the_log_end() {
        assert_eq!(end_of(9), (9, 40));
        let empty = EpochHistory::default().end_of(LeaderEpoch(3), LeaderEpoch(3), Offset(0));
        assert_eq!(empty, EpochEnd { epoch: LeaderEpoch(3), end: Offset(0) });
    }

    #[test]
    fn k23_5_an_epoch_ends_where_the_next_begins() {
        assert_eq!(end_of(2), (2, 10));
        assert_eq!(end_of(3), (2, 10), "between two: the one below");
        assert_eq!(end_of(4), (4, 30));
        assert_eq!(end_of(8), (7, 40), "written last, the current one wrote nothing yet");
    }

    #[test]
    fn k23_6_unknown_epochs_have_no_end() {
        assert_eq!(end_of(-1), (-1, -1));
        assert_eq!(end_of(10), (-1, -1));
    }

    #[test]
    fn a_record_belongs_to_the_epoch_that_wrote_it() {
        assert_eq!(history().at(Offset(9)), Some(LeaderEpoch(2)));
        assert_eq!(history().at(Offset(10)), Some(LeaderEpoch(4)));
    }
}
