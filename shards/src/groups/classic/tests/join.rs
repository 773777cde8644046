use bytes::Bytes;

use super::client::*;
use crate::code::ErrorCode::{self, *};
use crate::groups::testing::Harness;
use crate::groups::{Ask, GroupSettings, Join, Joined, Reply, Sync, Synced};

#[test]
fn g6_13_a_second_member_joins() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    assert_eq!((h.state(), h.beat(&a, 1)), ("Stable", None));
    let (b, wait_b) = h.newcomer(join_as(""));
    assert!(h.waits(wait_b));
    assert_eq!((h.state(), h.beat(&a, 1)), ("PreparingRebalance", RebalanceInProgress));
    let joined_a = h.join_now(join_as(&a));
    let joined_b = h.joined(wait_b);
    assert_eq!((joined_a.generation, joined_b.generation), (2, 2));
    let ids: std::collections::BTreeSet<_> = joined_a.members.iter().map(|member| &member.member_id).collect();
    assert_eq!(ids, [&a, &b].into());
    assert!(joined_b.members.is_empty());
    let wait_b = h.sync(&b, 2, &[]);
    assert!(h.waits(wait_b));
    let wait_a = h.sync(&a, 2, &[(&a, "1"), (&b, "2")]);
    assert_eq!((h.synced(wait_a).assignment, h.synced(wait_b).assignment), ("1".into(), "2".into()));
    assert_eq!(h.state(), "Stable");
}
