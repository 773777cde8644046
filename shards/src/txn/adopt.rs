//! Transactions that a partition or a group finds open when it is loaded.
//!
//! The add of a partition and its first write are made durable at the same time, so a crash can keep the write and
//! lose the add. Nobody was told that the write succeeded, but its producer may still live and send it again, and is
//! then told that it is a duplicate: so it must be in the transaction. It is added late if the id still has the
//! producer at this epoch, and ended by an abort marker at a higher epoch if not.
//!
//! On path A one epoch has many transactions, so a question can cross with the end of the one that it is about. Added
//! then, the partition would open a transaction that nobody knows of, and its timeout would fence an idle producer. So
//! nothing is added on a look from before the last decision: the asker looks again, and what has got its marker
//! meanwhile is not open any more.

use super::ask::{Adopt, Adopted, Identity, Reply};
use super::decision::Decision;
use super::entry::Change;
use super::state::{Head, Members, State};
use crate::ids::{ProducerEpoch, TimestampMs};

/// Whether the answer is known only once the transaction before it is complete: what is open at the epoch that path B
/// gives to the next transaction belongs to that one.
pub(super) fn must_wait(head: &Head, producer: Identity) -> bool {
    head.state.completing().is_some() && head.client_version == 2 && head.next_identity() == producer
}

pub(super) fn decide(head: Option<&Head>, members: &Members, adopt: &Adopt, at: TimestampMs) -> Decision {
    let answer = |adopted| Decision::Answer(Ok(Reply::Adopted(adopted)));
    let Some(head) = head.filter(|head| head.producer_id == adopt.producer.producer_id) else {
        return answer(Adopted::Abort(adopt.producer.epoch));
    };
    let abort = answer(Adopted::Abort(ProducerEpoch(head.epoch.0.max(adopt.producer.epoch.0))));
    let has_all = members.has_all(&adopt.partitions, &adopt.groups);
    match head.state {
        // Its markers are on their way; path B and aborts by the broker took the next epoch.
        State::PrepareCommit | State::PrepareAbort if has_all => answer(Adopted::Yes),
        State::PrepareCommit | State::PrepareAbort => abort,
        _ if head.epoch != adopt.producer.epoch => abort,
        State::Ongoing if has_all => answer(Adopted::Yes),
        _ if adopt.seen != Some(head.sequence) => answer(Adopted::LookAgain(head.sequence)),
        State::Ongoing | State::Empty | State::CompleteCommit | State::CompleteAbort => {
            let members = if head.state == State::Ongoing {
                members.missing(&adopt.partitions, &adopt.groups)
            } else {
                Members::default().missing(&adopt.partitions, &adopt.groups)
            };
            let client_version = head.client_version;
            Decision::record(Change::Add { members, client_version, at }, Reply::Adopted(Adopted::Yes))
        }
    }
}
