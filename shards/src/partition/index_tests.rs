use proptest::prelude::*;

use super::*;

/// Batches of one record each, `sizes` long, with the given timestamps.
fn batches(base: i64, shape: &[(usize, i64)]) -> Vec<IndexedBatch> {
    let mut position = 0;
    let mut batches = Vec::new();
    for (i, (bytes, timestamp)) in shape.iter().enumerate() {
        let (last_offset, max_timestamp) = (Offset(base + i as i64), TimestampMs(*timestamp));
        batches.push(IndexedBatch { position, bytes: *bytes, last_offset, max_timestamp });
        position += *bytes as u64;
    }
    batches
}

fn index_of(base: i64, batches: &[IndexedBatch]) -> SegmentIndex {
    let mut index = SegmentIndex::new(Offset(base));
    batches.iter().for_each(|b| index.observe(*b));
    index
}

fn lookup(batches: &[IndexedBatch]) -> impl Fn(u64, Offset) -> Option<usize> {
    |position, last| batches.iter().find(|b| b.position == position && b.last_offset == last).map(|b| b.bytes)
}

proptest! {
    #[test]
    fn a_lookup_never_starts_behind_what_it_seeks(
        shape in prop::collection::vec((1usize..90_000, 0i64..50), 1..60), seek in 0usize..60, time in 0i64..50,
    ) {
        let batches = batches(1000, &shape);
        let live = index_of(1000, &batches);
        let end = live.end();
        let decoded =
            SegmentIndex::decode(Offset(1000), &live.encode_offsets(), &live.encode_times(), end, &lookup(&batches));
        let decoded = decoded.unwrap();
        for index in [&live, &decoded] {
            if let Some(batch) = batches.get(seek) {
                let start = index.position_of(batch.last_offset);
                prop_assert!(start <= batch.position);
                prop_assert!(batches.iter().any(|b| b.position == start));
                prop_assert!(index.position_after(start) > batch.position);
            }
            if let Some(first) = batches.iter().find(|b| b.max_timestamp.0 >= time) {
                prop_assert!(index.position_of_timestamp(TimestampMs(time)) <= first.position);
            }
        }
        prop_assert_eq!(decoded.next_offset(), Offset(1000 + shape.len() as i64));
        prop_assert_eq!(decoded.max_timestamp(), live.max_timestamp());
        prop_assert_eq!(decoded.max_timestamp_offset(), live.max_timestamp_offset());
    }

    #[test]
    fn no_damage_of_an_index_file_panics(
        shape in prop::collection::vec((1usize..90_000, 0i64..50), 1..20),
        at in any::<prop::sample::Index>(), flip in 1u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        let batches = batches(0, &shape);
        let index = index_of(0, &batches);
        let (mut offsets, mut times) = (index.encode_offsets(), index.encode_times());
        let (i, j) = (at.index(offsets.len()), at.index(times.len()));
        offsets[i] ^= flip;
        times[j] ^= flip;
        times.truncate(cut.index(times.len() + 1));
        let _ = SegmentIndex::decode(Offset(0), &offsets, &times, index.end(), &lookup(&batches));
    }
}

#[test]
fn kt_11_the_files_are_kafkas_formats() {
    let index = index_of(500, &batches(500, &[(70_000, 7), (70_000, 5), (100, 9)]));
    // One entry at the batch that crosses the interval, one for the last batch.
    assert_eq!(index.encode_offsets(), [1i32, 70_000, 2, 140_000].map(i32::to_be_bytes).concat());
    let mut times = Vec::new();
    for (timestamp, relative) in [(7i64, 0i32), (9, 2)] {
        times.extend(timestamp.to_be_bytes());
        times.extend(relative.to_be_bytes());
    }
    assert_eq!(index.encode_times(), times);
}

#[test]
fn an_index_whose_log_is_longer_or_shorter_is_refused() {
    let batches = batches(0, &[(100, 1), (100, 2)]);
    let index = index_of(0, &batches);
    let decode = |bytes, batches: &[IndexedBatch]| {
        SegmentIndex::decode(Offset(0), &index.encode_offsets(), &index.encode_times(), bytes, &lookup(batches))
    };
    assert!(decode(200, &batches).is_ok());
    assert!(decode(201, &batches).is_err());
    assert!(decode(199, &batches).is_err());
    assert!(decode(200, &batches[..1]).is_err());
}

#[test]
fn what_the_formats_cannot_express_is_known_before() {
    let index = SegmentIndex::new(Offset(10));
    assert!(index.can_hold(Offset(10 + i64::from(i32::MAX)), i32::MAX as u64));
    assert!(!index.can_hold(Offset(11 + i64::from(i32::MAX)), 0));
    assert!(!index.can_hold(Offset(10), i32::MAX as u64 + 1));
}
