//! The answers of one connection, in request order.
//!
//! Every request that has been started has a slot here; the writer takes filled ones from the front. A slot may be
//! filled at any time by any task of the shard. Dropped unfilled, it closes the connection: the client would wait for
//! ever.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::admission::Hold;
use super::service::{Answer, Body};
use crate::rt::Notify;

#[derive(Debug)]
struct Slot {
    correlation_id: i32,
    tagged: bool,
    answer: Option<Answer>,
    hold: Option<Hold>,
}

/// The slots.
#[derive(Debug, Default)]
pub struct Answers {
    slots: RefCell<VecDeque<Slot>>,
    first: Cell<u64>,
    unfilled: Cell<usize>,
    unwritten: Cell<usize>,
    closing: Cell<bool>,
    closed: Cell<bool>,
    /// Told when the writer has something to do.
    pub ready: Notify,
}

/// One answer on its way out.
#[derive(Debug)]
pub struct Outgoing {
    head: [u8; 9],
    head_bytes: usize,
    /// The body behind the head.
    pub body: Body,
}

impl Outgoing {
    fn new(correlation_id: i32, tagged: bool, body: Body) -> Self {
        let counted: usize = body.chunks.iter().map(|chunk| chunk.len()).sum();
        assert_eq!(counted, body.bytes, "an answer's length must be what it holds");
        let head_bytes = if tagged { 9 } else { 8 };
        let size = i32::try_from(head_bytes - 4 + body.bytes).expect("answers are bounded far below 2 GiB");
        // The last byte is the empty tag section of flexible versions (contract KC.2).
        let mut head = [0; 9];
        head[..4].copy_from_slice(&size.to_be_bytes());
        head[4..8].copy_from_slice(&correlation_id.to_be_bytes());
        Self { head, head_bytes, body }
    }

    /// Length, correlation id, tag section.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    /// All bytes.
    pub fn bytes(&self) -> usize {
        self.head_bytes + self.body.bytes
    }
}

impl Answers {
    /// A slot behind all others. `hold` is given back when it is filled.
    pub fn open(self: &Rc<Self>, correlation_id: i32, tagged: bool, hold: impl Into<Option<Hold>>) -> AnswerSlot {
        let mut slots = self.slots.borrow_mut();
        let seq = self.first.get() + slots.len() as u64;
        slots.push_back(Slot { correlation_id, tagged, answer: None, hold: hold.into() });
        self.unfilled.set(self.unfilled.get() + 1);
        AnswerSlot { answers: self.clone(), seq, filled: false }
    }

    /// Requests in work.
    pub fn unfilled(&self) -> usize {
        self.unfilled.get()
    }

    /// Bytes of answers that have not been written.
    pub fn unwritten(&self) -> usize {
        self.unwritten.get()
    }

    /// Whether nothing is in work or waits for the writer.
    pub fn is_empty(&self) -> bool {
        self.slots.borrow().is_empty()
    }

    /// Whether the writer would find something.
    pub fn has_ready(&self) -> bool {
        self.slots.borrow().front().is_some_and(|slot| slot.answer.is_some())
    }

    /// Moves what is answered, up to the first gap, to `out`. The text of an answer that closes the connection ends it:
    /// what follows is never seen (contract KC.9).
    pub fn take_ready(&self, out: &mut VecDeque<Outgoing>) -> Option<String> {
        loop {
            let slot = {
                let mut slots = self.slots.borrow_mut();
                if slots.front().is_none_or(|slot| slot.answer.is_none()) {
                    return None;
                }
                self.first.set(self.first.get() + 1);
                slots.pop_front().expect("seen above")
            };
            match slot.answer.expect("seen above") {
                Answer::Body(body) => out.push_back(Outgoing::new(slot.correlation_id, slot.tagged, body)),
                Answer::Silent => {}
                Answer::Close(reason) => {
                    self.close();
                    return Some(reason);
                }
            }
        }
    }

    /// Counts `bytes` as written.
    pub fn written(&self, bytes: usize) {
        self.unwritten.set(self.unwritten.get() - bytes);
    }

    /// Drops all slots; later answers fall on the floor.
    pub fn close(&self) {
        self.closed.set(true);
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        self.first.set(self.first.get() + slots.len() as u64);
        self.unfilled.set(0);
        drop(slots);
        self.ready.notify();
    }

    /// Whether an answer has asked for the end: nothing further may be started (contract KC.9).
    pub fn is_closing(&self) -> bool {
        self.closing.get() || self.closed.get()
    }

    /// Whether [`Answers::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    fn fill(&self, seq: u64, answer: Answer) {
        if self.closed.get() {
            return;
        }
        let hold = {
            let mut slots = self.slots.borrow_mut();
            let index = usize::try_from(seq - self.first.get()).expect("slots fit in memory");
            let slot = &mut slots[index];
            assert!(slot.answer.is_none(), "a slot is filled once");
            if let Answer::Body(body) = &answer {
                self.unwritten.set(self.unwritten.get() + body.bytes + if slot.tagged { 9 } else { 8 });
            }
            self.closing.set(self.closing.get() || matches!(answer, Answer::Close(_)));
            slot.answer = Some(answer);
            slot.hold.take()
        };
        self.unfilled.set(self.unfilled.get() - 1);
        drop(hold);
        self.ready.notify();
    }
}

/// The place of one answer.
#[derive(Debug)]
#[must_use = "a slot dropped unfilled closes the connection"]
pub struct AnswerSlot {
    answers: Rc<Answers>,
    seq: u64,
    filled: bool,
}

impl AnswerSlot {
    /// Gives the answer; never waits, and runs nothing of the connection before the caller has returned to its
    /// executor.
    pub fn fill(mut self, answer: Answer) {
        self.filled = true;
        self.answers.fill(self.seq, answer);
    }
}

impl Drop for AnswerSlot {
    fn drop(&mut self) {
        if !self.filled {
            self.answers.fill(self.seq, Answer::Close("a request was dropped without an answer".to_owned()));
        }
    }
}
