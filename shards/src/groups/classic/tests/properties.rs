//! Members of all kinds under random steps, times and crashes, against what the protocol promises.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::client::*;
use crate::code::ErrorCode;
use crate::groups::classic::ClassicEntry;
use crate::groups::testing::Harness;
use crate::groups::{Ask, Client, Entry, GroupSettings, Heartbeat, Join, Joined, Leaving, Reply, Sync, Synced};
use crate::partition::WaiterId;

const ACTORS: usize = 5;
/// Longest rebalance timeout of an actor, which bounds how long a request may be parked.
const REBALANCE_MS: u64 = 6_000;
const TICK_MS: u64 = 10;
const TOKENS: usize = 7;

#[derive(Clone, Debug)]
enum Step {
    /// A member does what a client does next.
    Poll(usize),
    /// All do.
    PollAll,
    /// Its process dies and starts anew.
    Die(usize),
    Leave(usize),
    /// It subscribes to something else, perhaps with another order of protocols.
    Change(usize, u8),
    /// All join again.
    Storm,
    Pass(u64),
    HoldWrites,
    FinishWrites,
    ReleaseWrites,
    Crash,
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..ACTORS).prop_map(Step::Poll),
        10 => Just(Step::PollAll),
        2 => (0..ACTORS).prop_map(Step::Die),
        2 => (0..ACTORS).prop_map(Step::Leave),
        2 => (0..ACTORS, any::<u8>()).prop_map(|(actor, to)| Step::Change(actor, to)),
        1 => Just(Step::Storm),
        8 => prop_oneof![0..50u64, 0..2_000u64, 0..8_000u64].prop_map(Step::Pass),
        2 => Just(Step::HoldWrites),
        3 => Just(Step::FinishWrites),
        3 => Just(Step::ReleaseWrites),
        1 => Just(Step::Crash),
        1 => Just(Step::Checkpoint),
    ]
}

#[derive(Clone, Debug, Default)]
enum Phase {
    #[default]
    Out,
    /// It has heard of a generation, as the leader of these members.
    Joined(i32, Vec<String>),
    In(i32),
}

#[derive(Clone, Debug, Default)]
struct Actor {
    id: String,
    phase: Phase,
    waiter: Option<WaiterId>,
    metadata: u8,
}

struct World {
    h: Harness,
    actors: Vec<Actor>,
    asked: BTreeMap<WaiterId, u64>,
    /// By generation: the actor that leads it, and the actors that own each token.
    leaders: BTreeMap<i32, String>,
    owners: BTreeMap<(i32, usize), String>,
    newest: i32,
    is_held: bool,
}

/// Actors 0 and 1 are static, 4 is of version 3.
fn name(actor: usize) -> String {
    format!("m{actor}")
}

fn actor_of(member_id: &str) -> String {
    member_id[..2].to_owned()
}

impl World {
    fn new(initial_rebalance_delay_ms: i32) -> Self {
        let settings = GroupSettings { initial_rebalance_delay_ms, ..GroupSettings::default() };
        Self {
            h: Harness::with(settings),
            actors: vec![Actor::default(); ACTORS],
            asked: BTreeMap::new(),
            leaders: BTreeMap::new(),
            owners: BTreeMap::new(),
            newest: 0,
            is_held: false,
        }
    }

    fn send(&mut self, actor: usize, ask: Ask) {
        let waiter = self.h.ask(G, ask);
        self.asked.insert(waiter, self.h.now.mono_ms);
        self.actors[actor].waiter = Some(waiter);
    }

    fn instance(actor: usize) -> Option<String> {
        (actor < 2).then(|| name(actor))
    }

    fn join(&mut self, actor: usize) {
        let metadata = self.actors[actor].metadata;
        let bytes = Bytes::copy_from_slice(&[metadata]);
        let mut protocols = vec![("range".to_owned(), bytes.clone()), ("x".to_owned(), bytes)];
        if metadata.is_multiple_of(3) {
            protocols.reverse();
        }
        let join = Join {
            version: if actor == 4 { 3 } else { 9 },
            session_timeout_ms: 6_000,
            rebalance_timeout_ms: (REBALANCE_MS - 500 * actor as u64) as i32,
            member_id: self.actors[actor].id.clone(),
            instance_id: Self::instance(actor),
            protocol_type: "consumer".to_owned(),
            protocols,
            client: Client { id: name(actor), host: "/h".to_owned() },
            fresh: self.h.fresh(),
        };
        self.send(actor, Ask::Join(join));
    }

    fn poll(&mut self, actor: usize) {
        if let Some(waiter) = self.actors[actor].waiter {
            if self.h.waits(waiter) {
                return;
            }
            self.actors[actor].waiter = None;
            match self.h.take(waiter).expect("it does not wait any more") {
                Reply::Join(joined) => self.has_joined(actor, joined),
                Reply::Sync(synced) => self.has_synced(actor, &synced),
                Reply::Heartbeat(code) => self.react(actor, code),
                other => panic!("{other:?}"),
            }
            return;
        }
        let Actor { id, phase, .. } = self.actors[actor].clone();
        let instance_id = Self::instance(actor);
        match phase {
            Phase::Out => self.join(actor),
            Phase::In(generation) => {
                self.send(actor, Ask::Heartbeat(Heartbeat { member_id: id, generation, instance_id }));
            }
            Phase::Joined(generation, members) => {
                let part = |at: usize| {
                    let tokens = (0..TOKENS).filter(|token| token % members.len() == at);
                    tokens.map(|token| token as u8).collect::<Vec<_>>()
                };
                let assignments = members.iter().enumerate();
                let assignments = assignments.map(|(at, id)| (id.clone(), part(at).into()));
                let sync = Sync {
                    member_id: id,
                    generation,
                    instance_id,
                    assignments: assignments.collect(),
                    ..Sync::default()
                };
                self.send(actor, Ask::Sync(sync));
            }
        }
    }

    fn react(&mut self, actor: usize, code: ErrorCode) {
        let one = &mut self.actors[actor];
        match code {
            ErrorCode::None => {}
            ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration => one.phase = Phase::Out,
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => {
                one.id.clear();
                one.phase = Phase::Out;
            }
            other => panic!("{other:?}"),
        }
    }

    fn has_joined(&mut self, actor: usize, joined: Joined) {
        if joined.code == ErrorCode::MemberIdRequired {
            self.actors[actor].id = joined.member_id;
            return;
        }
        if joined.code != ErrorCode::None {
            return self.react(actor, joined.code);
        }
        assert!(joined.generation >= 1);
        self.newest = self.newest.max(joined.generation);
        let leader = self.leaders.entry(joined.generation).or_insert_with(|| actor_of(&joined.leader));
        assert_eq!(*leader, actor_of(&joined.leader), "generation {} has one leader", joined.generation);
        assert_eq!(actor_of(&joined.member_id), name(actor));
        if let ClassicEntry::Stable(synced) = self.recovered()
            && synced.generation == joined.generation
        {
            let is_known = synced.members.iter().any(|member| *member.id == *joined.member_id);
            assert!(is_known, "an id is durable before it is told");
        }
        self.actors[actor].id = joined.member_id;
        let members = joined.members.into_iter().map(|member| member.member_id).collect();
        self.actors[actor].phase = Phase::Joined(joined.generation, members);
    }

    fn has_synced(&mut self, actor: usize, synced: &Synced) {
        if synced.code != ErrorCode::None {
            return self.react(actor, synced.code);
        }
        let Phase::Joined(generation, _) = self.actors[actor].phase else { panic!("it had joined") };
        let remembered = match self.recovered() {
            ClassicEntry::Stable(synced) => synced.generation,
            ClassicEntry::Empty { generation, .. } => generation,
            other => panic!("{other:?}"),
        };
        assert!(remembered >= generation, "an assignment is durable before it is told");
        for token in &synced.assignment {
            let owner = self.owners.entry((generation, usize::from(*token))).or_insert_with(|| name(actor));
            assert_eq!(*owner, name(actor), "token {token} of generation {generation} has one owner");
        }
        self.actors[actor].phase = Phase::In(generation);
    }

    /// What a crash would bring back.
    fn recovered(&self) -> ClassicEntry {
        let entries = self.h.recovered(G);
        match entries.as_slice() {
            [Entry::Classic { entry, .. }] => entry.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn crash(&mut self) {
        self.h.crash();
        self.asked.clear();
        self.actors.iter_mut().for_each(|actor| actor.waiter = None);
        let remembered = match self.h.snapshot(G).as_slice() {
            [] => 0,
            [Entry::Classic { entry: ClassicEntry::Stable(synced), .. }] => synced.generation,
            [Entry::Classic { entry: ClassicEntry::Empty { generation, .. }, .. }] => *generation,
            other => panic!("{other:?}"),
        };
        let told = self.owners.keys().map(|(generation, _)| *generation).max().unwrap_or(0);
        assert!(remembered >= told, "what was told is remembered");
        // Generations that nobody had an assignment of may come again.
        self.leaders.retain(|generation, _| *generation <= remembered);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Poll(actor) => self.poll(*actor),
            Step::PollAll => (0..ACTORS).for_each(|actor| self.poll(actor)),
            Step::Die(actor) => {
                let metadata = self.actors[*actor].metadata;
                self.actors[*actor] = Actor { metadata, ..Actor::default() };
            }
            Step::Leave(actor) => {
                let member_id = std::mem::take(&mut self.actors[*actor].id);
                self.actors[*actor].phase = Phase::Out;
                self.actors[*actor].waiter = None;
                self.h.ask(G, Ask::Leave(vec![Leaving { member_id, instance_id: Self::instance(*actor) }]));
            }
            Step::Change(actor, to) => {
                self.actors[*actor].metadata = *to;
                if self.actors[*actor].waiter.is_none() {
                    self.actors[*actor].phase = Phase::Out;
                }
            }
            Step::Storm => {
                for actor in 0..ACTORS {
                    self.actors[actor].phase = Phase::Out;
                    self.join(actor);
                }
            }
            Step::Pass(ms) => self.h.advance(*ms),
            Step::HoldWrites => {
                self.is_held = true;
                self.h.hold_writes();
            }
            Step::FinishWrites => self.h.finish_writes(),
            Step::ReleaseWrites => self.release_writes(),
            Step::Crash => self.crash(),
            Step::Checkpoint => {
                self.release_writes();
                self.h.checkpoint();
            }
        }
        self.check();
    }

    fn release_writes(&mut self) {
        self.is_held = false;
        self.h.release_writes();
    }

    fn check(&mut self) {
        self.asked.retain(|waiter, _| self.h.waits(*waiter));
        if self.is_held {
            return;
        }
        let now_ms = self.h.now.mono_ms;
        for (waiter, asked_ms) in &self.asked {
            assert!(now_ms - asked_ms <= REBALANCE_MS + 2 * TICK_MS, "{waiter:?} waits since {asked_ms}, now {now_ms}");
        }
        assert_eq!(self.h.recovered(G), self.h.snapshot(G), "what the journal rebuilds is what is to be remembered");
    }

    /// Whatever happened: once all just go on, the group is Stable and everything has an owner.
    fn settles(&mut self) {
        self.release_writes();
        for _ in 0..80 {
            for _ in 0..4 {
                (0..ACTORS).for_each(|actor| self.poll(actor));
                self.check();
            }
            self.h.advance(500);
        }
        let newest = self.newest_told();
        let is_in = |actor: &Actor| matches!(actor.phase, Phase::In(generation) if generation == newest);
        assert!(self.actors.iter().all(is_in), "{:?}", self.actors);
        assert_eq!(self.h.state(), "Stable");
        let owned = self.owners.keys().filter(|(generation, _)| *generation == newest).count();
        assert_eq!(owned, TOKENS, "every token of the generation has an owner");
    }

    fn newest_told(&self) -> i32 {
        self.owners.keys().map(|(generation, _)| *generation).max().unwrap_or(0)
    }
}

proptest! {
    #[test]
    fn g2_to_g6_hold_whatever_happens(
        delay_ms in prop_oneof![Just(0), Just(1_000)],
        steps in proptest::collection::vec(step(), 1..160),
    ) {
        let mut world = World::new(delay_ms);
        steps.iter().for_each(|step| world.take(step));
        world.settles();
    }
}
