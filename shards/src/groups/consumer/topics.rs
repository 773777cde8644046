//! Topics that a group's members want: how many name each, what expressions matched, and whether any of them changed.
//!
//! The group keeps a fingerprint of ids and partition counts. An image of another version is looked at once: a heartbeat
//! without a change costs nothing (contract G12.9).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::member::About;
use super::re2;
use crate::groups::Now;
use crate::ids::TopicId;
use crate::image::Image;
use crate::limits::{GROUP_REGEX_REFRESH_MS_MAX, GROUP_REGEX_REFRESH_MS_MIN};

/// Fingerprint of no topics.
pub(super) const NOTHING: u64 = 0xcbf2_9ce4_8422_2325;

/// Topics, as members count on them.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Members that name a topic.
    names: BTreeMap<Arc<str>, usize>,
    patterns: BTreeMap<String, Pattern>,
    matched_at_ms: Option<u64>,
    matched_version: u64,
    /// Image that the fingerprint was last compared with.
    pub compared: Option<u64>,
}

/// One regular expression.
#[derive(Debug, Default)]
struct Pattern {
    members: usize,
    /// `None` until it was matched.
    topics: Option<BTreeSet<Arc<str>>>,
}

/// Counts one less.
pub(super) fn forget_one<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K) {
    let count = counts.get_mut(key).expect("counted when it came");
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

impl Wanted {
    pub fn add(&mut self, about: &About) {
        about.topics.iter().for_each(|name| *self.names.entry(name.clone()).or_default() += 1);
        if !about.regex.is_empty() {
            self.patterns.entry(about.regex.clone()).or_default().members += 1;
        }
    }

    pub fn remove(&mut self, about: &About) {
        about.topics.iter().for_each(|name| forget_one(&mut self.names, name));
        if !about.regex.is_empty() {
            let pattern = self.patterns.get_mut(&about.regex).expect("counted when it came");
            pattern.members -= 1;
            if pattern.members == 0 {
                self.patterns.remove(&about.regex);
            }
        }
    }

    /// Whether the group has an expression.
    pub fn knows(&self, expression: &str) -> bool {
        self.patterns.contains_key(expression)
    }

    /// What an expression matched, if it was matched.
    pub fn matched(&self, expression: &str) -> Option<&BTreeSet<Arc<str>>> {
        self.patterns.get(expression)?.topics.as_ref()
    }

    /// Expressions that were matched.
    pub fn all_matched(&self) -> impl Iterator<Item = (&str, &BTreeSet<Arc<str>>)> {
        self.patterns.iter().filter_map(|(expression, pattern)| Some((expression.as_str(), pattern.topics.as_ref()?)))
    }

    pub fn set_matched(&mut self, expression: &str, topics: BTreeSet<Arc<str>>) {
        if let Some(pattern) = self.patterns.get_mut(expression) {
            pattern.topics = Some(topics);
        }
    }

    /// Ids of what one member wants, sorted; topics that are not there are left out.
    pub fn of(&self, about: &About, image: &Image) -> Vec<TopicId> {
        let matched = self.matched(&about.regex).into_iter().flatten();
        let ids: BTreeSet<_> =
            about.topics.iter().chain(matched).filter_map(|name| Some(image.topic(name)?.id)).collect();
        ids.into_iter().collect()
    }

    /// All topics that somebody wants, with their partitions.
    pub fn all(&self, image: &Image) -> BTreeMap<TopicId, i32> {
        let matched = self.patterns.values().filter_map(|pattern| pattern.topics.as_ref()).flatten();
        let topics = self.names.keys().chain(matched).filter_map(|name| image.topic(name));
        topics.map(|topic| (topic.id, topic.partitions)).collect()
    }

    /// A fingerprint of [`Wanted::all`]; it is written down, so it never changes for the same topics.
    pub fn fingerprint(&self, image: &Image) -> u64 {
        let mut hash = NOTHING;
        for (id, partitions) in self.all(image) {
            for byte in id.0.to_be_bytes().into_iter().chain(partitions.to_be_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        hash
    }

    /// Matches expressions where it is time to (contract G14.2, G14.6): what changed, with what is matched now. The
    /// first flag of each says whether the topics are others than before.
    pub fn rematch(&mut self, now: Now, image: &Image) -> Vec<(bool, String, BTreeSet<Arc<str>>)> {
        if self.patterns.is_empty() {
            return Vec::new();
        }
        let age_ms = self.matched_at_ms.map_or(u64::MAX, |at_ms| now.mono_ms.saturating_sub(at_ms));
        let all_due = age_ms >= GROUP_REGEX_REFRESH_MS_MAX
            || age_ms >= GROUP_REGEX_REFRESH_MS_MIN && image.version > self.matched_version;
        let mut changes = Vec::new();
        for (expression, pattern) in &mut self.patterns {
            if !all_due && pattern.topics.is_some() {
                continue;
            }
            let topics = matches(expression, image);
            let differs = pattern.topics.as_ref().map_or(!topics.is_empty(), |before| *before != topics);
            if differs || pattern.topics.is_none() {
                pattern.topics = Some(topics.clone());
                changes.push((differs, expression.clone(), topics));
            }
        }
        if all_due || !changes.is_empty() {
            self.matched_at_ms = Some(now.mono_ms);
        }
        if all_due {
            self.matched_version = image.version;
        }
        changes
    }
}

/// Names of topics that an expression matches; one that does not compile any more, because a limit was lowered since it
/// was accepted, matches none.
fn matches(expression: &str, image: &Image) -> BTreeSet<Arc<str>> {
    let Ok(regex) = re2::compile(expression) else { return BTreeSet::new() };
    image.topics().filter(|topic| regex.is_match(&topic.name)).map(|topic| topic.name.clone()).collect()
}
