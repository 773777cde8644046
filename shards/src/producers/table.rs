//! Entries by producer id, and the order in which they were last used.
//!
//! Owner: `Producers`. The entries lie densely in one vector; a hash table holds their positions, which keeps the room
//! that a half-empty hash table wastes at four bytes a slot instead of a whole entry. Entries without an open
//! transaction hang on a list from the least to the most recently used, so that the next one to forget is found at
//! once. Hashing has a fixed seed: the same history gives the same table.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::ids::ProducerId;
use crate::producers::entry::{Entry, NO_LINK};

const HASHER: FixedState = FixedState::with_seed(0x0c11_1a5e_ed00_0001);

#[derive(Clone, Debug)]
pub(super) struct Table {
    positions: HashTable<u32>,
    entries: Vec<Entry>,
    oldest: u32,
    newest: u32,
}

#[inline]
fn hash_of(producer_id: i64) -> u64 {
    HASHER.hash_one(producer_id)
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { positions: HashTable::new(), entries: Vec::new(), oldest: NO_LINK, newest: NO_LINK }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries in no order that may be shown.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.positions.allocation_size()
    }

    #[inline]
    pub(super) fn find(&self, producer_id: ProducerId) -> Option<u32> {
        let id = producer_id.0;
        self.positions.find(hash_of(id), |&at| self.entries[at as usize].producer_id == id).copied()
    }

    #[inline]
    pub(super) fn get(&self, producer_id: ProducerId) -> Option<&Entry> {
        self.find(producer_id).map(|at| &self.entries[at as usize])
    }

    #[inline]
    pub(super) fn at(&mut self, at: u32) -> &mut Entry {
        &mut self.entries[at as usize]
    }

    /// Adds an entry that is not on the list of use yet. The producer has none.
    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        let at = u32::try_from(self.entries.len()).expect("fewer producers than 2^32");
        if self.entries.len() == self.entries.capacity() {
            // A quarter at a time: doubling would leave up to half of the memory unused.
            self.entries.reserve_exact((self.entries.len() / 4).max(1));
        }
        let hash = hash_of(entry.producer_id);
        self.entries.push(entry);
        let entries = &self.entries;
        self.positions.insert_unique(hash, at, |&other| hash_of(entries[other as usize].producer_id));
        at
    }

    /// The entry unused for longest among those without an open transaction.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NO_LINK).then_some(self.oldest)
    }

    /// The entries on the list of use, the one unused for longest first.
    pub(super) fn by_use(&self) -> impl Iterator<Item = &Entry> {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            next = entry.newer;
            Some(entry)
        })
    }

    /// Puts an entry at the most recent end of the list.
    pub(super) fn link_newest(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let entry = self.at(at);
        (entry.older, entry.newer) = (before, NO_LINK);
        self.point(before, at, false);
    }

    /// Takes an entry off the list.
    pub(super) fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        self.point(older, newer, false);
        self.point(newer, older, true);
    }

    /// Removes an entry that is off the list. Another entry may take its place.
    pub(super) fn remove(&mut self, at: u32) {
        let id = self.entries[at as usize].producer_id;
        let slot = self.positions.find_entry(hash_of(id), |&other| other == at);
        slot.unwrap_or_else(|_| panic!("producer {id} has no position")).remove();
        self.entries.swap_remove(at as usize);
        let moved_from = self.entries.len() as u32;
        if moved_from != at {
            self.moved(moved_from, at);
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
            let entries = &self.entries;
            self.positions.shrink_to(entries.len() * 2, |&other| hash_of(entries[other as usize].producer_id));
        }
    }

    /// Points everything that knew the entry now at `to` under its old position there.
    fn moved(&mut self, from: u32, to: u32) {
        let Entry { producer_id, older, newer, txn_first_offset, .. } = self.entries[to as usize];
        let slot = self.positions.find_mut(hash_of(producer_id), |&other| other == from);
        *slot.expect("every entry has a position") = to;
        if txn_first_offset < 0 {
            self.point(older, to, false);
            self.point(newer, to, true);
        }
    }

    /// Sets one link of the entry at `at`, or the end of the list where there is none.
    fn point(&mut self, at: u32, to: u32, backwards: bool) {
        match (at, backwards) {
            (NO_LINK, false) => self.oldest = to,
            (NO_LINK, true) => self.newest = to,
            (_, false) => self.at(at).newer = to,
            (_, true) => self.at(at).older = to,
        }
    }
}
