//! DescribeTransactions (key 65), version 0: contract B9.
//!
//! Kafka tells a group as the partition of __consumer_offsets that it is in; here that is the number of its slot.

use std::collections::BTreeMap;
use std::rc::Rc;

use kafka_protocol::messages::describe_transactions_request::DescribeTransactionsRequest;
use kafka_protocol::messages::describe_transactions_response::{
    DescribeTransactionsResponse, TopicData, TransactionState,
};
use kafka_protocol::messages::{ProducerId as WireProducerId, TopicName, TransactionalId};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::image::Image;
use oncilla_shards::slot::slot_of;
use oncilla_shards::txn::{Description, Reply, Request as TxnRequest};

use super::codec::{serve, text};
use super::transaction::{ask, mismatched};
use super::{Answer, Request};
use crate::ctx::Ctx;
use crate::rt::join_all;

/// Topic that groups are told as partitions of.
const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DescribeTransactionsRequest| {
        let states = asked.transactional_ids.iter().map(|id| async move {
            match ask(ctx, request, id, TxnRequest::Describe).await {
                Ok(Reply::Described(description)) => described(&ctx.image(), id, &description),
                Ok(other) => mismatched(&other),
                Err(code) => refused(id, code),
            }
        });
        DescribeTransactionsResponse::default().with_transaction_states(join_all(states).await)
    })
    .await
}

fn refused(id: &TransactionalId, code: ErrorCode) -> TransactionState {
    TransactionState::default().with_transactional_id(id.clone()).with_error_code(code.wire())
}

fn described(image: &Image, id: &TransactionalId, description: &Description) -> TransactionState {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for key in &description.partitions {
        if let Some(topic) = image.topic_by_id(key.topic) {
            topics.entry(&topic.name).or_default().push(key.index);
        }
    }
    for group in &description.groups {
        let partitions = topics.entry(OFFSETS_TOPIC).or_default();
        let slot = i32::from(slot_of(group.as_bytes()).0);
        if !partitions.contains(&slot) {
            partitions.push(slot);
        }
    }
    let topic = |(name, partitions): (&str, Vec<i32>)| {
        TopicData::default().with_topic(TopicName(text(name))).with_partitions(partitions)
    };
    TransactionState::default()
        .with_transactional_id(id.clone())
        .with_transaction_state(text(description.state))
        .with_transaction_timeout_ms(description.timeout_ms)
        .with_transaction_start_time_ms(description.start.0)
        .with_producer_id(WireProducerId(description.producer.producer_id.0))
        .with_producer_epoch(description.producer.epoch.0)
        .with_topics(topics.into_iter().map(topic).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;
    use crate::txn::tests::{add_offsets, init};

    #[test]
    fn b9_f78_ids_are_described_as_often_as_asked_and_unknown_ones_are_105() {
        let (ctx, _dir) = testing::ctx();
        let (producer, epoch) = init(&ctx, "t");
        assert_eq!(add_offsets(&ctx, "t", (producer, epoch), "g"), 0);
        let ids = ["t", "", "no", "t"].map(|id| TransactionalId(text(id))).to_vec();
        let request = DescribeTransactionsRequest::default().with_transactional_ids(ids);
        let answer: DescribeTransactionsResponse = testing::ask(&ctx, 65, 0, &request);
        let told: Vec<_> = answer.transaction_states.iter().map(|one| (one.error_code, one.producer_id.0)).collect();
        assert_eq!(told, [(0, producer), (42, 0), (105, 0), (0, producer)]);
        let state = &answer.transaction_states[0];
        assert_eq!((state.transaction_state.as_str(), state.producer_epoch), ("Ongoing", epoch));
        assert!(state.transaction_start_time_ms > 0 && state.transaction_timeout_ms == 60_000);
        assert_eq!(state.topics.len(), 1);
        assert_eq!(state.topics[0].topic.as_str(), OFFSETS_TOPIC);
        assert_eq!(state.topics[0].partitions, [i32::from(slot_of(b"g").0)]);
        let unknown = &answer.transaction_states[2];
        assert_eq!((unknown.transaction_state.as_str(), unknown.topics.len()), ("", 0));
    }
}
