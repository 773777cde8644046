//! The files of slots: `slot-NN.json` is a slot's checkpoint, `slot-NN.<boot epoch>.<roll>.journal` holds the lines
//! since.
//!
//! Owner: the slot's shard; at start, before anything is served, its thread, which blocks. A start never appends to a
//! journal it finds: it recovers it, and the slot's first write creates one under the epoch of this start. A
//! checkpoint is durable before the journals that it makes needless go, so at any crash one of the two holds an entry.
//! Recovery cuts journals, durably, where their whole lines end, so that what one start takes for the end of a journal
//! is the end for every later one; of bytes cut off that are not zero a copy stays as `.damaged`. It makes what it has
//! read durable before anyone sees it: a killed broker's last write may be in a cache only.
//! Failure: a damaged checkpoint, or journals that do not continue it, refuse the start with the path and what to do.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncilla_shards::ids::{LeaderEpoch, SlotId};
use oncilla_shards::slot::rebuild::{JournalEnd, Rebuild};
use oncilla_shards::slot::{Journal, Position, checkpoint};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::append_file::{AppendFile, AppendOptions};
use super::layout::{DAMAGED_SUFFIX, JournalId, checkpoint_name, parse_checkpoint_name, parse_journal_name};
use super::replace::{TEMPORARY_MARK, create_directory_blocking, read_blocking, replace_blocking, sync_parent};
use super::{DiskError, context};
use crate::rt::file::{FaultPlan, FileMode, blocking};

/// The files that a slot has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotFiles {
    /// Whether there is a checkpoint.
    pub checkpoint: bool,
    /// The journals, in the order in which they were written.
    pub journals: Vec<JournalId>,
    /// What interrupted replacements left.
    leftovers: Vec<PathBuf>,
}

/// The slots of a directory that have files and that `is_wanted` names; none if there is no directory. Blocks.
///
/// # Errors
/// If the directory cannot be listed.
pub fn list_blocking(
    directory: &Path,
    is_wanted: impl Fn(SlotId) -> bool,
) -> Result<BTreeMap<SlotId, SlotFiles>, DiskError> {
    let mut slots: BTreeMap<SlotId, SlotFiles> = BTreeMap::new();
    if !directory.exists() {
        return Ok(slots);
    }
    for entry in context("list", directory, fs::read_dir(directory))? {
        let entry = context("list", directory, entry)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(journal) = parse_journal_name(name).filter(|journal| is_wanted(journal.slot)) {
            slots.entry(journal.slot).or_default().journals.push(journal);
        } else if let Some(slot) = parse_checkpoint_name(name).filter(|slot| is_wanted(*slot)) {
            slots.entry(slot).or_default().checkpoint = true;
        } else if let Some((whole, _)) = name.split_once(TEMPORARY_MARK)
            && let Some(slot) = parse_checkpoint_name(whole).filter(|slot| is_wanted(*slot))
        {
            slots.entry(slot).or_default().leftovers.push(entry.path());
        }
    }
    slots.values_mut().for_each(|files| files.journals.sort_unstable());
    Ok(slots)
}

/// A slot as its files hold it.
#[derive(Debug)]
pub struct RecoveredSlot<E> {
    /// All of it durable.
    pub journal: Journal,
    /// What rebuilds the slot, in its order.
    pub entries: Vec<E>,
}

/// Recovers a slot from `files`, for the start of `epoch`. Blocks.
///
/// # Errors
/// If a file cannot be read, or what the files hold is not all of a slot.
pub fn recover_blocking<E: DeserializeOwned>(
    directory: &Path,
    slot: SlotId,
    files: &SlotFiles,
    epoch: LeaderEpoch,
) -> Result<RecoveredSlot<E>, DiskError> {
    for leftover in &files.leftovers {
        context("remove", leftover, fs::remove_file(leftover))?;
    }
    let path = directory.join(checkpoint_name(slot));
    let stored = if files.checkpoint { read_blocking(&path)? } else { None };
    let rebuild = Rebuild::new(stored.as_deref());
    let mut rebuild = rebuild.map_err(|error| refusal("read checkpoint", &path, slot, &error.to_string()))?;
    drop(stored);
    let mut ends = Vec::new();
    for journal in &files.journals {
        let path = directory.join(journal.file());
        if journal.epoch >= epoch {
            let message = format!("it is of start {}, this is start {epoch}: epoch.json is too old", journal.epoch);
            return Err(DiskError::invalid("read journal", &path, message));
        }
        let bytes = context("read", &path, fs::read(&path))?;
        let end = rebuild.journal(&bytes);
        let end = end.map_err(|error| refusal("read journal", &path, slot, &error.to_string()))?;
        ends.push((path, end));
    }
    // Only now: what is refused is left as it was found.
    for (path, end) in ends {
        settle_blocking(&path, end)?;
    }
    let (journal, entries) = rebuild.finish();
    Ok(RecoveredSlot { journal, entries })
}

fn refusal(operation: &'static str, path: &Path, slot: SlotId, error: &str) -> DiskError {
    let name = checkpoint_name(slot);
    let stem = name.trim_end_matches(".json");
    let advice = format!(
        "restore {name} and every {stem}.*.journal of this directory from one backup, or move all of them away to go \
         on without what the slot held"
    );
    DiskError::invalid(operation, path, format!("{error}; {advice}"))
}

/// Cuts a journal to its whole lines, durably, and removes it if it has none.
fn settle_blocking(path: &Path, end: JournalEnd) -> Result<(), DiskError> {
    if !end.stop.is_clean() {
        let bytes = context("read", path, fs::read(path))?;
        let rest = &bytes[end.bytes..];
        let length = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let path = path.display();
        tracing::warn!(journal = %path, position = end.bytes, bytes = length, "the journal ends here: {}", end.stop);
        replace_blocking(Path::new(&format!("{path}.{}{DAMAGED_SUFFIX}", end.bytes)), &rest[..length])?;
    }
    if end.bytes == 0 {
        context("remove", path, fs::remove_file(path))?;
        return sync_parent(path);
    }
    let file = context("open", path, OpenOptions::new().write(true).open(path))?;
    context("truncate", path, file.set_len(end.bytes as u64))?;
    context("sync", path, file.sync_all())
}

/// Replaces a slot's checkpoint, durably, and then removes its journals before `first_kept`; returns the bytes of the
/// checkpoint. A journal that cannot be removed is logged: the next checkpoint tries again. Blocks.
///
/// # Errors
/// If the checkpoint could not be made durable: then every journal is still there.
pub fn checkpoint_blocking<E: Serialize>(
    directory: &Path,
    position: Position,
    entries: &[E],
    first_kept: JournalId,
) -> Result<u64, DiskError> {
    let bytes = checkpoint::encode(position, entries);
    replace_blocking(&directory.join(checkpoint_name(first_kept.slot)), &bytes)?;
    if let Err(error) = remove_journals_blocking(directory, first_kept) {
        tracing::warn!(%error, "a journal that a checkpoint has replaced stays until the next checkpoint");
    }
    Ok(bytes.len() as u64)
}

fn remove_journals_blocking(directory: &Path, first_kept: JournalId) -> Result<(), DiskError> {
    let files = list_blocking(directory, |slot| slot == first_kept.slot)?;
    for journal in files.get(&first_kept.slot).into_iter().flat_map(|files| &files.journals) {
        if *journal < first_kept {
            let path = directory.join(journal.file());
            context("remove", &path, fs::remove_file(&path))?;
        }
    }
    context("sync directory", directory, File::open(directory).and_then(|opened| opened.sync_all()))
}

/// How journals are written.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Past the page cache or through it.
    pub mode: FileMode,
    /// Size to which the journal is expected to grow: nothing is zeroed beyond.
    pub file_bytes: u64,
    /// Faults to inject; `None` outside tests.
    pub faults: Option<Arc<FaultPlan>>,
}

/// The journal that a slot writes.
pub struct JournalFile(AppendFile);

impl JournalFile {
    /// Creates a journal, its name durable, and the directory if it is the first.
    ///
    /// # Errors
    /// If the disk fails, or the journal exists.
    pub async fn create(directory: &Path, id: JournalId, options: JournalOptions) -> Result<Self, DiskError> {
        let JournalOptions { mode, file_bytes, faults } = options;
        if !directory.exists() {
            let made = directory.to_path_buf();
            blocking(move || create_directory_blocking(&made)).await?;
        }
        let options = AppendOptions { mode, durable: true, file_bytes, faults };
        AppendFile::create(&directory.join(id.file()), options).await.map(Self)
    }

    /// Appends lines in one write, durable when this returns.
    ///
    /// # Errors
    /// If the disk fails: the journal takes nothing more then.
    pub async fn append(&mut self, lines: &[u8]) -> Result<(), DiskError> {
        self.0.append_with(lines.len(), |out| out.copy_from_slice(lines)).await.map(drop)
    }

    /// Cuts the journal to its lines and closes it.
    ///
    /// # Errors
    /// If the disk fails; the lines are durable all the same.
    pub async fn close(mut self) -> Result<(), DiskError> {
        self.0.cut().await?;
        self.0.close().await
    }
}

#[cfg(test)]
#[path = "slot_files_tests.rs"]
mod tests;
