//! Transactions of a producer: their states, and the calls of the user that move them (contract D3, D4).
//!
//! A call that runs into `max.block.ms` leaves what it began under way; only the same call may be made again, and it
//! gets the result, also one that came meanwhile. So an EndTxn without an answer is repeated until it has one, and no
//! transaction begins while the fate of the last one is open (cases 143, 144, 147).

use std::collections::{BTreeSet, VecDeque};

use super::error::{ClientFailure, Next, Reason, Written};
use super::lane::LaneId;
use super::machine::Machine;
use super::message::{CallId, GroupMember, OffsetToCommit, OpId};
use super::ops::Kind;

/// Where a transactional producer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Has no producer id.
    New,
    /// Asks for one.
    Initializing,
    /// Between transactions.
    Ready,
    /// In one.
    Open,
    /// Waits for its records, then commits.
    Committing,
    /// Waits for what is under way, then aborts.
    Aborting,
    /// The transaction is over, the next epoch is asked for.
    Bumping { commit: bool },
    /// Something failed: it can only be aborted.
    MustAbort(ClientFailure),
}

/// Offsets that wait to be staged.
#[derive(Debug)]
pub(super) struct PendingOffsets {
    pub member: GroupMember,
    pub offsets: Vec<OffsetToCommit>,
    /// Who coordinates the group, once it is known.
    pub coordinator: Option<i32>,
}

/// The transactional side of a producer.
#[derive(Debug)]
pub(super) struct Txn {
    pub id: String,
    pub state: State,
    /// Protocol of this transaction.
    pub tv2: bool,
    pub coordinator: Option<i32>,
    /// The request to a coordinator that has no answer; there is one at a time.
    pub call: Option<CallId>,
    /// Before this time none is sent.
    pub pause_ms: u64,
    pub attempts: u32,
    /// Partitions that have to be added before they are written to.
    pub to_add: BTreeSet<LaneId>,
    /// Those in the request under way.
    pub adding: Vec<LaneId>,
    pub offsets: VecDeque<PendingOffsets>,
    pub groups: BTreeSet<String>,
    /// Whether the coordinator may know of this transaction: if not, nobody has to be told of its end.
    pub reached: bool,
    /// Whether its end was sent, so that it may have happened.
    pub end_sent: bool,
    /// Whether a request of this transaction may still arrive somewhere.
    pub unsure: bool,
    /// Whether one of them stages offsets.
    pub offsets_unsure: bool,
    /// A result that came when nobody waited.
    pub result: Option<(Kind, Result<(), ClientFailure>)>,
}

impl Txn {
    pub fn new(id: String) -> Self {
        Self {
            id,
            state: State::New,
            tv2: false,
            coordinator: None,
            call: None,
            pause_ms: 0,
            attempts: 0,
            to_add: BTreeSet::new(),
            adding: Vec::new(),
            offsets: VecDeque::new(),
            groups: BTreeSet::new(),
            reached: false,
            end_sent: false,
            unsure: false,
            offsets_unsure: false,
            result: None,
        }
    }

    pub fn is_committing(&self) -> bool {
        self.state == State::Committing
    }

    pub fn takes_records(&self) -> Result<(), ClientFailure> {
        match &self.state {
            State::Open => Ok(()),
            State::MustAbort(failure) => Err(failure.clone()),
            _ => Err(misplaced("a record outside a transaction")),
        }
    }

    /// When it wants to be looked at again.
    pub fn until_ms(&self, now_ms: u64) -> Option<u64> {
        (self.call.is_none() && self.pause_ms > now_ms).then_some(self.pause_ms)
    }
}

fn misplaced(what: &'static str) -> ClientFailure {
    ClientFailure::new(Reason::State(what), Written::No, Next::GoOn)
}

impl Machine {
    /// The transactional side; an error for a producer without one, and for one at its end.
    fn transactional(&mut self) -> Result<&mut Txn, ClientFailure> {
        match (&self.dead, &mut self.txn) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Some(txn)) => Ok(txn),
            (None, None) => Err(misplaced("the producer has no transactional.id")),
        }
    }

    /// Takes the producer id of the transactional id, and with it fences whoever had it before.
    pub fn init_transactions(&mut self, now_ms: u64, op: OpId) {
        self.start(now_ms, op, Kind::Init, |txn| match txn.state {
            State::New | State::Initializing => Ok(State::Initializing),
            _ => Err(misplaced("transactions are initialized already")),
        });
    }

    /// Begins a transaction; tells nobody yet.
    pub fn begin_transaction(&mut self) -> Result<(), ClientFailure> {
        let txn = self.transactional()?;
        match &txn.state {
            State::Ready if txn.result.is_none() => {
                txn.state = State::Open;
                Ok(())
            }
            State::Ready => Err(misplaced("the last transactional call has a result that was not asked for")),
            State::MustAbort(failure) => Err(failure.clone()),
            _ => Err(misplaced("the last transaction is not over, or transactions are not initialized")),
        }
    }

    /// Makes offsets the group's when the transaction commits.
    pub fn send_offsets(&mut self, now_ms: u64, op: OpId, member: GroupMember, offsets: Vec<OffsetToCommit>) {
        let nothing = offsets.is_empty();
        self.start(now_ms, op, Kind::Offsets, |txn| match &txn.state {
            State::Open => {
                // The same call again joins the one that is under way.
                let known = |one: &PendingOffsets| one.member == member && one.offsets == offsets;
                let known = txn.offsets.iter().any(known);
                if txn.offsets_unsure && !nothing && !known {
                    let reason = Reason::State("earlier offsets may still arrive and replace these");
                    let failure = ClientFailure::new(reason, Written::No, Next::Abort);
                    txn.state = State::MustAbort(failure.clone());
                    return Err(failure);
                }
                if !nothing && !known {
                    txn.offsets.push_back(PendingOffsets { member, offsets, coordinator: None });
                }
                Ok(State::Open)
            }
            State::MustAbort(failure) => Err(failure.clone()),
            _ => Err(misplaced("offsets outside a transaction")),
        });
    }

    /// Commits: waits for all records, and if each is in the log, ends the transaction.
    pub fn commit_transaction(&mut self, now_ms: u64, op: OpId) {
        self.start(now_ms, op, Kind::Commit, |txn| match &txn.state {
            State::Open | State::Committing => Ok(State::Committing),
            State::Bumping { commit: true } => Ok(txn.state.clone()),
            State::MustAbort(failure) => Err(failure.clone()),
            _ => Err(misplaced("there is no transaction to commit")),
        });
    }

    /// Aborts: drops what was not sent, waits for what is under way, and ends the transaction.
    pub fn abort_transaction(&mut self, now_ms: u64, op: OpId) {
        self.start(now_ms, op, Kind::Abort, |txn| match &txn.state {
            State::Open | State::MustAbort(_) | State::Aborting => Ok(State::Aborting),
            State::Bumping { commit: false } => Ok(txn.state.clone()),
            State::Committing => Err(misplaced("a commit is under way: make that call again")),
            _ => Err(misplaced("there is no transaction to abort")),
        });
    }

    fn start(
        &mut self,
        now_ms: u64,
        op: OpId,
        kind: Kind,
        enter: impl FnOnce(&mut Txn) -> Result<State, ClientFailure>,
    ) {
        self.now_ms = self.now_ms.max(now_ms);
        let entered = self.transactional().and_then(|txn| match txn.result.take_if(|(of, _)| *of == kind) {
            Some((_, result)) => Ok(Some(result)),
            None => enter(txn).map(|state| {
                txn.state = state;
                None
            }),
        });
        match entered {
            Err(failure) => self.done(op, Err(failure)),
            Ok(Some(result)) => self.done(op, result),
            Ok(None) => {
                self.op(op, kind);
                if kind == Kind::Offsets && self.txn.as_ref().is_some_and(|txn| txn.offsets.is_empty()) {
                    self.finish(kind, &Ok(()));
                }
                self.touch_all();
                self.drive_txn();
            }
        }
    }

    /// Tells a result to whoever waits for it, or keeps it for the same call made again.
    pub(super) fn finish_or_keep(&mut self, kind: Kind, result: Result<(), ClientFailure>) {
        if !self.finish(kind, &result)
            && let Some(txn) = &mut self.txn
        {
            txn.result = Some((kind, result));
        }
    }

    /// What can be done after a record failed.
    pub(super) fn next_of_records(&self) -> Next {
        if self.txn.is_some() { Next::Abort } else { Next::GoOn }
    }

    /// A record or a call of the transaction failed: it cannot commit any more (cases 142, 170).
    pub(super) fn txn_failed(&mut self, reason: Reason) {
        let Some(txn) = &mut self.txn else { return };
        if !matches!(txn.state, State::Open | State::Committing) {
            return;
        }
        let failure = ClientFailure::new(reason, Written::No, Next::Abort);
        txn.state = State::MustAbort(failure.clone());
        txn.offsets.clear();
        txn.to_add.clear();
        for kind in [Kind::Commit, Kind::Offsets] {
            self.finish(kind, &Err(failure.clone()));
        }
        self.purge_unplaced();
        self.touch_all();
    }

    fn purge_unplaced(&mut self) {
        let failure = ClientFailure::new(Reason::TransactionAborted, Written::No, Next::Abort);
        for topic in 0..self.topics.len() {
            while let Some(record) = self.topics[topic].unplaced.pop_front() {
                self.fail_unplaced(&record, failure.clone());
            }
        }
    }

    /// Whether what is not on a connection has to be dropped.
    pub(super) fn txn_purges(&self) -> bool {
        self.txn.as_ref().is_some_and(|txn| matches!(txn.state, State::MustAbort(_) | State::Aborting))
    }

    /// Whether a partition may send new batches; if it is not part of the transaction yet, it is going to be.
    pub(super) fn txn_admits(&mut self, lane: LaneId) -> bool {
        let Some(txn) = &mut self.txn else { return true };
        if !matches!(txn.state, State::Open | State::Committing) {
            return false;
        }
        if txn.tv2 || self.lanes[lane].added {
            return true;
        }
        if !txn.adding.contains(&lane) {
            txn.to_add.insert(lane);
        }
        false
    }

    pub(super) fn begin_abort(&mut self) {
        if let Some(txn) = &mut self.txn {
            txn.offsets.clear();
            txn.to_add.clear();
        }
        let aborted = ClientFailure::new(Reason::TransactionAborted, Written::No, Next::Abort);
        self.finish(Kind::Offsets, &Err(aborted));
        self.purge_unplaced();
    }
}
