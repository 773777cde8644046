//! Resources of the requests that read and change settings (contract K32, K33, K44).

use std::rc::Rc;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::NodeId;
use oncilla_shards::image::topics::{
    AlterAnswer, AlterMode, AlterResource, AlterRules, Refusal, decide_alter, resource,
};
use oncilla_shards::image::{Described, Image, group_settings, names};

use super::metadata_update;
use crate::ctx::Ctx;

/// The settings of a resource as a node tells them (contract K32.1-6); loggers and telemetry have none here
/// (K32.11), a group has some whether it is there or not (G20.4).
pub fn describe(image: &Image, node: NodeId, kind: i8, name: &str) -> Result<Vec<Described>, Refusal> {
    let refuse = |code, message: String| Err(Refusal { code, message });
    match kind {
        resource::TOPIC => {
            if let Err(why) = names::check(name) {
                return refuse(ErrorCode::InvalidTopicException, why);
            }
            match image.topic(name) {
                Some(topic) => Ok(image.describe_topic(&topic.overrides, node)),
                None => refuse(ErrorCode::UnknownTopicOrPartition, String::new()),
            }
        }
        resource::BROKER if name.is_empty() => Ok(image.broker.describe_cluster()),
        resource::BROKER => match name.parse::<i32>() {
            Ok(id) if NodeId(id) == node => Ok(image.broker.describe(node)),
            Ok(id) => refuse(
                ErrorCode::InvalidRequest,
                format!("Unexpected broker id, expected {node} or empty string, but received {id}"),
            ),
            Err(_) => refuse(ErrorCode::InvalidRequest, format!("{name} is not a broker id")),
        },
        resource::GROUP if name.is_empty() => refuse(ErrorCode::InvalidRequest, "The group has no name".to_owned()),
        resource::GROUP => Ok(group_settings::describe(image.groups.get(name), &image.broker)),
        _ => refuse(ErrorCode::InvalidRequest, format!("Resource type {kind} has no settings here")),
    }
}

/// Changes settings; every resource is answered.
pub async fn alter(
    ctx: &Rc<Ctx>,
    resources: Vec<AlterResource>,
    mode: AlterMode,
    validate_only: bool,
) -> Vec<AlterAnswer> {
    let rules = AlterRules { mode, node: ctx.node(), validate_only };
    let decided = resources.clone();
    let decide = move |image: &Image| decide_alter(image, &decided, rules);
    metadata_update::run(ctx, decide).await.unwrap_or_else(|refusal| {
        let failed = |resource: AlterResource| AlterAnswer {
            kind: resource.kind,
            name: resource.name,
            result: Err(refusal.clone()),
        };
        resources.into_iter().map(failed).collect()
    })
}
