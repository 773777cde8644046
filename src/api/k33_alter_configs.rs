//! AlterConfigs 0-2 (contract K33): what is not named goes back to its default.

use std::rc::Rc;

use kafka_protocol::messages::alter_configs_request::{AlterConfigsRequest, AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::alter_configs_response::{AlterConfigsResourceResponse, AlterConfigsResponse};
use oncilla_shards::image::topics::{AlterAnswer, AlterEntry, AlterMode, AlterResource};

use super::codec::{outcome, serve, text};
use super::{Answer, Request, resources};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: AlterConfigsRequest| {
        let wanted = asked.resources.iter().map(resource).collect();
        let answers = resources::alter(ctx, wanted, AlterMode::Replace, asked.validate_only).await;
        AlterConfigsResponse::default().with_responses(answers.into_iter().map(answered).collect())
    })
    .await
}

fn resource(asked: &AlterConfigsResource) -> AlterResource {
    let entry = |entry: &AlterableConfig| AlterEntry {
        name: entry.name.to_string(),
        operation: 0,
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

    #[test]
    fn k33_1_every_version_replaces_all_settings_of_a_topic() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        for version in 0..=2 {
            let set = |name: &str| AlterableConfig::default().with_name(text(name)).with_value(Some(text("7000")));
            for (names, left) in [(vec!["retention.ms", "segment.ms"], 2), (vec!["segment.ms"], 1), (vec![], 0)] {
                let configs = names.into_iter().map(set).collect();
                let topic = AlterConfigsResource::default().with_resource_type(2).with_resource_name(text("t"));
                let asked = AlterConfigsRequest::default().with_resources(vec![topic.with_configs(configs)]);
                let answer: AlterConfigsResponse = ask(&ctx, 33, version, &asked);
                assert_eq!(answer.responses[0].error_code, 0);
                assert_eq!(ctx.image().topic("t").map(|topic| topic.overrides.len()), Some(left));
            }
        }
    }
}
