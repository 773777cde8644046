//! The membership step by step.

mod sim;

use super::*;

const TOPIC: TopicId = TopicId(7);
const INTERVAL_MS: i32 = 5_000;

fn parts(indexes: &[i32]) -> Parts {
    indexes.iter().map(|index| (TOPIC, *index)).collect()
}

fn owned(indexes: &[i32]) -> Option<Vec<(TopicId, Vec<i32>)>> {
    Some(if indexes.is_empty() { vec![] } else { vec![(TOPIC, indexes.to_vec())] })
}

fn yes(epoch: i32, assignment: Option<&[i32]>) -> BeatAnswer {
    let assignment = assignment.and_then(owned);
    BeatAnswer { epoch, interval_ms: INTERVAL_MS, assignment, ..BeatAnswer::default() }
}

fn no(code: ErrorCode) -> BeatAnswer {
    BeatAnswer { code: code.wire(), message: Some("so".into()), ..BeatAnswer::default() }
}

/// A member under a clock.
struct Lab {
    member: Member,
    now_ms: u64,
}

impl Lab {
    fn new() -> Self {
        let mut lab = Self { member: Member::new("m".into(), vec!["t".into()]), now_ms: 1_000 };
        lab.found();
        lab
    }

    /// A member at this epoch that reads these and has said so.
    fn joined(epoch: i32, indexes: &[i32]) -> Self {
        let mut lab = Self::new();
        lab.beat();
        lab.answer(yes(epoch, Some(indexes)));
        if !indexes.is_empty() {
            assert_eq!(lab.poll(), Step::Tell(Notice::Take(parts(indexes))));
            assert_eq!(lab.beat().owned, owned(indexes));
            lab.answer(yes(epoch, None));
        }
        lab
    }

    fn poll(&mut self) -> Step {
        self.member.poll(self.now_ms)
    }

    fn found(&mut self) {
        assert_eq!(self.poll(), Step::Find);
        self.member.found(self.now_ms, Ok(3));
    }

    #[track_caller]
    fn beat(&mut self) -> Beat {
        match self.poll() {
            Step::Beat(beat) => beat,
            other => panic!("{other:?} is no heartbeat"),
        }
    }

    fn answer(&mut self, answer: BeatAnswer) {
        self.member.answered(self.now_ms, answer);
    }

    /// Waits until the member wants something; how long that was.
    #[track_caller]
    fn wait(&mut self) -> u64 {
        match self.poll() {
            Step::Wait(Some(until_ms)) => {
                let waited_ms = until_ms - self.now_ms;
                self.now_ms = until_ms;
                waited_ms
            }
            other => panic!("{other:?} is no pause"),
        }
    }
}

#[test]
fn g11_4_it_joins_with_everything_and_then_says_only_what_changed() {
    let mut lab = Lab::new();
    let join = lab.beat();
    assert_eq!((join.node, join.epoch, join.rebalance_timeout_ms), (3, 0, Some(MEMBER_REBALANCE_MS)));
    assert_eq!((join.topics, join.owned), (Some(vec!["t".into()]), owned(&[])));
    assert_eq!(lab.member.identity(), None);
    lab.answer(yes(2, Some(&[0, 1])));
    assert_eq!(lab.member.identity(), Some(("m", 2)));
    assert_eq!(lab.poll(), Step::Tell(Notice::Take(parts(&[0, 1]))));
    let told = lab.beat();
    assert_eq!((told.epoch, told.topics, told.owned), (2, None, owned(&[0, 1])), "at once");
    lab.answer(yes(2, None));
    assert_eq!(lab.wait(), INTERVAL_MS as u64);
    assert_eq!(lab.beat().owned, None);
}

#[test]
fn g12_5_a_partition_is_given_back_after_the_consumer_let_go_and_new_ones_come_behind_that() {
    let mut lab = Lab::joined(2, &[0, 1]);
    lab.wait();
    lab.beat();
    lab.answer(yes(2, Some(&[1, 5])));
    assert_eq!(lab.poll(), Step::Tell(Notice::Give(parts(&[0]))));
    lab.wait();
    assert_eq!(lab.beat().owned, None, "it still has it");
    lab.answer(yes(2, None));
    lab.member.released(lab.now_ms);
    assert_eq!(lab.beat().owned, owned(&[1]), "at once, and nothing is taken before");
    lab.answer(yes(3, None));
    assert_eq!(lab.poll(), Step::Tell(Notice::Take(parts(&[5]))));
    assert_eq!(lab.beat().owned, owned(&[1, 5]));
}

#[test]
fn what_is_given_back_meanwhile_is_taken_again() {
    let mut lab = Lab::joined(2, &[0, 1]);
    lab.wait();
    lab.beat();
    lab.answer(yes(2, Some(&[1])));
    assert_eq!(lab.poll(), Step::Tell(Notice::Give(parts(&[0]))));
    lab.wait();
    lab.beat();
    lab.answer(yes(4, Some(&[0, 1])));
    lab.member.released(lab.now_ms);
    assert_eq!(lab.beat().owned, owned(&[1]));
    lab.answer(yes(4, None));
    assert_eq!(lab.poll(), Step::Tell(Notice::Take(parts(&[0]))));
}

#[test]
fn a_fenced_member_joins_again_when_the_consumer_has_let_go_of_everything() {
    for code in [ErrorCode::FencedMemberEpoch, ErrorCode::UnknownMemberId, ErrorCode::GroupIdNotFound] {
        let mut lab = Lab::joined(2, &[0, 1]);
        lab.wait();
        lab.beat();
        lab.answer(no(code));
        assert_eq!(lab.member.identity(), None, "nothing is committed under the old epoch");
        assert_eq!(lab.poll(), Step::Tell(Notice::Lost(parts(&[0, 1]))));
        lab.now_ms += 60_000;
        assert_eq!(lab.poll(), Step::Wait(None));
        lab.member.released(lab.now_ms);
        let join = lab.beat();
        assert_eq!((join.epoch, join.topics.is_some(), join.owned), (0, true, owned(&[])));
    }
}

#[test]
fn a_fence_on_top_of_a_revocation_waits_for_both() {
    let mut lab = Lab::joined(2, &[0, 1]);
    lab.wait();
    lab.beat();
    lab.answer(yes(2, Some(&[1])));
    assert_eq!(lab.poll(), Step::Tell(Notice::Give(parts(&[0]))));
    lab.wait();
    lab.beat();
    lab.answer(no(ErrorCode::UnknownMemberId));
    assert_eq!(lab.poll(), Step::Tell(Notice::Lost(parts(&[0, 1]))));
    lab.member.released(lab.now_ms);
    lab.now_ms += 60_000;
    assert_eq!(lab.poll(), Step::Wait(None));
    lab.member.released(lab.now_ms);
    assert_eq!(lab.beat().owned, owned(&[]));
}

#[test]
fn a_coordinator_that_has_moved_is_looked_for_and_told_everything() {
    for code in [ErrorCode::NotCoordinator, ErrorCode::CoordinatorNotAvailable] {
        let mut lab = Lab::joined(2, &[0]);
        lab.wait();
        lab.beat();
        lab.answer(no(code));
        assert_eq!(lab.wait(), MEMBER_BACKOFF_MS_MIN);
        lab.found();
        let beat = lab.beat();
        assert_eq!((beat.epoch, beat.topics.is_some(), beat.owned), (2, true, owned(&[0])));
    }
}

#[test]
fn g11_11_a_lost_answer_is_asked_for_with_what_it_has_and_pauses_grow_to_a_bound() {
    let mut lab = Lab::joined(2, &[0]);
    lab.wait();
    let mut pauses = Vec::new();
    for _ in 0..7 {
        assert_eq!(lab.beat().epoch, 2);
        lab.member.lost(lab.now_ms);
        pauses.push(lab.wait());
        lab.found();
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    assert_eq!(lab.beat().owned, owned(&[0]));
    lab.answer(yes(3, Some(&[0])));
    assert_eq!(lab.member.identity(), Some(("m", 3)));
    assert_eq!(lab.wait(), INTERVAL_MS as u64);
}

#[test]
fn a_broker_without_the_protocol_and_a_group_of_another_kind_end_it() {
    for code in [ErrorCode::UnsupportedVersion, ErrorCode::GroupIdNotFound, ErrorCode::GroupMaxSizeReached] {
        let mut lab = Lab::new();
        lab.beat();
        lab.answer(no(code));
        let failure = MemberFailure { code: code.wire(), message: Some("so".into()) };
        assert_eq!(lab.poll(), Step::Done(Err(failure.clone())));
        assert_eq!(lab.poll(), Step::Done(Err(failure)), "for good");
    }
    let mut lab = Lab { member: Member::new("m".into(), vec![]), now_ms: 0 };
    assert_eq!(lab.poll(), Step::Find);
    let failure = MemberFailure { code: ErrorCode::GroupAuthorizationFailed.wire(), message: None };
    lab.member.found(0, Err(failure.clone()));
    assert_eq!(lab.poll(), Step::Done(Err(failure)));
}

#[test]
fn an_answer_without_an_epoch_is_no_membership() {
    let mut lab = Lab::new();
    lab.beat();
    lab.answer(yes(0, Some(&[0])));
    assert!(matches!(lab.poll(), Step::Done(Err(_))));
}

#[test]
fn it_leaves_once_and_a_broker_that_is_away_does_not_hold_it() {
    let mut lab = Lab::joined(2, &[0]);
    lab.member.close(lab.now_ms);
    let leave = lab.beat();
    assert_eq!((leave.epoch, leave.topics, leave.owned), (-1, None, None));
    lab.answer(yes(-1, None));
    assert_eq!(lab.poll(), Step::Done(Ok(())));

    let mut lab = Lab::joined(2, &[0]);
    lab.member.close(lab.now_ms);
    assert_eq!(lab.beat().epoch, -1);
    lab.member.lost(lab.now_ms);
    for _ in 1..MEMBER_LEAVE_TRIES {
        lab.wait();
        assert_eq!(lab.poll(), Step::Find);
        lab.member.lost(lab.now_ms);
    }
    assert_eq!(lab.poll(), Step::Done(Ok(())));
}

#[test]
fn who_never_asked_to_join_has_nothing_to_leave_and_who_asked_does() {
    let mut lab = Lab::new();
    lab.member.close(lab.now_ms);
    assert_eq!(lab.poll(), Step::Done(Ok(())));

    let mut lab = Lab::new();
    lab.beat();
    lab.member.close(lab.now_ms);
    assert_eq!(lab.poll(), Step::Wait(None), "one request at a time");
    lab.answer(yes(2, Some(&[0])));
    assert_eq!(lab.beat().epoch, -1);
    lab.answer(no(ErrorCode::UnknownMemberId));
    assert_eq!(lab.poll(), Step::Done(Ok(())), "it is gone");
}
