//! What joins a transaction and what is in it: contract B3, B4, B5, and the bounds of a transaction.

use super::TxnSettings;
use super::ask::{Add, AddBy, Identity, Reply, Verify};
use super::decision::Decision;
use super::entry::Change;
use super::state::{Head, Members, State};
use crate::code::ErrorCode;
use crate::ids::TimestampMs;
use crate::limits::{TXN_MEMBERS_MAX, TXN_OPEN_MAX};
use crate::slot::Position;

/// Steps 1 and 3 to 7 of B3; `open` transactions are open in the slot.
pub(super) fn decide(
    head: Option<&Head>,
    members: &Members,
    add: &Add,
    open: usize,
    settings: &TxnSettings,
    at: TimestampMs,
) -> Decision {
    let head = match who(head, add.producer) {
        Ok(head) => head,
        Err(code) => return Decision::refuse(code),
    };
    let is_ongoing = head.state == State::Ongoing;
    if head.state.completing().is_some() {
        return Decision::refuse(ErrorCode::ConcurrentTransactions);
    }
    if is_ongoing && members.has_all(&add.partitions, &add.groups) {
        return Decision::Answer(Ok(Reply::Added));
    }
    let client_version = match add.by {
        AddBy::Client => 0,
        // 0.5: level 0 cannot say that the client runs path B. Nothing is left pending (B11.2).
        AddBy::Broker { .. } if settings.version == 0 => return Decision::refuse(ErrorCode::UnsupportedVersion),
        AddBy::Broker { .. } => 2,
    };
    // What was in an earlier transaction is not in this one.
    let none = Members::default();
    let present = if is_ongoing { members } else { &none };
    let joining = present.missing(&add.partitions, &add.groups);
    if present.len() + joining.len() > TXN_MEMBERS_MAX {
        return Decision::refuse(ErrorCode::TransactionAbortable);
    }
    if !is_ongoing && open >= TXN_OPEN_MAX {
        return Decision::refuse(ErrorCode::ConcurrentTransactions);
    }
    Decision::record(Change::Add { members: joining, client_version, at }, Reply::Added)
}

/// B4: by what is durable, pending steps are ignored.
pub(super) fn verify(
    head: Option<&Head>,
    members: &Members,
    durable: Position,
    verify: &Verify,
) -> Result<Reply, ErrorCode> {
    let head = who(head, verify.producer)?;
    if head.state.completing().is_some() {
        return Err(ErrorCode::ConcurrentTransactions);
    }
    let is_ongoing = head.state == State::Ongoing;
    let code = |since: Option<&Position>| match since {
        Some(since) if is_ongoing && *since <= durable => ErrorCode::None,
        _ => ErrorCode::TransactionAbortable,
    };
    let partitions = verify.partitions.iter().map(|key| code(members.partitions.get(key)));
    let groups = verify.groups.iter().map(|group| code(members.groups.get(group)));
    Ok(Reply::Verified(partitions.chain(groups).collect()))
}

/// Whether it is the producer that the id belongs to, at its epoch.
fn who(head: Option<&Head>, producer: Identity) -> Result<&Head, ErrorCode> {
    match head {
        Some(head) if head.producer_id != producer.producer_id => Err(ErrorCode::InvalidProducerIdMapping),
        Some(head) if head.epoch != producer.epoch => Err(ErrorCode::ProducerFenced),
        Some(head) => Ok(head),
        None => Err(ErrorCode::InvalidProducerIdMapping),
    }
}
