//! What the APIs of transactions share: who a producer is, the wait for a coordinator, and codes of old versions.

use std::rc::Rc;

use futures_lite::future;
use kafka_protocol::messages::ProducerId as WireProducerId;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{PartitionKey, ProducerEpoch, ProducerId};
use oncilla_shards::image::{Image, names};
use oncilla_shards::txn::{Identity, Reply, Request as TxnRequest};

use super::Request;
use crate::ctx::Ctx;
use crate::txn;

/// A producer as requests name it.
pub fn identity(id: WireProducerId, epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(id.0), epoch: ProducerEpoch(epoch) }
}

/// Asks the coordinator of an id. When the client goes away nobody waits any more, and what is decided stays decided.
pub async fn ask(ctx: &Rc<Ctx>, request: &Request, id: &str, what: TxnRequest) -> Result<Reply, ErrorCode> {
    let gone = async {
        request.peer_gone().await;
        Err(ErrorCode::CoordinatorNotAvailable)
    };
    future::or(txn::ask(ctx, id, what, txn::deadline()), gone).await
}

/// Versions below `from` do not know PRODUCER_FENCED (contract 0.5, B2 to B6).
pub fn code_at(code: ErrorCode, version: i16, from: i16) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced if version < from => ErrorCode::InvalidProducerEpoch,
        other => other,
    }
}

/// What a reply of another kind would be: the core answers what it was asked.
pub fn mismatched(reply: &Reply) -> ! {
    unreachable!("the coordinator answered another request: {reply:?}")
}

/// A partition that may join a transaction.
///
/// # Errors
/// UNKNOWN_TOPIC_OR_PARTITION; TOPIC_AUTHORIZATION_FAILED for what the broker keeps for itself, if a client asks (B3).
pub fn partition(image: &Image, topic: &str, index: i32, is_client: bool) -> Result<PartitionKey, ErrorCode> {
    if is_client && names::is_internal(topic) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    match image.topic(topic) {
        Some(topic) if topic.has(index) => Ok(PartitionKey { topic: topic.id, index }),
        _ => Err(ErrorCode::UnknownTopicOrPartition),
    }
}
