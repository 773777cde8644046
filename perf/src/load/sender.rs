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

/// How fast a load goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Records a second.
    Rate(f64),
    /// As fast as outcomes come in, with so many records without one.
    Saturate(u64),
}

/// Where a sender waits for outcomes.
#[derive(Debug, Default)]
pub struct Gate {
    outstanding: AtomicU64,
    waiting: AtomicBool,
    sender: OnceLock<Thread>,
}

impl Gate {
    pub fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::SeqCst)
    }

    /// Waits for an outcome, if `still` says so after outcomes have begun to wake this thread: none is missed.
    fn wait(&self, still: impl Fn() -> bool) {
        self.sender.get_or_init(std::thread::current);
        self.waiting.store(true, Ordering::SeqCst);
        if still() {
            std::thread::park_timeout(LOOK_AGAIN);
        }
        self.waiting.store(false, Ordering::SeqCst);
    }

    /// Counts an outcome.
    pub fn ended(&self) {
        self.outstanding.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.swap(false, Ordering::SeqCst)
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
            Ok(_) => self.recorder.done(token, self.clock.now_ns(), self.record_bytes),
            Err(failure) => self.recorder.failed(token, || failure.to_string()),
        }
        self.gate.ended();
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
    gate.outstanding.fetch_add(1, Ordering::SeqCst);
    loop {
        match producer.send_to(record, token, outcomes) {
            Ok(()) => return Ok(()),
            Err(SendError::Full) => gate.wait(|| true),
            Err(error) => {
                gate.ended();
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
            let closed = || gate.outstanding() >= outstanding_max;
            if closed() {
                gate.wait(closed);
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
            gate.outstanding.fetch_add(1, Ordering::AcqRel);
            assert!(gate.outstanding() <= 3);
            if gate.outstanding() == 3 {
                (0..3).for_each(|_| gate.ended());
            }
            Ok(())
        });
        sent.expect("nothing fails");
        assert!(sender.sent() > 100, "{}", sender.sent());
    }
}
