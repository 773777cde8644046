//! Offsets of transactions, on the shard of their group: the commit asks the coordinator of its transaction first, and
//! the end of a transaction comes from there.
//!
//! The group is in the transaction, durably, before an offset is pending: so every pending offset has a coordinator
//! that will end it. What ends on the way is revoked (`txn::CommitsInFlight`).

use std::rc::Rc;
use std::sync::Arc;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Reply, TxnCommit, TxnEnd};
use oncilla_shards::slot::{owner, slot_of};
use oncilla_shards::txn::{self as core, Add, AddBy, OffsetsHook, Request, Verify};

use super::{ask_here, submit};
use crate::ctx::Ctx;
use crate::rt::join_all;
use crate::txn;

/// A TxnOffsetCommit request.
#[derive(Clone, Debug)]
pub struct TxnOffsets {
    /// Whose transaction.
    pub transactional_id: String,
    /// Whether the request adds the group to the transaction (version 5); otherwise it must be in it.
    pub adds: bool,
    /// Producer and offsets.
    pub asked: TxnCommit,
}

/// Has the owner of a group make offsets pending (contract C4.2 to C4.5); a code for each partition.
///
/// # Errors
/// The coordinator's code, or the group's, for all of them.
pub async fn commit_in_transaction(
    ctx: &Rc<Ctx>,
    group: &str,
    offsets: TxnOffsets,
) -> Result<Vec<ErrorCode>, ErrorCode> {
    let owner = owner(slot_of(group.as_bytes()), ctx.image().shards);
    if owner != ctx.id && !ctx.forwards() {
        return Err(ErrorCode::NotCoordinator);
    }
    let group: Arc<str> = group.into();
    ctx.call(owner, async move |ctx: Rc<Ctx>| commit_here(&ctx, &group, offsets).await).await
}

async fn commit_here(ctx: &Rc<Ctx>, group: &Arc<str>, offsets: TxnOffsets) -> Result<Vec<ErrorCode>, ErrorCode> {
    let TxnOffsets { transactional_id, adds, asked } = offsets;
    let producer = asked.producer;
    let in_flight = ctx.txn.commits.begin(producer, group);
    let (partitions, groups) = (Vec::new(), vec![group.clone()]);
    let request = match adds {
        true => Request::Add(Add { producer, partitions, groups, by: AddBy::Broker { early: false } }),
        false => Request::Verify(Verify { producer, partitions, groups }),
    };
    match txn::ask_owner(ctx, &transactional_id, request, txn::deadline()).await? {
        core::Reply::Added => {}
        core::Reply::Verified(codes) => {
            if let Some(code) = codes.into_iter().find(|code| !code.is_none()) {
                return Err(code);
            }
        }
        other => unreachable!("the coordinator answered another request: {other:?}"),
    }
    // The core takes the request before anything else of this shard runs.
    if in_flight.is_revoked() {
        return Err(ErrorCode::InvalidTxnState);
    }
    if ctx.txn.check_fence(producer.producer_id, producer.epoch).is_err() {
        return Err(ErrorCode::InvalidProducerEpoch);
    }
    match ask_here(ctx, group, Ask::TxnCommit(asked)).await? {
        Reply::Commit(codes) => Ok(codes),
        other => unreachable!("the group answered another request: {other:?}"),
    }
}

/// Ends what a transaction has pending in groups of this shard; the answers come when all is durable or refused.
pub async fn settle_transaction(ctx: &Rc<Ctx>, hook: OffsetsHook) -> Vec<(Arc<str>, ErrorCode)> {
    ctx.txn.commits.revoke(&hook);
    let OffsetsHook { producer, outcome, version, groups, .. } = hook;
    let end = TxnEnd { producer, version, outcome };
    let answers = join_all(groups.iter().map(|group| submit(ctx, group, Ask::TxnEnd(end)))).await;
    groups.into_iter().zip(answers.into_iter().map(|answer| answer.err().unwrap_or(ErrorCode::None))).collect()
}
