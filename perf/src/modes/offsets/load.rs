//! The load itself: one thread sends what is due, others take the answers.
//!
//! At a rate the sender follows its schedule, group by group, and waits for nobody. At saturation it only begins: each
//! answer sends the next commit of its group, on the thread that took it. The first error ends all threads. An
//! interrupt ends the sending, and what is out is still waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::lane::{Lane, Partial};
use crate::load::clock::{Clock, Monotonic, Schedule, wake_in_time};
use crate::load::recorder::Recorder;
use crate::load::sender::{Pace, Sender};
use crate::progress;

const READ_BYTES: usize = 64 << 10;
/// Connections that are looked at in one go.
const EVENTS: usize = 256;
/// How soon a reader sees that everything is over.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// How often readers look for coordinators that say nothing.
const LOOK_FOR_SILENCE_NS: u64 = 1_000_000_000;

/// A load of commits.
pub struct Load<'a> {
    pub clock: Monotonic,
    pub recorder: &'a Arc<Recorder>,
    pub lanes: &'a [Lane],
    pub pace: Pace,
    /// When the first commit is due, at a rate.
    pub begin_ns: u64,
    /// Threads that take answers.
    pub readers: usize,
    /// Told from outside that it is to end.
    pub stop: &'a AtomicBool,
}

/// What its threads tell each other.
#[derive(Default)]
struct Ended {
    sent: AtomicBool,
    failed: AtomicBool,
}

impl Load<'_> {
    /// Runs it until every commit has its answer; how late the commits were sent, at a rate.
    pub fn run(&self) -> Result<Histogram<u64>> {
        let ended = Ended::default();
        let noted = |failed: bool| {
            if failed {
                ended.failed.store(true, Ordering::Release);
                self.stop.store(true, Ordering::Relaxed);
            }
        };
        let (ended, noted) = (&ended, &noted);
        std::thread::scope(|scope| {
            let read = |first| {
                scope.spawn(move || {
                    let read = self.read(first, ended);
                    noted(read.is_err());
                    read
                })
            };
            let reading: Vec<_> = (0..self.readers).map(read).collect();
            let sending = scope.spawn(move || {
                wake_in_time();
                let sent = self.send();
                noted(sent.is_err());
                ended.sent.store(true, Ordering::Release);
                sent
            });
            let over = || sending.is_finished() && reading.iter().all(|one| one.is_finished());
            progress::watch(std::slice::from_ref(self.recorder), over);
            // What a reader saw says more than a write that was not possible any more.
            reading.into_iter().try_for_each(|one| one.join().expect("a reader does not panic"))?;
            sending.join().expect("the sender does not panic")
        })
    }

    fn send(&self) -> Result<Histogram<u64>> {
        let mut sender = Sender::new(&self.clock, self.recorder.window(), self.stop);
        match self.pace {
            Pace::Rate(rate) => {
                let turns = self.lanes.len() as u64;
                let schedule = Schedule::new(self.begin_ns, rate);
                sender.open_loop(&schedule, |number, intended_ns| {
                    let turn = usize::try_from(number % turns).expect("the number of a group");
                    self.lanes[turn].send(intended_ns, self.clock.now_ns())
                })?;
            }
            Pace::Saturate(outstanding) => {
                for lane in (0..outstanding).flat_map(|_| self.lanes) {
                    let now_ns = self.clock.now_ns();
                    lane.send(now_ns, now_ns)?;
                }
            }
        }
        Ok(sender.late)
    }

    /// Takes the answers of every group that is this reader's.
    fn read(&self, first: usize, ended: &Ended) -> Result<()> {
        let lanes: Vec<&Lane> = self.lanes.iter().skip(first).step_by(self.readers).collect();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        for (number, lane) in lanes.iter().enumerate() {
            let number = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, lane.stream(), number, epoll::EventFlags::IN).context("epoll")?;
        }
        let mut partial: Vec<Partial> = lanes.iter().map(|_| Partial::default()).collect();
        let mut scratch = vec![0; READ_BYTES];
        let mut events = Vec::with_capacity(EVENTS);
        let mut look_ns = self.clock.now_ns() + LOOK_FOR_SILENCE_NS;
        loop {
            let sent = ended.sent.load(Ordering::Acquire);
            let over = || lanes.iter().all(|lane| lane.without_answer() == 0);
            if ended.failed.load(Ordering::Acquire) || sent && over() {
                return Ok(());
            }
            match epoll::wait(&poll, spare_capacity(&mut events), Some(&LOOK_AGAIN)) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(error) => return Err(error).context("epoll"),
            }
            for event in events.drain(..) {
                let at = usize::try_from(event.data.u64()).expect("the number of a connection");
                self.receive(lanes[at], &mut partial[at], &mut scratch).with_context(|| lanes[at].name())?;
            }
            let now_ns = self.clock.now_ns();
            if now_ns >= look_ns {
                look_ns = now_ns + LOOK_FOR_SILENCE_NS;
                lanes.iter().try_for_each(|lane| lane.overdue(now_ns).with_context(|| lane.name()))?;
            }
        }
    }

    fn receive(&self, lane: &Lane, partial: &mut Partial, scratch: &mut [u8]) -> Result<()> {
        let read = match recv(lane.stream(), &mut *scratch, RecvFlags::DONTWAIT) {
            Ok((_, read)) => read,
            Err(Errno::CONNRESET) => 0,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error).context("the connection"),
        };
        let now_ns = self.clock.now_ns();
        let left = lane.without_answer();
        ensure!(read > 0, "the coordinator closed the connection with {left} commits without an answer");
        partial.feed(&scratch[..read], |frame| {
            lane.answered(frame, now_ns, self.recorder)?;
            if matches!(self.pace, Pace::Saturate(_)) {
                let now_ns = self.clock.now_ns();
                if now_ns < self.recorder.window().end_ns && !self.stop.load(Ordering::Relaxed) {
                    lane.send(now_ns, now_ns)?;
                }
            }
            Ok(())
        })
    }
}
