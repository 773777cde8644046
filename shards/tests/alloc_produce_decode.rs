//! Decoding a Produce request of one topic with one partition allocates nothing; neither does its header. Hostile
//! counts allocate nothing either, whatever they claim (case 117).
//!
//! Its own test binary, because the counting allocator is global. Counts are kept per thread, so that the harness and
//! other tests do not disturb them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::{BufMut, Bytes, BytesMut};
use oncilla_shards::wire::{ParsedHeader, fetch, parse_header, produce, schema};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches a thread-local cell that needs no
// allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises about the layout are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: memory came from the system allocator with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = work();
    (ALLOCATIONS.with(Cell::get) - before, result)
}

/// A frame as a connection cuts it from its read buffer: so many topics of one partition.
fn frame(version: i16, topics: u8) -> Bytes {
    frame_of(version, topics, 1)
}

fn frame_of(version: i16, topics: u8, partitions: u8) -> Bytes {
    let mut buffer = BytesMut::with_capacity(4096);
    buffer.put_i16(0);
    buffer.put_i16(version);
    buffer.put_i32(1);
    buffer.put_i16(2);
    buffer.put_slice(b"me");
    buffer.put_u8(0);
    buffer.put_slice(&[4, b't', b'i', b'd']);
    buffer.put_i16(-1);
    buffer.put_i32(30_000);
    buffer.put_u8(topics + 1);
    for _ in 0..topics {
        if version >= 13 {
            buffer.put_u128(7);
        } else {
            buffer.put_slice(&[6, b't', b'o', b'p', b'i', b'c']);
        }
        buffer.put_u8(partitions + 1);
        for index in 0..partitions {
            buffer.put_i32(i32::from(index));
            buffer.put_u8(101);
            buffer.put_bytes(7, 100);
            buffer.put_u8(0);
        }
        buffer.put_u8(0);
    }
    buffer.put_u8(0);
    let length = buffer.len();
    buffer.split_to(length).freeze()
}

fn decode(mut frame: Bytes) -> produce::ProduceRequest {
    let Ok(ParsedHeader::Served(header)) = parse_header(&mut frame) else { panic!("a valid header") };
    produce::decode(header.api_version, &frame).expect("a valid body")
}

#[test]
fn decoding_one_partition_allocates_nothing() {
    for version in [9, 12, 13] {
        let frame = frame(version, 1);
        let (count, request) = allocations(|| decode(frame));
        assert_eq!(request.partitions[0].records.as_ref().map(Bytes::len), Some(100));
        assert_eq!(count, 0, "version {version}");
        assert_eq!(allocations(move || drop(request)).0, 0);
    }
}

#[test]
fn the_counter_counts_more_partitions_than_fit_inline() {
    let frame = frame(12, 2);
    let (count, request) = allocations(|| decode(frame));
    assert_eq!(request.partitions.len(), 2);
    assert!(count > 0, "two partitions do not fit inline, so the counter must have seen something");
}

#[test]
fn the_partitions_of_a_topic_get_their_memory_at_once() {
    let frame = frame_of(13, 1, 16);
    let (count, request) = allocations(|| decode(frame));
    assert_eq!((count, request.partitions.len()), (1, 16));
}

#[test]
fn case_117_counts_that_the_frame_cannot_hold_allocate_nothing() {
    let body = |head: &[u8], count: &[u8]| {
        let mut buffer = BytesMut::with_capacity(256);
        buffer.put_slice(head);
        buffer.put_slice(count);
        buffer.put_bytes(0, 100);
        buffer.split().freeze()
    };
    let (plain, compact) = ([0x7f, 0xff, 0xff, 0xff], [0xff, 0xff, 0xff, 0xff, 0x0f]);
    // Null transactional id, acks and timeout; then the count of topics.
    let produce_plain = body(&[0xff, 0xff, 0, 1, 0, 0, 0, 0], &plain);
    let produce_compact = body(&[0, 0, 1, 0, 0, 0, 0], &compact);
    // Wait, bytes, isolation level and session; then the count of topics.
    let fetch_plain = body(&[0; 17], &plain);
    let fetch_compact = body(&[0; 21], &compact);
    let metadata = body(&[], &compact);
    let (count, failed) = allocations(|| {
        [
            produce::decode(8, &produce_plain).is_err(),
            produce::decode(13, &produce_compact).is_err(),
            fetch::decode(4, &fetch_plain).is_err(),
            fetch::decode(18, &fetch_compact).is_err(),
            schema::preflight(3, 13, &metadata).is_err(),
        ]
    });
    assert_eq!(failed, [true; 5]);
    assert_eq!(count, 0);
}
