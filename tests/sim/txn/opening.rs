//! Partitions that a start opens while clients are served already, as `partitions::opening` does it: one after the
//! other, those first that somebody asked for.

use oncilla_shards::ids::{LeaderEpoch, PartitionKey};

use super::messages::{SIDE, key};
use super::reconcile::Timer;
use super::world::{SHARDS, World};

/// Starts that serve before everything is open.
const LATE_PERCENT: usize = 30;

/// Longest time until the next partition is taken, and until it is open.
const PAUSE_MS: usize = 100;
const WORK_MS: usize = 500;

impl World {
    /// Opens what is on the disk, or notes it; says whether some of it is still to come.
    pub fn begin_opening(&mut self) -> bool {
        let is_late = self.boot_epoch() > 1 && self.open_rng.percent(LATE_PERCENT);
        for index in 0..=SIDE {
            match is_late {
                true => {
                    let at = self.node_of_partition(index);
                    self.nodes[at].shard.opening.expect(key(index));
                }
                false => self.open(key(index)),
            }
        }
        for at in (0..SHARDS).filter(|_| is_late) {
            self.go_on_opening(at);
        }
        is_late
    }

    fn open(&mut self, key: PartitionKey) {
        let log = self.logs.recover(key, LeaderEpoch(self.boot_epoch()), self.now.wall);
        self.truth.stable_at(key.index, log.last_stable_offset(), log.high_watermark());
        let at = self.node_of_partition(key.index);
        self.nodes[at].shard.insert(key, log);
    }

    /// Takes the next partition after a while; when there is none, what was found open is settled.
    fn go_on_opening(&mut self, at: usize) {
        if self.nodes[at].shard.opening.left() == 0 {
            return self.begin_round(at);
        }
        let ms = self.open_rng.below(PAUSE_MS) as u64;
        self.later(at, ms, Timer::Take);
    }

    pub fn take(&mut self, at: usize) {
        let key = self.nodes[at].shard.opening.take().expect("one is left");
        let ms = self.open_rng.below(WORK_MS) as u64;
        self.later(at, ms, Timer::Open(key));
    }

    pub fn take_over(&mut self, at: usize, key: PartitionKey) {
        assert!(self.nodes[at].shard.opening.opened(&key), "it is in work");
        self.open(key);
        self.totals.opened_late += 1;
        self.go_on_opening(at);
    }
}
