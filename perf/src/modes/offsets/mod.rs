//! `offsets`: groups that commit offsets; latency from the intended time of a commit to its answer.
//!
//! Each group has a connection of its own to its coordinator, as a consumer has. A commit has one offset for each
//! partition of the topic and comes from outside of the group, so no member and no rebalance is part of it. Answers are
//! checked whole; one that refuses is a failed operation.

mod commit;
mod groups;
mod lane;
mod load;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod tests;

use anyhow::ensure;

use super::common::PaceArgs;
use super::connections::allow_files;
use super::{Common, Outcome, Session};
use crate::load::sender::Pace;
use groups::Groups;
use load::Load;

/// The quantity.
const NAME: &str = "offset_commit";

/// Options of `offsets`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub pace: PaceArgs,
    /// Groups, each with a connection to its coordinator. At a rate they take turns, and none waits for an answer.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub groups: u32,
    /// Commits of each group without an answer at saturation.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub outstanding: u64,
}

/// Runs it.
pub fn run(args: &Args, session: &mut Session) -> anyhow::Result<Outcome> {
    ensure!(args.common.settings.is_empty(), "-X: offsets has no producers whose settings these could be");
    allow_files(u64::from(args.groups))?;
    let pace = args.pace.pace(args.outstanding);
    session.option("groups", args.groups);
    match pace {
        Pace::Rate(rate) => session.option("rate", rate),
        Pace::Saturate(outstanding) => {
            session.option("saturate", true);
            session.option("outstanding", outstanding);
        }
    }
    let topic = session.topic()?;
    let names: Vec<_> = (0..args.groups).map(|number| format!("oncilla-perf-{:x}-{number}", session.id)).collect();
    let mut groups = Groups::new(&args.common.target.bootstrap, args.common.target.keep);
    let lanes = groups.open(&mut session.target().client()?, &names, &topic)?;
    let window = session.window();
    let recorder = session.recorder(NAME, window);
    let load = Load {
        clock: session.clock,
        recorder: &recorder,
        lanes: &lanes,
        pace,
        begin_ns: session.now_ns(),
        readers: usize::from(args.common.client_threads),
        stop: &session.stop,
    };
    let late = load.run()?;
    let mut outcome = Outcome { began_ns: window.begin_ns, ..Outcome::default() };
    outcome.take(&recorder, session.now_ns());
    outcome.sent_late(NAME, &late);
    Ok(outcome)
}
