//! The state that reader, writer and requests in work of one connection share.
//!
//! It lives as long as the reader or the writer runs; requests in work do not keep the descriptor open. It ends in one
//! of three ways: the client has sent its last byte and everything is answered; the connection is refused or drained
//! (what was begun is answered, then a FIN); or it is lost (nothing is answered).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use oncilla_shards::limits;

use super::admission::{Hold, Share};
use super::answers::Answers;
use super::quota::Permit;
use super::service::{Peer, Request, Service};
use super::shard::NetShard;
use crate::rt::{Socket, now, spawn};

/// What is still expected from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// More requests.
    Open,
    /// Nothing: it has sent a FIN.
    Ended,
    /// Nothing that will be looked at: it was refused, or the broker stops.
    Stopped,
}

/// One connection.
pub struct Connection<S: Service> {
    /// Its shard.
    pub shard: Rc<NetShard<S>>,
    /// Its socket.
    pub socket: Socket,
    /// Its client.
    pub peer: Rc<Peer>,
    /// Its answers.
    pub answers: Rc<Answers>,
    /// Its part of the budget.
    pub share: Rc<Share>,
    pending: RefCell<VecDeque<(Request, Hold)>>,
    starting: Cell<bool>,
    serving: Cell<bool>,
    input: Cell<Input>,
    last_byte: Cell<Instant>,
    /// Whether a frame has begun and not ended.
    pub in_frame: Cell<bool>,
    /// Whether the reader waits for bytes; if not, nobody would notice a reset.
    pub listening: Cell<bool>,
    /// When reading after the FIN ends.
    pub linger_until: Cell<Option<Instant>>,
    tasks: Cell<u8>,
    key: usize,
    _permit: Permit,
}

impl<S: Service> Connection<S> {
    /// A connection with its place `key` in the shard's registry.
    pub fn new(shard: Rc<NetShard<S>>, socket: Socket, peer: Peer, key: usize, permit: Permit) -> Rc<Self> {
        Rc::new(Self {
            shard,
            socket,
            peer: Rc::new(peer),
            answers: Rc::default(),
            share: Rc::default(),
            pending: RefCell::default(),
            starting: Cell::new(false),
            serving: Cell::new(false),
            input: Cell::new(Input::Open),
            last_byte: Cell::new(now()),
            in_frame: Cell::new(false),
            listening: Cell::new(false),
            linger_until: Cell::new(None),
            tasks: Cell::new(2),
            key,
            _permit: permit,
        })
    }

    /// What is still expected.
    pub fn input(&self) -> Input {
        self.input.get()
    }

    /// Bytes went in or out.
    pub fn touch(&self) {
        self.last_byte.set(now());
    }

    /// When they last did.
    pub fn last_byte(&self) -> Instant {
        self.last_byte.get()
    }

    /// Requests read and not answered.
    pub fn in_line(&self) -> usize {
        self.pending.borrow().len() + self.answers.unfilled()
    }

    /// Puts a request in line and starts what may start.
    pub fn push(self: &Rc<Self>, request: Request, hold: Hold) {
        self.pending.borrow_mut().push_back((request, hold));
        self.start_requests();
    }

    /// Starts the requests in line that may start: overlapping ones beside each other, others alone (contract KC.8).
    ///
    /// Called from tasks of this connection only, never from within a handler that fills a slot: what is started here
    /// may touch anything of the shard.
    pub fn start_requests(self: &Rc<Self>) {
        if self.starting.replace(true) {
            return;
        }
        while let Some((request, hold)) = self.next_to_start() {
            let hold = (!self.shard.service.parks(request.api_key)).then_some(hold);
            let slot = self.answers.open(request.correlation_id, request.tagged_answer, hold);
            if self.shard.service.overlaps(request.api_key) {
                self.shard.service.begin(request, slot);
                continue;
            }
            self.serving.set(true);
            let (service, connection) = (self.shard.service.clone(), Rc::downgrade(self));
            spawn(async move {
                let answer = service.serve(request).await;
                slot.fill(answer);
                if let Some(connection) = connection.upgrade() {
                    connection.serving.set(false);
                    connection.start_requests();
                }
            });
        }
        self.starting.set(false);
    }

    fn next_to_start(&self) -> Option<(Request, Hold)> {
        if self.serving.get()
            || self.answers.is_closing()
            || self.answers.unwritten() > limits::CONNECTION_UNWRITTEN_BYTES_MAX
        {
            return None;
        }
        let mut pending = self.pending.borrow_mut();
        let (request, _) = pending.front()?;
        let in_work = self.answers.unfilled();
        let may_start = if self.shard.service.overlaps(request.api_key) {
            in_work < limits::CONNECTION_PIPELINE_MAX
        } else {
            in_work == 0
        };
        if may_start { pending.pop_front() } else { None }
    }

    /// Whether the writer has nothing left to wait for.
    pub fn is_finished(&self) -> bool {
        self.answers.is_closed()
            || self.input.get() != Input::Open && self.pending.borrow().is_empty() && self.answers.is_empty()
    }

    /// The client has sent its last byte.
    pub fn end_input(&self) {
        if self.input.get() == Input::Open {
            self.input.set(Input::Ended);
        }
        self.peer.set_ended();
        self.answers.ready.notify();
    }

    /// Reads no further requests; those in line are answered, then the connection is closed with a FIN.
    pub fn refuse(&self, why: &dyn std::fmt::Display) {
        tracing::warn!(client = %self.peer.address, "closing the connection: {why}");
        self.shard.counters.refusals.add(1);
        self.stop_input();
    }

    /// Answers what is in work and nothing else, for the end of the broker.
    pub fn drain(&self) {
        let unstarted = self.pending.take();
        drop(unstarted);
        self.stop_input();
    }

    fn stop_input(&self) {
        if self.input.get() == Input::Open {
            self.input.set(Input::Stopped);
        }
        self.answers.ready.notify();
        self.share.room.notify();
    }

    /// The connection is lost, or cut off: waiting requests are told, nothing more is sent.
    pub fn abort(&self) {
        if self.peer.is_gone() {
            return;
        }
        if self.in_line() > 0 {
            self.shard.counters.lost_in_work.add(1);
        }
        self.peer.set_gone();
        self.discard_input();
        self.socket.shutdown_both();
    }

    /// An answer asked for the end: what came behind it is never seen (contract KC.9).
    pub fn discard_input(&self) {
        self.stop_input();
        let unstarted = self.pending.take();
        drop(unstarted);
        self.answers.close();
    }

    /// One of the two tasks has ended; with the last one the descriptor is closed.
    pub fn task_ended(&self) {
        self.tasks.set(self.tasks.get() - 1);
        if self.tasks.get() == 0 {
            self.shard.forget(self.key);
        }
    }
}
