//! EndTxn and aborts by the broker: contract B6, both paths.

use super::ask::{End, Outcome, Reply};
use super::decision::{Decision, ProducerIds};
use super::entry::Change;
use super::state::{EPOCH_LAST, Head, State};
use crate::code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId, TimestampMs};

/// What becomes of the epoch when a transaction is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bump {
    /// Path A by the client: it stays.
    Never,
    /// Path A by the broker: the next one, and no request may name the one before. Behind the very last epoch it is the
    /// first of the next producer id: at an epoch that stays, a producer whose transaction was aborted behind its back
    /// could add to what it takes for the same one and commit the rest of it (Kafka lets it, B6).
    Fences,
    /// Path B: the next one; the producer id too where epochs are exhausted.
    Always,
}

impl Bump {
    /// Of an abort by the broker at a finalized level of `transaction.version`.
    pub fn of_server(version: i16) -> Self {
        if version >= 2 { Self::Always } else { Self::Fences }
    }
}

/// The transition to Prepare*.
///
/// # Errors
/// COORDINATOR_LOAD_IN_PROGRESS if a producer id is needed and there is none.
pub(super) fn prepare(
    head: &Head,
    outcome: Outcome,
    bump: Bump,
    ids: &mut ProducerIds,
    at: TimestampMs,
) -> Result<Change, ErrorCode> {
    // At the last epoch of all markers carry it as it is, which A6.1 allows for it alone (B11.5 does better).
    let next_epoch = ProducerEpoch(head.epoch.0.saturating_add(1));
    let (epoch, last_epoch, client_version) = match bump {
        Bump::Never => (head.epoch, head.last_epoch, 0),
        Bump::Fences => (next_epoch, ProducerEpoch::NONE, 0),
        Bump::Always => (next_epoch, head.epoch, 2),
    };
    let rotates = match bump {
        Bump::Never => false,
        Bump::Fences => head.epoch.0 == EPOCH_LAST,
        Bump::Always => head.is_exhausted(),
    };
    let next_producer_id = if rotates { ids.take()? } else { ProducerId::NONE };
    Ok(Change::Prepare { outcome, epoch, last_epoch, next_producer_id, client_version, at })
}

/// Who asks, of path A: it comes before a pending transition, unlike everything else (B6).
///
/// # Errors
/// INVALID_PRODUCER_ID_MAPPING, or PRODUCER_FENCED at any other epoch.
pub(super) fn check_a<'a>(head: Option<&'a Head>, end: &End) -> Result<&'a Head, ErrorCode> {
    let head = head.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    if head.producer_id != end.producer.producer_id {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if head.epoch != end.producer.epoch {
        return Err(ErrorCode::ProducerFenced);
    }
    Ok(head)
}

/// An EndTxn, by the table of its path.
pub(super) fn decide(
    head: Option<&Head>,
    end: &End,
    version: i16,
    ids: &mut ProducerIds,
    now: TimestampMs,
) -> Decision {
    let decided = if end.bumps { path_b(head, end) } else { path_a(head, end) };
    match decided {
        Err(code) => Decision::refuse(code),
        Ok((head, Move::Nothing)) => Decision::Answer(Ok(Reply::Ended(head.identity()))),
        // 0.5: level 0 cannot say that the client runs path B. Nothing is left pending (B11.2).
        Ok((_, Move::Prepare(_))) if end.bumps && version == 0 => Decision::refuse(ErrorCode::UnsupportedVersion),
        Ok((head, Move::Prepare(bump))) => {
            let change = prepare(head, end.outcome, bump, ids, now);
            let recorded = |change: Change| {
                let after = change.applied(Some(head)).expect("a prepared transaction is there");
                Decision::record(change, Reply::Ended(after.next_identity()))
            };
            change.map(recorded).into()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// It is as asked already.
    Nothing,
    Prepare(Bump),
}

fn path_a<'a>(head: Option<&'a Head>, end: &End) -> Result<(&'a Head, Move), ErrorCode> {
    let head = check_a(head, end)?;
    let step = match (head.state, end.outcome) {
        (State::Ongoing, _) => Move::Prepare(Bump::Never),
        (State::CompleteCommit, Outcome::Commit) | (State::CompleteAbort, Outcome::Abort) => Move::Nothing,
        (State::PrepareCommit, Outcome::Commit) | (State::PrepareAbort, Outcome::Abort) => {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        _ => return Err(ErrorCode::InvalidTxnState),
    };
    Ok((head, step))
}

/// Which request it is, as seen from the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// At the epoch that the id has now: r = 0.
    Current,
    /// At the one before: r = 1, or the last one of the producer id before. Nothing but the epoch is looked at, so this
    /// may be a ghost whose successor ended on path A (B6).
    Repeated,
}

fn path_b<'a>(head: Option<&'a Head>, end: &End) -> Result<(&'a Head, Move), ErrorCode> {
    let head = head.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    let given = end.producer;
    let is_complete = matches!(head.state, State::CompleteCommit | State::CompleteAbort);
    // Whoever was aborted below level 2 may not come back as the next producer id, nor may one before it.
    let is_last = given.epoch.0 >= EPOCH_LAST - 1 && (!is_complete || given.epoch == head.last_epoch);
    let after_rotation = given.producer_id == head.prev_producer_id && is_last && head.epoch.0 == 0;
    if given.producer_id != head.producer_id && !after_rotation {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    let age = match i32::from(head.epoch.0) - i32::from(given.epoch.0) {
        // Only a transaction can be what is repeated: right after a rotation by InitProducerId there is none.
        _ if given.producer_id != head.producer_id && is_complete => Age::Repeated,
        0 if given.producer_id == head.producer_id => Age::Current,
        1 => Age::Repeated,
        _ => return Err(ErrorCode::ProducerFenced),
    };
    let begun = |outcome| match outcome {
        Outcome::Abort => Ok(Move::Prepare(Bump::Always)),
        Outcome::Commit => Err(ErrorCode::InvalidTxnState),
    };
    let step = match (head.state, age) {
        (State::Ongoing, Age::Current) => Move::Prepare(Bump::Always),
        (State::Empty | State::CompleteCommit | State::CompleteAbort, Age::Current) => begun(end.outcome)?,
        (State::CompleteCommit, Age::Repeated) if end.outcome == Outcome::Commit => Move::Nothing,
        (State::CompleteAbort, Age::Repeated) if end.outcome == Outcome::Abort => Move::Nothing,
        (State::PrepareCommit, Age::Repeated) if end.outcome == Outcome::Commit => {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        (State::PrepareAbort, Age::Repeated) if end.outcome == Outcome::Abort => {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        (State::Empty | State::Ongoing, Age::Repeated) => return Err(ErrorCode::ProducerFenced),
        (State::PrepareCommit | State::PrepareAbort, Age::Current) => return Err(ErrorCode::ProducerFenced),
        (_, Age::Repeated) => return Err(ErrorCode::InvalidTxnState),
    };
    Ok((head, step))
}
