//! The floors of a machine: a durable 4 KiB write in place, and a TCP round trip over the loopback.
//!
//! One thread, plain system calls, one operation at a time. The file is written once before it is measured, because a
//! durable write over written blocks costs about half of one that extends a file. Fails where the file system refuses
//! O_DIRECT.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

const BLOCK_BYTES: usize = 4096;
const FILE_BLOCKS: usize = 4096;
const MESSAGE_BYTES: usize = 64;
/// Operations before the first that counts.
const WARMUP_COUNT: u32 = 200;
const PERCENTILES: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

/// What one operation cost, in nanoseconds.
pub struct Row {
    name: &'static str,
    nanos: Histogram<u64>,
}

/// Measures every floor; `count` operations each.
pub fn measure(dir: &Path, count: u32) -> Result<Vec<Row>> {
    Ok(vec![
        Row { name: "durable 4 KiB write", nanos: durable_writes(dir, count)? },
        Row { name: "TCP round trip, 64 bytes", nanos: round_trips(count)? },
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

fn durable_writes(dir: &Path, count: u32) -> Result<Histogram<u64>> {
    let path = dir.join(format!("oncilla-perf-floor-{}", std::process::id()));
    let measured = write_blocks(&path, count);
    // The measurement's own fault is worth more than one of the cleaning up.
    let removed = std::fs::remove_file(&path);
    let nanos = measured.with_context(|| format!("durable writes to {}", path.display()))?;
    removed.with_context(|| format!("remove {}", path.display()))?;
    Ok(nanos)
}

fn write_blocks(path: &Path, count: u32) -> Result<Histogram<u64>> {
    zeroed(path)?;
    let flags = (rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC).bits();
    let file = OpenOptions::new().write(true).custom_flags(flags.cast_signed()).open(path)?;
    let mut block = Block::new();
    timed(count, |i| {
        block.as_mut()[..4].copy_from_slice(&i.to_le_bytes());
        let at = (i as usize % FILE_BLOCKS) * BLOCK_BYTES;
        Ok(file.write_all_at(block.as_mut(), at as u64)?)
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

fn round_trips(count: u32) -> Result<Histogram<u64>> {
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
    let nanos = timed(count, |_| {
        near.write_all(&message)?;
        Ok(near.read_exact(&mut message)?)
    })?;
    drop(near);
    echo.join().expect("the echo thread does not panic")?;
    Ok(nanos)
}

fn timed(count: u32, mut operation: impl FnMut(u32) -> Result<()>) -> Result<Histogram<u64>> {
    let mut nanos = Histogram::new(3)?;
    for i in 0..WARMUP_COUNT + count {
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
        assert_eq!(rows.iter().map(|r| r.nanos.len()).collect::<Vec<_>>(), [50, 50]);
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
