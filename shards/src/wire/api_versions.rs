//! ApiVersions 0-4, byte for byte (contract G2, K18).
//!
//! The only API whose every request is answered: an unknown version gets [`encode_unserved_version`], a client that
//! names itself against the pattern gets [`encode_invalid_request`].

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::apis::{self, ApiRange};
use super::error::{WireError, WireFault};
use super::reader::{Reader, share_text};
use super::writer::{Body, Writer};
use crate::code::ErrorCode;

/// First version with the throttle time.
const THROTTLE_FROM: i16 = 1;
/// First version in which the client names itself and the broker its features.
const FEATURES_FROM: i16 = 3;
/// First version whose clients understand features that start at level 0 (contract K18.2).
const LEVEL_ZERO_FROM: i16 = 4;
/// Tag of the features that this broker can run.
const SUPPORTED_TAG: u32 = 0;
/// Tag of the features epoch.
const EPOCH_TAG: u32 = 1;
/// Tag of the features that the cluster runs.
const FINALIZED_TAG: u32 = 2;

/// An ApiVersions request.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiVersionsRequest {
    /// Version of the request.
    pub version: i16,
    /// Name and version of the client's software, from version 3 on.
    pub software: Option<(StrBytes, StrBytes)>,
}

impl ApiVersionsRequest {
    /// Whether the client names itself as the pattern has it; otherwise the answer is [`encode_invalid_request`]
    /// (contract K18.4). Versions below 3 name nothing.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.software.as_ref().is_none_or(|(name, version)| is_software_text(name) && is_software_text(version))
    }
}

/// A feature and the levels at which this broker can run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    /// Name of the feature.
    pub name: &'static str,
    /// Lowest level.
    pub min: i16,
    /// Highest level.
    pub max: i16,
}

/// A feature and the level at which the cluster runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalizedFeature {
    /// Name of the feature.
    pub name: &'static str,
    /// The level, which is both minimum and maximum (contract K18.2).
    pub level: i16,
}

/// What versions 3 and above tell about features; empty lists and an epoch of -1 are left out.
#[derive(Clone, Copy, Debug)]
pub struct Features<'a> {
    /// What this broker can run.
    pub supported: &'a [SupportedFeature],
    /// Grows with every change of a level and never falls, also over restarts (contract K18.5).
    pub epoch: i64,
    /// What the cluster runs.
    pub finalized: &'a [FinalizedFeature],
}

/// Reads the body of an ApiVersions request of a served version; bytes behind it are ignored (contract G2).
pub fn decode(version: i16, body: &Bytes) -> Result<ApiVersionsRequest, WireError> {
    if !apis::is_served(apis::API_VERSIONS, version) {
        return Err(WireError { at: 0, fault: WireFault::UnservedVersion { key: apis::API_VERSIONS, version } });
    }
    let mut reader = Reader::new(body, version >= FEATURES_FROM);
    let mut software = None;
    if version >= FEATURES_FROM {
        software = Some((share_text(body, reader.text()?), share_text(body, reader.text()?)));
        reader.skip_tags()?;
    }
    Ok(ApiVersionsRequest { version, software })
}

/// Encodes the answer: every API of `announced` (normally [`apis::ANNOUNCED`]) and, from version 3 on, the features.
#[must_use]
pub fn encode(version: i16, announced: &[ApiRange], features: &Features<'_>) -> Body {
    let mut writer = Writer::new(version >= FEATURES_FROM, 32 + 8 * announced.len());
    writer.i16(ErrorCode::None.wire());
    writer.count(announced.len());
    for range in announced {
        writer.i16(range.key);
        writer.i16(range.min);
        writer.i16(range.max);
        writer.no_tags();
    }
    if version >= THROTTLE_FROM {
        writer.i32(0);
    }
    if version >= FEATURES_FROM {
        write_features(&mut writer, version, features);
    }
    writer.finish()
}

/// The answer to a version that is not served: 35 and where ApiVersions itself stands, in the layout of version 0
/// (contract G2, case 114). The frame is 16 bytes behind its size.
#[must_use]
pub fn encode_unserved_version() -> Body {
    let range = apis::find(apis::API_VERSIONS).expect("ApiVersions is announced");
    let mut writer = Writer::new(false, 12);
    writer.i16(ErrorCode::UnsupportedVersion.wire());
    writer.count(1);
    writer.i16(range.key);
    writer.i16(range.min);
    writer.i16(range.max);
    writer.finish()
}

/// The answer to a client that names itself against the pattern: 42 and nothing else (contract K18.4). The frame is
/// 12 bytes behind its size.
#[must_use]
pub fn encode_invalid_request() -> Body {
    let mut writer = Writer::new(true, 8);
    writer.i16(ErrorCode::InvalidRequest.wire());
    writer.count(0);
    writer.i32(0);
    writer.no_tags();
    writer.finish()
}

fn write_features(writer: &mut Writer, version: i16, features: &Features<'_>) {
    let visible = |feature: &&SupportedFeature| version >= LEVEL_ZERO_FROM || feature.min > 0;
    let supported = || features.supported.iter().filter(visible);
    let supported_count = supported().count();
    let has_epoch = features.epoch >= 0;
    let tags = [supported_count > 0, has_epoch, !features.finalized.is_empty()];
    writer.tag_count(tags.iter().map(|&tag| u32::from(tag)).sum());
    if supported_count > 0 {
        let levels = supported().map(|feature| (feature.name, [feature.min, feature.max]));
        write_levels(writer, SUPPORTED_TAG, supported_count, levels);
    }
    if has_epoch {
        writer.tag(EPOCH_TAG, 8);
        writer.i64(features.epoch);
    }
    if !features.finalized.is_empty() {
        // Finalized levels are maximum before minimum, which is one number twice.
        let levels = features.finalized.iter().map(|feature| (feature.name, [feature.level; 2]));
        write_levels(writer, FINALIZED_TAG, features.finalized.len(), levels);
    }
}

fn write_levels(writer: &mut Writer, tag: u32, count: usize, features: impl Iterator<Item = (&'static str, [i16; 2])>) {
    let mut list = Writer::new(true, 32 * count);
    list.count(count);
    for (name, levels) in features {
        list.text(name);
        levels.into_iter().for_each(|level| list.i16(level));
        list.no_tags();
    }
    let list = list.finish().to_bytes();
    writer.tag(tag, u32::try_from(list.len()).expect("a list of features is short"));
    writer.raw(&list);
}

/// Letters and digits, inside also dots and hyphens; at least one character.
fn is_software_text(text: &str) -> bool {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    match text.as_bytes() {
        [] => false,
        [one] => one.is_ascii_alphanumeric(),
        [first, middle @ .., last] => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && middle.iter().all(inside)
        }
    }
}

#[cfg(test)]
#[path = "api_versions_tests.rs"]
mod tests;

#[cfg(test)]
pub(super) use tests::encoded_by_them as golden;
