//! Reads a topic as a member of a consumer group (KIP-848): the partitions that the group gives it, from what the group
//! has committed on.
//!
//! ```no_run
//! # fn example() -> Result<(), oncilla::client::ClientError> {
//! use oncilla::client::consumer::From;
//! use oncilla::client::isolation::Isolation;
//! use oncilla::client::subscriber::Subscriber;
//!
//! let mut subscriber =
//!     Subscriber::subscribe("127.0.0.1:9092", "group", "topic", From::Beginning, Isolation::Committed)?;
//! for record in subscriber.poll()? {
//!     println!("{}", record.offset);
//!     subscriber.done(record.partition, record.offset + 1);
//! }
//! subscriber.close()
//! # }
//! ```
//!
//! Every record is read at least once: what was not [`Subscriber::done`] is never committed, what was is committed
//! within a second of polls, before a partition goes to another member, and at the end. Who polls too seldom stays a
//! member, but keeps those waiting who are to have its partitions, for at most the rebalance timeout. Failure: a fence
//! is survived by joining again, and said by [`Subscriber::warning`]; whatever else ends the membership ends `poll`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use oncilla_shards::client::member::{Notice, Parts};
use oncilla_shards::code::ErrorCode;

use super::consumer::{Consumer, From, ReadRecord};
use super::groups::Committer;
use super::isolation::Isolation;
use super::membership::{Event, Membership};
use super::offsets::{EARLIEST, LATEST};
use super::{Client, ClientError};

/// Longest time between commits while it is polled and there is something to commit.
const COMMIT_EVERY: Duration = Duration::from_secs(1);

/// How long a commit, or a look at what is committed, is tried again for.
const RETRY_WAIT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long a broker may be away.
const AWAY_MAX: Duration = Duration::from_secs(30);

/// Wait for news of the group while there is nothing to read.
const IDLE_WAIT: Duration = Duration::from_millis(500);

/// Pause between two looks at whether the group is at rest.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A consumer that is a member of a group.
pub struct Subscriber {
    consumer: Consumer,
    group: String,
    from: From,
    membership: Membership,
    /// What was done and is not committed, by partition.
    done: BTreeMap<i32, i64>,
    /// What is committed, or where it began; of every partition that it has.
    committed: BTreeMap<i32, i64>,
    commit_at: Instant,
    /// Where partitions ended when they were taken.
    ends: BTreeMap<i32, i64>,
    look_at: Instant,
    /// Since when no broker answers.
    away_since: Option<Instant>,
    warning: Option<String>,
}

impl Subscriber {
    /// Begins to join; where the group has committed nothing, reading begins at `from`.
    pub fn subscribe(
        bootstrap: &str,
        group: &str,
        topic: &str,
        from: From,
        isolation: Isolation,
    ) -> Result<Self, ClientError> {
        let mut client = Client::connect(bootstrap)?;
        let topic = client.topic(topic, false)?;
        let membership = Membership::join(bootstrap, group, &topic.name)?;
        let now = Instant::now();
        Ok(Self {
            consumer: Consumer::unassigned(client, topic, isolation),
            group: group.to_owned(),
            from,
            membership,
            done: BTreeMap::new(),
            committed: BTreeMap::new(),
            away_since: None,
            commit_at: now,
            ends: BTreeMap::new(),
            look_at: now,
            warning: None,
        })
    }

    /// Does what the group asks for, then reads what is there; waits a moment when nothing is.
    pub fn poll(&mut self) -> Result<Vec<ReadRecord>, ClientError> {
        let mut wait = if self.consumer.positions().is_empty() { IDLE_WAIT } else { Duration::ZERO };
        while let Some(event) = self.membership.next(wait) {
            match event {
                Event::Notice(notice) => self.follow(notice)?,
                Event::Ended(result) => {
                    result?;
                    return Err(ClientError::Protocol(format!("the membership in group {} is over", self.group)));
                }
            }
            wait = Duration::ZERO;
        }
        if Instant::now() >= self.commit_at {
            self.commit()?;
        }
        if self.consumer.positions().is_empty() {
            return Ok(Vec::new());
        }
        match self.consumer.poll() {
            Err(error @ ClientError::Io { .. }) => self.away(error),
            polled => {
                self.away_since = None;
                polled
            }
        }
    }

    /// A broker that is away for a moment, as while it restarts, ends nothing.
    fn away(&mut self, error: ClientError) -> Result<Vec<ReadRecord>, ClientError> {
        let since = *self.away_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= AWAY_MAX {
            return Err(error);
        }
        std::thread::sleep(RETRY_PAUSE);
        Ok(Vec::new())
    }

    /// Offset of the next record of every partition that it has.
    #[must_use]
    pub fn positions(&self) -> &BTreeMap<i32, i64> {
        self.consumer.positions()
    }

    /// Where a partition ended when it was taken.
    #[must_use]
    pub fn end(&self, partition: i32) -> Option<i64> {
        self.ends.get(&partition).copied()
    }

    /// The records of a partition before this offset need not be read again.
    pub fn done(&mut self, partition: i32, next: i64) {
        if self.committed.get(&partition).is_some_and(|known| *known != next) {
            self.done.insert(partition, next);
        }
    }

    /// What went wrong without ending anything, once.
    pub fn warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Whether everything it has is read up to where it ended when it was taken, and it has all that the group means
    /// it to have.
    pub fn is_at_end(&mut self) -> Result<bool, ClientError> {
        let read = |(partition, at): (&i32, &i64)| self.ends.get(partition).is_none_or(|end| at >= end);
        if !self.consumer.positions().iter().all(read) || Instant::now() < self.look_at {
            return Ok(false);
        }
        let Some((member, _)) = self.membership.identity() else { return Ok(false) };
        self.look_at = Instant::now() + LOOK_EVERY;
        let id = self.consumer.topic().id;
        match self.consumer.client().settled_share(&self.group, &member) {
            // Given by the group, but perhaps not taken yet.
            Ok(Some(share)) => Ok(share == self.positions().keys().map(|partition| (id, *partition)).collect()),
            Ok(None) => Ok(false),
            // The coordinator may move, and the group may be gone; the next heartbeat tells.
            Err(ClientError::Refused { .. } | ClientError::Io { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn follow(&mut self, notice: Notice) -> Result<(), ClientError> {
        match notice {
            Notice::Take(parts) => self.take(&parts),
            Notice::Give(parts) => {
                self.commit()?;
                self.drop_all(&parts);
                Ok(())
            }
            Notice::Lost(parts) => {
                self.drop_all(&parts);
                Ok(())
            }
        }
    }

    fn drop_all(&mut self, parts: &Parts) {
        let mut open = Vec::new();
        for (_, partition) in parts {
            self.consumer.give(*partition);
            self.ends.remove(partition);
            self.committed.remove(partition);
            open.extend(self.done.remove(partition).map(|next| format!("{partition} before {next}")));
        }
        if !open.is_empty() {
            let rows = open.join(", ");
            self.warning = Some(format!("the group went on without this member; partition {rows} may be read again"));
        }
        self.membership.released();
    }

    fn take(&mut self, parts: &Parts) -> Result<(), ClientError> {
        let known = |consumer: &Consumer, part: &(oncilla_shards::ids::TopicId, i32)| {
            let topic = consumer.topic();
            topic.id == part.0.0 && topic.partitions.iter().any(|one| one.index == part.1)
        };
        if !parts.iter().all(|part| known(&self.consumer, part)) {
            retry(|| self.consumer.look_again())?;
        }
        // What is still unknown belongs to a topic that is deleted, which the group is about to notice.
        let wanted: Vec<i32> =
            parts.iter().filter(|part| known(&self.consumer, part)).map(|(_, partition)| *partition).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (group, from) = (self.group.clone(), self.from);
        let name = self.consumer.topic().name.clone();
        let committed = retry(|| self.consumer.client().committed_for(&group, &name, &wanted))?;
        let ends = retry(|| self.consumer.offsets_of(&wanted, LATEST))?;
        let begins = match from {
            From::Beginning => retry(|| self.consumer.offsets_of(&wanted, EARLIEST))?,
            From::End => ends.clone(),
            From::Offset(offset) => wanted.iter().map(|partition| (*partition, offset)).collect(),
        };
        let mut positions = begins;
        positions.extend(committed);
        self.committed.extend(positions.iter().map(|(partition, at)| (*partition, *at)));
        self.consumer.take(positions);
        self.ends.extend(ends);
        Ok(())
    }

    /// Commits what was done.
    pub fn commit(&mut self) -> Result<(), ClientError> {
        self.commit_at = Instant::now() + COMMIT_EVERY;
        if self.done.is_empty() {
            return Ok(());
        }
        let name = self.consumer.topic().name.clone();
        let offsets = self.done.iter().map(|(partition, next)| ((name.clone(), *partition), *next)).collect();
        let committed = retry(|| match self.membership.identity() {
            Some((member, epoch)) => {
                let by = Committer { member: &member, epoch };
                self.consumer.client().commit(&self.group, by, &offsets).map(|()| true)
            }
            None => Ok(false),
        });
        match committed {
            Ok(true) => self.committed.append(&mut self.done),
            // It is no member just now; the group tells what becomes of its partitions.
            Ok(false) => {}
            Err(ClientError::Refused { code, .. }) if code == ErrorCode::UnknownMemberId.wire() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Commits what was done, and leaves the group; what was not done is read by others, or by it the next time.
    pub fn close(mut self) -> Result<(), ClientError> {
        let committed = self.commit();
        self.membership.leave();
        committed?;
        match self.done.first_key_value() {
            None => Ok(()),
            Some((partition, next)) => Err(ClientError::Protocol(format!(
                "the group {} went on without this member: partition {partition} before {next} may be read again",
                self.group
            ))),
        }
    }
}

/// Tries again what may work in a moment.
fn retry<T>(mut attempt: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let until = Instant::now() + RETRY_WAIT;
    loop {
        match attempt() {
            Err(error) if (error.is_retriable() || is_stale(&error)) && Instant::now() < until => {
                std::thread::sleep(RETRY_PAUSE);
            }
            done => return done,
        }
    }
}

/// The epoch went up while the request was on its way.
fn is_stale(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code, .. } if *code == ErrorCode::StaleMemberEpoch.wire())
}
