//! Requests to coordinators: one at a time, each repeated until it has a certain answer.

use std::sync::Arc;

use super::error::{ClientFailure, Next, Reason, Written};
use super::machine::{Machine, Purpose};
use super::message::{Answer, Identity, PartitionAnswer, Request};
use super::ops::Kind;
use super::txn::State;
use super::verdict::{self, Asked, Control};
use crate::code::ErrorCode;
use crate::limits::CLIENT_CONCURRENT_RETRY_MS;

/// Level of transaction.version from which a transaction is of the protocol of KIP-890.
const TRANSACTION_VERSION_2: i16 = 2;

/// A request to a coordinator, with the node it goes to; `None` for any node.
struct Due {
    asked: Asked,
    node: Option<i32>,
    request: Request,
}

impl Machine {
    /// Sends the next request to a coordinator, if one is due, and ends transactions that nobody has to be told of.
    pub(super) fn drive_txn(&mut self) {
        let Some(txn) = &self.txn else { return };
        if txn.call.is_some() || txn.pause_ms > self.now_ms || self.dead.is_some() {
            return;
        }
        if txn.state == State::Aborting {
            self.begin_abort();
        }
        let Some(due) = self.due() else { return };
        let node = match due.node {
            Some(node) => {
                let until_ms = self.nodes.get(node).map_or(0, |known| known.until_ms);
                if until_ms > self.now_ms { Err(until_ms) } else { Ok(node) }
            }
            None => self.nodes.any(self.now_ms),
        };
        match node {
            Ok(node) => {
                let call = self.call(node, Purpose::Control(due.asked), due.request);
                let txn = self.txn.as_mut().expect("checked above");
                txn.call = Some(call);
                txn.end_sent |= matches!(due.asked, Asked::End { .. });
            }
            Err(until_ms) => self.txn.as_mut().expect("checked above").pause_ms = until_ms,
        }
    }

    fn due(&mut self) -> Option<Due> {
        let txn = self.txn.as_ref()?;
        match txn.state {
            State::New | State::Ready | State::MustAbort(_) => None,
            State::Initializing => self.at_coordinator(Asked::Init),
            State::Bumping { .. } => self.at_coordinator(Asked::Init),
            State::Open => self.due_in_transaction(),
            State::Committing => self.due_in_transaction().or_else(|| self.due_end(true)),
            State::Aborting => self.due_end(false),
        }
    }

    fn due_in_transaction(&mut self) -> Option<Due> {
        let txn = self.txn.as_ref()?;
        if !txn.to_add.is_empty() {
            return self.at_coordinator(Asked::AddPartitions);
        }
        let pending = txn.offsets.front()?;
        let group = pending.member.group.clone();
        if !txn.tv2 && !txn.groups.contains(&group) {
            return self.at_coordinator(Asked::AddOffsets);
        }
        let Some(node) = pending.coordinator else {
            let request = Request::FindGroupCoordinator { group };
            return Some(Due { asked: Asked::GroupCoordinator, node: None, request });
        };
        let request = Request::CommitOffsets {
            transactional_id: txn.id.clone(),
            identity: self.identity?,
            tv2: txn.tv2,
            member: pending.member.clone(),
            offsets: pending.offsets.clone(),
        };
        self.txn.as_mut()?.reached |= self.txn.as_ref()?.tv2;
        Some(Due { asked: Asked::CommitOffsets, node: Some(node), request })
    }

    /// The end, when nothing of the transaction is under way.
    fn due_end(&mut self, commit: bool) -> Option<Due> {
        let txn = self.txn.as_ref()?;
        if self.outstanding > 0 || !txn.offsets.is_empty() {
            return None;
        }
        if txn.reached {
            return self.at_coordinator(Asked::End { commit });
        }
        self.ended(commit);
        self.due()
    }

    /// A request to the coordinator of the transactional id, or the question who that is.
    fn at_coordinator(&mut self, asked: Asked) -> Option<Due> {
        let timeout_ms = self.settings.transaction_timeout_ms;
        let identity = self.identity;
        let txn = self.txn.as_mut()?;
        let transactional_id = txn.id.clone();
        let Some(node) = txn.coordinator else {
            let request = Request::FindTransactionCoordinator { transactional_id };
            return Some(Due { asked: Asked::Coordinator, node: None, request });
        };
        let request = match asked {
            Asked::Init => Request::InitProducerId { transactional_id: Some(transactional_id), timeout_ms, identity },
            Asked::AddPartitions => {
                txn.adding = std::mem::take(&mut txn.to_add).into_iter().collect();
                let name = |lane: &usize| (self.lanes[*lane].topic.clone(), self.lanes[*lane].partition);
                let partitions: Vec<(Arc<str>, i32)> = txn.adding.iter().map(name).collect();
                Request::AddPartitions { transactional_id, identity: identity?, partitions }
            }
            Asked::AddOffsets => {
                let group = txn.offsets.front()?.member.group.clone();
                Request::AddOffsets { transactional_id, identity: identity?, group }
            }
            Asked::End { commit } => Request::EndTxn { transactional_id, identity: identity?, tv2: txn.tv2, commit },
            Asked::Coordinator | Asked::GroupCoordinator | Asked::CommitOffsets => panic!("{asked:?} goes elsewhere"),
        };
        Some(Due { asked, node: Some(node), request })
    }

    pub(super) fn control_lost(&mut self, asked: Asked, reached: bool) {
        let Some(txn) = &mut self.txn else { return };
        let asks = matches!(asked, Asked::Coordinator | Asked::GroupCoordinator | Asked::Init);
        txn.reached |= reached && matches!(asked, Asked::AddPartitions | Asked::AddOffsets);
        txn.unsure |= reached && !asks;
        txn.offsets_unsure |= reached && asked == Asked::CommitOffsets;
        self.control_again(asked, true, 0);
    }

    /// Does what a request was for again, later.
    fn control_again(&mut self, asked: Asked, moved: bool, code: i16) {
        let now_ms = self.now_ms;
        let Some(txn) = &mut self.txn else { return };
        txn.call = None;
        if matches!(txn.state, State::Open | State::Committing) {
            txn.to_add.extend(txn.adding.drain(..));
        }
        txn.adding.clear();
        if moved {
            match asked {
                Asked::CommitOffsets => txn.offsets.iter_mut().for_each(|pending| pending.coordinator = None),
                _ => txn.coordinator = None,
            }
        }
        txn.attempts += 1;
        let concurrent = ErrorCode::from_wire(code) == Some(ErrorCode::ConcurrentTransactions);
        let backoff_ms = self.settings.backoff_ms(txn.attempts);
        txn.pause_ms = now_ms + if concurrent { CLIENT_CONCURRENT_RETRY_MS } else { backoff_ms };
    }

    pub(super) fn control_answered(&mut self, asked: Asked, answer: Answer) {
        match answer {
            Answer::Coordinator { code, node, address } => {
                let code = self.settle(asked, code);
                if code == Some(Control::Done) {
                    self.coordinator_found(asked, node, &address);
                }
            }
            Answer::Identity { code, identity } => self.identity_given(asked, code, identity),
            Answer::Code(code) => {
                if self.settle(asked, code) == Some(Control::Done) {
                    self.offsets_added();
                }
            }
            Answer::Partitions(parts) => self.partitions_answered(asked, &parts),
            answer => panic!("{asked:?} was answered with {answer:?}"),
        }
        self.touch_all();
    }

    /// Handles what every answer may be; `Some(Done)` is left to the caller.
    fn settle(&mut self, asked: Asked, code: i16) -> Option<Control> {
        let verdict = verdict::of_control(asked, code);
        match verdict {
            Control::Done => {
                let txn = self.txn.as_mut()?;
                (txn.call, txn.attempts, txn.pause_ms) = (None, 0, 0);
                return Some(Control::Done);
            }
            Control::Retry { moved } => self.control_again(asked, moved, code),
            Control::Abort => {
                let txn = self.txn.as_mut()?;
                txn.call = None;
                txn.adding.clear();
                self.txn_failed(Reason::Code(code));
            }
            Control::Fatal => self.fatal(asked, code),
        }
        Some(verdict)
    }

    fn fatal(&mut self, asked: Asked, code: i16) {
        let txn = self.txn.as_mut().expect("only transactional producers ask");
        txn.call = None;
        let bumping = txn.state == State::Bumping { commit: true };
        // The broker ended it before us: by its timeout, or somebody else has the id now. The next epoch will tell
        // (case 169). In the protocol of KIP-890 our own abort is answered as done in that case.
        let over = [ErrorCode::InvalidTxnState, ErrorCode::InvalidProducerEpoch, ErrorCode::ProducerFenced];
        let over = ErrorCode::from_wire(code).is_some_and(|code| over.contains(&code));
        if asked == (Asked::End { commit: false }) && !txn.tv2 && over {
            txn.state = State::Bumping { commit: false };
            return;
        }
        if bumping {
            // What was committed stays so, whatever happened to the producer since.
            self.finish_or_keep(Kind::Commit, Ok(()));
        }
        self.die(ClientFailure::new(Reason::Code(code), Written::No, Next::Close));
    }

    fn coordinator_found(&mut self, asked: Asked, node: i32, address: &str) {
        if let Some(moved) = self.nodes.learn(node, address) {
            self.drop_connection(moved, true);
        }
        let known = self.nodes.get(node).is_some();
        let Some(txn) = self.txn.as_mut().filter(|_| known) else { return };
        match asked {
            Asked::Coordinator => txn.coordinator = Some(node),
            _ => {
                if let Some(pending) = txn.offsets.front_mut() {
                    pending.coordinator = Some(node);
                }
            }
        }
    }

    fn identity_given(&mut self, asked: Asked, code: i16, identity: Option<Identity>) {
        if self.settle(asked, code) != Some(Control::Done) {
            return;
        }
        if let Some(identity) = identity {
            self.identity = Some(identity);
        }
        let Some(txn) = &mut self.txn else { return };
        match (asked, txn.state.clone()) {
            (Asked::End { commit }, _) => self.ended(commit),
            (_, State::Initializing) => {
                txn.state = State::Ready;
                txn.tv2 = self.feature.1 >= TRANSACTION_VERSION_2;
                self.finish_or_keep(Kind::Init, Ok(()));
            }
            (_, State::Bumping { commit }) => {
                txn.state = State::Ready;
                self.finish_or_keep(if commit { Kind::Commit } else { Kind::Abort }, Ok(()));
            }
            _ => {}
        }
    }

    /// The transaction is over. Before the next one the epoch goes up if the protocol has not done it, and something
    /// that was sent may still arrive, or the protocol changes (cases 144, 151, 156, F81): in protocol 1 a late EndTxn
    /// would end the next transaction, and late offsets would become part of it.
    fn ended(&mut self, commit: bool) {
        let told_tv2 = self.feature.1 >= TRANSACTION_VERSION_2;
        let mut broken = false;
        for lane in &mut self.lanes {
            lane.added = false;
            broken |= lane.broken && lane.identity == self.identity;
        }
        let Some(txn) = &mut self.txn else { return };
        let upgraded = told_tv2 && !txn.tv2;
        let needs_epoch = txn.reached && !txn.tv2 && (broken || upgraded || txn.unsure);
        (txn.unsure, txn.offsets_unsure, txn.end_sent) = (false, false, false);
        txn.tv2 = told_tv2;
        txn.reached = false;
        txn.groups.clear();
        txn.to_add.clear();
        if needs_epoch {
            txn.state = State::Bumping { commit };
            return;
        }
        txn.state = State::Ready;
        self.finish_or_keep(if commit { Kind::Commit } else { Kind::Abort }, Ok(()));
    }

    fn offsets_added(&mut self) {
        let Some(txn) = &mut self.txn else { return };
        txn.reached = true;
        if let Some(pending) = txn.offsets.front() {
            txn.groups.insert(pending.member.group.clone());
        }
    }

    /// The worst code of an answer decides for all of it: what was done already is done again without harm.
    fn partitions_answered(&mut self, asked: Asked, parts: &[PartitionAnswer]) {
        let rank = |code: i16| match verdict::of_control(asked, code) {
            Control::Done => 0,
            Control::Retry { .. } => 1,
            Control::Abort => 2,
            Control::Fatal => 3,
        };
        let code = parts.iter().map(|part| part.code).max_by_key(|code| rank(*code)).unwrap_or(0);
        if self.settle(asked, code) != Some(Control::Done) {
            return;
        }
        let Some(txn) = &mut self.txn else { return };
        if asked == Asked::AddPartitions {
            txn.reached = true;
            for lane in std::mem::take(&mut txn.adding) {
                self.lanes[lane].added = true;
            }
            return;
        }
        txn.offsets.pop_front();
        if txn.offsets.is_empty() {
            self.finish(Kind::Offsets, &Ok(()));
        }
    }
}
