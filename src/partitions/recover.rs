//! Recovers one partition: what its files hold is read, cut at the last whole batch and handed to the core.
//!
//! The reading blocks and touches nothing but the partition's directory, so it may run on any thread. What it had to
//! replay goes into a snapshot: the next start does not read it again.

use std::path::{Path, PathBuf};

use oncilla_shards::batch::{BatchHeader, ControlRecord};
use oncilla_shards::ids::{LeaderEpoch, PartitionKey, TimestampMs};
use oncilla_shards::partition::{EpochHistory, LogRules, Partition, Rebuild, Segment};
use oncilla_shards::producers::{AbortedTxn, Producers};

use crate::disk::recovery::{RecoveredPartition, RecoveryRules, recover_partition};
use crate::disk::{DiskError, snapshot_file};

/// A partition to recover.
#[derive(Clone, Debug)]
pub struct Job {
    /// Which one.
    pub key: PartitionKey,
    /// Where its files are.
    pub directory: PathBuf,
    /// Most producer ids that it remembers.
    pub producer_ids_max: usize,
}

/// What a partition's files hold.
pub struct Found {
    log: RecoveredPartition,
    producers: Producers,
}

/// The producers of a partition while its log is replayed.
struct Replay {
    producers: Producers,
    entries_max: usize,
    replayed: bool,
}

impl RecoveryRules for Replay {
    fn is_usable_snapshot(&self, bytes: &[u8]) -> bool {
        Producers::restore(bytes).is_ok()
    }

    fn restore(&mut self, snapshot: Option<&[u8]>) {
        let restored = snapshot.and_then(|bytes| Producers::restore(bytes).ok());
        self.producers = restored.unwrap_or_default().limited_to(self.entries_max);
    }

    fn replay(&mut self, batch: &[u8]) -> Option<AbortedTxn> {
        self.replayed = true;
        let header = BatchHeader::parse(batch).ok()?;
        self.producers.replay(&header, ControlRecord::of_batch(batch))
    }
}

/// Recovers what is in the job's directory. Blocks.
pub fn recover_blocking(job: &Job) -> Result<Found, DiskError> {
    let mut replay = Replay { producers: Producers::new(), entries_max: job.producer_ids_max, replayed: false };
    let log = recover_partition(&job.directory, &mut replay)?;
    let mut producers = replay.producers;
    producers.high_watermark_moved(log.log_end);
    if replay.replayed {
        save(&job.directory, &log, &producers);
    }
    Ok(Found { log, producers })
}

fn save(directory: &Path, log: &RecoveredPartition, producers: &Producers) {
    if let Err(error) = snapshot_file::write_blocking(directory, log.log_end, &producers.snapshot()) {
        tracing::warn!(%error, "a producer snapshot could not be written; the next start replays the log again");
    }
}

impl Found {
    /// The partition, to be served at `epoch`.
    #[must_use]
    pub fn serve(self, rules: LogRules, epoch: LeaderEpoch, now: TimestampMs, expiration_ms: i64) -> Partition {
        let mut rebuild = Rebuild::new(self.producers);
        for segment in self.log.segments {
            let (id, index, aborted) = (segment.name, segment.index, segment.aborted);
            rebuild.segment(Segment { id, opened_at: now, index, aborted });
        }
        let mut recovered = rebuild.finish(self.log.log_start);
        recovered.epochs = EpochHistory::of(self.log.epochs);
        recovered.cleaned_to = self.log.cleaned_to;
        recovered.producers.expire(now, expiration_ms);
        Partition::recovered(rules, epoch, recovered)
    }
}
