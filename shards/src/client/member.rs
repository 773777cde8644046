//! A member of a consumer group (KIP-848; contract G11, G12) without sockets and clock: joins, heartbeats, reconciles
//! what it has with what the coordinator gives, joins again when it was fenced, and leaves.
//!
//! Owner: one [`Member`] for each consumer. An edge does what [`Member::poll`] says, one step after the other, and
//! brings the outcome back; the consumer reads what it was told to take and nothing else. What it guarantees: a
//! partition is given back to the coordinator only after the consumer let go of it, which is when it commits; a
//! partition is taken only under an epoch that the coordinator gave; after a fence nothing is joined again before the
//! consumer let go of what it had, so what it commits late can never pass for a commit of the new membership.
//!
//! Limits: one request is under way at a time, and what is told to the consumer is bounded by what it is assigned.
//! Failure: after a lost request, or one that the coordinator has moved away from, it is looked for again, with pauses
//! that grow; FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID join again at epoch 0; any other refusal ends the membership
//! with its code.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::code::ErrorCode;
use crate::ids::TopicId;
use crate::limits::{MEMBER_BACKOFF_MS_MAX, MEMBER_BACKOFF_MS_MIN, MEMBER_LEAVE_TRIES, MEMBER_REBALANCE_MS};

/// Epoch of a heartbeat that joins.
const JOIN: i32 = 0;
/// Epoch of a heartbeat that leaves.
const LEAVE: i32 = -1;

/// Partitions of topics.
pub type Parts = BTreeSet<(TopicId, i32)>;

/// A ConsumerGroupHeartbeat. `None` stands for "as before".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The coordinator.
    pub node: i32,
    /// Who.
    pub member_id: String,
    /// 0 joins, -1 leaves.
    pub epoch: i32,
    /// How long the consumer may take to let go of partitions.
    pub rebalance_timeout_ms: Option<i32>,
    /// Names of topics.
    pub topics: Option<Vec<String>>,
    /// What the consumer has.
    pub owned: Option<Vec<(TopicId, Vec<i32>)>>,
}

/// The answer to a [`Beat`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeatAnswer {
    /// Kafka's code.
    pub code: i16,
    /// What the broker says about it.
    pub message: Option<String>,
    /// The member's epoch from now on.
    pub epoch: i32,
    /// When the next heartbeat is due.
    pub interval_ms: i32,
    /// What it may have; `None` as before.
    pub assignment: Option<Vec<(TopicId, Vec<i32>)>>,
}

/// What the consumer is told, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Read these too.
    Take(Parts),
    /// Commit, stop reading these, and answer with [`Member::released`].
    Give(Parts),
    /// These belong to others by now: stop reading, commit nothing, and answer with [`Member::released`].
    Lost(Parts),
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Tell the consumer.
    Tell(Notice),
    /// Ask who coordinates the group; [`Member::found`] or [`Member::lost`] follow.
    Find,
    /// Send this; [`Member::answered`] or [`Member::lost`] follow.
    Beat(Beat),
    /// Nothing until this time, or until something comes in; `None` when only that counts.
    Wait(Option<u64>),
    /// It is over.
    Done(Result<(), MemberFailure>),
}

/// Why a membership ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFailure {
    /// Kafka's code.
    pub code: i16,
    /// What the broker says about it.
    pub message: Option<String>,
}

/// Partitions that the consumer was told to let go of.
#[derive(Debug, Default)]
struct Release {
    parts: Parts,
    /// Answers of the consumer that are still to come.
    answers: u32,
}

/// The membership.
#[derive(Debug)]
pub struct Member {
    id: String,
    topics: Vec<String>,
    now_ms: u64,
    coordinator: Option<i32>,
    /// 0 while it is no member.
    epoch: i32,
    /// Whether the coordinator may know of it.
    known: bool,
    /// The next heartbeat says everything.
    full: bool,
    /// Nothing is sent before.
    due_ms: u64,
    /// A request is under way, and if it is a heartbeat, what it says that the consumer has.
    asked: Option<Option<Parts>>,
    attempts: u32,
    /// What the coordinator gave last.
    target: Parts,
    /// What the consumer has, with what it was told to let go of.
    owned: Parts,
    /// What the coordinator was told that it has.
    told: Option<Parts>,
    release: Release,
    notices: VecDeque<Notice>,
    closing: bool,
    over: Option<Result<(), MemberFailure>>,
}

/// Partitions by topic.
fn listed(parts: &Parts) -> Vec<(TopicId, Vec<i32>)> {
    let mut by_topic: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    parts.iter().for_each(|(topic, index)| by_topic.entry(*topic).or_default().push(*index));
    by_topic.into_iter().collect()
}

impl Member {
    /// Will join with these topics. The id is new and random; the edge makes it.
    #[must_use]
    pub fn new(id: String, topics: Vec<String>) -> Self {
        Self {
            id,
            topics,
            now_ms: 0,
            coordinator: None,
            epoch: JOIN,
            known: false,
            full: true,
            due_ms: 0,
            asked: None,
            attempts: 0,
            target: Parts::new(),
            owned: Parts::new(),
            told: None,
            release: Release::default(),
            notices: VecDeque::new(),
            closing: false,
            over: None,
        }
    }

    /// Member id and epoch to commit under; `None` while it is no member.
    #[must_use]
    pub fn identity(&self) -> Option<(&str, i32)> {
        (self.epoch > JOIN).then_some((self.id.as_str(), self.epoch))
    }

    /// What is to be done now.
    pub fn poll(&mut self, now_ms: u64) -> Step {
        self.now_ms = self.now_ms.max(now_ms);
        if let Some(over) = &self.over {
            return Step::Done(over.clone());
        }
        if let Some(notice) = self.notices.pop_front() {
            return Step::Tell(notice);
        }
        if self.closing && !self.known {
            self.over = Some(Ok(()));
            return Step::Done(Ok(()));
        }
        // A fenced member joins again when the consumer has let go of everything.
        if self.asked.is_some() || !self.closing && self.epoch == JOIN && self.release.answers > 0 {
            return Step::Wait(None);
        }
        if self.due_ms > self.now_ms {
            return Step::Wait(Some(self.due_ms));
        }
        let Some(node) = self.coordinator else {
            self.asked = Some(None);
            return Step::Find;
        };
        Step::Beat(self.beat(node))
    }

    fn beat(&mut self, node: i32) -> Beat {
        let (id, closing) = (self.id.clone(), self.closing);
        let epoch = if closing { LEAVE } else { self.epoch };
        let full = self.full && !closing;
        let owned = (full || !closing && self.told.as_ref() != Some(&self.owned)).then(|| self.owned.clone());
        self.known = true;
        self.asked = Some(owned.clone());
        Beat {
            node,
            member_id: id,
            epoch,
            rebalance_timeout_ms: full.then_some(MEMBER_REBALANCE_MS),
            topics: full.then(|| self.topics.clone()),
            owned: owned.as_ref().map(listed),
        }
    }

    /// The coordinator answered.
    pub fn answered(&mut self, now_ms: u64, answer: BeatAnswer) {
        self.now_ms = self.now_ms.max(now_ms);
        let Some(told) = self.asked.take() else { return };
        let code = ErrorCode::from_wire(answer.code);
        let moved = matches!(code, Some(ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable));
        let busy = matches!(code, Some(ErrorCode::CoordinatorLoadInProgress | ErrorCode::RequestTimedOut));
        if moved || busy {
            return self.again(moved);
        }
        // The join that was under way when it was closed has made it a member all the same.
        let leaving = self.closing && (answer.code != 0 || answer.epoch < JOIN);
        match code {
            _ if leaving => self.over = Some(Ok(())),
            Some(ErrorCode::None) if answer.epoch > JOIN => self.accepted(told, answer),
            Some(ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId) => self.fenced(),
            // The group was deleted, or is another one by now: joining tells.
            Some(ErrorCode::GroupIdNotFound) if self.epoch > JOIN => self.fenced(),
            _ => self.over = Some(Err(MemberFailure { code: answer.code, message: answer.message })),
        }
    }

    fn accepted(&mut self, told: Option<Parts>, answer: BeatAnswer) {
        self.attempts = 0;
        self.full = false;
        self.epoch = answer.epoch;
        self.due_ms = self.now_ms + u64::try_from(answer.interval_ms).unwrap_or(0).max(MEMBER_BACKOFF_MS_MIN);
        if told.is_some() {
            self.told = told;
        }
        if let Some(assignment) = answer.assignment {
            let keys = |(topic, indexes): (TopicId, Vec<i32>)| indexes.into_iter().map(move |index| (topic, index));
            self.target = assignment.into_iter().flat_map(keys).collect();
        }
        if self.closing {
            self.due_ms = self.now_ms;
        } else {
            self.reconcile();
        }
    }

    /// Gives up before it takes: what is to go has been acknowledged when something new is taken.
    fn reconcile(&mut self) {
        if self.release.answers > 0 {
            return;
        }
        let gone: Parts = self.owned.difference(&self.target).copied().collect();
        if !gone.is_empty() {
            self.let_go(gone, Notice::Give);
            return;
        }
        let new: Parts = self.target.difference(&self.owned).copied().collect();
        if !new.is_empty() {
            self.owned.extend(new.iter().copied());
            self.notices.push_back(Notice::Take(new));
            // The coordinator waits for this.
            self.due_ms = self.now_ms;
        }
    }

    fn let_go(&mut self, parts: Parts, notice: fn(Parts) -> Notice) {
        self.release.parts.extend(parts.iter().copied());
        self.release.answers += 1;
        self.notices.push_back(notice(parts));
    }

    /// The consumer let go of what the oldest open [`Notice::Give`] or [`Notice::Lost`] names.
    pub fn released(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        assert!(self.release.answers > 0, "only what was asked for is let go of");
        self.release.answers -= 1;
        if self.release.answers > 0 {
            return;
        }
        for part in std::mem::take(&mut self.release.parts) {
            self.owned.remove(&part);
        }
        if self.attempts == 0 {
            self.due_ms = self.now_ms;
        }
    }

    fn fenced(&mut self) {
        self.epoch = JOIN;
        self.known = false;
        self.told = None;
        self.target.clear();
        let lost = self.owned.clone();
        if !lost.is_empty() {
            self.let_go(lost, Notice::Lost);
        }
        self.again(false);
    }

    /// The request that is under way has no answer and will have none.
    pub fn lost(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.asked.take().is_some() {
            self.again(true);
        }
    }

    /// Who coordinates the group, or why nobody says so.
    pub fn found(&mut self, now_ms: u64, found: Result<i32, MemberFailure>) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.asked.take().is_none() {
            return;
        }
        let later = |failure: &MemberFailure| {
            let known = ErrorCode::from_wire(failure.code);
            let codes = [
                ErrorCode::CoordinatorNotAvailable,
                ErrorCode::CoordinatorLoadInProgress,
                ErrorCode::NotCoordinator,
                ErrorCode::RequestTimedOut,
            ];
            known.is_some_and(|code| codes.contains(&code))
        };
        match found {
            Ok(node) => self.coordinator = Some(node),
            Err(failure) if later(&failure) => self.again(true),
            Err(_) if self.closing => self.over = Some(Ok(())),
            Err(failure) => self.over = Some(Err(failure)),
        }
    }

    /// Everything is said once more, after a pause, and if it has moved to another coordinator.
    fn again(&mut self, moved: bool) {
        if moved {
            self.coordinator = None;
        }
        self.full = true;
        let pause_ms = MEMBER_BACKOFF_MS_MIN << self.attempts.min(16);
        self.attempts += 1;
        self.due_ms = self.now_ms + pause_ms.min(MEMBER_BACKOFF_MS_MAX);
        // The session's end does the same as leaving.
        if self.closing && self.attempts >= MEMBER_LEAVE_TRIES {
            self.over = Some(Ok(()));
        }
    }

    /// Leaves; the consumer has committed and reads nothing any more.
    pub fn close(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.closing {
            return;
        }
        self.closing = true;
        self.notices.clear();
        self.owned.clear();
        self.release = Release::default();
        (self.attempts, self.due_ms) = (0, self.now_ms);
    }
}

#[cfg(test)]
mod tests;
