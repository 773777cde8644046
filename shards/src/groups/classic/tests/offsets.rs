use super::client::*;
use crate::code::ErrorCode;
use crate::groups::group::{Members, Subscribed};
use crate::groups::offsets::Retention;
use crate::groups::testing::Harness;
use crate::groups::{Join, classic::Classic};

fn classic(h: &Harness) -> &Classic {
    match &h.group(G).expect("it is there").members {
        Members::Classic(classic) => classic,
        Members::Consumer(_) => panic!("a classic group"),
    }
}

#[test]
fn g8_4_an_empty_group_takes_any_commit_without_a_generation() {
    let mut h = Harness::new();
    let a = h.lone(join_as(""));
    h.leave(&[(&a, None)]);
    let pending = h.join_now(join_as("")).member_id;
    for id in ["", "anybody", &pending] {
        assert_eq!(h.commit(id, -1, Some("any")), ErrorCode::None);
    }
    assert_eq!(h.commit(&pending, 0, None), ErrorCode::UnknownMemberId, "G8.12");
}

#[test]
fn g8_5_to_g8_7_a_group_with_members_takes_commits_of_its_members() {
    let mut h = Harness::new();
    let (a, b) = h.pair(static_join("i"), static_join("j"));
    assert_eq!(h.commit(&a, 2, Some("k")), ErrorCode::UnknownMemberId);
    assert_eq!(h.commit(&a, 2, Some("j")), ErrorCode::FencedInstanceId);
    assert_eq!(h.commit("x", 9, None), ErrorCode::UnknownMemberId);
    assert_eq!(h.commit("", 2, None), ErrorCode::UnknownMemberId);
    assert_eq!(h.commit("", -1, Some("i")), ErrorCode::FencedInstanceId);
    for wrong in [-1, 1, 3] {
        assert_eq!(h.commit(&a, wrong, None), ErrorCode::IllegalGeneration);
    }
    assert_eq!(h.commit("", -1, None), ErrorCode::UnknownMemberId, "G8.6");
    assert_eq!(h.commit(&a, 2, Some("i")), ErrorCode::None);
    let wait_a = h.join(Join { member_id: a.clone(), ..static_join("i") });
    assert_eq!(h.commit(&b, 2, None), ErrorCode::None, "PreparingRebalance");
    h.join_now(Join { member_id: b.clone(), ..static_join("j") });
    h.joined(wait_a);
    assert_eq!(h.commit(&b, 3, None), ErrorCode::RebalanceInProgress);
    assert_eq!(h.commit(&b, 2, None), ErrorCode::IllegalGeneration);
}

#[test]
fn g8_7_a_parked_newcomer_commits_with_the_old_generation() {
    let mut h = Harness::new();
    h.lone(join_as(""));
    let (b, _) = h.newcomer(join_as(""));
    assert_eq!(h.commit(&b, 1, None), ErrorCode::None);
}

#[test]
fn g10_4_the_last_completed_generation_subscribes() {
    let mut h = Harness::new();
    let (t, u) = (h.topic("t", 1), h.topic("u", 1));
    let a = h.lone(join_as(""));
    assert_eq!(classic(&h).subscribed(&h.image), Subscribed::Topics([t].into()));
    let other = Join { protocols: vec![("range".into(), subscription(&["u", "absent"]))], ..join_as("") };
    let (b, _) = h.newcomer(other.clone());
    assert_eq!(classic(&h).subscribed(&h.image), Subscribed::Topics([t].into()), "a parked newcomer does not count");
    h.join_now(join_as(&a));
    assert_eq!(classic(&h).subscribed(&h.image), Subscribed::Topics([t, u].into()));
    h.sync(&b, 2, &[]);
    h.sync(&a, 2, &[]);
    h.crash();
    assert_eq!(classic(&h).subscribed(&h.image), Subscribed::Topics([t, u].into()));
    h.leave(&[(&a, None), (&b, None)]);
    assert_eq!(classic(&h).subscribed(&h.image), Subscribed::Nothing);
}

#[test]
fn g0_10_g10_4_an_unreadable_subscription_subscribes_to_everything_and_hangs_nobody() {
    let mut h = Harness::new();
    let unreadable = |join: Join| Join { protocols: vec![("range".into(), "changed".into())], ..join };
    h.lone(unreadable(static_join("i")));
    assert_eq!(classic(&h).subscribed(&h.image), Subscribed::Everything);
    assert_eq!(classic(&h).retention(&h.image), Retention::Forever);
    h.join_now(unreadable(static_join("i")));
    h.crash();
    assert_eq!(classic(&h).subscribed(&h.image), Subscribed::Everything);
    assert_eq!(h.join_now(unreadable(static_join("i"))).code, ErrorCode::None);
}

#[test]
fn g10_7_how_old_offsets_get() {
    let mut h = Harness::new();
    let t = h.topic("t", 1);
    let pending = h.join_now(join_as("")).member_id;
    assert_eq!(classic(&h).retention(&h.image), Retention::SinceCommit(Subscribed::Nothing), "it never had members");
    h.leave(&[(&pending, None)]);
    let a = h.lone(join_as(""));
    assert_eq!(classic(&h).retention(&h.image), Retention::SinceCommit(Subscribed::Topics([t].into())));
    h.join(Join { protocols: protocols(&["range", "x"]), ..join_as(&a) });
    assert_eq!(classic(&h).retention(&h.image), Retention::Forever, "not Stable");
    h.advance(1_000);
    h.leave(&[(&a, None)]);
    let since = h.now.wall;
    h.advance(60_000);
    assert_eq!(classic(&h).retention(&h.image), Retention::Since(since));
    h.crash();
    assert_eq!(classic(&h).retention(&h.image), Retention::Since(since));
    let joined = h.join_now(Join { protocol_type: "connect".into(), ..static_join("i") });
    let sync = crate::groups::Sync { member_id: joined.member_id, generation: joined.generation, ..Default::default() };
    h.answer(G, crate::groups::Ask::Sync(sync));
    assert_eq!((h.state(), classic(&h).retention(&h.image)), ("Stable", Retention::Forever), "another type");
}

#[test]
fn g10_9_an_empty_group_without_offsets_goes_at_the_next_look_pending_members_or_not() {
    let mut h = Harness::new();
    let pending = h.join_now(join_as("")).member_id;
    h.expire_offsets();
    assert!(h.group(G).is_none());
    assert_eq!(h.join_now(join_as(&pending)).code, ErrorCode::UnknownMemberId);
    h.lone(join_as(""));
    h.expire_offsets();
    assert_eq!(h.state(), "Stable");
}
