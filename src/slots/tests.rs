use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use oncilla_shards::ids::LeaderEpoch;
use oncilla_shards::slot::Position;

use super::*;
use crate::api::testing::{block_on, ctx};
use crate::disk::layout::{JournalId, checkpoint_name};
use crate::rt::file::FaultPlan;

const SLOT: SlotId = SlotId(7);
const OTHER: SlotId = SlotId(8);

/// Slots whose state is the list of their entries.
#[derive(Clone)]
struct Toy(Rc<State>);

struct State {
    files: Files,
    slots: RefCell<BTreeMap<SlotId, (Journal, Vec<String>)>>,
    /// The durable position at each answer to a write.
    settled: RefCell<Vec<(SlotId, Position)>>,
    failed: Cell<u32>,
}

impl Kind for Toy {
    type Entry = String;

    fn files<'a>(&'a self, _: &'a Ctx) -> &'a Files {
        &self.0.files
    }

    fn with_journal<T>(&self, _: &Ctx, slot: SlotId, job: impl FnOnce(&mut Journal) -> T) -> T {
        job(&mut self.0.slots.borrow_mut().get_mut(&slot).expect("a slot of this shard").0)
    }

    fn restore(&self, _: &Ctx, slot: SlotId, journal: Journal, entries: Vec<String>) {
        assert!(self.0.slots.borrow_mut().insert(slot, (journal, entries)).is_none());
    }

    fn snapshot(&self, _: &Ctx, slot: SlotId) -> Vec<String> {
        self.entries(slot)
    }

    fn settled(&self, ctx: &Rc<Ctx>, slot: SlotId) {
        let durable = self.with_journal(ctx, slot, |journal| journal.durable());
        self.0.settled.borrow_mut().push((slot, durable));
    }

    fn failed(&self, ctx: &Rc<Ctx>, slot: SlotId) {
        assert!(self.with_journal(ctx, slot, |journal| journal.is_offline()));
        self.0.failed.set(self.0.failed.get() + 1);
    }
}

impl Toy {
    /// A start: the slots as the files hold them.
    fn start(ctx: &Ctx, epoch: i32, faults: Option<Arc<FaultPlan>>) -> Result<Self, DiskError> {
        let files = Files::new(&ctx.config, "toy_state", LeaderEpoch(epoch));
        let files = match faults {
            Some(faults) => files.with_faults(faults),
            None => files,
        };
        let (slots, settled) = (RefCell::default(), RefCell::default());
        let toy = Self(Rc::new(State { files, slots, settled, failed: Cell::new(0) }));
        load_all(ctx, &toy)?;
        Ok(toy)
    }

    fn entries(&self, slot: SlotId) -> Vec<String> {
        self.0.slots.borrow()[&slot].1.clone()
    }

    fn append(&self, ctx: &Rc<Ctx>, slot: SlotId, entry: String) {
        let wants_writer = {
            let mut slots = self.0.slots.borrow_mut();
            let (journal, entries) = slots.get_mut(&slot).expect("a slot of this shard");
            journal.append(&entry);
            entries.push(entry);
            journal.take_writer()
        };
        if wants_writer {
            start_writer(ctx, self, slot);
        }
    }

    fn names(&self) -> Vec<String> {
        let listed = std::fs::read_dir(self.0.files.directory()).unwrap();
        let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

fn journal_name(epoch: i32, roll: u32) -> String {
    JournalId { slot: SLOT, epoch: LeaderEpoch(epoch), roll }.file()
}

#[test]
fn appends_during_a_write_join_into_one_and_are_answered_when_it_is_durable() {
    let (ctx, _dir) = ctx();
    let toy = Toy::start(&ctx, 1, None).unwrap();
    block_on(async {
        for number in 0..100 {
            toy.append(&ctx, SLOT, number.to_string());
        }
        assert!(toy.0.settled.borrow().is_empty(), "nothing is durable before the disk was reached");
        toy.0.files.idle(SLOT).await;
    });
    assert_eq!(*toy.0.settled.borrow(), [(SLOT, Position(1)), (SLOT, Position(100))]);
    assert_eq!(ctx.metrics.slot_write_us.count(), 2);
    assert!(ctx.metrics.slot_journal_bytes.get() > 100);
    assert_eq!(toy.names(), [journal_name(1, 0)], "slots that were not written have no file");
}

#[test]
fn what_was_durable_is_there_after_a_stop_and_after_a_crash() {
    let (ctx, _dir) = ctx();
    let mut before: Vec<String> = Vec::new();
    for epoch in 1..=4 {
        let toy = Toy::start(&ctx, epoch, None).unwrap();
        assert_eq!(toy.entries(SLOT), before, "start {epoch}");
        assert_eq!(toy.0.slots.borrow()[&SLOT].0.durable().0, before.len() as u64);
        block_on(async {
            for number in 0..20 {
                toy.append(&ctx, SLOT, format!("{epoch} {number}"));
                toy.append(&ctx, OTHER, format!("other {epoch} {number}"));
            }
            if epoch % 2 == 0 {
                close_all(&ctx, &toy).await;
            } else {
                toy.0.files.idle(SLOT).await;
                toy.0.files.idle(OTHER).await;
            }
        });
        before = toy.entries(SLOT);
    }
    let toy = Toy::start(&ctx, 5, None).unwrap();
    assert_eq!((toy.entries(SLOT).len(), toy.entries(OTHER).len()), (80, 80));
    assert!(!toy.names().contains(&checkpoint_name(SLOT)), "no checkpoint was due");
}

#[test]
fn a_failed_write_takes_its_slot_offline_and_nothing_more_is_acknowledged() {
    let (ctx, _dir) = ctx();
    let plan = Arc::new(FaultPlan::default());
    let toy = Toy::start(&ctx, 1, Some(plan.clone())).unwrap();
    block_on(async {
        toy.append(&ctx, SLOT, "durable".to_owned());
        toy.0.files.idle(SLOT).await;
        plan.fail_write_after(0, 0);
        toy.append(&ctx, SLOT, "lost".to_owned());
        toy.append(&ctx, SLOT, "lost with it".to_owned());
        toy.0.files.idle(SLOT).await;
        toy.append(&ctx, SLOT, "lost as well".to_owned());
        toy.append(&ctx, OTHER, "served on".to_owned());
        close_all(&ctx, &toy).await;
    });
    assert_eq!(*toy.0.settled.borrow(), [(SLOT, Position(1)), (OTHER, Position(1))]);
    assert_eq!((toy.0.failed.get(), ctx.metrics.slots_offline.get()), (1, 1));
    let next = Toy::start(&ctx, 2, None).unwrap();
    assert_eq!((next.entries(SLOT), next.entries(OTHER)), (vec!["durable".to_owned()], vec!["served on".to_owned()]));
}

#[test]
fn a_journal_that_cannot_be_created_takes_the_slot_offline() {
    let (ctx, _dir) = ctx();
    let toy = Toy::start(&ctx, 1, None).unwrap();
    std::fs::create_dir_all(toy.0.files.directory().join(journal_name(1, 0))).unwrap();
    block_on(async {
        toy.append(&ctx, SLOT, "lost".to_owned());
        toy.0.files.idle(SLOT).await;
    });
    assert!(toy.0.settled.borrow().is_empty());
    assert_eq!(toy.0.failed.get(), 1);
}

/// Entries that make a checkpoint due, appended over several writes, and one more while it is written.
async fn outgrow(ctx: &Rc<Ctx>, toy: &Toy) {
    for number in 0..12 {
        toy.append(ctx, SLOT, format!("{number} {}", "x".repeat(100_000)));
        if number == 10 {
            while !toy.with_journal(ctx, SLOT, |journal| journal.durable() == journal.end()) {
                crate::rt::yield_by_timer().await;
            }
        }
    }
    toy.0.files.idle(SLOT).await;
}

#[test]
fn a_checkpoint_replaces_the_journals_while_writes_go_on() {
    let (ctx, _dir) = ctx();
    let toy = Toy::start(&ctx, 1, None).unwrap();
    block_on(outgrow(&ctx, &toy));
    assert_eq!(ctx.metrics.slot_checkpoints.get(), 1);
    assert_eq!(toy.names(), [journal_name(1, 1), checkpoint_name(SLOT)]);
    assert_eq!(toy.with_journal(&ctx, SLOT, |journal| journal.durable()), Position(12));
    let next = Toy::start(&ctx, 2, None).unwrap();
    assert_eq!(next.entries(SLOT), toy.entries(SLOT));
    block_on(async {
        next.append(&ctx, SLOT, "more".to_owned());
        close_all(&ctx, &next).await;
    });
    assert_eq!(Toy::start(&ctx, 3, None).unwrap().entries(SLOT), next.entries(SLOT));
}

#[test]
fn a_failed_checkpoint_keeps_the_journals_and_the_slot_serves_on() {
    let (ctx, _dir) = ctx();
    let toy = Toy::start(&ctx, 1, None).unwrap();
    let blocked = toy.0.files.directory().join(checkpoint_name(SLOT));
    std::fs::create_dir_all(blocked.join("not a checkpoint")).unwrap();
    block_on(outgrow(&ctx, &toy));
    assert_eq!((ctx.metrics.slot_checkpoints.get(), ctx.metrics.slots_offline.get()), (0, 0));
    assert_eq!(toy.with_journal(&ctx, SLOT, |journal| journal.durable()), Position(12));
    std::fs::remove_dir_all(&blocked).unwrap();
    assert_eq!(toy.names(), [journal_name(1, 0), journal_name(1, 1)]);
    assert_eq!(Toy::start(&ctx, 2, None).unwrap().entries(SLOT), toy.entries(SLOT));
}

#[test]
fn a_stop_writes_a_checkpoint_that_is_due() {
    let (ctx, _dir) = ctx();
    let toy = Toy::start(&ctx, 1, None).unwrap();
    let blocked = toy.0.files.directory().join(checkpoint_name(SLOT));
    std::fs::create_dir_all(blocked.join("not a checkpoint")).unwrap();
    block_on(outgrow(&ctx, &toy));
    std::fs::remove_dir_all(&blocked).unwrap();
    let next = Toy::start(&ctx, 2, None).unwrap();
    block_on(close_all(&ctx, &next));
    assert_eq!(next.names(), [checkpoint_name(SLOT)]);
    assert_eq!(Toy::start(&ctx, 3, None).unwrap().entries(SLOT), toy.entries(SLOT));
}

#[test]
fn a_slot_that_is_not_all_there_refuses_the_start_with_its_path() {
    let (ctx, _dir) = ctx();
    let toy = Toy::start(&ctx, 1, None).unwrap();
    std::fs::create_dir_all(toy.0.files.directory()).unwrap();
    std::fs::write(toy.0.files.directory().join(checkpoint_name(SLOT)), "{}").unwrap();
    let error = Toy::start(&ctx, 2, None).err().expect("refused").to_string();
    assert!(error.contains("toy_state/slot-07.json"), "{error}");
}
