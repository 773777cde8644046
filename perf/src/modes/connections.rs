//! `connections`: the same produce load alone and beside many connections that do nothing, one after the other.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use oncilla::client::Connection;

use super::common::PaceArgs;
use super::produce::{Load, LoadArgs};
use super::{Common, Outcome, Session};
use crate::load::clock::Clock;
use crate::load::recorder::{Recorder, Window};

/// Files that the client itself needs beside its connections.
const OWN_FILES: u64 = 200;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of `connections`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub pace: PaceArgs,
    #[command(flatten)]
    pub load: LoadArgs,
    /// Connections that are opened; each asks once for the versions of the target.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub idle: u64,
}

/// Runs it.
pub fn run(args: &Args, session: &mut Session) -> anyhow::Result<Outcome> {
    allow_files(args.idle)?;
    let pace = args.pace.pace(args.load.outstanding);
    args.load.note(pace, session);
    session.option("idle", args.idle);
    let alone = Load { pace, args: &args.load, name: "produce_alone" };
    let beside = Load { name: "produce_beside_idle", ..alone };
    let producers = [alone.producers(session)?, beside.producers(session)?];
    let topic = session.topic()?;
    let [first, second] = producers;
    let mut outcome = Outcome::default();
    alone.run(session, &topic, first, &mut outcome)?;
    let began_ns = outcome.began_ns;
    let (mut idle, opening) = open(args.idle, session)?;
    outcome.take(&opening, session.now_ns());
    beside.run(session, &topic, second, &mut outcome)?;
    outcome.began_ns = began_ns;
    let alive = idle.iter_mut().map(|connection| connection.ping().is_ok()).filter(|alive| *alive).count() as u64;
    outcome.figure("idle_connections", idle.len() as f64);
    outcome.figure("idle_connections_that_answer_at_the_end", alive as f64);
    if alive < args.idle {
        let lost = args.idle - alive;
        outcome.faults.push(format!("{lost} of {} idle connections did not answer any more", args.idle));
    }
    Ok(outcome)
}

fn open(count: u64, session: &Session) -> anyhow::Result<(Vec<Connection>, Arc<Recorder>)> {
    let began_ns = session.clock.now_ns();
    // As long as it takes: the window ends when the last is open, whenever that is.
    let recorder = session.recorder("connect", Window { begin_ns: began_ns, end_ns: u64::MAX });
    let address = session.common.target.bootstrap.split(',').next().unwrap_or_default().trim().to_owned();
    let mut all = Vec::new();
    for number in 0..count {
        if session.stopped() {
            break;
        }
        let asked_ns = session.clock.now_ns();
        let connection = Connection::open(&address, ANSWER_TIMEOUT)
            .with_context(|| format!("connection {} of {count} could not be opened", number + 1))?;
        recorder.done(asked_ns, session.clock.now_ns(), 0);
        recorder.tick();
        all.push(connection);
    }
    Ok((all, recorder))
}

/// Raises the limit of open files, as far as this process may, for so many connections and its own files.
pub(super) fn allow_files(connections: u64) -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = connections.saturating_add(OWN_FILES);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    ensure!(allowed >= needed, "{needed} open files are needed and {allowed} are allowed (ulimit -Hn)");
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum }).context("the limit of files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_are_allowed_are_refused_before_the_run() {
        allow_files(10).expect("few are always allowed");
        let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        if hard.is_some() {
            let error = allow_files(u64::MAX).expect_err("that many are not").to_string();
            assert!(error.contains("ulimit -Hn"), "{error}");
        }
    }
}
