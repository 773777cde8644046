//! The floors of a machine: a durable 4 KiB write in place, and a TCP round trip over the loopback; each as fast as it
//! goes, and at a pace.
//!
//! One thread, plain system calls, one operation at a time. The files are written once before they are measured,
//! because a durable write over written blocks costs about half of one that extends a file. Fails where the file system
//! refuses O_DIRECT.
//!
//! A load of 1,000 records a second has to be held against the pace of [`PACE`]: the processor sleeps between two of
//! them and has to wake up, and some file systems write a file's inode with its bytes when the clock has ticked since
//! its last write (ext4 without a journal: 45 us behind one of 60). There a write took 164 us instead of 98, and a
//! round trip 28 instead of 58.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

const BLOCK_BYTES: usize = 4096;
const FILE_BLOCKS: usize = 4096;
const MESSAGE_BYTES: usize = 64;
/// Operations before the first that counts.
const WARMUP_COUNT: u32 = 200;
/// Files that are written in turn at a pace.
const PACED_FILES: u32 = 4;
/// Time from one operation to the next at a pace.
const PACE: Duration = Duration::from_millis(1);
/// One operation at a pace for so many as fast as they go, so that neither takes much longer.
const PACED_SHARE: u32 = 4;
const PERCENTILES: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

/// What one operation cost, in nanoseconds.
pub struct Row {
    name: &'static str,
    nanos: Histogram<u64>,
}

/// How often an operation is done.
#[derive(Clone, Copy)]
struct Times {
    count: u32,
    is_paced: bool,
}

/// Measures every floor: `count` operations each as fast as they go, and fewer at a pace.
pub fn measure(dir: &Path, count: u32) -> Result<Vec<Row>> {
    let fast = Times { count, is_paced: false };
    let paced = Times { count: count.div_ceil(PACED_SHARE), is_paced: true };
    Ok(vec![
        Row { name: "durable 4 KiB write", nanos: durable_writes(dir, 1, fast)? },
        Row { name: "TCP round trip, 64 bytes", nanos: round_trips(fast)? },
        Row { name: "durable 4 KiB write, one a ms to 4 files", nanos: durable_writes(dir, PACED_FILES, paced)? },
        Row { name: "TCP round trip, 64 bytes, one a ms", nanos: round_trips(paced)? },
    ])
}

/// A block in memory that O_DIRECT accepts: its address is a multiple of its size.
struct Block {
    bytes: *mut u8,
}

impl Block {
    const LAYOUT: Layout = match Layout::from_size_align(BLOCK_BYTES, BLOCK_BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("the size of a block is a power of two"),
    };

    fn new() -> Self {
        // SAFETY: the layout has a size above zero.
        let bytes = unsafe { alloc_zeroed(Self::LAYOUT) };
        assert!(!bytes.is_null(), "no memory for a block");
        Self { bytes }
    }

    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the allocation is BLOCK_BYTES long, zeroed, and only reachable through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.bytes, BLOCK_BYTES) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, freed once.
        unsafe { dealloc(self.bytes, Self::LAYOUT) }
    }
}

fn durable_writes(dir: &Path, files: u32, times: Times) -> Result<Histogram<u64>> {
    let path = |file: u32| dir.join(format!("oncilla-perf-floor-{}-{file}", std::process::id()));
    let paths: Vec<PathBuf> = (0..files).map(path).collect();
    let measured = write_blocks(&paths, times);
    // The measurement's own fault is worth more than one of the cleaning up.
    let removed: Vec<_> = paths.iter().map(|path| (path, std::fs::remove_file(path))).collect();
    let nanos = measured.with_context(|| format!("durable writes to {}", paths[0].display()))?;
    for (path, removed) in removed {
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(nanos)
}

/// Writes the blocks of the files, one file after the other.
fn write_blocks(paths: &[PathBuf], times: Times) -> Result<Histogram<u64>> {
    let flags = (rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC).bits();
    let mut files = Vec::new();
    for path in paths {
        zeroed(path)?;
        files.push(OpenOptions::new().write(true).custom_flags(flags.cast_signed()).open(path)?);
    }
    let mut block = Block::new();
    timed(times, |i| {
        let i = i as usize;
        block.as_mut()[..8].copy_from_slice(&i.to_le_bytes());
        let at = (i / files.len() % FILE_BLOCKS) * BLOCK_BYTES;
        Ok(files[i % files.len()].write_all_at(block.as_mut(), at as u64)?)
    })
}

fn zeroed(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    let zeros = vec![0; BLOCK_BYTES * 256];
    for _ in 0..FILE_BLOCKS / 256 {
        file.write_all(&zeros)?;
    }
    Ok(file.sync_all()?)
}

fn round_trips(times: Times) -> Result<Histogram<u64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = thread::spawn(move || -> std::io::Result<()> {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut message = [0; MESSAGE_BYTES];
        // Ends when the other side closes.
        while peer.read_exact(&mut message).is_ok() {
            peer.write_all(&message)?;
        }
        Ok(())
    });
    let mut near = TcpStream::connect(address)?;
    near.set_nodelay(true)?;
    let mut message = [0; MESSAGE_BYTES];
    let nanos = timed(times, |_| {
        near.write_all(&message)?;
        Ok(near.read_exact(&mut message)?)
    })?;
    drop(near);
    echo.join().expect("the echo thread does not panic")?;
    Ok(nanos)
}

fn timed(times: Times, mut operation: impl FnMut(u32) -> Result<()>) -> Result<Histogram<u64>> {
    let mut nanos = Histogram::new(3)?;
    let start = Instant::now();
    for i in 0..WARMUP_COUNT + times.count {
        if times.is_paced {
            thread::sleep((PACE * i).saturating_sub(start.elapsed()));
        }
        let began = Instant::now();
        operation(i)?;
        let spent = began.elapsed();
        if i >= WARMUP_COUNT {
            nanos.record(u64::try_from(spent.as_nanos())?)?;
        }
    }
    Ok(nanos)
}

fn micros(row: &Row, percentile: f64) -> f64 {
    row.nanos.value_at_percentile(percentile) as f64 / 1000.0
}

/// A Markdown table in microseconds.
pub fn as_table(rows: &[Row]) -> String {
    let mut out = String::from("| floor (us) | n |");
    for (name, _) in PERCENTILES {
        let _ = write!(out, " {name} |");
    }
    out.push_str("\n|--|--|--|--|--|--|--|\n");
    for row in rows {
        let _ = write!(out, "| {} | {} |", row.name, row.nanos.len());
        for (_, percentile) in PERCENTILES {
            let _ = write!(out, " {:.1} |", micros(row, percentile));
        }
        out.push('\n');
    }
    out
}

/// The same as JSON: name to percentile to microseconds.
pub fn as_json(rows: &[Row]) -> serde_json::Value {
    let row = |row: &Row| {
        let cells = PERCENTILES.iter().map(|(name, percentile)| ((*name).to_owned(), micros(row, *percentile).into()));
        (row.name.to_owned(), serde_json::Value::Object(cells.collect()))
    };
    serde_json::Value::Object(rows.iter().map(row).collect())
}

/// The same in nanoseconds, with the percentile in the name, for the description of a machine.
pub fn as_nanos(rows: &[Row]) -> Vec<(String, f64)> {
    let cells = |row: &Row| {
        let name = row.name;
        PERCENTILES.map(|(percentile, at)| (format!("{name} {percentile}"), row.nanos.value_at_percentile(at) as f64))
    };
    rows.iter().flat_map(cells).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_measured_and_shown() {
        let rows = measure(Path::new(env!("CARGO_MANIFEST_DIR")), 50).unwrap();
        assert_eq!(rows.iter().map(|r| r.nanos.len()).collect::<Vec<_>>(), [50, 50, 13, 13]);
        assert!(rows.iter().all(|r| micros(r, 50.0) > 0.0 && micros(r, 50.0) <= micros(r, 100.0)));
        let json = as_json(&rows);
        assert!(json["durable 4 KiB write"]["p99.9"].as_f64().unwrap() > 0.0, "{json}");
        assert_eq!(as_table(&rows).lines().count(), 2 + rows.len());
        let (name, nanos) = &as_nanos(&rows)[3];
        assert_eq!(name, "durable 4 KiB write p99.9");
        assert!((nanos / 1000.0 - micros(&rows[0], 99.9)).abs() < 1e-6, "{nanos}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = measure(Path::new("/no/such/directory"), 1).err().expect("it cannot be written");
        assert!(format!("{error:#}").contains("/no/such/directory"), "{error:#}");
    }
}
