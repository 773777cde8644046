//! What a request comes to: the shape of every decision, and the producer ids that decisions hand out.
//!
//! Decisions are functions of the state alone. Whether a request must wait for a step before it is the slot's business.

use std::collections::VecDeque;

use super::ask::Reply;
use super::entry::Change;
use super::markers::Fence;
use crate::code::ErrorCode;
use crate::ids::ProducerId;
use crate::limits::TXN_PRODUCER_IDS_MIN;

/// What a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing changes.
    Answer(Result<Reply, ErrorCode>),
    /// A transition, and the answer once it is durable and the fence is up.
    Record { change: Change, reply: Reply, fence: Option<Fence> },
    /// A transition first; when it has come to its end, the request is asked again.
    First(Change),
}

impl Decision {
    pub fn refuse(code: ErrorCode) -> Self {
        Self::Answer(Err(code))
    }

    pub fn record(change: Change, reply: Reply) -> Self {
        Self::Record { change, reply, fence: None }
    }
}

impl From<Result<Decision, ErrorCode>> for Decision {
    fn from(result: Result<Decision, ErrorCode>) -> Self {
        result.unwrap_or_else(Self::refuse)
    }
}

/// Producer ids that are durable as handed out and not yet given to anyone. Those left at the end are never used.
#[derive(Debug, Default)]
pub(super) struct ProducerIds {
    free: VecDeque<ProducerId>,
    /// Whether more were asked for and have not come.
    is_asked: bool,
}

impl ProducerIds {
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS while there is none (contract B2.3).
    pub fn take(&mut self) -> Result<ProducerId, ErrorCode> {
        self.free.pop_front().ok_or(ErrorCode::CoordinatorLoadInProgress)
    }

    pub fn any(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn stock(&mut self, ids: impl IntoIterator<Item = ProducerId>) {
        self.free.extend(ids);
        self.is_asked = false;
    }

    /// Whether to ask for more; said once until they come.
    pub fn take_want(&mut self) -> bool {
        let wanted = !self.is_asked && self.free.len() < TXN_PRODUCER_IDS_MIN;
        self.is_asked |= wanted;
        wanted
    }
}
