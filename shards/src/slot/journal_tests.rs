use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::checkpoint;
use super::rebuild::Rebuild;
use super::*;
use crate::limits::{SLOT_BUFFER_BYTES_MAX, SLOT_JOURNAL_BYTES_MAX, SLOT_WRITE_BYTES_MAX};

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// Takes and finishes the next write.
fn write(journal: &mut Journal) -> Option<JournalWrite> {
    let write = journal.take_write()?;
    journal.wrote();
    Some(write)
}

#[test]
fn what_is_appended_during_a_write_goes_out_in_one_further_write() {
    let mut journal = Journal::default();
    assert!(!journal.take_writer(), "nothing is pending");
    assert_eq!(journal.append(&1), Position(1));
    assert!(journal.take_writer());
    let first = journal.take_write().unwrap();
    assert_eq!((first.end, first.roll), (Position(1), false));
    for entry in 2..=10 {
        journal.append(&entry);
        assert!(!journal.take_writer(), "a writer is at work");
    }
    assert_eq!(journal.durable(), Position(0));
    journal.wrote();
    assert_eq!(journal.durable(), Position(1));
    journal.reuse(first.bytes);
    let second = write(&mut journal).unwrap();
    assert_eq!(line::Lines::new(&second.bytes).count(), 9);
    assert_eq!((second.end, journal.durable(), journal.end()), (Position(10), Position(10), Position(10)));
    assert_eq!(journal.take_write(), None);
    journal.append(&11);
    assert!(journal.take_writer(), "the writer before has ended");
}

#[test]
fn a_write_is_bounded_and_ends_with_a_line_unless_one_line_is_longer() {
    let mut journal = Journal::default();
    let lengths = [400_000, 400_000, 400_000, 3 * SLOT_WRITE_BYTES_MAX, 10];
    for length in lengths {
        journal.append(&text(length));
    }
    let writes: Vec<_> = std::iter::from_fn(|| write(&mut journal)).collect();
    assert_eq!(writes.iter().map(|write| write.end.0).collect::<Vec<_>>(), [2, 3, 4, 5]);
    let within = |write: &JournalWrite| write.bytes.len() <= SLOT_WRITE_BYTES_MAX || write.end == Position(4);
    assert!(writes.iter().all(within));
    let bytes: Vec<u8> = writes.into_iter().flat_map(|write| write.bytes).collect();
    assert_eq!(line::Lines::new(&bytes).map(|line| line.json.len() - 2).collect::<Vec<_>>(), lengths);
}

#[test]
fn a_failed_write_takes_the_journal_offline_and_durable_stays() {
    let mut journal = Journal::default();
    journal.append(&1);
    write(&mut journal).unwrap();
    journal.append(&2);
    journal.take_write().unwrap();
    journal.append(&3);
    journal.fail();
    assert!(journal.is_offline());
    journal.append(&text(2 << 20));
    assert_eq!((journal.durable(), journal.end()), (Position(1), Position(4)));
    assert!(!journal.take_writer() && !journal.checkpoint_due());
    assert_eq!(journal.take_write(), None);
}

#[test]
fn a_checkpoint_is_due_when_the_journal_outgrows_it_and_begins_a_new_file() {
    let mut journal = Journal::recovered(Position(9), 0, SLOT_JOURNAL_BYTES_MAX);
    assert!(!journal.checkpoint_due());
    journal.append(&1);
    write(&mut journal).unwrap();
    assert!(journal.checkpoint_due());
    journal.append(&2);
    assert_eq!(journal.checkpoint_started(), Position(11), "entries that are not yet durable are part of the state");
    assert!(!journal.checkpoint_due(), "one at a time");
    assert!(write(&mut journal).unwrap().roll);
    journal.append(&3);
    assert!(!write(&mut journal).unwrap().roll);
    journal.checkpointed(SLOT_JOURNAL_BYTES_MAX);
    assert_eq!(journal.journal_bytes_max(), 2 * SLOT_JOURNAL_BYTES_MAX);
    journal.append(&text(1_500_000));
    while write(&mut journal).is_some() {}
    assert!(!journal.checkpoint_due(), "twice the checkpoint is the bound now");
}

#[test]
fn a_failed_checkpoint_is_not_tried_again_at_once() {
    let mut journal = Journal::recovered(Position(9), 0, SLOT_JOURNAL_BYTES_MAX + 1);
    journal.checkpoint_started();
    journal.checkpoint_failed();
    assert!(!journal.checkpoint_due());
    journal.append(&text(SLOT_JOURNAL_BYTES_MAX as usize));
    while write(&mut journal).is_some() {}
    assert!(journal.checkpoint_due());
}

#[test]
fn a_slot_at_rest_keeps_no_large_buffer() {
    let mut journal = Journal::default();
    for length in [100, 4 * SLOT_BUFFER_BYTES_MAX] {
        journal.append(&text(length));
        let written = write(&mut journal).unwrap();
        journal.reuse(written.bytes);
    }
    journal.append(&1);
    let written = write(&mut journal).unwrap();
    assert!((1..=SLOT_BUFFER_BYTES_MAX).contains(&written.bytes.capacity()));
}

/// One event of the model.
#[derive(Clone, Debug)]
enum Event {
    Append { entries: usize, bytes: usize },
    Take,
    Wrote,
    CheckpointStarted,
    CheckpointDone { remove: usize },
    CheckpointFailed,
    Crash { torn: prop::sample::Index, flip: bool, checkpoint_landed: bool },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..5_usize, 0..300_usize).prop_map(|(entries, bytes)| Event::Append { entries, bytes }),
        1 => Just(Event::Append { entries: 4, bytes: 400_000 }),
        6 => Just(Event::Take),
        6 => Just(Event::Wrote),
        2 => Just(Event::CheckpointStarted),
        2 => (0..3_usize).prop_map(|remove| Event::CheckpointDone { remove }),
        1 => Just(Event::CheckpointFailed),
        1 => crash(),
    ]
}

fn crash() -> impl Strategy<Value = Event> {
    (any::<prop::sample::Index>(), any::<bool>(), any::<bool>())
        .prop_map(|(torn, flip, checkpoint_landed)| Event::Crash { torn, flip, checkpoint_landed })
}

/// A checkpoint that is being written.
struct InWork {
    bytes: Vec<u8>,
    entries: usize,
    /// How many of the files it makes needless.
    files: usize,
}

/// A slot whose state is the list of its entries, and the files that it would have.
#[derive(Default)]
struct Model {
    journal: Journal,
    state: Vec<String>,
    files: VecDeque<Vec<u8>>,
    /// Whether the newest file belongs to this start and may be appended to.
    is_open: bool,
    checkpoint: Option<Vec<u8>>,
    /// How many entries the newest durable checkpoint has.
    covered: usize,
    in_flight: Option<JournalWrite>,
    in_work: Option<InWork>,
}

impl Model {
    fn step(&mut self, event: &Event) {
        match event {
            Event::Append { entries, bytes } => {
                for _ in 0..*entries {
                    self.state.push(format!("{}{}", self.state.len(), text(*bytes)));
                    let position = self.journal.append(self.state.last().expect("just pushed"));
                    assert_eq!(position.0, self.state.len() as u64);
                }
            }
            Event::Take if self.in_flight.is_none() => self.in_flight = self.journal.take_write(),
            Event::Wrote => {
                if let Some(write) = self.in_flight.take() {
                    self.put(&write, write.bytes.len());
                    self.journal.wrote();
                    assert_eq!(self.journal.durable(), write.end);
                    self.journal.reuse(write.bytes);
                }
            }
            Event::CheckpointStarted if self.in_flight.is_none() && self.in_work.is_none() => {
                let position = self.journal.checkpoint_started();
                assert_eq!(position.0, self.state.len() as u64);
                let bytes = checkpoint::encode(position, &self.state);
                self.in_work = Some(InWork { bytes, entries: self.state.len(), files: self.files.len() });
            }
            Event::CheckpointDone { remove } => {
                if let Some(done) = self.in_work.take() {
                    self.journal.checkpointed(done.bytes.len() as u64);
                    // A removal may be cut short; what stays must not matter.
                    self.files.drain(..done.files.saturating_sub(*remove));
                    self.land(done);
                }
            }
            Event::CheckpointFailed if self.in_work.take().is_some() => self.journal.checkpoint_failed(),
            Event::Crash { torn, flip, checkpoint_landed } => self.crash(*torn, *flip, *checkpoint_landed),
            _ => {}
        }
    }

    fn land(&mut self, done: InWork) {
        self.checkpoint = Some(done.bytes);
        self.covered = done.entries;
    }

    /// Puts the first `bytes` of a write on the disk.
    fn put(&mut self, write: &JournalWrite, bytes: usize) {
        if write.roll || !self.is_open {
            self.files.push_back(Vec::new());
            self.is_open = true;
        }
        self.files.back_mut().expect("just made").extend_from_slice(&write.bytes[..bytes]);
    }

    fn crash(&mut self, torn: prop::sample::Index, flip: bool, checkpoint_landed: bool) {
        let durable = self.journal.durable().0 as usize;
        let mut written = durable;
        if let Some(write) = self.in_flight.take() {
            let bytes = torn.index(write.bytes.len() + 1);
            self.put(&write, bytes);
            written += write.bytes[..bytes].iter().filter(|byte| **byte == b'\n').count();
            if let Some(byte) = self.files.back_mut().and_then(|file| file.last_mut()).filter(|_| flip && bytes > 0) {
                *byte ^= 1;
            }
        }
        if let Some(in_work) = self.in_work.take()
            && checkpoint_landed
        {
            self.land(in_work);
        }
        self.is_open = false;
        let mut rebuild = Rebuild::<String>::new(self.checkpoint.as_deref()).expect("checkpoints are whole");
        for file in &mut self.files {
            let end = rebuild.journal(file).expect("journals continue each other");
            // Recovery cuts a torn tail off.
            file.truncate(end.bytes);
        }
        let (journal, entries) = rebuild.finish();
        assert!(entries.len() >= durable, "{durable} entries were acknowledged, {} are there", entries.len());
        assert!(entries.len() <= written.max(self.covered), "nothing comes from nowhere");
        assert_eq!(entries, self.state[..entries.len()], "a prefix of what was decided");
        assert_eq!((journal.end().0, journal.durable().0), (entries.len() as u64, entries.len() as u64));
        (self.journal, self.state) = (journal, entries);
    }
}

proptest! {
    #[test]
    fn whatever_was_durable_is_recovered_after_any_crashes(events in vec(event(), 0..60), last in crash()) {
        let mut model = Model::default();
        events.iter().chain([&last]).for_each(|event| model.step(event));
    }
}
