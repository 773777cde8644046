//! CreateTopics 2-7 (contract K19).

use std::rc::Rc;

use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse,
};
use oncilla_shards::ids::NodeId;
use oncilla_shards::image::topics::{CreateRules, Created, NewTopic, Refusal, decide_create};
use oncilla_shards::image::{Described, Image};

use super::codec::{outcome, serve, text, uuid};
use super::{Answer, Request, metadata_update, nodes};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: CreateTopicsRequest| respond(ctx, request, asked).await).await
}

async fn respond(ctx: &Rc<Ctx>, request: &Request, asked: CreateTopicsRequest) -> CreateTopicsResponse {
    let rules = CreateRules {
        num_partitions: ctx.config.num_partitions,
        default_replication_factor: ctx.config.default_replication_factor,
        replication_factor_max: ctx.config.replication_factor_accept_max,
        nodes: nodes::ids(ctx, request),
        answering: ctx.node(),
        timeout_ms: asked.timeout_ms,
        validate_only: asked.validate_only,
    };
    let topics: Vec<NewTopic> = asked.topics.iter().map(new_topic).collect();
    let decide = move |image: &Image| decide_create(image, &topics, &rules, metadata_update::new_topic_id);
    let results = match metadata_update::run(ctx, decide).await {
        Ok(answers) => answers.into_iter().map(|answer| result(text(answer.name).into(), answer.result)).collect(),
        Err(refusal) => asked.topics.into_iter().map(|topic| result(topic.name, Err(refusal.clone()))).collect(),
    };
    CreateTopicsResponse::default().with_topics(results)
}

fn new_topic(topic: &CreatableTopic) -> NewTopic {
    let assignments = topic.assignments.iter().map(|assignment| {
        let nodes = assignment.broker_ids.iter().map(|id| NodeId(id.0)).collect();
        (assignment.partition_index, nodes)
    });
    let configs = topic.configs.iter().map(|config| {
        let value = config.value.as_ref().map(|value| value.to_string());
        (config.name.to_string(), value)
    });
    NewTopic {
        name: topic.name.to_string(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}

fn result(name: TopicName, created: Result<Created, Refusal>) -> CreatableTopicResult {
    let (code, message) = outcome(&created);
    let result = CreatableTopicResult::default().with_name(name).with_error_code(code).with_error_message(message);
    match created {
        // One replica is the truth, whatever was asked for.
        Ok(created) => result
            .with_topic_id(uuid(created.id))
            .with_num_partitions(created.partitions)
            .with_replication_factor(1)
            .with_configs(Some(created.settings.into_iter().map(config).collect())),
        Err(_) => result.with_num_partitions(-1).with_replication_factor(-1).with_configs(Some(Vec::new())),
    }
}

fn config(setting: Described) -> CreatableTopicConfigs {
    CreatableTopicConfigs::default()
        .with_name(text(setting.name))
        .with_value(setting.value.map(text))
        .with_read_only(setting.read_only)
        .with_config_source(setting.source.wire())
        .with_is_sensitive(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    fn asked(name: &str) -> CreateTopicsRequest {
        let topic =
            CreatableTopic::default().with_name(text(name).into()).with_num_partitions(3).with_replication_factor(2);
        CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1000)
    }

    #[test]
    fn k19_14_and_15_every_version_creates_and_tells_what_it_can() {
        let (ctx, _dir) = ctx();
        for version in 2..=7 {
            let name = format!("t{version}");
            let answer: CreateTopicsResponse = ask(&ctx, 19, version, &asked(&name));
            let topic = &answer.topics[0];
            assert_eq!((topic.name.as_str(), topic.error_code), (name.as_str(), 0));
            let stored = ctx.image().topic(&name).expect("there when answered").clone();
            assert_eq!(stored.partitions, 3);
            if version >= 5 {
                assert_eq!((topic.num_partitions, topic.replication_factor), (3, 1));
                assert_eq!(topic.configs.as_ref().map(Vec::len), Some(33));
            }
            if version >= 7 {
                assert_eq!(topic.topic_id, uuid(stored.id));
            }
        }
    }

    #[test]
    fn k19_15_errors_carry_minus_one_an_empty_list_and_no_id() {
        let (ctx, _dir) = ctx();
        for version in 2..=7 {
            let answer: CreateTopicsResponse = ask(&ctx, 19, version, &asked("a b"));
            let topic = &answer.topics[0];
            assert_eq!(topic.error_code, 17);
            assert!(topic.error_message.is_some() && topic.topic_id.is_nil());
            if version >= 5 {
                assert_eq!((topic.num_partitions, topic.replication_factor), (-1, -1));
                assert_eq!(topic.configs, Some(vec![]), "0.11");
            }
        }
    }

    #[test]
    fn k19_16_no_topics_and_validate_only_leave_nothing_behind() {
        let (ctx, _dir) = ctx();
        let answer: CreateTopicsResponse = ask(&ctx, 19, 7, &CreateTopicsRequest::default());
        assert!(answer.topics.is_empty());
        let answer: CreateTopicsResponse = ask(&ctx, 19, 7, &asked("t").with_validate_only(true));
        assert_eq!(answer.topics[0].error_code, 0);
        assert!(!answer.topics[0].topic_id.is_nil() && ctx.image().topic("t").is_none());
    }
}
