use bytes::Bytes;
use futures_lite::future;
use oncilla_shards::groups::{ConsumerHeartbeat, Heartbeat, Join, Joined, Sync};

use super::*;
use crate::api::testing::{block_on, ctx, ctx_of_shards, ctx_with, restarted};
use crate::config::ListenerMode;

#[test]
fn g1_5_g2_3_g11_7_a_group_of_another_core_is_answered_16_where_cores_are_nodes() {
    let ctx = ctx_of_shards(2, ListenerMode::PerCore);
    let name = |shard| {
        (0..).map(|n| format!("g{n}")).find(|name| owner(slot_of(name.as_bytes()), 2) == ShardId(shard)).expect("one")
    };
    let beat = || Ask::Heartbeat(Heartbeat::default());
    for one in [beat(), join(""), Ask::ConsumerHeartbeat(ConsumerHeartbeat::default())] {
        assert_eq!(block_on(ask(&ctx, &name(1), one)), Err(ErrorCode::NotCoordinator));
    }
    assert_eq!(block_on(ask(&ctx, &name(0), beat())), Ok(Reply::Heartbeat(ErrorCode::UnknownMemberId)));
}

#[test]
fn an_answered_request_leaves_nothing_behind() {
    let (ctx, _dir) = ctx();
    for _ in 0..10 {
        block_on(ask(&ctx, "g", Ask::Describe)).expect("ours");
    }
    assert_eq!(ctx.groups.waiting(), 0);
}

fn join(member: &str) -> Ask {
    Ask::Join(Join {
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member_id: member.to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"m"))],
        fresh: 7,
        ..Join::default()
    })
}

/// Runs `work` while time passes as the heartbeat of a shard lets it pass.
fn with_time<T>(ctx: &Rc<Ctx>, work: impl Future<Output = T>) -> T {
    let ticking = async {
        loop {
            sleep(Duration::from_millis(1)).await;
            tick(ctx);
        }
    };
    block_on(future::or(work, ticking))
}

async fn joined(ctx: &Rc<Ctx>, group: &str) -> Joined {
    match ask(ctx, group, join("")).await {
        Ok(Reply::Join(joined)) => joined,
        other => panic!("{other:?}"),
    }
}

#[test]
fn g19_1_a_stable_group_goes_on_after_a_restart_as_before() {
    let (ctx, _dir) = ctx_with(|config| config.groups.initial_rebalance_delay_ms = 0);
    let member = with_time(&ctx, async {
        let joined = joined(&ctx, "g").await;
        assert_eq!((joined.code, joined.generation), (ErrorCode::None, 1));
        let assignments = vec![(joined.member_id.clone(), Bytes::from_static(b"all"))];
        let sync = Sync { member_id: joined.member_id.clone(), generation: 1, assignments, ..Sync::default() };
        let synced = ask(&ctx, "g", Ask::Sync(sync)).await;
        assert!(matches!(synced, Ok(Reply::Sync(synced)) if synced.assignment == "all"));
        joined.member_id
    });
    // Nothing is closed: what was answered is on the disk.
    let again = restarted(&ctx);
    let beat = |generation| Heartbeat { member_id: member.clone(), generation, instance_id: None };
    let code = |generation| block_on(ask(&again, "g", Ask::Heartbeat(beat(generation))));
    assert_eq!(code(1), Ok(Reply::Heartbeat(ErrorCode::None)));
    assert_eq!(code(2), Ok(Reply::Heartbeat(ErrorCode::IllegalGeneration)));
}

#[test]
fn when_the_broker_stops_parked_members_are_answered_16_and_new_ones_do_not_park() {
    let (ctx, _dir) = ctx_with(|config| config.groups.initial_rebalance_delay_ms = 600_000);
    let answers = with_time(&ctx, async {
        let stopping = async {
            sleep(Duration::from_millis(20)).await;
            assert_eq!(ctx.groups.waiting(), 1, "it is parked");
            ctx.stop();
            future::pending().await
        };
        let first = future::or(ask(&ctx, "g", join("")), stopping).await;
        (first, ask(&ctx, "g", join("")).await)
    });
    assert_eq!(answers, (Err(ErrorCode::NotCoordinator), Err(ErrorCode::NotCoordinator)));
    assert_eq!(ctx.groups.waiting(), 0);
}

#[test]
fn a_member_whose_client_goes_away_while_parked_leaves_nothing_that_waits() {
    let (ctx, _dir) = ctx_with(|config| config.groups.initial_rebalance_delay_ms = 60);
    with_time(&ctx, async {
        let gone = async {
            sleep(Duration::from_millis(10)).await;
            Err(ErrorCode::None)
        };
        assert_eq!(future::or(ask(&ctx, "g", join("")), gone).await, Err(ErrorCode::None), "it was parked");
        assert_eq!(ctx.groups.waiting(), 1, "the group answers it all the same");
        sleep(Duration::from_millis(200)).await;
    });
    assert_eq!(ctx.groups.waiting(), 0);
}

#[test]
fn g19_8_no_time_passes_for_groups_before_clients_can_be_served() {
    let (ctx, _dir) = ctx();
    block_on(async {
        tick(&ctx);
        sleep(Duration::from_millis(5)).await;
        tick(&ctx);
        assert_eq!(ctx.groups.now().mono_ms, 0);
        ctx.metrics.serving.set(1);
        tick(&ctx);
        sleep(Duration::from_millis(5)).await;
        assert!(ctx.groups.now().mono_ms >= 5);
    });
}

#[test]
fn parked_requests_have_a_bound_of_their_own() {
    let (ctx, _dir) = ctx();
    let most = ctx.groups.park(GROUP_PARKED_BYTES_MAX).expect("nothing is parked");
    assert!(ctx.groups.park(1).is_none());
    drop(most);
    assert!(ctx.groups.park(1).is_some());
}
