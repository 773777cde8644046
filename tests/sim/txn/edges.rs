//! The edges of the broker as they are in `src/txn`, `src/groups`, `src/partitions`: what a shard does about a message,
//! and how it carries out what its cores asked for, in the same order.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncilla_shards::batch::ControlKind;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{
    Ask as GroupAsk, Commit, CommitPartition, Effect as GroupEffect, Effects as GroupEffects, Reply as GroupReply,
    TxnCommit, TxnEnd,
};
use oncilla_shards::ids::{PartitionKey, SlotId};
use oncilla_shards::limits::TXN_PARK_MS;
use oncilla_shards::partition::{EndMarker, WaiterId};
use oncilla_shards::shard::{Effect as ShardEffect, Effects as ShardEffects};
use oncilla_shards::slot::slot_of;
use oncilla_shards::txn::{
    Add, AddBy, Ask, Effect, Effects, Fence, FenceEntry, FenceId, Identity, Marker, MarkerAnswer, OffsetsHook, OpenTxn,
    Outcome, Reply, Request as Control, TxnKey, Verify, ends,
};

use super::messages::{Answer, GROUPS, Message, NAMES, Peer, Request, TOPIC};
use super::reconcile::Finding;
use super::world::{Mutation, SHARDS, World, node_of};

/// Partitions that stand for a transaction's offsets begin here: one for each transaction of a run.
pub const OFFSETS: i32 = 1_000;

/// What waits for an answer.
#[derive(Clone, Debug)]
pub enum Wait {
    /// A batch for its append.
    Append(u64),
    /// A marker for its append, by its place in what is gathered.
    Marker(u64, usize, PartitionKey),
    /// A group for the end of a transaction, likewise.
    End(u64, usize),
    /// A batch for its coordinator; whether the write has begun.
    Batch { at: usize, call: u64, guard: oncilla_shards::producers::Guard, is_granted: bool },
    /// A client for its coordinator.
    Client { at: usize, client: usize, link: u64, asked: Control },
    /// An offset commit for its coordinator.
    Offsets { at: usize, client: usize, link: u64, asked: TxnCommit },
    /// A client for its group.
    Commit { client: usize, link: u64 },
    /// What is open for long, for the answers of all shards.
    Look { at: usize, asked: Vec<OpenTxn>, answers: Vec<Option<Vec<bool>>> },
    /// An open transaction for its owner, or its coordinator.
    Finding { at: usize, finding: Finding },
}

impl Wait {
    fn home(&self) -> usize {
        match self {
            Self::Batch { at, .. } | Self::Client { at, .. } | Self::Offsets { at, .. } | Self::Finding { at, .. } => {
                *at
            }
            other => unreachable!("{other:?} asks no coordinator"),
        }
    }
}

/// Answers that leave together.
#[derive(Clone, Debug)]
pub struct Gathered {
    pub at: usize,
    pub to: GatheredFor,
    pub codes: Vec<Option<MarkerAnswer>>,
}

#[derive(Clone, Debug)]
pub enum GatheredFor {
    /// A coordinator; the transactions of its markers and how many partitions each has.
    Coordinator(Peer, Vec<(TxnKey, usize)>),
    /// A coordinator, for a transaction's groups.
    Groups(Peer, TxnKey, Vec<Arc<str>>),
    /// The reconcile of the shard itself.
    Reconcile,
    /// Its look, which waits for nothing.
    Look,
}

/// Offset commits that ask their coordinator, by ticket, as `txn::CommitsInFlight` knows them.
#[derive(Clone, Debug, Default)]
pub struct Commits(BTreeMap<u64, (Identity, &'static str, bool)>);

impl Commits {
    fn revoke(&mut self, hook: &OffsetsHook) {
        for (producer, group, is_revoked) in self.0.values_mut() {
            let is_of = producer.producer_id == hook.producer.producer_id;
            let is_over = ends(hook.producer.epoch, hook.version, producer.epoch);
            *is_revoked |= is_of && is_over && hook.groups.iter().any(|ended| **ended == **group);
        }
    }
}

impl World {
    /// A message has arrived at a shard.
    pub fn receive(&mut self, at: usize, from: Peer, message: Message) {
        let client = match from {
            Peer::Client(client) => client,
            Peer::Shard(_) => usize::MAX,
        };
        match message {
            Message::Request(link, Request::Control(asked)) => self.control(at, client, link, asked),
            Message::Request(link, Request::Produce(batch)) => self.take_in(at, client, link, batch),
            Message::Request(link, Request::Commit { adds, producer, txn }) => {
                self.commit(at, client, link, adds, producer, txn);
            }
            Message::Ask { ticket, id, request, until_ms } => self.asked(at, ticket, &id, request, until_ms),
            // Who waits for an answer is woken by it, and runs after what has arrived meanwhile.
            Message::Granted(_) | Message::Told(..) => self.woken.push_back(message),
            Message::Markers(markers) => self.markers(at, from, markers),
            Message::Marked(answers) => {
                let mut effects = Effects::new();
                for (txn, answers) in answers {
                    self.nodes[at].txns.marked(&txn, &answers, self.now, &mut effects);
                }
                self.carry_out_txn(at, effects);
            }
            Message::Hook(hook) => self.hook(at, from, hook),
            Message::Hooked(txn, answers) => {
                let mut effects = Effects::new();
                self.nodes[at].txns.hooked(&txn, &answers, self.now, &mut effects);
                self.carry_out_txn(at, effects);
            }
            Message::Fence(slot, id, fence) => self.put_up(at, from, (slot, id), fence),
            Message::Fenced(slot, id) => self.fenced(at, slot, id),
            Message::OwnerOf(ticket, producer_id) => {
                let owner = self.nodes[at].txns.owner_of(producer_id);
                self.send(Peer::Shard(at), from, Message::Owner(ticket, owner));
            }
            Message::Owner(ticket, owner) => self.owned_by(ticket, owner),
            Message::Answer(..) => unreachable!("answers go to clients"),
        }
    }

    /// Whoever was woken first goes on.
    pub fn wake(&mut self) -> bool {
        match self.woken.pop_front() {
            Some(Message::Granted(ticket)) => self.granted(ticket),
            Some(Message::Told(ticket, answer)) => self.told(ticket, answer),
            Some(other) => unreachable!("{other:?} wakes nobody"),
            None => return false,
        }
        true
    }

    /// Asks the owner of an id, wherever it is.
    pub fn ask(&mut self, at: usize, ticket: u64, id: &str, request: Control, wait_ms: u64) {
        let to = Peer::Shard(node_of(slot_of(id.as_bytes())));
        let until_ms = self.now.mono_ms + wait_ms;
        self.send(Peer::Shard(at), to, Message::Ask { ticket, id: id.into(), request, until_ms });
    }

    fn asked(&mut self, at: usize, ticket: u64, id: &str, request: Control, until_ms: u64) {
        let needs_id = matches!(request, Control::Init(_) | Control::End(_));
        if needs_id && !self.nodes[at].txns.has_producer_ids() {
            self.stock(at);
        }
        let mut effects = Effects::new();
        let ask = Ask { request, until_ms };
        self.nodes[at].txns.ask(id, ask, WaiterId(ticket), self.now, &mut effects);
        self.carry_out_txn(at, effects);
    }

    fn control(&mut self, at: usize, client: usize, link: u64, asked: Control) {
        let ticket = self.fresh();
        self.waiting.insert(ticket, Wait::Client { at, client, link, asked: asked.clone() });
        self.ask(at, ticket, NAMES[self.clients[client].name], asked, TXN_PARK_MS);
    }

    pub fn answer(&mut self, at: usize, client: usize, link: u64, answer: Answer) {
        self.send(Peer::Shard(at), Peer::Client(client), Message::Answer(link, answer));
    }

    /// A coordinator has answered.
    fn told(&mut self, ticket: u64, answer: Result<Reply, ErrorCode>) {
        match self.waiting.remove(&ticket).expect("it waits for this") {
            Wait::Batch { at, call, guard, is_granted } => {
                self.batch_told(at, ticket, (call, guard, is_granted), answer)
            }
            Wait::Client { at, client, link, asked } => {
                self.check_told(&asked, &answer);
                self.answer(at, client, link, Answer::Control(answer));
            }
            Wait::Offsets { at, client, link, asked } => self.offsets_told(at, ticket, (client, link), asked, answer),
            Wait::Finding { at, finding } => self.finding_told(at, finding, answer),
            other => unreachable!("{other:?} asked no coordinator"),
        }
    }

    /// Carries out what a coordinator asked for.
    pub fn carry_out_txn(&mut self, at: usize, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Reply(WaiterId(ticket), answer) => {
                    let to = Peer::Shard(self.waiting[&ticket].home());
                    self.send(Peer::Shard(at), to, Message::Told(ticket, answer));
                }
                Effect::Granted(WaiterId(ticket)) => {
                    self.totals.granted += 1;
                    let to = Peer::Shard(self.waiting[&ticket].home());
                    self.send(Peer::Shard(at), to, Message::Granted(ticket));
                }
                Effect::StartWriter(slot) => assert!(self.txn_writers.insert(slot), "one writer a slot"),
                Effect::SendMarkers(batch) => {
                    let to = Peer::Shard(usize::from(batch.to.0));
                    self.send(Peer::Shard(at), to, Message::Markers(batch.markers));
                }
                Effect::QueueMarkers(file) => panic!("there is one broker: {file:?}"),
                Effect::OffsetsHook(hook) => {
                    let to = Peer::Shard(usize::from(hook.to.0));
                    self.send(Peer::Shard(at), to, Message::Hook(hook));
                }
                Effect::Fence { slot, id, fence } => {
                    self.fencing.insert((at, slot, id), SHARDS);
                    for to in 0..SHARDS {
                        self.send(Peer::Shard(at), Peer::Shard(to), Message::Fence(slot, id, fence));
                    }
                }
                Effect::WantProducerIds => self.stock(at),
            }
        }
    }

    fn put_up(&mut self, at: usize, from: Peer, (slot, id): (SlotId, FenceId), fence: Fence) {
        let is_new = self.nodes[at].fences.set(fence);
        let Peer::Shard(to) = from else { unreachable!("clients put up no fence") };
        if at != 0 || self.mutation == Some(Mutation::EarlyFence) {
            return self.send(Peer::Shard(at), from, Message::Fenced(slot, id));
        }
        let log = &mut self.fence_log;
        if is_new {
            log.waiting.push(FenceEntry::from(fence));
        }
        let until = log.durable.len() + log.writing.len() + log.waiting.len();
        log.waiters.push((until, to, slot, id));
        self.release_fences();
    }

    fn fenced(&mut self, at: usize, slot: SlotId, id: FenceId) {
        let missing = self.fencing.get_mut(&(at, slot, id)).expect("it is being put up");
        *missing -= 1;
        if *missing == 0 {
            self.fencing.remove(&(at, slot, id));
            let mut effects = Effects::new();
            self.nodes[at].txns.fenced(slot, id, self.now, &mut effects);
            self.carry_out_txn(at, effects);
        }
    }

    fn markers(&mut self, at: usize, from: Peer, markers: Vec<Marker>) {
        let (mut flat, mut txns) = (Vec::new(), Vec::new());
        for marker in markers {
            let end = EndMarker {
                producer_id: marker.producer.producer_id,
                epoch: marker.producer.epoch,
                coordinator_epoch: marker.coordinator_epoch,
                transaction_version: i16::from(marker.version),
                kind: match marker.outcome {
                    Outcome::Commit => ControlKind::Commit,
                    Outcome::Abort => ControlKind::Abort,
                },
            };
            txns.push((marker.txn, marker.partitions.len()));
            flat.extend(marker.partitions.into_iter().map(|partition| (partition, end)));
        }
        self.write_markers(at, GatheredFor::Coordinator(from, txns), flat);
    }

    /// Enqueues markers; the answers leave together when all are durable or refused.
    pub fn write_markers(&mut self, at: usize, to: GatheredFor, markers: Vec<(PartitionKey, EndMarker)>) {
        let gathered = self.fresh();
        self.gathered.insert(gathered, Gathered { at, to, codes: vec![None; markers.len()] });
        let mut effects = ShardEffects::new();
        for (place, (partition, marker)) in markers.into_iter().enumerate() {
            let ticket = self.fresh();
            self.waiting.insert(ticket, Wait::Marker(gathered, place, partition));
            let shard = &mut self.nodes[at].shard;
            let appended = shard.append_marker(&partition, &marker, self.now.wall, WaiterId(ticket), &mut effects);
            let mut answer = MarkerAnswer { partition, code: ErrorCode::None, coordinator_epoch: -1 };
            match appended {
                Ok(_) if self.mutation == Some(Mutation::EarlyMarkers) => {}
                Ok(_) => continue,
                Err(_) if self.mutation == Some(Mutation::LostMarkers) => drop(self.waiting.remove(&ticket)),
                Err(refusal) => {
                    self.waiting.remove(&ticket);
                    (answer.code, answer.coordinator_epoch) = (refusal.code, refusal.coordinator_epoch);
                }
            }
            self.gathered.get_mut(&gathered).expect("just made").codes[place] = Some(answer);
        }
        self.gather(gathered);
        self.carry_out_shard(effects);
    }

    fn gather(&mut self, gathered: u64) {
        if self.gathered.get(&gathered).is_none_or(|all| all.codes.iter().any(Option::is_none)) {
            return;
        }
        let Gathered { at, to, codes } = self.gathered.remove(&gathered).expect("just seen");
        let mut answers = codes.into_iter().flatten();
        match to {
            GatheredFor::Coordinator(to, txns) => {
                let mut of = |(txn, count): (TxnKey, usize)| (txn, answers.by_ref().take(count).collect());
                let marked = txns.into_iter().map(&mut of).collect();
                self.send(Peer::Shard(at), to, Message::Marked(marked));
            }
            GatheredFor::Groups(to, txn, groups) => {
                let hooked = groups.into_iter().zip(answers.map(|answer| answer.code)).collect();
                self.send(Peer::Shard(at), to, Message::Hooked(txn, hooked));
            }
            GatheredFor::Reconcile => self.settled(at),
            GatheredFor::Look => {}
        }
    }

    fn hook(&mut self, at: usize, from: Peer, hook: OffsetsHook) {
        self.nodes[at].commits.revoke(&hook);
        let OffsetsHook { txn, producer, outcome, version, groups, .. } = hook;
        let gathered = self.fresh();
        let to = GatheredFor::Groups(from, txn, groups.clone());
        self.gathered.insert(gathered, Gathered { at, to, codes: vec![None; groups.len()] });
        for (place, group) in groups.iter().enumerate() {
            let ticket = self.fresh();
            self.waiting.insert(ticket, Wait::End(gathered, place));
            self.ask_group(at, group, GroupAsk::TxnEnd(TxnEnd { producer, version, outcome }), ticket);
            if self.mutation == Some(Mutation::EarlyOffsets) {
                self.ended(gathered, place, ErrorCode::None);
            }
        }
    }

    fn ended(&mut self, gathered: u64, place: usize, code: ErrorCode) {
        let nowhere = PartitionKey { topic: TOPIC, index: -1 };
        self.answered(gathered, place, MarkerAnswer { partition: nowhere, code, coordinator_epoch: -1 });
    }

    fn ask_group(&mut self, at: usize, group: &str, ask: GroupAsk, ticket: u64) {
        let mut effects = GroupEffects::new();
        self.nodes[at].groups.ask(group, ask, WaiterId(ticket), self.now, &self.image, &mut effects);
        self.carry_out_groups(at, effects);
    }

    /// Carries out what groups asked for.
    pub fn carry_out_groups(&mut self, at: usize, effects: GroupEffects) {
        for effect in effects {
            match effect {
                GroupEffect::StartWriter(slot) => assert!(self.group_writers.insert(slot), "one writer a slot"),
                GroupEffect::Reply(WaiterId(ticket), reply) => match self.waiting.remove(&ticket) {
                    Some(Wait::End(gathered, place)) => {
                        self.ended(gathered, place, reply.err().unwrap_or(ErrorCode::None));
                    }
                    Some(Wait::Commit { client, link }) => {
                        let code = match reply {
                            Ok(GroupReply::Commit(codes)) => codes[0],
                            Err(code) => code,
                            Ok(other) => unreachable!("a commit was answered with {other:?}"),
                        };
                        let result = if code.is_none() { Ok(()) } else { Err(code) };
                        self.answer(at, client, link, Answer::Committed(result));
                    }
                    other => unreachable!("{other:?} asked no group"),
                },
            }
        }
    }

    /// Carries out what partitions asked for.
    pub fn carry_out_shard(&mut self, effects: ShardEffects) {
        for effect in effects {
            match effect {
                ShardEffect::StartWriter(key) => assert!(self.logs.writers.insert(key), "one writer a partition"),
                ShardEffect::Settled(WaiterId(ticket), result) => match self.waiting.remove(&ticket) {
                    Some(Wait::Append(call)) => self.appended(call, result),
                    Some(Wait::Marker(gathered, place, partition)) => {
                        let code = result.err().unwrap_or(ErrorCode::None);
                        self.answered(gathered, place, MarkerAnswer { partition, code, coordinator_epoch: -1 });
                    }
                    other => unreachable!("{other:?} waits for no append"),
                },
                ShardEffect::Wake(_) => {}
                ShardEffect::Snapshot(key, offset, bytes) => {
                    if self.rng.percent(80) {
                        self.logs.disk.put_snapshot(key, offset, bytes);
                    }
                }
            }
        }
    }

    /// One of the answers that leave together; with a mutation they have left.
    fn answered(&mut self, gathered: u64, place: usize, answer: MarkerAnswer) {
        if let Some(all) = self.gathered.get_mut(&gathered) {
            all.codes[place] = Some(answer);
            self.gather(gathered);
        }
    }

    /// C4: the group joins the transaction, or has to be in it, before its offsets are pending.
    fn commit(&mut self, at: usize, client: usize, link: u64, adds: bool, producer: Identity, txn: usize) {
        let row = |index, offset| CommitPartition {
            key: PartitionKey { topic: TOPIC, index },
            offset,
            leader_epoch: -1,
            metadata: None,
        };
        let number = i64::try_from(txn).expect("small");
        let name = self.clients[client].name;
        let commit = Commit {
            version: if adds { 5 } else { 4 },
            member_id: String::new(),
            generation: -1,
            instance_id: None,
            retention_ms: -1,
            partitions: vec![row(OFFSETS + txn as i32, 1), row(name as i32, number)],
        };
        let group = GROUPS[self.clients[client].group()];
        let ticket = self.fresh();
        let asked = TxnCommit { producer, commit };
        self.waiting.insert(ticket, Wait::Offsets { at, client, link, asked });
        self.nodes[at].commits.0.insert(ticket, (producer, group, false));
        let (partitions, groups) = (Vec::new(), vec![group.into()]);
        let request = match adds {
            true => Control::Add(Add { producer, partitions, groups, by: AddBy::Broker { early: false } }),
            false => Control::Verify(Verify { producer, partitions, groups }),
        };
        self.ask(at, ticket, NAMES[name], request, TXN_PARK_MS);
    }

    fn offsets_told(
        &mut self,
        at: usize,
        ticket: u64,
        (client, link): (usize, u64),
        asked: TxnCommit,
        answer: Result<Reply, ErrorCode>,
    ) {
        let (producer, _, is_revoked) = self.nodes[at].commits.0.remove(&ticket).expect("it is in flight");
        let code = match answer {
            Ok(Reply::Added) => ErrorCode::None,
            Ok(Reply::Verified(codes)) => codes[0],
            Ok(other) => unreachable!("an offset commit was answered with {other:?}"),
            Err(ErrorCode::ProducerFenced) => ErrorCode::InvalidProducerEpoch,
            Err(code) => code,
        };
        let refusal = match code {
            ErrorCode::None if is_revoked => ErrorCode::InvalidTxnState,
            ErrorCode::None => {
                let checked = self.nodes[at].fences.check(producer.producer_id, producer.epoch);
                checked.err().unwrap_or(ErrorCode::None)
            }
            code => code,
        };
        if !refusal.is_none() {
            return self.answer(at, client, link, Answer::Committed(Err(refusal)));
        }
        let group = GROUPS[self.clients[client].group()];
        let ticket = self.fresh();
        self.waiting.insert(ticket, Wait::Commit { client, link });
        self.ask_group(at, group, GroupAsk::TxnCommit(asked), ticket);
    }
}
