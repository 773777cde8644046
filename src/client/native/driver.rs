//! The task behind a producer: wakes when the machine wants, carries out what it decides, and brings events back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;
use oncilla_shards::client::{ClientFailure, ConnectionId, Machine, OpId, Output};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::delivery::{Deliveries, Telling};
use super::link::{Event, Link, Outgoing};

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
        let mut outward = Vec::new();
        for output in outputs {
            match output {
                Output::Delivered { records, place } => {
                    told.batches.push(state.deliveries.take(&records, Ok(place)));
                }
                Output::Failed { records, failure } => {
                    told.batches.push(state.deliveries.take(&records, Err(failure)));
                }
                Output::Done { op, result } => {
                    if let Some(waiting) = state.ops.remove(&op) {
                        told.ops.push((waiting, result));
                    }
                }
                output => outward.push(output),
            }
        }
        let ended = state.ended;
        drop(state);
        for output in outward {
            match output {
                Output::Send { connection, address, ticket, call, request } => {
                    let link = links.entry(connection).or_insert_with(|| self.open(connection, address, events));
                    // A task that has ended has told so: its event is on the way.
                    let _ = link.send(Outgoing { ticket, call, request });
                }
                Output::Close(connection) => {
                    links.remove(&connection);
                }
                inward => panic!("{inward:?} was carried out under the lock"),
            }
        }
        (until_ms, ended)
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

/// What is to be told when the lock is free again.
#[derive(Default)]
struct Told {
    batches: Vec<Telling>,
    ops: Vec<(oneshot::Sender<OpResult>, OpResult)>,
}

impl Told {
    fn tell(&mut self, room: &Notify) {
        if !self.batches.is_empty() {
            room.notify_waiters();
        }
        self.batches.drain(..).for_each(Telling::tell);
        // A flush ends when its records have been told.
        for (waiting, result) in self.ops.drain(..) {
            let _ = waiting.send(result);
        }
    }
}
