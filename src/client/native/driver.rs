//! The task behind a producer: wakes when the machine wants, carries out what it decides, and brings events back.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;
use oncilla_shards::client::{ClientFailure, ConnectionId, Delivered, Machine, OpId, Output, RecordId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::link::{Event, Link, Outgoing};
use super::{Outcomes, Place};

/// Events worked off before the machine is asked what follows from them.
const EVENTS_TURN_MAX: usize = 64;

/// What the producer and its task share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// There is something for the task to do.
    pub wake: Notify,
    /// There is memory again.
    pub room: Notify,
    began: Instant,
}

type Outcome = Result<Place, ClientFailure>;

/// Who waits for the outcome of a record.
pub(super) enum Waiting {
    Awaited(oneshot::Sender<Outcome>),
    Told(u64, Arc<dyn Outcomes>),
}

impl Waiting {
    fn tell(self, outcome: Outcome) {
        match self {
            Self::Awaited(waiting) => {
                let _ = waiting.send(outcome);
            }
            Self::Told(token, outcomes) => outcomes.outcome(token, outcome),
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Awaited(_) => f.write_str("Awaited"),
            Self::Told(token, _) => write!(f, "Told({token})"),
        }
    }
}

/// Who waits for the outcome of which record. Numbers of records are dense, so a place in a queue finds them.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// Number of the record in front.
    first: u64,
    waiting: VecDeque<Option<Waiting>>,
}

impl Deliveries {
    pub fn push(&mut self, id: RecordId, waiting: Waiting) {
        assert_eq!(id.0, self.first + self.waiting.len() as u64, "records are numbered one by one");
        self.waiting.push_back(Some(waiting));
    }

    fn take(&mut self, id: RecordId) -> Option<Waiting> {
        let at = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        let waiting = self.waiting.get_mut(at)?.take();
        while self.waiting.front().is_some_and(Option::is_none) {
            self.waiting.pop_front();
            self.first += 1;
        }
        waiting
    }
}

/// Under the lock, which is never held across an await.
#[derive(Debug)]
pub(super) struct State {
    pub machine: Machine,
    pub deliveries: Deliveries,
    pub ops: HashMap<OpId, oneshot::Sender<Result<(), ClientFailure>>>,
    pub next_op: u64,
    ended: bool,
}

impl Shared {
    pub fn new(machine: Machine) -> Self {
        let state = State { machine, deliveries: Deliveries::default(), ops: HashMap::new(), next_op: 0, ended: false };
        Self { state: Mutex::new(state), wake: Notify::new(), room: Notify::new(), began: Instant::now() }
    }

    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The producer is dropped.
    pub fn end(&self) {
        let mut state = self.state();
        state.machine.shut();
        state.ended = true;
        drop(state);
        self.wake.notify_one();
    }
}

/// The task.
pub(super) struct Driver {
    pub shared: Arc<Shared>,
    pub client_id: StrBytes,
    pub connect_timeout: Duration,
}

impl Driver {
    pub async fn run(self) {
        let (sender, mut events) = unbounded_channel();
        let mut links = HashMap::new();
        let mut told = Told::default();
        loop {
            let (until, ended) = self.turn(&mut links, &sender, &mut told);
            told.tell(&self.shared.room);
            if ended {
                return;
            }
            let asleep = async {
                match until {
                    Some(at_ms) => tokio::time::sleep_until(self.shared.began + Duration::from_millis(at_ms)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = asleep => {}
                () = self.shared.wake.notified() => {}
                event = events.recv() => self.take(event, &mut events),
            }
        }
    }

    fn take(&self, first: Option<Event>, events: &mut UnboundedReceiver<Event>) {
        let mut state = self.shared.state();
        let now_ms = self.shared.now_ms();
        // The channel stays open, because this side holds a sender of it.
        let rest = std::iter::from_fn(|| events.try_recv().ok()).take(EVENTS_TURN_MAX);
        for event in first.into_iter().chain(rest) {
            match event {
                Event::Feature(epoch, level) => state.machine.learn_feature(epoch, level),
                Event::Answered(call, answer) => state.machine.answered(now_ms, call, answer),
                Event::Lost { connection, reached, why } => {
                    tracing::debug!(node = connection.node, reached, why, "a connection of a producer is lost");
                    state.machine.lost(now_ms, connection, reached);
                }
            }
        }
    }

    /// Lets the machine decide and carries it out; when it wants to be asked again, and whether this was the last time.
    fn turn(
        &self,
        links: &mut HashMap<ConnectionId, UnboundedSender<Outgoing>>,
        events: &UnboundedSender<Event>,
        told: &mut Told,
    ) -> (Option<u64>, bool) {
        let mut state = self.shared.state();
        let until_ms = state.machine.poll(self.shared.now_ms());
        let outputs = state.machine.take_outputs();
        for output in outputs {
            match output {
                Output::Send { connection, address, ticket, call, request } => {
                    let link = links.entry(connection).or_insert_with(|| self.open(connection, address, events));
                    // A task that has ended has told so: its event is on the way.
                    let _ = link.send(Outgoing { ticket, call, request });
                }
                Output::Close(connection) => {
                    links.remove(&connection);
                }
                Output::Delivered { records, place } => state.delivered(&records, &place, &mut told.records),
                Output::Failed { records, failure } => state.failed(&records, &failure, &mut told.records),
                Output::Done { op, result } => {
                    if let Some(waiting) = state.ops.remove(&op) {
                        told.ops.push((waiting, result));
                    }
                }
            }
        }
        (until_ms, state.ended)
    }

    fn open(
        &self,
        connection: ConnectionId,
        address: Arc<str>,
        events: &UnboundedSender<Event>,
    ) -> UnboundedSender<Outgoing> {
        let (sender, outgoing) = unbounded_channel();
        let link = Link {
            connection,
            address,
            client_id: self.client_id.clone(),
            timeout: self.connect_timeout,
            outgoing,
            events: events.clone(),
        };
        tokio::spawn(link.run());
        sender
    }
}

type OpResult = Result<(), ClientFailure>;

/// What is to be told when the lock is free again, so that who is told can send the next record at once.
#[derive(Default)]
struct Told {
    records: Vec<(Waiting, Outcome)>,
    ops: Vec<(oneshot::Sender<OpResult>, OpResult)>,
}

impl Told {
    fn tell(&mut self, room: &Notify) {
        if !self.records.is_empty() {
            room.notify_waiters();
        }
        for (waiting, outcome) in self.records.drain(..) {
            waiting.tell(outcome);
        }
        // A flush ends when its records have been told.
        for (waiting, result) in self.ops.drain(..) {
            let _ = waiting.send(result);
        }
    }
}

impl State {
    fn delivered(&mut self, records: &[RecordId], place: &Delivered, told: &mut Vec<(Waiting, Outcome)>) {
        for (at, id) in (0..).zip(records) {
            let Some(waiting) = self.deliveries.take(*id) else { continue };
            let place = Place {
                topic: place.topic.clone(),
                partition: place.partition,
                offset: place.base_offset.map(|base| base.plus(at).0),
                timestamp_ms: place.timestamp.map(|at| at.0),
            };
            told.push((waiting, Ok(place)));
        }
    }

    fn failed(&mut self, records: &[RecordId], failure: &ClientFailure, told: &mut Vec<(Waiting, Outcome)>) {
        for id in records {
            if let Some(waiting) = self.deliveries.take(*id) {
                told.push((waiting, Err(failure.clone())));
            }
        }
    }
}
