//! `oncilla consume`: prints the records of a topic; with a group from where it was, and it goes on from there.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;

use super::topic::ClusterArgs;
use crate::client::Client;
use crate::client::consumer::{Consumer, From, ReadRecord};
use crate::client::isolation::Isolation;

/// How records are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RecordFormat {
    /// The value and a line feed.
    Value,
    /// One JSON object a line.
    Json,
}

/// Which records of transactions are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum IsolationLevel {
    /// Those of committed transactions, up to the first one that is open
    #[value(alias = "read_committed")]
    ReadCommitted,
    /// All that is in the log
    #[value(alias = "read_uncommitted")]
    ReadUncommitted,
}

/// Arguments of `consume`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Topic to read
    topic: String,
    /// Where to begin: beginning, end, or an offset
    #[arg(long, default_value = "end", value_parser = from)]
    from: From,
    /// Only this partition [default: all]
    #[arg(short, long)]
    partition: Option<i32>,
    /// Begin where this group has committed, and commit for it what was printed; it must have no members. Where it has
    /// committed nothing --from holds
    #[arg(short, long)]
    group: Option<String>,
    /// Stop after this many records
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Stop at what was the end when the command began
    #[arg(short, long)]
    exit_at_end: bool,
    /// Whether to leave out records of open and aborted transactions
    #[arg(long, value_enum, default_value = "read-committed")]
    isolation_level: IsolationLevel,
    /// How to print
    #[arg(long, value_enum, default_value = "value")]
    format: RecordFormat,
}

fn from(text: &str) -> Result<From, String> {
    match text {
        "beginning" => Ok(From::Beginning),
        "end" => Ok(From::End),
        number => match number.parse() {
            Ok(offset @ 0..) => Ok(From::Offset(offset)),
            _ => Err("must be beginning, end or an offset".into()),
        },
    }
}

/// Runs it until its count or end is reached, or for ever.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let client = Client::connect(&args.cluster.bootstrap)?;
    let isolation = match args.isolation_level {
        IsolationLevel::ReadCommitted => Isolation::Committed,
        IsolationLevel::ReadUncommitted => Isolation::Uncommitted,
    };
    let mut consumer = Consumer::open(client, &args.topic, args.partition, args.from, isolation)?;
    if let Some(group) = &args.group {
        consumer.resume(group)?;
    }
    let ends = if args.exit_at_end { Some(consumer.ends()?) } else { None };
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut out = io::BufWriter::new(io::stdout().lock());
    while left > 0 {
        let reached = |ends: &BTreeMap<i32, i64>| {
            ends.iter().all(|(partition, end)| consumer.positions().get(partition).is_none_or(|at| at >= end))
        };
        if ends.as_ref().is_some_and(reached) {
            break;
        }
        let mut printed = BTreeMap::new();
        for record in consumer.poll()? {
            // What came in after the command began is behind its end.
            let behind =
                ends.as_ref().and_then(|ends| ends.get(&record.partition)).is_some_and(|end| record.offset >= *end);
            if behind || left == 0 {
                continue;
            }
            print(&mut out, &args.topic, &record, args.format)?;
            left -= 1;
            printed.insert(record.partition, record.offset + 1);
        }
        out.flush()?;
        // Only now: what was committed and not printed would be lost.
        if let Some(group) = args.group.as_ref().filter(|_| !printed.is_empty()) {
            consumer.commit(group, &printed)?;
        }
    }
    Ok(())
}

fn print(out: &mut impl Write, topic: &str, record: &ReadRecord, format: RecordFormat) -> io::Result<()> {
    match format {
        RecordFormat::Value => {
            out.write_all(record.value.as_deref().unwrap_or_default())?;
            out.write_all(b"\n")
        }
        RecordFormat::Json => writeln!(out, "{}", as_json(topic, record)),
    }
}

fn as_json(topic: &str, record: &ReadRecord) -> serde_json::Value {
    let mut object = json!({
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    });
    put(&mut object, "key", record.key.as_deref());
    put(&mut object, "value", record.value.as_deref());
    // A list, because a name may come more than once and order counts.
    let headers = record.headers.iter().map(|(name, value)| {
        let mut header = json!({});
        put(&mut header, "name", Some(name));
        put(&mut header, "value", value.as_deref());
        header
    });
    object["headers"] = headers.collect();
    object
}

/// Text as text; bytes that are none under `<name>_hex`, so that nothing is lost or mistaken.
fn put(object: &mut serde_json::Value, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => object[name] = serde_json::Value::Null,
        Some((_, Ok(text))) => object[name] = text.into(),
        Some((bytes, Err(_))) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            object[format!("{name}_hex")] = hex.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_empty_and_bytes_that_are_no_text_stay_apart() {
        let record = ReadRecord {
            partition: 1,
            offset: 5,
            timestamp: 7,
            key: Some(vec![0xff, 0]),
            value: Some(Vec::new()),
            headers: vec![(b"h".to_vec(), None)],
        };
        let expected = json!({
            "topic": "t", "partition": 1, "offset": 5, "timestamp": 7,
            "key_hex": "ff00", "value": "", "headers": [{ "name": "h", "value": null }],
        });
        assert_eq!(as_json("t", &record), expected);
    }

    #[test]
    fn a_place_to_begin_is_a_word_or_an_offset() {
        assert_eq!(from("beginning"), Ok(From::Beginning));
        assert_eq!(from("17"), Ok(From::Offset(17)));
        assert!(from("-1").is_err() && from("start").is_err());
    }
}
