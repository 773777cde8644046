//! `oncilla consume`: prints the records of a topic; with a group as a member of it, which shares the partitions with
//! others, goes on where the group was, and commits what was printed.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;

use super::interrupt::Interrupt;
use super::topic::ClusterArgs;
use crate::client::Client;
use crate::client::consumer::{Consumer, From, ReadRecord};
use crate::client::isolation::Isolation;
use crate::client::subscriber::Subscriber;

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
    /// Only this partition [default: all; a group shares them out itself]
    #[arg(short, long, conflicts_with = "group")]
    partition: Option<i32>,
    /// Read as a member of this group: the partitions that it gives this member, from where it has committed on, or
    /// from --from where it has committed nothing. What was printed is committed, every second and at the end
    #[arg(short, long)]
    group: Option<String>,
    /// Stop after this many records
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Stop at what was the end when the command began; as a member, at what was the end of its partitions when it got
    /// them, and not before it has all that its group means it to have
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

/// Runs it until its count or end is reached, until Ctrl-C, or for ever.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let mut printer = Printer {
        out: io::BufWriter::new(io::stdout().lock()),
        topic: &args.topic,
        format: args.format,
        left: args.count.unwrap_or(u64::MAX),
    };
    match &args.group {
        Some(group) => {
            let (bootstrap, topic) = (&args.cluster.bootstrap, &args.topic);
            let mut subscriber = Subscriber::subscribe(bootstrap, group, topic, args.from, args.isolation())?;
            let read = as_member(args, &mut subscriber, &mut printer, &interrupt);
            // However it ended: what was printed is committed, and others need not wait for the session's end.
            let closed = subscriber.close();
            read?;
            closed?;
        }
        None => alone(args, &mut printer, &interrupt)?,
    }
    // Who reads until Ctrl-C is done by it.
    if interrupt.has_come() && (args.exit_at_end || args.count.is_some()) {
        anyhow::bail!("interrupted");
    }
    Ok(())
}

impl Args {
    fn isolation(&self) -> Isolation {
        match self.isolation_level {
            IsolationLevel::ReadCommitted => Isolation::Committed,
            IsolationLevel::ReadUncommitted => Isolation::Uncommitted,
        }
    }
}

fn alone(args: &Args, printer: &mut Printer<'_>, interrupt: &Interrupt) -> anyhow::Result<()> {
    let client = Client::connect(&args.cluster.bootstrap)?;
    let mut consumer = Consumer::open(client, &args.topic, args.partition, args.from, args.isolation())?;
    let ends = if args.exit_at_end { Some(consumer.ends()?) } else { None };
    while printer.left > 0 && !interrupt.has_come() {
        let reached = |ends: &BTreeMap<i32, i64>| {
            ends.iter().all(|(partition, end)| consumer.positions().get(partition).is_none_or(|at| at >= end))
        };
        if ends.as_ref().is_some_and(reached) {
            break;
        }
        for record in consumer.poll()? {
            let end = ends.as_ref().and_then(|ends| ends.get(&record.partition)).copied();
            printer.print(&record, end)?;
        }
        printer.out.flush()?;
    }
    Ok(())
}

fn as_member(
    args: &Args,
    subscriber: &mut Subscriber,
    printer: &mut Printer<'_>,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    while printer.left > 0 && !interrupt.has_come() {
        let mut done = BTreeMap::new();
        let mut all = true;
        for record in subscriber.poll()? {
            let end = subscriber.end(record.partition).filter(|_| args.exit_at_end);
            if printer.print(&record, end)? {
                done.insert(record.partition, record.offset + 1);
            } else {
                all = false;
            }
        }
        printer.out.flush()?;
        // Only now: what was committed and not printed would be lost.
        if all {
            // Also behind what is no record, such as the end of a transaction.
            done.extend(subscriber.positions());
        }
        done.into_iter().for_each(|(partition, next)| subscriber.done(partition, next));
        if let Some(warning) = subscriber.warning() {
            let _ = writeln!(io::stderr().lock(), "warning: {warning}");
        }
        if args.exit_at_end && subscriber.is_at_end()? {
            break;
        }
    }
    Ok(())
}

/// Prints records until there were enough.
struct Printer<'a> {
    out: io::BufWriter<io::StdoutLock<'static>>,
    topic: &'a str,
    format: RecordFormat,
    left: u64,
}

impl Printer<'_> {
    /// Prints a record, unless there were enough, or it came in behind the end that is to be read to; whether it did.
    fn print(&mut self, record: &ReadRecord, end: Option<i64>) -> io::Result<bool> {
        if self.left == 0 || end.is_some_and(|end| record.offset >= end) {
            return Ok(false);
        }
        match self.format {
            RecordFormat::Value => {
                self.out.write_all(record.value.as_deref().unwrap_or_default())?;
                self.out.write_all(b"\n")?;
            }
            RecordFormat::Json => writeln!(self.out, "{}", as_json(self.topic, record))?,
        }
        self.left -= 1;
        Ok(true)
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
