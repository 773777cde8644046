//! InitProducerId (key 22), versions 0 to 5, for idempotent producers: contract B2.1 to B2.3, G.
//!
//! An id comes from a block that is durable as handed out, so no id is ever given twice. Transactional ids need the
//! transaction coordinator, which is not served: such a request is refused, never half granted.

use std::rc::Rc;

use kafka_protocol::messages::ProducerId as WireProducerId;
use kafka_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use kafka_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{ProducerId, ShardId};

use super::{Answer, Request, codec};
use crate::ctx::Ctx;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    codec::serve(request, async |decoded: InitProducerIdRequest| {
        let half = (decoded.producer_id.0 == -1) != (decoded.producer_epoch == -1);
        let given = if half || decoded.transactional_id.as_ref().is_some_and(|id| id.is_empty()) {
            Err(ErrorCode::InvalidRequest)
        } else if decoded.transactional_id.is_some() {
            Err(ErrorCode::CoordinatorNotAvailable)
        } else {
            next_id(ctx).await
        };
        let code = given.err().unwrap_or(ErrorCode::None);
        InitProducerIdResponse::default()
            .with_error_code(code.wire())
            .with_producer_id(WireProducerId(given.map_or(-1, |id| id.0)))
            .with_producer_epoch(if given.is_ok() { 0 } else { -1 })
    })
    .await
}

async fn next_id(ctx: &Rc<Ctx>) -> Result<ProducerId, ErrorCode> {
    loop {
        let next = ctx.producer_ids.borrow_mut().take();
        if let Some(id) = next {
            return Ok(id);
        }
        let block = ctx.call(ShardId(0), |ctx| async move {
            let blocks = ctx.producer_id_blocks.as_ref().expect("shard 0 has the blocks");
            blocks.next_block().await
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
