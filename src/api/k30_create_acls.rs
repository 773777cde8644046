//! CreateAcls 1-3 without an authorizer (contract K30).

use std::rc::Rc;

use kafka_protocol::messages::create_acls_request::CreateAclsRequest;
use kafka_protocol::messages::create_acls_response::{AclCreationResult, CreateAclsResponse};
use oncilla_shards::code::ErrorCode;

use super::authorization::NO_AUTHORIZER;
use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: CreateAclsRequest| {
        let refused = AclCreationResult::default()
            .with_error_code(ErrorCode::SecurityDisabled.wire())
            .with_error_message(Some(text(NO_AUTHORIZER)));
        CreateAclsResponse::default().with_results(vec![refused; asked.creations.len()])
    })
    .await
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::create_acls_request::AclCreation;

    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k30_1_every_creation_is_refused_also_of_impossible_types() {
        let (ctx, _dir) = ctx();
        for version in 1..=3 {
            let creation = AclCreation::default().with_resource_type(99).with_resource_pattern_type(3);
            let asked = CreateAclsRequest::default().with_creations(vec![creation; 2]);
            let answer: CreateAclsResponse = ask(&ctx, 30, version, &asked);
            assert_eq!(answer.results.iter().map(|result| result.error_code).collect::<Vec<_>>(), [54, 54]);
            let answer: CreateAclsResponse = ask(&ctx, 30, version, &CreateAclsRequest::default());
            assert!(answer.results.is_empty());
        }
    }
}
