//! Readers of a topic: one for each node that leads some of its partitions, as a consumer asks all nodes at once.

use oncilla::client::consumer::{Consumer, From, ReadRecord};
use oncilla::client::isolation::Isolation;

use super::Session;
use crate::load::check::Check;
use crate::load::payload::Stamp;
use crate::target::Topic;

/// Which records of transactions a mode reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum IsolationArg {
    #[default]
    ReadCommitted,
    ReadUncommitted,
}

impl IsolationArg {
    pub fn level(self) -> Isolation {
        match self {
            Self::ReadCommitted => Isolation::Committed,
            Self::ReadUncommitted => Isolation::Uncommitted,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read_committed",
            Self::ReadUncommitted => "read_uncommitted",
        }
    }
}

/// Opens the readers of a topic.
pub fn readers(session: &Session, topic: &Topic, from: From, level: Isolation) -> anyhow::Result<Vec<Consumer>> {
    let open = || -> anyhow::Result<Consumer> {
        Ok(Consumer::open(session.target().client()?, &topic.name, None, from, level)?)
    };
    let by_leader = open()?.by_leader();
    let of_one = |partitions: Vec<i32>| {
        let mut consumer = open()?;
        consumer.keep(|index| partitions.contains(&index));
        Ok(consumer)
    };
    by_leader.into_values().map(of_one).collect()
}

/// Notes that a record of this run has arrived; its stamp, if it is one and the first of its number.
pub fn arrived(check: &mut Check, run: u64, record: &ReadRecord) -> Option<Stamp> {
    let stamp = Stamp::read(run, record.value.as_deref())?;
    check.arrived(record.partition, stamp.number).then_some(stamp)
}
