//! What the runs of one shard went through.

use std::ops::AddAssign;

/// What a run went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records acknowledged.
    pub acknowledged: usize,
    /// Duplicates that were recognised.
    pub duplicates: usize,
    /// Batches of old epochs that were refused.
    pub fenced: usize,
    /// Crashes.
    pub crashes: usize,
    /// Writes torn by a crash.
    pub torn: usize,
    /// Writes lost in a crash.
    pub lost: usize,
    /// Writes refused by a full disk.
    pub disk_full: usize,
    /// Segments opened.
    pub rolls: usize,
    /// Log starts moved.
    pub deletes: usize,
    /// Partitions recovered from a snapshot.
    pub snapshots_used: usize,
    /// Partitions opened late.
    pub opened_late: usize,
    /// Batches refused because they came before their partition was open, or behind such a one.
    pub came_early: usize,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.duplicates += other.duplicates;
        self.fenced += other.fenced;
        self.crashes += other.crashes;
        self.torn += other.torn;
        self.lost += other.lost;
        self.disk_full += other.disk_full;
        self.rolls += other.rolls;
        self.deletes += other.deletes;
        self.snapshots_used += other.snapshots_used;
        self.opened_late += other.opened_late;
        self.came_early += other.came_early;
    }
}
