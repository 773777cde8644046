//! ElectLeaders 0-2 (contract K43): every leader is the preferred one, because there is one replica.

use std::collections::BTreeSet;
use std::rc::Rc;

use kafka_protocol::messages::elect_leaders_request::ElectLeadersRequest;
use kafka_protocol::messages::elect_leaders_response::{ElectLeadersResponse, PartitionResult, ReplicaElectionResult};
use oncilla_shards::code::ErrorCode;

use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// First version with an error for the whole answer.
const TOP_LEVEL_ERROR_FROM: i16 = 1;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: ElectLeadersRequest| respond(ctx, request.version, &asked)).await
}

fn respond(ctx: &Ctx, version: i16, asked: &ElectLeadersRequest) -> ElectLeadersResponse {
    let image = ctx.image();
    let known_type = matches!(asked.election_type, 0 | 1);
    let results = match &asked.topic_partitions {
        // Nothing happens to any partition, so each topic has an empty list.
        None => {
            image.topics().map(|topic| ReplicaElectionResult::default().with_topic(text(&*topic.name).into())).collect()
        }
        Some(topics) => topics
            .iter()
            .map(|asked| {
                let topic = image.topic(&asked.topic);
                let one = |index: i32| match topic {
                    _ if !known_type => (ErrorCode::InvalidRequest, "Unknown election type"),
                    Some(topic) if topic.has(index) => (ErrorCode::ElectionNotNeeded, "The preferred replica leads"),
                    _ => (ErrorCode::UnknownTopicOrPartition, "There is no such partition"),
                };
                let partitions: BTreeSet<i32> = asked.partitions.iter().copied().collect();
                let results = partitions.into_iter().map(|index| result(index, one(index))).collect();
                ReplicaElectionResult::default().with_topic(asked.topic.clone()).with_partition_result(results)
            })
            .collect(),
    };
    let response = ElectLeadersResponse::default().with_replica_election_results(results);
    if known_type || version < TOP_LEVEL_ERROR_FROM {
        return response;
    }
    response.with_error_code(ErrorCode::InvalidRequest.wire())
}

fn result(index: i32, (code, message): (ErrorCode, &str)) -> PartitionResult {
    let result = PartitionResult::default().with_partition_id(index).with_error_code(code.wire());
    result.with_error_message(Some(text(message)))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::elect_leaders_request::TopicPartitions;

    use super::*;
    use crate::api::testing::{ask, create_topic, ctx};

    #[test]
    fn k43_1_no_election_is_needed_and_unknown_partitions_are_told() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 2);
        for version in 0..=2 {
            let topic =
                |name: &str| TopicPartitions::default().with_topic(text(name).into()).with_partitions(vec![1, 2]);
            let asked = ElectLeadersRequest::default().with_topic_partitions(Some(vec![topic("t"), topic("no")]));
            let answer: ElectLeadersResponse = ask(&ctx, 43, version, &asked);
            let results = answer.replica_election_results.iter().flat_map(|r| &r.partition_result);
            assert_eq!(results.map(|r| r.error_code).collect::<Vec<_>>(), [84, 3, 3, 3]);
            let all: ElectLeadersResponse = ask(&ctx, 43, version, &asked.clone().with_topic_partitions(None));
            assert_eq!((all.error_code, all.replica_election_results.len()), (0, 1));
            assert!(all.replica_election_results[0].partition_result.is_empty());
            let none: ElectLeadersResponse = ask(&ctx, 43, version, &asked.clone().with_topic_partitions(Some(vec![])));
            assert!(none.replica_election_results.is_empty());
            if version >= 1 {
                let odd: ElectLeadersResponse = ask(&ctx, 43, version, &asked.with_election_type(2));
                assert_eq!(odd.error_code, 42);
                assert_eq!(odd.replica_election_results[0].partition_result[0].error_code, 42);
            }
        }
    }
}
