//! Log compaction: a log is reduced to the newest record of each key (`cleanup.policy` with compact).
//!
//! A clean has two passes. The first reads what is dirty and remembers the newest offset of each key ([`Latest`]); the
//! second reads everything from the log start on and decides about each batch ([`Filter`]). What is dirty, whether a
//! clean is due and which segments become one is the partition's business ([`crate::partition::Dirty`]). The edge
//! reads, writes and exchanges files.
//! Both passes know transactions (contract A10, cases 104 to 113), and nothing at or above the last stable offset is
//! ever looked at. Limits: those of the parts. Failure: a clean that ends early has changed nothing that it has not
//! handed over whole, and the next one does its work again.

mod fates;
mod filter;
mod hash;
mod key_map;
mod latest;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod testing;

pub use fates::{Fate, Fates};
pub use filter::{Filter, Kept};
pub use hash::HashSecret;
pub use key_map::KeyMap;
pub use latest::{Latest, Step};

/// What a topic's settings ask of its cleaner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionRules {
    /// Share of dirty bytes above which a clean is due (`min.cleanable.dirty.ratio`).
    pub min_dirty_ratio: f64,
    /// Age in ms below which a record is left alone (`min.compaction.lag.ms`).
    pub min_lag_ms: i64,
    /// Age in ms at which a clean is due whatever the ratio (`max.compaction.lag.ms`).
    pub max_lag_ms: i64,
    /// Time in ms that tombstones and markers stay after the first clean that saw them (`delete.retention.ms`).
    pub delete_retention_ms: i64,
}
