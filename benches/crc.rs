//! The checksum of a batch, for the sizes that arrive.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oncilla_shards::batch::crc_of;

fn sizes(c: &mut Criterion) {
    let mut group = c.benchmark_group("crc");
    for bytes in [200, 1 << 10, 16 << 10, 1 << 20] {
        let batch: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(format!("{bytes} bytes"), |b| b.iter(|| crc_of(black_box(&batch))));
    }
    group.finish();
}

criterion_group!(benches, sizes);
criterion_main!(benches);
