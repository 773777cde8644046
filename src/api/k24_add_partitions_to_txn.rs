//! AddPartitionsToTxn (key 24), versions 0 to 5: contract B3, B4.
//!
//! Up to version 3 a client adds to one transaction; from version 4 on brokers add to several or only ask, and neither
//! the id nor the topics are looked at. All partitions of a transaction are added or none.

use std::rc::Rc;

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResponse, AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::PartitionKey;
use oncilla_shards::txn::{Add, AddBy, Identity, Reply, Request as TxnRequest, Verify};

use super::codec::serve;
use super::transaction::{ask, code_at, identity, mismatched, partition};
use super::{Answer, Request};
use crate::ctx::Ctx;
use crate::rt::join_all;

/// First version of brokers.
const BROKERS_FROM: i16 = 4;
/// First version that knows PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: AddPartitionsToTxnRequest| {
        let response = AddPartitionsToTxnResponse::default();
        if request.version >= BROKERS_FROM {
            let results = asked.transactions.iter().map(|one| for_broker(ctx, request, one));
            return response.with_results_by_transaction(join_all(results).await);
        }
        let producer = identity(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch);
        let (id, topics) = (&asked.v3_and_below_transactional_id, &asked.v3_and_below_topics);
        let add = |partitions| add(producer, partitions, AddBy::Client);
        response.with_results_by_topic_v3_and_below(each(ctx, request, id, topics, add).await)
    })
    .await
}

async fn for_broker(
    ctx: &Rc<Ctx>,
    request: &Request,
    asked: &AddPartitionsToTxnTransaction,
) -> AddPartitionsToTxnResult {
    let producer = identity(asked.producer_id, asked.producer_epoch);
    let what = |partitions| match asked.verify_only {
        true => TxnRequest::Verify(Verify { producer, partitions, groups: Vec::new() }),
        false => add(producer, partitions, AddBy::Broker { early: false }),
    };
    let results = each(ctx, request, &asked.transactional_id, &asked.topics, what).await;
    AddPartitionsToTxnResult::default()
        .with_transactional_id(asked.transactional_id.clone())
        .with_topic_results(results)
}

fn add(producer: Identity, partitions: Vec<PartitionKey>, by: AddBy) -> TxnRequest {
    TxnRequest::Add(Add { producer, partitions, groups: Vec::new(), by })
}

/// Asks for all partitions at once if all of them exist; a result for each.
async fn each(
    ctx: &Rc<Ctx>,
    request: &Request,
    id: &str,
    topics: &[AddPartitionsToTxnTopic],
    what: impl FnOnce(Vec<PartitionKey>) -> TxnRequest,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let is_client = request.version < BROKERS_FROM;
    let image = ctx.image();
    let find = |topic: &AddPartitionsToTxnTopic, index: i32| partition(&image, &topic.name, index, is_client);
    let found: Vec<_> =
        topics.iter().flat_map(|topic| topic.partitions.iter().map(|index| find(topic, *index))).collect();
    let codes = if !is_client && id.is_empty() {
        vec![ErrorCode::InvalidRequest; found.len()]
    } else if found.iter().any(Result::is_err) {
        found.iter().map(|found| found.err().unwrap_or(ErrorCode::OperationNotAttempted)).collect()
    } else {
        let keys: Vec<_> = found.into_iter().flatten().collect();
        let count = keys.len();
        match ask(ctx, request, id, what(keys)).await {
            Ok(Reply::Added) => vec![ErrorCode::None; count],
            Ok(Reply::Verified(codes)) => codes,
            Ok(other) => mismatched(&other),
            Err(code) => vec![code_at(code, request.version, FENCED_FROM); count],
        }
    };
    results(topics, codes)
}

fn results(topics: &[AddPartitionsToTxnTopic], codes: Vec<ErrorCode>) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut codes = codes.into_iter();
    let mut result = |topic: &AddPartitionsToTxnTopic| {
        let of_topic = topic.partitions.iter().zip(codes.by_ref());
        let partitions = of_topic.map(|(index, code)| {
            let result = AddPartitionsToTxnPartitionResult::default().with_partition_index(*index);
            result.with_partition_error_code(code.wire())
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    };
    topics.iter().map(&mut result).collect()
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{ProducerId, TopicName, TransactionalId};

    use super::*;
    use crate::api::codec::text;
    use crate::api::testing;
    use crate::txn::tests::{end, init, state};

    fn topics(names: &[(&str, &[i32])]) -> Vec<AddPartitionsToTxnTopic> {
        let topic = |(name, partitions): &(&str, &[i32])| {
            let topic = AddPartitionsToTxnTopic::default().with_name(TopicName(text(*name)));
            topic.with_partitions(partitions.to_vec())
        };
        names.iter().map(topic).collect()
    }

    fn codes(results: &[AddPartitionsToTxnTopicResult]) -> Vec<i16> {
        results.iter().flat_map(|topic| &topic.results_by_partition).map(|one| one.partition_error_code).collect()
    }

    fn client(ctx: &Rc<Ctx>, version: i16, producer: (i64, i16), names: &[(&str, &[i32])]) -> Vec<i16> {
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text("t")))
            .with_v3_and_below_producer_id(ProducerId(producer.0))
            .with_v3_and_below_producer_epoch(producer.1)
            .with_v3_and_below_topics(topics(names));
        let answer: AddPartitionsToTxnResponse = testing::ask(ctx, 24, version, &request);
        codes(&answer.results_by_topic_v3_and_below)
    }

    fn transaction(id: &str, producer: (i64, i16), verify: bool, index: i32) -> AddPartitionsToTxnTransaction {
        AddPartitionsToTxnTransaction::default()
            .with_transactional_id(TransactionalId(text(id)))
            .with_producer_id(ProducerId(producer.0))
            .with_producer_epoch(producer.1)
            .with_verify_only(verify)
            .with_topics(topics(&[("a", &[index])]))
    }

    fn broker(ctx: &Rc<Ctx>, version: i16, transactions: Vec<AddPartitionsToTxnTransaction>) -> Vec<Vec<i16>> {
        let request = AddPartitionsToTxnRequest::default().with_transactions(transactions);
        let answer: AddPartitionsToTxnResponse = testing::ask(ctx, 24, version, &request);
        assert_eq!(answer.error_code, 0);
        answer.results_by_transaction.iter().map(|one| codes(&one.topic_results)).collect()
    }

    #[test]
    fn b3_a_client_adds_all_partitions_or_none() {
        let (ctx, _dir) = testing::ctx();
        testing::create_topic(&ctx, "a", 2);
        let (id, epoch) = init(&ctx, "t");
        for version in 0..=3 {
            let mixed: &[(&str, &[i32])] = &[("a", &[0, 7]), ("no", &[0]), ("__consumer_offsets", &[0])];
            assert_eq!(client(&ctx, version, (id, epoch), mixed), [55, 3, 3, 29]);
            assert_eq!(state(&ctx, "t"), "Empty");
        }
        for version in 0..=3 {
            assert_eq!(client(&ctx, version, (id, epoch), &[("a", &[0, 1, 0])]), [0, 0, 0]);
            assert_eq!(state(&ctx, "t"), "Ongoing");
            let fenced = if version < 2 { 47 } else { 90 };
            assert_eq!(client(&ctx, version, (id, epoch + 1), &[("a", &[0])]), [fenced]);
            assert_eq!(client(&ctx, version, (id + 1, epoch), &[("a", &[0])]), [49]);
        }
        let (ctx, _dir) = testing::ctx();
        assert_eq!(client(&ctx, 3, (id, epoch), &[]), [] as [i16; 0]);
    }

    #[test]
    fn b3_without_topics_the_transaction_is_open_without_partitions_and_ends_without_markers() {
        let (ctx, _dir) = testing::ctx();
        let (id, epoch) = init(&ctx, "t");
        assert_eq!(client(&ctx, 3, (id, epoch), &[("no", &[])]), [] as [i16; 0]);
        assert_eq!(state(&ctx, "t"), "Ongoing");
        assert_eq!(end(&ctx, 4, "t", (id, epoch), true).0, 0);
        assert_eq!(state(&ctx, "t"), "CompleteCommit");
    }

    #[test]
    fn b3_and_b4_brokers_add_to_several_transactions_and_ask() {
        let (ctx, _dir) = testing::ctx();
        testing::create_topic(&ctx, "a", 2);
        let (t, u) = (init(&ctx, "t"), init(&ctx, "u"));
        for version in 4..=5 {
            assert_eq!(broker(&ctx, version, vec![]), [] as [Vec<i16>; 0], "B11.7: it is answered");
            let asked = vec![
                transaction("t", t, true, 1),
                transaction("u", u, false, 0),
                transaction("", u, false, 0),
                transaction("u", u, true, 9),
                transaction("no", u, true, 0),
            ];
            assert_eq!(broker(&ctx, version, asked), [[120], [0], [42], [3], [49]]);
            assert_eq!(broker(&ctx, version, vec![transaction("u", u, true, 0)]), [[0]]);
            assert_eq!(broker(&ctx, version, vec![transaction("u", (u.0, 9), true, 0)]), [[90]]);
        }
    }
}
