//! DescribeConfigs 1-4 (contract K32).

use std::rc::Rc;

use kafka_protocol::messages::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};
use oncilla_shards::image::{Described, Origin};

use super::codec::{serve, text};
use super::{Answer, Request, resources};
use crate::ctx::Ctx;

/// First version with types and documentation.
const TYPES_FROM: i16 = 3;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DescribeConfigsRequest| {
        let wanted = Wanted {
            synonyms: asked.include_synonyms,
            types: request.version >= TYPES_FROM,
            documentation: asked.include_documentation,
        };
        let results = asked.resources.iter().map(|resource| describe(ctx, resource, wanted)).collect();
        DescribeConfigsResponse::default().with_results(results)
    })
    .await
}

/// What is told beside the values.
#[derive(Clone, Copy)]
struct Wanted {
    synonyms: bool,
    types: bool,
    documentation: bool,
}

fn describe(ctx: &Ctx, resource: &DescribeConfigsResource, wanted: Wanted) -> DescribeConfigsResult {
    let result = DescribeConfigsResult::default()
        .with_resource_type(resource.resource_type)
        .with_resource_name(resource.resource_name.clone());
    match resources::describe(&ctx.image(), ctx.node(), resource.resource_type, &resource.resource_name) {
        Ok(settings) => {
            let keys = resource.configuration_keys.as_deref().unwrap_or_default();
            let asked = |setting: &Described| keys.is_empty() || keys.iter().any(|key| key.as_str() == setting.name);
            let configs = settings.into_iter().filter(asked).map(|setting| entry(setting, wanted)).collect();
            // Success carries an empty text, not null (contract K32.10).
            result.with_error_message(Some(text(""))).with_configs(configs)
        }
        Err(refusal) => result.with_error_code(refusal.code.wire()).with_error_message(Some(text(refusal.message))),
    }
}

fn entry(setting: Described, wanted: Wanted) -> DescribeConfigsResourceResult {
    let synonym = |origin: Origin| {
        let synonym = DescribeConfigsSynonym::default().with_name(text(origin.name));
        synonym.with_value(Some(text(origin.value))).with_source(origin.source.wire())
    };
    let mut entry = DescribeConfigsResourceResult::default()
        .with_name(text(setting.name))
        .with_value(setting.value.map(text))
        .with_read_only(setting.read_only)
        .with_config_source(setting.source.wire());
    if wanted.synonyms {
        entry.synonyms = setting.synonyms.into_iter().map(synonym).collect();
    }
    if wanted.types {
        entry.config_type = setting.kind.wire();
        entry.documentation = wanted.documentation.then(|| text(setting.doc));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, create_topic, ctx};

    fn resource(kind: i8, name: &str) -> DescribeConfigsResource {
        DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configuration_keys(None)
    }

    fn codes(resources: Vec<DescribeConfigsResource>) -> Vec<i16> {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        let answer: DescribeConfigsResponse =
            ask(&ctx, 32, 4, &DescribeConfigsRequest::default().with_resources(resources));
        answer.results.iter().map(|result| result.error_code).collect()
    }

    #[test]
    fn k32_1_to_6_resources_are_answered_in_order() {
        let asked = [(2, ""), (2, "a b"), (2, "no"), (2, "t"), (4, ""), (4, "0"), (4, "x"), (4, "1"), (4, "-1")];
        let asked = asked.iter().map(|(kind, name)| resource(*kind, name)).collect();
        assert_eq!(codes(asked), [17, 17, 3, 0, 0, 0, 42, 42, 42]);
        assert_eq!(codes([8, 16, 0, 1, 3].iter().map(|kind| resource(*kind, "0")).collect()), [42; 5]);
    }

    #[test]
    fn g20_4_a_group_has_three_settings_whose_defaults_are_the_brokers() {
        let (ctx, _dir) = ctx();
        let asked = DescribeConfigsRequest::default().with_resources(vec![resource(32, "g"), resource(32, "")]);
        let answer: DescribeConfigsResponse = ask(&ctx, 32, 4, &asked);
        let told: Vec<_> =
            answer.results[0].configs.iter().map(|c| (c.name.as_str(), c.value.as_deref(), c.config_source)).collect();
        let expected = [
            ("consumer.assignment.interval.ms", Some("1000"), 5),
            ("consumer.heartbeat.interval.ms", Some("5000"), 5),
            ("consumer.session.timeout.ms", Some("45000"), 5),
        ];
        assert_eq!(told, expected);
        assert_eq!(answer.results[1].error_code, 42);
    }

    #[test]
    fn k32_2_the_cluster_has_what_was_set_at_run_time() {
        let (ctx, _dir) = ctx();
        let asked = DescribeConfigsRequest::default().with_resources(vec![resource(4, "")]);
        let answer: DescribeConfigsResponse = ask(&ctx, 32, 4, &asked);
        let only = &answer.results[0].configs;
        assert_eq!(only.len(), 1);
        assert_eq!((only[0].name.as_str(), only[0].value.as_deref()), ("min.insync.replicas", Some("1")));
    }

    #[test]
    fn k32_7_unknown_keys_are_left_out_and_a_key_twice_is_told_once() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        for version in 1..=4 {
            let keys = vec![text("retention.ms"), text("no.such"), text("retention.ms")];
            let some = resource(2, "t").with_configuration_keys(Some(keys));
            let empty = resource(2, "t").with_configuration_keys(Some(vec![]));
            let asked = DescribeConfigsRequest::default().with_resources(vec![some.clone(), some, empty]);
            let answer: DescribeConfigsResponse = ask(&ctx, 32, version, &asked);
            assert_eq!(answer.results.iter().map(|r| r.configs.len()).collect::<Vec<_>>(), [1, 1, 33]);
            assert!(answer.results.iter().all(|r| r.error_message == Some(text(""))));
            let entry = &answer.results[0].configs[0];
            assert_eq!(entry.config_type, if version >= 3 { 5 } else { 0 });
            assert!(entry.synonyms.is_empty(), "not asked");
            assert_eq!(entry.documentation, (version < 3).then(|| text("")), "not there, or not asked");
        }
    }

    #[test]
    fn k32_8_and_9_synonyms_and_documentation_when_asked() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        let asked = DescribeConfigsRequest::default()
            .with_resources(vec![resource(2, "t")])
            .with_include_synonyms(true)
            .with_include_documentation(true);
        let answer: DescribeConfigsResponse = ask(&ctx, 32, 4, &asked);
        let entry = |name: &str| answer.results[0].configs.iter().find(|c| c.name.as_str() == name).expect("listed");
        let bytes = entry("retention.bytes");
        assert_eq!(bytes.synonyms.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["log.retention.bytes"]);
        assert!(entry("retention.ms").synonyms.is_empty());
        assert!(answer.results[0].configs.iter().all(|c| c.documentation.as_ref().is_some_and(|d| !d.is_empty())));
        assert_eq!(entry("min.insync.replicas").config_source, 3, "KT.22");
    }
}
