//! FindCoordinator 0-6 (groups contract G1): the node of the core that owns the key's slot.

use std::rc::Rc;

use kafka_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use kafka_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::slot::{owner, slot_of};

use super::codec::{serve, text};
use super::{Answer, Request, nodes};
use crate::ctx::{Ctx, Node};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// First version with several keys.
const BATCHED_FROM: i16 = 4;

/// What versions 1 to 3 tell beside INVALID_REQUEST, whatever was wrong (G1.3).
const INVALID_REQUEST: &str = "The request contradicts itself, or asks for what this broker does not know";

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: FindCoordinatorRequest| respond(ctx, request, &asked)).await
}

fn respond(ctx: &Ctx, request: &Request, asked: &FindCoordinatorRequest) -> FindCoordinatorResponse {
    let node = |key: &StrBytes| match asked.key_type {
        GROUP | TRANSACTION => {
            let shard = owner(slot_of(key.as_bytes()), ctx.image().shards);
            Ok(nodes::of_shard(ctx, request, shard))
        }
        // No share group is served, so no key of theirs has a coordinator (G1.3).
        SHARE => Err(String::new()),
        kind => Err(format!("Unknown coordinator type {kind}")),
    };
    let mut response = FindCoordinatorResponse::default();
    if request.version >= BATCHED_FROM {
        response.coordinators = asked.coordinator_keys.iter().map(|key| coordinator(key, node(key))).collect();
        return response;
    }
    let found = coordinator(&asked.key, node(&asked.key));
    response.error_code = found.error_code;
    // Versions 1 to 3 spell the absence of an error out.
    let message = if found.error_code == 0 { "NONE" } else { INVALID_REQUEST };
    let message = Some(text(message));
    response.with_error_message(message).with_node_id(found.node_id).with_host(found.host).with_port(found.port)
}

fn coordinator(key: &StrBytes, node: Result<&Node, String>) -> Coordinator {
    let coordinator = Coordinator::default().with_key(key.clone());
    match node {
        Ok(node) => coordinator
            .with_node_id(node.id.0.into())
            .with_host(text(node.host.as_str()))
            .with_port(i32::from(node.port))
            .with_error_message(Some(text(""))),
        Err(why) => coordinator
            .with_error_code(ErrorCode::InvalidRequest.wire())
            .with_error_message(Some(text(why)))
            .with_node_id((-1).into())
            .with_port(-1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn g2_one_key_is_answered_in_the_old_form_at_versions_0_to_3() {
        let (ctx, _dir) = ctx();
        for version in 0..=3 {
            let asked = FindCoordinatorRequest::default().with_key(text(""));
            let found: FindCoordinatorResponse = ask(&ctx, 10, version, &asked);
            assert_eq!((found.error_code, found.node_id.0, found.port), (0, 0, 9092), "empty keys are accepted");
            let message = if version > 0 { "NONE" } else { "" };
            assert_eq!(found.error_message.as_deref(), Some(message), "version {version}");
        }
    }

    #[test]
    fn g2_every_key_is_answered_also_twice_at_versions_4_to_6() {
        let (ctx, _dir) = ctx();
        for version in 4..=6 {
            let keys = vec![text("a"), text("a"), text("b")];
            let asked = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(keys);
            let found: FindCoordinatorResponse = ask(&ctx, 10, version, &asked);
            assert_eq!(found.coordinators.len(), 3);
            assert!(found.coordinators.iter().all(|c| c.error_code == 0 && c.error_message == Some(text(""))));
            let none: FindCoordinatorResponse = ask(&ctx, 10, version, &FindCoordinatorRequest::default());
            assert!(none.coordinators.is_empty());
        }
    }

    #[test]
    fn g2_other_types_are_invalid_and_name_no_node() {
        let (ctx, _dir) = ctx();
        for (version, kind) in [(1, 2), (3, -1), (4, 2), (6, 2), (6, 3)] {
            let asked = FindCoordinatorRequest::default().with_key_type(kind);
            let asked = if version < 4 { asked } else { asked.with_coordinator_keys(vec![text("g:t:0")]) };
            let found: FindCoordinatorResponse = ask(&ctx, 10, version, &asked);
            let (code, node, host, port) = match found.coordinators.first() {
                Some(c) => (c.error_code, c.node_id, c.host.clone(), c.port),
                None => (found.error_code, found.node_id, found.host.clone(), found.port),
            };
            assert_eq!((code, node.0, host.as_str(), port), (42, -1, "", -1));
        }
    }

    #[test]
    fn g1_1_to_g1_3_messages_by_version_and_repeated_keys() {
        let (ctx, _dir) = ctx();
        for version in 1..=3 {
            let asked = FindCoordinatorRequest::default().with_key(text("k"));
            for (kind, message) in [(0, "NONE"), (2, INVALID_REQUEST), (9, INVALID_REQUEST)] {
                let found: FindCoordinatorResponse = ask(&ctx, 10, version, &asked.clone().with_key_type(kind));
                assert_eq!(found.error_message.as_deref(), Some(message), "version {version} type {kind}");
            }
        }
        for version in 4..=6 {
            let asked = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("k"), text(""), text("k")]);
            for (kind, is_empty) in [(0, true), (2, true), (9, false)] {
                let found: FindCoordinatorResponse = ask(&ctx, 10, version, &asked.clone().with_key_type(kind));
                assert_eq!(found.coordinators.iter().map(|c| c.key.as_str()).collect::<Vec<_>>(), ["k", "", "k"]);
                let told = |c: &Coordinator| c.error_message.as_deref().map(str::is_empty);
                assert!(found.coordinators.iter().all(|c| told(c) == Some(is_empty)), "{version} {kind}");
            }
        }
    }
}
