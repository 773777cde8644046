//! AlterUserScramCredentials 0 (contract K51): refused, because there is no SASL.

use std::collections::BTreeSet;
use std::rc::Rc;

use kafka_protocol::messages::alter_user_scram_credentials_request::AlterUserScramCredentialsRequest;
use kafka_protocol::messages::alter_user_scram_credentials_response::{
    AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult,
};
use oncilla_shards::code::ErrorCode;

use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: AlterUserScramCredentialsRequest| {
        let deleted = asked.deletions.iter().map(|deletion| deletion.name.to_string());
        let users: BTreeSet<String> = deleted.chain(asked.upsertions.iter().map(|u| u.name.to_string())).collect();
        let refused = |user: String| {
            AlterUserScramCredentialsResult::default()
                .with_user(text(user))
                .with_error_code(ErrorCode::UnsupportedSaslMechanism.wire())
                .with_error_message(Some(text("This broker has no SASL mechanisms")))
        };
        AlterUserScramCredentialsResponse::default().with_results(users.into_iter().map(refused).collect())
    })
    .await
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::alter_user_scram_credentials_request::{
        ScramCredentialDeletion, ScramCredentialUpsertion,
    };

    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k51_1_every_user_is_refused_once() {
        let (ctx, _dir) = ctx();
        let deletion = ScramCredentialDeletion::default().with_name(text("a")).with_mechanism(1);
        let upsertion = |name: &str| ScramCredentialUpsertion::default().with_name(text(name)).with_mechanism(1);
        let asked = AlterUserScramCredentialsRequest::default()
            .with_deletions(vec![deletion])
            .with_upsertions(vec![upsertion("a"), upsertion("b")]);
        let answer: AlterUserScramCredentialsResponse = ask(&ctx, 51, 0, &asked);
        assert_eq!(answer.results.iter().map(|r| r.error_code).collect::<Vec<_>>(), [33, 33]);
    }
}
