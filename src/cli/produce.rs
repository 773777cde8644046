//! `oncilla produce`: every line of standard input is a record. Silent unless something goes wrong, or `-v`.

use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;

use super::settings::key_value;
use super::topic::ClusterArgs;
use crate::client::Client;
use crate::client::producer::{NewRecord, Producer, ProducerOptions};

/// Lines read ahead; what waits beyond it stays in the pipe.
const LINES_AHEAD: usize = 4096;

/// Bytes from which a batch is sent although more is waiting.
const BATCH_BYTES: usize = 256 << 10;

/// Arguments of `produce`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Topic to produce to; the broker may create it
    topic: String,
    /// What is before the first of these in a line is the record's key
    #[arg(short, long, value_name = "TEXT")]
    key_separator: Option<String>,
    /// Partition for every record [default: by key, else in turn]
    #[arg(short, long)]
    partition: Option<i32>,
    /// A header of every record
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE", value_parser = key_value)]
    headers: Vec<(String, String)>,
    /// Who must have a record before it counts: all (idempotent), 1, or 0 for nobody
    #[arg(long, default_value = "all", value_parser = ["all", "-1", "1", "0"], allow_hyphen_values = true)]
    acks: String,
    /// Longest time for a batch with all its tries, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    timeout: u64,
    /// Print partition and offset of every batch
    #[arg(short, long)]
    verbose: bool,
}

/// Runs it until standard input ends.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let acks = if args.acks == "all" { -1 } else { args.acks.parse().context("acks")? };
    let options = ProducerOptions { acks, partition: args.partition, timeout: Duration::from_secs(args.timeout) };
    let mut producer = Producer::open(Client::connect(&args.cluster.bootstrap)?, &args.topic, options)?;
    let (sender, lines) = sync_channel(LINES_AHEAD);
    // Reading apart from sending makes a batch of what came in meanwhile, and sends a lone line at once.
    std::thread::Builder::new().name("oncilla-stdin".into()).spawn(move || read_lines(io::stdin().lock(), &sender))?;
    while let Some(batch) = next_batch(&lines, args)? {
        for delivered in producer.send(batch)? {
            if args.verbose {
                let (partition, offset, records) = (delivered.partition, delivered.base_offset, delivered.records);
                eprintln!("partition {partition} offset {offset} records {records}");
            }
        }
    }
    Ok(())
}

fn read_lines(mut input: impl BufRead, lines: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut line = Vec::new();
        let read = input.read_until(b'\n', &mut line);
        let last = !matches!(read, Ok(1..));
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let item = match read {
            Ok(0) => return,
            Ok(_) => Ok(line),
            Err(error) => Err(error),
        };
        if lines.send(item).is_err() || last {
            return;
        }
    }
}

/// What is waiting, or the next line to come; `None` at the end.
fn next_batch(lines: &Receiver<io::Result<Vec<u8>>>, args: &Args) -> anyhow::Result<Option<Vec<NewRecord>>> {
    let Ok(first) = lines.recv() else {
        return Ok(None);
    };
    let mut bytes = 0;
    let mut batch = Vec::new();
    let mut next = Some(first);
    while let Some(line) = next {
        let line = line.context("standard input")?;
        bytes += line.len();
        batch.push(record(line, args));
        next = if bytes < BATCH_BYTES && batch.len() < LINES_AHEAD { lines.try_recv().ok() } else { None };
    }
    Ok(Some(batch))
}

fn record(line: Vec<u8>, args: &Args) -> NewRecord {
    let headers = args.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
    let separator = args.key_separator.as_deref().filter(|text| !text.is_empty());
    if let Some(separator) = separator.map(str::as_bytes)
        && let Some(at) = line.windows(separator.len()).position(|window| window == separator)
    {
        let value = line[at + separator.len()..].to_vec();
        return NewRecord { key: Some(line[..at].to_vec()), value: Some(value), headers };
    }
    NewRecord { key: None, value: Some(line), headers }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }

    fn args(more: &[&str]) -> Args {
        Only::try_parse_from(["produce", "t"].iter().chain(more)).expect("right").args
    }

    #[test]
    fn a_line_is_split_at_the_first_separator() {
        let with = args(&["-k", "::", "-H", "a=b"]);
        let got = record(b"k::v::w".to_vec(), &with);
        assert_eq!((got.key.as_deref(), got.value.as_deref()), (Some(&b"k"[..]), Some(&b"v::w"[..])));
        assert_eq!(got.headers, [("a".to_string(), b"b".to_vec())]);
        assert_eq!(record(b"none".to_vec(), &with).key, None);
        assert_eq!(record(b"k::v".to_vec(), &args(&[])).value.as_deref(), Some(&b"k::v"[..]));
    }

    #[test]
    fn waiting_lines_go_together_and_the_last_needs_no_newline() {
        let (sender, lines) = sync_channel(LINES_AHEAD);
        read_lines(&b"one\n\nthree"[..], &sender);
        drop(sender);
        let batch = next_batch(&lines, &args(&[])).expect("read").expect("three lines");
        let values: Vec<_> = batch.into_iter().map(|record| record.value.expect("a value")).collect();
        assert_eq!(values, [&b"one"[..], b"", b"three"]);
        assert_eq!(next_batch(&lines, &args(&[])).expect("read"), None);
    }
}
