//! Many clients that keep the protocol, at random times, with crashes of either side: no partition has two readers, and
//! in the end everybody has its share.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::image::Change;

#[derive(Clone, Debug)]
enum Step {
    Join(u8, u8),
    /// A heartbeat that tells what the client has, after it gave up what it was to give up.
    Report(u8),
    /// A heartbeat whose answer is lost.
    Lost(u8),
    Leave(u8),
    LeaveForAWhile(u8),
    /// The client is gone without a word.
    Vanish(u8),
    Wait(u16),
    Grow(u8),
    CrashBroker,
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0u8..5;
    prop_oneof![
        4 => (who.clone(), any::<u8>()).prop_map(|(who, topics)| Step::Join(who, topics)),
        10 => who.clone().prop_map(Step::Report),
        2 => who.clone().prop_map(Step::Lost),
        1 => who.clone().prop_map(Step::Leave),
        1 => who.clone().prop_map(Step::LeaveForAWhile),
        1 => who.prop_map(Step::Vanish),
        2 => (0u16..30_000).prop_map(Step::Wait),
        1 => (0u8..3).prop_map(Step::Grow),
        1 => Just(Step::CrashBroker),
        1 => Just(Step::Checkpoint),
    ]
}

/// A client of the protocol: members 3 and 4 are static.
#[derive(Clone, Debug, Default)]
struct Client {
    epoch: i32,
    owned: BTreeSet<(TopicId, i32)>,
}

struct World {
    lab: Lab,
    topics: Vec<TopicId>,
    clients: BTreeMap<u8, Client>,
    lives: [u32; 5],
    epochs: (i32, i32),
}

const NAMES: [&str; 3] = ["t", "u", "v"];

fn listed(owned: &BTreeSet<(TopicId, i32)>) -> TopicPartitions {
    let mut by_topic: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    owned.iter().for_each(|(topic, index)| by_topic.entry(*topic).or_default().push(*index));
    by_topic.into_iter().collect()
}

impl World {
    fn new() -> Self {
        let mut lab = Lab::new(5);
        lab.harness.set(|settings| settings.consumer_assignment_interval_ms = 300);
        let topics = vec![lab.topic, lab.harness.topic("u", 3), lab.harness.topic("v", 1)];
        Self { lab, topics, clients: BTreeMap::new(), lives: [0; 5], epochs: (0, 0) }
    }

    fn request(&self, who: u8, beat: ConsumerHeartbeat) -> ConsumerHeartbeat {
        let instance_id = (who >= 3).then(|| format!("i{who}"));
        ConsumerHeartbeat { member_id: format!("m{who}-{}", self.lives[usize::from(who)]), instance_id, ..beat }
    }

    fn join(&mut self, who: u8, mask: u8) {
        self.clients.remove(&who);
        self.lives[usize::from(who)] += 1;
        let wanted: Vec<&str> =
            NAMES.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, n)| *n).collect();
        let mut beat = self.request(who, join("", &wanted));
        if mask & 8 != 0 {
            beat.regex = Some("[uv]".into());
        }
        if mask & 16 != 0 {
            beat.assignor = Some("range".into());
        }
        let reply = self.lab.send(beat);
        match reply.code {
            ErrorCode::None => {
                self.clients.insert(who, Client { epoch: reply.member_epoch, owned: BTreeSet::new() });
                self.take(who, reply);
            }
            ErrorCode::UnreleasedInstanceId => assert!(who >= 3),
            other => panic!("{other:?}"),
        }
    }

    /// Takes what an answer gives, and gives up what it no longer lists.
    fn take(&mut self, who: u8, reply: ConsumerHeartbeatReply) {
        let client = self.clients.get_mut(&who).expect("it asked");
        client.epoch = reply.member_epoch;
        if let Some(assignment) = reply.assignment {
            let keys = |(topic, indexes): (TopicId, Vec<i32>)| indexes.into_iter().map(move |index| (topic, index));
            client.owned = assignment.into_iter().flat_map(keys).collect();
        }
    }

    fn report(&mut self, who: u8, is_lost: bool) {
        let Some(client) = self.clients.get(&who) else { return };
        let owned = Some(listed(&client.owned));
        let full = ConsumerHeartbeat { owned, ..beat("", client.epoch) };
        let reply = self.lab.send(self.request(who, full));
        match reply.code {
            ErrorCode::None if is_lost => {}
            ErrorCode::None => self.take(who, reply),
            ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch => {
                // It drops everything and joins again under its own id.
                self.clients.remove(&who);
            }
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join(who, mask) if !self.clients.contains_key(&who) => self.join(who, mask),
            Step::Join(who, _) | Step::Report(who) => self.report(who, false),
            Step::Lost(who) => self.report(who, true),
            Step::Leave(who) | Step::LeaveForAWhile(who) => {
                let epoch = if matches!(step, Step::LeaveForAWhile(_)) && who >= 3 { -2 } else { -1 };
                if self.clients.remove(&who).is_some() {
                    self.lab.send(self.request(who, beat("", epoch)));
                }
            }
            Step::Vanish(who) => _ = self.clients.remove(&who),
            Step::Wait(ms) => self.lab.harness.advance(u64::from(ms)),
            Step::Grow(at) => {
                let id = self.topics[usize::from(at)];
                let partitions = self.lab.harness.image.topic_by_id(id).expect("made above").partitions + 1;
                self.lab.harness.image = self.lab.harness.image.apply(&[Change::GrowTopic { id, partitions }]);
            }
            Step::CrashBroker => self.lab.harness.crash(),
            Step::Checkpoint => self.lab.harness.checkpoint(),
        }
        self.check();
    }

    fn check(&mut self) {
        let Reply::ConsumerDescribe(described) = self.lab.harness.answer(GROUP, Ask::ConsumerDescribe) else {
            panic!()
        };
        let Ok(described) = described else { return };
        assert!((described.epoch, described.assignment_epoch) >= self.epochs, "epochs never go back");
        self.epochs = (described.epoch, described.assignment_epoch);
        let mut held = BTreeMap::new();
        for member in &described.members {
            assert!(member.member_epoch <= described.assignment_epoch);
            for (topic, indexes) in &member.assignment {
                for index in indexes {
                    let other = held.insert((*topic, *index), member.member_id.clone());
                    assert_eq!(other, None, "{topic}-{index} has two holders");
                }
            }
        }
        let alive: BTreeSet<_> = described.members.iter().map(|member| member.member_id.clone()).collect();
        for (who, client) in &self.clients {
            let id = format!("m{who}-{}", self.lives[usize::from(*who)]);
            if alive.contains(&id) {
                let strays: Vec<_> = client.owned.iter().filter(|key| held.get(key) != Some(&id)).collect();
                assert!(strays.is_empty(), "{id} reads {strays:?} that it does not hold");
            }
        }
    }

    /// Everybody who is left heartbeats until nothing moves.
    fn settle(&mut self) {
        for round in 0..40 {
            self.lab.harness.advance(2_000);
            for who in 0..5 {
                if !self.clients.contains_key(&who) && round > 25 {
                    self.join(who, 1);
                }
                self.report(who, false);
                self.check();
            }
        }
        let described = self.lab.describe();
        assert_eq!((described.state, described.members.len()), ("Stable", 5));
        let all: usize = described.members.iter().flat_map(|m| &m.assignment).map(|(_, indexes)| indexes.len()).sum();
        let wanted: i32 = self
            .lab
            .harness
            .image
            .topics()
            .filter(|topic| {
                described.members.iter().any(|member| {
                    member.topics.iter().any(|name| **name == *topic.name)
                        || member.regex == "[uv]" && ["u", "v"].contains(&&*topic.name)
                })
            })
            .map(|topic| topic.partitions)
            .sum();
        assert_eq!(all, usize::try_from(wanted).expect("few"), "every partition has a reader");
        for member in described.members {
            assert_eq!(member.assignment, member.target);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn no_partition_has_two_readers_and_all_is_shared_out_in_the_end(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.settle();
    }
}
