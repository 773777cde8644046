//! EndTxn (key 26), versions 0 to 5: contract B6. From version 5 on every end takes a new epoch, which the answer
//! tells.

use std::rc::Rc;

use kafka_protocol::messages::ProducerId as WireProducerId;
use kafka_protocol::messages::end_txn_request::EndTxnRequest;
use kafka_protocol::messages::end_txn_response::EndTxnResponse;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::txn::{End, Identity, Outcome, Reply, Request as TxnRequest};

use super::codec::serve;
use super::transaction::{ask, code_at, identity, mismatched};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// First version of path B.
const BUMPS_FROM: i16 = 5;
/// First version that knows PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: EndTxnRequest| {
        let end = End {
            producer: identity(asked.producer_id, asked.producer_epoch),
            outcome: if asked.committed { Outcome::Commit } else { Outcome::Abort },
            bumps: request.version >= BUMPS_FROM,
        };
        let (code, next) = match ask(ctx, request, &asked.transactional_id, TxnRequest::End(end)).await {
            Ok(Reply::Ended(next)) => (ErrorCode::None, next),
            Ok(other) => mismatched(&other),
            Err(code) => (code_at(code, request.version, FENCED_FROM), Identity::NONE),
        };
        let response = EndTxnResponse::default().with_error_code(code.wire());
        match request.version {
            BUMPS_FROM.. => {
                response.with_producer_id(WireProducerId(next.producer_id.0)).with_producer_epoch(next.epoch.0)
            }
            _ => response,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use crate::api::testing;
    use crate::txn::tests::{add_offsets, end, init, state};

    #[test]
    fn b6_path_a_ends_at_the_same_epoch_and_says_it_again() {
        let (ctx, _dir) = testing::ctx();
        for version in 0..=4 {
            let (id, epoch) = init(&ctx, "t");
            assert_eq!(end(&ctx, version, "t", (id, epoch), true).0, 48, "Empty");
            assert_eq!(add_offsets(&ctx, "t", (id, epoch), "g"), 0);
            let fenced = if version < 2 { 47 } else { 90 };
            for wrong in [epoch - 1, epoch + 1] {
                assert_eq!(end(&ctx, version, "t", (id, wrong), true).0, fenced);
            }
            assert_eq!(end(&ctx, version, "t", (id + 1, epoch), true).0, 49);
            assert_eq!(end(&ctx, version, "t", (id, epoch), true).0, 0);
            assert_eq!(end(&ctx, version, "t", (id, epoch), true).0, 0);
            assert_eq!(end(&ctx, version, "t", (id, epoch), false).0, 48);
            assert_eq!(state(&ctx, "t"), "CompleteCommit");
        }
        assert_eq!(end(&ctx, 4, "no", (1, 0), true).0, 49);
        assert_eq!(end(&ctx, 4, "", (1, 0), true).0, 42);
    }

    #[test]
    fn b6_path_b_takes_a_new_epoch_and_tells_it() {
        let (ctx, _dir) = testing::ctx();
        let (id, epoch) = init(&ctx, "t");
        assert_eq!(end(&ctx, 5, "t", (id, epoch), true), (48, -1, -1), "Empty");
        assert_eq!(add_offsets(&ctx, "t", (id, epoch), "g"), 0);
        assert_eq!(end(&ctx, 5, "t", (id, epoch), true), (0, id, epoch + 1));
        assert_eq!(end(&ctx, 5, "t", (id, epoch), true), (0, id, epoch + 1), "r = 1");
        assert_eq!(end(&ctx, 5, "t", (id, epoch), false), (48, -1, -1));
        assert_eq!(end(&ctx, 5, "t", (id, epoch + 1), false), (0, id, epoch + 2), "the empty abort");
        assert_eq!(end(&ctx, 5, "t", (id, epoch), true), (90, -1, -1));
        assert_eq!(state(&ctx, "t"), "CompleteAbort");
    }
}
