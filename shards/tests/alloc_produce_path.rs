//! What the core allocates for a Produce request of one uncompressed batch, from its bytes to its settled append:
//! decode, `Shard::append`, `take_write`, `wrote`, in steady state. Goal: nothing for each record, at most two
//! allocations for each request.
//!
//! Its own test binary, because the counting allocator is global. Counts are kept per thread, so that the harness does
//! not disturb them. The write buffer belongs to the edge and is made outside of what is counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::{BufMut, Bytes, BytesMut};
use oncilla_shards::batch::{AppendRules, BatchBuilder, write_patched};
use oncilla_shards::ids::{LeaderEpoch, PartitionKey, TimestampMs, TopicId};
use oncilla_shards::partition::{LogRules, Partition, WaiterId, WritePlan};
use oncilla_shards::session::Sessions;
use oncilla_shards::shard::{Appended, Effect, Effects, Sent, Shard};
use oncilla_shards::wire::{ParsedHeader, parse_header, produce};

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

fn counted<T>(count: &mut usize, work: impl FnOnce() -> T) -> T {
    let before = ALLOCATIONS.with(Cell::get);
    let result = work();
    *count += ALLOCATIONS.with(Cell::get) - before;
    result
}

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);
const KEY: PartitionKey = PartitionKey { topic: TopicId(7), index: 0 };

/// The tail of this many bytes is full, and so evicts, before anything is counted.
const TAIL_BYTES: usize = 256 << 10;

fn shard() -> Shard {
    let rules = LogRules {
        append: AppendRules::default(),
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        flush_messages: 1,
        flush_ms: i64::MAX,
        deletes: true,
        compaction: None,
        producer_ids_max: 100,
    };
    let mut shard = Shard::new(TAIL_BYTES, Sessions::new(1, 1));
    shard.insert(KEY, Partition::empty(rules, LeaderEpoch(1)));
    shard
}

/// A Produce v13 frame as a connection cuts it from its read buffer.
fn frame(sequence: i32, records: usize, value_bytes: usize) -> Bytes {
    let value = vec![7; value_bytes];
    let start = BatchBuilder::new().producer(9, 0, sequence).base_timestamp(NOW);
    let batch = (0..records).fold(start, |batch, _| batch.record(None, Some(&value))).build();
    let mut buffer = BytesMut::with_capacity(batch.len() + 256);
    buffer.put_i16(0);
    buffer.put_i16(13);
    buffer.put_i32(1);
    buffer.put_i16(2);
    buffer.put_slice(b"me");
    buffer.put_slice(&[0, 0]);
    buffer.put_i16(-1);
    buffer.put_i32(30_000);
    buffer.put_u8(2);
    buffer.put_u128(7);
    buffer.put_u8(2);
    buffer.put_i32(0);
    let mut length = batch.len() as u32 + 1;
    while length >= 0x80 {
        buffer.put_u8(length as u8 | 0x80);
        length >>= 7;
    }
    buffer.put_u8(length as u8);
    buffer.put_slice(&batch);
    buffer.put_slice(&[0, 0, 0]);
    let whole = buffer.len();
    buffer.split_to(whole).freeze()
}

fn decode(frame: &Bytes) -> produce::ProduceRequest {
    let mut frame = frame.clone();
    let Ok(ParsedHeader::Served(header)) = parse_header(&mut frame) else { panic!("a valid header") };
    produce::decode(header.api_version, &frame).expect("a valid body")
}

fn stored(plan: &WritePlan) -> Bytes {
    let mut out = BytesMut::zeroed(plan.bytes);
    let mut at = 0;
    for (patch, sent) in &plan.batches {
        write_patched(sent, patch, &mut out[at..at + sent.len()]);
        at += sent.len();
    }
    out.freeze()
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Requests that one write makes durable.
    group: usize,
    records: usize,
    value_bytes: usize,
}

/// Allocations of `rounds` rounds, each of `group` requests that one write makes durable.
fn allocations(shard: &mut Shard, sequence: &mut i32, rounds: usize, load: Load) -> usize {
    let Load { group, records, value_bytes } = load;
    let mut count = 0;
    let mut effects = Effects::with_capacity(64);
    for _ in 0..rounds {
        let frames: Vec<Bytes> = (0..group)
            .map(|_| {
                let frame = frame(*sequence, records, value_bytes);
                *sequence += records as i32;
                frame
            })
            .collect();
        let plan = counted(&mut count, || {
            for (waiter, frame) in frames.iter().enumerate() {
                let request = decode(frame);
                let batch = request.partitions[0].records.as_ref().expect("records");
                let waiter = Some(WaiterId(waiter as u64));
                let answer = shard.append(&KEY, Sent::unchecked(batch, 13), NOW, waiter, &mut effects);
                assert!(matches!(answer, Appended::Waiting(placed) if !placed.duplicate), "{answer:?}");
            }
            shard.take_write(&KEY, NOW).expect("a write")
        });
        let bytes = stored(&plan);
        let buffer_bytes = bytes.len();
        counted(&mut count, || {
            shard.wrote(&KEY, bytes, buffer_bytes, &mut effects);
            drop(plan);
            assert!(shard.take_write(&KEY, NOW).is_none());
        });
        let settled = effects.iter().filter(|effect| matches!(effect, Effect::Settled(_, Ok(())))).count();
        assert_eq!(settled, group);
        effects.clear();
    }
    count
}

/// Allocations for each request, in hundredths, after the tail is full.
fn hundredths(load: Load) -> usize {
    let (mut shard, mut sequence) = (shard(), 0);
    let requests = 4096;
    allocations(&mut shard, &mut sequence, requests / load.group, load);
    allocations(&mut shard, &mut sequence, requests / load.group, load) * 100 / requests
}

fn load(group: usize, records: usize, value_bytes: usize) -> Load {
    Load { group, records, value_bytes }
}

/// A request whose write is its own allocates nothing but its share of a block of the tail cache (two allocations for
/// 64 KiB of log); writes of more than four requests spill the lists of the plan and of the answers.
#[test]
fn a_request_of_one_batch_allocates_less_than_once() {
    for load in
        [load(1, 1, 100), load(1, 10, 100), load(1, 200, 100), load(3, 1, 100), load(5, 10, 100), load(32, 1, 9)]
    {
        let per_request = hundredths(load);
        println!("{load:?}: {per_request}/100 allocations a request");
        assert!(per_request <= 50, "{load:?}: {per_request}/100");
    }
    assert_eq!(hundredths(load(1, 1, 100)), 0, "one small request a write");
}

#[test]
fn records_allocate_nothing() {
    // As many bytes in one record as in a hundred, so that only the number of records differs.
    let length = frame(0, 100, 100).len();
    let value_bytes = (10_000..).find(|bytes| frame(0, 1, *bytes).len() >= length).expect("some length");
    let (one, hundred) = (hundredths(load(1, 1, value_bytes)), hundredths(load(1, 100, 100)));
    assert_eq!(one, hundred);
}

#[test]
fn the_counter_sees_what_is_allocated() {
    let mut count = 0;
    counted(&mut count, || drop(std::hint::black_box(Box::new(1))));
    assert_eq!(count, 1);
}
