//! DescribeClientQuotas 0-1 (contract K48): there are none.

use std::rc::Rc;

use kafka_protocol::messages::describe_client_quotas_request::{ComponentData, DescribeClientQuotasRequest};
use kafka_protocol::messages::describe_client_quotas_response::DescribeClientQuotasResponse;
use oncilla_shards::code::ErrorCode;

use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DescribeClientQuotasRequest| {
        let response = DescribeClientQuotasResponse::default();
        match asked.components.iter().try_for_each(check) {
            Ok(()) => response.with_error_message(Some(text(""))).with_entries(Some(Vec::new())),
            Err((code, why)) => {
                response.with_error_code(code.wire()).with_error_message(Some(text(why))).with_entries(None)
            }
        }
    })
    .await
}

fn check(component: &ComponentData) -> Result<(), (ErrorCode, String)> {
    let invalid = |why: &str| Err((ErrorCode::InvalidRequest, why.to_owned()));
    match (component.match_type, &component._match) {
        _ if component.entity_type.is_empty() => invalid("The entity type is empty"),
        (EXACT, None) => invalid("An exact match needs a name"),
        (DEFAULT, Some(_)) => invalid("A match of the default takes no name"),
        (EXACT | DEFAULT | ANY, _) => match component.entity_type.as_str() {
            "user" | "client-id" | "ip" => Ok(()),
            other => Err((ErrorCode::UnsupportedVersion, format!("Entity type {other} is not known"))),
        },
        _ => invalid("Unknown match type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k48_1_quotas_are_empty_and_odd_filters_are_refused() {
        let (ctx, _dir) = ctx();
        let component = |kind: &str, match_type, name: Option<&str>| {
            let name = name.map(text);
            ComponentData::default().with_entity_type(text(kind)).with_match_type(match_type).with_match(name)
        };
        let rows = [
            (vec![], 0),
            (vec![component("user", 2, None), component("ip", 0, Some("1.2.3.4"))], 0),
            (vec![component("team", 2, None)], 35),
            (vec![component("", 2, None)], 42),
            (vec![component("user", 3, None)], 42),
            (vec![component("user", 0, None)], 42),
            (vec![component("user", 1, Some("x"))], 42),
        ];
        for version in 0..=1 {
            for (components, code) in rows.clone() {
                let asked = DescribeClientQuotasRequest::default().with_components(components);
                let answer: DescribeClientQuotasResponse = ask(&ctx, 48, version, &asked);
                assert_eq!((answer.error_code, answer.entries.is_some()), (code, code == 0));
            }
        }
    }
}
