//! Sends records, at a rate or as fast as they are acknowledged, and takes their outcomes.
//!
//! Open loop: record n is sent at its time of the schedule, or as soon after it as the sender comes to it; nothing that
//! the target does moves the schedule. Closed loop: so many records are without an outcome at a time. A sender has a
//! thread of its own, because timers of the runtime are as coarse as a millisecond.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use oncilla::client::native::{ClientFailure, Outcomes, Place, Producer, Record, SendError};

use super::clock::{Clock, Schedule};
use super::recorder::{Recorder, Window, latencies};

/// A sender that waits looks again after this time, whatever it was told.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A sender that waits goes on when one of so many parts of what is outstanding has ended.
const RESUME_PARTS: u64 = 8;

/// How fast a load goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Records a second.
    Rate(f64),
    /// As fast as outcomes come in, with so many records without one.
    Saturate(u64),
}

/// Counts of one side, apart from those of the other: a line of the cache that both write would go back and forth
/// with every record.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(AtomicU64);

/// Where a sender waits for outcomes.
#[derive(Debug, Default)]
pub struct Gate {
    sent: Apart,
    ended: Apart,
    /// So many outcomes in all wake the sender; 0 while it does not wait.
    wake_at: AtomicU64,
    sender: OnceLock<Thread>,
}

impl Gate {
    pub fn outstanding(&self) -> u64 {
        let ended = self.ended.0.load(Ordering::SeqCst);
        self.sent.0.load(Ordering::SeqCst) - ended
    }

    /// Waits until so many are outstanding less one of [`RESUME_PARTS`]: outcomes come in batches, and a sender that is
    /// woken for the first of each would send one record and wait again.
    fn wait(&self, outstanding_max: u64) {
        self.sender.get_or_init(std::thread::current);
        let resume_at = outstanding_max - outstanding_max.div_ceil(RESUME_PARTS);
        let wake_at = self.sent.0.load(Ordering::SeqCst).saturating_sub(resume_at);
        self.wake_at.store(wake_at, Ordering::SeqCst);
        // Looked at after outcomes have begun to wake this thread, so that none is missed.
        if self.ended.0.load(Ordering::SeqCst) < wake_at {
            std::thread::park_timeout(LOOK_AGAIN);
        }
        self.wake_at.store(0, Ordering::SeqCst);
    }

    /// Counts outcomes.
    pub fn ended(&self, records: u64) {
        let ended = self.ended.0.fetch_add(records, Ordering::SeqCst) + records;
        let wake_at = self.wake_at.load(Ordering::SeqCst);
        if (1..=ended).contains(&wake_at)
            && self.wake_at.swap(0, Ordering::SeqCst) != 0
            && let Some(sender) = self.sender.get()
        {
            sender.unpark();
        }
    }
}

/// Takes outcomes of records whose token is their intended time.
pub struct Taker<C> {
    pub clock: C,
    pub recorder: Arc<Recorder>,
    pub record_bytes: u64,
    pub gate: Arc<Gate>,
}

impl<C: Clock + Send + Sync> Outcomes for Taker<C> {
    fn outcome(&self, token: u64, outcome: Result<Place, ClientFailure>) {
        match outcome {
            Ok(place) => self.outcomes(&[token], Ok(&place)),
            Err(failure) => self.outcomes(&[token], Err(&failure)),
        }
    }

    fn outcomes(&self, tokens: &[u64], first: Result<&Place, &ClientFailure>) {
        match first {
            Ok(_) => self.recorder.all_done(tokens, self.clock.now_ns(), self.record_bytes),
            Err(failure) => tokens.iter().for_each(|token| self.recorder.failed(*token, || failure.to_string())),
        }
        self.gate.ended(tokens.len() as u64);
    }
}

/// Sends one record; waits, as long as it takes, while the producer has no memory for it.
pub fn send(
    producer: &Producer,
    record: &Record,
    token: u64,
    outcomes: &Arc<dyn Outcomes>,
    gate: &Gate,
) -> anyhow::Result<()> {
    gate.sent.0.fetch_add(1, Ordering::SeqCst);
    loop {
        match producer.send_to(record, token, outcomes) {
            Ok(()) => return Ok(()),
            Err(SendError::Full) => gate.wait(gate.outstanding()),
            Err(error) => {
                gate.ended(1);
                return Err(error).with_context(|| format!("topic {}", record.topic));
            }
        }
    }
}

/// A loop of sends and how late it was.
pub struct Sender<'a, C> {
    pub clock: &'a C,
    pub window: Window,
    pub stop: &'a AtomicBool,
    /// How long after its intended time each record of the window was sent.
    pub late: Histogram<u64>,
    sent: u64,
}

impl<'a, C: Clock> Sender<'a, C> {
    pub fn new(clock: &'a C, window: Window, stop: &'a AtomicBool) -> Self {
        Self { clock, window, stop, late: latencies(), sent: 0 }
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Calls `send` with number and intended time of every record before the end of the window.
    pub fn open_loop(
        &mut self,
        schedule: &Schedule,
        mut send: impl FnMut(u64, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        while schedule.at_ns(self.sent) < self.window.end_ns && !self.stop.load(Ordering::Relaxed) {
            let intended_ns = schedule.wait(self.clock, self.sent);
            if self.window.contains(intended_ns) {
                self.late.saturating_record((self.clock.now_ns() - intended_ns).max(1));
            }
            send(self.sent, intended_ns)?;
            self.sent += 1;
        }
        Ok(())
    }

    /// The same as fast as `gate` lets records through.
    pub fn closed_loop(
        &mut self,
        gate: &Gate,
        outstanding_max: u64,
        mut send: impl FnMut(u64, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= self.window.end_ns || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if gate.outstanding() >= outstanding_max {
                gate.wait(outstanding_max);
                continue;
            }
            send(self.sent, now_ns)?;
            self.sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::tests::Still;
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_stall_of_the_sender_shows_in_the_latencies() {
        let clock = Still::default();
        let window = Window { begin_ns: 0, end_ns: 1000 * MS };
        let recorder = Recorder::new("produce", window, false);
        let stop = AtomicBool::new(false);
        let mut sender = Sender::new(&clock, window, &stop);
        // One record a millisecond, each acknowledged at once, but record 100 holds the sender for 200 ms.
        let sent = sender.open_loop(&Schedule::new(0, 1000.0), |number, intended_ns| {
            if number == 100 {
                clock.0.set(clock.0.get() + 200 * MS);
            }
            recorder.done(intended_ns, clock.now_ns(), 1);
            Ok(())
        });
        sent.expect("nothing fails");
        let measured = recorder.finish(clock.now_ns());
        assert_eq!(measured.total.len(), 1000, "none was left out");
        let slow = |ms: u64| measured.total.count_between(ms * MS, u64::MAX);
        assert_eq!(measured.total.max() / MS, 200);
        assert!((198..=202).contains(&slow(1)), "all that were due meanwhile are slow: {}", slow(1));
        assert!((98..=102).contains(&slow(100)), "each by what was left of the stall: {}", slow(100));
        assert!(sender.late.max() >= 198 * MS, "and the sender says that it was late");
    }

    #[test]
    fn a_loop_ends_when_it_is_told_to() {
        let clock = Still::default();
        let window = Window { begin_ns: 0, end_ns: u64::MAX / 2 };
        let stop = AtomicBool::new(false);
        let mut sender = Sender::new(&clock, window, &stop);
        let step = |number, _| {
            stop.store(number == 9, Ordering::Relaxed);
            Ok(())
        };
        sender.open_loop(&Schedule::new(0, 10.0), step).expect("nothing fails");
        assert_eq!(sender.sent(), 10);
        sender.closed_loop(&Gate::default(), 1, |_, _| anyhow::bail!("it was told to end")).expect("it has ended");
    }

    #[test]
    fn a_closed_loop_keeps_its_bound() {
        let clock = Still::default();
        let window = Window { begin_ns: 0, end_ns: MS };
        let stop = AtomicBool::new(false);
        let mut sender = Sender::new(&clock, window, &stop);
        let gate = Gate::default();
        let sent = sender.closed_loop(&gate, 3, |_, _| {
            gate.sent.0.fetch_add(1, Ordering::AcqRel);
            assert!(gate.outstanding() <= 3);
            if gate.outstanding() == 3 {
                gate.ended(1);
                gate.ended(2);
            }
            Ok(())
        });
        sent.expect("nothing fails");
        assert!(sender.sent() > 100, "{}", sender.sent());
    }
}
