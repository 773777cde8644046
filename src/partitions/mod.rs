//! The partitions of one shard and their files: opened at start, created and removed with the topics, written, read and
//! kept in bounds.
//!
//! The core in `oncilla_shards` decides; this module carries it out on the disk. A partition's directory is made when
//! its first segment is, so a topic of thousands of partitions costs nothing until it is written.
//! Failure: a partition whose disk fails goes offline for appends and says why; the others serve on.

mod ahead;
#[cfg(test)]
mod ahead_tests;
mod cleaned_file;
mod cleaner;
#[cfg(test)]
mod cleaner_tests;
mod files;
mod housekeeping;
mod markers;
mod opening;
mod reader;
mod recover;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod txn_tests;
mod watch;
mod writer;

use std::rc::Rc;

use oncilla_shards::compaction::CompactionRules;
use oncilla_shards::ids::{Offset, PartitionKey};
use oncilla_shards::image::{Image, Topic, TopicConfig};
use oncilla_shards::partition::{LogRules, Partition};
use oncilla_shards::shard::Effects;

pub use self::cleaner::{clean_now, start_cleaner};
pub use self::files::Files;
pub use self::housekeeping::{close_all, start_housekeeping, start_log_at};
pub use self::markers::{append_markers, write_markers};
#[cfg(test)]
pub use self::opening::open_all_blocking;
pub use self::opening::{Openers, expect_all};
pub use self::reader::{Place, Unread, read, read_committed, scan_step};
pub use self::watch::{Watches, unwatch, watch};
pub use self::writer::start_writer;
use crate::config::Config;
use crate::ctx::Ctx;
use crate::rt::spawn;

/// What a partition acts on, from its topic's settings.
pub fn rules_of(config: &Config, topic: &TopicConfig) -> LogRules {
    LogRules {
        append: oncilla_shards::batch::AppendRules {
            max_message_bytes: topic.max_message_bytes,
            segment_bytes: topic.segment_bytes,
            timestamp_type: topic.timestamp_type,
            before_max_ms: topic.before_max_ms,
            after_max_ms: topic.after_max_ms,
            compacted: topic.cleanup_policy.compact,
        },
        segment_ms: match topic.cleanup_policy.compact {
            // A record cannot be compacted while its segment takes appends.
            true => topic.segment_ms.min(topic.max_compaction_lag_ms),
            false => topic.segment_ms,
        },
        retention_ms: topic.retention_ms,
        retention_bytes: topic.retention_bytes,
        flush_messages: topic.flush_messages,
        flush_ms: topic.flush_ms,
        deletes: topic.cleanup_policy.delete,
        compaction: topic.cleanup_policy.compact.then_some(CompactionRules {
            min_dirty_ratio: topic.min_cleanable_dirty_ratio,
            min_lag_ms: topic.min_compaction_lag_ms,
            max_lag_ms: topic.max_compaction_lag_ms,
            delete_retention_ms: topic.delete_retention_ms,
        }),
        producer_ids_max: config.producer_ids_max,
    }
}

/// The partitions of a topic that this shard owns.
fn owned<'a>(ctx: &'a Ctx, image: &'a Image, topic: &'a Topic) -> impl Iterator<Item = PartitionKey> + 'a {
    let mine = (0..topic.partitions).filter(move |&index| image.owner(topic, index) == ctx.id);
    mine.map(|index| PartitionKey { topic: topic.id, index })
}

/// Makes this shard serve what `image` says: topics that are gone are closed, new ones opened, settings taken over.
///
/// The files of a deleted topic are removed by the one writer of topics, after every shard has closed them: the caller
/// waits until nothing writes to the partitions returned, which are gone.
pub fn install(ctx: &Rc<Ctx>, image: &Image) -> Vec<PartitionKey> {
    let mut effects = Effects::new();
    let mut gone = Vec::new();
    let before = ctx.image();
    for topic in before.topics().filter(|topic| image.topic_by_id(topic.id).is_none()) {
        for key in owned(ctx, &before, topic) {
            ctx.shard.borrow_mut().remove(&key, &mut effects);
            ctx.files.forget(&key);
            gone.push(key);
        }
        ctx.files.readers.forget(&ctx.files.data.topic(&topic.name, topic.id));
    }
    let node = ctx.node();
    for topic in image.topics() {
        let known = before.topic_by_id(topic.id);
        let is_same = |known: &Topic| {
            known.partitions == topic.partitions && before.config_at(known, node) == image.config_at(topic, node)
        };
        if known.is_some_and(|known| is_same(known)) {
            continue;
        }
        let rules = rules_of(&ctx.config, &image.config_at(topic, node));
        for key in owned(ctx, image, topic) {
            let mut shard = ctx.shard.borrow_mut();
            // What is not open yet gets its rules when it is.
            if shard.opening.knows(&key) {
                continue;
            }
            match shard.partition_mut(&key) {
                Some(partition) => partition.set_rules(rules.clone()),
                None => shard.insert(key, Partition::empty(rules.clone(), ctx.boot_epoch)),
            }
        }
    }
    ctx.metrics.partitions.set(ctx.shard.borrow().len() as u64);
    ctx.carry_out(effects);
    gone
}

/// Keeps a producer snapshot in a file; without it a restart reads more of the log, nothing else.
pub fn save_snapshot(ctx: &Rc<Ctx>, key: PartitionKey, offset: Offset, bytes: Vec<u8>) {
    let Some(directory) = ctx.files.directory(ctx, &key) else { return };
    let ctx = ctx.clone();
    spawn(async move {
        if let Err(error) = crate::disk::snapshot_file::write(&directory, offset, bytes).await
            && !writer::is_gone(&ctx, &key)
        {
            tracing::warn!(%error, "a producer snapshot could not be written; the next start replays more of the log");
        }
    });
}
