//! Contract G17: who may commit and fetch.

use super::*;
use crate::ids::PartitionKey;

fn commit(lab: &mut Lab, version: i16, member: &str, epoch: i32, indexes: &[i32]) -> ErrorCode {
    let topic = lab.topic;
    let partitions: Vec<_> = indexes
        .iter()
        .map(|index| CommitPartition {
            key: PartitionKey { topic, index: *index },
            offset: 5,
            leader_epoch: -1,
            metadata: None,
        })
        .collect();
    let commit = Commit {
        version,
        member_id: member.into(),
        generation: epoch,
        retention_ms: -1,
        partitions,
        ..Commit::default()
    };
    match lab.harness.answer(GROUP, Ask::Commit(commit)) {
        Reply::Commit(codes) => {
            assert!(codes.iter().all(|code| *code == codes[0]), "all or nothing: {codes:?}");
            codes[0]
        }
        other => panic!("{other:?}"),
    }
}

fn fetch(lab: &mut Lab, member: Option<&str>, epoch: i32) -> ErrorCode {
    let fetch = FetchOffsets {
        member_id: member.map(str::to_owned),
        member_epoch: epoch,
        require_stable: false,
        partitions: None,
    };
    match lab.harness.answer(GROUP, Ask::FetchOffsets(fetch)) {
        Reply::FetchOffsets(fetched) => fetched.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn g17_1_g17_2_a_member_commits_at_its_epoch() {
    let mut lab = Lab::new(4);
    lab.join("A").expect("joined");
    assert_eq!(commit(&mut lab, 8, "A", 2, &[0]), ErrorCode::UnsupportedVersion);
    assert_eq!(commit(&mut lab, 8, "B", 2, &[0]), ErrorCode::UnknownMemberId);
    assert_eq!(commit(&mut lab, 9, "", -1, &[0]), ErrorCode::UnknownMemberId);
    assert_eq!(commit(&mut lab, 9, "A", 2, &[0, 77]), ErrorCode::None);
    assert_eq!(commit(&mut lab, 9, "A", 3, &[0]), ErrorCode::StaleMemberEpoch);
}

#[test]
fn g17_3_an_older_epoch_commits_what_the_member_has_since_then() {
    let mut lab = Lab::new(4);
    lab.join("A").expect("joined");
    lab.join("B").expect("joined");
    lab.beat("A", 2).expect("half");
    assert_eq!(commit(&mut lab, 9, "A", 2, &[2, 3]), ErrorCode::None);
    assert_eq!(lab.owning("A", 2, &[0, 1]), null(3));
    assert_eq!(lab.beat("B", 3), given(3, &[2, 3]));
    assert_eq!(commit(&mut lab, 9, "A", 2, &[0, 1]), ErrorCode::None);
    assert_eq!(commit(&mut lab, 9, "A", 2, &[0, 3]), ErrorCode::StaleMemberEpoch);
    assert_eq!(commit(&mut lab, 9, "A", -1, &[0]), ErrorCode::StaleMemberEpoch);
    assert_eq!(commit(&mut lab, 9, "B", 2, &[2]), ErrorCode::StaleMemberEpoch);
    lab.harness.crash();
    assert_eq!(commit(&mut lab, 9, "A", 2, &[0, 1]), ErrorCode::None);
}

#[test]
fn g17_4_fetches_name_the_very_epoch() {
    let mut lab = Lab::new(4);
    lab.join("A").expect("joined");
    assert_eq!(fetch(&mut lab, None, -1), ErrorCode::None);
    assert_eq!(fetch(&mut lab, None, 0), ErrorCode::UnknownServerError);
    assert_eq!(fetch(&mut lab, Some(""), -1), ErrorCode::UnknownMemberId);
    assert_eq!(fetch(&mut lab, Some("A"), -1), ErrorCode::StaleMemberEpoch);
    assert_eq!(fetch(&mut lab, Some("A"), 3), ErrorCode::StaleMemberEpoch);
    assert_eq!(fetch(&mut lab, Some("A"), 2), ErrorCode::None);
}

#[test]
fn g17_7_an_empty_group_takes_simple_commits() {
    let mut lab = Lab::new(4);
    lab.join("A").expect("joined");
    lab.beat("A", -1).expect("left");
    assert_eq!(commit(&mut lab, 5, "whoever", -1, &[0]), ErrorCode::None);
    assert_eq!(commit(&mut lab, 9, "A", 2, &[0]), ErrorCode::UnknownMemberId);
    assert_eq!(fetch(&mut lab, Some("A"), 2), ErrorCode::UnknownMemberId);
}
