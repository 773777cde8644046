//! `produce`: idempotent producers; latency from the intended time of a record to its acknowledgement.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;
use oncilla::client::native::{Outcomes, Producer, Record};

use super::common::PaceArgs;
use super::{Common, Outcome, Session};
use crate::load::clock::{Clock, Schedule, wake_in_time};
use crate::load::payload::Payload;
use crate::load::recorder::{Recorder, latencies};
use crate::load::sender::{Gate, Pace, Sender, Taker, send};
use crate::progress;
use crate::target::Topic;

/// Options of `produce`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub pace: PaceArgs,
    #[command(flatten)]
    pub load: LoadArgs,
}

/// Options of a produce load, also of one beside something else.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Producers. At a rate they take turns; at saturation each has a thread of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub producers: u16,
    /// Records of each producer without an outcome at saturation; buffer.memory is a bound too.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub outstanding: u64,
    /// Give each partition a record in turn, instead of filling a batch of one after the other.
    #[arg(long)]
    pub round_robin: bool,
}

impl LoadArgs {
    pub fn note(&self, pace: Pace, session: &mut Session) {
        session.option("producers", self.producers);
        session.option("round-robin", self.round_robin);
        match pace {
            Pace::Rate(rate) => session.option("rate", rate),
            Pace::Saturate(outstanding) => {
                session.option("saturate", true);
                session.option("outstanding", outstanding);
            }
        }
    }
}

/// Runs it.
pub fn run(args: &Args, session: &mut Session) -> anyhow::Result<Outcome> {
    let pace = args.pace.pace(args.load.outstanding);
    args.load.note(pace, session);
    let load = Load { pace, args: &args.load, name: "produce" };
    let producers = load.producers(session)?;
    let topic = session.topic()?;
    let mut outcome = Outcome::default();
    load.run(session, &topic, producers, &mut outcome)?;
    Ok(outcome)
}

/// A produce load of one topic.
pub struct Load<'a> {
    pub pace: Pace,
    pub args: &'a LoadArgs,
    /// Of the quantity.
    pub name: &'a str,
}

/// One producer with what its records are made of.
struct Stream {
    producer: Producer,
    outcomes: Arc<dyn Outcomes>,
    gate: Arc<Gate>,
    payload: Payload,
    record: Record,
    /// Partition of the next record and how many there are, where they take turns.
    turn: Option<(i32, i32)>,
}

impl Stream {
    fn send(&mut self, intended_ns: u64) -> anyhow::Result<()> {
        self.payload.fill(self.record.value.get_or_insert_default());
        if let Some((next, of)) = &mut self.turn {
            self.record.partition = Some(*next);
            *next = (*next + 1) % *of;
        }
        send(&self.producer, &self.record, intended_ns, &self.outcomes, &self.gate)
    }
}

impl Load<'_> {
    /// Its producers: made before the topic, so that a setting that is refused leaves nothing behind.
    pub fn producers(&self, session: &Session) -> anyhow::Result<Vec<Producer>> {
        (0..usize::from(self.args.producers)).map(|number| session.producer(number, &[])).collect()
    }

    /// Runs it to its end and adds what it measured.
    pub fn run(
        &self,
        session: &Session,
        topic: &Topic,
        producers: Vec<Producer>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let window = session.window();
        let recorder = session.recorder(self.name, window);
        outcome.began_ns = window.begin_ns;
        let streams = self.streams(session, topic, producers, &recorder);
        let late = match self.pace {
            Pace::Rate(rate) => vec![run_at_rate(session, &recorder, streams, rate)],
            Pace::Saturate(outstanding) => run_saturated(session, &recorder, streams, outstanding),
        };
        let mut all = latencies();
        for one in late {
            all.add(one?).expect("the bounds are the same");
        }
        outcome.take(&recorder, session.now_ns());
        outcome.sent_late(self.name, &all);
        Ok(())
    }

    fn streams(
        &self,
        session: &Session,
        topic: &Topic,
        producers: Vec<Producer>,
        recorder: &Arc<Recorder>,
    ) -> Vec<Stream> {
        let stream = |(number, producer): (usize, Producer)| {
            let gate = Arc::new(Gate::default());
            let record_bytes = session.common.record_bytes;
            let outcomes = Arc::new(Taker {
                clock: session.clock,
                recorder: recorder.clone(),
                record_bytes: record_bytes as u64,
                gate: gate.clone(),
            });
            let first = i32::try_from(number).expect("a u16") % topic.partitions;
            Stream {
                producer,
                outcomes,
                gate,
                payload: Payload::new(record_bytes, number as u64 + 1),
                record: Record::to(topic.name.clone()),
                turn: self.args.round_robin.then_some((first, topic.partitions)),
            }
        };
        producers.into_iter().enumerate().map(stream).collect()
    }
}

/// A thread that sends; how late it was.
type Late = anyhow::Result<Histogram<u64>>;

fn run_at_rate(session: &Session, recorder: &Arc<Recorder>, mut streams: Vec<Stream>, rate: f64) -> Late {
    let window = recorder.window();
    let begin_ns = session.clock.now_ns();
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            wake_in_time();
            let mut sender = Sender::new(&session.clock, window, &session.stop);
            let turns = streams.len() as u64;
            let sent = sender.open_loop(&Schedule::new(begin_ns, rate), |number, intended_ns| {
                let turn = usize::try_from(number % turns).expect("a producer's number");
                streams[turn].send(intended_ns)
            });
            let late = sender.late;
            close(session, streams);
            sent.map(|()| late)
        });
        progress::watch(std::slice::from_ref(recorder), || sending.is_finished());
        sending.join().expect("the sender does not panic")
    })
}

fn run_saturated(session: &Session, recorder: &Arc<Recorder>, streams: Vec<Stream>, outstanding: u64) -> Vec<Late> {
    let window = recorder.window();
    let send_all = |mut stream: Stream| {
        let mut sender = Sender::new(&session.clock, window, &session.stop);
        let gate = stream.gate.clone();
        let sent = sender.closed_loop(&gate, outstanding, |_, now_ns| stream.send(now_ns));
        if sent.is_err() {
            // The others would go on for nothing.
            session.stop.store(true, Ordering::Relaxed);
        }
        let late = sender.late;
        close(session, vec![stream]);
        sent.map(|()| late)
    };
    let send_all = &send_all;
    std::thread::scope(|scope| {
        let sending: Vec<_> = streams.into_iter().map(|stream| scope.spawn(move || send_all(stream))).collect();
        progress::watch(std::slice::from_ref(recorder), || sending.iter().all(|one| one.is_finished()));
        sending.into_iter().map(|one| one.join().expect("a sender does not panic")).collect()
    })
}

/// Waits for the outcomes of all records.
fn close(session: &Session, streams: Vec<Stream>) {
    for stream in streams {
        // What fails is told for each record.
        let _ = session.threads.handle(0).block_on(stream.producer.close());
    }
}
