//! A lane: a bounded single-producer, single-consumer queue from one shard to another.
//!
//! Sending never waits. What the ring has no room for goes to a list on the sender's side, which a task of the sender
//! flushes in order; so two shards that fill each other's lanes both go on receiving and neither waits for the other.
//! The list is bounded for ordinary frames (`limits::LANE_OVERFLOW_FRAMES_MAX`); what may not fail goes in regardless.
//! When the other shard has ended, frames are dropped and the sender is told.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Mutex;

use glommio::GlommioError;
use glommio::channels::shared_channel::{self, ConnectedReceiver, ConnectedSender, SharedReceiver, SharedSender};
use oncilla_shards::limits;

use super::clock::spawn;
use super::local::Notify;
use crate::metrics::{Counter, Gauge};

/// Why a frame was not taken; it comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum LaneError<T> {
    /// The overflow list is at its bound.
    Full(T),
    /// The other shard has ended.
    Ended,
}

/// What a lane counts; one writer, the sending shard.
#[derive(Debug, Default)]
pub struct LaneCounters {
    /// Frames handed to the lane.
    pub sent: Counter,
    /// Most frames that ever waited for room at once.
    pub overflow_high: Gauge,
}

/// A lane of `frames` frames; each end is connected on its own shard.
#[must_use]
pub fn lane<T: Send + 'static>(frames: usize) -> (LaneSeed<T>, LaneReceiverSeed<T>) {
    let (sender, receiver) = shared_channel::new_bounded(frames);
    (LaneSeed(sender), LaneReceiverSeed(receiver))
}

/// A frame on its way. The ring asks for frames that may be shared between threads, although only one thread ever
/// holds one; a mutex that nobody locks grants that without unsafe code.
type Parcel<T> = Mutex<T>;

fn unpack<T>(parcel: Parcel<T>) -> T {
    parcel.into_inner().expect("a parcel is never locked")
}

/// The sending end before it has reached its shard.
#[derive(Debug)]
pub struct LaneSeed<T: Send + 'static>(SharedSender<Parcel<T>>);

/// The receiving end before it has reached its shard.
#[derive(Debug)]
pub struct LaneReceiverSeed<T: Send + 'static>(SharedReceiver<Parcel<T>>);

impl<T: Send + 'static> LaneSeed<T> {
    /// Waits for the other end, which must connect at the same time.
    pub async fn connect(self) -> LaneSender<T> {
        let shared = Rc::new(Shared {
            ring: self.0.connect().await,
            overflow: RefCell::new(VecDeque::new()),
            flushing: Cell::new(false),
            ended: Cell::new(false),
            room: Notify::new(),
            counters: LaneCounters::default(),
        });
        LaneSender { shared }
    }
}

impl<T: Send + 'static> LaneReceiverSeed<T> {
    /// Waits for the other end, which must connect at the same time.
    pub async fn connect(self) -> LaneReceiver<T> {
        LaneReceiver { ring: self.0.connect().await }
    }
}

struct Shared<T: Send + 'static> {
    ring: ConnectedSender<Parcel<T>>,
    overflow: RefCell<VecDeque<T>>,
    flushing: Cell<bool>,
    ended: Cell<bool>,
    room: Notify,
    counters: LaneCounters,
}

/// The sending end, on its shard.
pub struct LaneSender<T: Send + 'static> {
    shared: Rc<Shared<T>>,
}

impl<T: Send + 'static> std::fmt::Debug for LaneSender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneSender").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> LaneSender<T> {
    /// Sends `frame`, behind everything sent before it.
    pub fn send(&self, frame: T) -> Result<(), LaneError<T>> {
        if self.waiting() >= limits::LANE_OVERFLOW_FRAMES_MAX {
            return Err(LaneError::Full(frame));
        }
        self.send_always(frame)
    }

    /// Sends `frame` whatever waits already; for frames whose number is bounded by the other side.
    pub fn send_always(&self, frame: T) -> Result<(), LaneError<T>> {
        if self.shared.ended.get() {
            return Err(LaneError::Ended);
        }
        self.shared.counters.sent.add(1);
        if self.shared.flushing.get() {
            self.keep(frame);
            return Ok(());
        }
        match self.shared.ring.try_send(Parcel::new(frame)) {
            Ok(()) => Ok(()),
            Err(GlommioError::WouldBlock(glommio::ResourceType::Channel(frame))) => {
                self.keep(unpack(frame));
                self.shared.flushing.set(true);
                spawn(flush(self.shared.clone()));
                Ok(())
            }
            Err(_) => {
                self.shared.end();
                Err(LaneError::Ended)
            }
        }
    }

    /// Waits until [`LaneSender::send`] takes a frame again, or the other shard has ended.
    pub async fn room(&self) {
        while !self.shared.ended.get() && self.waiting() >= limits::LANE_OVERFLOW_FRAMES_MAX {
            self.shared.room.notified().await;
        }
    }

    /// Frames that wait for room in the ring.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.overflow.borrow().len()
    }

    /// The lane's counters.
    #[must_use]
    pub fn counters(&self) -> &LaneCounters {
        &self.shared.counters
    }

    /// Closes the lane; the receiver gets what is in the ring and then the end.
    pub fn close(&self) {
        self.shared.end();
        self.shared.ring.close();
    }

    fn keep(&self, frame: T) {
        let mut overflow = self.shared.overflow.borrow_mut();
        overflow.push_back(frame);
        let waiting = overflow.len() as u64;
        if waiting > self.shared.counters.overflow_high.get() {
            self.shared.counters.overflow_high.set(waiting);
        }
    }
}

impl<T: Send + 'static> Shared<T> {
    fn end(&self) {
        self.ended.set(true);
        let dropped = std::mem::take(&mut *self.overflow.borrow_mut());
        drop(dropped);
        self.room.notify();
    }
}

/// Moves the overflow into the ring, in order, until it is empty.
async fn flush<T: Send + 'static>(shared: Rc<Shared<T>>) {
    loop {
        let next = shared.overflow.borrow_mut().pop_front();
        let Some(frame) = next else { break };
        if shared.ring.send(Parcel::new(frame)).await.is_err() {
            shared.end();
            break;
        }
        if shared.overflow.borrow().len() < limits::LANE_OVERFLOW_FRAMES_MAX {
            shared.room.notify();
        }
    }
    shared.flushing.set(false);
}

/// The receiving end, on its shard.
#[derive(Debug)]
pub struct LaneReceiver<T: Send + 'static> {
    ring: ConnectedReceiver<Parcel<T>>,
}

impl<T: Send + 'static> LaneReceiver<T> {
    /// The next frame; `None` when the other shard has ended and all it sent was received.
    pub async fn receive(&self) -> Option<T> {
        self.ring.recv().await.map(unpack)
    }
}
