//! Header and body of a Produce request with one partition and one batch of about 1 KiB. Goal: 150 ns, no allocation
//! (the latter is a test, `alloc_produce_decode`).

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use oncilla_paths::produce::frame;
use oncilla_shards::wire::{ParsedHeader, parse_header, produce};

fn decode(c: &mut Criterion) {
    for version in [12i16, 13] {
        let frame = frame(version, &[7; 1024]);
        let mut body = frame.clone();
        assert!(matches!(parse_header(&mut body), Ok(ParsedHeader::Served(_))));
        c.bench_function(&format!("produce_decode/body/v{version}"), |b| {
            b.iter(|| produce::decode(version, black_box(&body)).expect("valid"));
        });
        c.bench_function(&format!("produce_decode/header_and_body/v{version}"), |b| {
            b.iter(|| {
                let mut frame = black_box(&frame).clone();
                let header = parse_header(&mut frame).expect("valid");
                (header, produce::decode(version, &frame).expect("valid"))
            });
        });
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
