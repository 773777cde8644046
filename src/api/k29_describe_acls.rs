//! DescribeAcls 1-3 without an authorizer (contract K29).

use std::rc::Rc;

use kafka_protocol::messages::describe_acls_request::DescribeAclsRequest;
use kafka_protocol::messages::describe_acls_response::DescribeAclsResponse;
use oncilla_shards::code::ErrorCode;

use super::authorization::NO_AUTHORIZER;
use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |_: DescribeAclsRequest| {
        DescribeAclsResponse::default()
            .with_error_code(ErrorCode::SecurityDisabled.wire())
            .with_error_message(Some(text(NO_AUTHORIZER)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k29_1_acls_are_off_whatever_the_filter() {
        let (ctx, _dir) = ctx();
        for version in 1..=3 {
            let asked = DescribeAclsRequest::default().with_resource_type_filter(1).with_pattern_type_filter(3);
            let answer: DescribeAclsResponse = ask(&ctx, 29, version, &asked);
            assert_eq!((answer.error_code, answer.resources.len()), (54, 0));
        }
    }
}
