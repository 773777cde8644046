//! What the APIs of groups share: who asks, fresh ids, and the wait for an answer that may take minutes.

use std::rc::Rc;

use futures_lite::future;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Client, Reply};

use super::Request;
use crate::ctx::Ctx;
use crate::groups;

/// Who sent a request, as DescribeGroups tells it.
pub fn client(request: &Request) -> Client {
    let id = String::from_utf8_lossy(request.client_id.as_deref().unwrap_or_default()).into_owned();
    let host = request.peer.as_ref().map_or_else(String::new, |peer| format!("/{}", peer.address.ip().to_canonical()));
    Client { id, host }
}

/// A random number that no other request has: member ids are made of it.
pub fn fresh() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}

/// Asks a group. When the client goes away nobody waits any more, and what the group decides stays decided: the member
/// lives on until its session ends.
pub async fn ask(ctx: &Rc<Ctx>, request: &Request, group: &str, ask: Ask) -> Result<Reply, ErrorCode> {
    let gone = async {
        request.peer_gone().await;
        Err(ErrorCode::CoordinatorNotAvailable)
    };
    future::or(groups::ask(ctx, group, ask), gone).await
}

/// Asks a group for something that may wait for its other members.
pub async fn ask_parked(ctx: &Rc<Ctx>, request: &Request, group: &str, what: Ask) -> Result<Reply, ErrorCode> {
    let parked = ctx.groups.park(request.body.len()).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let reply = ask(ctx, request, group, what).await;
    drop(parked);
    reply
}

/// What a reply of another kind would be: the core answers what it was asked.
pub fn mismatched(reply: &Reply) -> ! {
    unreachable!("the group answered another request: {reply:?}")
}
