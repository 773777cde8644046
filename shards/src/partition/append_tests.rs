//! Tests of what an append answers.

use bytes::Bytes;

use super::*;
use crate::batch::TimestampType;
use crate::batch::build::BatchBuilder;

const NOW: TimestampMs = TimestampMs(2_000);

fn partition(timestamp_type: TimestampType) -> Partition {
    let rules = LogRules {
        append: AppendRules { timestamp_type, ..AppendRules::default() },
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        flush_messages: 1,
        flush_ms: i64::MAX,
        deletes: true,
        compaction: None,
        producer_ids_max: 10,
    };
    Partition::empty(rules, LeaderEpoch(1))
}

/// Sends the first batch of a producer; its record is from 1000.
fn send(partition: &mut Partition, now: TimestampMs) -> Placed {
    let batch = BatchBuilder::new().producer(7, 0, 0).record_at(TimestampMs(1_000), None, Some(b"v"), &[]).build();
    match partition.append(&Bytes::from(batch), 9, Permit::Unchecked, now) {
        Append::Accepted(placed) => placed,
        refused => panic!("{refused:?}"),
    }
}

#[test]
fn a5_1_a_duplicate_tells_the_largest_timestamp_of_the_original_under_either_clock() {
    for (clock, first, again) in [(TimestampType::CreateTime, -1, 1_000), (TimestampType::LogAppendTime, 2_000, 2_000)]
    {
        let mut partition = partition(clock);
        let original = send(&mut partition, NOW);
        let resent = send(&mut partition, TimestampMs(NOW.0 + 500));
        assert_eq!((original.duplicate, original.log_append_time), (false, TimestampMs(first)), "K0.22, {clock:?}");
        assert_eq!((resent.duplicate, resent.log_append_time), (true, TimestampMs(again)), "{clock:?}");
        assert_eq!((resent.base, resent.end), (original.base, original.end));
    }
}
