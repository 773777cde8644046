//! AddOffsetsToTxn (key 25), versions 0 to 4: contract B5. The group need not exist, and "" is one like others.

use std::rc::Rc;

use kafka_protocol::messages::add_offsets_to_txn_request::AddOffsetsToTxnRequest;
use kafka_protocol::messages::add_offsets_to_txn_response::AddOffsetsToTxnResponse;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::txn::{Add, AddBy, Reply, Request as TxnRequest};

use super::codec::serve;
use super::transaction::{ask, code_at, identity, mismatched};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// First version that knows PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: AddOffsetsToTxnRequest| {
        let add = Add {
            producer: identity(asked.producer_id, asked.producer_epoch),
            partitions: Vec::new(),
            groups: vec![asked.group_id.as_str().into()],
            by: AddBy::Client,
        };
        let code = match ask(ctx, request, &asked.transactional_id, TxnRequest::Add(add)).await {
            Ok(Reply::Added) => ErrorCode::None,
            Ok(other) => mismatched(&other),
            Err(code) => code_at(code, request.version, FENCED_FROM),
        };
        AddOffsetsToTxnResponse::default().with_error_code(code.wire())
    })
    .await
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{GroupId, ProducerId, TransactionalId};

    use super::*;
    use crate::api::codec::text;
    use crate::api::testing;
    use crate::txn::tests::{init, state};

    fn add(ctx: &Rc<Ctx>, version: i16, id: &str, producer: (i64, i16), group: &str) -> i16 {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(TransactionalId(text(id)))
            .with_producer_id(ProducerId(producer.0))
            .with_producer_epoch(producer.1)
            .with_group_id(GroupId(text(group)));
        let answer: AddOffsetsToTxnResponse = testing::ask(ctx, 25, version, &request);
        answer.error_code
    }

    #[test]
    fn b5_a_group_joins_like_a_partition() {
        let (ctx, _dir) = testing::ctx();
        let (id, epoch) = init(&ctx, "t");
        for version in 0..=4 {
            assert_eq!(add(&ctx, version, "no", (id, epoch), "g"), 49);
            assert_eq!(add(&ctx, version, "", (id, epoch), "g"), 42);
            assert_eq!(add(&ctx, version, "t", (id + 1, epoch), "g"), 49);
            let fenced = if version < 2 { 47 } else { 90 };
            assert_eq!(add(&ctx, version, "t", (id, epoch + 1), "g"), fenced);
            assert_eq!(add(&ctx, version, "t", (id, epoch), "g"), 0);
            assert_eq!(add(&ctx, version, "t", (id, epoch), ""), 0);
            assert_eq!(state(&ctx, "t"), "Ongoing");
        }
    }
}
