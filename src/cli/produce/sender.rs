//! Records on their way, in the order of their lines, and the transaction that they are in.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use oncilla_shards::client::{ClientFailure, Reason, Written};

use super::{Args, BYTES_MAX, LINES_MAX};
use crate::cli::interrupt::Interrupt;
use crate::client::native::{Delivery, Place, Producer, Record};

/// A line without an outcome.
struct Sent {
    line: u64,
    bytes: usize,
    delivery: Delivery,
}

/// Records of one partition that lie behind each other, to be printed together.
struct Run {
    first: i64,
    records: i64,
}

/// Sends lines and waits for their outcomes.
pub(super) struct Sender<'a> {
    producer: &'a Producer,
    waiting: VecDeque<Sent>,
    bytes: usize,
    /// Records of the transaction that is open; `None` when none is.
    in_transaction: Option<u64>,
    is_transactional: bool,
    transaction_records: u64,
    timeout: Duration,
    verbose: bool,
    runs: BTreeMap<i32, Run>,
}

impl<'a> Sender<'a> {
    pub fn new(producer: &'a Producer, args: &Args) -> Self {
        Self {
            producer,
            waiting: VecDeque::new(),
            bytes: 0,
            in_transaction: None,
            is_transactional: args.is_transactional(),
            transaction_records: args.transaction_records.unwrap_or(u64::MAX),
            timeout: Duration::from_secs(args.timeout),
            verbose: args.verbose,
            runs: BTreeMap::new(),
        }
    }

    /// Whether another line may be sent.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < LINES_MAX && self.bytes < BYTES_MAX
    }

    /// Whether a line is without an outcome.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the transaction has all the records that it is to have.
    pub fn is_transaction_full(&self) -> bool {
        self.in_transaction.is_some_and(|records| records >= self.transaction_records)
    }

    /// Sends a line, in a transaction if it is to be in one.
    pub async fn send(&mut self, line: u64, record: Record) -> anyhow::Result<()> {
        if self.is_transactional && self.in_transaction.is_none() {
            self.producer.begin_transaction().context("no transaction can begin")?;
            self.in_transaction = Some(0);
        }
        let bytes = record.key.as_ref().map_or(0, Vec::len) + record.value.as_ref().map_or(0, Vec::len);
        let sent = self.producer.send_when_room(record).await;
        let delivery = sent.map_err(|error| anyhow!("line {line}: {error}"))?;
        self.waiting.push_back(Sent { line, bytes, delivery });
        self.bytes += bytes;
        if let Some(records) = &mut self.in_transaction {
            *records += 1;
        }
        Ok(())
    }

    /// Waits for the outcome of the oldest line. May be dropped and called again.
    pub async fn settle_one(&mut self) -> anyhow::Result<()> {
        let Some(oldest) = self.waiting.front_mut() else { return Ok(()) };
        let outcome = (&mut oldest.delivery).await;
        let Sent { line, bytes, .. } = self.waiting.pop_front().expect("looked at above");
        self.bytes -= bytes;
        let place = outcome.map_err(|failure| anyhow!("line {line}: {}", said(&failure)))?;
        if self.verbose {
            self.note(&place);
        }
        Ok(())
    }

    fn note(&mut self, place: &Place) {
        let offset = place.offset.unwrap_or(-1);
        match self.runs.get_mut(&place.partition) {
            Some(run) if run.first + run.records == offset => run.records += 1,
            _ => {
                let run = self.runs.insert(place.partition, Run { first: offset, records: 1 });
                run.iter().for_each(|run| say_run(place.partition, run));
            }
        }
        if self.waiting.is_empty() {
            self.print();
        }
    }

    fn print(&mut self) {
        std::mem::take(&mut self.runs).iter().for_each(|(partition, run)| say_run(*partition, run));
    }

    /// Waits for all lines, which nothing follows that they could linger for, and commits what is open.
    pub async fn commit(&mut self, interrupt: &mut Interrupt) -> anyhow::Result<()> {
        if self.waits() {
            tokio::select! {
                biased;
                () = interrupt.come() => anyhow::bail!("interrupted"),
                // What became of each line is looked at below.
                _ = self.producer.flush() => {}
            }
        }
        while self.waits() {
            tokio::select! {
                biased;
                () = interrupt.come() => anyhow::bail!("interrupted"),
                settled = self.settle_one() => settled?,
            }
        }
        let Some(records) = self.in_transaction else { return Ok(()) };
        // Once asked for, a commit is not taken back: only the same call tells what became of it.
        let until = Instant::now() + self.timeout;
        loop {
            match self.producer.commit_transaction().await {
                Ok(()) => break,
                Err(failure) if failure.reason == Reason::BlockTimeout && Instant::now() < until => {}
                Err(failure) if failure.reason == Reason::BlockTimeout => {
                    self.in_transaction = None;
                    anyhow::bail!("the transaction has no outcome in time: whether it is committed is unknown");
                }
                Err(failure) => anyhow::bail!("the transaction cannot commit: {}", said(&failure)),
            }
        }
        self.in_transaction = None;
        if self.verbose {
            say(format_args!("committed {records} records"));
        }
        Ok(())
    }

    /// Ends it without what is not sent: waits for what is on its way, aborts what is open, and says why.
    pub async fn give_up(&mut self, why: anyhow::Error) -> anyhow::Result<()> {
        let aborted = match self.in_transaction {
            Some(_) => Some(self.producer.abort_transaction().await),
            None => None,
        };
        let mut failed = 0u64;
        while self.waits() {
            failed += u64::from(self.settle_one().await.is_err());
        }
        self.print();
        Err(match aborted {
            Some(Ok(())) => anyhow!("{why:#}; the transaction is aborted"),
            Some(Err(failure)) => {
                anyhow!("{why:#}; the transaction could not be aborted and ends by its timeout: {}", said(&failure))
            }
            None if failed > 0 => anyhow!("{why:#}; {failed} lines behind it failed too"),
            None => why,
        })
    }
}

/// What went wrong; what follows from it is said by who knows what was done about it.
fn said(failure: &ClientFailure) -> String {
    let unknown = if failure.written == Written::Unknown { "; whether it was written is unknown" } else { "" };
    format!("{}{unknown}", failure.reason)
}

fn say_run(partition: i32, run: &Run) {
    say(format_args!("partition {partition} offset {} records {}", run.first, run.records));
}

/// To stderr; who closed it wants to hear nothing.
fn say(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
