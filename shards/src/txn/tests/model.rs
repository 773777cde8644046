//! Producers, partitions and crashes around the coordinator: invariants I1, I2, I4 and I5 of contract F85.
//!
//! Partitions are modelled by the rules of A5 and A6 that transactions depend on, and outlive a crash with everything
//! that was written. Producers behave as clients do: they repeat what got no answer, abort what failed, start anew
//! beside their own ghosts. Two that fight for one id speak the same path: where they do not, B6 tells a ghost at the
//! epoch before that the other's path A end was its own (r = 1 looks at E alone), as Kafka does. Pending offsets of a
//! group are modelled as one more partition. [`World`] checks every answer, marker and Complete* on the way; at the end
//! every transaction must be visible as a whole or not at all, as its producer was told.

use std::collections::{BTreeMap, BTreeSet};

use Outcome::{Abort, Commit};
use proptest::collection::vec;
use proptest::prelude::*;

use super::world::World;
use super::*;

const PARTITIONS: i32 = 3;
/// The log behind those of the partitions: what is pending in a group.
const GROUP: i32 = PARTITIONS;
const NAMES: [&str; 3] = ["a", "a", "b"];

/// One record, by its number.
type Tag = usize;

/// What a partition knows of one producer id.
#[derive(Debug, Default)]
struct Entry {
    epoch: i16,
    open: Option<Vec<Tag>>,
    seen: BTreeSet<Tag>,
    /// Found open when it was loaded, and not told yet whose it is.
    reported: Option<WaiterId>,
}

#[derive(Debug, Default)]
struct Log {
    entries: BTreeMap<ProducerId, Entry>,
    committed: Vec<Tag>,
}

/// The partition or the group of a log.
fn members(log: i32) -> (Vec<PartitionKey>, Vec<Arc<str>>) {
    if log == GROUP { (vec![], vec!["g".into()]) } else { (vec![partition(log)], vec![]) }
}

fn joining(producer: Identity, by: AddBy, log: i32) -> Request {
    let (partitions, groups) = members(log);
    Request::Add(Add { producer, partitions, groups, by })
}

impl Log {
    fn is_open(&self, producer: Identity) -> bool {
        self.entries
            .get(&producer.producer_id)
            .is_some_and(|entry| entry.open.is_some() && entry.epoch == producer.epoch.0 && entry.reported.is_none())
    }

    fn is_loading(&self, producer: Identity) -> bool {
        self.entries.get(&producer.producer_id).is_some_and(|entry| entry.reported.is_some())
    }

    /// Whether the record is there afterwards: written, or a duplicate.
    fn append(&mut self, producer: Identity, tag: Tag) -> bool {
        let entry = self.entries.entry(producer.producer_id).or_default();
        if producer.epoch.0 < entry.epoch || entry.reported.is_some() {
            return false;
        }
        if producer.epoch.0 > entry.epoch {
            assert!(entry.open.is_none(), "{producer:?} meets an open transaction of an epoch before");
            (entry.epoch, entry.seen) = (producer.epoch.0, BTreeSet::new());
        }
        if entry.seen.insert(tag) {
            entry.open.get_or_insert_default().push(tag);
        }
        true
    }

    fn mark(&mut self, producer: Identity, outcome: Outcome, version: i8) -> ErrorCode {
        let entry = self.entries.entry(producer.producer_id).or_default();
        let epoch = producer.epoch.0;
        let again = epoch == entry.epoch && (entry.open.is_none() || epoch == i16::MAX);
        if epoch < entry.epoch || version == 2 && epoch == entry.epoch && !again {
            return ErrorCode::InvalidProducerEpoch;
        }
        if epoch > entry.epoch {
            (entry.epoch, entry.seen) = (epoch, BTreeSet::new());
        }
        let open = entry.open.take().unwrap_or_default();
        if outcome == Commit {
            self.committed.extend(open);
        }
        ErrorCode::None
    }
}

/// A transaction as its producer sees it.
#[derive(Debug, Default)]
struct Told {
    acknowledged: BTreeSet<Tag>,
    added: BTreeSet<i32>,
    /// Whether a commit was ever asked for.
    commits: bool,
    verdict: Option<Outcome>,
}

/// A record on its way.
#[derive(Debug)]
struct Sending {
    waiter: WaiterId,
    producer: Identity,
    client: usize,
    txn: usize,
    partition: i32,
    tag: Tag,
    is_written: bool,
    is_lost: bool,
}

/// Which requests a client sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Speaks {
    #[default]
    PathA,
    PathB,
    /// Adds as on path B and ends on either.
    Both,
}

#[derive(Debug, Default)]
struct Client {
    producer: Option<Identity>,
    speaks: Speaks,
    txn: Option<usize>,
    has_failed: bool,
    initializing: Option<(WaiterId, Identity)>,
    ending: Option<(WaiterId, Outcome, bool)>,
}

struct Model {
    world: World,
    logs: Vec<Log>,
    clients: Vec<Client>,
    sending: Vec<Sending>,
    told: Vec<Told>,
    tags: Tag,
}

impl Model {
    fn new(version: i16, near_the_end: bool, kinds: [Speaks; 3]) -> Self {
        let mut world = World::new(version);
        if near_the_end {
            for name in ["a", "b"] {
                world.init(name, Identity::NONE).unwrap();
                let slot = slot_of(name.as_bytes());
                world.checkpoint(slot);
                world.edit_checkpoint(slot, |head| head.epoch = ProducerEpoch(32_763));
            }
            world.crash();
        }
        let logs = (0..=GROUP).map(|_| Log::default()).collect();
        let clients = kinds.into_iter().map(|speaks| Client { speaks, ..Client::default() }).collect();
        Self { world, logs, clients, sending: Vec::new(), told: Vec::new(), tags: 0 }
    }

    fn init(&mut self, client: usize, names_itself: bool) {
        let state = &mut self.clients[client];
        if state.initializing.is_some() {
            return;
        }
        let given = state.producer.filter(|_| names_itself).unwrap_or(Identity::NONE);
        (state.txn, state.has_failed, state.ending, state.producer) = (None, false, None, None);
        state.initializing = Some((self.world.ask(NAMES[client], init(given)), given));
    }

    fn produce(&mut self, client: usize, partition: i32, early: bool) {
        let state = &mut self.clients[client];
        let Some(producer) = state.producer.filter(|_| state.ending.is_none() && !state.has_failed) else { return };
        if self.logs[partition as usize].is_loading(producer) {
            return;
        }
        let txn = *state.txn.get_or_insert_with(|| {
            self.told.push(Told::default());
            self.told.len() - 1
        });
        let tag = self.tags;
        self.tags += 1;
        // What may end on path A is added anew for each transaction, else it could join the one before.
        let is_added = state.speaks == Speaks::PathB || self.told[txn].added.contains(&partition);
        if is_added && self.logs[partition as usize].is_open(producer) {
            let is_written = self.logs[partition as usize].append(producer, tag);
            assert!(is_written);
            self.told[txn].acknowledged.insert(tag);
            return;
        }
        let by = if state.speaks == Speaks::PathA { AddBy::Client } else { AddBy::Broker { early } };
        let waiter = self.world.ask(NAMES[client], joining(producer, by, partition));
        let (is_written, is_lost) = (false, false);
        self.sending.push(Sending { waiter, producer, client, txn, partition, tag, is_written, is_lost });
    }

    fn end(&mut self, client: usize, wants: Outcome, bumps: bool) {
        let is_sending = self.sending.iter().any(|sending| Some(sending.txn) == self.clients[client].txn);
        let state = &mut self.clients[client];
        let (Some(producer), Some(txn)) = (state.producer, state.txn) else { return };
        if is_sending || state.ending.is_some() {
            return;
        }
        let outcome = if state.has_failed { Abort } else { wants };
        self.told[txn].commits |= outcome == Commit;
        let bumps = state.speaks == Speaks::PathB || state.speaks == Speaks::Both && bumps;
        let request = Request::End(End { producer, outcome, bumps });
        state.ending = Some((self.world.ask(NAMES[client], request), outcome, bumps));
    }

    /// What has arrived since the last look.
    fn poll(&mut self) {
        for log in 0..self.logs.len() {
            self.poll_reports(log);
        }
        for mut sending in std::mem::take(&mut self.sending) {
            if self.poll_sending(&mut sending) {
                self.sending.push(sending);
            }
        }
        for client in 0..self.clients.len() {
            self.poll_init(client);
            self.poll_end(client);
        }
    }

    fn poll_reports(&mut self, log: usize) {
        let ids: Vec<_> = self.logs[log].entries.keys().copied().collect();
        for producer_id in ids {
            let entry = self.logs[log].entries.get_mut(&producer_id).unwrap();
            let Some(reply) = entry.reported.and_then(|waiter| self.world.replies.get(&waiter).cloned()) else {
                continue;
            };
            entry.reported = None;
            match reply {
                Ok(Reply::Adopted(Adopted::Yes)) => {}
                Ok(Reply::Adopted(Adopted::LookAgain(seen))) => self.report(log, producer_id, Some(seen)),
                Ok(Reply::Adopted(Adopted::Abort(epoch))) => {
                    self.logs[log].mark(Identity { producer_id, epoch }, Abort, 0);
                }
                _ => self.report(log, producer_id, None),
            }
        }
    }

    /// Whether it is still on its way.
    fn poll_sending(&mut self, sending: &mut Sending) -> bool {
        let reply = self.world.replies.get(&sending.waiter).cloned();
        let granted = self.world.granted.contains(&sending.waiter);
        if !sending.is_written && (granted || reply == Some(Ok(Reply::Added))) {
            sending.is_written = self.write(sending);
            if !sending.is_written {
                self.fail(sending);
                return false;
            }
        }
        match reply {
            Some(Ok(_)) => {
                self.told[sending.txn].acknowledged.insert(sending.tag);
                self.told[sending.txn].added.insert(sending.partition);
                false
            }
            Some(Err(ErrorCode::ConcurrentTransactions)) => self.send_again(sending),
            Some(Err(_)) => {
                self.fail(sending);
                false
            }
            None if sending.is_lost => self.send_again(sending),
            None => true,
        }
    }

    fn write(&mut self, sending: &Sending) -> bool {
        if self.clients[sending.client].speaks == Speaks::PathA {
            // Produce 11 asks whether the partition was added.
            let (partitions, groups) = members(sending.partition);
            let request = Request::Verify(Verify { producer: sending.producer, partitions, groups });
            let asked = self.world.ask(NAMES[sending.client], request);
            if self.world.replies[&asked] != Ok(Reply::Verified(vec![ErrorCode::None])) {
                return false;
            }
        }
        self.logs[sending.partition as usize].append(sending.producer, sending.tag)
    }

    fn fail(&mut self, sending: &Sending) {
        let state = &mut self.clients[sending.client];
        if state.txn == Some(sending.txn) {
            state.has_failed = true;
        }
    }

    /// A client sends again what got no answer, unless it has gone on.
    fn send_again(&mut self, sending: &mut Sending) -> bool {
        if self.clients[sending.client].txn != Some(sending.txn) {
            return false;
        }
        if self.logs[sending.partition as usize].is_loading(sending.producer) {
            return true;
        }
        let by = if self.clients[sending.client].speaks == Speaks::PathA { AddBy::Client } else { EARLY };
        let request = joining(sending.producer, by, sending.partition);
        sending.waiter = self.world.ask(NAMES[sending.client], request);
        (sending.is_written, sending.is_lost) = (false, false);
        true
    }

    fn poll_init(&mut self, client: usize) {
        let Some((waiter, _)) = self.clients[client].initializing else { return };
        let Some(reply) = self.world.replies.get(&waiter).cloned() else { return };
        self.clients[client].initializing = None;
        if let Ok(Reply::Init(producer)) = reply {
            self.clients[client].producer = Some(producer);
        }
    }

    fn poll_end(&mut self, client: usize) {
        let Some((waiter, outcome, bumps)) = self.clients[client].ending else { return };
        let Some(reply) = self.world.replies.get(&waiter).cloned() else { return };
        let state = &mut self.clients[client];
        state.ending = None;
        match reply {
            Ok(Reply::Ended(producer)) => {
                self.told[state.txn.take().unwrap()].verdict = Some(outcome);
                (state.producer, state.has_failed) = (Some(producer), false);
            }
            Err(ErrorCode::ConcurrentTransactions) => self.end_again(client, outcome, bumps),
            _ => (state.txn, state.producer) = (None, None),
        }
    }

    fn end_again(&mut self, client: usize, outcome: Outcome, bumps: bool) {
        let state = &mut self.clients[client];
        let producer = state.producer.expect("it ended as somebody");
        let request = Request::End(End { producer, outcome, bumps });
        state.ending = Some((self.world.ask(NAMES[client], request), outcome, bumps));
    }

    /// One marker arrives. The partition may fail before or after it has written.
    fn deliver(&mut self, nth: usize, fails: u8) {
        if self.world.markers.is_empty() {
            return;
        }
        let nth = nth % self.world.markers.len();
        let marker = self.world.markers.remove(nth);
        let mut answers = Vec::new();
        for key in &marker.partitions {
            let log = &mut self.logs[key.index as usize];
            let code = match fails % 8 {
                0 => ErrorCode::KafkaStorageError,
                1 => {
                    log.mark(marker.producer, marker.outcome, marker.version);
                    ErrorCode::RequestTimedOut
                }
                _ => log.mark(marker.producer, marker.outcome, marker.version),
            };
            if matches!(code, ErrorCode::None | ErrorCode::InvalidProducerEpoch) {
                self.world.acknowledged.insert((marker.txn.clone(), *key));
            }
            answers.push(MarkerAnswer { partition: *key, code, coordinator_epoch: 0 });
        }
        self.world.step(|txns, now, effects| txns.marked(&marker.txn, &answers, now, effects));
    }

    /// The end of pending offsets arrives.
    fn deliver_hook(&mut self, nth: usize, fails: u8) {
        if self.world.hooks.is_empty() {
            return;
        }
        let nth = nth % self.world.hooks.len();
        let hook = self.world.hooks.remove(nth);
        if !fails.is_multiple_of(8) {
            // A group that holds nothing of the transaction has nothing to refuse.
            self.logs[GROUP as usize].mark(hook.producer, hook.outcome, hook.version);
        }
        let code = if fails % 8 < 2 { ErrorCode::CoordinatorLoadInProgress } else { ErrorCode::None };
        self.world.hook(&hook, code);
    }

    fn crash(&mut self) {
        self.world.crash();
        for log in 0..self.logs.len() {
            let open = self.logs[log].entries.iter().filter(|(_, entry)| entry.open.is_some());
            let open: Vec<_> = open.map(|(producer_id, _)| *producer_id).collect();
            self.logs[log].entries.values_mut().for_each(|entry| entry.reported = None);
            open.into_iter().for_each(|producer_id| self.report(log, producer_id, None));
        }
        for sending in &mut self.sending {
            sending.is_lost = !self.world.replies.contains_key(&sending.waiter);
        }
        for (client, name) in NAMES.iter().enumerate().take(self.clients.len()) {
            if let Some((waiter, given)) = self.clients[client].initializing
                && !self.world.replies.contains_key(&waiter)
            {
                self.clients[client].initializing = Some((self.world.ask(name, init(given)), given));
            }
            if let Some((waiter, outcome, bumps)) = self.clients[client].ending
                && !self.world.replies.contains_key(&waiter)
            {
                self.end_again(client, outcome, bumps);
            }
        }
    }

    /// A partition asks whose an open transaction is.
    fn report(&mut self, log: usize, producer_id: ProducerId, seen: Option<u64>) {
        let entry = self.logs[log].entries.get_mut(&producer_id).unwrap();
        if entry.open.is_none() {
            return;
        }
        let producer = Identity { producer_id, epoch: ProducerEpoch(entry.epoch) };
        match self.world.txns.owner_of(producer_id) {
            Some(id) => {
                let (partitions, groups) = members(log as i32);
                let request = Request::Adopt(Adopt { producer, partitions, groups, seen });
                entry.reported = Some(self.world.ask(&id, request));
            }
            None => {
                self.logs[log].mark(producer, Abort, 0);
            }
        }
    }

    /// A client does what comes next.
    fn act(&mut self, client: usize, how: u8) {
        let state = &self.clients[client];
        match (state.producer, state.txn) {
            (None, _) => self.init(client, false),
            (Some(_), Some(_)) if state.has_failed => self.end(client, Abort, how.is_multiple_of(2)),
            (Some(_), Some(_)) if how % 8 < 3 => {
                self.end(client, if how < 64 { Abort } else { Commit }, how.is_multiple_of(2));
            }
            _ => self.produce(client, i32::from(how) % (GROUP + 1), how >= 32),
        }
    }

    fn step(&mut self, (what, which, how): (u8, u8, u8)) {
        let client = [0, 0, 0, 1, 2, 2, 2, 2][usize::from(which % 8)];
        let slot = slot_of(NAMES[client].as_bytes());
        match what % 32 {
            0..=11 => self.act(client, how),
            12..=15 => {
                self.world.begin_write(slot);
            }
            16..=19 => {
                self.world.end_write(slot);
            }
            20..=22 => self.deliver(usize::from(which), how),
            23 => self.deliver_hook(usize::from(which), how),
            24 => {
                self.world.raise_fences();
            }
            25 => self.world.pass(u64::from(how) * 8),
            26 if how < 32 => self.world.pass(70_000),
            27 if how < 128 => self.world.checkpoint(slot),
            28 | 29 if how < 128 => self.crash(),
            30 if how < 64 => self.init(client, how.is_multiple_of(2)),
            30 if how < 96 => self.world.fail_write(slot, how.is_multiple_of(2)),
            31 if how < 128 => while self.world.write_all() | self.world.raise_fences() {},
            31 => {
                self.deliver(0, 7);
                self.deliver_hook(0, 7);
            }
            _ => {}
        }
        if how % 4 != 1 {
            self.poll();
        }
    }

    /// Nobody asks for anything more and everything comes to its end.
    fn finish(&mut self) {
        let slots: Vec<_> = self.world.disks.keys().copied().collect();
        if slots.iter().any(|slot| self.world.txns.journal_mut(*slot).is_some_and(|journal| journal.is_offline())) {
            self.crash();
        }
        for round in 0..40 {
            for _ in 0..10 {
                while self.world.write_all() | self.world.raise_fences() {}
                while !self.world.markers.is_empty() {
                    self.deliver(0, 7);
                }
                while !self.world.hooks.is_empty() {
                    self.deliver_hook(0, 7);
                }
                self.poll();
            }
            self.world.pass(if round % 4 == 0 { 70_000 } else { 200 });
        }
    }

    fn check(&mut self) {
        let counts = self.world.txns.counts();
        assert_eq!((counts.open, counts.completing, counts.parked), (0, 0, 0), "everything came to an end");
        let committed: Vec<_> = self.logs.iter().flat_map(|log| log.committed.clone()).collect();
        let visible: BTreeSet<_> = committed.iter().copied().collect();
        assert_eq!(visible.len(), committed.len(), "I1: committed once");
        for log in &self.logs {
            assert!(log.entries.values().all(|entry| entry.open.is_none()), "I3: nothing hangs: {log:?}");
        }
        let mut known = BTreeSet::new();
        for told in &self.told {
            let seen = told.acknowledged.intersection(&visible).count();
            known.extend(told.acknowledged.iter().copied().filter(|_| told.commits));
            match told.verdict {
                Some(Commit) => assert_eq!(seen, told.acknowledged.len(), "I5: {told:?} of {visible:?}"),
                Some(Abort) => assert_eq!(seen, 0, "{told:?} of {visible:?}"),
                None if told.commits => {
                    assert!(seen == 0 || seen == told.acknowledged.len(), "I2: {told:?} of {visible:?}");
                }
                None => assert_eq!(seen, 0, "nobody committed {told:?}"),
            }
        }
        assert!(visible.is_subset(&known), "nothing is committed that was not acknowledged");
        self.world.pass(5);
        self.world.write_all();
        let slots: Vec<_> = self.world.txns.slot_ids().collect();
        let live: Vec<_> = slots.iter().map(|slot| self.world.txns.snapshot(*slot)).collect();
        self.world.crash();
        let replayed: Vec<_> = slots.iter().map(|slot| self.world.txns.snapshot(*slot)).collect();
        assert_eq!(live, replayed, "what is replayed is what was");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn f85_every_transaction_is_seen_as_a_whole_or_not_at_all_as_its_producer_was_told(
        version in 0..=2_i16,
        near_the_end in any::<bool>(),
        two in prop_oneof![Just(Speaks::PathA), Just(Speaks::PathB)],
        one in prop_oneof![Just(Speaks::PathA), Just(Speaks::PathB), Just(Speaks::Both)],
        steps in vec(any::<(u8, u8, u8)>(), 0..400),
    ) {
        let mut model = Model::new(version, near_the_end, [two, two, one]);
        steps.into_iter().for_each(|step| model.step(step));
        model.finish();
        model.check();
    }
}
