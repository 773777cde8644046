//! Header and body of a Produce request with one partition and one batch. Goal: 150 ns, no allocation (the latter is
//! a test, `alloc_produce_decode`).

use std::hint::black_box;

use bytes::{BufMut, Bytes, BytesMut};
use criterion::{Criterion, criterion_group, criterion_main};
use oncilla_shards::wire::{ParsedHeader, parse_header, produce};

/// One batch of about 1 KiB for one partition, as a connection cuts the frame from its read buffer.
fn frame(version: i16) -> Bytes {
    let mut buffer = BytesMut::with_capacity(4096);
    buffer.put_i16(0);
    buffer.put_i16(version);
    buffer.put_i32(1);
    buffer.put_i16(10);
    buffer.put_slice(b"producer-1");
    buffer.put_slice(&[0, 0]);
    buffer.put_i16(-1);
    buffer.put_i32(30_000);
    buffer.put_u8(2);
    if version >= 13 {
        buffer.put_u128(7);
    } else {
        buffer.put_slice(b"\x0borders-eu1");
    }
    buffer.put_u8(2);
    buffer.put_i32(3);
    buffer.put_slice(&[0x81, 0x08]);
    buffer.put_bytes(7, 1024);
    buffer.put_slice(&[0, 0, 0]);
    let length = buffer.len();
    buffer.split_to(length).freeze()
}

fn decode(c: &mut Criterion) {
    for version in [12i16, 13] {
        let frame = frame(version);
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
