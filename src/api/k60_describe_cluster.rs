//! DescribeCluster 0-2 (contract K60).

use std::rc::Rc;

use kafka_protocol::messages::describe_cluster_request::DescribeClusterRequest;
use kafka_protocol::messages::describe_cluster_response::{DescribeClusterBroker, DescribeClusterResponse};
use oncilla_shards::code::ErrorCode;

use super::authorization::{CLUSTER_OPERATIONS, if_asked};
use super::codec::{serve, text};
use super::{Answer, Request, nodes};
use crate::ctx::Ctx;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DescribeClusterRequest| respond(ctx, request, &asked)).await
}

fn respond(ctx: &Ctx, request: &Request, asked: &DescribeClusterRequest) -> DescribeClusterResponse {
    let refuse = |code: ErrorCode, why: &str| {
        let response = DescribeClusterResponse::default().with_error_code(code.wire());
        response.with_error_message(Some(text(why))).with_controller_id((-1).into())
    };
    match asked.endpoint_type {
        BROKERS => {}
        CONTROLLERS => return refuse(ErrorCode::MismatchedEndpointType, "This is an endpoint of brokers"),
        _ => return refuse(ErrorCode::UnsupportedEndpointType, "The endpoint type is not known"),
    }
    let broker = |node: &crate::ctx::Node| {
        let broker = DescribeClusterBroker::default().with_broker_id(node.id.0.into());
        broker.with_host(text(node.host.as_str())).with_port(i32::from(node.port))
    };
    let mut brokers: Vec<_> = nodes::all(ctx, request).iter().map(broker).collect();
    brokers.sort_unstable_by_key(|broker| broker.broker_id.0);
    let operations = if_asked(asked.include_cluster_authorized_operations, CLUSTER_OPERATIONS);
    DescribeClusterResponse::default()
        .with_cluster_id(text(&*ctx.image().cluster_id))
        .with_controller_id(nodes::controller(ctx, request).id.0.into())
        .with_brokers(brokers)
        .with_cluster_authorized_operations(operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{CLUSTER, ask, ctx};

    #[test]
    fn k60_1_the_cluster_at_every_version() {
        let (ctx, _dir) = ctx();
        for version in 0..=2 {
            let asked = DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
            let answer: DescribeClusterResponse = ask(&ctx, 60, version, &asked);
            assert_eq!((answer.error_code, answer.cluster_id.as_str(), answer.brokers.len()), (0, CLUSTER, 1));
            assert_eq!((answer.controller_id.0, answer.cluster_authorized_operations), (0, 8096));
            let answer: DescribeClusterResponse = ask(&ctx, 60, version, &DescribeClusterRequest::default());
            assert_eq!(answer.cluster_authorized_operations, i32::MIN);
        }
    }

    #[test]
    fn k60_1_other_endpoint_types_get_no_cluster() {
        let (ctx, _dir) = ctx();
        for version in 1..=2 {
            for (kind, code) in [(2, 114), (0, 115), (3, 115)] {
                let asked = DescribeClusterRequest::default().with_endpoint_type(kind);
                let answer: DescribeClusterResponse = ask(&ctx, 60, version, &asked);
                assert_eq!((answer.error_code, answer.cluster_id.as_str()), (code, ""));
                assert_eq!((answer.controller_id.0, answer.brokers.len()), (-1, 0));
            }
        }
    }
}
