//! What a request allocates in the core, in its steady state. `cargo run -p oncilla-paths --bin allocations` prints the
//! table.
//!
//! Goal of Produce: nothing for each record, at most two allocations for each request. The others have bounds that a
//! change has to raise knowingly. Its own test binary, because the counting allocator is global.

use bytes::Bytes;
use oncilla_paths::allocations::{Counting, Hundredths, Table, counted, of};
use oncilla_paths::native_send::NativeSend;
use oncilla_paths::produce::{Load, Produce, VERSION, batch, frame};
use oncilla_paths::{NAMES, visit};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of one answer of Produce: the buffer, and what makes it shared.
const ANSWER: usize = 200;

fn of_path(name: &str) -> Hundredths {
    let mut table = Table::default();
    assert!(visit(name, &mut table), "{name}: no such path");
    table.0[0].1
}

/// Allocations of one request of Produce.
fn of_produce(group: usize, records: usize, value_bytes: usize) -> usize {
    of(&mut Produce::new(Load { records, value_bytes }, group)).0 / group
}

/// Beside the answer there is only the request's share of a block of the tail cache: two allocations for 64 KiB of log.
/// Writes of more than four requests spill the lists of the plan and of the answers.
#[test]
fn a_produce_of_one_batch_allocates_its_answer_and_less_than_once_beside_it() {
    for (group, records, value_bytes) in
        [(1, 1, 100), (1, 10, 100), (1, 200, 100), (3, 1, 100), (5, 10, 100), (32, 1, 9), (1, 1, 1024)]
    {
        let found = of_produce(group, records, value_bytes);
        println!("{group} requests of {records} records of {value_bytes} bytes a write: {found}/100 a request");
        assert!((ANSWER..=ANSWER + 50).contains(&found), "{group} of {records} of {value_bytes} bytes: {found}/100");
    }
    assert_eq!(of_produce(1, 1, 100), ANSWER, "one small request a write");
}

#[test]
fn records_allocate_nothing() {
    // As many bytes in one record as in a hundred, so that only the number of records differs.
    let length = |records, value_bytes| frame(VERSION, &batch(0, Load { records, value_bytes })).len();
    let value_bytes = (10_000..).find(|bytes| length(1, *bytes) >= length(100, 100)).expect("some length");
    assert_eq!(of_produce(1, 1, value_bytes), of_produce(1, 100, 100));
}

#[test]
fn a_fetch_of_ten_partitions_allocates_at_most_7_times() {
    assert!(of_path("fetch") <= Hundredths(700), "{}", of_path("fetch"));
}

#[test]
fn the_commit_of_a_transaction_over_four_partitions_allocates_at_most_8_times() {
    assert!(of_path("end_txn") <= Hundredths(800), "{}", of_path("end_txn"));
}

#[test]
fn an_offset_commit_of_one_partition_allocates_at_most_12_times() {
    assert!(of_path("offset_commit") <= Hundredths(1200), "{}", of_path("offset_commit"));
}

/// A record allocates nothing: what there is are lists of its batch, its request and its answer.
#[test]
fn fifteen_records_of_the_native_producer_allocate_as_much_as_one_batch() {
    assert!(of_path("native_send") <= Hundredths(100), "{}", of_path("native_send"));
    let of_batch = of(&mut NativeSend::new(16 << 10)).0;
    let of_small = of(&mut NativeSend::new(100)).0;
    // 120 of the small ones are a batch; its list of records grows twice.
    assert!(of_small * 120 <= of_batch + 1000, "{of_small}/100 a small record, {of_batch}/100 a batch");
}

#[test]
fn every_path_is_in_the_table() {
    for name in NAMES {
        assert!(of_path(name) > Hundredths(0), "{name}: every answer is a buffer at least");
    }
    assert!(!visit("nothing", &mut Table::default()));
}

#[test]
fn the_counter_sees_what_is_allocated_and_what_grows() {
    assert_eq!(counted(|| drop(std::hint::black_box(Box::new(1)))).0, 1);
    let grow = || {
        let mut list = std::hint::black_box(Vec::with_capacity(1));
        list.extend([1, 2]);
        list
    };
    assert_eq!(counted(grow).0, 2);
    assert_eq!(counted(|| Bytes::from_static(b"nothing")).0, 0);
}
