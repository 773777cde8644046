//! What groups act on, from the settings of the start and those changed at run time.

use oncilla_shards::groups::GroupSettings;
use oncilla_shards::ids::NodeId;
use oncilla_shards::image::Image;

use crate::config::Config;

/// The settings of groups at a node.
#[must_use]
pub fn settings(config: &Config, image: &Image, node: NodeId) -> GroupSettings {
    let mut settings = config.groups.clone();
    if let Some(bytes_max) = image.broker.number("message.max.bytes", Some(node)) {
        settings.record_bytes_max = usize::try_from(bytes_max).unwrap_or(0);
    }
    let interval_ms = image.broker.number("group.consumer.assignment.interval.ms", Some(node));
    if let Some(interval_ms) = interval_ms.and_then(|ms| i32::try_from(ms).ok()) {
        settings.consumer_assignment_interval_ms = interval_ms;
    }
    settings.consumer_protocol &= image.features.group_version > 0;
    settings
}
