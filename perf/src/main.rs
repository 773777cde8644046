//! `oncilla-perf`: what this machine can do at best, to hold the broker's figures against.

mod floor;
mod result;

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
}

fn main() -> anyhow::Result<()> {
    let Command::Floor { dir, count, json } = Args::parse().command;
    let rows = floor::measure(&dir, count)?;
    if json {
        println!("{}", floor::as_json(&rows));
    } else {
        print!("{}", floor::as_table(&rows));
    }
    Ok(())
}
