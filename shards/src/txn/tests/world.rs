//! A broker around the coordinator that does everything only when it is told to: the disk, the fences, the markers.
//!
//! What a crash leaves is what was written. With every answer it checks that nothing is said before it is durable.

use std::collections::{BTreeMap, BTreeSet};

use super::super::state::Members;
use super::*;
use crate::limits::TXN_PRODUCER_IDS_MIN;
use crate::slot::rebuild::Rebuild;
use crate::slot::{JournalWrite, checkpoint};

#[derive(Debug, Default)]
pub struct Disk {
    checkpoint: Option<Vec<u8>>,
    journal: Vec<u8>,
    writing: Option<JournalWrite>,
    has_writer: bool,
}

/// Partitions are spread over three shards; some may be away.
#[derive(Clone, Debug, Default)]
pub struct Map {
    pub gone: BTreeSet<PartitionKey>,
    pub nowhere: BTreeSet<PartitionKey>,
    pub elsewhere: BTreeSet<PartitionKey>,
}

impl Places for Map {
    fn partition(&self, key: PartitionKey) -> Place {
        if self.gone.contains(&key) {
            return Place::Gone;
        }
        if self.nowhere.contains(&key) {
            return Place::Nowhere;
        }
        if self.elsewhere.contains(&key) {
            return Place::Broker(crate::ids::BrokerId(9));
        }
        Place::Shard(crate::ids::ShardId((key.index % 3) as u16))
    }

    fn group(&self, group: &str) -> crate::ids::ShardId {
        crate::ids::ShardId(group.len() as u16 % 3)
    }
}

#[derive(Debug)]
pub struct World {
    pub txns: Transactions,
    pub now: Now,
    pub map: Map,
    pub disks: BTreeMap<SlotId, Disk>,
    pub replies: BTreeMap<WaiterId, Result<Reply, ErrorCode>>,
    pub granted: BTreeSet<WaiterId>,
    pub markers: Vec<Marker>,
    pub hooks: Vec<OffsetsHook>,
    pub fences: Vec<(SlotId, FenceId, Fence)>,
    /// How each transaction was first seen to end, and by whom.
    pub outcomes: BTreeMap<TxnKey, (Outcome, Identity)>,
    /// Which members have acknowledged.
    pub acknowledged: BTreeSet<(TxnKey, PartitionKey)>,
    pub hooked: BTreeSet<(TxnKey, Arc<str>)>,
    pub patience_ms: u64,
    /// Whether asked-for producer ids come.
    pub gives_ids: bool,
    asked: BTreeMap<WaiterId, (Arc<str>, Request)>,
    next_waiter: u64,
    next_id: i64,
    boot: i32,
}

impl World {
    pub fn new(version: i16) -> Self {
        Self::with(TxnSettings { version, ..TxnSettings::default() })
    }

    pub fn with(settings: TxnSettings) -> Self {
        let now = Now { wall: TimestampMs(1_000_000), mono_ms: 5_000 };
        let mut world = Self {
            txns: Transactions::new(settings, 1, Arc::new(Map::default())),
            now,
            map: Map::default(),
            disks: BTreeMap::new(),
            replies: BTreeMap::new(),
            granted: BTreeSet::new(),
            markers: Vec::new(),
            hooks: Vec::new(),
            fences: Vec::new(),
            outcomes: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            hooked: BTreeSet::new(),
            patience_ms: 1000,
            gives_ids: true,
            asked: BTreeMap::new(),
            next_waiter: 0,
            next_id: 100,
            boot: 1,
        };
        world.load();
        world
    }

    fn load(&mut self) {
        for slot in 0..crate::limits::SLOTS {
            let disk = self.disks.entry(SlotId(slot)).or_default();
            let mut rebuild = Rebuild::new(disk.checkpoint.as_deref()).expect("the checkpoint is whole");
            rebuild.journal(&disk.journal).expect("the journal goes on");
            let (journal, entries) = rebuild.finish();
            let mut effects = Vec::new();
            self.txns.insert(SlotId(slot), journal, entries, self.now, &mut effects);
            self.carry(effects);
        }
        self.stock();
    }

    fn stock(&mut self) {
        if self.gives_ids {
            let first = self.next_id;
            self.next_id += TXN_PRODUCER_IDS_MIN as i64;
            self.txns.stock((first..self.next_id).map(ProducerId));
        }
    }

    /// Everything that is not written is lost, and so is who waited.
    pub fn crash(&mut self) {
        self.boot += 1;
        let settings = self.txns.settings().clone();
        self.txns = Transactions::new(settings, self.boot, Arc::new(self.map.clone()));
        for disk in self.disks.values_mut() {
            (disk.writing, disk.has_writer) = (None, false);
        }
        (self.markers, self.hooks, self.fences) = (Vec::new(), Vec::new(), Vec::new());
        self.asked.clear();
        self.granted.clear();
        self.load();
    }

    pub fn set_map(&mut self, map: Map) {
        self.map = map.clone();
        self.step(|txns, now, effects| txns.set_places(Arc::new(map), now, effects));
    }

    pub fn step(&mut self, step: impl FnOnce(&mut Transactions, Now, &mut Effects)) {
        let mut effects = Vec::new();
        step(&mut self.txns, self.now, &mut effects);
        self.carry(effects);
    }

    fn carry(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Reply(waiter, reply) => {
                    self.check_reply(waiter, &reply);
                    assert!(self.replies.insert(waiter, reply).is_none(), "one answer");
                }
                Effect::Granted(waiter) => assert!(self.granted.insert(waiter), "granted once"),
                Effect::StartWriter(slot) => {
                    let disk = self.disks.get_mut(&slot).expect("a slot has a disk");
                    assert!(!std::mem::replace(&mut disk.has_writer, true), "one writer a slot");
                }
                Effect::SendMarkers(batch) => {
                    for marker in &batch.markers {
                        let here = |key: &PartitionKey| self.map.partition(*key) == Place::Shard(batch.to);
                        assert!(!marker.partitions.is_empty() && marker.partitions.iter().all(here));
                    }
                    self.sent(batch.markers);
                }
                Effect::QueueMarkers(file) => {
                    assert!(file.marker.partitions.iter().all(|key| self.map.elsewhere.contains(key)));
                    self.sent(vec![file.marker]);
                }
                Effect::OffsetsHook(hook) => {
                    self.check_outcome(&hook.txn, hook.outcome, hook.producer);
                    self.hooks.push(hook);
                }
                Effect::Fence { slot, id, fence } => self.fences.push((slot, id, fence)),
                Effect::WantProducerIds => self.stock(),
            }
        }
    }

    fn sent(&mut self, markers: Vec<Marker>) {
        for marker in markers {
            self.check_outcome(&marker.txn, marker.outcome, marker.producer);
            self.markers.push(marker);
        }
    }

    /// No two outcomes of one transaction, and none that is not durable.
    fn check_outcome(&mut self, txn: &TxnKey, outcome: Outcome, producer: Identity) {
        let first = self.outcomes.entry(txn.clone()).or_insert((outcome, producer));
        assert_eq!(*first, (outcome, producer), "{txn:?}");
        let durable = self.durable(&txn.id).expect("a decided transaction is on disk");
        assert!(durable.0.sequence >= txn.sequence, "{txn:?} is told before it is durable");
    }

    /// The id as a crash would leave it now.
    pub fn durable(&self, id: &str) -> Option<(Head, Members)> {
        let disk = &self.disks[&slot_of(id.as_bytes())];
        let (mut head, mut members) = (None, Members::default());
        for entry in self.entries(disk, &[]).into_iter().filter(|entry| &*entry.id == id) {
            head = entry.change.applied(head.as_ref());
            entry.change.apply_members(&mut members, crate::slot::Position(0));
        }
        head.map(|head| (head, members))
    }

    /// What a start would find, with some more lines behind it.
    fn entries(&self, disk: &Disk, more: &[u8]) -> Vec<Entry> {
        let mut rebuild = Rebuild::new(disk.checkpoint.as_deref()).expect("the checkpoint is whole");
        rebuild.journal(&[&disk.journal, more].concat()).expect("the journal goes on");
        rebuild.finish().1
    }

    /// An answer never tells more than the disk has.
    fn check_reply(&mut self, waiter: WaiterId, reply: &Result<Reply, ErrorCode>) {
        let Some((id, request)) = self.asked.remove(&waiter) else { panic!("nobody waits as {waiter:?}") };
        let durable = self.durable(&id);
        let is_left_behind = |told: Identity, head: &Head| {
            told.producer_id != head.next_identity().producer_id || told.epoch <= head.next_identity().epoch
        };
        match (reply, request) {
            (Ok(Reply::Init(told)), _) => {
                assert!(is_left_behind(*told, &durable.expect("it is on disk").0), "{told:?} can be given again");
            }
            (Ok(Reply::Ended(told)), Request::End(end)) => {
                let (head, _) = durable.expect("it is on disk");
                assert!(is_left_behind(*told, &head), "{told:?} can be taken back");
                let goes_on = head.state == State::Ongoing && head.identity() == end.producer;
                assert!(!goes_on || !end.bumps, "the decision can be taken back");
            }
            (Ok(Reply::Added), Request::Add(add)) => {
                let (head, members) = durable.expect("it is on disk");
                let same = head.identity() == add.producer && head.state == State::Ongoing;
                assert!(!same || members.has_all(&add.partitions, &add.groups), "the add can be taken back");
                assert!(same || head.sequence > 0 || head.update >= TimestampMs(0));
            }
            _ => {}
        }
    }

    pub fn ask(&mut self, id: &str, request: Request) -> WaiterId {
        self.next_waiter += 1;
        let waiter = WaiterId(self.next_waiter);
        self.asked.insert(waiter, (id.into(), request.clone()));
        let ask = Ask { request, until_ms: self.now.mono_ms + self.patience_ms };
        self.step(|txns, now, effects| txns.ask(id, ask, waiter, now, effects));
        waiter
    }

    /// The answer once everything was done; asks and lets all go on.
    pub fn answer(&mut self, id: &str, request: Request) -> Result<Reply, ErrorCode> {
        let waiter = self.ask(id, request);
        self.run();
        self.replies[&waiter].clone()
    }

    pub fn init(&mut self, id: &str, given: Identity) -> Result<Identity, i16> {
        match self.answer(id, super::init(given)) {
            Ok(Reply::Init(identity)) => Ok(identity),
            other => Err(code(&other)),
        }
    }

    pub fn end(&mut self, id: &str, request: Request) -> Result<Identity, i16> {
        match self.answer(id, request) {
            Ok(Reply::Ended(identity)) => Ok(identity),
            other => Err(code(&other)),
        }
    }

    pub fn state(&mut self, id: &str) -> (&'static str, Identity) {
        match self.answer(id, Request::Describe) {
            Ok(Reply::Described(described)) => (described.state, described.producer),
            other => panic!("{other:?}"),
        }
    }

    /// The state as others see it at this moment.
    pub fn state_now(&mut self, id: &str) -> &'static str {
        let waiter = self.ask(id, Request::Describe);
        match &self.replies[&waiter] {
            Ok(Reply::Described(described)) => described.state,
            other => panic!("{other:?}"),
        }
    }

    /// Begins the next write of a slot if a writer is at work.
    pub fn begin_write(&mut self, slot: SlotId) -> bool {
        let disk = self.disks.get_mut(&slot).expect("a slot has a disk");
        if !disk.has_writer || disk.writing.is_some() {
            return false;
        }
        let journal = self.txns.journal_mut(slot).expect("it is owned");
        disk.writing = journal.take_write();
        disk.has_writer = disk.writing.is_some();
        self.check_completes(slot);
        true
    }

    /// No Complete* before every acknowledgement.
    fn check_completes(&self, slot: SlotId) {
        let disk = &self.disks[&slot];
        let Some(write) = &disk.writing else { return };
        let mut rebuilt: BTreeMap<Arc<str>, (Option<Head>, Members)> = BTreeMap::new();
        for entry in self.entries(disk, &write.bytes) {
            let (head, members) = rebuilt.entry(entry.id.clone()).or_default();
            if let (Change::Complete { .. }, Some(head)) = (&entry.change, &head) {
                let txn = TxnKey { id: entry.id.clone(), sequence: head.sequence };
                for key in members.partitions.keys() {
                    let done = self.acknowledged.contains(&(txn.clone(), *key)) || self.map.gone.contains(key);
                    assert!(done, "{txn:?} is complete without {key}");
                }
                assert!(members.groups.keys().all(|group| self.hooked.contains(&(txn.clone(), group.clone()))));
            }
            let before = head.clone();
            *head = entry.change.applied(head.as_ref());
            entry.change.apply_members(members, crate::slot::Position(0));
            if let (Some(before), Some(after)) = (before, &head) {
                let same = before.producer_id == after.producer_id;
                assert!(!same || before.epoch <= after.epoch, "{before:?} -> {after:?}: an epoch goes back");
            }
        }
    }

    pub fn end_write(&mut self, slot: SlotId) -> bool {
        let disk = self.disks.get_mut(&slot).expect("a slot has a disk");
        let Some(write) = disk.writing.take() else { return false };
        disk.journal.extend_from_slice(&write.bytes);
        self.txns.journal_mut(slot).expect("it is owned").wrote();
        self.step(|txns, now, effects| txns.settled(slot, now, effects));
        true
    }

    /// A write fails, although it may have reached the disk.
    pub fn fail_write(&mut self, slot: SlotId, is_there: bool) {
        let disk = self.disks.get_mut(&slot).expect("a slot has a disk");
        let lost = disk.writing.take();
        if let Some(write) = lost.filter(|_| is_there) {
            disk.journal.extend_from_slice(&write.bytes);
        }
        disk.has_writer = false;
        self.txns.journal_mut(slot).expect("it is owned").fail();
        self.step(|txns, now, effects| txns.settled(slot, now, effects));
    }

    /// Replaces what a slot has on disk by a checkpoint.
    pub fn checkpoint(&mut self, slot: SlotId) {
        let is_offline = self.txns.journal_mut(slot).expect("it is owned").is_offline();
        if self.disks[&slot].writing.is_none() && !is_offline {
            let entries = self.txns.snapshot(slot);
            let journal = self.txns.journal_mut(slot).expect("it is owned");
            let bytes = checkpoint::encode(journal.checkpoint_started(), &entries);
            journal.checkpointed(bytes.len() as u64);
            let disk = self.disks.get_mut(&slot).expect("a slot has a disk");
            (disk.checkpoint, disk.journal) = (Some(bytes), Vec::new());
        }
    }

    /// Changes the heads in a slot's checkpoint, to begin where no test has the patience to come to.
    pub fn edit_checkpoint(&mut self, slot: SlotId, edit: impl Fn(&mut Head)) {
        let disk = self.disks.get_mut(&slot).expect("a slot has a disk");
        let (position, mut entries) =
            checkpoint::decode::<Entry>(disk.checkpoint.as_deref().expect("there is one")).expect("it is whole");
        for entry in &mut entries {
            if let Change::Whole { head, .. } = &mut entry.change {
                edit(head);
            }
        }
        disk.checkpoint = Some(checkpoint::encode(position, &entries));
    }

    pub fn write_all(&mut self) -> bool {
        let slots: Vec<_> = self.disks.keys().copied().collect();
        let mut any = false;
        for slot in slots {
            while self.begin_write(slot) | self.end_write(slot) {
                any = true;
            }
        }
        any
    }

    pub fn raise_fences(&mut self) -> bool {
        let fences = std::mem::take(&mut self.fences);
        let any = !fences.is_empty();
        for (slot, id, _) in fences {
            self.step(|txns, now, effects| txns.fenced(slot, id, now, effects));
        }
        any
    }

    /// Every partition of a marker answers the same.
    pub fn mark(&mut self, marker: &Marker, code: ErrorCode, coordinator_epoch: i32) {
        let answer = |partition: &PartitionKey| MarkerAnswer { partition: *partition, code, coordinator_epoch };
        let answers: Vec<_> = marker.partitions.iter().map(answer).collect();
        if code.is_none() || code == ErrorCode::InvalidProducerEpoch {
            let done = marker.partitions.iter().map(|key| (marker.txn.clone(), *key));
            self.acknowledged.extend(done);
        }
        self.step(|txns, now, effects| txns.marked(&marker.txn, &answers, now, effects));
    }

    pub fn hook(&mut self, hook: &OffsetsHook, code: ErrorCode) {
        let answers: Vec<_> = hook.groups.iter().map(|group| (group.clone(), code)).collect();
        if code.is_none() {
            self.hooked.extend(hook.groups.iter().map(|group| (hook.txn.clone(), group.clone())));
        }
        self.step(|txns, now, effects| txns.hooked(&hook.txn, &answers, now, effects));
    }

    pub fn mark_all(&mut self) -> bool {
        let (markers, hooks) = (std::mem::take(&mut self.markers), std::mem::take(&mut self.hooks));
        let any = !markers.is_empty() || !hooks.is_empty();
        markers.iter().for_each(|marker| self.mark(marker, ErrorCode::None, 0));
        hooks.iter().for_each(|hook| self.hook(hook, ErrorCode::None));
        any
    }

    /// Does all that is to be done but markers.
    pub fn run_without_markers(&mut self) {
        while self.write_all() | self.raise_fences() {}
    }

    /// Does all that is to be done.
    pub fn run(&mut self) {
        while self.write_all() | self.raise_fences() | self.mark_all() {}
    }

    pub fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall.0 += ms as i64;
        self.step(|txns, now, effects| txns.tick(now, effects));
    }
}
