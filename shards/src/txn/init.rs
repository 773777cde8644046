//! InitProducerId: contract B2.

use super::TxnSettings;
use super::ask::{Identity, Init, Outcome, Reply};
use super::decision::{Decision, ProducerIds};
use super::end::{self, Bump};
use super::entry::Change;
use super::markers::Fence;
use super::state::{EPOCH_LAST, Head, State};
use crate::code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId, TimestampMs};

/// What is wrong with a request whatever the state is: steps 2 and 4, which come before NOT_COORDINATOR (B1).
pub(super) fn check_form(id: &str, init: &Init, settings: &TxnSettings) -> Result<(), ErrorCode> {
    let Identity { producer_id, epoch } = init.given;
    if (producer_id == ProducerId::NONE) != (epoch == ProducerEpoch::NONE) || id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    if init.two_phase && !settings.two_phase_commit {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    if init.keep_prepared {
        return Err(ErrorCode::UnsupportedVersion);
    }
    if !init.two_phase && !(1..=settings.timeout_ms_max).contains(&init.timeout_ms) {
        return Err(ErrorCode::InvalidTransactionTimeout);
    }
    Ok(())
}

/// Steps 5, 7 and 8.
pub(super) fn decide(
    head: Option<&Head>,
    init: &Init,
    settings: &TxnSettings,
    ids: &mut ProducerIds,
    now: TimestampMs,
) -> Decision {
    let Some(head) = head else {
        // Whatever was given is of a life that is forgotten (F44).
        let fresh = ids.take().map(|producer_id| Identity { producer_id, epoch: ProducerEpoch(0) });
        return fresh.map(|fresh| becomes(init, fresh, ProducerEpoch::NONE, now, None)).into();
    };
    let given = (init.given != Identity::NONE).then_some(init.given);
    let was_rotated = |given: Identity| given.producer_id == head.prev_producer_id && given.epoch.0 >= EPOCH_LAST - 1;
    if given.is_some_and(|given| given.producer_id != head.producer_id && !was_rotated(given)) {
        return Decision::refuse(ErrorCode::ProducerFenced);
    }
    match head.state {
        // The next instance may not commit what a dead one wrote: its transaction ends first, one step with the fence.
        State::Ongoing => {
            let bump = Bump::of_server(settings.version);
            end::prepare(head, Outcome::Abort, bump, ids, now).map(Decision::First).into()
        }
        State::PrepareCommit | State::PrepareAbort => Decision::refuse(ErrorCode::ConcurrentTransactions),
        State::Empty | State::CompleteCommit | State::CompleteAbort => {
            match given {
                None => bump(head, init, ProducerEpoch::NONE, ids, now),
                Some(given) if given == head.identity() => bump(head, init, head.epoch, ids, now),
                // A request that was answered, but the answer was lost: the same one again.
                Some(given) if given.epoch == head.last_epoch && !head.is_exhausted() => {
                    let fence = Fence { producer_id: head.producer_id, below: i32::from(head.epoch.0) };
                    becomes(init, head.identity(), head.last_epoch, now, Some(fence))
                }
                Some(_) => Decision::refuse(ErrorCode::ProducerFenced),
            }
        }
    }
}

/// The next epoch, or the first one of the next producer id.
fn bump(head: &Head, init: &Init, last_epoch: ProducerEpoch, ids: &mut ProducerIds, now: TimestampMs) -> Decision {
    let below = i32::from(head.epoch.0) + 1;
    let fence = Some(Fence { producer_id: head.producer_id, below });
    if !head.is_exhausted() {
        let next = Identity { epoch: ProducerEpoch(head.epoch.0 + 1), ..head.identity() };
        return becomes(init, next, last_epoch, now, fence);
    }
    let fresh = ids.take().map(|producer_id| Identity { producer_id, epoch: ProducerEpoch(0) });
    fresh.map(|fresh| becomes(init, fresh, last_epoch, now, fence)).into()
}

fn becomes(
    init: &Init,
    Identity { producer_id, epoch }: Identity,
    last_epoch: ProducerEpoch,
    at: TimestampMs,
    fence: Option<Fence>,
) -> Decision {
    let timeout_ms = if init.two_phase { i32::MAX } else { init.timeout_ms };
    let change = Change::Init { producer_id, epoch, last_epoch, timeout_ms, at };
    Decision::Record { change, reply: Reply::Init(Identity { producer_id, epoch }), fence }
}
