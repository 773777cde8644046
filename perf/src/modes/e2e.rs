//! `e2e`: one producer at a rate and readers of what it sends; latency from the intended time of a record to the reader
//! that has it, and whether each record arrived once and in the order of its partition.
//!
//! With `--transactional N` each transaction has N records, and the producer commits between two records: the schedule
//! goes on meanwhile, and `commit` is the call alone. Then a record has to arrive if its transaction was committed, and
//! must not if it was aborted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use oncilla::client::consumer::{Consumer, From};
use oncilla::client::native::{ClientFailure, Next, Outcomes, Place, Producer, Record, Written};

use super::common::rate;
use super::reader::{IsolationArg, arrived, readers};
use super::{Common, Outcome, Session};
use crate::load::check::Check;
use crate::load::clock::{Clock, Monotonic, Schedule, wake_in_time};
use crate::load::payload::{Payload, Stamp};
use crate::load::recorder::{Recorder, Window};
use crate::load::sender::{Gate, Sender, send};
use crate::progress;
use crate::target::Topic;

/// How long readers go on after the last outcome for records that were acknowledged.
const ARRIVAL_WAIT_NS: u64 = 30_000_000_000;

/// Options of `e2e`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// Records a second, on a schedule that nothing moves.
    #[arg(long, value_parser = rate)]
    pub rate: f64,
    /// Records of each transaction; without it there are none.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub transactional: Option<u64>,
    /// Which records of transactions are read.
    #[arg(long, value_enum, default_value_t)]
    pub isolation: IsolationArg,
}

/// What sender, producer and readers share.
pub struct Ledger {
    pub clock: Monotonic,
    pub schedule: Schedule,
    pub produce: Arc<Recorder>,
    pub record_bytes: u64,
    /// Whether an acknowledgement alone says that a record is to arrive.
    pub plain: bool,
    pub gate: Gate,
    /// The first acknowledgement that comes after `resumes_after_ns`; 0 before there is one.
    pub resumed_ns: AtomicU64,
    pub resumes_after_ns: AtomicU64,
    check: Mutex<Check>,
}

impl Ledger {
    pub fn new(session: &Session, schedule: Schedule, produce: Arc<Recorder>, plain: bool) -> Self {
        let record_bytes = session.common.record_bytes as u64;
        Self {
            clock: session.clock,
            schedule,
            produce,
            record_bytes,
            plain,
            gate: Gate::default(),
            resumed_ns: AtomicU64::new(0),
            resumes_after_ns: AtomicU64::new(u64::MAX),
            check: Mutex::default(),
        }
    }

    pub fn check(&self) -> MutexGuard<'_, Check> {
        self.check.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens are numbers of records.
impl Outcomes for Ledger {
    fn outcome(&self, token: u64, outcome: Result<Place, ClientFailure>) {
        let intended_ns = self.schedule.at_ns(token);
        match outcome {
            Ok(_) => {
                let now_ns = self.clock.now_ns();
                self.produce.done(intended_ns, now_ns, self.record_bytes);
                if now_ns >= self.resumes_after_ns.load(Ordering::Relaxed) {
                    let _ = self.resumed_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
                }
                if self.plain {
                    self.check().acknowledged(token);
                }
            }
            Err(failure) => {
                self.produce.failed(intended_ns, || failure.to_string());
                if failure.written == Written::No {
                    self.check().refused(token);
                }
            }
        }
        self.gate.ended(1);
    }
}

/// Sends stamped records in turn to all partitions.
pub struct Stamped<'a> {
    session: &'a Session,
    producer: &'a Producer,
    ledger: &'a Arc<Ledger>,
    outcomes: Arc<dyn Outcomes>,
    payload: Payload,
    record: Record,
    partitions: u64,
}

impl<'a> Stamped<'a> {
    pub fn new(session: &'a Session, producer: &'a Producer, ledger: &'a Arc<Ledger>, topic: &Topic) -> Self {
        Self {
            session,
            producer,
            ledger,
            outcomes: ledger.clone(),
            payload: Payload::new(session.common.record_bytes, session.id),
            record: Record::to(topic.name.clone()),
            partitions: u64::try_from(topic.partitions).expect("a topic has partitions"),
        }
    }

    pub fn send(&mut self, number: u64, intended_ns: u64) -> anyhow::Result<()> {
        let stamp = Stamp { run: self.session.id, number, intended_ns };
        self.payload.fill_stamped(self.record.value.get_or_insert_default(), stamp);
        self.record.partition = i32::try_from(number % self.partitions).ok();
        send(self.producer, &self.record, number, &self.outcomes, &self.ledger.gate)
    }
}

/// Runs it.
pub fn run(args: &Args, session: &mut Session) -> anyhow::Result<Outcome> {
    args.common.check_stamp()?;
    session.option("rate", args.rate);
    session.option("isolation", args.isolation.name());
    if let Some(records) = args.transactional {
        session.option("transactional", records);
    }
    let id = args.transactional.map(|_| ("transactional.id", format!("oncilla-perf-{:x}", session.id)));
    let producer = session.producer(0, id.as_slice())?;
    let topic = session.topic()?;
    let consumers = readers(session, &topic, From::End, args.isolation.level())?;
    if args.transactional.is_some() {
        session.threads.handle(0).block_on(producer.init_transactions())?;
    }
    let window = session.window();
    let schedule = Schedule::new(session.clock.now_ns(), args.rate);
    let produce = session.recorder("produce", window);
    let ledger = Arc::new(Ledger::new(session, schedule, produce, args.transactional.is_none()));
    let run = Running {
        session,
        args,
        window,
        ledger: &ledger,
        e2e: session.recorder("e2e", window),
        commit: session.recorder("commit", window),
        sent: AtomicBool::new(false),
    };
    let mut outcome = Outcome { began_ns: window.begin_ns, ..Outcome::default() };
    run.all(&producer, &topic, consumers, &mut outcome)?;
    Ok(outcome)
}

struct Running<'a> {
    session: &'a Session,
    args: &'a Args,
    window: Window,
    ledger: &'a Arc<Ledger>,
    e2e: Arc<Recorder>,
    commit: Arc<Recorder>,
    /// Whether every record has its outcome.
    sent: AtomicBool,
}

impl Running<'_> {
    fn all(
        &self,
        producer: &Producer,
        topic: &Topic,
        consumers: Vec<Consumer>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let late = std::thread::scope(|scope| {
            let reading: Vec<_> =
                consumers.into_iter().map(|consumer| scope.spawn(move || self.read(consumer))).collect();
            let sending = scope.spawn(move || {
                let sent = self.send(producer, topic);
                self.sent.store(true, Ordering::Release);
                sent
            });
            let recorders = [self.e2e.clone(), self.ledger.produce.clone(), self.commit.clone()];
            progress::watch(&recorders, || sending.is_finished() && reading.iter().all(|one| one.is_finished()));
            let late = sending.join().expect("the sender does not panic")?;
            reading.into_iter().try_for_each(|one| one.join().expect("a reader does not panic"))?;
            anyhow::Ok(late)
        })?;
        outcome.take(&self.e2e, self.session.now_ns());
        outcome.take(&self.ledger.produce, self.session.now_ns());
        if self.args.transactional.is_some() {
            outcome.take(&self.commit, self.session.now_ns());
        }
        let check = self.ledger.check();
        outcome.faults.extend(check.faults());
        outcome.figure("checked_records", check.acknowledged_count() as f64);
        if !late.is_empty() {
            outcome.figure("produce_sent_late_p99_us", late.value_at_quantile(0.99) as f64 / 1000.0);
        }
        Ok(())
    }

    fn send(&self, producer: &Producer, topic: &Topic) -> anyhow::Result<Histogram<u64>> {
        wake_in_time();
        let mut stamped = Stamped::new(self.session, producer, self.ledger, topic);
        let mut sender = Sender::new(&self.session.clock, self.window, &self.session.stop);
        let per_transaction = self.args.transactional.unwrap_or(u64::MAX);
        let mut first = 0;
        let sent = sender.open_loop(&self.ledger.schedule, |number, intended_ns| {
            if self.args.transactional.is_some() && number == first {
                producer.begin_transaction()?;
            }
            stamped.send(number, intended_ns)?;
            if number + 1 - first == per_transaction {
                self.end(producer, first, number + 1)?;
                first = number + 1;
            }
            Ok(())
        });
        let next = sender.sent();
        let late = sender.late;
        sent?;
        if self.args.transactional.is_some() {
            if first < next {
                self.end(producer, first, next)?;
            }
        } else {
            // What fails is told for each record.
            let _ = self.session.threads.handle(0).block_on(producer.flush());
        }
        Ok(late)
    }

    /// Commits the transaction of these records; aborts it if that cannot be.
    fn end(&self, producer: &Producer, first: u64, next: u64) -> anyhow::Result<()> {
        let runtime = self.session.threads.handle(0);
        let intended_ns = self.ledger.schedule.at_ns(next - 1);
        let began_ns = self.session.clock.now_ns();
        let Err(failure) = runtime.block_on(producer.commit_transaction()) else {
            self.commit.phase_done(intended_ns, began_ns, self.session.clock.now_ns(), 0);
            let mut check = self.ledger.check();
            (first..next).for_each(|number| check.acknowledged(number));
            return Ok(());
        };
        self.commit.failed(intended_ns, || failure.to_string());
        if failure.next != Next::Abort {
            return Err(failure.into());
        }
        runtime.block_on(producer.abort_transaction())?;
        if self.args.isolation == IsolationArg::ReadCommitted {
            let mut check = self.ledger.check();
            (first..next).for_each(|number| check.refused(number));
        }
        Ok(())
    }

    fn read(&self, mut consumer: Consumer) -> anyhow::Result<()> {
        let mut until_ns = u64::MAX;
        loop {
            let sent = self.sent.load(Ordering::Acquire);
            let records = consumer.poll()?;
            let now_ns = self.session.clock.now_ns();
            for record in &records {
                let stamp = arrived(&mut self.ledger.check(), self.session.id, record);
                if let Some(stamp) = stamp {
                    self.e2e.done(stamp.intended_ns, now_ns, self.ledger.record_bytes);
                }
            }
            if sent {
                until_ns = until_ns.min(now_ns + ARRIVAL_WAIT_NS);
                // A further poll without records, so that one too many would be seen.
                if now_ns > until_ns || records.is_empty() && self.ledger.check().is_complete() {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
