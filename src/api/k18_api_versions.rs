//! ApiVersions 0-4 (contract K18, G2).

use std::rc::Rc;

use oncilla_shards::wire::api_versions::{self, Features};
use oncilla_shards::wire::apis;

use super::{Answer, Request, features};
use crate::ctx::Ctx;

/// Answers one request, of any version.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    if !apis::is_served(apis::API_VERSIONS, request.version) {
        return Answer::Body(api_versions::encode_unserved_version());
    }
    let asked = match api_versions::decode(request.version, &request.body) {
        Ok(asked) => asked,
        Err(error) => return Answer::Close(format!("an ApiVersions request does not parse: {error}")),
    };
    if !asked.is_valid() {
        return Answer::Body(api_versions::encode_invalid_request());
    }
    let image = ctx.image();
    // Levels change with the program or by request: both numbers only grow, one of them whenever a level changes
    // (contract D1).
    let changes = i64::try_from(image.features.changes).unwrap_or(i64::MAX);
    let epoch = i64::from(ctx.boot_epoch.0).saturating_add(changes);
    let features = Features { supported: features::SUPPORTED, epoch, finalized: &features::finalized(&image) };
    Answer::Body(api_versions::encode(request.version, apis::ANNOUNCED, &features))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_lite::future::block_on;
    use kafka_protocol::messages::api_versions_response::ApiVersionsResponse;

    use super::*;
    use crate::api::testing::{ask_bytes, ctx};

    #[test]
    fn k18_1_keys_ascend_k18_5_f82_the_epoch_is_that_of_the_start_and_k18_6_features_are_finalized() {
        let (ctx, _dir) = ctx();
        let versions: ApiVersionsResponse = ask_bytes(&ctx, 18, 4, &Bytes::from_static(b"\x02a\x021\x00"));
        assert!(versions.api_keys.is_sorted_by(|a, b| a.api_key < b.api_key));
        assert_eq!(versions.finalized_features_epoch, 7);
        let features = versions.finalized_features.iter().map(|f| (f.name.as_str(), f.max_version_level));
        let mut expected = vec![("group.version", 1), ("metadata.version", 30)];
        expected.extend(apis::TRANSACTIONS_SERVED.then_some(("transaction.version", 2)));
        assert_eq!(features.collect::<Vec<_>>(), expected, "G20.2");
        let supported = versions.supported_features.iter().map(|f| (f.name.as_str(), f.min_version, f.max_version));
        let mut expected = vec![("group.version", 0, 1), ("metadata.version", 7, 30)];
        expected.extend(apis::TRANSACTIONS_SERVED.then_some(("transaction.version", 0, 2)));
        assert_eq!(supported.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn k18_3_any_other_version_is_told_which_one_to_use() {
        let (ctx, _dir) = ctx();
        for version in [5, 99, -1, i16::MIN] {
            let body = Bytes::from_static(b"\xff\xff");
            let request = Request { key: 18, version, client_id: None, body, listener: 0, peer: None };
            let Answer::Body(body) = block_on(handle(&ctx, &request)) else { panic!("it is answered") };
            assert_eq!(body.to_bytes().as_ref(), b"\0\x23\0\0\0\x01\0\x12\0\0\0\x04");
        }
    }
}
