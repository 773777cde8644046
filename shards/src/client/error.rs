//! What a producer's caller is told when something did not work.

use std::fmt;

use crate::code::ErrorCode;

/// Whether a record that was not acknowledged is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// It is not, and will not be.
    No,
    /// Nobody can say: it is there once, or it is not.
    Unknown,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The broker answered with this code.
    Code(i16),
    /// There was no answer within `delivery.timeout.ms`.
    DeliveryTimeout,
    /// A transactional call had no result within `max.block.ms`; the same call may be made again, and only it.
    BlockTimeout,
    /// A single record is above the broker's or the producer's limit.
    RecordTooLarge,
    /// The transaction was aborted, or has to be.
    TransactionAborted,
    /// The producer was closed.
    Closed,
    /// The call does not fit the state of the producer; which that is.
    State(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => match ErrorCode::from_wire(*code) {
                Some(known) => write!(f, "the broker answers {} ({code})", known.name()),
                None => write!(f, "the broker answers error {code}"),
            },
            Self::DeliveryTimeout => f.write_str("no answer within delivery.timeout.ms"),
            Self::BlockTimeout => f.write_str("no result within max.block.ms: make the same call again"),
            Self::RecordTooLarge => f.write_str("the record is too large"),
            Self::TransactionAborted => f.write_str("the transaction is aborted"),
            Self::Closed => f.write_str("the producer is closed"),
            Self::State(what) => f.write_str(what),
        }
    }
}

/// A record or a call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{}{}", self.written_text(), self.next_text())]
pub struct ClientFailure {
    /// Why.
    pub reason: Reason,
    /// Whether it took effect all the same.
    pub written: Written,
    /// What can be done next.
    pub next: Next,
}

/// What can be done after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// The producer goes on as before.
    GoOn,
    /// The transaction can only be aborted.
    Abort,
    /// Nothing: close this producer.
    Close,
}

impl ClientFailure {
    pub(super) fn new(reason: Reason, written: Written, next: Next) -> Self {
        Self { reason, written, next }
    }

    fn written_text(&self) -> &'static str {
        if self.written == Written::Unknown { "; whether it was written is unknown" } else { "" }
    }

    fn next_text(&self) -> &'static str {
        match self.next {
            Next::GoOn => "",
            Next::Abort => "; the transaction can only be aborted",
            Next::Close => "; the producer can only be closed",
        }
    }
}

/// Why a record was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no memory for it now.
    #[error("buffer.memory is used up")]
    Full,
    /// It is larger than a request may be.
    #[error("the record of {bytes} bytes is above max.request.size")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The topic has no such partition.
    #[error("topic {topic} has no partition {partition}")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The producer takes no records now.
    #[error(transparent)]
    Refused(ClientFailure),
}
