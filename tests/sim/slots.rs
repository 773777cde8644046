//! The files of the slots: a checkpoint and journals, with the write in flight that a crash may tear.

use std::collections::BTreeMap;

use oncilla_shards::ids::SlotId;
use oncilla_shards::slot::rebuild::Rebuild;
use oncilla_shards::slot::{Journal, JournalWrite, Position, checkpoint};
use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// What a crash, or a failed write, left of writes.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Writes of which a part is there.
    pub torn: usize,
    /// What is there of each write.
    pub bytes: Vec<Vec<u8>>,
}

impl Kept {
    fn part_of(&mut self, write: &JournalWrite, rng: &mut Rng) {
        let kept = match rng.below(3) {
            0 => 0,
            1 => write.bytes.len(),
            _ => rng.below(write.bytes.len() + 1),
        };
        self.torn += usize::from(kept > 0 && kept < write.bytes.len());
        self.bytes.push(write.bytes[..kept].to_vec());
    }
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

    /// The write under way, if there is one, is durable: its bytes.
    pub fn complete(&mut self, slot: SlotId) -> Option<Vec<u8>> {
        let files = self.0.get_mut(&slot)?;
        let write = files.in_flight.take()?;
        files.journals.last_mut().expect("a write has a journal").extend(&write.bytes);
        Some(write.bytes)
    }

    /// The write under way fails; any part of it may be there.
    pub fn fail(&mut self, slot: SlotId, rng: &mut Rng) -> Kept {
        let files = self.0.get_mut(&slot).expect("it is writing");
        let mut kept = Kept::default();
        kept.part_of(&files.in_flight.take().expect("it is writing"), rng);
        files.journals.last_mut().expect("a write has a journal").extend(&kept.bytes[0]);
        kept
    }

    /// A checkpoint leaves for the disk; it covers every journal up to now.
    pub fn begin_checkpoint<E: Serialize>(&mut self, slot: SlotId, position: Position, entries: &[E]) {
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

    /// The power is gone: what was under way is there in part, whole, or not at all.
    pub fn crash(&mut self, rng: &mut Rng) -> Kept {
        let mut kept = Kept::default();
        for files in self.0.values_mut() {
            files.begun = false;
            if let Some(write) = files.in_flight.take() {
                kept.part_of(&write, rng);
                let bytes = kept.bytes.last().expect("just kept");
                files.journals.last_mut().expect("a write has a journal").extend(bytes);
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
        kept
    }

    /// What a start finds of a slot.
    pub fn load<E: DeserializeOwned>(&self, slot: SlotId) -> (Journal, Vec<E>) {
        let none = Files::default();
        let files = self.0.get(&slot).unwrap_or(&none);
        let mut rebuild = Rebuild::new(files.checkpoint.as_deref()).expect("a checkpoint is whole or not there");
        for journal in &files.journals {
            rebuild.journal(journal).expect("journals continue each other");
        }
        rebuild.finish()
    }
}
