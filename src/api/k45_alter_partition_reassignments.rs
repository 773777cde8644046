//! AlterPartitionReassignments 0-1 (contract K45): a partition stays where it is.

use std::rc::Rc;

use kafka_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::alter_partition_reassignments_response::{
    AlterPartitionReassignmentsResponse, ReassignablePartitionResponse, ReassignableTopicResponse,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::image::Image;

use super::codec::{serve, text};
use super::{Answer, Request, nodes};
use crate::ctx::Ctx;

/// First version that says whether the number of replicas may change, and is told it back.
const FACTOR_FLAG_FROM: i16 = 1;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: AlterPartitionReassignmentsRequest| {
        let image = ctx.image();
        let topics = asked.topics.iter().map(|topic| reassign(ctx, request, &image, topic)).collect();
        let response = AlterPartitionReassignmentsResponse::default().with_responses(topics);
        if request.version < FACTOR_FLAG_FROM {
            return response;
        }
        response.with_allow_replication_factor_change(asked.allow_replication_factor_change)
    })
    .await
}

fn reassign(ctx: &Ctx, request: &Request, image: &Image, asked: &ReassignableTopic) -> ReassignableTopicResponse {
    let topic = image.topic(&asked.name);
    let one = |partition: &ReassignablePartition| {
        let index = partition.partition_index;
        let (code, message) = match (topic.filter(|topic| topic.has(index)), &partition.replicas) {
            (None, _) => (ErrorCode::UnknownTopicOrPartition, "There is no such partition"),
            (Some(_), None) => (ErrorCode::NoReassignmentInProgress, "No reassignment is in progress"),
            (Some(topic), Some(replicas)) => {
                let leader = nodes::leader(ctx, request, image, topic, index).0;
                match replicas.as_slice() {
                    [only] if only.0 == leader => (ErrorCode::None, ""),
                    _ => (ErrorCode::InvalidReplicaAssignment, "A partition has one replica, on the node of its core"),
                }
            }
        };
        let message = (code != ErrorCode::None).then(|| text(message));
        ReassignablePartitionResponse::default()
            .with_partition_index(index)
            .with_error_code(code.wire())
            .with_error_message(message)
    };
    let partitions = asked.partitions.iter().map(one).collect();
    ReassignableTopicResponse::default().with_name(asked.name.clone()).with_partitions(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, create_topic, ctx};

    #[test]
    fn k45_1_only_the_present_place_is_accepted() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        let partition = |index: i32, replicas: Option<&[i32]>| {
            let replicas = replicas.map(|ids| ids.iter().map(|id| (*id).into()).collect());
            ReassignablePartition::default().with_partition_index(index).with_replicas(replicas)
        };
        for version in 0..=1 {
            let partitions = vec![
                partition(0, Some(&[0])),
                partition(0, Some(&[])),
                partition(0, Some(&[0, 0])),
                partition(0, Some(&[5])),
                partition(0, None),
                partition(1, Some(&[0])),
            ];
            let topic = ReassignableTopic::default().with_name(text("t").into()).with_partitions(partitions);
            let asked = AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]);
            let asked = if version == 1 { asked.with_allow_replication_factor_change(false) } else { asked };
            let answer: AlterPartitionReassignmentsResponse = ask(&ctx, 45, version, &asked);
            let codes: Vec<i16> = answer.responses[0].partitions.iter().map(|p| p.error_code).collect();
            assert_eq!(codes, [0, 39, 39, 39, 85, 3]);
            assert_eq!((answer.error_code, answer.allow_replication_factor_change), (0, version == 0));
        }
    }
}
