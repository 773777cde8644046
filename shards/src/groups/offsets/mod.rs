//! Offsets that a group has committed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::group::Subscribed;
use super::turn::Turn;
use super::{Commit, Entry, FetchOffsets, FetchedOffsets};
use crate::code::ErrorCode;
use crate::ids::{PartitionKey, TimestampMs, TopicId};
use crate::slot::Journal;

/// How old offsets may get (contract G10.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Retention {
    /// Each counts from its commit, except of subscribed topics.
    SinceCommit(Subscribed),
    /// All count from when the group became Empty.
    Since(TimestampMs),
    /// None goes.
    Forever,
}

/// One change of a group's offsets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffsetsEntry {
    /// Stub.
    Stub,
}

#[derive(Debug, Default)]
pub(super) struct Offsets;

impl Offsets {
    pub fn any(&self) -> bool {
        false
    }
    /// Stores what was `checked` and fits (G8.8, G8.16); a code for each partition.
    pub fn commit(
        &mut self,
        _group: &Arc<str>,
        commit: &Commit,
        checked: Result<(), ErrorCode>,
        _turn: &mut Turn<'_>,
    ) -> Vec<ErrorCode> {
        vec![checked.err().unwrap_or_default(); commit.partitions.len()]
    }
    pub fn fetch(&self, _fetch: &FetchOffsets) -> FetchedOffsets {
        FetchedOffsets { code: ErrorCode::None, partitions: Vec::new() }
    }
    pub fn delete(
        &mut self,
        _group: &Arc<str>,
        keys: &[PartitionKey],
        _subscribed: &Subscribed,
        _turn: &mut Turn<'_>,
    ) -> Vec<ErrorCode> {
        vec![ErrorCode::None; keys.len()]
    }
    pub fn expire(&mut self, _group: &Arc<str>, _retention: &Retention, _turn: &mut Turn<'_>) {}
    pub fn topics_deleted(&mut self, _group: &Arc<str>, _topics: &[TopicId], _journal: &mut Journal) {}
    pub fn apply(&mut self, _entry: OffsetsEntry) {}
    pub fn snapshot(&self, _group: &Arc<str>, _entries: &mut Vec<Entry>) {}
}
