//! Offset commits of transactions that wait for their coordinator.
//!
//! A transaction may end while its commit is on the way back from the coordinator: the group's shard then has the end
//! before the offsets, which would stay pending for ever. So a commit is known here while it is in flight, and an end
//! revokes those it would have ended, as it does the batches that Kafka guards (contract A4, C4.5).
//! Limit: one commit for each connection.

use std::cell::{Cell, RefCell};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oncilla_shards::txn::{Identity, OffsetsHook, ends};

#[derive(Debug)]
struct Commit {
    producer: Identity,
    group: String,
    is_revoked: bool,
}

/// The commits of one shard.
#[derive(Debug, Default)]
pub struct CommitsInFlight {
    commits: RefCell<HashMap<u64, Commit, FixedState>>,
    next: Cell<u64>,
}

/// One commit in flight, until dropped.
#[derive(Debug)]
pub struct InFlight<'a> {
    all: &'a CommitsInFlight,
    number: u64,
}

impl CommitsInFlight {
    /// A commit sets out to its coordinator.
    pub fn begin(&self, producer: Identity, group: &str) -> InFlight<'_> {
        let number = self.next.get();
        self.next.set(number + 1);
        let commit = Commit { producer, group: group.to_owned(), is_revoked: false };
        self.commits.borrow_mut().insert(number, commit);
        InFlight { all: self, number }
    }

    /// A transaction ends at some groups.
    pub fn revoke(&self, hook: &OffsetsHook) {
        let marker = hook.producer;
        for commit in self.commits.borrow_mut().values_mut() {
            let is_of = commit.producer.producer_id == marker.producer_id;
            let is_over = ends(marker.epoch, hook.version, commit.producer.epoch);
            commit.is_revoked |= is_of && is_over && hook.groups.iter().any(|group| **group == *commit.group);
        }
    }
}

impl InFlight<'_> {
    /// Whether its transaction has ended meanwhile.
    pub fn is_revoked(&self) -> bool {
        self.all.commits.borrow().get(&self.number).is_none_or(|commit| commit.is_revoked)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.all.commits.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use oncilla_shards::ids::{ProducerEpoch, ProducerId, ShardId};
    use oncilla_shards::txn::{Outcome, TxnKey};

    use super::*;

    fn producer(id: i64, epoch: i16) -> Identity {
        Identity { producer_id: ProducerId(id), epoch: ProducerEpoch(epoch) }
    }

    fn end(producer: Identity, version: i8) -> OffsetsHook {
        OffsetsHook {
            to: ShardId(0),
            txn: TxnKey { id: "t".into(), sequence: 1 },
            producer,
            outcome: Outcome::Commit,
            version,
            groups: vec!["a".into(), "b".into()],
        }
    }

    #[test]
    fn c4_5_an_end_revokes_the_commits_of_its_transaction_and_no_others() {
        let all = CommitsInFlight::default();
        let (mine, older) = (all.begin(producer(1, 3), "b"), all.begin(producer(1, 2), "a"));
        let others = [all.begin(producer(2, 3), "a"), all.begin(producer(1, 3), "c"), all.begin(producer(1, 4), "a")];
        all.revoke(&end(producer(1, 3), 2));
        assert!(older.is_revoked() && !mine.is_revoked(), "path B: its own epoch is the next transaction's");
        all.revoke(&end(producer(1, 3), 0));
        assert!(mine.is_revoked() && others.iter().all(|other| !other.is_revoked()));
        let last = all.begin(producer(1, i16::MAX), "a");
        all.revoke(&end(producer(1, i16::MAX), 2));
        assert!(last.is_revoked(), "behind the last epoch comes another producer id");
        drop((mine, older, others, last));
        assert!(all.commits.borrow().is_empty());
    }
}
