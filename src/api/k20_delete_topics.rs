//! DeleteTopics 1-6 (contract K20).

use std::rc::Rc;

use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::delete_topics_request::DeleteTopicsRequest;
use kafka_protocol::messages::delete_topics_response::{DeletableTopicResult, DeleteTopicsResponse};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::TopicId;
use oncilla_shards::image::Image;
use oncilla_shards::image::topics::{DeleteAnswer, DeleteRules, DeleteTarget, decide_delete};

use super::codec::{outcome, serve, text, topic_id, uuid};
use super::{Answer, Request, metadata_update};
use crate::ctx::Ctx;

/// First version that knows the code for switched-off deletion.
const DISABLED_CODE_FROM: i16 = 3;
/// First version with a text beside the code.
const MESSAGE_FROM: i16 = 5;
/// First version that names topics by id too.
const IDS_FROM: i16 = 6;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DeleteTopicsRequest| respond(ctx, request.version, asked).await).await
}

async fn respond(ctx: &Rc<Ctx>, version: i16, asked: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let named = |name: &TopicName| name.to_string();
    let targets: Vec<DeleteTarget> = if version >= IDS_FROM {
        let target = |topic: &kafka_protocol::messages::delete_topics_request::DeleteTopicState| DeleteTarget {
            name: topic.name.as_ref().map(named),
            id: topic_id(topic.topic_id),
        };
        asked.topics.iter().map(target).collect()
    } else {
        asked.topic_names.iter().map(|name| DeleteTarget { name: Some(named(name)), id: TopicId::ZERO }).collect()
    };
    let rules = DeleteRules { enabled: ctx.config.delete_topic_enable, timeout_ms: asked.timeout_ms };
    let decided = targets.clone();
    let decide = move |image: &Image| decide_delete(image, &decided, rules);
    let answers = metadata_update::run(ctx, decide).await.unwrap_or_else(|refusal| {
        let failed =
            |target: DeleteTarget| DeleteAnswer { name: target.name, id: target.id, result: Err(refusal.clone()) };
        targets.into_iter().map(failed).collect()
    });
    DeleteTopicsResponse::default().with_responses(answers.into_iter().map(|answer| result(version, answer)).collect())
}

fn result(version: i16, answer: DeleteAnswer) -> DeletableTopicResult {
    let (mut code, message) = outcome(&answer.result);
    if code == ErrorCode::TopicDeletionDisabled.wire() && version < DISABLED_CODE_FROM {
        code = ErrorCode::InvalidRequest.wire();
    }
    let result =
        DeletableTopicResult::default().with_error_code(code).with_name(answer.name.map(|name| text(name).into()));
    let result = if version >= MESSAGE_FROM { result.with_error_message(message) } else { result };
    if version >= IDS_FROM { result.with_topic_id(uuid(answer.id)) } else { result }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::delete_topics_request::DeleteTopicState;

    use super::*;
    use crate::api::testing::{ask, create_topic, ctx, ctx_with};

    #[test]
    fn k20_5_every_version_deletes_by_name_and_6_by_id() {
        let (ctx, _dir) = ctx();
        for version in 1..=6 {
            create_topic(&ctx, "t", 1);
            let asked = DeleteTopicsRequest::default().with_timeout_ms(1);
            let topic = DeleteTopicState::default().with_name(Some(text("t").into()));
            let asked = match version {
                6 => asked.with_topics(vec![topic]),
                _ => asked.with_topic_names(vec![text("t").into()]),
            };
            let answer: DeleteTopicsResponse = ask(&ctx, 20, version, &asked);
            assert_eq!((answer.responses[0].error_code, ctx.image().topics().len()), (0, 0));
            let again: DeleteTopicsResponse = ask(&ctx, 20, version, &asked);
            assert_eq!(again.responses[0].error_code, 3);
            assert_eq!(again.responses[0].error_message.is_some(), version >= 5);
        }
        create_topic(&ctx, "t", 1);
        let id = uuid(ctx.image().topic("t").expect("created").id);
        let topic = DeleteTopicState::default().with_name(None).with_topic_id(id);
        let asked = DeleteTopicsRequest::default().with_timeout_ms(1).with_topics(vec![topic]);
        let answer: DeleteTopicsResponse = ask(&ctx, 20, 6, &asked);
        assert_eq!((answer.responses[0].error_code, answer.responses[0].topic_id), (0, id));
        assert_eq!(answer.responses[0].name.as_ref().map(|name| name.to_string()).as_deref(), Some("t"));
        let again: DeleteTopicsResponse = ask(&ctx, 20, 6, &asked);
        assert_eq!((again.responses[0].error_code, &again.responses[0].name), (100, &None));
    }

    #[test]
    fn deletion_that_is_switched_off_is_told_in_a_code_that_the_version_knows() {
        let (ctx, _dir) = ctx_with(|config| config.delete_topic_enable = false);
        create_topic(&ctx, "t", 1);
        for (version, code) in [(2, 42), (3, 73)] {
            let asked = DeleteTopicsRequest::default().with_timeout_ms(1).with_topic_names(vec![text("t").into()]);
            let answer: DeleteTopicsResponse = ask(&ctx, 20, version, &asked);
            assert_eq!(answer.responses[0].error_code, code);
        }
    }
}
