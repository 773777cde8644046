//! What an error code in an answer means for a producer (contract D3, D4, D7).
//!
//! A code of Produce also says whether the batch may be in the log all the same. Codes that a leader answers after its
//! append count as "may be": when it lost its leadership meanwhile, or its replicas did not follow in time.

use super::error::Written;
use crate::code::ErrorCode as E;

/// DUPLICATE_SEQUENCE_NUMBER: no broker of today sends it.
const DUPLICATE_SEQUENCE: i16 = 46;
/// UNKNOWN_PRODUCER_ID: no broker of today sends it.
const UNKNOWN_PRODUCER_ID: i16 = 59;
/// NOT_ENOUGH_REPLICAS_AFTER_APPEND.
const NOT_ENOUGH_AFTER_APPEND: i16 = 20;
/// NETWORK_EXCEPTION.
const NETWORK_EXCEPTION: i16 = 13;
/// THROTTLING_QUOTA_EXCEEDED.
const THROTTLED: i16 = 89;

/// What is to be done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in the log.
    Stored,
    /// Send the same again.
    Retry {
        /// Whether this try may be in the log.
        written: Written,
        /// Whether the leader may be another one.
        moved: bool,
    },
    /// Send it in parts.
    Split,
    /// Its sequence does not follow what the broker has.
    OutOfOrder,
    /// Give it up.
    Refused {
        /// Whether this try may be in the log.
        written: Written,
    },
}

/// The verdict on one batch.
pub fn of_produce(code: i16) -> Verdict {
    use Written::{No, Unknown};
    let retry = |written, moved| Verdict::Retry { written, moved };
    match code {
        0 | DUPLICATE_SEQUENCE => return Verdict::Stored,
        UNKNOWN_PRODUCER_ID => return Verdict::OutOfOrder,
        NOT_ENOUGH_AFTER_APPEND | NETWORK_EXCEPTION => return retry(Unknown, false),
        THROTTLED => return retry(No, false),
        _ => {}
    }
    let Some(known) = E::from_wire(code) else { return Verdict::Refused { written: Unknown } };
    match known {
        E::OutOfOrderSequenceNumber => Verdict::OutOfOrder,
        E::MessageTooLarge => Verdict::Split,
        E::UnknownTopicOrPartition
        | E::LeaderNotAvailable
        | E::NotLeaderOrFollower
        | E::FencedLeaderEpoch
        | E::UnknownLeaderEpoch
        | E::UnknownTopicId
        | E::KafkaStorageError => retry(Unknown, true),
        E::RequestTimedOut => retry(Unknown, false),
        E::CorruptMessage
        | E::NotEnoughReplicas
        | E::CoordinatorLoadInProgress
        | E::CoordinatorNotAvailable
        | E::NotCoordinator
        | E::ConcurrentTransactions => retry(No, false),
        E::UnknownServerError => Verdict::Refused { written: Unknown },
        _ => Verdict::Refused { written: No },
    }
}

/// Whether a refusal of Produce ends a transactional producer, rather than its transaction.
pub fn ends_producer(code: i16) -> bool {
    matches!(
        E::from_wire(code),
        Some(
            E::InvalidProducerIdMapping
                | E::TransactionalIdAuthorizationFailed
                | E::UnsupportedVersion
                | E::ProducerFenced
        )
    )
}

/// What is to be done with a request to a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// It is done.
    Done,
    /// Send it again.
    Retry {
        /// Whether the coordinator is another one.
        moved: bool,
    },
    /// The transaction can only be aborted.
    Abort,
    /// The producer is at its end.
    Fatal,
}

/// Which request a code answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// FindCoordinator of the transactional id.
    Coordinator,
    /// FindCoordinator of a group.
    GroupCoordinator,
    /// InitProducerId.
    Init,
    /// AddPartitionsToTxn.
    AddPartitions,
    /// AddOffsetsToTxn.
    AddOffsets,
    /// TxnOffsetCommit.
    CommitOffsets,
    /// EndTxn.
    End {
        /// Commit or abort.
        commit: bool,
    },
}

/// The verdict on a request to a coordinator.
pub fn of_control(asked: Asked, code: i16) -> Control {
    if code == 0 {
        return Control::Done;
    }
    let Some(known) = E::from_wire(code) else {
        return if code == NETWORK_EXCEPTION { Control::Retry { moved: true } } else { Control::Fatal };
    };
    match known {
        E::CoordinatorNotAvailable | E::NotCoordinator => return Control::Retry { moved: true },
        E::CoordinatorLoadInProgress | E::ConcurrentTransactions | E::RequestTimedOut => {
            return Control::Retry { moved: false };
        }
        _ => {}
    }
    let abortable = match asked {
        Asked::Coordinator | Asked::Init => false,
        Asked::GroupCoordinator => known == E::GroupAuthorizationFailed,
        Asked::AddPartitions if known == E::UnknownTopicOrPartition => return Control::Retry { moved: false },
        Asked::AddPartitions => matches!(
            known,
            E::TopicAuthorizationFailed
                | E::OperationNotAttempted
                | E::TransactionAbortable
                | E::InvalidRequest
                | E::UnknownServerError
        ),
        Asked::AddOffsets => matches!(known, E::GroupAuthorizationFailed | E::TransactionAbortable),
        Asked::CommitOffsets if known == E::UnknownTopicOrPartition => return Control::Retry { moved: false },
        Asked::CommitOffsets => matches!(
            known,
            E::IllegalGeneration
                | E::UnknownMemberId
                | E::GroupAuthorizationFailed
                | E::FencedInstanceId
                | E::TransactionAbortable
        ),
        Asked::End { commit } => commit && known == E::TransactionAbortable,
    };
    if abortable { Control::Abort } else { Control::Fatal }
}
