//! The files of the slots: a checkpoint and journals, with the write in flight that a crash may tear.

use std::collections::BTreeMap;

use oncilla_shards::groups::Entry;
use oncilla_shards::ids::SlotId;
use oncilla_shards::slot::rebuild::Rebuild;
use oncilla_shards::slot::{Journal, JournalWrite, Position, checkpoint};

use crate::rng::Rng;

#[derive(Clone, Debug, Default)]
struct Files {
    checkpoint: Option<Vec<u8>>,
    /// Oldest first; the last one takes the writes of this boot once it has begun.
    journals: Vec<Vec<u8>>,
    begun: bool,
    in_flight: Option<JournalWrite>,
    /// A checkpoint that is not durable yet: its bytes, and how many journals it makes needless.
    replacing: Option<(Vec<u8>, usize)>,
}

/// All slots' files.
#[derive(Clone, Debug, Default)]
pub struct Disk(BTreeMap<SlotId, Files>);

impl Disk {
    /// A write leaves for the disk.
    pub fn begin(&mut self, slot: SlotId, write: JournalWrite) {
        let files = self.0.entry(slot).or_default();
        assert!(files.in_flight.is_none(), "one write at a time");
        if write.roll || !files.begun {
            files.journals.push(Vec::new());
            files.begun = true;
        }
        files.in_flight = Some(write);
    }

    /// Whether a write of the slot is under way.
    pub fn is_writing(&self, slot: SlotId) -> bool {
        self.0.get(&slot).is_some_and(|files| files.in_flight.is_some())
    }

    /// The write under way is durable.
    pub fn complete(&mut self, slot: SlotId) -> bool {
        let Some(files) = self.0.get_mut(&slot) else { return false };
        let Some(write) = files.in_flight.take() else { return false };
        files.journals.last_mut().expect("a write has a journal").extend(write.bytes);
        true
    }

    /// The write under way fails.
    pub fn fail(&mut self, slot: SlotId) {
        self.0.get_mut(&slot).expect("it is writing").in_flight = None;
    }

    /// A checkpoint leaves for the disk; it covers every journal up to now.
    pub fn begin_checkpoint(&mut self, slot: SlotId, position: Position, entries: &[Entry]) {
        let files = self.0.entry(slot).or_default();
        files.replacing = Some((checkpoint::encode(position, entries), files.journals.len()));
    }

    /// The checkpoint under way is durable, and the journals that it covers go; its size.
    pub fn complete_checkpoint(&mut self, slot: SlotId) -> Option<u64> {
        let files = self.0.get_mut(&slot)?;
        let (bytes, journals) = files.replacing.take()?;
        let size = bytes.len() as u64;
        files.checkpoint = Some(bytes);
        files.journals.drain(..journals);
        Some(size)
    }

    /// The power is gone: what was under way is there in part, whole, or not at all. How many writes were torn.
    pub fn crash(&mut self, rng: &mut Rng) -> usize {
        let mut torn = 0;
        for files in self.0.values_mut() {
            files.begun = false;
            if let Some(write) = files.in_flight.take() {
                let kept = match rng.below(3) {
                    0 => 0,
                    1 => write.bytes.len(),
                    _ => rng.below(write.bytes.len() + 1),
                };
                torn += usize::from(kept > 0 && kept < write.bytes.len());
                files.journals.last_mut().expect("a write has a journal").extend(&write.bytes[..kept]);
            }
            if let Some((bytes, journals)) = files.replacing.take()
                && rng.percent(50)
            {
                // The rename was durable; the removal of the journals it covers may not have been.
                files.checkpoint = Some(bytes);
                if rng.percent(50) {
                    files.journals.drain(..journals);
                }
            }
        }
        torn
    }

    /// What a start finds of a slot.
    pub fn load(&self, slot: SlotId) -> (Journal, Vec<Entry>) {
        let none = Files::default();
        let files = self.0.get(&slot).unwrap_or(&none);
        let mut rebuild = Rebuild::new(files.checkpoint.as_deref()).expect("a checkpoint is whole or not there");
        for journal in &files.journals {
            rebuild.journal(journal).expect("journals continue each other");
        }
        rebuild.finish()
    }
}
