//! TxnOffsetCommit (key 28), versions 0 to 5: contract C4. Topics are looked at before the coordinators are asked.

use std::rc::Rc;

use futures_lite::future;
use kafka_protocol::messages::txn_offset_commit_request::{TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Commit, CommitPartition, TxnCommit};

use super::codec::serve;
use super::transaction::{identity, partition};
use super::{Answer, Request};
use crate::ctx::Ctx;
use crate::groups::{TxnOffsets, commit_in_transaction};

/// First version that adds the group to the transaction.
const ADDS_FROM: i16 = 5;
/// First version that knows TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 4;
/// First version that knows COORDINATOR_LOAD_IN_PROGRESS.
const LOADING_FROM: i16 = 2;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: TxnOffsetCommitRequest| respond(ctx, request, asked).await).await
}

async fn respond(ctx: &Rc<Ctx>, request: &Request, asked: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse {
    let mut known = Vec::new();
    let mut topics: Vec<_> = asked.topics.iter().map(|topic| checked(ctx, topic, &mut known)).collect();
    let count = known.len();
    let codes = if known.is_empty() {
        Vec::new()
    } else if asked.group_id.is_empty() {
        vec![ErrorCode::InvalidGroupId; count]
    } else {
        let gone = async {
            request.peer_gone().await;
            Err(ErrorCode::CoordinatorNotAvailable)
        };
        let committed = commit_in_transaction(ctx, &asked.group_id, offsets(request.version, &asked, known));
        future::or(committed, gone).await.unwrap_or_else(|code| vec![code; count])
    };
    // What failed above keeps its code.
    let rest = topics.iter_mut().flat_map(|topic| &mut topic.partitions).filter(|partition| partition.error_code == 0);
    for (partition, code) in rest.zip(codes) {
        partition.error_code = code_at(code, request.version).wire();
    }
    TxnOffsetCommitResponse::default().with_topics(topics)
}

fn offsets(version: i16, asked: &TxnOffsetCommitRequest, partitions: Vec<CommitPartition>) -> TxnOffsets {
    let commit = Commit {
        version,
        member_id: asked.member_id.to_string(),
        generation: asked.generation_id,
        instance_id: asked.group_instance_id.as_ref().map(ToString::to_string),
        retention_ms: -1,
        partitions,
    };
    TxnOffsets {
        transactional_id: asked.transactional_id.to_string(),
        adds: version >= ADDS_FROM,
        asked: TxnCommit { producer: identity(asked.producer_id, asked.producer_epoch), commit },
    }
}

/// The answer of a topic as far as it depends on no coordinator; its partitions that exist go to `known`.
fn checked(
    ctx: &Ctx,
    asked: &TxnOffsetCommitRequestTopic,
    known: &mut Vec<CommitPartition>,
) -> TxnOffsetCommitResponseTopic {
    let image = ctx.image();
    let mut partitions = Vec::with_capacity(asked.partitions.len());
    for one in &asked.partitions {
        let found = partition(&image, &asked.name, one.partition_index, false);
        if let Ok(key) = found {
            let metadata = one.committed_metadata.as_ref().map(ToString::to_string);
            let (offset, leader_epoch) = (one.committed_offset, one.committed_leader_epoch);
            known.push(CommitPartition { key, offset, leader_epoch, metadata });
        }
        let code = found.err().unwrap_or_default();
        let answer = TxnOffsetCommitResponsePartition::default().with_partition_index(one.partition_index);
        partitions.push(answer.with_error_code(code.wire()));
    }
    TxnOffsetCommitResponseTopic::default().with_name(asked.name.clone()).with_partitions(partitions)
}

/// Contract C4.2: what the codes of the transaction's coordinator become.
fn code_at(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if version < ABORTABLE_FROM => ErrorCode::InvalidTxnState,
        ErrorCode::CoordinatorLoadInProgress if version < LOADING_FROM => ErrorCode::CoordinatorNotAvailable,
        other => other,
    }
}

#[cfg(test)]
#[path = "k28_txn_offset_commit_tests.rs"]
mod tests;
