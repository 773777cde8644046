//! InitProducerId (key 22), versions 0 to 5: contract B2.
//!
//! An id comes from a block that is durable as handed out, so no id is ever given twice. With a transactional id the
//! coordinator decides, and the answer waits until no older instance can write any more.

use std::rc::Rc;

use kafka_protocol::messages::ProducerId as WireProducerId;
use kafka_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use kafka_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::ProducerEpoch;
use oncilla_shards::txn::{Identity, Init, Reply, Request as TxnRequest};
use oncilla_shards::wire::apis::TRANSACTIONS_SERVED;

use super::transaction::{ask, code_at, identity, mismatched};
use super::{Answer, Request, codec};
use crate::ctx::Ctx;
use crate::txn;

/// First version that knows PRODUCER_FENCED.
const FENCED_FROM: i16 = 4;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    codec::serve(request, async |decoded: InitProducerIdRequest| {
        let given = give(ctx, request, &decoded).await;
        let code = given.err().map_or(ErrorCode::None, |code| code_at(code, request.version, FENCED_FROM));
        let Identity { producer_id, epoch } = given.unwrap_or(Identity::NONE);
        InitProducerIdResponse::default()
            .with_error_code(code.wire())
            .with_producer_id(WireProducerId(producer_id.0))
            .with_producer_epoch(epoch.0)
    })
    .await
}

async fn give(ctx: &Rc<Ctx>, request: &Request, asked: &InitProducerIdRequest) -> Result<Identity, ErrorCode> {
    if (asked.producer_id.0 == -1) != (asked.producer_epoch == -1) {
        return Err(ErrorCode::InvalidRequest);
    }
    let Some(id) = &asked.transactional_id else {
        let producer_id = txn::next_producer_id(ctx).await?;
        return Ok(Identity { producer_id, epoch: ProducerEpoch(0) });
    };
    if !TRANSACTIONS_SERVED && !id.is_empty() && request.peer.is_some() {
        return Err(ErrorCode::CoordinatorNotAvailable);
    }
    let init = Init {
        timeout_ms: asked.transaction_timeout_ms,
        given: identity(asked.producer_id, asked.producer_epoch),
        two_phase: false,
        keep_prepared: false,
    };
    match ask(ctx, request, id, TxnRequest::Init(init)).await? {
        Reply::Init(identity) => Ok(identity),
        other => mismatched(&other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::codec::text;
    use crate::api::testing::{ask, ctx, ctx_of_shards, restarted};
    use crate::config::ListenerMode;

    fn init(ctx: &Rc<Ctx>, version: i16, id: Option<&str>, given: (i64, i16), timeout_ms: i32) -> (i16, i64, i16) {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(id.map(|id| text(id).into()))
            .with_transaction_timeout_ms(timeout_ms);
        let request = match version {
            3.. => request.with_producer_id(WireProducerId(given.0)).with_producer_epoch(given.1),
            _ => request,
        };
        let answer: InitProducerIdResponse = ask(ctx, 22, version, &request);
        (answer.error_code, answer.producer_id.0, answer.producer_epoch)
    }

    const NEW: (i64, i16) = (-1, -1);

    #[test]
    fn b2_2_and_b2_4_wrong_forms_are_42_and_wrong_timeouts_50() {
        let (ctx, _dir) = ctx();
        for version in 3..=5 {
            assert_eq!(init(&ctx, version, Some("t"), (1, -1), 1000), (42, -1, -1));
            assert_eq!(init(&ctx, version, None, (-1, 0), 1000), (42, -1, -1));
        }
        for version in 0..=5 {
            assert_eq!(init(&ctx, version, Some(""), NEW, 1000), (42, -1, -1));
            for timeout_ms in [0, -1, 900_001] {
                assert_eq!(init(&ctx, version, Some("t"), NEW, timeout_ms), (50, -1, -1));
            }
        }
    }

    #[test]
    fn b2_3_without_a_transactional_id_every_request_gets_an_id_of_its_own() {
        let (ctx, _dir) = ctx();
        let ids: Vec<_> = (0..=5).map(|version| init(&ctx, version, None, NEW, 0)).collect();
        assert!(ids.iter().all(|(code, id, epoch)| *code == 0 && *id > 0 && *epoch == 0), "{ids:?}");
        assert!(ids.is_sorted_by(|a, b| a.1 < b.1));
    }

    #[test]
    fn f38_epochs_go_up_with_every_instance_and_an_older_one_is_fenced_in_the_words_of_its_version() {
        let (ctx, _dir) = ctx();
        let (code, id, epoch) = init(&ctx, 5, Some("t"), NEW, 1000);
        assert_eq!((code, epoch), (0, 0), "the first request after a start has an id too");
        for version in 0..=5 {
            assert_eq!(init(&ctx, version, Some("t"), NEW, 1000), (0, id, version + 1));
        }
        assert_eq!(init(&ctx, 3, Some("t"), (id, 0), 1000), (47, -1, -1));
        assert_eq!(init(&ctx, 4, Some("t"), (id, 0), 1000), (90, -1, -1));
        assert_eq!(init(&ctx, 4, Some("t"), (id, 6), 1000), (0, id, 7));
        let next = restarted(&ctx);
        assert_eq!(init(&next, 4, Some("t"), (id, 6), 1000), (0, id, 7), "F42: the retry works after a start as well");
        let zombie = next.txn.check_fence(oncilla_shards::ids::ProducerId(id), ProducerEpoch(6));
        assert_eq!(zombie, Err(ErrorCode::InvalidProducerEpoch), "F35: no partition takes its batches");
    }

    #[test]
    fn b1_another_cores_id_is_16_but_first_what_no_coordinator_would_take() {
        let ctx = ctx_of_shards(50, ListenerMode::PerCore);
        let is_strange = |name: &String| crate::txn::tests::is_of_another_shard(&ctx, name);
        let id = (0..).map(|n| format!("t{n}")).find(is_strange).expect("one");
        assert_eq!(init(&ctx, 4, Some(&id), NEW, 1000), (16, -1, -1));
        assert_eq!(init(&ctx, 4, Some(&id), NEW, 0), (50, -1, -1));
    }
}
