//! ListConfigResources 0-1 (contract K74).

use std::collections::BTreeSet;
use std::rc::Rc;

use kafka_protocol::messages::list_config_resources_request::ListConfigResourcesRequest;
use kafka_protocol::messages::list_config_resources_response::{ConfigResource, ListConfigResourcesResponse};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::image::topics::resource;

use super::codec::{serve, text};
use super::{Answer, Request, nodes};
use crate::ctx::Ctx;

const ALL: [i8; 5] =
    [resource::TOPIC, resource::BROKER, resource::BROKER_LOGGER, resource::CLIENT_METRICS, resource::GROUP];

/// First version that names types; before it only telemetry subscriptions are listed, and there are none.
const TYPES_FROM: i16 = 1;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: ListConfigResourcesRequest| respond(ctx, request, &asked)).await
}

fn respond(ctx: &Ctx, request: &Request, asked: &ListConfigResourcesRequest) -> ListConfigResourcesResponse {
    let response = ListConfigResourcesResponse::default();
    if request.version < TYPES_FROM {
        return response;
    }
    if asked.resource_types.iter().any(|kind| !ALL.contains(kind)) {
        return response.with_error_code(ErrorCode::UnsupportedVersion.wire());
    }
    let kinds: BTreeSet<i8> =
        if asked.resource_types.is_empty() { ALL.into() } else { asked.resource_types.iter().copied().collect() };
    let mut resources = Vec::new();
    for kind in kinds {
        let names: Vec<String> = match kind {
            resource::TOPIC => ctx.image().topics().map(|topic| topic.name.to_string()).collect(),
            resource::BROKER | resource::BROKER_LOGGER => {
                nodes::ids(ctx, request).into_iter().map(|id| id.to_string()).collect()
            }
            resource::GROUP => ctx.image().groups.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let named = |name| ConfigResource::default().with_resource_name(text(name)).with_resource_type(kind);
        resources.extend(names.into_iter().map(named));
    }
    response.with_config_resources(resources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, create_topic, ctx};

    #[test]
    fn k74_1_what_has_settings_is_listed_by_type() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        type Row<'a> = (&'a [i8], i16, &'a [(i8, &'a str)]);
        let rows: [Row<'_>; 5] = [
            (&[], 0, &[(2, "t"), (4, "0"), (8, "0")]),
            (&[2, 2], 0, &[(2, "t")]),
            (&[16, 32], 0, &[]),
            (&[4], 0, &[(4, "0")]),
            (&[2, 3], 35, &[]),
        ];
        for (types, code, expected) in rows {
            let asked = ListConfigResourcesRequest::default().with_resource_types(types.to_vec());
            let answer: ListConfigResourcesResponse = ask(&ctx, 74, 1, &asked);
            let told: Vec<_> =
                answer.config_resources.iter().map(|r| (r.resource_type, r.resource_name.as_str())).collect();
            assert_eq!((answer.error_code, told.as_slice()), (code, expected));
        }
        let old: ListConfigResourcesResponse = ask(&ctx, 74, 0, &ListConfigResourcesRequest::default());
        assert!(old.error_code == 0 && old.config_resources.is_empty());
    }
}
