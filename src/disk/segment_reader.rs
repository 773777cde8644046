//! Reads of older segments, those that the tail cache no longer holds.
//!
//! Owner: one [`SegmentReaders`] a shard. Limit: `open_max` files are kept open (`limits::SEGMENT_READERS_MAX`), the
//! least recently used one is closed for a new one; a read in flight keeps its file.
//! Failure: an error names file and position; a range that
//! reaches beyond the file is an error, for the caller knows how much is durable.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use hashbrown::HashMap;

use super::DiskError;
use crate::rt::file::{Access, DurableFile, FileMode, FileOptions};

struct Open {
    file: Rc<DurableFile>,
    used: u64,
}

#[derive(Default)]
struct Cache {
    open: HashMap<PathBuf, Open, foldhash::fast::FixedState>,
    uses: u64,
}

/// The open files of one shard.
pub struct SegmentReaders {
    options: FileOptions,
    open_max: usize,
    cache: RefCell<Cache>,
    read_bytes: Cell<u64>,
}

impl SegmentReaders {
    /// No file open yet; at most `open_max` will be.
    #[must_use]
    pub fn new(mode: FileMode, open_max: usize) -> Self {
        assert!(open_max > 0, "reading needs a file");
        let options = FileOptions { mode, durable: false, faults: None };
        Self { options, open_max, cache: RefCell::default(), read_bytes: Cell::new(0) }
    }

    /// Exactly `len` bytes of the file at `path` from `position`.
    pub async fn read(&self, path: &Path, position: u64, len: usize) -> Result<Bytes, DiskError> {
        let file = self.file(path).await?;
        let bytes = file.read(position, len).await?;
        self.read_bytes.set(self.read_bytes.get() + bytes.len() as u64);
        if bytes.len() == len {
            return Ok(bytes);
        }
        let end = position + bytes.len() as u64;
        Err(DiskError::invalid("read", path, format!("the file ends at byte {end} of {}", position + len as u64)))
    }

    /// Bytes read since the start.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.get()
    }

    /// Forgets the files below a directory, or one file, before it is removed.
    pub fn forget(&self, path: &Path) {
        self.cache.borrow_mut().open.retain(|open, _| !open.starts_with(path));
    }

    /// Files open now.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.cache.borrow().open.len()
    }

    async fn file(&self, path: &Path) -> Result<Rc<DurableFile>, DiskError> {
        if let Some(file) = self.cached(path) {
            return Ok(file);
        }
        let file = Rc::new(DurableFile::open(path, Access::Read, &self.options).await?);
        // Another read may have opened it meanwhile; that one is as good and this one closes after its read.
        if self.cached(path).is_none() {
            self.keep(path, file.clone());
        }
        Ok(file)
    }

    fn cached(&self, path: &Path) -> Option<Rc<DurableFile>> {
        let cache = &mut *self.cache.borrow_mut();
        cache.uses += 1;
        let open = cache.open.get_mut(path)?;
        open.used = cache.uses;
        Some(open.file.clone())
    }

    fn keep(&self, path: &Path, file: Rc<DurableFile>) {
        let cache = &mut *self.cache.borrow_mut();
        if cache.open.len() >= self.open_max {
            // A scan of the whole table costs little beside the open and the read that follow.
            let oldest = cache.open.iter().min_by_key(|(_, open)| open.used).map(|(path, _)| path.clone());
            cache.open.remove(&oldest.expect("a full cache has an oldest entry"));
        }
        cache.open.insert(path.to_path_buf(), Open { file, used: cache.uses });
    }
}

#[cfg(test)]
mod tests {
    use oncilla_shards::limits::SEGMENT_READERS_MAX;

    use super::*;
    use crate::rt::file::test_block_on;

    #[test]
    fn ranges_of_more_files_than_may_be_open_are_read() {
        for mode in [FileMode::Direct, FileMode::Buffered] {
            let dir = tempfile::tempdir().unwrap();
            let content: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
            test_block_on(async {
                let readers = SegmentReaders::new(mode, 2);
                for i in 0..5 {
                    let path = dir.path().join(i.to_string());
                    std::fs::write(&path, &content).unwrap();
                    let bytes = readers.read(&path, 4090 + i, 9000).await.unwrap();
                    assert_eq!(bytes, content[4090 + i as usize..13_090 + i as usize]);
                    assert!(readers.open_files() <= 2);
                }
                readers.forget(dir.path());
                assert_eq!(readers.open_files(), 0);
            });
        }
    }

    #[test]
    fn a_range_beyond_the_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("short");
        std::fs::write(&path, [1; 100]).unwrap();
        test_block_on(async {
            let readers = SegmentReaders::new(FileMode::Direct, SEGMENT_READERS_MAX);
            assert_eq!(readers.read(&path, 0, 100).await.unwrap().len(), 100);
            assert!(readers.read(&path, 0, 101).await.is_err());
            assert!(readers.read(&path, 200, 1).await.is_err());
            assert!(readers.read(&dir.path().join("none"), 0, 1).await.is_err());
        });
    }
}
