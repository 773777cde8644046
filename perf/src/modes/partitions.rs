//! `partitions`: produce latency at one rate over few partitions, then over many, in turn to each.

use anyhow::ensure;

use super::common::PaceArgs;
use super::produce::{Load, LoadArgs};
use super::{Common, Outcome, Session};

/// Options of `partitions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub pace: PaceArgs,
    #[command(flatten)]
    pub load: LoadArgs,
    /// Partitions of the first topic.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
    pub few: i32,
    /// Partitions of the second topic.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..))]
    pub many: i32,
}

/// Runs it.
pub fn run(args: &Args, session: &mut Session) -> anyhow::Result<Outcome> {
    ensure!(args.common.target.partitions.is_none(), "--partitions: this mode has --few and --many instead");
    let load = LoadArgs { round_robin: true, ..args.load.clone() };
    let pace = args.pace.pace(load.outstanding);
    load.note(pace, session);
    session.option("few", args.few);
    session.option("many", args.many);
    let few = Load { pace, args: &load, name: "produce_few" };
    let many = Load { name: "produce_many", ..few };
    let producers = [few.producers(session)?, many.producers(session)?];
    let topics = [session.topic_beside("few", args.few)?, session.topic_beside("many", args.many)?];
    let [first, second] = producers;
    let mut outcome = Outcome::default();
    few.run(session, &topics[0], first, &mut outcome)?;
    let began_ns = outcome.began_ns;
    many.run(session, &topics[1], second, &mut outcome)?;
    outcome.began_ns = began_ns;
    Ok(outcome)
}
