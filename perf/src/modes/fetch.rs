//! `fetch`: reads what is in a topic as fast as it comes, from the beginning again and again, or what comes at its end.
//!
//! Nothing is sent. The client checks every batch and copies every record, as a consumer does, so what is measured is
//! both sides together: one reader for each node that leads partitions, each with a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use oncilla::client::consumer::{Consumer, From};

use super::reader::{IsolationArg, readers};
use super::{Common, Outcome, Session};
use crate::load::clock::Clock;
use crate::load::recorder::{Measured, Recorder};
use crate::progress;

/// Options of `fetch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// Read only what comes while it runs, instead of what is there.
    #[arg(long)]
    pub tail: bool,
    /// Read what is there once, from the first record on and without a warm-up, and end with the last one.
    #[arg(long, conflicts_with = "tail")]
    pub once: bool,
    /// Which records of transactions are read.
    #[arg(long, value_enum, default_value_t)]
    pub isolation: IsolationArg,
}

/// Where a reader has come to.
struct Reading<'a> {
    session: &'a Session,
    args: &'a Args,
    polls: &'a Recorder,
    records: &'a AtomicU64,
}

/// Runs it.
pub fn run(args: &Args, session: &mut Session) -> anyhow::Result<Outcome> {
    ensure!(args.common.target.topic.is_some(), "fetch reads a topic that is there: name it with --topic");
    session.option("tail", args.tail);
    session.option("once", args.once);
    session.option("isolation", args.isolation.name());
    if args.once {
        session.common.warmup_seconds = 0.0;
    }
    let name = args.common.target.topic.clone().unwrap_or_default();
    let topic = session.target().known(&name)?;
    let from = if args.tail { From::End } else { From::Beginning };
    let mut consumers = readers(session, &topic, from, args.isolation.level())?;
    let mut there = false;
    for consumer in &mut consumers {
        let ends = consumer.ends()?;
        there |= consumer.positions().iter().any(|(partition, at)| at < &ends[partition]);
    }
    ensure!(args.tail || there, "topic {name} holds nothing to read; `oncilla-perf produce --keep` fills it");
    let window = session.window();
    let polls = session.recorder("poll", window);
    let records = AtomicU64::new(0);
    let reading = Reading { session, args, polls: &polls, records: &records };
    std::thread::scope(|scope| {
        let reading = &reading;
        let running: Vec<_> =
            consumers.into_iter().map(|consumer| scope.spawn(move || reading.read(consumer))).collect();
        progress::watch(&[Arc::clone(&polls)], || running.iter().all(|one| one.is_finished()));
        running.into_iter().try_for_each(|one| one.join().expect("a reader does not panic"))
    })?;
    let mut outcome = Outcome { began_ns: window.begin_ns, ..Outcome::default() };
    outcome.take(&polls, session.now_ns());
    let whole = outcome.measured[0].seconds;
    // A single pass is as long as it took.
    let seconds = if args.once { (session.clock.now_ns() - window.begin_ns) as f64 / 1e9 } else { whole };
    outcome.measured[0].seconds = seconds;
    let bytes = outcome.measured[0].quantity.bytes;
    outcome.measured.insert(0, Measured::count("read", records.load(Ordering::Relaxed), bytes, seconds));
    Ok(outcome)
}

impl Reading<'_> {
    fn read(&self, mut consumer: Consumer) -> anyhow::Result<()> {
        let beginning = consumer.positions().clone();
        let ends = consumer.ends()?;
        let window = self.polls.window();
        while !self.session.stopped() {
            let asked_ns = self.session.clock.now_ns();
            if asked_ns >= window.end_ns {
                return Ok(());
            }
            let read = consumer.poll()?;
            let now_ns = self.session.clock.now_ns();
            if !read.is_empty() && window.contains(asked_ns) {
                let bytes_of = |of: &Option<Vec<u8>>| of.as_ref().map_or(0, Vec::len);
                let bytes: usize = read.iter().map(|record| bytes_of(&record.key) + bytes_of(&record.value)).sum();
                self.polls.done(asked_ns, now_ns, bytes as u64);
                self.records.fetch_add(read.len() as u64, Ordering::Relaxed);
            }
            let at_end = || consumer.positions().iter().all(|(partition, at)| at >= &ends[partition]);
            if !self.args.tail && at_end() {
                if self.args.once {
                    return Ok(());
                }
                beginning.iter().for_each(|(partition, at)| consumer.seek(*partition, *at));
            }
        }
        Ok(())
    }
}
