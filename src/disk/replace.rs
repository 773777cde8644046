//! Atomic replacement of a small file: after a crash there is the old content or the new one, never a part of either.
//!
//! A temporary name that no other writer uses, write, fsync, rename, fsync of the directory. Owner: whoever owns the
//! file; two replacements of one file at once are its owner's fault, yet still leave one whole content.
//! Failure: the old content stays, the temporary file is removed if that is still possible.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Serialize, de::DeserializeOwned};

use super::{DiskError, context};
use crate::rt::file::blocking;

/// In the name of every file that will replace another.
pub(super) const TEMPORARY_MARK: &str = ".tmp-";

/// Replaces the content of `path`, durably; blocks.
pub fn replace_blocking(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    put_blocking(path, bytes)?;
    sync_parent(path)
}

/// Replaces files of one directory, each with whole content, in their order; their names are made durable together.
/// After a crash any of them may be the old one. Blocks.
pub fn replace_each_blocking(files: &[(PathBuf, Vec<u8>)]) -> Result<(), DiskError> {
    let Some((last, _)) = files.last() else { return Ok(()) };
    for (path, bytes) in files {
        assert_eq!(path.parent(), last.parent(), "one directory holds the names");
        put_blocking(path, bytes)?;
    }
    sync_parent(last)
}

/// Replaces the content of `path` with durable content under a name that is not durable yet.
fn put_blocking(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let temporary = temporary_name(path);
    let written =
        write_durably(&temporary, bytes).and_then(|()| context("rename", &temporary, fs::rename(&temporary, path)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Replaces the content of `path`, durably, on the helper thread.
pub async fn replace(path: PathBuf, bytes: Vec<u8>) -> Result<(), DiskError> {
    blocking(move || replace_blocking(&path, &bytes)).await
}

/// Replaces `path` with a value as JSON, durably; blocks.
pub fn replace_json_blocking<T: Serialize>(path: &Path, value: &T) -> Result<(), DiskError> {
    replace_blocking(path, &to_json(path, value)?)
}

/// Replaces `path` with a value as JSON, durably, on the helper thread.
pub async fn replace_json<T: Serialize>(path: PathBuf, value: &T) -> Result<(), DiskError> {
    let bytes = to_json(&path, value)?;
    replace(path, bytes).await
}

fn to_json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, DiskError> {
    let encoded = serde_json::to_vec_pretty(value);
    let mut bytes = encoded.map_err(|e| DiskError::invalid("encode JSON", path, e.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The whole content, `None` if there is no such file; blocks.
pub fn read_blocking(path: &Path) -> Result<Option<Vec<u8>>, DiskError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DiskError::new("read", path, &error)),
    }
}

/// The value in a JSON file, `None` if there is no such file; a damaged one is an error. Blocks.
pub fn read_json_blocking<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DiskError> {
    let Some(mut bytes) = read_blocking(path)? else { return Ok(None) };
    let decoded = simd_json::serde::from_slice(&mut bytes);
    decoded.map(Some).map_err(|e| DiskError::invalid("decode JSON", path, e.to_string()))
}

/// Makes the name of `path` durable; blocks.
pub fn sync_parent(path: &Path) -> Result<(), DiskError> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    context("sync directory", parent, File::open(parent).and_then(|directory| directory.sync_all()))
}

/// Creates a directory and its missing parents, each name durable; blocks.
pub fn create_directory_blocking(path: &Path) -> Result<(), DiskError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        create_directory_blocking(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(DiskError::new("create directory", path, &error)),
        _ => sync_parent(path),
    }
}

/// Removes what interrupted replacements left in a directory; blocks.
pub fn remove_leftovers_blocking(directory: &Path) -> Result<usize, DiskError> {
    let mut removed = 0;
    for entry in context("list", directory, fs::read_dir(directory))? {
        let entry = context("list", directory, entry)?;
        if entry.file_name().to_string_lossy().contains(TEMPORARY_MARK) {
            context("remove", &entry.path(), fs::remove_file(entry.path()))?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let mut file = context("create", path, File::create_new(path))?;
    context("write", path, file.write_all(bytes))?;
    context("sync", path, file.sync_all())
}

fn temporary_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().expect("a file to replace has a name").to_owned();
    name.push(format!("{TEMPORARY_MARK}{}-{number}", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_replaced_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        assert_eq!(read_blocking(&path).unwrap(), None);
        replace_json_blocking(&path, &vec![1, 2]).unwrap();
        replace_json_blocking(&path, &vec![3]).unwrap();
        assert_eq!(read_json_blocking::<Vec<i32>>(&path).unwrap(), Some(vec![3]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_that_are_replaced_together_come_in_their_order_up_to_the_first_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        replace_each_blocking(&[]).unwrap();
        replace_each_blocking(&[(path("a"), vec![1]), (path("b"), vec![2])]).unwrap();
        fs::create_dir_all(path("taken/by a directory")).unwrap();
        let files = ["a", "taken", "b"].map(|name| (path(name), vec![3]));
        assert!(replace_each_blocking(&files).is_err());
        let contents = ["a", "b"].map(|name| read_blocking(&path(name)).unwrap());
        assert_eq!(contents, [Some(vec![3]), Some(vec![2])]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no temporary file is left");
    }

    #[test]
    fn a_failed_replacement_keeps_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir_all(path.join("by a directory")).unwrap();
        assert!(replace_blocking(&path, b"new").is_err());
        assert!(path.join("by a directory").is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn damaged_json_is_an_error_with_the_path_and_never_a_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::write(&path, b"[1,").unwrap();
        let error = read_json_blocking::<Vec<i32>>(&path).unwrap_err();
        assert!(error.to_string().contains("state.json"), "{error}");
    }

    #[test]
    fn leftovers_of_a_crash_are_removed_and_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(temporary_name(&dir.path().join("a.json")), b"half").unwrap();
        fs::write(dir.path().join("a.json"), b"whole").unwrap();
        assert_eq!(remove_leftovers_blocking(dir.path()).unwrap(), 1);
        assert_eq!(fs::read(dir.path().join("a.json")).unwrap(), b"whole");
    }

    #[test]
    fn directories_are_created_with_their_parents_and_again_without_harm() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("topics/t/0");
        create_directory_blocking(&deep).unwrap();
        create_directory_blocking(&deep).unwrap();
        assert!(deep.is_dir());
    }
}
