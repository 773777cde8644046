//! Answer to a Fetch of ten partitions with 64 KiB of records each. Goal: 1 us, no copy of a payload.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use oncilla_paths::fetch::{PARTITIONS, answers, topic_at};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::wire::fetch::{FetchAnswer, encode};

const RECORDS_BYTES: usize = 64 << 10;

fn fetch_encode(c: &mut Criterion) {
    let records = Bytes::from(vec![7; RECORDS_BYTES]);
    for version in [12i16, 18] {
        let partitions = answers(&topic_at(version), &records);
        let answer = FetchAnswer {
            throttle_time_ms: 0,
            code: ErrorCode::None,
            session_id: 0,
            partitions: &partitions,
            node_endpoints: &[],
        };
        let body = encode(version, &answer);
        let referenced = body.chunks().iter().filter(|chunk| chunk.as_ptr() == records.as_ptr()).count();
        assert_eq!(referenced, PARTITIONS as usize, "payloads are referenced");
        c.bench_function(&format!("fetch_encode/10_partitions/v{version}"), |b| {
            b.iter(|| encode(version, black_box(&answer)));
        });
    }
}

criterion_group!(benches, fetch_encode);
criterion_main!(benches);
