//! What tests of a partition share: settings, batches, and a writer without a disk.

use bytes::Bytes;

use super::{Append, LogRules, Partition, Placed, Progress, WaiterId, WritePlan};
use crate::batch::{AppendRules, BatchBuilder, write_patched};
use crate::code::ErrorCode;
use crate::ids::{LeaderEpoch, TimestampMs};
use crate::producers::Permit;

/// Broker time at which tests begin.
pub const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

/// A Produce version with every field.
pub const VERSION: i16 = 13;

/// Every write durable, nothing expires, nothing rolls.
pub fn rules() -> LogRules {
    LogRules {
        append: AppendRules::default(),
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        flush_messages: 1,
        flush_ms: i64::MAX,
        deletes: true,
        compaction: None,
        producer_ids_max: 100,
    }
}

/// Settings with small segments.
pub fn rolling(segment_bytes: i32) -> LogRules {
    LogRules { append: AppendRules { segment_bytes, ..AppendRules::default() }, ..rules() }
}

/// A partition without records at epoch 5.
pub fn partition(rules: LogRules) -> Partition {
    Partition::empty(rules, LeaderEpoch(5))
}

/// A batch without a producer.
pub fn plain(records: usize, value_bytes: usize) -> Bytes {
    batch_of(BatchBuilder::new(), records, value_bytes)
}

/// A batch of an idempotent producer at epoch 0.
pub fn sequenced(producer: i64, sequence: i32, records: usize) -> Bytes {
    batch_of(BatchBuilder::new().producer(producer, 0, sequence), records, 10)
}

fn batch_of(start: BatchBuilder, records: usize, value_bytes: usize) -> Bytes {
    let value = vec![7; value_bytes];
    Bytes::from((0..records).fold(start, |batch, _| batch.record_at(NOW, None, Some(&value), &[])).build())
}

/// Appends what has to be taken.
pub fn append(log: &mut Partition, batch: &Bytes) -> Placed {
    match log.append(batch, VERSION, Permit::Unchecked, NOW) {
        Append::Accepted(placed) => placed,
        Append::Refused(refusal) => panic!("refused: {refusal:?}"),
    }
}

/// Appends what has to be refused.
pub fn refused(log: &mut Partition, batch: &Bytes) -> ErrorCode {
    match log.append(batch, VERSION, Permit::Unchecked, NOW) {
        Append::Accepted(placed) => panic!("taken: {placed:?}"),
        Append::Refused(refusal) => refusal.code,
    }
}

/// The bytes that a plan stores.
pub fn stored(plan: &WritePlan) -> Bytes {
    let mut out = Vec::with_capacity(plan.bytes);
    for (patch, sent) in &plan.batches {
        let at = out.len();
        out.resize(at + sent.len(), 0);
        write_patched(sent, patch, &mut out[at..]);
    }
    Bytes::from(out)
}

/// Plans the next write and reports it as done.
pub fn write(log: &mut Partition, now: TimestampMs) -> (WritePlan, Progress) {
    let plan = log.take_write(now).expect("something is pending");
    let bytes = stored(&plan);
    let progress = log.wrote(bytes.clone(), bytes.len());
    (plan, progress)
}

/// Appends and writes one batch.
pub fn write_one(log: &mut Partition, batch: &Bytes) -> (WritePlan, Progress) {
    append(log, batch);
    write(log, NOW)
}

/// Who was told what.
pub fn told(progress: &Progress) -> Vec<(u64, Result<(), ErrorCode>)> {
    progress.done.iter().map(|(WaiterId(id), result)| (*id, *result)).collect()
}
