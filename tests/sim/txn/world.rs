//! The world around two shards: what chance does next, the clocks, the disks and the power switch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::AddAssign;
use std::sync::Arc;

use oncilla_shards::groups::{Effects as GroupEffects, GroupSettings, Groups};
use oncilla_shards::ids::{BrokerId, PartitionKey, ProducerEpoch, ProducerId, SlotId, TimestampMs};
use oncilla_shards::image::{BrokerSettings, Change as ImageChange, Image};
use oncilla_shards::limits::{SLOTS, TXN_PRODUCER_IDS_MIN};
use oncilla_shards::session::Sessions;
use oncilla_shards::shard::Shard;
use oncilla_shards::slot::{Position, owner, slot_of};
use oncilla_shards::txn::{
    Change, Effects, Entry, FenceId, Fences, Head, Identity, Joining, Now, State, Transactions, TxnSettings,
};

use super::client::{Client, TIMEOUT_MS, Target};
use super::disks::{FenceLog, Speeds};
use super::edges::{Commits, Gathered, Wait};
use super::logs::Logs;
use super::messages::{GROUPS, Message, NAMES, PARTITIONS, Peer, Request, TOPIC};
use super::produce::{Call, Line};
use super::reconcile::Timer;
use super::truth::Truth;
use crate::rng::Rng;
use crate::slots;

/// Shards of the broker.
pub const SHARDS: usize = 2;

/// Name of each client's id: some ids have two instances at once.
const CLIENTS: [usize; 6] = [0, 0, 1, 1, 2, 3];

/// A step that is said to be done before it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Entries of the coordinator count as durable when their write begins: EndTxn answers too early.
    EarlyDecision,
    /// Markers are acknowledged when they are enqueued: Complete* comes before they are durable.
    EarlyMarkers,
    /// A marker is acknowledged although it was refused by a full disk.
    LostMarkers,
    /// InitProducerId answers before its fence is durable.
    EarlyFence,
    /// The end of pending offsets is acknowledged when it is recorded.
    EarlyOffsets,
    /// Batches of Produce 12 are acknowledged before the add of their partition is durable.
    EarlyAdd,
    /// What a start finds open is confirmed without asking its coordinator.
    NoReconcile,
    /// A look gives up what no coordinator knew, whatever has become of it meanwhile.
    LateLook,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::EarlyDecision,
        Self::EarlyMarkers,
        Self::LostMarkers,
        Self::EarlyFence,
        Self::EarlyOffsets,
        Self::EarlyAdd,
        Self::NoReconcile,
        Self::LateLook,
    ];

    /// The one path on which a world meets its situation, if there is one.
    fn path_b(self) -> Option<bool> {
        match self {
            Self::EarlyAdd => Some(true),
            Self::LateLook => Some(false),
            _ => None,
        }
    }

    /// Whether its situation needs transactions that follow each other at once.
    fn wants_speed(self) -> bool {
        self == Self::LateLook
    }
}

/// What a run went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub committed: usize,
    pub aborted: usize,
    pub unknown: usize,
    pub offsets: usize,
    pub granted: usize,
    pub duplicates: usize,
    pub fenced: usize,
    pub timed_out: usize,
    pub taken_over: usize,
    pub adopted: usize,
    pub ended_meanwhile: usize,
    pub given_up: usize,
    pub looked_at: usize,
    pub crossed: usize,
    pub opened_late: usize,
    pub crashes: usize,
    pub torn: usize,
    pub checkpoints: usize,
    pub failed: usize,
    pub rotated: usize,
    pub disconnects: usize,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.offsets += other.offsets;
        self.granted += other.granted;
        self.duplicates += other.duplicates;
        self.fenced += other.fenced;
        self.timed_out += other.timed_out;
        self.taken_over += other.taken_over;
        self.adopted += other.adopted;
        self.ended_meanwhile += other.ended_meanwhile;
        self.given_up += other.given_up;
        self.looked_at += other.looked_at;
        self.crossed += other.crossed;
        self.opened_late += other.opened_late;
        self.crashes += other.crashes;
        self.torn += other.torn;
        self.checkpoints += other.checkpoints;
        self.failed += other.failed;
        self.rotated += other.rotated;
        self.disconnects += other.disconnects;
    }
}

/// One shard.
#[derive(Debug)]
pub struct Node {
    pub shard: Shard,
    pub groups: Groups,
    pub txns: Transactions,
    pub fences: Fences,
    pub lines: BTreeMap<(PartitionKey, ProducerId), Line>,
    pub commits: Commits,
    /// What it asks coordinators about, and how many answers are missing.
    pub round: (Vec<oncilla_shards::txn::Adopt>, usize),
    /// Whether clients may come.
    pub accepts: bool,
}

/// One run.
#[derive(Debug)]
pub struct World {
    pub rng: Rng,
    /// Of looks alone: they leave the schedule of everything else as it is.
    pub look_rng: Rng,
    /// Of what is opened behind the start, for the same reason.
    pub open_rng: Rng,
    pub now: Now,
    pub image: Arc<Image>,
    pub mutation: Option<Mutation>,
    pub nodes: Vec<Node>,
    pub lanes: BTreeMap<(Peer, Peer), VecDeque<Message>>,
    /// What a shard sends itself arrives at once.
    pub here: VecDeque<(usize, Message)>,
    /// Answers whose waiters have not run yet.
    pub woken: VecDeque<Message>,
    pub timers: BTreeMap<(u64, u64), (usize, Timer)>,
    pub waiting: BTreeMap<u64, Wait>,
    pub next: u64,
    pub calls: BTreeMap<u64, Call>,
    /// Batches that wait for an add, by its ticket.
    pub followers: BTreeMap<u64, Vec<u64>>,
    pub gathered: BTreeMap<u64, Gathered>,
    /// Shards whose acknowledgement of a fence is missing.
    pub fencing: BTreeMap<(usize, SlotId, FenceId), usize>,
    pub logs: Logs,
    pub fence_log: FenceLog,
    pub txn_disk: slots::Disk,
    pub txn_writers: BTreeSet<SlotId>,
    pub group_disk: slots::Disk,
    pub group_writers: BTreeSet<SlotId>,
    pub clients: Vec<Client>,
    pub truth: Truth,
    /// Epochs below are fenced, as InitProducerId was answered.
    pub told_fences: BTreeMap<ProducerId, i16>,
    pub totals: Totals,
    settings: TxnSettings,
    boots: i32,
    booted_ms: u64,
    pub speeds: Speeds,
    /// For how long this start keeps its clients waiting.
    pub patience_ms: u64,
    is_serving: bool,
    next_producer_id: i64,
}

pub fn node_of(slot: SlotId) -> usize {
    usize::from(owner(slot, SHARDS as u16).0)
}

impl World {
    /// A world with an empty disk.
    pub fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        let mut rng = Rng::new(seed);
        let version = if rng.percent(8) { 0 } else { 1 + i16::from(rng.percent(70)) };
        let is_path_b = |by_chance| mutation.and_then(Mutation::path_b).unwrap_or(by_chance);
        let paths = NAMES.map(|_| version > 0 && is_path_b(rng.percent(60)));
        let settings = TxnSettings {
            version,
            id_expiration_ms: 600_000,
            abort_interval_ms: 500,
            remove_interval_ms: 2_000,
            ..TxnSettings::default()
        };
        let mut world = Self {
            rng,
            look_rng: Rng::new(!seed),
            open_rng: Rng::new(seed ^ 0x6f70_656e),
            now: Now { wall: TimestampMs(1_700_000_000_000), mono_ms: 5_000 },
            image: Arc::new(image()),
            mutation,
            nodes: Vec::new(),
            lanes: BTreeMap::new(),
            here: VecDeque::new(),
            woken: VecDeque::new(),
            timers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            calls: BTreeMap::new(),
            followers: BTreeMap::new(),
            gathered: BTreeMap::new(),
            fencing: BTreeMap::new(),
            logs: Logs::default(),
            fence_log: FenceLog::default(),
            txn_disk: slots::Disk::default(),
            txn_writers: BTreeSet::new(),
            group_disk: slots::Disk::default(),
            group_writers: BTreeSet::new(),
            clients: CLIENTS.iter().map(|name| Client::new(*name, paths[*name])).collect(),
            truth: Truth::default(),
            told_fences: BTreeMap::new(),
            totals: Totals::default(),
            settings,
            boots: 0,
            booted_ms: 0,
            speeds: Speeds::default(),
            patience_ms: 0,
            is_serving: false,
            next_producer_id: 1_000,
        };
        if world.rng.percent(20) {
            world.begin_near_the_last_epoch();
        }
        world.boot();
        world
    }

    /// The ids were used for long.
    fn begin_near_the_last_epoch(&mut self) {
        for (at, name) in NAMES.iter().enumerate() {
            let producer = Identity { producer_id: ProducerId(at as i64), epoch: ProducerEpoch(32_760) };
            let head = Head {
                producer_id: producer.producer_id,
                prev_producer_id: producer.producer_id,
                next_producer_id: ProducerId::NONE,
                epoch: producer.epoch,
                last_epoch: ProducerEpoch::NONE,
                timeout_ms: TIMEOUT_MS,
                state: State::Empty,
                start: TimestampMs(-1),
                update: self.now.wall,
                client_version: 0,
                sequence: 0,
            };
            let change = Change::Whole { head, members: Joining::default() };
            let slot = slot_of(name.as_bytes());
            self.txn_disk.begin_checkpoint(slot, Position(0), &[Entry { id: (*name).into(), change }]);
            self.txn_disk.complete_checkpoint(slot);
        }
    }

    /// A number that nothing else has.
    pub fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn send(&mut self, from: Peer, to: Peer, message: Message) {
        match (from, to) {
            (Peer::Shard(from), Peer::Shard(to)) if from == to => self.here.push_back((to, message)),
            _ => self.lanes.entry((from, to)).or_default().push_back(message),
        }
    }

    /// Delivers what shards send themselves.
    pub fn arrive(&mut self) {
        loop {
            while let Some((at, message)) = self.here.pop_front() {
                self.receive(at, Peer::Shard(at), message);
            }
            if self.rng.percent(30) || !self.wake() {
                return;
            }
        }
    }

    fn boot(&mut self) {
        self.boots += 1;
        (self.booted_ms, self.is_serving) = (self.now.mono_ms, false);
        self.nodes = (0..SHARDS).map(|_| self.node()).collect();
        let opens_late = self.begin_opening();
        for slot in (0..SLOTS).map(SlotId) {
            let (journal, entries) = self.group_disk.load(slot);
            self.nodes[node_of(slot)].groups.insert(slot, journal, entries, self.now);
            let (journal, entries) = self.txn_disk.load::<Entry>(slot);
            self.truth.history.loaded(slot, &entries);
            let mut effects = Effects::new();
            self.nodes[node_of(slot)].txns.insert(slot, journal, entries, self.now, &mut effects);
            self.carry_out_txn(node_of(slot), effects);
        }
        let speeds = Speeds::any(&mut self.rng);
        self.speeds = if self.mutation.is_some_and(Mutation::wants_speed) { Speeds::FAST } else { speeds };
        self.begin_reconcile(opens_late);
        self.arrive();
    }

    fn node(&mut self) -> Node {
        let cache_bytes = [0, 2_000, 1 << 20][self.rng.below(3)];
        let mut fences = Fences::default();
        fences.restore(self.fence_log.durable.iter().copied());
        Node {
            shard: Shard::new(cache_bytes, Sessions::new(1, 1)),
            groups: Groups::new(GroupSettings { offsets_retention_ms: i64::MAX, ..GroupSettings::default() }),
            txns: Transactions::new(self.settings.clone(), self.boots, self.image.clone()),
            fences,
            lines: BTreeMap::new(),
            commits: Commits::default(),
            round: (Vec::new(), 0),
            accepts: false,
        }
    }

    pub fn node_of_partition(&self, index: i32) -> usize {
        let topic = self.image.topic_by_id(TOPIC).expect("it is there");
        usize::from(self.image.owner(topic, index).0)
    }

    pub fn boot_epoch(&self) -> i32 {
        self.boots
    }

    /// One event.
    pub fn step(&mut self) {
        let ms = self.rng.below(4) as u64;
        self.pass(ms);
        match self.rng.below(1_000) {
            0..450 => self.deliver(),
            450..640 => self.act(),
            640..720 => self.begin_writes(),
            720..870 => self.complete_writes(),
            870..905 => self.read(),
            905..935 => self.write_fences(),
            935..940 => self.disconnect(),
            940..943 => self.restart_client(),
            943..955 => self.checkpoint(),
            955..958 => self.now.wall.0 += self.rng.below(6_000) as i64 - 3_000,
            958 if self.rng.percent(50) => self.pass(u64::try_from(TIMEOUT_MS).expect("positive")),
            959 if self.rng.percent(5) => self.now.wall.0 += 700_000,
            960..962 => self.fail_write(),
            962..965 if self.rng.percent(60) => self.crash(),
            _ => self.burst(),
        }
        self.arrive();
    }

    /// Everything on its way arrives and is written.
    pub fn burst(&mut self) {
        for _ in 0..self.rng.below(30) {
            self.deliver();
            self.arrive();
            self.begin_writes();
            self.complete_writes();
            self.write_fences();
            self.arrive();
        }
    }

    pub fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall.0 += ms as i64;
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= self.now.mono_ms
        {
            let (at, timer) = entry.remove();
            self.fire(at, timer);
        }
        self.accept();
        for at in 0..SHARDS {
            if self.is_serving {
                let mut effects = Effects::new();
                self.nodes[at].txns.tick(self.now, &mut effects);
                self.carry_out_txn(at, effects);
                let mut effects = GroupEffects::new();
                self.nodes[at].groups.tick(self.now, &self.image, &mut effects);
                self.carry_out_groups(at, effects);
            }
        }
        self.arrive();
    }

    /// A shard accepts clients when nothing that it found open is in doubt, or after a while; time passes for ids when
    /// all do.
    fn accept(&mut self) {
        let is_late = self.now.mono_ms >= self.booted_ms + self.patience_ms;
        for node in &mut self.nodes {
            node.accepts |= is_late || node.shard.doubted().is_empty();
        }
        self.is_serving = self.nodes.iter().all(|node| node.accepts);
    }

    fn deliver(&mut self) {
        let moves = |(from, to): &(Peer, Peer)| match (from, to) {
            // A connection waits until the shard accepts.
            (Peer::Client(_), Peer::Shard(at)) => self.nodes[*at].accepts,
            _ => true,
        };
        let lanes: Vec<_> =
            self.lanes.iter().filter(|(ends, lane)| !lane.is_empty() && moves(ends)).map(|(ends, _)| *ends).collect();
        if lanes.is_empty() {
            return;
        }
        let (from, to) = lanes[self.rng.below(lanes.len())];
        let message = self.lanes.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("it is not empty");
        match (to, message) {
            (Peer::Shard(at), message) => self.receive(at, from, message),
            (Peer::Client(client), Message::Answer(link, answer)) => {
                if link == self.clients[client].link {
                    let goes_on = self.clients[client].hear(answer, self.now.mono_ms, &mut self.truth);
                    if !goes_on {
                        self.totals.fenced += 1;
                        self.restart(client);
                    }
                }
            }
            (to, message) => panic!("{message:?} for {to:?}"),
        }
    }

    fn act(&mut self) {
        let client = self.rng.below(self.clients.len());
        let (wall, mono_ms) = (self.now.wall, self.now.mono_ms);
        let request = self.clients[client].act(&mut self.rng, wall, mono_ms, &mut self.truth);
        if let Some((target, request)) = request {
            self.request(client, target, request);
        }
    }

    fn node_for(&self, client: usize, target: Target) -> usize {
        match target {
            Target::Coordinator => node_of(slot_of(NAMES[self.clients[client].name].as_bytes())),
            Target::Partition(index) => self.node_of_partition(index),
            Target::Group(group) => node_of(slot_of(GROUPS[group].as_bytes())),
        }
    }

    fn request(&mut self, client: usize, target: Target, request: Request) {
        let to = Peer::Shard(self.node_for(client, target));
        let link = self.clients[client].link;
        self.send(Peer::Client(client), to, Message::Request(link, request));
    }

    fn disconnect(&mut self) {
        let client = self.rng.below(self.clients.len());
        self.totals.disconnects += 1;
        let link = self.fresh();
        self.clients[client].disconnected(link, false);
        self.cut(client);
    }

    /// What a client had sent may still arrive, but for path A (see `client`).
    fn cut(&mut self, client: usize) {
        for at in 0..SHARDS {
            if !self.clients[client].is_path_b || self.rng.percent(50) {
                self.lanes.remove(&(Peer::Client(client), Peer::Shard(at)));
            }
            self.lanes.remove(&(Peer::Shard(at), Peer::Client(client)));
        }
    }

    fn restart_client(&mut self) {
        let client = self.rng.below(self.clients.len());
        self.restart(client);
    }

    pub fn restart(&mut self, client: usize) {
        let link = self.fresh();
        let rests_ms = self.rng.below(1_500) as u64;
        self.clients[client].restart(link, self.now.mono_ms + rests_ms);
        self.cut(client);
    }

    /// The power goes.
    pub fn crash(&mut self) {
        self.totals.crashes += 1;
        self.count_decisions();
        self.totals.torn += self.logs.disk.crash(&mut self.rng).torn;
        let kept = self.txn_disk.crash(&mut self.rng);
        self.totals.torn += kept.torn;
        kept.bytes.iter().for_each(|bytes| self.truth.history.durable(bytes));
        self.totals.torn += self.group_disk.crash(&mut self.rng).torn;
        self.fence_log.crash(&mut self.rng);
        (self.logs.writing, self.logs.writers) = (BTreeMap::new(), BTreeSet::new());
        (self.txn_writers, self.group_writers) = (BTreeSet::new(), BTreeSet::new());
        (self.lanes, self.here, self.timers) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        (self.waiting, self.calls, self.followers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        (self.gathered, self.fencing) = (BTreeMap::new(), BTreeMap::new());
        self.woken.clear();
        for client in 0..self.clients.len() {
            let link = self.fresh();
            self.clients[client].disconnected(link, true);
        }
        self.boot();
    }

    pub fn count_decisions(&mut self) {
        for node in &self.nodes {
            let counts = node.txns.counts();
            self.totals.timed_out += counts.timed_out as usize;
            self.totals.taken_over += counts.taken_over as usize;
        }
    }

    /// Ids that a coordinator of a shard needs; a block of them is durable before one leaves it.
    pub fn stock(&mut self, at: usize) {
        let first = self.next_producer_id;
        self.next_producer_id += 2 * TXN_PRODUCER_IDS_MIN as i64;
        self.nodes[at].txns.stock((first..self.next_producer_id).map(ProducerId));
    }
}

fn image() -> Image {
    let broker = BrokerSettings::new(Vec::new()).expect("no settings are fine");
    let topic = ImageChange::CreateTopic {
        id: TOPIC,
        name: "t".into(),
        partitions: PARTITIONS + 1,
        placement: 0,
        overrides: BTreeMap::new(),
    };
    Image::new("sim", BrokerId(0), SHARDS as u16, broker).apply(&[topic])
}
