//! What a start would know of transactional ids and of fences, from a data directory.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use oncilla_shards::groups::Now;
use oncilla_shards::ids::{PartitionKey, ShardId, SlotId, TimestampMs};
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::Journal;
use oncilla_shards::slot::line::Lines;
use oncilla_shards::txn::{
    Ask, Description, Effect, Effects, Entry, FenceEntry, ListFilter, Place, Places, Reply, Request, Transactions,
    TxnSettings,
};
use serde_json::json;

use super::log::time;
use super::slots::read;
use crate::cli::output::{self, Format};
use crate::disk::layout::{DataDir, checkpoint_name};
use crate::disk::slot_files::list_blocking;
use crate::txn::DIRECTORY;

/// What to read and how to print it.
#[derive(Debug, clap::Args)]
pub struct StateArgs {
    /// The data directory
    data: PathBuf,
    /// Only this transactional id [default: all]
    #[arg(short, long)]
    id: Option<String>,
    /// Print the entries as they are stored, one JSON object a line, instead of what they add up to
    #[arg(short, long)]
    entries: bool,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// What to read and how to print it.
#[derive(Debug, clap::Args)]
pub struct FencesArgs {
    /// The data directory
    data: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Prints every transactional id, or all entries; exits with 1 when a journal or checkpoint is damaged.
pub fn state(args: &StateArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.data.is_dir(), "{}: no directory", args.data.display());
    let directory = DataDir::new(&args.data).slots(DIRECTORY);
    let mut code = ExitCode::SUCCESS;
    let mut rows = Vec::new();
    for (slot, files) in list_blocking(&directory, |_| true)? {
        let read = read::<Entry>(&directory, &checkpoint_name(slot), &files)?;
        for damage in &read.damaged {
            eprintln!("{damage}");
            code = ExitCode::FAILURE;
        }
        let wanted = |entry: &Entry| args.id.as_ref().is_none_or(|id| **id == *entry.id);
        let entries: Vec<_> = read.entries.into_iter().filter(wanted).collect();
        if args.entries {
            for entry in entries {
                output::line(json!({ "slot": slot, "entry": entry }))?;
            }
        } else {
            rows.append(&mut describe(slot, entries));
        }
    }
    if !args.entries {
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        print(&rows, args.format)?;
    }
    Ok(code)
}

/// Nothing can be sent from here, so nothing is taken off a transaction.
#[derive(Debug)]
struct Offline;

impl Places for Offline {
    fn partition(&self, _: PartitionKey) -> Place {
        Place::Nowhere
    }

    fn group(&self, _: &str) -> ShardId {
        ShardId(0)
    }
}

/// What the entries add up to, by id.
fn describe(slot: SlotId, entries: Vec<Entry>) -> Vec<(String, Description)> {
    let mut core = Transactions::new(TxnSettings::default(), -1, Arc::new(Offline));
    let (now, mut effects) = (Now { wall: TimestampMs(0), mono_ms: 0 }, Effects::new());
    core.insert(slot, Journal::default(), entries, now, &mut effects);
    let mut described = Vec::new();
    for listing in core.list(&ListFilter { duration_ms: -1, ..ListFilter::default() }, now, &|_| true) {
        let mut effects = Effects::new();
        core.ask(&listing.id, Ask { request: Request::Describe, until_ms: 0 }, WaiterId(0), now, &mut effects);
        described.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Reply(_, Ok(Reply::Described(description))) => Some((listing.id.to_string(), description)),
            _ => None,
        }));
    }
    described
}

fn print(rows: &[(String, Description)], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Table => {
            let row = |(id, one): &(String, Description)| {
                let start = if one.start.0 < 0 { "-".to_owned() } else { time(one.start.0) };
                let members = (one.partitions.len() + one.groups.len()).to_string();
                let (producer_id, epoch) = (one.producer.producer_id.to_string(), one.producer.epoch.to_string());
                [id.clone(), producer_id, epoch, one.state.to_owned(), start, one.timeout_ms.to_string(), members]
            };
            let names = ["transactional id", "producer id", "epoch", "state", "began", "timeout ms", "members"];
            output::table(names, rows.iter().map(row))?;
        }
        Format::Json => {
            for (id, one) in rows {
                let partition = |key: &PartitionKey| json!([key.topic.to_base64(), key.index]);
                output::line(json!({
                    "transactional_id": id,
                    "producer_id": one.producer.producer_id.0,
                    "epoch": one.producer.epoch.0,
                    "state": one.state,
                    "began": one.start.0,
                    "timeout_ms": one.timeout_ms,
                    "partitions": one.partitions.iter().map(partition).collect::<Vec<_>>(),
                    "groups": one.groups.iter().map(|group| &**group).collect::<Vec<_>>(),
                }))?;
            }
        }
    }
    Ok(())
}

/// Prints the fence logs of all brokers; exits with 1 when one is damaged.
pub fn fences(args: &FencesArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.data.is_dir(), "{}: no directory", args.data.display());
    let directory = DataDir::new(&args.data).slots("producer_fences");
    let mut code = ExitCode::SUCCESS;
    let mut rows = Vec::new();
    let mut paths = Vec::new();
    if directory.is_dir() {
        for entry in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            paths.push(entry?.path());
        }
    }
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "log")) {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let mut lines = Lines::new(&bytes);
        let mut scratch = Vec::new();
        for line in lines.by_ref() {
            match line.decode::<FenceEntry>(&mut scratch) {
                Ok(entry) => rows.push(entry),
                Err(why) => anyhow::bail!("{}: {why}", path.display()),
            }
        }
        if let Some(stop) = lines.stop().filter(|stop| !stop.is_clean()) {
            eprintln!("{}: ends at byte {}: {stop}", path.display(), lines.bytes());
            code = ExitCode::FAILURE;
        }
    }
    match args.format {
        Format::Table => {
            let row = |entry: &FenceEntry| [entry.producer_id.to_string(), entry.below.to_string()];
            output::table(["producer id", "below epoch"], rows.iter().map(row))?;
        }
        Format::Json => rows.iter().try_for_each(|entry| output::line(json!(entry)))?,
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;
    use crate::txn::tests::{add_offsets, init, state as state_of};

    #[test]
    fn a_data_directory_tells_its_transactions_and_fences() {
        let (ctx, dir) = testing::ctx();
        let of = init(&ctx, "x");
        let of = (of.0, init(&ctx, "x").1);
        assert_eq!(add_offsets(&ctx, "x", of, "g"), 0);
        assert_eq!(state_of(&ctx, "x"), "Ongoing");
        let directory = DataDir::new(dir.path()).slots(DIRECTORY);
        let (slot, files) = list_blocking(&directory, |_| true).expect("listed").pop_first().expect("one");
        let read = read::<Entry>(&directory, &checkpoint_name(slot), &files).expect("read");
        let described = describe(slot, read.entries);
        assert_eq!(described.len(), 1);
        let (id, one) = &described[0];
        assert_eq!((id.as_str(), one.state, one.producer.epoch.0), ("x", "Ongoing", of.1));
        assert_eq!(one.groups.iter().map(|group| &**group).collect::<Vec<_>>(), ["g"]);
        for format in [Format::Table, Format::Json] {
            let data = dir.path().to_owned();
            state(&StateArgs { data: data.clone(), id: None, entries: format == Format::Json, format }).expect("told");
            fences(&FencesArgs { data, format }).expect("told");
        }
    }
}
