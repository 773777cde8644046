//! The open files of one shard's partitions.
//!
//! The writer of a partition's active segment is taken out while it works and put back afterwards, so two tasks never
//! use it at once. Which partitions have a task that writes is known, so that the files of a deleted topic are removed
//! only when nothing writes to them any more. Readers are shared and bounded ([`SEGMENT_READERS_MAX`]).

use std::cell::RefCell;
use std::path::PathBuf;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use oncilla_shards::ids::PartitionKey;
use oncilla_shards::limits::SEGMENT_READERS_MAX;
use oncilla_shards::read_ahead::ReadAhead;

use crate::config::{Config, IoMode};
use crate::ctx::Ctx;
use crate::disk::layout::DataDir;
use crate::disk::segment_reader::SegmentReaders;
use crate::disk::segment_writer::SegmentWriter;
use crate::rt::Notify;
use crate::rt::file::FileMode;

/// The open files of one shard.
pub struct Files {
    /// Where everything lies.
    pub data: DataDir,
    /// How segments are opened.
    pub mode: FileMode,
    /// Segments open for reading.
    pub readers: SegmentReaders,
    /// What is read ahead of consumers that catch up.
    pub ahead: RefCell<ReadAhead>,
    /// A read ahead has ended.
    pub ahead_ended: Notify,
    writers: RefCell<HashMap<PartitionKey, Slot, FixedState>>,
    writing: RefCell<HashSet<PartitionKey, FixedState>>,
    returned: Notify,
    ended: Notify,
}

/// The writer of a partition's active segment.
enum Slot {
    Idle(Box<SegmentWriter>),
    /// A task has it.
    Taken,
}

impl Files {
    /// No file is open yet.
    pub fn new(config: &Config) -> Self {
        let mode = match config.io_mode {
            IoMode::Direct => FileMode::Direct,
            IoMode::Buffered => FileMode::Buffered,
        };
        Self {
            data: DataDir::new(&config.data_dir),
            mode,
            readers: SegmentReaders::new(mode, SEGMENT_READERS_MAX),
            ahead: RefCell::new(ReadAhead::new(config.log_read_ahead_bytes / usize::from(config.shards))),
            ahead_ended: Notify::new(),
            writers: RefCell::default(),
            writing: RefCell::default(),
            returned: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Directory of a partition; `None` if its topic is gone.
    pub fn directory(&self, ctx: &Ctx, key: &PartitionKey) -> Option<PathBuf> {
        let image = ctx.image();
        let topic = image.topic_by_id(key.topic)?;
        Some(self.data.partition(&topic.name, topic.id, key.index))
    }

    /// Takes the writer of a partition's active segment for one use, waiting while another task has it; `None` if no
    /// segment is open. Whoever took it gives it back with [`Files::put_writer`] or [`Files::forget`].
    pub async fn take_writer(&self, key: &PartitionKey) -> Option<SegmentWriter> {
        loop {
            {
                let mut writers = self.writers.borrow_mut();
                match writers.insert(*key, Slot::Taken) {
                    Some(Slot::Idle(writer)) => return Some(*writer),
                    Some(Slot::Taken) => {}
                    None => {
                        writers.remove(key);
                        return None;
                    }
                }
            }
            self.returned.notified().await;
        }
    }

    /// Gives a writer back, or a new one in its place.
    pub fn put_writer(&self, key: PartitionKey, writer: SegmentWriter) {
        self.writers.borrow_mut().insert(key, Slot::Idle(Box::new(writer)));
        self.returned.notify();
    }

    /// A task begins to write a partition.
    pub fn writing_begins(&self, key: PartitionKey) {
        let is_first = self.writing.borrow_mut().insert(key);
        assert!(is_first, "{key} has one task that writes");
    }

    /// The task that wrote a partition is done.
    pub fn writing_ends(&self, key: &PartitionKey) {
        self.writing.borrow_mut().remove(key);
        self.ended.notify();
    }

    /// Waits until no task writes any of these partitions.
    pub async fn writing_ended(&self, keys: &[PartitionKey]) {
        while keys.iter().any(|key| self.writing.borrow().contains(key)) {
            self.ended.notified().await;
        }
    }

    /// Closes what is open of a partition that is gone.
    pub fn forget(&self, key: &PartitionKey) {
        self.writers.borrow_mut().remove(key);
        self.returned.notify();
    }
}
