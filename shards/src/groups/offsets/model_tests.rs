//! Random commits, deletions, looks at the age, and crashes at any moment, against a plain map.
//!
//! What is acknowledged is never lost and never goes back; what is not may come back or not; a look forgets exactly
//! what is old enough.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::tests::{commit, fetch, image, partition};
use super::*;
use crate::groups::{Ask, Effect, Groups, Now, Reply};
use crate::ids::SlotId;
use crate::partition::WaiterId;
use crate::slot::rebuild::Rebuild;
use crate::slot::slot_of;

const RETENTION_MS: i64 = 100;
const NAMES: [&str; 3] = ["g", "group 2", ""];

#[derive(Clone, Debug)]
enum Step {
    Commit { group: usize, retention_ms: i64, partitions: Vec<(u128, i32, i64, bool)> },
    Delete { group: usize, topic: u128, indexes: Vec<i32> },
    TopicDeleted(u128),
    DeleteGroup(usize),
    Pass(i64),
    Look,
    Write,
    Checkpoint,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let group = 0..NAMES.len();
    let committed = (1..4_u128, 0..4_i32, -1..50_i64, any::<bool>());
    let retention = prop_oneof![4 => Just(-1), 1 => 0..200_i64];
    let commit = (group.clone(), retention, vec(committed, 0..6))
        .prop_map(|(group, retention_ms, partitions)| Step::Commit { group, retention_ms, partitions });
    let delete = (group.clone(), 1..4_u128, vec(0..4_i32, 0..3)).prop_map(|(group, topic, indexes)| Step::Delete {
        group,
        topic,
        indexes,
    });
    let step = prop_oneof![
        8 => commit,
        2 => delete,
        1 => (1..4_u128).prop_map(Step::TopicDeleted),
        1 => group.prop_map(Step::DeleteGroup),
        3 => (0..80_i64).prop_map(Step::Pass),
        2 => Just(Step::Look),
        6 => Just(Step::Write),
        1 => Just(Step::Checkpoint),
        2 => Just(Step::Crash),
    ];
    vec(step, 1..60)
}

/// Offset, metadata, time of the commit, time at which it goes.
type Value = (i64, String, i64, Option<i64>);
type State = BTreeMap<(usize, PartitionKey), Value>;

/// A slot's owner, its disk, and what a plain map says of each position.
struct World {
    groups: Groups,
    now_ms: i64,
    checkpoint: Option<Vec<u8>>,
    journals: Vec<Vec<u8>>,
    /// The state after the steps so far, and after each step that ended at a position.
    state: State,
    history: Vec<(u64, State)>,
    acknowledged: u64,
    waiting: BTreeMap<u64, u64>,
    next_waiter: u64,
}

/// All groups in one slot, so that they share a journal.
fn names() -> [String; 3] {
    let slot = slot_of(NAMES[0].as_bytes());
    NAMES.map(|name| {
        let named = (0..).map(|n| if n == 0 { name.to_owned() } else { format!("{name}{n}") });
        named.into_iter().find(|name| slot_of(name.as_bytes()) == slot).expect("some name has the slot")
    })
}

fn slot() -> SlotId {
    slot_of(NAMES[0].as_bytes())
}

fn settings() -> GroupSettings {
    GroupSettings { offsets_retention_ms: RETENTION_MS, ..GroupSettings::default() }
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            groups: Groups::new(settings()),
            now_ms: 1_000,
            checkpoint: None,
            journals: vec![Vec::new()],
            state: State::new(),
            history: vec![(0, State::new())],
            acknowledged: 0,
            waiting: BTreeMap::new(),
            next_waiter: 0,
        };
        world.groups.insert(slot(), Journal::default(), [], world.now());
        world
    }

    fn now(&self) -> Now {
        Now { wall: TimestampMs(self.now_ms), mono_ms: 0 }
    }

    fn end(&mut self) -> u64 {
        self.groups.journal_mut(slot()).expect("owned").end().0
    }

    /// A step is over: its state belongs to the journal's end, and its answer may not come before that is durable.
    fn after(&mut self, effects: Vec<Effect>) {
        let end = self.end();
        self.history.push((end, self.state.clone()));
        self.replies(effects);
    }

    fn replies(&mut self, effects: Vec<Effect>) {
        let durable = self.groups.journal_mut(slot()).expect("owned").durable().0;
        for effect in effects {
            let Effect::Reply(waiter, reply) = effect else { continue };
            reply.expect("no error of the whole request");
            let position = self.waiting.remove(&waiter.0).expect("one answer a request");
            assert!(position <= durable, "answered before it is durable");
            self.acknowledged = self.acknowledged.max(position);
        }
    }

    fn ask(&mut self, group: usize, ask: Ask) {
        self.next_waiter += 1;
        let waiter = self.next_waiter;
        let mut effects = Vec::new();
        let name = &names()[group];
        self.groups.ask(name, ask, WaiterId(waiter), self.now(), &image(), &mut effects);
        let end = self.end();
        self.waiting.insert(waiter, end);
        self.after(effects);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Commit { group, retention_ms, partitions } => self.commit(group, retention_ms, partitions),
            Step::Delete { group, topic, indexes } => {
                let keys: Vec<_> = indexes.iter().map(|index| super::tests::key(topic, *index)).collect();
                keys.iter().for_each(|key| drop(self.state.remove(&(group, *key))));
                self.ask(group, Ask::DeleteOffsets(keys));
            }
            Step::TopicDeleted(topic) => {
                self.state.retain(|(_, key), _| key.topic != TopicId(topic));
                let mut effects = Vec::new();
                self.groups.topics_deleted(&[TopicId(topic)], &mut effects);
                self.after(effects);
            }
            Step::DeleteGroup(group) => {
                self.state.retain(|(owner, _), _| *owner != group);
                self.ask(group, Ask::Delete);
            }
            Step::Pass(ms) => self.now_ms += ms,
            Step::Look => {
                let now_ms = self.now_ms;
                self.state.retain(|_, (_, _, at, expires)| now_ms < expires.unwrap_or(*at + RETENTION_MS));
                let mut effects = Vec::new();
                self.groups.expire_offsets(self.now(), &image(), &mut effects);
                self.after(effects);
            }
            Step::Write => self.write(),
            Step::Checkpoint => self.write_checkpoint(),
            Step::Crash => self.crash(),
        }
    }

    fn commit(&mut self, group: usize, retention_ms: i64, partitions: Vec<(u128, i32, i64, bool)>) {
        let asked = partitions.iter().map(|(topic, index, offset, named)| CommitPartition {
            metadata: named.then(|| format!("m{offset}")),
            ..partition(*topic, *index, *offset)
        });
        let asked: Vec<_> = asked.collect();
        for one in &asked {
            let expires = (retention_ms >= 0).then_some(self.now_ms + retention_ms);
            let value = (one.offset, one.metadata.clone().unwrap_or_default(), self.now_ms, expires);
            self.state.insert((group, one.key), value);
        }
        self.ask(group, Ask::Commit(Commit { version: 4, retention_ms, ..commit(asked) }));
    }

    fn write(&mut self) {
        let journal = self.groups.journal_mut(slot()).expect("owned");
        let Some(write) = journal.take_write() else { return };
        if write.roll {
            self.journals.push(Vec::new());
        }
        self.journals.last_mut().expect("one").extend(write.bytes);
        journal.wrote();
        let mut effects = Vec::new();
        self.groups.settled(slot(), &mut effects);
        self.replies(effects);
    }

    /// The checkpoint may be ahead of the journal: it is written from the state as it is.
    fn write_checkpoint(&mut self) {
        let entries = self.groups.snapshot(slot());
        let journal = self.groups.journal_mut(slot()).expect("owned");
        let position = journal.checkpoint_started();
        let bytes = crate::slot::checkpoint::encode(position, &entries);
        journal.checkpointed(bytes.len() as u64);
        self.checkpoint = Some(bytes);
        self.write();
    }

    fn crash(&mut self) {
        let mut rebuild = Rebuild::<Entry>::new(self.checkpoint.as_deref()).expect("a checkpoint");
        for journal in &self.journals {
            rebuild.journal(journal).expect("a journal");
        }
        let (journal, entries) = rebuild.finish();
        let survived = journal.end().0;
        assert!(survived >= self.acknowledged, "an acknowledged step is lost");
        self.groups = Groups::new(settings());
        self.groups.insert(slot(), journal, entries, self.now());
        self.journals.push(Vec::new());
        self.waiting.clear();
        self.history.retain(|(position, _)| *position <= survived);
        self.state = self.history.last().expect("the beginning").1.clone();
    }

    fn check(&mut self) {
        let mut found = State::new();
        for (group, name) in names().iter().enumerate() {
            let waiter = WaiterId(u64::MAX);
            let mut effects = Vec::new();
            let mut copy = Groups::new(settings());
            copy.insert(slot(), Journal::default(), self.groups.snapshot(slot()), self.now());
            copy.ask(name, Ask::FetchOffsets(fetch(None)), waiter, self.now(), &image(), &mut effects);
            let [Effect::Reply(_, Ok(Reply::FetchOffsets(read)))] = &effects[..] else { panic!("{effects:?}") };
            for one in &read.partitions {
                found.insert((group, one.key), (one.offset, one.metadata.clone(), 0, None));
            }
        }
        let expected =
            self.state.iter().map(|(key, (offset, metadata, ..))| (*key, (*offset, metadata.clone(), 0, None)));
        assert_eq!(found, expected.collect::<State>());
    }
}

proptest! {
    #[test]
    fn g19_1_acknowledged_commits_survive_any_crash_and_expire_exactly(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        world.write();
        world.crash();
        world.check();
    }
}
