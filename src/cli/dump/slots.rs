//! Slots of a data directory as a start would find them: their checkpoints and journals.

use std::path::Path;

use anyhow::Context;
use oncilla_shards::slot::rebuild::Rebuild;
use serde::de::DeserializeOwned;

use crate::disk::slot_files::SlotFiles;

/// A slot as its files tell it, up to the first damage.
pub(super) struct Read<E> {
    pub entries: Vec<E>,
    pub damaged: Vec<String>,
}

/// Reads a slot, and changes nothing.
pub(super) fn read<E: DeserializeOwned>(
    directory: &Path,
    checkpoint: &str,
    files: &SlotFiles,
) -> anyhow::Result<Read<E>> {
    let mut damaged = Vec::new();
    let path = directory.join(checkpoint);
    let stored = files.checkpoint.then(|| std::fs::read(&path)).transpose();
    let stored = stored.with_context(|| path.display().to_string())?;
    let mut rebuild = match Rebuild::<E>::new(stored.as_deref()) {
        Ok(rebuild) => rebuild,
        Err(error) => return Ok(Read { entries: Vec::new(), damaged: vec![format!("{}: {error}", path.display())] }),
    };
    for journal in &files.journals {
        let path = directory.join(journal.file());
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        match rebuild.journal(&bytes) {
            Ok(end) if end.stop.is_clean() => {}
            Ok(end) => damaged.push(format!("{}: ends at byte {}: {}", path.display(), end.bytes, end.stop)),
            Err(error) => {
                damaged.push(format!("{}: {error}", path.display()));
                break;
            }
        }
    }
    Ok(Read { entries: rebuild.finish().1, damaged })
}
