//! What one entry of a slot's journal costs the shard: a line like that of a committed offset, encoded and taken into a
//! write together with its neighbours.
//!
//! Goal: at most 500 ns a line. The buffer of a write is given back, as the writer does it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oncilla_shards::slot::Journal;
use serde::Serialize;

/// Lines of one write.
const LINES: i64 = 100;

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Offsets { group: Box<str>, entry: Committed },
}

#[derive(Serialize)]
struct Committed {
    topic: Box<str>,
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: Box<str>,
    commit_ms: i64,
}

fn lines(c: &mut Criterion) {
    let committed = |offset| Committed {
        topic: "payments.settled.eu-west".into(),
        partition: 17,
        offset,
        leader_epoch: 12,
        metadata: "".into(),
        commit_ms: 1_790_000_000_000,
    };
    let mut entry = Entry::Offsets { group: "settlement-service-production".into(), entry: committed(4_000_000_000) };
    let mut journal = Journal::default();
    let mut group = c.benchmark_group("slot journal");
    group.throughput(Throughput::Elements(LINES as u64));
    group.bench_function("100 committed offsets", |b| {
        b.iter(|| {
            for _ in 0..LINES {
                let Entry::Offsets { entry: committed, .. } = &mut entry;
                committed.offset += 1;
                black_box(journal.append(black_box(&entry)));
            }
            let write = journal.take_write().expect("lines are pending");
            journal.wrote();
            journal.reuse(black_box(write.bytes));
        });
    });
    group.finish();
}

criterion_group!(benches, lines);
criterion_main!(benches);
