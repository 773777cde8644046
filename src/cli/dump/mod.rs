//! `oncilla dump log`, `oncilla dump producers` and `oncilla dump groups`: read a data directory offline and change
//! nothing in it.

mod groups;
mod log;
mod producers;
mod segment;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

use super::output::Format;
use crate::disk::layout::{SegmentFile, parse_segment_file};

/// What to dump.
#[derive(Debug, Subcommand)]
pub enum DumpCommand {
    /// Print the record batches of segments; exits with 1 when one is damaged
    Log(Args),
    /// Print what partitions know of idempotent producers, from snapshots and log
    Producers(Args),
    /// Print what groups have committed, or all that is stored of groups; exits with 1 when that is damaged
    Groups(groups::Args),
}

/// What to read and how to print it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Segments, or directories with segments in them or below
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Runs it.
pub fn run(command: &DumpCommand) -> anyhow::Result<ExitCode> {
    match command {
        DumpCommand::Log(args) => log::run(args),
        DumpCommand::Producers(args) => producers::run(args),
        DumpCommand::Groups(args) => groups::run(args),
    }
}

/// Every segment at or below the path, by directory and then by offset. A file is taken whatever its name is.
fn segments(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::metadata(path).with_context(|| path.display().to_string())?;
    let mut found = Vec::new();
    collect(path, &mut found, true)?;
    found.sort();
    if found.is_empty() {
        eprintln!("{}: no segments", path.display());
    }
    Ok(found)
}

fn collect(path: &Path, found: &mut Vec<PathBuf>, given: bool) -> anyhow::Result<()> {
    let shown = path.display();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).with_context(|| format!("directory {shown}"))? {
            collect(&entry.with_context(|| format!("directory {shown}"))?.path(), found, false)?;
        }
    } else if given || is_log(path) {
        found.push(path.to_path_buf());
    }
    Ok(())
}

/// Whether the name is that of a segment, here or in Kafka.
fn is_log(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    let kafkas = |stem: &str| stem.len() == 20 && stem.bytes().all(|c| c.is_ascii_digit());
    matches!(parse_segment_file(name), Some((_, SegmentFile::Log))) || name.strip_suffix(".log").is_some_and(kafkas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = segments(&dir.path().join("nothere")).expect_err("nothing there");
        assert!(format!("{error:#}").contains("nothere: No such file"), "{error:#}");
        assert!(segments(dir.path()).expect("read").is_empty());
    }

    #[test]
    fn segments_are_found_below_a_directory_and_nothing_else_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = dir.path().join("topics/t.x/0");
        std::fs::create_dir_all(&partition).expect("made");
        let ours = parse_segment_file("00000000000000000010.3.log");
        assert!(ours.is_some(), "the layout's own name");
        for name in ["00000000000000000010.3.log", "00000000000000000000.log", "x.log", "00000000000000000000.index"] {
            std::fs::write(partition.join(name), "").expect("written");
        }
        let found = segments(dir.path()).expect("read");
        let names: Vec<_> = found.iter().map(|path| path.file_name().expect("a name").to_string_lossy()).collect();
        assert_eq!(names, ["00000000000000000000.log", "00000000000000000010.3.log"]);
        assert_eq!(segments(&partition.join("x.log")).expect("given").len(), 1, "a file that is named is read");
    }
}
