//! Opens the partitions of a shard at start: what their files hold is recovered, cut at the last whole batch and handed
//! to the core.
//!
//! Runs on the shard's thread before it serves, and blocks. Failure: a partition whose files cannot be read stops the
//! start with the file and the reason, because serving it as empty would lose what was acknowledged.

use std::path::Path;
use std::rc::Rc;

use oncilla_shards::batch::{BatchHeader, ControlRecord};
use oncilla_shards::ids::PartitionKey;
use oncilla_shards::partition::{EpochHistory, LogRules, Partition, Rebuild, Segment};
use oncilla_shards::producers::{AbortedTxn, Producers};

use super::{owned, rules_of};
use crate::ctx::Ctx;
use crate::disk::DiskError;
use crate::disk::recovery::{RecoveryRules, recover_partition};
use crate::rt::now_ms;

/// The producers of a partition while its log is replayed.
struct Replay {
    producers: Producers,
    entries_max: usize,
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
        let header = BatchHeader::parse(batch).ok()?;
        self.producers.replay(&header, ControlRecord::of_batch(batch))
    }
}

/// Opens every partition of this shard.
pub fn open_all(ctx: &Rc<Ctx>) -> Result<(), DiskError> {
    let image = ctx.image();
    let node = ctx.node();
    for topic in image.topics() {
        let rules = rules_of(&ctx.config, &image.config_at(topic, node));
        for key in owned(ctx, &image, topic) {
            let directory = ctx.files.data.partition(&topic.name, topic.id, key.index);
            open_one(ctx, key, rules.clone(), &directory)?;
        }
    }
    ctx.metrics.partitions.set(ctx.shard.borrow().len() as u64);
    Ok(())
}

fn open_one(ctx: &Ctx, key: PartitionKey, rules: LogRules, directory: &Path) -> Result<(), DiskError> {
    let partition = if directory.exists() {
        let mut replay = Replay { producers: Producers::new(), entries_max: rules.producer_ids_max };
        let found = recover_partition(directory, &mut replay)?;
        let mut rebuild = Rebuild::new(replay.producers);
        for segment in found.segments {
            let (id, index, aborted) = (segment.name, segment.index, segment.aborted);
            rebuild.segment(Segment { id, opened_at: now_ms(), index, aborted });
        }
        let mut recovered = rebuild.finish(found.log_start);
        recovered.epochs = EpochHistory::of(found.epochs);
        recovered.cleaned_to = found.cleaned_to;
        recovered.producers.high_watermark_moved(found.log_end);
        recovered.producers.expire(now_ms(), ctx.config.producer_id_expiration_ms);
        Partition::recovered(rules, ctx.boot_epoch, recovered)
    } else {
        Partition::empty(rules, ctx.boot_epoch)
    };
    ctx.shard.borrow_mut().insert(key, partition);
    Ok(())
}
