//! The look that partitions take again and again at what has been open in them for long: a transaction that nobody will
//! ever end holds back every read_committed reader behind it, so it is found and aborted.
//!
//! It should never find one. It is the net under what is not known to be wrong: each partition says what is open since
//! before its last look, all coordinators say whether they know it, and what none knows gets an abort marker.
//! A transaction that a coordinator knows must never be hit, also while it is being added and while it ends:
//! - Adds are decided before the write that they are for begins, and coordinators answer by what is *decided*, so what
//!   is open in a partition was known before. It is forgotten by Complete* alone, which stands behind the marker in
//!   this partition. So whatever is open is known, unless its answer crosses with its end.
//! - The answer may be old when it arrives: the transaction has ended, and the next one, at the same epoch on path A,
//!   is open in the partition and was not known when the coordinator was asked. It has another first offset. The marker
//!   is therefore written only if the same transaction is still open, which is seen in the same turn as the append.
//! - A lost transaction may be taken for its own by the next one of its producer, whose add comes behind the answer and
//!   whose records join what is open. So it must not have grown since it was asked about, either: then every record of
//!   it was written before the question, and its add, if there is one, is behind it and known by it. A transaction that
//!   has grown is asked about at the next look.
//! - At the epoch that is open at the coordinator the partition may be added at any time: it is left alone, although it
//!   is not in the transaction yet.
//! - A coordinator whose disk failed cannot say what it will know after the next start. As long as there is one,
//!   nothing is given up. What a start has in doubt is settled by `Adopt`.
//!
//! Limits: `TXN_LOOK_PARTITIONS_MAX` partitions and about `TXN_LOOK_OPEN_MAX` transactions a turn; of one partition the
//! oldest, which are those that hold readers back. A coordinator goes through its open transactions for each question.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::Transactions;
use super::ask::Identity;
use super::slot::{Id, Slot};
use super::state::State;
use crate::ids::{Offset, PartitionKey, ProducerId};

/// A transaction that is open in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTxn {
    /// Where.
    pub partition: PartitionKey,
    /// Whose.
    pub producer: Identity,
    /// Offset of its first record there.
    pub first: Offset,
    /// Offset of the last record of its producer there.
    pub last: Offset,
}

/// What no coordinator knows, by the answers of all shards to [`Transactions::knows`]: none if one of them cannot tell.
#[must_use]
pub fn unknown_to_all(asked: &[OpenTxn], answers: &[Option<Vec<bool>>]) -> Vec<OpenTxn> {
    let Some(answers) = answers.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else { return Vec::new() };
    let is_known = |place: usize| answers.iter().any(|known| known[place]);
    asked.iter().enumerate().filter(|(place, _)| !is_known(*place)).map(|(_, open)| *open).collect()
}

impl Transactions {
    /// Which of them a marker may come for, as far as this shard can tell; `None` if it cannot.
    #[must_use]
    pub fn knows(&self, asked: &[OpenTxn]) -> Option<Vec<bool>> {
        if self.slots.values().any(|slot| slot.journal.is_offline()) {
            return None;
        }
        let mut places: HashMap<ProducerId, Vec<usize>, FixedState> = HashMap::default();
        for (place, open) in asked.iter().enumerate() {
            places.entry(open.producer.producer_id).or_default().push(place);
        }
        let mut known = vec![false; asked.len()];
        for id in self.slots.values().flat_map(Slot::unfinished) {
            let own = id.latest.as_ref().and_then(|head| places.get(&head.producer_id));
            for place in own.into_iter().flatten() {
                known[*place] |= id.may_end(&asked[*place]);
            }
        }
        Some(known)
    }
}

impl Id {
    /// Whether its transaction has the partition, or may still get it.
    fn may_end(&self, open: &OpenTxn) -> bool {
        let Some(head) = &self.latest else { return false };
        let is_open = head.state == State::Ongoing || head.state.completing().is_some();
        is_open && (self.members.partitions.contains_key(&open.partition) || head.epoch <= open.producer.epoch)
    }
}
