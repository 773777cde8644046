//! `recovery`: a broker is started, loaded, killed with SIGKILL in the middle of the load and started again. How long
//! until it answers and acknowledges, and whether every record that was acknowledged is there once and in order.
//!
//! The load goes on all the time, at its rate: what its producer sees is what a user's producer sees. Times count from
//! the second start of the command; a producer of its own, without linger and pauses, finds the first acknowledgement.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use oncilla::client::Connection;
use oncilla::client::consumer::From;
use oncilla::client::isolation::Isolation;
use oncilla::client::native::{Producer, Record};
use rustix::process::{Pid, Signal, kill_process_group};

use super::common::rate;
use super::e2e::{Ledger, Stamped};
use super::reader::{arrived, readers};
use super::{Common, Outcome, Session};
use crate::load::clock::{Schedule, wake_in_time};
use crate::load::recorder::Window;
use crate::load::sender::Sender;
use crate::progress;
use crate::target::Topic;

const LOOK_AGAIN: Duration = Duration::from_millis(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const STOP_WAIT: Duration = Duration::from_secs(20);

/// Options of `recovery`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// Shell command that runs the broker in the foreground. It is run twice, in a group of processes of its own.
    #[arg(long)]
    pub command: String,
    /// Records a second, on a schedule that nothing moves.
    #[arg(long, default_value = "1000", value_parser = rate)]
    pub rate: f64,
    /// How long the broker is down.
    #[arg(long, default_value_t = 0.0)]
    pub down_seconds: f64,
    /// How long the load goes on after the first acknowledgement.
    #[arg(long, default_value_t = 1.0)]
    pub after_seconds: f64,
    /// Longest wait for the first answer and for the first acknowledgement.
    #[arg(long, default_value_t = 120.0)]
    pub wait_seconds: f64,
}

/// A broker that was started by its command. Ends with this.
pub struct Broker {
    process: Child,
    /// From the start of the command to the first answer.
    pub answered: Duration,
}

fn seconds(option: &str, value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("{option} {value}"))
}

impl Broker {
    /// Runs the command and waits for the first answer.
    pub fn start(args: &Args) -> anyhow::Result<Self> {
        args.common.check_stamp()?;
        let wait = seconds("--wait-seconds", args.wait_seconds)?;
        let address = args.common.target.bootstrap.split(',').next().unwrap_or_default().trim();
        if Connection::open(address, ANSWER_TIMEOUT).is_ok() {
            bail!("somebody answers at {address} before the command has run");
        }
        let began = Instant::now();
        let process = Command::new("sh")
            .args(["-c", &args.command])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("sh cannot be run")?;
        let mut broker = Self { process, answered: Duration::ZERO };
        loop {
            let answer = Connection::open(address, ANSWER_TIMEOUT);
            broker.answered = began.elapsed();
            let Err(error) = answer else { return Ok(broker) };
            if let Some(status) = broker.process.try_wait()? {
                bail!("the command ended with {status} before anybody answered at {address}");
            }
            if broker.answered > wait {
                return Err(error).with_context(|| format!("nobody answers after {} s", args.wait_seconds));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.process.try_wait()? {
            bail!("the command ended by itself with {status}, before it was killed");
        }
        kill_process_group(self.group(), Signal::KILL).context("the broker cannot be killed")?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = kill_process_group(self.group(), Signal::TERM);
        let until = Instant::now() + STOP_WAIT;
        while Instant::now() < until && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK_AGAIN);
        }
        let _ = kill_process_group(self.group(), Signal::KILL);
        let _ = self.process.wait();
    }
}

/// Runs it.
pub fn run(args: &Args, broker: &mut Broker, session: &mut Session) -> anyhow::Result<Outcome> {
    for (name, value) in [("rate", args.rate), ("down-seconds", args.down_seconds)] {
        session.option(name, value);
    }
    session.option("command", &args.command);
    session.group.store(broker.group().as_raw_nonzero().get(), Ordering::Relaxed);
    let producer = session.producer(0, &[])?;
    let topic = session.topic()?;
    // Open ended: how long it takes is the question.
    let window = Window { end_ns: u64::MAX, ..session.window() };
    let schedule = Schedule::new(session.now_ns(), args.rate);
    let ledger = Arc::new(Ledger::new(session, schedule, session.recorder("produce", window), true));
    let mut outcome = Outcome { began_ns: window.begin_ns, ..Outcome::default() };
    outcome.figure("start_first_answer_ms", broker.answered.as_secs_f64() * 1000.0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            wake_in_time();
            let mut stamped = Stamped::new(session, &producer, &ledger, &topic);
            let mut sender = Sender::new(&session.clock, window, &stop);
            let sent = sender.open_loop(&schedule, |number, intended_ns| stamped.send(number, intended_ns));
            // What fails is told for each record.
            let _ = session.threads.handle(0).block_on(producer.flush());
            sent
        });
        let killing = scope.spawn(|| {
            let killed = kill_and_start(args, broker, session, &topic, &ledger, &mut outcome);
            stop.store(true, Ordering::Relaxed);
            killed
        });
        progress::watch(std::slice::from_ref(&ledger.produce), || sending.is_finished() && killing.is_finished());
        killing.join().expect("it does not panic").and(sending.join().expect("the sender does not panic"))
    })?;
    read_all(session, &topic, &ledger)?;
    outcome.take(&ledger.produce, session.now_ns());
    let check = ledger.check();
    outcome.faults.extend(check.faults());
    outcome.figure("checked_records", check.acknowledged_count() as f64);
    Ok(outcome)
}

/// Sleeps, but not beyond an interrupt.
fn rest(session: &Session, time: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if session.stopped() {
            bail!("interrupted");
        }
        std::thread::sleep(LOOK_AGAIN.min(until - Instant::now()));
    }
    Ok(())
}

fn kill_and_start(
    args: &Args,
    broker: &mut Broker,
    session: &Session,
    topic: &Topic,
    ledger: &Ledger,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    rest(session, seconds("--seconds", session.common.warmup_seconds + session.common.seconds)?)?;
    broker.kill()?;
    let killed_ns = session.now_ns();
    rest(session, seconds("--down-seconds", args.down_seconds)?)?;
    let started_ns = session.now_ns();
    ledger.resumes_after_ns.store(started_ns, Ordering::Relaxed);
    *broker = Broker::start(args).context("the second start")?;
    session.group.store(broker.group().as_raw_nonzero().get(), Ordering::Relaxed);
    outcome.figure("first_answer_ms", broker.answered.as_secs_f64() * 1000.0);
    let probe = probe(session)?;
    let record = Record::to(topic.name.clone()).partition(0).value("probe");
    session.threads.handle(0).block_on(async { anyhow::Ok(probe.send(record)?.await?) }).context("the first record")?;
    let ms = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / 1e6;
    outcome.figure("first_acknowledged_ms", ms(started_ns, session.now_ns()));
    let until = Instant::now() + seconds("--wait-seconds", args.wait_seconds)?;
    while ledger.resumed_ns.load(Ordering::Relaxed) == 0 && Instant::now() < until {
        rest(session, LOOK_AGAIN)?;
    }
    let resumed_ns = ledger.resumed_ns.load(Ordering::Relaxed);
    if resumed_ns == 0 {
        bail!("the load's own producer got no acknowledgement within {} s of the second start", args.wait_seconds);
    }
    outcome.figure("load_resumed_ms", ms(started_ns, resumed_ns));
    outcome.figure("load_resumed_after_kill_ms", ms(killed_ns, resumed_ns));
    rest(session, seconds("--after-seconds", args.after_seconds)?)
}

/// A producer that tries again at once.
fn probe(session: &Session) -> anyhow::Result<Producer> {
    let quick = [("linger.ms", 0), ("retry.backoff.ms", 1), ("retry.backoff.max.ms", 1)];
    session.producer(1, &quick.map(|(name, value)| (name, value.to_string())))
}

/// Reads everything once.
fn read_all(session: &Session, topic: &Topic, ledger: &Ledger) -> anyhow::Result<()> {
    for mut consumer in readers(session, topic, From::Beginning, Isolation::Uncommitted)? {
        let ends = consumer.ends()?;
        while consumer.positions().iter().any(|(partition, at)| at < &ends[partition]) {
            let records = consumer.poll()?;
            let mut check = ledger.check();
            for record in &records {
                arrived(&mut check, session.id, record);
            }
        }
    }
    Ok(())
}
