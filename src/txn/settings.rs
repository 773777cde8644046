//! What transactions act on, from the settings of the start and the features of now.

use oncilla_shards::image::Image;
use oncilla_shards::txn::TxnSettings;

use crate::config::Config;

/// The settings of transactions.
#[must_use]
pub fn settings(config: &Config, image: &Image) -> TxnSettings {
    TxnSettings { version: image.features.transaction_version, ..config.txn.clone() }
}
