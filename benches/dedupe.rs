//! The decision about a batch of a known producer: with one producer and with 100,000 in the partition.
//!
//! Goals: at most 20 ns and 60 ns. The producers are asked in a scattered order, so that the large table misses caches.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use oncilla_shards::batch::{BatchBuilder, BatchHeader};
use oncilla_shards::ids::{Offset, ProducerId, Sequence, TimestampMs};
use oncilla_shards::producers::{Check, Permit, Producers};

/// The producer asked after `pid`, far away from it. The stride has no common factor with the number of producers; a
/// division would cost as much as what is measured.
fn next_of(pid: i64, count: i64) -> i64 {
    const STRIDE: i64 = 7919;
    match pid + STRIDE.min(count) {
        next if next >= count => next - count,
        next => next,
    }
}

fn header() -> BatchHeader {
    let batch = BatchBuilder::new().producer(0, 0, 0).records(1).build();
    BatchHeader::parse(&batch).expect("a built batch has a header")
}

/// Producers with five batches each.
fn filled(count: i64) -> Producers {
    let mut producers = Producers::new();
    let mut header = header();
    for sequence in 0..5 {
        for pid in 0..count {
            header.producer_id = ProducerId(pid);
            header.base_sequence = Sequence(sequence);
            producers.appended(&header);
            header.base_offset = header.next_offset();
        }
    }
    producers
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("dedupe");
    for count in [1, 100_000] {
        let producers = filled(count);
        for (name, sequence) in [("new", 5), ("duplicate", 0), ("gap", 9)] {
            let mut header = header();
            header.base_sequence = Sequence(sequence);
            let mut pid = 0;
            group.bench_function(format!("{name}/{count}"), |b| {
                b.iter(|| {
                    pid = next_of(pid, count);
                    header.producer_id = ProducerId(pid);
                    producers.check(black_box(&header), Permit::Unchecked)
                });
            });
        }
        let mut producers = filled(count);
        let mut next = header();
        next.base_offset = producers.end_offset();
        let mut sequences = vec![5; count as usize];
        let mut pid = 0;
        group.bench_function(format!("check and append/{count}"), |b| {
            b.iter(|| {
                pid = next_of(pid, count);
                next.producer_id = ProducerId(pid);
                next.base_sequence = Sequence(sequences[pid as usize]);
                assert_eq!(producers.check(black_box(&next), Permit::Unchecked), Check::Append);
                next.max_timestamp = TimestampMs(next.base_offset.0);
                producers.appended(&next);
                sequences[pid as usize] += 1;
                next.base_offset = Offset(next.base_offset.0 + 1);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
