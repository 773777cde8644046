//! The open journals of one kind of slot on one shard, and which of its slots have a task at work.
//!
//! A slot's journal is taken out while its writer uses it and put back afterwards. Journals are numbered within a
//! start; numbers are not used twice, so a file is never opened again.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oncilla_shards::ids::{LeaderEpoch, SlotId};

use crate::config::{Config, IoMode};
use crate::disk::DiskError;
use crate::disk::layout::{DataDir, JournalId};
use crate::disk::slot_files::{JournalFile, JournalOptions};
use crate::rt::Notify;
use crate::rt::file::{FaultPlan, FileMode};

#[derive(Default)]
struct Slot {
    journal: Option<JournalFile>,
    /// Number of the journal that is created next.
    next_roll: u32,
    /// Tasks that write: the journal, a checkpoint.
    tasks: u32,
}

/// The files of one kind of slot on one shard.
pub struct Files {
    directory: PathBuf,
    epoch: LeaderEpoch,
    mode: FileMode,
    faults: Option<Arc<FaultPlan>>,
    slots: RefCell<HashMap<SlotId, Slot, FixedState>>,
    ended: Notify,
}

impl Files {
    /// The files in `<data>/__cluster/<kind>`, for the start of `epoch`; none is open yet.
    #[must_use]
    pub fn new(config: &Config, kind: &str, epoch: LeaderEpoch) -> Self {
        let mode = match config.io_mode {
            IoMode::Direct => FileMode::Direct,
            IoMode::Buffered => FileMode::Buffered,
        };
        let directory = DataDir::new(&config.data_dir).slots(kind);
        Self { directory, epoch, mode, faults: None, slots: RefCell::default(), ended: Notify::new() }
    }

    /// The same with faults in the writes of journals: for tests.
    #[must_use]
    pub fn with_faults(self, faults: Arc<FaultPlan>) -> Self {
        Self { faults: Some(faults), ..self }
    }

    /// Where the files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Of this start.
    #[must_use]
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Waits until no task writes the slot.
    pub async fn idle(&self, slot: SlotId) {
        while self.slots.borrow().get(&slot).is_some_and(|slot| slot.tasks > 0) {
            self.ended.notified().await;
        }
    }

    /// Takes the slot's open journal, if there is one.
    pub(super) fn take(&self, slot: SlotId) -> Option<JournalFile> {
        self.slots.borrow_mut().get_mut(&slot)?.journal.take()
    }

    /// Gives a journal back, or a new one in its place.
    pub(super) fn put(&self, slot: SlotId, journal: JournalFile) {
        self.slots.borrow_mut().entry(slot).or_default().journal = Some(journal);
    }

    /// Creates the slot's next journal, which is expected to grow to `file_bytes`.
    pub(super) async fn create(&self, slot: SlotId, file_bytes: u64) -> Result<JournalFile, DiskError> {
        let id = self.next(slot);
        let rolled = id.roll.checked_add(1).expect("a start never makes 2^32 journals of a slot");
        self.slots.borrow_mut().entry(slot).or_default().next_roll = rolled;
        let options = JournalOptions { mode: self.mode, file_bytes, faults: self.faults.clone() };
        JournalFile::create(&self.directory, id, options).await
    }

    /// The journal that is created next: all that exist are before it.
    pub(super) fn next(&self, slot: SlotId) -> JournalId {
        let roll = self.slots.borrow().get(&slot).map_or(0, |slot| slot.next_roll);
        JournalId { slot, epoch: self.epoch, roll }
    }

    pub(super) fn task_begins(&self, slot: SlotId) {
        self.slots.borrow_mut().entry(slot).or_default().tasks += 1;
    }

    pub(super) fn task_ends(&self, slot: SlotId) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(&slot) {
            slot.tasks -= 1;
        }
        self.ended.notify();
    }
}
