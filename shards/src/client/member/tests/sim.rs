//! Members against the broker's own coordinator, at random times, with lost requests and answers, crashes of the
//! broker, and consumers that are slow to let go: nobody reads what the coordinator gave to others while it is a
//! member, and in the end everything is read by one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::super::*;
use crate::groups::testing::Harness;
use crate::groups::{Ask, ConsumerHeartbeat, ConsumerHeartbeatReply, Reply};
use crate::image::Change;

const GROUP: &str = "g";
const MEMBERS: u8 = 4;

#[derive(Clone, Debug)]
enum Event {
    Start(u8),
    /// One step, and what becomes of its request.
    Run(u8, Fate),
    /// The consumer does what it was told first.
    LetGo(u8),
    Close(u8),
    /// The process is gone without a word.
    Vanish(u8),
    Wait(u16),
    Grow,
    CrashBroker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    RequestLost,
    AnswerLost,
    Moved,
}

fn event() -> impl Strategy<Value = Event> {
    let who = 0..MEMBERS;
    let fate = prop_oneof![
        8 => Just(Fate::Answered),
        1 => Just(Fate::RequestLost),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::Moved),
    ];
    prop_oneof![
        3 => who.clone().prop_map(Event::Start),
        20 => (who.clone(), fate).prop_map(|(who, fate)| Event::Run(who, fate)),
        6 => who.clone().prop_map(Event::LetGo),
        1 => who.clone().prop_map(Event::Close),
        1 => who.prop_map(Event::Vanish),
        4 => (0u16..8_000).prop_map(Event::Wait),
        1 => (40_000u16..61_000).prop_map(Event::Wait),
        1 => Just(Event::Grow),
        1 => Just(Event::CrashBroker),
    ]
}

/// A member with the consumer that it tells.
struct Actor {
    member: Member,
    reads: Parts,
    /// What it was told to let go of and has not.
    to_go: VecDeque<Parts>,
}

struct World {
    harness: Harness,
    topic: TopicId,
    actors: BTreeMap<u8, Actor>,
    lives: u32,
}

impl World {
    fn new() -> Self {
        let mut harness = Harness::new();
        harness.set(|settings| settings.consumer_assignment_interval_ms = 200);
        let topic = harness.topic("t", 5);
        Self { harness, topic, actors: BTreeMap::new(), lives: 0 }
    }

    fn now_ms(&self) -> u64 {
        self.harness.now.mono_ms
    }

    fn event(&mut self, event: &Event) {
        let now_ms = self.now_ms();
        match *event {
            Event::Start(who) if !self.actors.contains_key(&who) => {
                self.lives += 1;
                let member = Member::new(format!("m{who}-{}", self.lives), vec!["t".into()]);
                self.actors.insert(who, Actor { member, reads: Parts::new(), to_go: VecDeque::new() });
            }
            Event::Start(who) => _ = self.run(who, Fate::Answered),
            Event::Run(who, fate) => _ = self.run(who, fate),
            Event::LetGo(who) => self.let_go(who),
            Event::Close(who) => {
                if let Some(actor) = self.actors.get_mut(&who) {
                    actor.reads.clear();
                    actor.to_go.clear();
                    actor.member.close(now_ms);
                }
            }
            Event::Vanish(who) => _ = self.actors.remove(&who),
            Event::Wait(ms) => self.harness.advance(u64::from(ms)),
            Event::Grow => {
                let partitions = self.partitions() + 1;
                let change = Change::GrowTopic { id: self.topic, partitions };
                self.harness.image = self.harness.image.apply(&[change]);
            }
            Event::CrashBroker => self.harness.crash(),
        }
        self.check();
    }

    fn partitions(&self) -> i32 {
        self.harness.image.topic_by_id(self.topic).expect("made above").partitions
    }

    fn let_go(&mut self, who: u8) {
        let now_ms = self.now_ms();
        let Some(actor) = self.actors.get_mut(&who) else { return };
        if let Some(parts) = actor.to_go.pop_front() {
            actor.reads = actor.reads.difference(&parts).copied().collect();
            actor.member.released(now_ms);
        }
    }

    /// One step of a member; whether it wanted one.
    fn run(&mut self, who: u8, fate: Fate) -> bool {
        let now_ms = self.now_ms();
        let Some(actor) = self.actors.get_mut(&who) else { return false };
        match actor.member.poll(now_ms) {
            Step::Tell(Notice::Take(parts)) => actor.reads.extend(parts),
            Step::Tell(Notice::Give(parts) | Notice::Lost(parts)) => actor.to_go.push_back(parts),
            Step::Find if fate == Fate::RequestLost => actor.member.lost(now_ms),
            Step::Find => actor.member.found(now_ms, Ok(1)),
            Step::Beat(_) if fate == Fate::RequestLost => actor.member.lost(now_ms),
            Step::Beat(_) if fate == Fate::Moved => {
                let code = ErrorCode::NotCoordinator.wire();
                actor.member.answered(now_ms, BeatAnswer { code, ..BeatAnswer::default() });
            }
            Step::Beat(beat) => self.beat(who, beat, fate),
            Step::Wait(_) => return false,
            Step::Done(result) => {
                assert_eq!(result, Ok(()), "nothing that happens here ends a membership");
                self.actors.remove(&who);
            }
        }
        true
    }

    fn beat(&mut self, who: u8, beat: Beat, fate: Fate) {
        let ask = ConsumerHeartbeat {
            version: 1,
            member_id: beat.member_id,
            member_epoch: beat.epoch,
            rebalance_timeout_ms: beat.rebalance_timeout_ms.unwrap_or(-1),
            topics: beat.topics,
            owned: beat.owned,
            ..ConsumerHeartbeat::default()
        };
        let Reply::ConsumerHeartbeat(reply) = self.harness.answer(GROUP, Ask::ConsumerHeartbeat(ask)) else {
            panic!("another answer")
        };
        let now_ms = self.now_ms();
        let member = &mut self.actors.get_mut(&who).expect("it asked").member;
        match fate {
            Fate::AnswerLost => member.lost(now_ms),
            _ => member.answered(now_ms, answer(reply)),
        }
    }

    /// What each member may read, as the coordinator has it.
    fn held(&mut self) -> BTreeMap<String, Parts> {
        let Reply::ConsumerDescribe(described) = self.harness.answer(GROUP, Ask::ConsumerDescribe) else {
            panic!("another answer")
        };
        let members = described.map(|described| described.members).unwrap_or_default();
        let keys = |(topic, indexes): (TopicId, Vec<i32>)| indexes.into_iter().map(move |index| (topic, index));
        members.into_iter().map(|one| (one.member_id, one.assignment.into_iter().flat_map(keys).collect())).collect()
    }

    fn check(&mut self) {
        let held = self.held();
        for actor in self.actors.values() {
            let Some(own) = held.get(&actor.member.id) else { continue };
            let strays: Vec<_> = actor.reads.difference(own).collect();
            assert!(strays.is_empty(), "{} reads {strays:?} that it was not given", actor.member.id);
        }
    }

    /// Everything works from now on, and those who are there read everything, each partition once.
    fn settle(&mut self) {
        for _ in 0..120 {
            for who in 0..MEMBERS {
                let mut steps = 0;
                while self.run(who, Fate::Answered) {
                    steps += 1;
                    assert!(steps < 50, "member {who} never rests");
                    self.check();
                }
                while self.actors.get(&who).is_some_and(|actor| !actor.to_go.is_empty()) {
                    self.let_go(who);
                    self.check();
                }
            }
            self.harness.advance(1_000);
        }
        let held = self.held();
        let alive: BTreeSet<_> = self.actors.values().map(|actor| actor.member.id.clone()).collect();
        assert_eq!(held.into_keys().collect::<BTreeSet<_>>(), alive, "who left or vanished is no member");
        let mut read: Vec<_> = self.actors.values().flat_map(|actor| actor.reads.iter().copied()).collect();
        read.sort_unstable();
        let all = if self.actors.is_empty() { 0 } else { self.partitions() };
        assert_eq!(read, (0..all).map(|index| (self.topic, index)).collect::<Vec<_>>());
    }
}

fn answer(reply: ConsumerHeartbeatReply) -> BeatAnswer {
    BeatAnswer {
        code: reply.code.wire(),
        message: reply.message,
        epoch: reply.member_epoch,
        interval_ms: reply.heartbeat_interval_ms,
        assignment: reply.assignment,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn nobody_reads_what_others_were_given_and_all_is_read_at_last(events in prop::collection::vec(event(), 1..150)) {
        let mut world = World::new();
        events.iter().for_each(|event| world.event(event));
        world.settle();
    }
}
