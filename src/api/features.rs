//! Features of the cluster and their levels (contract K18.6, D1).

use oncilla_shards::wire::api_versions::{FinalizedFeature, SupportedFeature};

/// What this broker can run.
pub const SUPPORTED: &[SupportedFeature] = &[SupportedFeature { name: "metadata.version", min: 7, max: 30 }];

/// What the cluster runs.
pub const FINALIZED: &[FinalizedFeature] = &[FinalizedFeature { name: "metadata.version", level: 30 }];
