//! Which way of writing a segment is quicker on this machine: one durable 4 KiB write, alone and to many files at once.
//!
//! A harness of its own, because what is asked is a distribution and a rate under concurrency. Run it with
//! `cargo bench --bench disk_modes`, on the disk in question through `TMPDIR`; `src/disk/segment_writer.rs` has the
//! figures that chose the default.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use oncilla::disk::segment_writer::{SegmentOptions, SegmentWriter};
use oncilla::rt::file::{FileMode, blocking, spawn_background, test_block_on};
use oncilla_shards::ids::{LeaderEpoch, Offset};

const WRITE_BYTES: usize = 4096;
const RUN: Duration = Duration::from_secs(3);
/// Appends of each file before the clock starts: they open its zeroed window.
const WARM_UP: usize = 40;

#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    mode: FileMode,
    durable: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "direct, O_DSYNC", mode: FileMode::Direct, durable: true },
    Way { name: "direct + fdatasync", mode: FileMode::Direct, durable: false },
    Way { name: "buffered, O_DSYNC", mode: FileMode::Buffered, durable: true },
    Way { name: "buffered + fdatasync", mode: FileMode::Buffered, durable: false },
];

fn main() {
    // `cargo test --benches` runs every bench with this flag, to see that it still works.
    let run = if std::env::args().any(|arg| arg == "--test") { Duration::from_millis(50) } else { RUN };
    println!("{:<22} {:>5} {:>9} {:>9} {:>9} {:>10}", "way", "files", "p50 us", "p99 us", "p99.9 us", "writes/s");
    for files in [1, 16, 64] {
        for way in WAYS {
            let dir = tempfile::tempdir().expect("a directory to write in");
            let times = test_block_on(measure(dir.path(), way, files, run));
            let us = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
            let rate = times.len() as f64 / run.as_secs_f64();
            println!("{:<22} {files:>5} {:>9.0} {:>9.0} {:>9.0} {rate:>10.0}", way.name, us(0.5), us(0.99), us(0.999));
        }
    }
}

/// Times of all appends of `files` writers that each append as fast as they can, in nanoseconds.
async fn measure(dir: &Path, way: Way, files: i64, run: Duration) -> Histogram<u64> {
    let options = SegmentOptions { mode: way.mode, durable: way.durable, segment_bytes: 1 << 30, faults: None };
    let times = Rc::new(RefCell::new(Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("a minute in ns")));
    let done = Rc::new(RefCell::new(0));
    let mut writers = Vec::new();
    for file in 0..files {
        let mut writer =
            SegmentWriter::create(dir, Offset(file), LeaderEpoch(1), options.clone()).await.expect("a segment");
        for _ in 0..WARM_UP {
            append(&mut writer, way).await;
        }
        writers.push(writer);
    }
    let end = Instant::now() + run;
    for mut writer in writers {
        let (times, done) = (times.clone(), done.clone());
        spawn_background(async move {
            while Instant::now() < end {
                let start = Instant::now();
                append(&mut writer, way).await;
                times.borrow_mut().saturating_record(start.elapsed().as_nanos() as u64);
            }
            *done.borrow_mut() += 1;
        });
    }
    while *done.borrow() < files {
        blocking(|| std::thread::sleep(Duration::from_millis(20))).await;
    }
    times.borrow().clone()
}

async fn append(writer: &mut SegmentWriter, way: Way) {
    writer.append_with(WRITE_BYTES, |out| out.fill(7)).await.expect("the disk takes it");
    if !way.durable {
        writer.sync().await.expect("the disk takes it");
    }
}
