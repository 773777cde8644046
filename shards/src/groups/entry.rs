//! What a slot of groups writes to its journal: each entry is one change, and a checkpoint is a list of them.
//!
//! Applying the entries in their order rebuilds the slot, twice the same one changes nothing more. Each protocol and
//! the offsets have entries of their own beside their state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::classic::ClassicEntry;
use super::consumer::ConsumerEntry;
use super::offsets::OffsetsEntry;

/// One change of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The group is gone with all it had.
    Gone {
        /// Which.
        group: Arc<str>,
    },
    /// The group's classic side.
    Classic {
        /// Which.
        group: Arc<str>,
        /// The change.
        entry: ClassicEntry,
    },
    /// The group's side of KIP-848.
    Consumer {
        /// Which.
        group: Arc<str>,
        /// The change.
        entry: ConsumerEntry,
    },
    /// The group's offsets.
    Offsets {
        /// Which.
        group: Arc<str>,
        /// The change.
        entry: OffsetsEntry,
    },
}

impl Entry {
    /// The group that it is about.
    #[must_use]
    pub fn group(&self) -> &Arc<str> {
        match self {
            Self::Gone { group }
            | Self::Classic { group, .. }
            | Self::Consumer { group, .. }
            | Self::Offsets { group, .. } => group,
        }
    }
}
