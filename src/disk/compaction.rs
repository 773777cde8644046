//! What compaction did to a partition, durable, and the exchange of segments for a cleaned one.
//!
//! Owner: the partition's shard. `compaction.json` holds how far the log is clean, where the leader epochs of cleaned
//! segments begin (their batches may be gone), and the exchange that is under way. An exchange goes like this:
//! 1. the cleaned segment is written and synced under its name with `.cleaned`, its indexes under their own names;
//! 2. `compaction.json` names it and its sources: from here on it counts, and where the clean ends with it, so does
//!    the end of the clean;
//! 3. it gets its name, and its sources are removed, both durably;
//! 4. the next write of `compaction.json` names no exchange, or another one.
//!
//! A crash before the second step leaves files that the next start removes; after it, the next start goes on with the
//! third, which may be repeated. Failure: a damaged `compaction.json` is an error, never an empty one, because without
//! it neither gaps nor what is superseded could be told from damage.

use std::fs;
use std::path::{Path, PathBuf};

use oncilla_shards::ids::{LeaderEpoch, Offset};
use oncilla_shards::partition::SegmentId;
use serde::{Deserialize, Serialize};

use super::layout::{CLEANED_SUFFIX, COMPACTION_NAME, SegmentFile, SegmentPaths, parse_segment_file};
use super::replace::{read_json_blocking, replace_json_blocking, sync_parent};
use super::{DiskError, context};

/// What `compaction.json` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Offset up to which a clean has gone through the log.
    pub cleaned_to: Offset,
    /// First offset of each leader epoch that begins in the cleaned part, oldest first.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// The exchange that is under way, or was the last one.
    pub exchange: Option<Exchange>,
}

/// A cleaned segment and what it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The cleaned segment.
    pub cleaned: SegmentId,
    /// The segments whose place it takes.
    pub sources: Vec<SegmentId>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    cleaned_to: Offset,
    epochs: Vec<(LeaderEpoch, Offset)>,
    exchange: Option<StoredExchange>,
}

#[derive(Serialize, Deserialize)]
struct StoredExchange {
    cleaned: String,
    sources: Vec<String>,
}

/// Path of a cleaned segment before it counts.
#[must_use]
pub fn unfinished_path(partition: &Path, cleaned: SegmentId) -> PathBuf {
    partition.join(format!("{}{CLEANED_SUFFIX}", cleaned.file(SegmentFile::Log)))
}

/// Makes `state` what counts, durably; blocks.
pub fn write_blocking(partition: &Path, state: &Compaction) -> Result<(), DiskError> {
    let log = |id: SegmentId| id.file(SegmentFile::Log);
    let exchange = state.exchange.as_ref().map(|exchange| StoredExchange {
        cleaned: log(exchange.cleaned),
        sources: exchange.sources.iter().copied().map(log).collect(),
    });
    let stored = Stored { cleaned_to: state.cleaned_to, epochs: state.epochs.clone(), exchange };
    replace_json_blocking(&partition.join(COMPACTION_NAME), &stored)
}

/// What counts, as it was written last; blocks.
pub fn read_blocking(partition: &Path) -> Result<Compaction, DiskError> {
    let path = partition.join(COMPACTION_NAME);
    let Some(stored) = read_json_blocking::<Stored>(&path)? else { return Ok(Compaction::default()) };
    let invalid = |what: &str| DiskError::invalid("read", &path, what.to_owned());
    let id = |name: &String| match parse_segment_file(name) {
        Some((id, SegmentFile::Log)) => Ok(id),
        _ => Err(invalid("a name is not that of a segment")),
    };
    if stored.cleaned_to.0 < 0 || !stored.epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1) {
        return Err(invalid("offsets or leader epochs do not ascend"));
    }
    let exchange = match &stored.exchange {
        None => None,
        Some(stored) => {
            let sources = stored.sources.iter().map(id).collect::<Result<Vec<_>, _>>()?;
            let cleaned = id(&stored.cleaned)?;
            if cleaned.generation == 0 || sources.contains(&cleaned) {
                return Err(invalid("a segment would take its own place"));
            }
            Some(Exchange { cleaned, sources })
        }
    };
    Ok(Compaction { cleaned_to: stored.cleaned_to, epochs: stored.epochs, exchange })
}

/// Gives the cleaned segment its name, durably; again without harm. Blocks.
pub fn put_in_place_blocking(partition: &Path, exchange: &Exchange) -> Result<(), DiskError> {
    let unfinished = unfinished_path(partition, exchange.cleaned);
    let path = exchange.cleaned.path(partition, SegmentFile::Log);
    match fs::rename(&unfinished, &path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        renamed => context("rename", &unfinished, renamed)?,
    }
    sync_parent(&path)
}

/// Removes the sources, durably; again without harm. Blocks.
pub fn remove_sources_blocking(partition: &Path, exchange: &Exchange) -> Result<(), DiskError> {
    for source in &exchange.sources {
        // The log goes first: indexes without one are what a start removes.
        for kind in SegmentFile::ALL {
            remove_if_there(&source.path(partition, kind))?;
        }
    }
    sync_parent(&partition.join(COMPACTION_NAME))
}

/// Finishes the exchange that a crash interrupted, or removes what never counted; gives what counts. Blocks.
pub fn recover_blocking(partition: &Path) -> Result<Compaction, DiskError> {
    let state = read_blocking(partition)?;
    if let Some(exchange) = &state.exchange {
        put_in_place_blocking(partition, exchange)?;
        // Where it is gone again the log start has passed it, and with it its sources.
        if exchange.cleaned.path(partition, SegmentFile::Log).exists() {
            remove_sources_blocking(partition, exchange)?;
        }
    }
    for entry in context("list", partition, fs::read_dir(partition))? {
        let entry = context("list", partition, entry)?;
        if entry.file_name().to_string_lossy().ends_with(CLEANED_SUFFIX) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(state)
}

fn remove_if_there(path: &Path) -> Result<(), DiskError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(DiskError::new("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Where each leader epoch begins, oldest first, from what compaction kept and from the segments' names.
#[must_use]
pub fn epoch_history(
    kept: &[(LeaderEpoch, Offset)],
    segments: &[SegmentId],
    log_end: Offset,
) -> Vec<(LeaderEpoch, Offset)> {
    // An empty log has no history: its records are gone, whoever wrote them.
    let Some(first) = segments.first().map(|segment| segment.base) else { return Vec::new() };
    let mut history: Vec<_> = kept.iter().copied().filter(|(_, start)| *start < log_end).collect();
    for segment in segments {
        if history.last().is_none_or(|(epoch, start)| *epoch < segment.epoch && *start < segment.base) {
            history.push((segment.epoch, segment.base));
        }
    }
    // What ended before the first segment is no part of this log any more.
    let gone = history.windows(2).take_while(|pair| pair[1].1 <= first).count();
    history.drain(..gone);
    if let Some((_, start)) = history.first_mut() {
        *start = first.max(*start);
    }
    history
}

#[cfg(test)]
#[path = "compaction_tests.rs"]
mod tests;
