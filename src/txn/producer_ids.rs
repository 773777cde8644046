//! Producer ids of one shard: those of InitProducerId without a transactional id, and the coordinator's stock.
//!
//! Both come from a block of the shard, which shard 0 hands out and which is durable as handed out.
//! Failure: without ids the coordinator answers COORDINATOR_LOAD_IN_PROGRESS (contract B2.3) and asks again after a
//! pause.

use std::rc::Rc;
use std::time::Duration;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{ProducerId, ShardId};
use oncilla_shards::limits::TXN_PRODUCER_IDS_MIN;

use crate::ctx::Ctx;
use crate::rt::{sleep, spawn};

/// Pause after ids could not be had.
const PAUSE_MS: u64 = 1_000;

/// An id that nobody else has or will have.
///
/// # Errors
/// COORDINATOR_LOAD_IN_PROGRESS if none can be made durable.
pub async fn next(ctx: &Rc<Ctx>) -> Result<ProducerId, ErrorCode> {
    loop {
        let next = ctx.producer_ids.borrow_mut().take();
        if let Some(id) = next {
            return Ok(id);
        }
        let block = ctx.call(ShardId(0), |ctx| async move {
            match &ctx.producer_id_blocks {
                Some(blocks) => blocks.next_block().await.map_err(|error| error.to_string()),
                None => Err("shard 0 has no blocks".to_owned()),
            }
        });
        match block.await {
            Ok(block) => {
                // Another request may have brought one meanwhile; what is left of it is skipped, never reused.
                ctx.producer_ids.replace(block);
            }
            Err(error) => {
                tracing::error!("no producer id can be given: {error}");
                return Err(ErrorCode::CoordinatorLoadInProgress);
            }
        }
    }
}

/// Fills the coordinator's stock as far as ids can be had; whether any could.
pub(super) async fn stock(ctx: &Rc<Ctx>) -> bool {
    let mut ids = Vec::with_capacity(2 * TXN_PRODUCER_IDS_MIN);
    while ids.len() < ids.capacity()
        && let Ok(id) = next(ctx).await
    {
        ids.push(id);
    }
    let any = !ids.is_empty();
    ctx.txn.core.borrow_mut().stock(ids);
    any
}

/// The coordinator runs out of ids.
pub(super) fn start_stocking(ctx: &Rc<Ctx>) {
    let ctx = ctx.clone();
    spawn(async move {
        while !stock(&ctx).await && !ctx.stopping.get() {
            sleep(Duration::from_millis(PAUSE_MS)).await;
        }
    });
}
