//! `oncilla-perf`: what this machine can do at best, to hold the broker's figures against.

mod compare;
mod floor;
mod foreign;
mod machine;
mod report;
mod result;
mod started;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about, version)]
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
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Floor { dir, count, json } => {
            let rows = floor::measure(&dir, count)?;
            if json {
                println!("{}", floor::as_json(&rows));
            } else {
                print!("{}", floor::as_table(&rows));
            }
        }
        Command::Report(options) => println!("{}", report::run(&options)?.display()),
        Command::Compare(options) => print!("{}", compare::run(&options)?),
        Command::Foreign(options) => foreign::run(&options)?,
    }
    Ok(())
}
