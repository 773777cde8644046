//! DescribeUserScramCredentials 0 (contract K50): there are no users.

use std::collections::BTreeMap;
use std::rc::Rc;

use kafka_protocol::messages::describe_user_scram_credentials_request::DescribeUserScramCredentialsRequest;
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    DescribeUserScramCredentialsResponse, DescribeUserScramCredentialsResult,
};
use oncilla_shards::code::ErrorCode;

use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DescribeUserScramCredentialsRequest| {
        let mut times = BTreeMap::new();
        for user in asked.users.unwrap_or_default() {
            *times.entry(user.name.to_string()).or_insert(0) += 1;
        }
        let result = |(user, times): (String, i32)| {
            let (code, why) = match times {
                1 => (ErrorCode::ResourceNotFound, "There is no such user"),
                _ => (ErrorCode::DuplicateResource, "The user is named twice"),
            };
            DescribeUserScramCredentialsResult::default()
                .with_user(text(user))
                .with_error_code(code.wire())
                .with_error_message(Some(text(why)))
        };
        DescribeUserScramCredentialsResponse::default().with_results(times.into_iter().map(result).collect())
    })
    .await
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;

    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k50_1_all_users_are_none_and_a_named_one_is_unknown() {
        let (ctx, _dir) = ctx();
        let user = |name: &str| UserName::default().with_name(text(name));
        let named = vec![user("a"), user("b"), user("b")];
        for (users, codes) in [(None, vec![]), (Some(vec![]), vec![]), (Some(named), vec![91, 92])] {
            let asked = DescribeUserScramCredentialsRequest::default().with_users(users);
            let answer: DescribeUserScramCredentialsResponse = ask(&ctx, 50, 0, &asked);
            assert_eq!(answer.results.iter().map(|r| r.error_code).collect::<Vec<_>>(), codes);
            assert_eq!(answer.error_code, 0);
        }
    }
}
