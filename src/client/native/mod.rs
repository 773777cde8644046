//! The native producer: idempotent or transactional, exactly once, for programs on tokio.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use oncilla::client::native::{Producer, Record};
//!
//! let producer = Producer::builder().set("bootstrap.servers", "127.0.0.1:9092").build()?;
//! let sent = producer.send(Record::to("topic").key("key").value("value"))?;
//! println!("it is at offset {:?}", sent.await?.offset);
//! producer.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Decisions are those of `oncilla_shards::client`; here are the clock and the sockets. One task drives the machine,
//! one serves each connection. `send` never waits: it takes the record or says [`SendError::Full`];
//! [`Producer::send_when_room`] waits for memory.
//!
//! What may be dropped: a [`Delivery`] (its record goes on), and any future of a call, which goes on too; the same call
//! made again joins it. Dropping the producer ends everything under way, and every [`Delivery`] tells so. `close` waits
//! for all records; it leaves an open transaction to its timeout.

mod builder;
mod codec;
mod delivery;
mod driver;
mod link;
mod outbound;
mod produce;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oncilla_shards::client::{Machine, NewRecord, OpId, RecordId};
use oncilla_shards::ids::TimestampMs;
use smallvec::SmallVec;
use tokio::sync::oneshot;

pub use builder::ProducerBuilder;
pub use delivery::{Delivery, Outcomes};
pub use oncilla_shards::client::{ClientFailure, GroupMember, Next, OffsetToCommit, Reason, SendError, Written};

use delivery::{Deliveries, gone};
use driver::{Shared, State};

/// Headers of a record beyond which a list of them is allocated.
const HEADERS_INLINE: usize = 8;

/// A record to be produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The topic.
    pub topic: String,
    /// The partition; by key or in turn without it.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Its time in ms since 1970; now without it.
    pub timestamp_ms: Option<i64>,
}

impl Record {
    /// An empty record for a topic.
    #[must_use]
    pub fn to(topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), ..Self::default() }
    }

    /// Sets the partition.
    #[must_use]
    pub fn partition(self, partition: i32) -> Self {
        Self { partition: Some(partition), ..self }
    }

    /// Sets the key.
    #[must_use]
    pub fn key(self, key: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Sets the value.
    #[must_use]
    pub fn value(self, value: impl Into<Vec<u8>>) -> Self {
        Self { value: Some(value.into()), ..self }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    fn with<T>(&self, take: impl FnOnce(&NewRecord<'_>) -> T) -> T {
        let headers = self.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_deref()));
        let headers: SmallVec<[_; HEADERS_INLINE]> = headers.collect();
        take(&NewRecord {
            topic: &self.topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
            timestamp: TimestampMs(self.timestamp_ms.unwrap_or_else(wall_clock_ms)),
        })
    }
}

fn wall_clock_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// Where a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// Its offset; `None` when the broker only says that it has it.
    pub offset: Option<i64>,
    /// The broker's time in ms since 1970, under LogAppendTime.
    pub timestamp_ms: Option<i64>,
}

/// The producer. Shared by reference; ends when it is dropped.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    block_max: Duration,
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Producer {
    /// Settings by the names of the Java client.
    #[must_use]
    pub fn builder() -> ProducerBuilder {
        ProducerBuilder::default()
    }

    /// Takes a record at once, or says why not.
    pub fn send(&self, record: Record) -> Result<Delivery, SendError> {
        self.try_send(&record)
    }

    /// As [`Producer::send`], for those who send too much to await each record: outcomes are told by batches, and the
    /// record can be used again.
    pub fn send_to(&self, record: &Record, token: u64, outcomes: &Arc<dyn Outcomes>) -> Result<(), SendError> {
        self.take(record, |deliveries, id| deliveries.told(id, token, outcomes))
    }

    /// Takes a record when there is memory for it, for at most `max.block.ms`.
    pub async fn send_when_room(&self, record: Record) -> Result<Delivery, SendError> {
        match self.try_send(&record) {
            Err(SendError::Full) => {}
            other => return other,
        }
        let until = tokio::time::Instant::now() + self.block_max;
        loop {
            let room = self.shared.room.notified();
            tokio::pin!(room);
            // Registered before the look, so that no room is missed.
            room.as_mut().enable();
            match self.try_send(&record) {
                Err(SendError::Full) => {}
                other => return other,
            }
            if tokio::time::timeout_at(until, room).await.is_err() {
                return Err(SendError::Full);
            }
        }
    }

    fn try_send(&self, record: &Record) -> Result<Delivery, SendError> {
        self.take(record, Deliveries::awaited)
    }

    fn take<T>(&self, record: &Record, wait: impl FnOnce(&mut Deliveries, RecordId) -> T) -> Result<T, SendError> {
        record.with(|new| {
            let now_ms = self.shared.now_ms();
            let mut state = self.shared.state();
            let State { machine, deliveries, .. } = &mut *state;
            // Who made it due has woken the task, or is about to.
            let was_due = machine.is_due();
            let waiting = wait(deliveries, machine.send(now_ms, new)?);
            let due = !was_due && machine.is_due();
            drop(state);
            if due {
                self.shared.wake.notify_one();
            }
            Ok(waiting)
        })
    }

    /// Waits until every record taken so far has its outcome; they go out without linger.
    pub async fn flush(&self) -> Result<(), ClientFailure> {
        self.op(|machine, _, op| machine.flush(op)).await
    }

    /// As `flush`, and takes no record any more.
    pub async fn close(self) -> Result<(), ClientFailure> {
        self.op(|machine, _, op| machine.close(op)).await
    }

    /// Takes the producer id of the transactional id, and with it fences whoever had it before.
    pub async fn init_transactions(&self) -> Result<(), ClientFailure> {
        self.op(Machine::init_transactions).await
    }

    /// Begins a transaction.
    pub fn begin_transaction(&self) -> Result<(), ClientFailure> {
        self.shared.state().machine.begin_transaction()
    }

    /// Makes offsets those of a consumer's group when the transaction commits.
    pub async fn send_offsets(&self, member: GroupMember, offsets: Vec<OffsetToCommit>) -> Result<(), ClientFailure> {
        self.op(|machine, now_ms, op| machine.send_offsets(now_ms, op, member, offsets)).await
    }

    /// Commits what was sent and what offsets were given since the transaction began.
    pub async fn commit_transaction(&self) -> Result<(), ClientFailure> {
        self.op(Machine::commit_transaction).await
    }

    /// Aborts it.
    pub async fn abort_transaction(&self) -> Result<(), ClientFailure> {
        self.op(Machine::abort_transaction).await
    }

    async fn op(&self, call: impl FnOnce(&mut Machine, u64, OpId)) -> Result<(), ClientFailure> {
        let receiver = {
            let (sender, receiver) = oneshot::channel();
            let mut state = self.shared.state();
            let op = OpId(state.next_op);
            state.next_op += 1;
            state.ops.insert(op, sender);
            call(&mut state.machine, self.shared.now_ms(), op);
            receiver
        };
        self.shared.wake.notify_one();
        receiver.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic inside is a fault of ours; what the machine holds is still what it decided.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
