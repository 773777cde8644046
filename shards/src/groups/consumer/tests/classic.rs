//! Contract G18: both protocols in one group, and groups that change between them.

use bytes::{BufMut, Bytes, BytesMut};

use super::*;
use crate::groups::subscription::Assignment;
use crate::partition::WaiterId;

/// A subscription of version 1 to topics, owning partitions of `t`.
fn subscription(topics: &[&str], owned: &[i32]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(1);
    out.put_i32(topics.len() as i32);
    for topic in topics {
        out.put_i16(topic.len() as i16);
        out.put_slice(topic.as_bytes());
    }
    out.put_i32(-1);
    out.put_i32(1);
    out.put_i16(1);
    out.put_slice(b"t");
    out.put_i32(owned.len() as i32);
    owned.iter().for_each(|index| out.put_i32(*index));
    out.freeze()
}

fn assignment(indexes: &[i32]) -> Bytes {
    Assignment { version: 1, partitions: vec![("t".into(), indexes.to_vec())], user_data: None }.encode()
}

fn indexes(bytes: &Bytes) -> Vec<i32> {
    let parsed = Assignment::parse(bytes).expect("an assignment");
    parsed.partitions.into_iter().flat_map(|(_, indexes)| indexes).collect()
}

/// A JoinGroup of version 3, which needs no id first.
fn joining(client: &str, id: &str, owned: &[i32]) -> Join {
    Join {
        version: 3,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: id.into(),
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), subscription(&["t"], owned))],
        client: Client { id: client.into(), host: "/h".into() },
        ..Join::default()
    }
}

impl Lab {
    fn send_join(&mut self, join: Join) -> WaiterId {
        let fresh = self.harness.fresh();
        self.harness.ask(GROUP, Ask::Join(Join { fresh, ..join }))
    }

    fn joined(&mut self, waiter: WaiterId) -> Joined {
        match self.harness.take(waiter) {
            Some(Reply::Join(joined)) => joined,
            other => panic!("{other:?}"),
        }
    }

    /// A JoinGroup that is answered at once.
    fn classic_join(&mut self, join: Join) -> Joined {
        let waiter = self.send_join(join);
        self.joined(waiter)
    }

    fn sync_with(&mut self, sync: Sync) -> Synced {
        match self.harness.answer(GROUP, Ask::Sync(sync)) {
            Reply::Sync(synced) => synced,
            other => panic!("{other:?}"),
        }
    }

    fn sync(&mut self, id: &str, generation: i32) -> Result<Vec<i32>, ErrorCode> {
        let synced = self.sync_with(Sync { version: 3, member_id: id.into(), generation, ..Sync::default() });
        if synced.code == ErrorCode::None { Ok(indexes(&synced.assignment)) } else { Err(synced.code) }
    }

    fn classic_beat(&mut self, id: &str, generation: i32) -> ErrorCode {
        let beat = Heartbeat { member_id: id.into(), generation, instance_id: None };
        match self.harness.answer(GROUP, Ask::Heartbeat(beat)) {
            Reply::Heartbeat(code) => code,
            other => panic!("{other:?}"),
        }
    }

    fn leave(&mut self, ids: &[&str]) -> Vec<ErrorCode> {
        let leaving = ids.iter().map(|id| Leaving { member_id: (*id).into(), instance_id: None }).collect();
        match self.harness.answer(GROUP, Ask::Leave(leaving)) {
            Reply::Leave(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    fn classic_state(&mut self) -> Result<&'static str, ErrorCode> {
        match self.harness.answer(GROUP, Ask::Describe) {
            Reply::Describe(described) => described.map(|described| described.state),
            other => panic!("{other:?}"),
        }
    }

    /// A classic group of A {0,2} and B {1,3} at generation 2.
    fn classic_pair(&mut self) -> (String, String) {
        let a = self.classic_join(joining("A", "", &[])).member_id;
        let lead = |lists: &[(&str, &[i32])], generation| Sync {
            version: 3,
            member_id: lists[0].0.into(),
            generation,
            assignments: lists.iter().map(|(id, list)| ((*id).into(), assignment(list))).collect(),
            ..Sync::default()
        };
        assert_eq!(self.sync_with(lead(&[(&a, &[0, 1, 2, 3])], 1)).code, ErrorCode::None);
        let waiting = self.send_join(joining("B", "", &[]));
        assert_eq!(self.classic_beat(&a, 1), ErrorCode::RebalanceInProgress);
        assert_eq!(self.classic_join(joining("A", &a, &[])).generation, 2);
        let b = self.joined(waiting).member_id;
        assert_eq!(self.sync_with(lead(&[(&a, &[0, 2]), (&b, &[1, 3])], 2)).code, ErrorCode::None);
        assert_eq!(self.sync(&b, 2), Ok(vec![1, 3]));
        (a, b)
    }
}

#[test]
fn g18_1_g18_3_the_sequence_of_the_contract() {
    let mut lab = Lab::new(4);
    let (a, b) = lab.classic_pair();
    assert_eq!(lab.join("N"), given(3, &[]));
    assert_eq!(lab.classic_state(), Err(ErrorCode::GroupIdNotFound), "contract G18.2");
    let described = lab.describe();
    let targets: Vec<_> = described.members.iter().map(|member| member.target[0].1.clone()).collect();
    assert_eq!(targets, [vec![0, 2], vec![1], vec![3]]);
    assert_eq!(described.members.iter().map(|member| member.is_classic).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(lab.classic_beat(&a, 2), ErrorCode::RebalanceInProgress);
    let joined = lab.classic_join(joining("A", &a, &[0, 2]));
    assert_eq!((joined.generation, joined.leader.as_str(), joined.members.len()), (3, "", 0));
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    assert_eq!(lab.sync(&a, 3), Ok(vec![0, 2]));
    assert_eq!(lab.classic_beat(&a, 3), ErrorCode::None);
    assert_eq!(lab.classic_beat(&b, 2), ErrorCode::RebalanceInProgress);
    assert_eq!(lab.classic_join(joining("B", &b, &[1, 3])).generation, 2);
    assert_eq!(lab.sync(&b, 2), Ok(vec![1]));
    assert_eq!(lab.classic_beat(&b, 2), ErrorCode::RebalanceInProgress);
    lab.harness.crash();
    assert_eq!(lab.classic_join(joining("B", &b, &[1])).generation, 3);
    assert_eq!(lab.sync(&b, 3), Ok(vec![1]));
    assert_eq!(lab.classic_beat(&b, 3), ErrorCode::None);
    assert_eq!(lab.beat("N", 3), given(3, &[3]));
    assert_eq!(lab.group(), ("Stable", 3, 3));
}

#[test]
fn g18_1_parked_requests_are_told_to_rebalance() {
    let mut lab = Lab::new(4);
    let (a, _) = lab.classic_pair();
    let parked = lab.send_join(joining("A", &a, &[0, 2]));
    assert!(lab.harness.waits(parked));
    assert_eq!(lab.join("N"), given(3, &[]));
    let joined = lab.joined(parked);
    assert_eq!((joined.code, joined.generation), (ErrorCode::RebalanceInProgress, -1));
}

#[test]
fn g18_3_syncs_are_checked_in_order() {
    let mut lab = Lab::new(4);
    let (a, _) = lab.classic_pair();
    lab.join("N").expect("joined");
    let sync = |id: &str, generation, kind: &str| Sync {
        version: 5,
        member_id: id.into(),
        generation,
        protocol_type: Some(kind.into()),
        protocol_name: Some("range".into()),
        ..Sync::default()
    };
    assert_eq!(lab.sync_with(sync("N", 3, "consumer")).code, ErrorCode::UnknownMemberId, "contract G17.6");
    assert_eq!(lab.sync_with(sync(&a, 7, "other")).code, ErrorCode::IllegalGeneration);
    assert_eq!(lab.sync_with(sync(&a, 2, "other")).code, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(lab.sync_with(sync(&a, 2, "consumer")).code, ErrorCode::RebalanceInProgress);
    assert_eq!(lab.classic_beat("N", 3), ErrorCode::UnknownMemberId);
    assert_eq!(lab.classic_beat(&a, 9), ErrorCode::IllegalGeneration);
    assert_eq!(lab.beat("N", 3), null(3));
}

#[test]
fn g18_4_new_classic_members_are_checked_in_order() {
    let mut lab = Lab::new(4);
    lab.join("N").expect("joined");
    let code = |lab: &mut Lab, join: Join| lab.classic_join(join).code;
    lab.harness.set(|settings| settings.consumer_members_max = 1);
    let odd = Join { protocol_type: "connect".into(), ..joining("A", "", &[]) };
    assert_eq!(code(&mut lab, odd.clone()), ErrorCode::GroupMaxSizeReached);
    lab.harness.set(|settings| settings.consumer_members_max = 9);
    assert_eq!(code(&mut lab, Join { version: 9, ..odd }), ErrorCode::InconsistentGroupProtocol);
    let first = lab.classic_join(Join { version: 9, ..joining("A", "", &[]) });
    assert_eq!((first.code, first.member_id.len()), (ErrorCode::MemberIdRequired, 22));
    let unreadable =
        Join { protocols: vec![("range".into(), Bytes::from_static(b"changed"))], ..joining("A", "", &[]) };
    assert_eq!(code(&mut lab, unreadable), ErrorCode::UnknownServerError);
    let instance = Join { instance_id: Some("i".into()), ..joining("A", "x", &[]) };
    assert_eq!(code(&mut lab, instance.clone()), ErrorCode::UnknownMemberId);
    assert_eq!(lab.describe().members.len(), 1);
    assert_eq!(code(&mut lab, joining("A", "own", &[])), ErrorCode::None);
    assert_eq!(code(&mut lab, Join { member_id: String::new(), ..instance.clone() }), ErrorCode::None);
    assert_eq!(code(&mut lab, instance.clone()), ErrorCode::FencedInstanceId);
    lab.harness.set(|settings| settings.consumer_members_max = 3);
    let again = Join { member_id: String::new(), ..instance };
    assert_eq!(code(&mut lab, again), ErrorCode::GroupMaxSizeReached, "its instance is known, its id is not");
    lab.harness.set(|settings| settings.consumer_members_max = 9);
    let other = Join { protocols: vec![("sticky".into(), subscription(&["t"], &[]))], ..joining("B", "", &[]) };
    assert_eq!(code(&mut lab, other), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(lab.describe().members.len(), 3);
}

#[test]
fn g18_5_refused_upgrades_leave_the_group_as_it_is() {
    let absent = Err(ErrorCode::GroupIdNotFound);
    let mut lab = Lab::new(4);
    let (a, b) = lab.classic_pair();
    lab.harness.set(|settings| settings.migration = MigrationPolicy::Downgrade);
    assert_eq!(lab.join("N"), absent);
    lab.harness.set(|settings| settings.migration = MigrationPolicy::Bidirectional);
    lab.harness.set(|settings| settings.consumer_members_max = 1);
    assert_eq!(lab.join("N"), absent);
    lab.harness.set(|settings| settings.consumer_members_max = 2);
    assert_eq!(lab.join("N"), Err(ErrorCode::GroupMaxSizeReached));
    lab.harness.set(|settings| settings.consumer_members_max = 9);
    let wrong = ConsumerHeartbeat { regex: Some("(".into()), ..join("N", &[]) };
    assert_eq!(lab.heard(wrong), Err(ErrorCode::InvalidRegularExpression));
    assert_eq!(lab.beat("N", 1), absent);
    assert_eq!((lab.classic_beat(&a, 2), lab.classic_beat(&b, 2)), (ErrorCode::None, ErrorCode::None));
    assert_eq!(lab.sync(&a, 2), Ok(vec![0, 2]));
}

#[test]
fn g18_5_an_unreadable_subscription_or_another_type_cannot_be_upgraded() {
    for (kind, metadata) in [("consumer", Bytes::from_static(b"changed")), ("connect", subscription(&["t"], &[]))] {
        let mut lab = Lab::new(4);
        let odd =
            Join { protocol_type: kind.into(), protocols: vec![("range".into(), metadata)], ..joining("A", "", &[]) };
        assert_eq!(lab.classic_join(odd).code, ErrorCode::None);
        assert_eq!(lab.join("N"), Err(ErrorCode::GroupIdNotFound), "{kind}");
    }
}

#[test]
fn g18_6_a_member_changes_its_protocol_under_its_own_id() {
    let mut lab = Lab::new(4);
    let (a, b) = lab.classic_pair();
    assert_eq!(lab.join(&a), given(2, &[0, 2]));
    assert_eq!(lab.classic_beat(&a, 2), ErrorCode::UnknownMemberId);
    assert_eq!(lab.classic_beat(&b, 2), ErrorCode::None);
    let back = lab.classic_join(joining("A", &a, &[0, 2]));
    assert_eq!((back.code, back.generation), (ErrorCode::None, 2));
}

#[test]
fn g18_7_g2_5_empty_groups_are_replaced() {
    let mut lab = Lab::new(4);
    let a = lab.classic_join(joining("A", "", &[])).member_id;
    assert_eq!(lab.leave(&[&a]), [ErrorCode::None]);
    assert_eq!(lab.classic_state(), Ok("Empty"));
    assert_eq!(lab.beat("N", 1), Err(ErrorCode::GroupIdNotFound));
    assert_eq!(lab.join("N"), given(2, &[0, 1, 2, 3]));
    assert_eq!(lab.beat("N", -1), null(-1));
    let refused = lab.classic_join(joining("A", "known", &[]));
    assert_eq!((refused.code, refused.member_id.as_str()), (ErrorCode::UnknownMemberId, "known"));
    let odd = Join { protocols: vec![], ..joining("A", "", &[]) };
    assert_eq!(lab.classic_join(odd).code, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(lab.group(), ("Empty", 3, 2));
    assert_eq!(lab.classic_join(joining("A", "", &[])).generation, 1);
    lab.harness.crash();
    assert_eq!(lab.classic_state(), Ok("Empty"), "contract G19.3");
    assert_eq!(lab.harness.recovered(GROUP), lab.harness.snapshot(GROUP));
}

#[test]
fn g18_8_static_members_replace_each_other_and_the_last_one_downgrades_without_a_rebalance() {
    let mut lab = Lab::new(4);
    let named = |join: Join| Join { instance_id: Some("i".into()), ..join };
    let a = lab.classic_join(named(joining("A", "", &[]))).member_id;
    let all = assignment(&[0, 1, 2, 3]);
    let sync = Sync {
        version: 3,
        member_id: a.clone(),
        generation: 1,
        assignments: vec![(a.clone(), all)],
        ..Sync::default()
    };
    assert_eq!(lab.sync_with(sync).code, ErrorCode::None);
    let newcomer = ConsumerHeartbeat { instance_id: Some("i".into()), ..join("N", &["t"]) };
    assert_eq!(lab.heard(newcomer), given(1, &[0, 1, 2, 3]));
    let old = Heartbeat { member_id: a.clone(), generation: 1, instance_id: Some("i".into()) };
    assert_eq!(lab.harness.answer(GROUP, Ask::Heartbeat(old)), Reply::Heartbeat(ErrorCode::FencedInstanceId));
    assert_eq!(lab.classic_beat(&a, 1), ErrorCode::UnknownMemberId);
    let back = lab.classic_join(named(joining("A", "", &[])));
    assert_eq!((back.code, back.generation), (ErrorCode::None, 1));
    assert_eq!(lab.classic_state(), Ok("Stable"));
    assert_eq!(lab.classic_beat(&back.member_id, 1), ErrorCode::None);
    assert_eq!(lab.sync(&back.member_id, 1), Ok(vec![0, 1, 2, 3]));
    assert_eq!(lab.beat("N", 1), Err(ErrorCode::GroupIdNotFound));
    lab.harness.crash();
    assert_eq!(lab.classic_beat(&back.member_id, 1), ErrorCode::None);
}

#[test]
fn g18_9_the_last_consumer_that_goes_leaves_a_classic_group() {
    for expires in [false, true] {
        let mut lab = Lab::new(4);
        lab.harness.set(|settings| settings.consumer_session_timeout_ms = 5_000);
        let (a, b) = lab.classic_pair();
        assert_eq!(lab.join("N"), given(3, &[]));
        if expires {
            lab.harness.advance(5_010);
        } else {
            assert_eq!(lab.beat("N", -1), null(-1));
        }
        assert_eq!(lab.classic_state(), Ok("PreparingRebalance"));
        assert_eq!(lab.beat("N", 3), Err(ErrorCode::GroupIdNotFound));
        assert_eq!(lab.classic_beat(&a, 2), ErrorCode::IllegalGeneration);
        assert_eq!(lab.classic_beat(&a, 3), ErrorCode::RebalanceInProgress, "the epoch did not rise");
        assert_eq!(lab.classic_beat(&a, 4), ErrorCode::IllegalGeneration);
        let first = lab.send_join(joining("A", &a, &[0, 2]));
        let second = lab.send_join(joining("B", &b, &[1, 3]));
        assert_eq!((lab.joined(first).generation, lab.joined(second).generation), (4, 4));
    }
}

#[test]
fn g18_10_classic_members_join_and_sync_in_time_or_go() {
    let mut lab = Lab::new(4);
    lab.harness.set(|settings| settings.consumer_session_timeout_ms = 600_000);
    let quick = |client: &str, id: &str| Join { rebalance_timeout_ms: 3_000, ..joining(client, id, &[]) };
    lab.join("N").expect("joined");
    let a = lab.classic_join(quick("A", "")).member_id;
    lab.harness.advance(2_990);
    assert_eq!(lab.describe().members.len(), 2);
    lab.harness.advance(20);
    assert_eq!(lab.classic_beat(&a, 3), ErrorCode::UnknownMemberId, "it did not sync");
    let b = lab.classic_join(quick("B", "")).member_id;
    let (_, epoch, _) = lab.group();
    assert_eq!(lab.sync(&b, epoch), Ok(vec![]));
    lab.harness.advance(9_990);
    assert_eq!(lab.describe().members.len(), 2);
    assert_eq!(lab.join("M").map(|heard| heard.0), Ok(epoch + 1));
    assert_eq!(lab.classic_beat(&b, epoch), ErrorCode::RebalanceInProgress);
    lab.harness.advance(2_000);
    assert_eq!(lab.classic_beat(&b, epoch), ErrorCode::RebalanceInProgress);
    lab.harness.advance(1_010);
    assert_eq!(lab.classic_beat(&b, epoch), ErrorCode::UnknownMemberId, "it did not join");
}

#[test]
fn g18_10_g12_2_classic_heartbeats_leave_new_targets_to_consumers() {
    let mut lab = Lab::new(4);
    let (a, b) = lab.classic_pair();
    assert_eq!(lab.join("N"), given(3, &[]));
    assert_eq!(lab.classic_join(joining("A", &a, &[0, 2])).generation, 3);
    assert_eq!(lab.sync(&a, 3), Ok(vec![0, 2]));
    assert_eq!(lab.leave(&[&b]), [ErrorCode::None]);
    assert_eq!((lab.classic_beat(&a, 3), lab.group()), (ErrorCode::None, ("Assigning", 4, 3)));
    lab.beat("N", 3).expect("heard");
    assert_eq!((lab.classic_beat(&a, 3), lab.group().2), (ErrorCode::RebalanceInProgress, 4));
}

#[test]
fn g18_11_g17_6_either_way_of_leaving_removes_either_kind() {
    let mut lab = Lab::new(4);
    let (a, b) = lab.classic_pair();
    lab.join("N").expect("joined");
    lab.join("M").expect("joined");
    assert_eq!(
        lab.leave(&["N", "nobody", "N"]),
        [ErrorCode::None, ErrorCode::UnknownMemberId, ErrorCode::UnknownMemberId]
    );
    assert_eq!(lab.beat(&a, -1), null(-1));
    assert_eq!(lab.describe().members.len(), 2);
    assert_eq!(lab.leave(&["M", &b]), [ErrorCode::None, ErrorCode::None]);
    assert_eq!(lab.group().0, "Empty");
    assert_eq!(lab.leave(&["M"]), [ErrorCode::UnknownMemberId]);
}

#[test]
fn g18_12_policies() {
    let mut lab = Lab::new(4);
    let (a, _) = lab.classic_pair();
    lab.harness.set(|settings| settings.migration = MigrationPolicy::Upgrade);
    assert_eq!(lab.join("N"), given(3, &[]));
    assert_eq!(lab.beat("N", -1), null(-1));
    assert_eq!(lab.classic_state(), Err(ErrorCode::GroupIdNotFound), "no downgrade");
    assert_eq!(lab.classic_beat(&a, 2), ErrorCode::RebalanceInProgress);
    assert_eq!(lab.classic_join(joining("A", &a, &[0, 2])).generation, 4);
    lab.harness.set(|settings| settings.migration = MigrationPolicy::Disabled);
    assert_eq!(lab.classic_join(joining("C", "", &[])).code, ErrorCode::InconsistentGroupProtocol);
}

#[test]
fn g17_1_classic_members_commit_with_any_version_and_hear_of_generations() {
    let mut lab = Lab::new(4);
    let (a, _) = lab.classic_pair();
    lab.join("N").expect("joined");
    let commit = |lab: &mut Lab, generation| {
        let key = crate::ids::PartitionKey { topic: lab.topic, index: 0 };
        let partitions = vec![CommitPartition { key, offset: 1, leader_epoch: -1, metadata: None }];
        let commit =
            Commit { version: 2, member_id: a.clone(), generation, retention_ms: -1, partitions, ..Commit::default() };
        match lab.harness.answer(GROUP, Ask::Commit(commit)) {
            Reply::Commit(codes) => codes[0],
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(commit(&mut lab, 2), ErrorCode::None);
    assert_eq!(commit(&mut lab, 3), ErrorCode::IllegalGeneration);
    assert_eq!(commit(&mut lab, 1), ErrorCode::IllegalGeneration);
}
