//! What a start would know of producers: the newest snapshot that reads, and the log behind it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use oncilla_shards::batch::ControlRecord;
use oncilla_shards::ids::Offset;
use oncilla_shards::producers::{ProducerView, Producers};
use serde_json::json;

use super::log::time;
use super::{Args, segment, segments};
use crate::cli::output::{self, Format};
use crate::disk::layout::parse_snapshot_name;

/// Prints the producers of every partition.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut partitions: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for path in &args.paths {
        for file in segments(path)? {
            partitions.entry(directory_of(&file).to_path_buf()).or_default().push(file);
        }
    }
    for (dir, logs) in &partitions {
        let (producers, snapshot) = rebuild(dir, logs)?;
        print(args.format, dir, &producers, snapshot.as_deref())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn directory_of(file: &Path) -> &Path {
    // The parent of a bare file name is an empty path, which cannot be listed.
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn rebuild(dir: &Path, logs: &[PathBuf]) -> anyhow::Result<(Producers, Option<PathBuf>)> {
    let (mut producers, snapshot) = newest_snapshot(dir)?;
    let covered = snapshot.as_ref().map_or(Offset(0), |(offset, _)| *offset);
    for log in logs {
        segment::walk(log, |_, header, batch| {
            if header.base_offset < covered {
                return Ok(());
            }
            let control = header.attributes.is_control().then(|| ControlRecord::of_batch(batch)).flatten();
            producers.replay(header, control);
            Ok(())
        })
        .with_context(|| format!("segment {}", log.display()))?;
    }
    Ok((producers, snapshot.map(|(_, path)| path)))
}

fn newest_snapshot(dir: &Path) -> anyhow::Result<(Producers, Option<(Offset, PathBuf)>)> {
    let shown = dir.display();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("directory {shown}"))? {
        let entry = entry.with_context(|| format!("directory {shown}"))?;
        if let Some(offset) = entry.file_name().to_str().and_then(parse_snapshot_name) {
            found.push((offset, entry.path()));
        }
    }
    found.sort();
    for (offset, path) in found.into_iter().rev() {
        let bytes = std::fs::read(&path).with_context(|| format!("snapshot {}", path.display()))?;
        match Producers::restore(&bytes) {
            Ok(producers) => return Ok((producers, Some((offset, path)))),
            Err(error) => eprintln!("{}: {error}; left out", path.display()),
        }
    }
    Ok((Producers::new(), None))
}

fn print(format: Format, dir: &Path, producers: &Producers, snapshot: Option<&Path>) -> anyhow::Result<()> {
    if format == Format::Json {
        for view in producers.describe() {
            output::line(as_json(dir, &view))?;
        }
        return Ok(());
    }
    let from = snapshot.map_or("log alone".into(), |path| format!("log behind {}", path.display()));
    output::line(format!("{} (from the {from})", dir.display()))?;
    let row = |view: ProducerView| {
        [
            view.producer_id.to_string(),
            view.epoch.to_string(),
            view.last_sequence.to_string(),
            time(view.last_timestamp.0),
            view.coordinator_epoch.to_string(),
            view.txn_start_offset.map_or(String::new(), |offset| offset.to_string()),
        ]
    };
    let names = ["producer", "epoch", "last seq", "last time", "coordinator epoch", "txn from"];
    output::table(names, producers.describe().map(row))?;
    Ok(())
}

fn as_json(dir: &Path, view: &ProducerView) -> serde_json::Value {
    json!({
        "partition": dir.display().to_string(),
        "producer_id": view.producer_id,
        "epoch": view.epoch,
        "last_sequence": view.last_sequence,
        "last_timestamp": view.last_timestamp,
        "coordinator_epoch": view.coordinator_epoch,
        "txn_start_offset": view.txn_start_offset,
    })
}

#[cfg(test)]
mod tests {
    use oncilla_shards::batch::BatchBuilder;
    use oncilla_shards::ids::{Offset, Sequence};

    use super::*;

    #[test]
    fn a_snapshot_that_does_not_read_is_left_out_and_the_log_says_it_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("00000000000000000000.1.log");
        let mut bytes = BatchBuilder::new().producer(7, 0, 0).records(3).build();
        bytes.extend(BatchBuilder::new().base_offset(Offset(3)).producer(7, 0, 3).records(2).build());
        std::fs::write(&log, &bytes).expect("written");
        let (from_log, none) = rebuild(dir.path(), std::slice::from_ref(&log)).expect("read");
        assert_eq!(none, None);
        std::fs::write(dir.path().join("00000000000000000005.snapshot"), "damaged").expect("written");
        std::fs::write(dir.path().join("00000000000000000003.snapshot"), snapshot_of(&bytes)).expect("written");
        let (both, some) = rebuild(dir.path(), &[log]).expect("read");
        assert_eq!(some, Some(dir.path().join("00000000000000000003.snapshot")));
        for producers in [from_log, both] {
            let views: Vec<_> = producers.describe().collect();
            assert_eq!(views.len(), 1);
            assert_eq!(views[0].last_sequence, Sequence(4));
        }
    }

    #[test]
    fn the_log_below_the_snapshot_brings_no_forgotten_producer_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("00000000000000000000.1.log");
        std::fs::write(&log, BatchBuilder::new().producer(7, 0, 0).records(3).build()).expect("written");
        let forgotten = Producers::new().snapshot();
        std::fs::write(dir.path().join("00000000000000000003.snapshot"), forgotten).expect("written");
        let (producers, _) = rebuild(dir.path(), &[log]).expect("read");
        assert_eq!(producers.describe().count(), 0);
    }

    #[test]
    fn a_segment_named_without_a_directory_lies_in_this_one() {
        assert_eq!(directory_of(Path::new("00000000000000000000.1.log")), Path::new("."));
        assert_eq!(directory_of(Path::new("0/00000000000000000000.1.log")), Path::new("0"));
    }

    /// The snapshot after the first batch.
    fn snapshot_of(bytes: &[u8]) -> Vec<u8> {
        let (_, header) = oncilla_shards::batch::scan::scan(bytes).next().expect("a batch");
        let mut producers = Producers::new();
        producers.replay(&header, None);
        producers.snapshot()
    }
}
