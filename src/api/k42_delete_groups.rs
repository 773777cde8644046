//! DeleteGroups (key 42), versions 0 to 2: contract G7.8.

use std::collections::BTreeSet;
use std::rc::Rc;

use kafka_protocol::messages::GroupId;
use kafka_protocol::messages::delete_groups_request::DeleteGroupsRequest;
use kafka_protocol::messages::delete_groups_response::{DeletableGroupResult, DeleteGroupsResponse};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Reply};

use super::codec::serve;
use super::{Answer, Request, group};
use crate::ctx::Ctx;
use crate::groups;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DeleteGroupsRequest| {
        let mut seen = BTreeSet::new();
        let ids: Vec<GroupId> = asked.groups_names.into_iter().filter(|id| seen.insert(id.clone())).collect();
        let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        let codes: Vec<ErrorCode> = groups::ask_all(ctx, &names, Ask::Delete).await.into_iter().map(code_of).collect();
        let result = |(id, code): (GroupId, ErrorCode)| {
            DeletableGroupResult::default().with_group_id(id).with_error_code(code.wire())
        };
        DeleteGroupsResponse::default().with_results(ids.into_iter().zip(codes).map(result).collect())
    })
    .await
}

fn code_of(reply: Result<Reply, ErrorCode>) -> ErrorCode {
    match reply {
        Ok(Reply::Delete(code)) | Err(code) => code,
        Ok(other) => group::mismatched(&other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::codec::text;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn g7_8_absent_groups_are_69_each_once_and_the_empty_id_is_one_like_others() {
        let (ctx, _dir) = ctx();
        for version in 0..=2 {
            let ids = ["b", "a", "b", ""].map(|id| GroupId(text(id)));
            let asked = DeleteGroupsRequest::default().with_groups_names(ids.to_vec());
            let answer: DeleteGroupsResponse = ask(&ctx, 42, version, &asked);
            let told: Vec<_> = answer.results.iter().map(|r| (r.group_id.as_str(), r.error_code)).collect();
            assert_eq!(told, [("b", 69), ("a", 69), ("", 69)]);
        }
    }
}
