//! Frames in: the reading task of one connection.
//!
//! While it waits it holds no buffer: receives go into buffers of the shard, and what a receive leaves behind is at
//! most a length. Many small requests cost one receive; a large frame is received in place. Every wait for budget keeps
//! the rest with the client's kernel.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use oncilla_shards::limits;

use super::admission::{Hold, Reserved};
use super::connection::{Connection, Input};
use super::frame::frame_bytes;
use super::service::Service;
use crate::rt::yield_by_timer;

/// Why reading is over.
enum Stop {
    /// The client has sent its last byte.
    End,
    /// What it sent cannot be served; the text says what it was.
    Refused(String),
    /// The connection failed.
    Lost(io::Error),
    /// Somebody else ended it.
    Told,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Reads until the client or the broker is done.
pub async fn read<S: Service>(connection: Rc<Connection<S>>) {
    let mut reader =
        Reader { connection: connection.clone(), buffer: Vec::new(), at: 0, dry: true, frames: 0, bytes: 0 };
    let stop = reader.run().await;
    reader.release();
    drop(reader);
    match stop {
        Stop::End => connection.end_input(),
        Stop::Refused(why) => connection.refuse(&why),
        Stop::Lost(error) => {
            tracing::debug!(client = %connection.peer.address, %error, "connection lost");
            connection.abort();
        }
        Stop::Told => {}
    }
    connection.task_ended();
}

struct Reader<S: Service> {
    connection: Rc<Connection<S>>,
    /// What was received; consumed up to `at`.
    buffer: Vec<u8>,
    at: usize,
    /// The last receive took all there was.
    dry: bool,
    frames: usize,
    bytes: usize,
}

impl<S: Service> Reader<S> {
    async fn run(&mut self) -> Stop {
        loop {
            if let Err(stop) = self.one_frame().await {
                return stop;
            }
            self.end_turn_if_due().await;
        }
    }

    async fn one_frame(&mut self) -> Result<(), Stop> {
        let connection = self.connection.clone();
        let head = self.head().await?;
        let size = frame_bytes(head, connection.shard.settings.request_bytes_max)
            .map_err(|refusal| Stop::Refused(refusal.to_string()))?;
        connection.in_frame.set(true);
        self.wait_for_connection(size).await?;
        let first = self.wait_for_budget(connection.shard.budget.step(size.min(limits::FRAME_FIRST_BYTES_MAX)), false);
        let mut hold = Hold::new(&connection.share, size, first.await?);
        let frame = if self.buffer.len() - self.at >= size {
            let frame = Bytes::copy_from_slice(&self.buffer[self.at..self.at + size]);
            self.at += size;
            frame
        } else {
            Bytes::from(self.body(size, &mut hold).await?)
        };
        connection.in_frame.set(false);
        connection.shard.counters.requests.add(1);
        self.frames += 1;
        self.bytes += size;
        let request = connection.shard.service.parse(frame, &connection.peer).map_err(Stop::Refused)?;
        connection.push(request, hold);
        Ok(())
    }

    /// The length of the next frame.
    async fn head(&mut self) -> Result<[u8; 4], Stop> {
        let mut head = [0; 4];
        for (have, byte) in head.iter_mut().enumerate() {
            if self.at == self.buffer.len() {
                self.connection.in_frame.set(have > 0);
                self.receive().await?;
            }
            *byte = self.buffer[self.at];
            self.at += 1;
        }
        Ok(head)
    }

    /// Receives at least one byte into the buffer, which must be used up.
    async fn receive(&mut self) -> Result<(), Stop> {
        self.at = 0;
        self.buffer.clear();
        loop {
            if self.dry {
                self.release();
                self.readable().await?;
            }
            if self.buffer.capacity() < limits::RECEIVE_BYTES_MIN {
                self.buffer = self.connection.shard.receive_buffer();
            }
            match self.connection.socket.try_receive(&mut self.buffer)? {
                None => self.dry = true,
                Some(0) => return Err(Stop::End),
                Some(received) => {
                    self.dry = self.buffer.len() < self.buffer.capacity();
                    self.received(received);
                    return Ok(());
                }
            }
        }
    }

    /// A frame that is not in the buffer as a whole: what is there of it, and the rest from the socket in place. A
    /// length alone gets the first part of the memory; when that has arrived and the budget has granted the rest, the
    /// rest is allocated at once. Growing with what arrives would copy a large frame once more on its way.
    async fn body(&mut self, size: usize, hold: &mut Hold) -> Result<Vec<u8>, Stop> {
        let first = self.connection.shard.budget.step(size.min(limits::FRAME_FIRST_BYTES_MAX));
        let there = self.buffer.len() - self.at;
        let mut frame = Vec::with_capacity(first.max(there));
        frame.extend_from_slice(&self.buffer[self.at..]);
        self.at = self.buffer.len();
        self.release();
        let mut whole = first == size;
        while frame.len() < size {
            if !whole && frame.len() >= first {
                hold.grow(self.wait_for_budget(size - first, true).await?);
                whole = true;
            }
            if frame.len() == frame.capacity() {
                frame.reserve_exact(size - frame.len());
            }
            if self.dry {
                self.readable().await?;
                self.dry = false;
            }
            match self.connection.socket.try_receive(&mut frame)? {
                None => self.dry = true,
                Some(0) => return Err(Stop::End),
                Some(received) => {
                    self.dry = frame.len() < frame.capacity();
                    self.received(received);
                }
            }
        }
        if frame.len() > size {
            // An allocation may be larger than asked for; then the next frame's beginning came along.
            self.buffer = frame.split_off(size);
            self.at = 0;
        }
        Ok(frame)
    }

    /// Waits until the connection may have one more request: in number, in bytes, and in answers left unread.
    async fn wait_for_connection(&mut self, size: usize) -> Result<(), Stop> {
        let connection = self.connection.clone();
        let settings = &connection.shard.settings;
        let mut counted = false;
        loop {
            if connection.input() != Input::Open {
                return Err(Stop::Told);
            }
            let slow = connection.answers.unwritten() > limits::CONNECTION_UNWRITTEN_BYTES_MAX;
            let in_work = connection.share.in_work.get();
            let full = in_work > 0 && in_work + size > settings.connection_bytes_max;
            if !slow && !full && connection.in_line() < limits::CONNECTION_PIPELINE_MAX {
                return Ok(());
            }
            if !counted {
                counted = true;
                connection.shard.counters.slow_reader_stops.add(u64::from(slow));
                connection.shard.counters.budget_waits.add(u64::from(full));
            }
            self.keep_only_what_is_left();
            connection.share.room.notified().await;
            self.new_turn();
        }
    }

    async fn wait_for_budget(&mut self, bytes: usize, begun: bool) -> Result<Reserved, Stop> {
        let connection = self.connection.clone();
        let budget = &connection.shard.budget;
        let waiter = budget.ask(bytes, begun, &connection.share);
        let mut waited = false;
        loop {
            if let Some(reserved) = budget.take(&waiter) {
                return Ok(reserved);
            }
            if connection.input() != Input::Open {
                budget.forget(&waiter);
                return Err(Stop::Told);
            }
            if !waited {
                waited = true;
                connection.shard.counters.budget_waits.add(1);
            }
            self.keep_only_what_is_left();
            connection.share.room.notified().await;
            self.new_turn();
        }
    }

    async fn readable(&mut self) -> Result<(), Stop> {
        self.connection.listening.set(true);
        let readable = self.connection.socket.readable().await;
        self.connection.listening.set(false);
        self.new_turn();
        self.dry = false;
        if self.connection.input() != Input::Open {
            return Err(Stop::Told);
        }
        Ok(readable?)
    }

    fn received(&self, bytes: usize) {
        self.connection.touch();
        self.connection.shard.counters.bytes_in.add(bytes as u64);
    }

    /// Gives the buffer back; nothing in it is needed.
    fn release(&mut self) {
        self.at = 0;
        self.connection.shard.return_buffer(std::mem::take(&mut self.buffer));
    }

    /// Before a long wait: a copy of what is left instead of the whole buffer.
    fn keep_only_what_is_left(&mut self) {
        // Behind the head of a frame a buffer as received is never at its start; what was kept before is.
        if self.at > 0 {
            let left = self.buffer[self.at..].to_vec();
            self.release();
            self.buffer = left;
        }
    }

    fn new_turn(&mut self) {
        self.frames = 0;
        self.bytes = 0;
    }

    async fn end_turn_if_due(&mut self) {
        if self.frames >= limits::CONNECTION_TURN_FRAMES_MAX || self.bytes >= limits::CONNECTION_TURN_BYTES_MAX {
            self.new_turn();
            yield_by_timer().await;
        }
    }
}
