//! CreatePartitions 0-3 (contract K37).

use std::rc::Rc;

use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::create_partitions_request::{CreatePartitionsRequest, CreatePartitionsTopic};
use kafka_protocol::messages::create_partitions_response::{CreatePartitionsResponse, CreatePartitionsTopicResult};
use oncilla_shards::ids::NodeId;
use oncilla_shards::image::Image;
use oncilla_shards::image::topics::{GrowRequest, GrowRules, Refusal, decide_create_partitions};

use super::codec::{outcome, serve, text};
use super::{Answer, Request, metadata_update, nodes};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: CreatePartitionsRequest| respond(ctx, request, asked).await).await
}

async fn respond(ctx: &Rc<Ctx>, request: &Request, asked: CreatePartitionsRequest) -> CreatePartitionsResponse {
    let rules = GrowRules {
        nodes: nodes::ids(ctx, request),
        replication_factor_max: ctx.config.replication_factor_accept_max,
        timeout_ms: asked.timeout_ms,
        validate_only: asked.validate_only,
    };
    let requests: Vec<GrowRequest> = asked.topics.iter().map(grow).collect();
    let decide = move |image: &Image| decide_create_partitions(image, &requests, &rules);
    let results = match metadata_update::run(ctx, decide).await {
        Ok(answers) => answers.into_iter().map(|answer| result(text(answer.name).into(), &answer.result)).collect(),
        Err(refusal) => asked.topics.into_iter().map(|topic| result(topic.name, &Err(refusal.clone()))).collect(),
    };
    CreatePartitionsResponse::default().with_results(results)
}

fn grow(topic: &CreatePartitionsTopic) -> GrowRequest {
    let lists = topic
        .assignments
        .as_ref()
        .map(|lists| lists.iter().map(|list| list.broker_ids.iter().map(|id| NodeId(id.0)).collect()).collect());
    GrowRequest { name: topic.name.to_string(), count: topic.count, assignments: lists }
}

fn result(name: TopicName, grown: &Result<(), Refusal>) -> CreatePartitionsTopicResult {
    let (code, message) = outcome(grown);
    CreatePartitionsTopicResult::default().with_name(name).with_error_code(code).with_error_message(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, create_topic, ctx};

    #[test]
    fn k37_2_and_3_have_no_text_and_the_others_have() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 2);
        let told = |name: &str, count, timeout_ms| {
            let topic = CreatePartitionsTopic::default().with_name(text(name).into()).with_count(count);
            let topics = vec![topic.with_assignments(None)];
            let asked = CreatePartitionsRequest::default().with_topics(topics).with_timeout_ms(timeout_ms);
            let answer: CreatePartitionsResponse = ask(&ctx, 37, 3, &asked);
            (answer.results[0].error_code, answer.results[0].error_message.is_some())
        };
        assert_eq!([told("t", 3, 0), told("no", 3, 1), told("a/b", 3, 1)], [(7, false), (3, false), (3, false)]);
        assert_eq!(told("t", 2, 1), (37, true));
    }

    #[test]
    fn k37_6_new_partitions_are_there_when_answered_at_every_version() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        for version in 0..=3 {
            let count = 2 + i32::from(version);
            let topic = CreatePartitionsTopic::default().with_name(text("t").into()).with_count(count);
            let asked =
                CreatePartitionsRequest::default().with_topics(vec![topic.with_assignments(None)]).with_timeout_ms(1);
            let answer: CreatePartitionsResponse = ask(&ctx, 37, version, &asked);
            assert_eq!(answer.results[0].error_code, 0);
            assert_eq!(ctx.image().topic("t").map(|topic| topic.partitions), Some(count));
            let again: CreatePartitionsResponse = ask(&ctx, 37, version, &asked);
            assert_eq!(again.results[0].error_code, 37);
        }
    }
}
