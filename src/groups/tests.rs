use oncilla_shards::groups::Heartbeat;

use super::*;
use crate::api::testing::{block_on, ctx, ctx_of_shards};
use crate::config::ListenerMode;

#[test]
fn g1_5_a_group_of_another_core_is_answered_16_where_cores_are_nodes() {
    let ctx = ctx_of_shards(2, ListenerMode::PerCore);
    let name = |shard| {
        (0..).map(|n| format!("g{n}")).find(|name| owner(slot_of(name.as_bytes()), 2) == ShardId(shard)).expect("one")
    };
    let beat = || Ask::Heartbeat(Heartbeat::default());
    assert_eq!(block_on(ask(&ctx, &name(1), beat())), Err(ErrorCode::NotCoordinator));
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
