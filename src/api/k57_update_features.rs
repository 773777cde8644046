//! UpdateFeatures 0-2 (contract K57): `group.version` (contract G20.2) and `transaction.version` (eos contract
//! 0.5) may change, other levels come with the program.

use std::rc::Rc;

use kafka_protocol::messages::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};
use kafka_protocol::messages::update_features_response::{UpdatableFeatureResult, UpdateFeaturesResponse};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::image::topics::Refusal;
use oncilla_shards::image::{Change, Image};

use super::codec::{serve, text};
use super::{Answer, Request, features, metadata_update};
use crate::ctx::Ctx;

/// First version that tells upgrades from downgrades by a type.
const TYPES_FROM: i16 = 1;
/// First version without a result for each feature.
const NO_RESULTS_FROM: i16 = 2;

/// Kinds of updates.
const UPGRADE: i8 = 1;
const UNSAFE_DOWNGRADE: i8 = 3;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: UpdateFeaturesRequest| {
        let response = UpdateFeaturesResponse::default();
        let (version, updates) = (request.version, asked.feature_updates.clone());
        let decide = move |image: &Image| decide(image, version, &updates, asked.validate_only);
        let decided = metadata_update::run(ctx, decide).await.unwrap_or_else(Err);
        if let Err(refusal) = decided {
            return response.with_error_code(refusal.code.wire()).with_error_message(Some(text(refusal.message)));
        }
        if request.version >= NO_RESULTS_FROM {
            return response;
        }
        // Versions 0 and 1 spell the absence of an error out.
        let result = |update: &FeatureUpdateKey| {
            let result = UpdatableFeatureResult::default().with_feature(update.feature.clone());
            result.with_error_message(Some(text("NONE")))
        };
        response.with_results(asked.feature_updates.iter().map(result).collect())
    })
    .await
}

fn decide(
    image: &Image,
    version: i16,
    updates: &[FeatureUpdateKey],
    validate_only: bool,
) -> (Vec<Change>, Result<(), Refusal>) {
    let mut changes = Vec::new();
    for update in updates {
        match check(image, version, update) {
            Ok(change) => changes.extend(change),
            Err(message) => {
                return (Vec::new(), Err(Refusal { code: ErrorCode::FeatureUpdateFailed, message }));
            }
        }
    }
    if validate_only {
        changes.clear();
    }
    (changes, Ok(()))
}

fn check(image: &Image, version: i16, update: &FeatureUpdateKey) -> Result<Option<Change>, String> {
    if version >= TYPES_FROM && !(UPGRADE..=UNSAFE_DOWNGRADE).contains(&update.upgrade_type) {
        return Err(format!("Upgrade type {} is not known", update.upgrade_type));
    }
    let (feature, to) = (update.feature.as_str(), update.max_version_level);
    let Some(level) = features::level(image, feature) else {
        return Err(format!("Feature {feature} is not known"));
    };
    if level == to {
        return Ok(None);
    }
    let change = match feature {
        features::GROUP_VERSION => Change::SetGroupVersion { level: to },
        features::TRANSACTION_VERSION => Change::SetTransactionVersion { level: to },
        _ => return Err(format!("Feature {feature} stays at level {level}, which comes with the program")),
    };
    if !features::SUPPORTED.iter().any(|known| known.name == feature && (known.min..=known.max).contains(&to)) {
        return Err(format!("Feature {feature} has no level {to} here"));
    }
    let downgrades = if version >= TYPES_FROM { update.upgrade_type != UPGRADE } else { update.allow_downgrade };
    if to < level && !downgrades {
        return Err(format!("Feature {feature} goes from level {level} down to {to} only if a downgrade is asked for"));
    }
    if to > level && downgrades && version >= TYPES_FROM {
        return Err(format!("Feature {feature} goes from level {level} up to {to} only if an upgrade is asked for"));
    }
    Ok(Some(change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k57_1_the_present_level_is_fine_and_everything_else_fails() {
        let (ctx, _dir) = ctx();
        for version in 0..=2 {
            let update = |feature: &str, level| {
                FeatureUpdateKey::default().with_feature(text(feature)).with_max_version_level(level)
            };
            let rows = [
                (vec![], 0, 0),
                (vec![update("metadata.version", 30)], 0, usize::from(version < 2)),
                (vec![update("metadata.version", 29)], 95, 0),
                (vec![update("metadata.version", 31)], 95, 0),
                (vec![update("metadata.version", 30), update("no.version", 1)], 95, 0),
            ];
            for (updates, code, results) in rows {
                let asked = UpdateFeaturesRequest::default().with_feature_updates(updates);
                let answer: UpdateFeaturesResponse = ask(&ctx, 57, version, &asked);
                assert_eq!((answer.error_code, answer.results.len()), (code, results));
                assert!(answer.results.iter().all(|result| result.error_message == Some(text("NONE"))));
            }
        }
    }

    #[test]
    fn g20_2_lowering_group_version_needs_a_downgrade_and_turns_consumer_groups_off_until_it_is_raised() {
        use kafka_protocol::messages::ApiVersionsResponse;
        use kafka_protocol::messages::ConsumerGroupHeartbeatRequest;
        use kafka_protocol::messages::ConsumerGroupHeartbeatResponse;

        let (ctx, _dir) = ctx();
        let set = |level, kind, validate_only| {
            let update = FeatureUpdateKey::default().with_feature(text("group.version"));
            let update = update.with_max_version_level(level).with_upgrade_type(kind);
            let asked = UpdateFeaturesRequest::default().with_feature_updates(vec![update]);
            let answer: UpdateFeaturesResponse = ask(&ctx, 57, 2, &asked.with_validate_only(validate_only));
            answer.error_code
        };
        let state = || {
            let beat =
                ConsumerGroupHeartbeatRequest::default().with_group_id(kafka_protocol::messages::GroupId(text("g")));
            let beat: ConsumerGroupHeartbeatResponse = ask(&ctx, 68, 0, &beat.with_member_epoch(1));
            let body = bytes::Bytes::from_static(b"\x02a\x021\x00");
            let versions: ApiVersionsResponse = crate::api::testing::ask_bytes(&ctx, 18, 4, &body);
            let others = versions.finalized_features.iter().filter(|one| &*one.name != features::TRANSACTION_VERSION);
            (beat.error_code == 35, others.count(), versions.finalized_features_epoch)
        };
        assert_eq!((set(0, 1, false), set(2, 1, false), set(-1, 2, false)), (95, 95, 95));
        assert_eq!((set(0, 2, true), state()), (0, (false, 2, 7)), "checked only");
        assert_eq!((set(0, 2, false), state()), (0, (true, 1, 8)));
        assert_eq!((set(1, 2, false), state()), (95, (true, 1, 8)));
        assert_eq!((set(1, 1, false), state()), (0, (false, 2, 9)));
    }
}
