//! The transaction coordinator of one shard: who may write under a transactional id, what its transaction touches, and
//! how it ends.
//!
//! Owned by the shard that owns the id's slot. [`Transactions::ask`] decides about a request; [`Transactions::tick`]
//! lets time pass. Every transition is an [`Entry`] of the slot's journal, and state is rebuilt from them.
//!
//! # What waits for what
//! A transition is decided at once and *pending* until its entry is durable. These wait, and nothing else does:
//! - An answer waits for every transition that the id had made before it: nobody hears of what a crash takes back.
//! - Markers wait for Prepare*: that entry is the decision.
//! - The answer to EndTxn waits for Prepare* alone and leaves together with the markers: a crash makes the dispatch set
//!   anew from the entry.
//! - All markers of a transaction, and those of others, run at the same time: the decision is made, and a marker that
//!   is written again changes nothing. Pending offsets follow when every partition has its marker, then Complete*.
//! - Complete* waits for all acknowledgements. The next transition of the id does not wait for Complete* to be durable,
//!   and a write for it alone is left to the next tick: whatever builds on it stands behind it in the same journal, so
//!   its answer waits for both; and a crash that loses it finds Prepare* and sends the markers again.
//! - An abort by InitProducerId or by a timeout is one entry: the epoch is bumped if, and only if, the transaction is
//!   decided. The request that caused it parks until it is complete.
//! - InitProducerId waits for its entry and for the fence on every shard, which run at the same time: a fence without
//!   its entry refuses only a producer that the next InitProducerId refuses too.
//! - The first write of a partition need not wait for its add ([`Effect::Granted`]), only the answer to the client
//!   waits for both. If a crash keeps the write alone, [`Request::Adopt`] finds it and brings it into the transaction.
//!   It is granted only if a marker that is sent again cannot hit the write: after Complete* is durable, or behind a
//!   Complete* of path B, whose markers a partition that is open at their own epoch refuses.
//! - An add may follow an add that is pending. Every other request parks until the id has come to rest (pending or
//!   completing) and is then decided; CONCURRENT_TRANSACTIONS is said at its deadline only.
//!
//! Three requirements on partitions and groups follow from `Granted`: what they find open when loaded they report by
//! `Adopt` before they serve, and until that is answered contract A4 c ("open at this epoch, no coordinator call") does
//! not hold there; nor does it for what was written behind an add that failed. And what is open in such doubt takes no
//! batch of a newer epoch, whose transaction it would join.
//!
//! Limits: `TXN_IDS_MAX` and `TXN_OPEN_MAX` a slot, `TXN_MEMBERS_MAX` a transaction, `TXN_PARKED_MAX` requests a slot.
//! Failure: a failed journal write takes the slot offline; whoever waits, and whoever asks from then on, hears
//! COORDINATOR_NOT_AVAILABLE until the next start, which finds every transaction where its last durable entry put it.

mod add;
mod adopt;
mod ask;
mod decision;
mod describe;
mod end;
mod entry;
mod fences;
mod init;
mod look;
mod markers;
mod reap;
mod settings;
mod slot;
mod state;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::ask::*;
use self::decision::ProducerIds;
pub use self::describe::{ListFilter, Listing};
pub use self::entry::{Change, Entry};
pub use self::fences::{FenceEntry, Fences};
pub use self::look::{OpenTxn, unknown_to_all};
pub use self::markers::{
    Fence, Marker, MarkerAnswer, MarkerBatch, MarkerFile, OffsetsHook, Place, Places, TxnKey, ends,
};
pub use self::settings::TxnSettings;
use self::slot::Slot;
pub use self::state::{Head, Joining, State};
use self::turn::{Outbox, Turn};
use crate::code::ErrorCode;
pub use crate::groups::Now;
use crate::ids::{ProducerId, SlotId, TimestampMs};
use crate::partition::WaiterId;
use crate::slot::{Journal, slot_of};

/// Names a fence until it is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FenceId(pub u64);

/// What has to happen outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The answer to a request.
    Reply(WaiterId, Result<Reply, ErrorCode>),
    /// The add that this waiter asked for is decided, its answer follows: the write that it is for may begin.
    Granted(WaiterId),
    /// The slot's journal has something to write and no writer runs: start one.
    StartWriter(SlotId),
    /// Write these markers, durably, and tell [`Transactions::marked`] of every partition, once: also if it failed.
    SendMarkers(MarkerBatch),
    /// The same for another broker.
    QueueMarkers(MarkerFile),
    /// End these pending offsets, durably, and tell [`Transactions::hooked`] of every group, once: also if it failed.
    OffsetsHook(OffsetsHook),
    /// Put this fence up on every shard and in the fence log, then tell [`Transactions::fenced`].
    Fence {
        /// Slot that waits for it.
        slot: SlotId,
        /// Its name.
        id: FenceId,
        /// What it refuses.
        fence: Fence,
    },
    /// Producer ids run out: bring `TXN_PRODUCER_IDS_MIN` or more to [`Transactions::stock`], or none if there are none
    /// to be had, after a pause: it asks again.
    WantProducerIds,
}

/// Effects in the order in which they must be carried out.
pub type Effects = Vec<Effect>;

/// How much there is, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnCounts {
    /// Transactional ids.
    pub ids: usize,
    /// Open transactions.
    pub open: usize,
    /// Decided transactions whose markers are not all written.
    pub completing: usize,
    /// Requests that wait for one.
    pub parked: usize,
    /// Transactions aborted since the start because they were open for too long.
    pub timed_out: u64,
    /// Transactions aborted since the start because InitProducerId took their id over.
    pub taken_over: u64,
}

/// All transactional ids of one shard.
#[derive(Debug)]
pub struct Transactions {
    settings: TxnSettings,
    places: Arc<dyn Places>,
    coordinator_epoch: i32,
    producer_ids: ProducerIds,
    fences: FenceId,
    slots: BTreeMap<SlotId, Slot>,
}

impl Transactions {
    /// A shard without slots; markers carry `coordinator_epoch`.
    #[must_use]
    pub fn new(settings: TxnSettings, coordinator_epoch: i32, places: Arc<dyn Places>) -> Self {
        let (producer_ids, fences, slots) = (ProducerIds::default(), FenceId::default(), BTreeMap::new());
        Self { settings, places, coordinator_epoch, producer_ids, fences, slots }
    }

    /// Takes over a slot: its journal as recovered, and the entries that rebuild it in their order. Markers of what is
    /// decided are sent again.
    pub fn insert(
        &mut self,
        id: SlotId,
        journal: Journal,
        entries: impl IntoIterator<Item = Entry>,
        now: Now,
        effects: &mut Effects,
    ) {
        let before = self.slots.insert(id, Slot::restored(id, journal, entries));
        assert!(before.is_none(), "slot {id} has one owner");
        self.on_slot(id, now, effects, Slot::loaded);
    }

    /// Decides about one request to `id`; its answer is an [`Effect::Reply`] for `waiter`, now or later.
    pub fn ask(&mut self, id: &str, ask: Ask, waiter: WaiterId, now: Now, effects: &mut Effects) {
        let checked = match &ask.request {
            Request::Init(init) => init::check_form(id, init, &self.settings),
            _ if id.is_empty() => Err(ErrorCode::InvalidRequest),
            _ => Ok(()),
        };
        let slot_id = slot_of(id.as_bytes());
        let refusal = match (checked, self.slots.get(&slot_id)) {
            (Err(code), _) => Some(code),
            (_, None) => Some(ErrorCode::NotCoordinator),
            (_, Some(slot)) if slot.journal.is_offline() => Some(ErrorCode::CoordinatorNotAvailable),
            _ => None,
        };
        match refusal {
            Some(code) => effects.push(Effect::Reply(waiter, Err(code))),
            None => self.on_slot(slot_id, now, effects, |slot, turn| slot.ask(id, ask, waiter, turn)),
        }
    }

    /// Partitions have answered to markers of one transaction.
    pub fn marked(&mut self, txn: &TxnKey, answers: &[MarkerAnswer], now: Now, effects: &mut Effects) {
        let slot_id = slot_of(txn.id.as_bytes());
        self.on_slot(slot_id, now, effects, |slot, turn| slot.marked(txn, answers, turn));
    }

    /// Groups have answered to the end of one transaction.
    pub fn hooked(&mut self, txn: &TxnKey, answers: &[(Arc<str>, ErrorCode)], now: Now, effects: &mut Effects) {
        let slot_id = slot_of(txn.id.as_bytes());
        self.on_slot(slot_id, now, effects, |slot, turn| slot.hooked(txn, answers, turn));
    }

    /// A fence is up everywhere.
    pub fn fenced(&mut self, slot_id: SlotId, id: FenceId, now: Now, effects: &mut Effects) {
        self.on_slot(slot_id, now, effects, |slot, turn| slot.fenced(id, turn));
    }

    /// Lets time pass: requests that waited long enough, markers to send again, transactions and ids that are over.
    pub fn tick(&mut self, now: Now, effects: &mut Effects) {
        self.on_all(now, effects, Slot::tick);
    }

    /// A write of a slot's journal is durable, or failed: what waited for it goes on.
    pub fn settled(&mut self, id: SlotId, now: Now, effects: &mut Effects) {
        self.on_slot(id, now, effects, |_, _| ());
    }

    /// Partitions have moved, come or gone.
    pub fn set_places(&mut self, places: Arc<dyn Places>, now: Now, effects: &mut Effects) {
        self.places = places;
        self.on_all(now, effects, Slot::places_changed);
    }

    /// Takes producer ids in that were never handed out and never will be again.
    pub fn stock(&mut self, ids: impl IntoIterator<Item = ProducerId>) {
        self.producer_ids.stock(ids);
    }

    /// Whether there is a producer id at hand.
    #[must_use]
    pub fn has_producer_ids(&self) -> bool {
        self.producer_ids.any()
    }

    /// All ids that the filter lets through and that have a `wanted` name, by slot and name.
    #[must_use]
    pub fn list(&self, filter: &ListFilter, now: Now, wanted: &dyn Fn(&str) -> bool) -> Vec<Listing> {
        self.slots.values().flat_map(|slot| slot.list(filter, now, wanted)).collect()
    }

    /// Which id a producer id belongs to, or will once its transaction is complete. Looks at every id: for a start.
    #[must_use]
    pub fn owner_of(&self, producer_id: ProducerId) -> Option<Arc<str>> {
        self.slots.values().find_map(|slot| slot.owner_of(producer_id))
    }

    /// A slot's journal, if this shard owns the slot.
    pub fn journal_mut(&mut self, id: SlotId) -> Option<&mut Journal> {
        self.slots.get_mut(&id).map(|slot| &mut slot.journal)
    }

    /// Slots of this shard.
    pub fn slot_ids(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.slots.keys().copied()
    }

    /// Entries that rebuild a slot as it is decided now: what a checkpoint holds.
    #[must_use]
    pub fn snapshot(&self, id: SlotId) -> Vec<Entry> {
        self.slots.get(&id).map(Slot::snapshot).unwrap_or_default()
    }

    /// How much there is.
    #[must_use]
    pub fn counts(&self) -> TxnCounts {
        self.slots.values().map(Slot::counts).fold(TxnCounts::default(), |sum, slot| TxnCounts {
            ids: sum.ids + slot.ids,
            open: sum.open + slot.open,
            completing: sum.completing + slot.completing,
            parked: sum.parked + slot.parked,
            timed_out: sum.timed_out + slot.timed_out,
            taken_over: sum.taken_over + slot.taken_over,
        })
    }

    /// When the oldest open transaction began. Looks at all of them.
    #[must_use]
    pub fn oldest_open(&self) -> Option<TimestampMs> {
        self.slots.values().filter_map(Slot::oldest_open).min()
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &TxnSettings {
        &self.settings
    }

    /// Replaces the settings, because one was changed while running.
    pub fn set_settings(&mut self, settings: TxnSettings) {
        self.settings = settings;
    }

    fn on_slot(&mut self, id: SlotId, now: Now, effects: &mut Effects, step: impl FnOnce(&mut Slot, &mut Turn<'_>)) {
        let (slots, mut turn) = self.turn(now, effects);
        if let Some(slot) = slots.get_mut(&id) {
            if !slot.journal.is_offline() {
                step(slot, &mut turn);
            }
            slot.settle(&mut turn);
        }
        turn.finish();
    }

    fn on_all(&mut self, now: Now, effects: &mut Effects, step: impl Fn(&mut Slot, &mut Turn<'_>)) {
        let (slots, mut turn) = self.turn(now, effects);
        for slot in slots.values_mut() {
            if !slot.journal.is_offline() {
                step(slot, &mut turn);
            }
            slot.settle(&mut turn);
        }
        turn.finish();
    }

    fn turn<'a>(&'a mut self, now: Now, effects: &'a mut Effects) -> (&'a mut BTreeMap<SlotId, Slot>, Turn<'a>) {
        let turn = Turn {
            now,
            settings: &self.settings,
            places: &*self.places,
            coordinator_epoch: self.coordinator_epoch,
            producer_ids: &mut self.producer_ids,
            fences: &mut self.fences,
            outbox: Outbox::default(),
            effects,
        };
        (&mut self.slots, turn)
    }
}
