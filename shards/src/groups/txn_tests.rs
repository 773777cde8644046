//! Offsets in transactions (contract C3, C4.3): what is pending, who may commit it, and what a marker makes of it;
//! and a model that reads the records in their order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::testing::Harness;
use super::*;
use crate::ids::{PartitionKey, ProducerEpoch, ProducerId, TopicId};
use crate::txn::{Identity, Outcome};

const G: &str = "g";
const WHOLE_DAY_MS: i64 = 86_400_000;

fn producer(id: i64, epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

struct Lab {
    h: Harness,
    topic: TopicId,
}

impl Lab {
    fn new() -> Self {
        let mut h = Harness::new();
        let topic = h.topic("t", 8);
        Self { h, topic }
    }

    fn key(&self, index: i32) -> PartitionKey {
        PartitionKey { topic: self.topic, index }
    }

    fn offsets(&self, rows: &[(i32, i64)]) -> Commit {
        let row = |(index, offset): &(i32, i64)| CommitPartition {
            key: self.key(*index),
            offset: *offset,
            leader_epoch: 3,
            metadata: Some("m".into()),
        };
        let partitions = rows.iter().map(row).collect();
        Commit { version: 9, generation: -1, retention_ms: -1, partitions, ..Commit::default() }
    }

    fn codes(&mut self, ask: Ask) -> Vec<ErrorCode> {
        match self.h.answer(G, ask) {
            Reply::Commit(codes) => {
                assert_eq!(self.h.recovered(G), self.h.snapshot(G), "a crash changes nothing");
                codes
            }
            other => panic!("{other:?}"),
        }
    }

    fn plain(&mut self, index: i32, offset: i64) {
        let commit = self.offsets(&[(index, offset)]);
        assert_eq!(self.codes(Ask::Commit(commit)), [ErrorCode::None]);
    }

    fn pend(&mut self, producer: Identity, index: i32, offset: i64) {
        let commit = self.offsets(&[(index, offset)]);
        assert_eq!(self.codes(Ask::TxnCommit(TxnCommit { producer, commit })), [ErrorCode::None]);
    }

    /// The code of a transactional commit of partition 0 by a member.
    fn member(&mut self, member_id: &str, generation: i32, instance_id: Option<&str>) -> ErrorCode {
        self.member_of(member_id, generation, instance_id, &[0])
    }

    fn member_of(&mut self, id: &str, generation: i32, instance_id: Option<&str>, indexes: &[i32]) -> ErrorCode {
        let rows: Vec<_> = indexes.iter().map(|index| (*index, 1)).collect();
        let member_id = id.to_owned();
        let commit =
            Commit { member_id, generation, instance_id: instance_id.map(str::to_owned), ..self.offsets(&rows) };
        let codes = self.codes(Ask::TxnCommit(TxnCommit { producer: producer(9, 0), commit }));
        assert!(codes.iter().all(|code| *code == codes[0]), "all or none: {codes:?}");
        codes[0]
    }

    fn end(&mut self, producer: Identity, version: i8, outcome: Outcome) {
        assert_eq!(self.h.answer(G, Ask::TxnEnd(TxnEnd { producer, version, outcome })), Reply::TxnEnded);
        assert_eq!(self.h.recovered(G), self.h.snapshot(G), "a crash changes nothing");
    }

    fn fetch(&mut self, require_stable: bool, partitions: Option<Vec<PartitionKey>>) -> Vec<FetchedOffset> {
        let fetch = FetchOffsets { member_id: None, member_epoch: -1, require_stable, partitions };
        match self.h.answer(G, Ask::FetchOffsets(fetch)) {
            Reply::FetchOffsets(fetched) => fetched.partitions,
            other => panic!("{other:?}"),
        }
    }

    /// What is committed, and whether a stable read of it is answered.
    fn read(&mut self, index: i32) -> (i64, bool) {
        let key = self.key(index);
        let stable = self.fetch(true, Some(vec![key]))[0].code;
        assert!([ErrorCode::None, ErrorCode::UnstableOffsetCommit].contains(&stable));
        (self.fetch(false, Some(vec![key]))[0].offset, stable.is_none())
    }

    fn is_there(&self) -> bool {
        self.h.group(G).is_some()
    }

    fn let_days_pass(&mut self, days: i64) {
        self.h.now.wall.0 += days * WHOLE_DAY_MS;
        self.h.expire_offsets();
    }
}

#[test]
fn f70_a_pending_offset_is_unstable_and_its_outcome_decides() {
    let mut lab = Lab::new();
    lab.plain(0, 10);
    lab.pend(producer(1, 0), 0, 20);
    let key = lab.key(0);
    let unstable = lab.fetch(true, Some(vec![key])).remove(0);
    assert_eq!((unstable.code, unstable.offset), (ErrorCode::UnstableOffsetCommit, -1));
    assert_eq!((unstable.leader_epoch, unstable.metadata.as_str()), (-1, ""));
    assert_eq!(lab.read(0), (10, false));
    lab.end(producer(1, 0), 0, Outcome::Abort);
    assert_eq!(lab.read(0), (10, true));
    lab.pend(producer(1, 0), 0, 30);
    lab.end(producer(1, 0), 0, Outcome::Commit);
    let committed = lab.fetch(true, Some(vec![key])).remove(0);
    assert_eq!((committed.offset, committed.leader_epoch, committed.metadata.as_str()), (30, 3, "m"));
}

#[test]
fn f71_the_later_record_wins_in_whatever_order_the_markers_come() {
    let mut lab = Lab::new();
    lab.pend(producer(1, 0), 0, 100);
    lab.plain(0, 101);
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert_eq!(lab.read(0), (101, true), "a plain commit behind the record");
    let (x, y) = (producer(1, 0), producer(2, 0));
    for first in [x, y] {
        lab.pend(x, 1, 7);
        lab.pend(y, 1, 8);
        lab.end(first, 0, Outcome::Commit);
        assert_eq!(lab.read(1), (if first == x { 7 } else { 8 }, false));
        lab.h.checkpoint();
        lab.h.crash();
        lab.end(if first == x { y } else { x }, 0, Outcome::Commit);
        assert_eq!(lab.read(1), (8, true), "Y's record is the later one");
    }
}

#[test]
fn c3_of_one_transaction_the_last_commit_counts() {
    let mut lab = Lab::new();
    lab.pend(producer(1, 0), 0, 5);
    lab.pend(producer(1, 0), 0, 3);
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert_eq!(lab.read(0), (3, true));
}

#[test]
fn c3_a_pending_offset_of_an_unknown_group_creates_it_even_if_the_transaction_aborts() {
    for outcome in [Outcome::Commit, Outcome::Abort] {
        let mut lab = Lab::new();
        lab.pend(producer(1, 0), 0, 5);
        lab.end(producer(1, 0), 0, outcome);
        let Reply::Describe(Ok(described)) = lab.h.answer(G, Ask::Describe) else { panic!("it is there") };
        assert_eq!((described.state, described.protocol_type.as_str()), ("Empty", ""));
        lab.let_days_pass(8);
        assert!(!lab.is_there(), "it holds nothing any more");
    }
}

#[test]
fn c3_the_end_for_an_unknown_group_and_of_nothing_pending_writes_nothing() {
    let mut lab = Lab::new();
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert!(!lab.is_there());
    lab.plain(0, 1);
    let written = lab.h.written(G);
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert_eq!(lab.h.written(G), written);
}

#[test]
fn c3_at_the_last_epoch_a_marker_of_path_b_ends_its_own_transaction() {
    let mut lab = Lab::new();
    lab.pend(producer(1, i16::MAX), 0, 2);
    lab.end(producer(1, i16::MAX), 2, Outcome::Commit);
    assert_eq!(lab.read(0), (2, true), "the next transaction has another producer id");
}

#[test]
fn c3_f77_pending_offsets_keep_what_is_committed_and_the_group_and_age_from_their_commit() {
    let mut lab = Lab::new();
    lab.plain(0, 1);
    lab.pend(producer(1, 0), 0, 2);
    lab.let_days_pass(30);
    assert_eq!(lab.read(0), (1, false));
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert_eq!(lab.read(0), (2, true));
    lab.let_days_pass(0);
    assert!(!lab.is_there(), "open past the retention time: gone at the first look");
}

#[test]
fn f77_what_deletes_a_group_or_an_offset_takes_what_is_pending_and_a_commit_brings_nothing_back() {
    let mut lab = Lab::new();
    lab.pend(producer(1, 0), 0, 2);
    assert_eq!(lab.h.answer(G, Ask::Delete), Reply::Delete(ErrorCode::None));
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert!(!lab.is_there());
    lab.plain(1, 1);
    lab.pend(producer(1, 0), 0, 2);
    let key = lab.key(0);
    assert_eq!(lab.h.answer(G, Ask::DeleteOffsets(vec![key])), Reply::DeleteOffsets(Ok(vec![ErrorCode::None])));
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert_eq!(lab.read(0), (-1, true));
}

#[test]
fn c5_all_offsets_of_a_group_leave_out_what_is_pending_alone() {
    let mut lab = Lab::new();
    lab.plain(0, 1);
    lab.plain(1, 1);
    lab.pend(producer(1, 0), 1, 2);
    lab.pend(producer(1, 0), 2, 2);
    let told: Vec<_> = lab.fetch(true, None).iter().map(|one| (one.key.index, one.offset, one.code)).collect();
    assert_eq!(told, [(0, 1, ErrorCode::None), (1, -1, ErrorCode::UnstableOffsetCommit)]);
}

#[test]
fn f75_a_marker_of_path_b_leaves_what_is_pending_at_its_own_epoch() {
    let mut lab = Lab::new();
    lab.pend(producer(1, 1), 0, 2);
    lab.end(producer(1, 1), 2, Outcome::Commit);
    assert_eq!(lab.read(0), (-1, false), "of the next transaction");
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert_eq!(lab.read(0), (-1, false), "an older marker is none of its business");
    lab.end(producer(1, 2), 2, Outcome::Commit);
    assert_eq!(lab.read(0), (2, true));
    lab.pend(producer(1, 2), 0, 3);
    lab.end(producer(1, 2), 0, Outcome::Commit);
    assert_eq!(lab.read(0), (3, true), "path A ends what is at its epoch");
}

#[test]
fn c4_3_an_unknown_group_takes_commits_without_a_generation() {
    let mut lab = Lab::new();
    assert_eq!(lab.member("", 3, None), ErrorCode::IllegalGeneration);
    assert!(!lab.is_there());
    assert_eq!(lab.member("anybody", -1, Some("any")), ErrorCode::None);
    assert!(lab.is_there());
    assert_eq!(lab.member("anybody", -1, Some("any")), ErrorCode::None, "Empty: whoever it is");
    assert_eq!(lab.member("anybody", 0, None), ErrorCode::UnknownMemberId);
}

fn join(member_id: &str, instance_id: Option<&str>) -> Ask {
    Ask::Join(Join {
        version: 5,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member_id: member_id.into(),
        instance_id: instance_id.map(str::to_owned),
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), bytes::Bytes::new())],
        fresh: 77,
        ..Join::default()
    })
}

#[test]
fn f72_a_classic_group_fences_by_member_instance_and_generation_but_not_by_rebalance() {
    let mut lab = Lab::new();
    let Reply::Join(joined) = lab.h.answer(G, join("", Some("i"))) else { panic!("it is joined") };
    assert_eq!((joined.code, joined.generation), (ErrorCode::None, 1));
    let id = joined.member_id;
    assert_eq!(lab.member(&id, 1, Some("i")), ErrorCode::None, "CompletingRebalance is not looked at");
    assert_eq!(lab.member("", -1, None), ErrorCode::None, "defaults pass whatever the group is");
    assert_eq!(lab.member(&id, 2, None), ErrorCode::IllegalGeneration);
    assert_eq!(lab.member(&id, -1, None), ErrorCode::IllegalGeneration);
    assert_eq!(lab.member("x", 2, None), ErrorCode::UnknownMemberId, "before the generation");
    assert_eq!(lab.member("x", 1, Some("i")), ErrorCode::FencedInstanceId);
    assert_eq!(lab.member(&id, 1, Some("j")), ErrorCode::UnknownMemberId);
}

fn heartbeat(member_id: &str, member_epoch: i32, topics: Option<&str>) -> Ask {
    Ask::ConsumerHeartbeat(ConsumerHeartbeat {
        version: 1,
        member_id: member_id.into(),
        member_epoch,
        rebalance_timeout_ms: if member_epoch == 0 { 10_000 } else { -1 },
        topics: topics.map(|topic| vec![topic.to_owned()]),
        owned: (member_epoch == 0).then(Vec::new),
        ..ConsumerHeartbeat::default()
    })
}

#[test]
fn f73_g17_5_a_consumer_group_takes_an_older_epoch_for_what_was_assigned_by_then() {
    let mut lab = Lab::new();
    lab.h.set(|settings| settings.consumer_assignment_interval_ms = 0);
    let member = "00000000000000000000000";
    let Reply::ConsumerHeartbeat(joined) = lab.h.answer(G, heartbeat(member, 0, Some("t"))) else { panic!("joined") };
    let first = joined.member_epoch;
    assert_eq!(lab.member(member, first, Some("not looked at")), ErrorCode::None);
    assert_eq!(lab.member("x", first, None), ErrorCode::UnknownMemberId);
    assert_eq!(lab.member("", -1, None), ErrorCode::None);
    assert_eq!(lab.member(member, first + 1, None), ErrorCode::IllegalGeneration, "never 113");
    assert_eq!(lab.member(member, first - 1, None), ErrorCode::IllegalGeneration);
    lab.h.topic("u", 1);
    let both = Ask::ConsumerHeartbeat(ConsumerHeartbeat {
        version: 1,
        member_id: member.into(),
        member_epoch: first,
        rebalance_timeout_ms: -1,
        topics: Some(vec!["t".into(), "u".into()]),
        ..ConsumerHeartbeat::default()
    });
    let Reply::ConsumerHeartbeat(moved) = lab.h.answer(G, both) else { panic!("it beats") };
    assert!(moved.member_epoch > first, "{moved:?}");
    assert_eq!(lab.member_of(member, first, None, &[0, 7]), ErrorCode::None, "theirs since {first}");
    assert_eq!(lab.member_of(member, first, None, &[0, 77]), ErrorCode::IllegalGeneration, "one that is not");
}

#[test]
fn c4_4_metadata_that_is_too_long_fails_its_partition_alone() {
    let mut lab = Lab::new();
    let mut commit = lab.offsets(&[(0, 1), (1, 1)]);
    commit.partitions[0].metadata = Some("\u{1f980}".repeat(2_049));
    let codes = lab.codes(Ask::TxnCommit(TxnCommit { producer: producer(1, 0), commit }));
    assert_eq!(codes, [ErrorCode::OffsetMetadataTooLarge, ErrorCode::None]);
    lab.end(producer(1, 0), 0, Outcome::Commit);
    assert_eq!((lab.read(0), lab.read(1)), ((-1, true), (1, true)));
}

#[derive(Clone, Debug)]
enum Step {
    Plain(i32),
    Pend(i64, i32),
    End(i64, bool),
    Delete(i32),
    Crash,
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..3).prop_map(Step::Plain),
        6 => (1..4i64, 0..3).prop_map(|(id, index)| Step::Pend(id, index)),
        4 => (1..4i64, any::<bool>()).prop_map(|(id, commits)| Step::End(id, commits)),
        1 => (0..3).prop_map(Step::Delete),
        1 => Just(Step::Crash),
        1 => Just(Step::Checkpoint),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The records in their order: committed and pending ones with where they stand; the offset is the place.
#[derive(Default)]
struct Model {
    committed: BTreeMap<i32, i64>,
    pending: BTreeMap<(i64, i32), i64>,
}

impl Model {
    fn step(&mut self, step: &Step, place: i64) {
        match step {
            Step::Plain(index) => drop(self.committed.insert(*index, place)),
            Step::Pend(id, index) => drop(self.pending.insert((*id, *index), place)),
            Step::End(id, commits) => {
                for ((_, index), place) in self.pending.extract_if(.., |(of, _), _| of == id) {
                    let committed = self.committed.get(&index).copied().unwrap_or(-1);
                    if *commits && place > committed {
                        self.committed.insert(index, place);
                    }
                }
            }
            Step::Delete(index) => {
                self.committed.remove(index);
                self.pending.retain(|(_, of), _| of != index);
            }
            Step::Crash | Step::Checkpoint => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn c3_offsets_are_those_of_the_last_record_whose_transaction_committed(steps in steps()) {
        let (mut lab, mut model) = (Lab::new(), Model::default());
        for (place, step) in (1..).zip(&steps) {
            match step {
                Step::Plain(index) => lab.plain(*index, place),
                Step::Pend(id, index) => lab.pend(producer(*id, 0), *index, place),
                Step::End(id, commits) => {
                    lab.end(producer(*id, 0), 0, if *commits { Outcome::Commit } else { Outcome::Abort });
                }
                Step::Delete(index) => {
                    let key = lab.key(*index);
                    lab.h.answer(G, Ask::DeleteOffsets(vec![key]));
                }
                Step::Crash => lab.h.crash(),
                Step::Checkpoint => lab.h.checkpoint(),
            }
            model.step(step, place);
            for index in 0..3 {
                let is_stable = !model.pending.keys().any(|(_, of)| *of == index);
                let offset = model.committed.get(&index).copied().unwrap_or(-1);
                prop_assert_eq!(lab.read(index), (offset, is_stable), "partition {} after {:?}", index, step);
            }
        }
    }
}
