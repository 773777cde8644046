//! DeleteAcls 1-3 without an authorizer (contract K31).

use std::rc::Rc;

use kafka_protocol::messages::delete_acls_request::DeleteAclsRequest;
use kafka_protocol::messages::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsResponse};
use oncilla_shards::code::ErrorCode;

use super::authorization::NO_AUTHORIZER;
use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DeleteAclsRequest| {
        let refused = DeleteAclsFilterResult::default()
            .with_error_code(ErrorCode::SecurityDisabled.wire())
            .with_error_message(Some(text(NO_AUTHORIZER)));
        DeleteAclsResponse::default().with_filter_results(vec![refused; asked.filters.len()])
    })
    .await
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;

    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k31_1_every_filter_is_refused_and_matches_nothing() {
        let (ctx, _dir) = ctx();
        for version in 1..=3 {
            let filter = DeleteAclsFilter::default().with_pattern_type_filter(3);
            let asked = DeleteAclsRequest::default().with_filters(vec![filter; 2]);
            let answer: DeleteAclsResponse = ask(&ctx, 31, version, &asked);
            assert!(answer.filter_results.iter().all(|r| r.error_code == 54 && r.matching_acls.is_empty()));
            assert_eq!(answer.filter_results.len(), 2);
        }
    }
}
