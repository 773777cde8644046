//! Answers out: the writing task of one connection.
//!
//! Takes everything that is answered in order and sends it with one call, as slices. It also ends the connection: with
//! a FIN, and then some more reading, because unread bytes would turn the FIN into a reset (contract KC.12).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use oncilla_shards::limits;
use smallvec::SmallVec;

use super::answers::Outgoing;
use super::connection::{Connection, Input};
use super::service::Service;
use crate::rt::{now, yield_by_timer};

/// Writes until everything is answered and nothing more can come, then closes.
pub async fn write<S: Service>(connection: Rc<Connection<S>>) {
    let mut out = Unsent::default();
    loop {
        if connection.peer.is_gone() {
            break;
        }
        let closing = connection.answers.take_ready(&mut out.answers);
        if let Some(reason) = closing {
            connection.refuse(&reason);
            connection.discard_input();
        }
        connection.start_requests();
        connection.share.room.notify();
        if out.answers.is_empty() {
            if connection.is_finished() {
                break;
            }
            // What was started above may have been answered on the spot.
            if !connection.answers.has_ready() {
                connection.answers.ready.notified().await;
            }
            continue;
        }
        if let Err(error) = send_some(&connection, &mut out).await {
            tracing::debug!(client = %connection.peer.address, %error, "connection lost");
            connection.abort();
        }
    }
    if !connection.peer.is_gone() {
        connection.socket.shutdown_write();
        if connection.input() == Input::Stopped {
            linger(&connection).await;
        }
        connection.peer.set_gone();
    }
    connection.socket.shutdown_both();
    connection.task_ended();
}

/// Answers of which the first one may be sent in part.
#[derive(Default)]
struct Unsent {
    answers: VecDeque<Outgoing>,
    sent_of_first: usize,
    turn_bytes: usize,
}

impl Unsent {
    fn slices(&self) -> SmallVec<[IoSlice<'_>; 16]> {
        let mut slices = SmallVec::new();
        let mut skip = self.sent_of_first;
        for answer in &self.answers {
            let chunks = answer.body.chunks.iter().map(|chunk| &chunk[..]);
            for bytes in std::iter::once(answer.head()).chain(chunks) {
                if skip >= bytes.len() {
                    skip -= bytes.len();
                    continue;
                }
                slices.push(IoSlice::new(&bytes[skip..]));
                skip = 0;
                if slices.len() == limits::WRITE_SLICES_MAX {
                    return slices;
                }
            }
        }
        slices
    }

    fn advance(&mut self, sent: usize) {
        self.sent_of_first += sent;
        while let Some(first) = self.answers.front() {
            if self.sent_of_first < first.bytes() {
                break;
            }
            self.sent_of_first -= first.bytes();
            self.answers.pop_front();
        }
    }
}

async fn send_some<S: Service>(connection: &Connection<S>, out: &mut Unsent) -> io::Result<()> {
    let sent = connection.socket.try_send(&out.slices())?;
    let Some(sent) = sent else {
        out.turn_bytes = 0;
        return connection.socket.writable().await;
    };
    out.advance(sent);
    connection.touch();
    connection.answers.written(sent);
    connection.shard.counters.bytes_out.add(sent as u64);
    connection.shard.counters.writes.add(1);
    out.turn_bytes += sent;
    if out.turn_bytes >= limits::CONNECTION_TURN_BYTES_MAX {
        out.turn_bytes = 0;
        yield_by_timer().await;
    }
    Ok(())
}

/// Reads and throws away what the client had sent already, until it closes too or the time is up.
async fn linger<S: Service>(connection: &Connection<S>) {
    connection.linger_until.set(Some(now() + Duration::from_millis(limits::CLOSE_LINGER_MS)));
    let mut thrown_away = 0;
    while thrown_away < limits::CLOSE_LINGER_BYTES_MAX {
        let received = {
            let mut buffer = connection.shard.receive_buffer();
            let received = connection.socket.try_receive(&mut buffer);
            connection.shard.return_buffer(buffer);
            received
        };
        match received {
            Ok(Some(0)) | Err(_) => break,
            Ok(Some(bytes)) => thrown_away += bytes,
            // The sweep ends this wait when the time is up.
            Ok(None) => {
                if connection.socket.readable().await.is_err() {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::admission::{Budget, Hold, Share};
    use super::super::answers::Answers;
    use super::super::service::{Answer, Body};
    use super::*;

    fn answered(bodies: &[&'static [u8]]) -> (Rc<Answers>, Unsent) {
        let (answers, budget, share) = (Rc::<Answers>::default(), Budget::new(1000), Rc::<Share>::default());
        let mut out = Unsent::default();
        for (k, body) in bodies.iter().enumerate() {
            let reserved = budget.take(&budget.ask(1, false, &share)).expect("free");
            let hold = Hold::new(&share, 1, reserved);
            let mut chunks = Body::default();
            for half in [&body[..body.len() / 2], &body[body.len() / 2..]] {
                chunks.chunks.push(Bytes::from_static(half));
                chunks.bytes += half.len();
            }
            answers.open(i32::try_from(k).expect("few"), k % 2 == 1, hold).fill(Answer::Body(chunks));
        }
        assert_eq!(answers.take_ready(&mut out.answers), None);
        (answers, out)
    }

    #[test]
    fn any_partial_write_continues_where_it_stopped() {
        let expected: Vec<u8> =
            [&[0, 0, 0, 7, 0, 0, 0, 0][..], b"abc", &[0, 0, 0, 5, 0, 0, 0, 1, 0], &[0, 0, 0, 8, 0, 0, 0, 2], b"defg"]
                .concat();
        for step in 1..=expected.len() {
            let (answers, mut out) = answered(&[b"abc", b"", b"defg"]);
            let mut sent = Vec::new();
            while !out.answers.is_empty() {
                let bytes: Vec<u8> = out.slices().iter().flat_map(|slice| slice.iter().copied()).take(step).collect();
                out.advance(bytes.len());
                answers.written(bytes.len());
                sent.extend(bytes);
            }
            assert_eq!(sent, expected, "in steps of {step}");
            assert_eq!(answers.unwritten(), 0);
        }
    }
}
