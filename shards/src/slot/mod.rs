//! Slots: the fixed number of parts that groups, and later transactions, are divided into.
//!
//! A key belongs to one slot for good, and a slot to one shard, which alone writes its files: a journal of JSON lines,
//! one for each change ([`Journal`], [`line`]), and a checkpoint that rebuilds the slot without the journal before it
//! ([`checkpoint`]); [`rebuild`] puts both together at a start. What the entries mean is the owner's business.
//! Limits: `SLOTS`, `SLOT_WRITE_BYTES_MAX`, `SLOT_JOURNAL_BYTES_MAX`. Failure: damaged bytes are reported with their
//! place and the reason; whether they are a torn write or a loss is decided where the files are known.

pub mod checkpoint;
mod journal;
#[cfg(test)]
mod journal_tests;
pub mod line;
pub mod rebuild;

use std::fmt;

pub use self::journal::{Journal, JournalWrite};
use crate::ids::{ShardId, SlotId};
use crate::limits::SLOTS;

/// How many entries a slot had up to and with one of them, over all its journals: the first is at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// The position `entries` further.
    #[must_use]
    pub fn plus(self, entries: u64) -> Self {
        Self(self.0.checked_add(entries).expect("a slot never has 2^64 entries"))
    }

    /// The position of the entry that follows.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The slot of a group or transactional id.
#[must_use]
pub fn slot_of(key: &[u8]) -> SlotId {
    SlotId(u16::try_from(fnv1a32(key) % u32::from(SLOTS)).expect("below the number of slots"))
}

/// The shard that owns a slot, of `shards`.
#[must_use]
pub fn owner(slot: SlotId, shards: u16) -> ShardId {
    assert!(shards > 0, "a broker has shards");
    ShardId(slot.0 % shards)
}

fn fnv1a32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_is_the_published_function() {
        assert_eq!(fnv1a32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a32(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn g2_a_key_keeps_its_slot_and_only_the_owner_depends_on_the_shards() {
        assert_eq!(slot_of(b"foobar"), SlotId((0xbf9c_f968_u32 % 50) as u16));
        assert_eq!(slot_of(b""), SlotId((0x811c_9dc5_u32 % 50) as u16));
        for shards in [1, 3, 64] {
            let owners: Vec<_> = (0..SLOTS).map(|slot| owner(SlotId(slot), shards)).collect();
            assert!(owners.iter().all(|shard| shard.0 < shards));
            assert!((0..shards.min(SLOTS)).all(|shard| owners.contains(&ShardId(shard))));
        }
    }
}
