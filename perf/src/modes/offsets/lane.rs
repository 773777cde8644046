//! A group's connection to its coordinator: a commit goes out when it is due, whether or not earlier ones have their
//! answers, and answers come back in the order of the commits.
//!
//! One thread writes and one reads. A commit that is refused is a failed operation. An answer that is none, or one that
//! nobody asked for, is an error, and so is a coordinator that is silent for [`ANSWER_WAIT_NS`] while commits are out.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use super::commit::{Commit, Frame};
use crate::load::recorder::Recorder;

/// Longest silence while a commit has no answer.
pub const ANSWER_WAIT_NS: u64 = 30_000_000_000;

/// Longest answer: a commit's answer is short.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The connection of one group.
pub struct Lane {
    commit: Commit,
    address: String,
    version: i16,
    stream: TcpStream,
    out: Mutex<Out>,
    waiting: Mutex<Waiting>,
}

struct Out {
    frame: Frame,
    sent: u32,
}

/// Commits without an answer.
#[derive(Default)]
struct Waiting {
    due: VecDeque<Due>,
    answered: u32,
    /// When the last answer came.
    heard_ns: u64,
}

struct Due {
    intended_ns: u64,
    sent_ns: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere ends the run anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    /// Takes over a connection on which no answer is under way.
    pub fn new(commit: Commit, address: String, version: i16, stream: TcpStream) -> Result<Self> {
        let frame = commit.frame(version)?;
        let out = Mutex::new(Out { frame, sent: 0 });
        Ok(Self { commit, address, version, stream, out, waiting: Mutex::default() })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Which group it is, in errors.
    pub fn name(&self) -> String {
        format!("group {} at {}", self.commit.group, self.address)
    }

    /// Sends the next commit.
    pub fn send(&self, intended_ns: u64, now_ns: u64) -> Result<()> {
        let mut out = locked(&self.out);
        // Before it is on its way, because its answer may be here at once.
        locked(&self.waiting).due.push_back(Due { intended_ns, sent_ns: now_ns });
        let number = out.sent;
        out.sent = number.wrapping_add(1);
        let frame = out.frame.fill(number.cast_signed(), i64::from(number));
        // The locks are apart, so that answers are taken while this waits for room in the socket.
        (&self.stream).write_all(frame).with_context(|| format!("{}: a commit cannot be sent", self.name()))
    }

    pub fn without_answer(&self) -> usize {
        locked(&self.waiting).due.len()
    }

    /// An error if the coordinator has been silent for too long.
    pub fn overdue(&self, now_ns: u64) -> Result<()> {
        let waiting = locked(&self.waiting);
        let Some(first) = waiting.due.front() else { return Ok(()) };
        if now_ns.saturating_sub(first.sent_ns.max(waiting.heard_ns)) > ANSWER_WAIT_NS {
            let (count, seconds) = (waiting.due.len(), ANSWER_WAIT_NS / 1_000_000_000);
            bail!("the coordinator has been silent for {seconds} s with {count} commits without an answer");
        }
        Ok(())
    }

    /// Takes one answer.
    pub fn answered(&self, frame: &[u8], now_ns: u64, recorder: &Recorder) -> Result<()> {
        let (due, number) = {
            let mut waiting = locked(&self.waiting);
            let due = waiting.due.pop_front().context("an answer that nobody asked for")?;
            let number = waiting.answered;
            waiting.answered = number.wrapping_add(1);
            waiting.heard_ns = now_ns;
            (due, number)
        };
        match self.commit.answer(self.version, number.cast_signed(), frame)? {
            None => recorder.done(due.intended_ns, now_ns, 0),
            Some(refusal) => recorder.failed(due.intended_ns, || refusal.to_string()),
        }
        Ok(())
    }
}

/// Bytes of a connection that are not yet a whole answer.
#[derive(Default)]
pub struct Partial(Vec<u8>);

impl Partial {
    /// Adds what was read and hands over every answer that is whole.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.0.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((length, rest)) = self.0[at..].split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            ensure!(length <= ANSWER_BYTES_MAX, "what is there is no Kafka broker");
            let Some(frame) = rest.get(..length) else { break };
            each(frame)?;
            at += 4 + length;
        }
        self.0.drain(..at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_wherever_reads_cut_them() {
        let bytes = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d";
        for cut in 0..=bytes.len() {
            let (mut partial, mut found) = (Partial::default(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                let mut keep = |frame: &[u8]| {
                    found.push(frame.to_vec());
                    Ok(())
                };
                partial.feed(part, &mut keep).expect("they are answers");
            }
            assert_eq!(found, [&b"abc"[..], b"", b"d"], "{cut}");
        }
        for wrong in [b"HTTP", b"\xff\xff\xff\xff"] {
            let error = Partial::default().feed(wrong, |_| Ok(())).expect_err("no length").to_string();
            assert!(error.contains("no Kafka broker"), "{error}");
        }
    }
}
