//! One file for each kind of load, what they have in common, and how a run ends: table, JSON, logs, exit code.

mod common;
mod connections;
mod e2e;
mod fetch;
mod offsets;
mod partitions;
mod produce;
mod reader;
mod recovery;
mod session;
mod txn;

pub use common::Common;
pub use session::{Outcome, Session};

use clap::Subcommand;

/// The kinds of load.
#[derive(Debug, Subcommand)]
pub enum Mode {
    /// Produce with idempotence: latency from the intended time of each record to its acknowledgement.
    Produce(produce::Args),
    /// Read a topic as fast as it comes.
    Fetch(fetch::Args),
    /// Produce at a rate and read: latency from the intended time to the reader. Every record is checked.
    E2e(e2e::Args),
    /// Transactions one after the other: phases of each, commits and aborts apart.
    Txn(txn::Args),
    /// Commit offsets of groups: latency from the intended time of each commit to its answer.
    ///
    /// A commit has one offset for each partition of the topic, so --partitions says how many it has. It comes from
    /// outside of its group, as those of consumers that assign their partitions themselves.
    /// --topic-config does not reach the topic in which a Kafka keeps offsets.
    Offsets(offsets::Args),
    /// Produce alone, then beside many idle connections.
    Connections(connections::Args),
    /// Produce at one rate over few partitions, then over many.
    Partitions(partitions::Args),
    /// Start a broker, load it, kill it, start it again: how long until it serves, and whether everything is there.
    Recovery(recovery::Args),
}

impl Mode {
    fn name(&self) -> &'static str {
        match self {
            Self::Produce(_) => "produce",
            Self::Fetch(_) => "fetch",
            Self::E2e(_) => "e2e",
            Self::Txn(_) => "txn",
            Self::Offsets(_) => "offsets",
            Self::Connections(_) => "connections",
            Self::Partitions(_) => "partitions",
            Self::Recovery(_) => "recovery",
        }
    }

    fn common(&self) -> &Common {
        match self {
            Self::Produce(args) => &args.common,
            Self::Fetch(args) => &args.common,
            Self::E2e(args) => &args.common,
            Self::Txn(args) => &args.common,
            Self::Offsets(args) => &args.common,
            Self::Connections(args) => &args.common,
            Self::Partitions(args) => &args.common,
            Self::Recovery(args) => &args.common,
        }
    }

    /// Runs it. An error if it could not be run, or if what was measured is not what should be.
    pub fn run(&self) -> anyhow::Result<()> {
        let common = self.common();
        common.check()?;
        // Recovery starts its target itself.
        let mut broker = if let Self::Recovery(args) = self { Some(recovery::Broker::start(args)?) } else { None };
        let mut session = Session::open(common)?;
        let outcome = match self {
            Self::Produce(args) => produce::run(args, &mut session)?,
            Self::Fetch(args) => fetch::run(args, &mut session)?,
            Self::E2e(args) => e2e::run(args, &mut session)?,
            Self::Txn(args) => txn::run(args, &mut session)?,
            Self::Offsets(args) => offsets::run(args, &mut session)?,
            Self::Connections(args) => connections::run(args, &mut session)?,
            Self::Partitions(args) => partitions::run(args, &mut session)?,
            Self::Recovery(args) => recovery::run(args, broker.as_mut().expect("just started"), &mut session)?,
        };
        session.close(self.name(), outcome)
    }
}
