//! IncrementalAlterConfigs 0-1 (contract K44): each entry changes one setting.

use std::rc::Rc;

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use kafka_protocol::messages::incremental_alter_configs_response::{
    AlterConfigsResourceResponse, IncrementalAlterConfigsResponse,
};
use oncilla_shards::image::topics::{AlterAnswer, AlterEntry, AlterMode, AlterResource};

use super::codec::{outcome, serve, text};
use super::{Answer, Request, resources};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: IncrementalAlterConfigsRequest| {
        let wanted = asked.resources.iter().map(resource).collect();
        let answers = resources::alter(ctx, wanted, AlterMode::Incremental, asked.validate_only).await;
        IncrementalAlterConfigsResponse::default().with_responses(answers.into_iter().map(answered).collect())
    })
    .await
}

fn resource(asked: &AlterConfigsResource) -> AlterResource {
    let entry = |entry: &AlterableConfig| AlterEntry {
        name: entry.name.to_string(),
        operation: entry.config_operation,
        value: entry.value.as_ref().map(|value| value.to_string()),
    };
    AlterResource {
        kind: asked.resource_type,
        name: asked.resource_name.to_string(),
        entries: asked.configs.iter().map(entry).collect(),
    }
}

fn answered(answer: AlterAnswer) -> AlterConfigsResourceResponse {
    let (code, message) = outcome(&answer.result);
    AlterConfigsResourceResponse::default()
        .with_error_code(code)
        .with_error_message(message)
        .with_resource_type(answer.kind)
        .with_resource_name(text(answer.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, create_topic, ctx};

    fn asked(operation: i8) -> IncrementalAlterConfigsRequest {
        let value = (operation != 1).then(|| text("7000"));
        let set = AlterableConfig::default().with_name(text("retention.ms")).with_config_operation(operation);
        let topic = AlterConfigsResource::default().with_resource_type(2).with_resource_name(text("t"));
        let topic = topic.with_configs(vec![set.with_value(value)]);
        IncrementalAlterConfigsRequest::default().with_resources(vec![topic])
    }

    #[test]
    fn k44_every_version_sets_and_removes_a_setting() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        let retention_ms = || ctx.image().topic("t").map(|topic| topic.config.retention_ms);
        for version in 0..=1 {
            let answer: IncrementalAlterConfigsResponse = ask(&ctx, 44, version, &asked(0));
            assert_eq!((answer.responses[0].error_code, retention_ms()), (0, Some(7000)));
            let answer: IncrementalAlterConfigsResponse = ask(&ctx, 44, version, &asked(1));
            assert_eq!((answer.responses[0].error_code, retention_ms()), (0, Some(604_800_000)));
            let answer: IncrementalAlterConfigsResponse = ask(&ctx, 44, version, &asked(2));
            assert_eq!(answer.responses[0].error_code, 40, "K44.5");
            assert!(answer.responses[0].error_message.is_some());
        }
    }
}
