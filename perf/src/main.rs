//! `oncilla-perf`: load for a Kafka-compatible broker and what comes of it, beside what this machine can do at best.
//!
//! Exit codes: 0 done, 1 not done or not as it should be, 2 wrong arguments.

mod compare;
mod floor;
mod foreign;
mod load;
mod machine;
mod modes;
mod options;
mod program;
mod progress;
mod report;
mod result;
mod started;
mod target;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about, version, arg_required_else_help = true, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Time one durable write of 4 KiB and one TCP round trip: the least that an acknowledged record can take.
    Floor {
        /// Directory on the disk that is to be measured.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// How many durable writes, and how many round trips.
        #[arg(long, default_value_t = 5_000)]
        count: u32,
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Make a page of Markdown with plots of runs that were written with `--json`.
    Report(report::Options),
    /// Run a mode against two brokers in turns and print medians, spreads and ratios.
    Compare(compare::Options),
    /// Run a workload through the official Java client or librdkafka; the result is the same JSON.
    Foreign(foreign::Options),
    #[command(flatten)]
    Load(modes::Mode),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Floor { dir, count, json } => floor(&dir, count, json),
        Command::Report(options) => report::run(&options).map(|page| println!("{}", page.display())),
        Command::Compare(options) => compare::run(&options).map(|table| print!("{table}")),
        Command::Foreign(options) => foreign::run(&options),
        Command::Load(mode) => mode.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oncilla-perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn floor(dir: &std::path::Path, count: u32, json: bool) -> anyhow::Result<()> {
    let rows = floor::measure(dir, count)?;
    if json {
        println!("{}", floor::as_json(&rows));
    } else {
        print!("{}", floor::as_table(&rows));
    }
    Ok(())
}
