//! UpdateFeatures 0-2 (contract K57): levels change with the program only.

use std::rc::Rc;

use kafka_protocol::messages::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};
use kafka_protocol::messages::update_features_response::{UpdatableFeatureResult, UpdateFeaturesResponse};
use oncilla_shards::code::ErrorCode;

use super::codec::{serve, text};
use super::{Answer, Request, features};
use crate::ctx::Ctx;

/// First version that tells upgrades from downgrades by a type.
const TYPES_FROM: i16 = 1;
/// First version without a result for each feature.
const NO_RESULTS_FROM: i16 = 2;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: UpdateFeaturesRequest| {
        let response = UpdateFeaturesResponse::default();
        let check = |update: &FeatureUpdateKey| check(request.version, update);
        if let Err(why) = asked.feature_updates.iter().try_for_each(check) {
            let code = ErrorCode::FeatureUpdateFailed.wire();
            return response.with_error_code(code).with_error_message(Some(text(why)));
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

fn check(version: i16, update: &FeatureUpdateKey) -> Result<(), String> {
    if version >= TYPES_FROM && !(1..=3).contains(&update.upgrade_type) {
        return Err(format!("Upgrade type {} is not known", update.upgrade_type));
    }
    let feature = update.feature.as_str();
    let level = features::FINALIZED.iter().find(|known| known.name == feature).map(|known| known.level);
    match level {
        None => Err(format!("Feature {feature} is not known")),
        Some(level) if level == update.max_version_level => Ok(()),
        Some(level) => Err(format!("Feature {feature} stays at level {level}, which comes with the program")),
    }
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
}
