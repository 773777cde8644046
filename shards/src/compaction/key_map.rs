//! The newest offset of each key of the part of a log that is being cleaned, in a fixed amount of memory.
//!
//! Owner: one clean. Open addressing over slots of 24 bytes: a hash of 128 bits and an offset; keys themselves are not
//! kept. Limit: `log.cleaner.dedupe.buffer.size`, filled to nine tenths. Failure: a full map takes no new key, and the
//! clean stops at the record that brought it.

use super::hash::{HashSecret, hash};
use crate::ids::Offset;

const WORDS: usize = 3;

/// Bytes that one key takes.
pub const SLOT_BYTES: usize = WORDS * size_of::<u64>();

/// The map.
pub struct KeyMap {
    /// Hash and offset + 1 of each slot; 0 for a free one. Zeroed memory is mapped when it is touched, so a large map
    /// costs nothing until it fills.
    words: Vec<u64>,
    slots: usize,
    len: usize,
    len_max: usize,
    secret: HashSecret,
}

impl std::fmt::Debug for KeyMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyMap({} of {})", self.len, self.len_max)
    }
}

impl KeyMap {
    /// An empty map of at most `bytes_max`, and no larger than `records` records can fill.
    #[must_use]
    pub fn new(bytes_max: usize, records: u64, secret: HashSecret) -> Self {
        let wanted = usize::try_from(records.saturating_mul(10) / 9).unwrap_or(usize::MAX).saturating_add(2);
        let slots = (bytes_max / SLOT_BYTES).min(wanted).max(2);
        Self { words: vec![0; slots * WORDS], slots, len: 0, len_max: (slots * 9 / 10).max(1), secret }
    }

    /// The slot of a hash, or the free one where it belongs.
    fn find(&self, hash: [u64; 2]) -> usize {
        let mut slot = (hash[0] % self.slots as u64) as usize;
        loop {
            let at = slot * WORDS;
            if self.words[at + 2] == 0 || self.words[at..at + 2] == hash {
                return at;
            }
            slot = (slot + 1) % self.slots;
        }
    }

    /// Notes that `key` has a record at `offset`, which is behind all noted before. False if there is no room.
    #[must_use]
    pub fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        assert!(offset.0 >= 0, "records have offsets");
        let hash = hash(self.secret, key);
        let at = self.find(hash);
        if self.words[at + 2] == 0 {
            if self.len == self.len_max {
                return false;
            }
            self.len += 1;
            self.words[at..at + 2].copy_from_slice(&hash);
        }
        self.words[at + 2] = offset.0 as u64 + 1;
        true
    }

    /// The newest offset of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let at = self.find(hash(self.secret, key));
        self.words[at + 2].checked_sub(1).map(|offset| Offset(offset as i64))
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const SECRET: HashSecret = HashSecret([7, 8]);

    #[test]
    fn a_full_map_takes_known_keys_and_no_new_one() {
        let mut map = KeyMap::new(10 * SLOT_BYTES, u64::MAX, SECRET);
        for n in 0..9u8 {
            assert!(map.put(&[n], Offset(i64::from(n))));
        }
        assert!(!map.put(b"new", Offset(9)));
        assert!(map.put(&[3], Offset(10)));
        assert_eq!((map.get(&[3]), map.get(&[4]), map.get(b"new")), (Some(Offset(10)), Some(Offset(4)), None));
    }

    #[test]
    fn the_map_is_no_larger_than_the_records_need_and_never_too_small_for_one() {
        assert!(KeyMap::new(1 << 30, 100, SECRET).slots < 120);
        let mut least = KeyMap::new(0, 0, SECRET);
        assert!(least.put(b"", Offset(0)), "an empty key is a key");
        assert_eq!(least.get(b""), Some(Offset(0)));
    }

    proptest! {
        #[test]
        fn the_map_says_what_a_map_of_keys_says(
            puts in prop::collection::vec(prop::collection::vec(0u8..4, 0..3), 0..60)
        ) {
            let (mut map, mut model) = (KeyMap::new(64 * SLOT_BYTES, 100, SECRET), HashMap::new());
            for (offset, key) in puts.iter().enumerate() {
                prop_assert!(map.put(key, Offset(offset as i64)));
                model.insert(key.clone(), Offset(offset as i64));
            }
            prop_assert_eq!(map.len(), model.len());
            for key in [vec![], vec![0], vec![1, 2], vec![9]].iter().chain(&puts) {
                prop_assert_eq!(map.get(key), model.get(key).copied());
            }
        }
    }
}
