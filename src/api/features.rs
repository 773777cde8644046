//! Features of the cluster and their levels (contract K18.6, D1, G20.2).

use oncilla_shards::image::Image;
use oncilla_shards::wire::api_versions::{FinalizedFeature, SupportedFeature};
use oncilla_shards::wire::apis::TRANSACTIONS_SERVED;

/// Whether consumer groups of KIP-848 are served.
pub const GROUP_VERSION: &str = "group.version";

/// Which protocol of transactions clients speak (eos contract 0.5, D1).
pub const TRANSACTION_VERSION: &str = "transaction.version";

const ALL: [SupportedFeature; 3] = [
    SupportedFeature { name: GROUP_VERSION, min: 0, max: 1 },
    SupportedFeature { name: "metadata.version", min: 7, max: 30 },
    SupportedFeature { name: TRANSACTION_VERSION, min: 0, max: 2 },
];

/// What this broker can run.
pub const SUPPORTED: &[SupportedFeature] = if TRANSACTIONS_SERVED { &ALL } else { ALL.split_last().unwrap().1 };

/// The level at which the cluster runs a feature; 0 is that of a feature that is off.
pub fn level(image: &Image, feature: &str) -> Option<i16> {
    match feature {
        GROUP_VERSION => Some(image.features.group_version),
        "metadata.version" => Some(30),
        TRANSACTION_VERSION if TRANSACTIONS_SERVED => Some(image.features.transaction_version),
        _ => None,
    }
}

/// What the cluster runs: a feature at level 0 is not told.
pub fn finalized(image: &Image) -> Vec<FinalizedFeature> {
    let level = |feature: &SupportedFeature| {
        let level = level(image, feature.name)?;
        (level > 0).then_some(FinalizedFeature { name: feature.name, level })
    };
    SUPPORTED.iter().filter_map(level).collect()
}
