//! `txn`: transactions, one after the other for each producer, and how long the phases of each take.
//!
//! `txn` counts from the intended time of the transaction to the end of its last call, `send` from its begin to the
//! last acknowledgement of its records, which are flushed, `commit` and `abort` the call alone. At a rate the producers
//! take the transactions in turn, and one that is late begins when the one before is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::ensure;
use oncilla::client::native::{Next, Producer, Record};

use super::common::PaceArgs;
use super::{Common, Outcome, Session};
use crate::load::clock::{Clock, Schedule, wake_in_time};
use crate::load::payload::Payload;
use crate::load::recorder::{Recorder, Window};
use crate::load::sender::{Gate, Pace, Sender};
use crate::progress;
use crate::target::Topic;

/// Options of `txn`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub pace: PaceArgs,
    /// Producers, each with a transactional id and a thread of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub producers: u16,
    /// Records of each transaction, in turn to all partitions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub records_per_txn: u32,
    /// How many transactions of one are aborted, in turn.
    #[arg(long, default_value_t = 0.0)]
    pub abort_ratio: f64,
}

/// The recorders of the phases.
struct Phases {
    whole: Arc<Recorder>,
    send: Arc<Recorder>,
    commit: Arc<Recorder>,
    abort: Arc<Recorder>,
}

impl Phases {
    fn all(&self) -> [Arc<Recorder>; 4] {
        [&self.whole, &self.send, &self.commit, &self.abort].map(Arc::clone)
    }
}

struct Running<'a> {
    session: &'a Session,
    args: &'a Args,
    topic: &'a Topic,
    window: Window,
    phases: &'a Phases,
}

/// Runs it.
pub fn run(args: &Args, session: &mut Session) -> anyhow::Result<Outcome> {
    let ratio = args.abort_ratio;
    ensure!((0.0..=1.0).contains(&ratio), "--abort-ratio {ratio}: it is between 0 and 1");
    let pace = args.pace.pace(1);
    session.option("producers", args.producers);
    session.option("records-per-txn", args.records_per_txn);
    session.option("abort-ratio", ratio);
    match pace {
        Pace::Rate(rate) => session.option("rate", rate),
        Pace::Saturate(_) => session.option("saturate", true),
    }
    let id = |number| ("transactional.id", format!("oncilla-perf-{:x}-{number}", session.id));
    let producers: Vec<_> = (0..usize::from(args.producers))
        .map(|number| session.producer(number, &[id(number)]))
        .collect::<anyhow::Result<_>>()?;
    let topic = session.topic()?;
    for (number, producer) in producers.iter().enumerate() {
        session.threads.handle(number).block_on(producer.init_transactions())?;
    }
    let window = session.window();
    let recorder = |name| session.recorder(name, window);
    let phases =
        Phases { whole: recorder("txn"), send: recorder("send"), commit: recorder("commit"), abort: recorder("abort") };
    Running { session, args, topic: &topic, window, phases: &phases }.all(producers, pace)?;
    let mut outcome = Outcome { began_ns: window.begin_ns, ..Outcome::default() };
    let unused = if ratio == 0.0 { Some("abort") } else { (ratio == 1.0).then_some("commit") };
    for recorder in phases.all() {
        outcome.take(&recorder, session.now_ns());
    }
    outcome.measured.retain(|one| Some(one.quantity.name.as_str()) != unused || one.quantity.count > 0);
    Ok(outcome)
}

impl Running<'_> {
    fn all(&self, producers: Vec<Producer>, pace: Pace) -> anyhow::Result<()> {
        let began_ns = self.session.clock.now_ns();
        std::thread::scope(|scope| {
            let run = |(number, producer): (usize, Producer)| {
                scope.spawn(move || {
                    wake_in_time();
                    let ended = self.sequence(number, &producer, began_ns, pace);
                    if ended.is_err() {
                        self.session.stop.store(true, Ordering::Relaxed);
                    }
                    let _ = self.session.threads.handle(number).block_on(producer.close());
                    ended
                })
            };
            let running: Vec<_> = producers.into_iter().enumerate().map(run).collect();
            progress::watch(&self.phases.all(), || running.iter().all(|one| one.is_finished()));
            running.into_iter().try_for_each(|one| one.join().expect("a producer's thread does not panic"))
        })
    }

    fn sequence(&self, number: usize, producer: &Producer, began_ns: u64, pace: Pace) -> anyhow::Result<()> {
        let mut sender = Sender::new(&self.session.clock, self.window, &self.session.stop);
        let mut one = One {
            running: self,
            producer,
            handle: number,
            payload: Payload::new(self.session.common.record_bytes, number as u64 + 1),
            next: i32::try_from(number).expect("a u16") % self.topic.partitions,
        };
        match pace {
            Pace::Rate(rate) => {
                let own = rate / f64::from(self.args.producers);
                // The producers' transactions lie evenly between each other.
                let offset_ns = (number as f64 * 1e9 / rate) as u64;
                let schedule = Schedule::new(began_ns + offset_ns, own);
                sender.open_loop(&schedule, |turn, intended_ns| one.run(turn, intended_ns))
            }
            Pace::Saturate(_) => sender.closed_loop(&Gate::default(), 1, |turn, now_ns| one.run(turn, now_ns)),
        }
    }
}

/// The transactions of one producer.
struct One<'a> {
    running: &'a Running<'a>,
    producer: &'a Producer,
    handle: usize,
    payload: Payload,
    next: i32,
}

/// Whether transaction `turn` is aborted, so that aborts are spread evenly.
fn aborts(turn: u64, ratio: f64) -> bool {
    ((turn + 1) as f64 * ratio).floor() > (turn as f64 * ratio).floor()
}

impl One<'_> {
    fn run(&mut self, turn: u64, intended_ns: u64) -> anyhow::Result<()> {
        let Running { session, args, phases, .. } = self.running;
        let clock = &session.clock;
        let runtime = session.threads.handle(self.handle);
        let began_ns = clock.now_ns();
        self.producer.begin_transaction()?;
        let sent = runtime.block_on(self.send());
        let sent_ns = clock.now_ns();
        let bytes = session.common.record_bytes as u64 * u64::from(args.records_per_txn);
        let mut abort = aborts(turn, args.abort_ratio);
        match sent {
            Ok(()) => phases.send.phase_done(intended_ns, began_ns, sent_ns, bytes),
            Err(error) => {
                phases.send.failed(intended_ns, || format!("{error:#}"));
                abort = true;
            }
        }
        if !abort {
            match runtime.block_on(self.producer.commit_transaction()) {
                Ok(()) => {
                    let now_ns = clock.now_ns();
                    phases.commit.phase_done(intended_ns, sent_ns, now_ns, 0);
                    phases.whole.done(intended_ns, now_ns, bytes);
                    return Ok(());
                }
                Err(failure) => {
                    phases.commit.failed(intended_ns, || failure.to_string());
                    phases.whole.failed(intended_ns, || failure.to_string());
                    if failure.next != Next::Abort {
                        return Err(failure.into());
                    }
                }
            }
        }
        let aborted_ns = clock.now_ns();
        match runtime.block_on(self.producer.abort_transaction()) {
            Ok(()) => {
                let now_ns = clock.now_ns();
                phases.abort.phase_done(intended_ns, aborted_ns, now_ns, 0);
                if aborts(turn, args.abort_ratio) {
                    phases.whole.done(intended_ns, now_ns, bytes);
                }
                Ok(())
            }
            Err(failure) => {
                phases.abort.failed(intended_ns, || failure.to_string());
                Err(failure.into())
            }
        }
    }

    async fn send(&mut self) -> anyhow::Result<()> {
        let count = self.running.args.records_per_txn;
        let mut deliveries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let mut value = Vec::new();
            self.payload.fill(&mut value);
            let record = Record::to(self.running.topic.name.clone()).partition(self.next).value(value);
            self.next = (self.next + 1) % self.running.topic.partitions;
            deliveries.push(self.producer.send_when_room(record).await?);
        }
        // A transaction that is complete has nothing to linger for.
        self.producer.flush().await?;
        for delivery in deliveries {
            delivery.await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aborts_are_spread_by_their_ratio() {
        let pattern = |ratio, turns| (0..turns).map(|turn| aborts(turn, ratio)).collect::<Vec<_>>();
        assert_eq!(pattern(0.5, 4), [false, true, false, true]);
        assert!(pattern(0.0, 100).iter().all(|aborted| !aborted));
        assert!(pattern(1.0, 100).iter().all(|aborted| *aborted));
        assert_eq!(pattern(0.1, 1000).iter().filter(|aborted| **aborted).count(), 100);
    }
}
