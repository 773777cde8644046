//! Reading and stamping a batch header, and the checks of a whole batch.
//!
//! Goal: at most 15 ns for parsing and stamping. Stamping includes the copy into the write buffer.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oncilla_shards::batch::{
    AppendRules, BatchBuilder, BatchHeader, Codec, Patch, StoredFields, validate, write_patched,
};
use oncilla_shards::ids::{LeaderEpoch, Offset, TimestampMs};

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

fn batch(codec: Codec, records: usize, value: &[u8]) -> Vec<u8> {
    let start = BatchBuilder::new().codec(codec).producer(7, 0, 0);
    (0..records).fold(start, |batch, _| batch.record_at(NOW, Some(b"key"), Some(value), &[])).build()
}

fn header(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch_header");
    let batch = batch(Codec::None, 1, &[7; 120]);
    group.bench_function("parse", |b| b.iter(|| BatchHeader::parse(black_box(&batch))));
    let mut out = vec![0; batch.len()];
    group.bench_function(format!("parse and patch/{} bytes", batch.len()), |b| {
        b.iter(|| {
            let header = BatchHeader::parse(black_box(&batch)).expect("a header");
            let stored = StoredFields { attributes: header.attributes.0, max_timestamp: NOW, crc: header.crc };
            write_patched(&batch, &Patch::new(&stored, Offset(55), LeaderEpoch(2)), black_box(&mut out));
        });
    });
    group.finish();
}

fn checks(c: &mut Criterion) {
    let mut group = c.benchmark_group("validate");
    let rules = AppendRules::default();
    for (name, codec, records) in [
        ("plain", Codec::None, 1),
        ("plain", Codec::None, 100),
        ("gzip", Codec::Gzip, 100),
        ("snappy", Codec::Snappy, 100),
        ("lz4", Codec::Lz4, 100),
        ("zstd", Codec::Zstd, 100),
    ] {
        let value: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(37) % 61).collect();
        let batch = batch(codec, records, &value);
        group.throughput(Throughput::Elements(records as u64));
        group.bench_function(format!("{name}/{records} records"), |b| {
            b.iter(|| validate(black_box(&batch), 9, &rules, NOW).expect("right"));
        });
    }
    group.finish();
}

criterion_group!(benches, header, checks);
criterion_main!(benches);
