//! `oncilla-perf foreign`: the workloads of `produce`, `fetch`, `e2e` and `txn` through the official Java client and
//! librdkafka, so that nobody has to trust the client that came with the broker. The result is the same JSON.
//!
//! The programs are in `perf/java` and `perf/librdkafka` and travel inside of this executable; what they need (a Java,
//! the jars, a Python with confluent-kafka, rdkafka_performance) has to be on the machine and is named when it is not.
//! A figure that a client's tools do not tell is left out. A run with failures writes its JSON and is an error, and a
//! program that does not end is killed.

mod options;
mod performance;
mod samples;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::machine;
use crate::program::{ended, finish};
use crate::report::axis;
use crate::report::histogram;
use crate::result::{FORMAT, Quantity, Run};
use crate::target::{Target as Cluster, Topic};
pub use options::Options;
use options::{Client, Mode};

/// The setting of a topic that says what an acknowledgement stands for.
const FLUSH_MESSAGES: &str = "flush.messages";

const BENCH: &str = include_str!("../../java/Bench.java");
const TRANSACTIONS: &str = include_str!("../../java/TxnBench.java");
const LIBRDKAFKA: &str = include_str!("../../librdkafka/bench.py");

/// What a program gave.
struct Measured {
    client_version: String,
    seconds: f64,
    quantities: Vec<Quantity>,
    failed: u64,
}

/// Runs it, prints the table, and writes the JSON if asked to.
pub fn run(options: &Options) -> Result<()> {
    options.check()?;
    let mut cluster = Cluster::reach(&options.target.bootstrap, options.target.keep)?;
    let name =
        options.target.topic.clone().unwrap_or_else(|| format!("oncilla-perf-{}-{}", now_ms(), std::process::id()));
    let topic = if options.mode == Mode::Fetch {
        cluster.known(&name)?
    } else {
        cluster.topic(&name, &options.target.new_topic(options.target.partitions))?
    };
    let began_ms = now_ms() + u64::from(options.warmup_seconds) * 1000;
    let scratch = tempfile::tempdir().context("a directory for latencies")?;
    let measured = match options.client {
        Client::Java => java(options, &topic, scratch.path())?,
        Client::Librdkafka => librdkafka(options, &topic, scratch.path())?,
    };
    let run = Run {
        format: FORMAT,
        mode: options.mode.name().into(),
        client: options.client.name().into(),
        client_version: measured.client_version,
        target: options.result.target(&options.target, durability(cluster.setting(&topic, FLUSH_MESSAGES)?.as_deref())),
        options: options.told(topic.partitions),
        began_ms,
        seconds: measured.seconds,
        quantities: measured.quantities,
        figures: Vec::new(),
        machine: Some(machine::describe(Path::new("."), 0)),
    };
    options.result.show(&table(&run)?)?;
    options.result.write(&run)?;
    let failed = measured.failed;
    ensure!(failed == 0, "{failed} operations failed in {} through {}", run.mode, run.client);
    Ok(())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What the topic's own settings say about it. They do not say what a broker does beyond them.
fn durability(flush_messages: Option<&str>) -> Option<String> {
    flush_messages.map(|value| match value {
        "1" => "flush.messages=1: on disk before each answer".to_owned(),
        "9223372036854775807" => "flush.messages is not set: what the broker does by itself".to_owned(),
        other => format!("flush.messages={other}"),
    })
}

/// The JSON object that is the last line of a program.
fn last_line(done: &Output) -> Result<serde_json::Value> {
    let said = String::from_utf8_lossy(&done.stdout);
    let line = said.lines().rev().find(|line| line.starts_with('{')).context("the program printed no result")?;
    serde_json::from_str(line).with_context(|| format!("the program printed {line}"))
}

fn number(told: &serde_json::Value, name: &str) -> Result<u64> {
    told[name].as_u64().with_context(|| format!("the program does not tell {name}: {told}"))
}

/// Keys that both programs have.
fn shared_keys(options: &Options, topic: &Topic, scratch: &Path) -> Vec<String> {
    let mut keys = vec![
        format!("partitions={}", topic.partitions),
        format!("size={}", options.record_bytes),
        format!("samples={}", scratch.display()),
    ];
    if options.mode != Mode::Fetch {
        keys.push(format!("seconds={}", options.seconds));
        keys.push(format!("warmup={}", options.warmup_seconds));
    }
    keys.extend(options.rate.map(|rate| format!("rate={rate}")));
    keys.extend(options.settings.iter().map(|(name, value)| format!("x.{name}={value}")));
    keys
}

fn transaction_keys(options: &Options) -> [String; 2] {
    [format!("records={}", options.records_per_txn), format!("abort={}", u8::from(options.abort))]
}

/// Names of the files of latencies that a mode leaves, and what an operation of each is worth in bytes.
fn kept(options: &Options) -> Vec<(&'static str, u64)> {
    let (record, txn) = (options.record_bytes, options.record_bytes * u64::from(options.records_per_txn));
    match options.mode {
        Mode::Produce => vec![("produce", record)],
        Mode::E2e => vec![("e2e", record)],
        Mode::Txn => vec![("txn", txn), ("send", txn), (if options.abort { "abort" } else { "commit" }, 0)],
        Mode::Fetch => Vec::new(),
    }
}

fn measured(options: &Options, told: &serde_json::Value, scratch: &Path) -> Result<Measured> {
    let kept = kept(options).into_iter().map(|(name, bytes)| samples::quantity(scratch, name, bytes));
    let mut quantities = kept.collect::<Result<Vec<_>>>()?;
    let failed = number(told, "failed")?;
    if let Some(first) = quantities.first_mut() {
        first.failed = failed;
    }
    let client_version = told["version"].as_str().unwrap_or_default().to_owned();
    Ok(Measured { client_version, seconds: f64::from(options.seconds), quantities, failed })
}

fn has_client(jars: &Path) -> bool {
    let names = fs::read_dir(jars).into_iter().flatten().flatten().map(|file| file.file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with("kafka-clients-"))
}

fn java(options: &Options, topic: &Topic, scratch: &Path) -> Result<Measured> {
    let jars = options.jars();
    ensure!(
        has_client(&jars),
        "{} has no jars of Kafka's client: --jars names their directory (tests/peer/kafka-peer jars fetches them)",
        jars.display()
    );
    let (name, source, what) = match (options.mode, options.saturate) {
        (Mode::Produce, false) => ("Bench.java", BENCH, "latency"),
        (Mode::Produce, true) => ("Bench.java", BENCH, "saturate"),
        (Mode::Fetch, _) => ("Bench.java", BENCH, "fetch"),
        (Mode::E2e, _) => ("TxnBench.java", TRANSACTIONS, "e2e"),
        (Mode::Txn, _) => ("TxnBench.java", TRANSACTIONS, "transactions"),
    };
    let program = scratch.join(name);
    fs::write(&program, source).context("write the Java program")?;
    let mut command = Command::new("java");
    command.arg("-Xmx1g").arg("-cp").arg(jars.join("*")).arg(program);
    command.args([&options.target.bootstrap, &topic.name, what]).args(shared_keys(options, topic, scratch));
    match options.mode {
        Mode::Fetch => drop(command.arg("count=0")),
        Mode::Txn => drop(command.arg(format!("producers={}", options.producers)).args(transaction_keys(options))),
        Mode::Produce | Mode::E2e => (),
    }
    let told = last_line(&finish(command, "a Java of version 17 or later is needed", &options.limit())?)?;
    let mut measured = measured(options, &told, scratch)?;
    if options.mode == Mode::Fetch {
        let count = number(&told, "n")?;
        measured.seconds = told["seconds"].as_f64().context("the program does not tell seconds")?;
        let bytes = count * options.record_bytes;
        measured.quantities.push(Quantity { name: "fetch".into(), count, bytes, ..Quantity::default() });
    }
    Ok(measured)
}

fn librdkafka(options: &Options, topic: &Topic, scratch: &Path) -> Result<Measured> {
    let what = match (options.mode, options.saturate) {
        (Mode::Produce, true) | (Mode::Fetch, _) => return performance(options, topic),
        (Mode::Produce, false) => "latency",
        (Mode::Txn, _) => "transactions",
        (Mode::E2e, _) => bail!("there is no e2e through librdkafka: foreign java e2e, or the mode e2e"),
    };
    let program = scratch.join("bench.py");
    fs::write(&program, LIBRDKAFKA).context("write the Python program")?;
    let mut command = Command::new(options.python());
    command
        .arg(program)
        .args([&options.target.bootstrap, &topic.name, what])
        .args(shared_keys(options, topic, scratch));
    if options.mode == Mode::Txn {
        command.args(transaction_keys(options));
    }
    let told = last_line(&finish(command, "a Python with confluent-kafka is needed: --python", &options.limit())?)?;
    measured(options, &told, scratch)
}

fn performance(options: &Options, topic: &Topic) -> Result<Measured> {
    let program = options.rdkafka_performance();
    let tool = || {
        let mut command = Command::new(&program);
        // A build that was not installed finds its library beside itself.
        let library = program.parent().and_then(Path::parent).map(|root| root.join("src"));
        if let Some(library) = library.filter(|library| library.is_dir()) {
            command.env("LD_LIBRARY_PATH", library);
        }
        command
    };
    let needs = "librdkafka's load generator is needed: --rdkafka-performance";
    let usage = ended(tool(), needs, &options.limit())?;
    let usage = [usage.stdout, usage.stderr].concat();
    let mut command = tool();
    command.args(["-b", &options.target.bootstrap, "-t", &topic.name, "-q", "-u"]);
    for (name, value) in &options.settings {
        command.arg("-X").arg(format!("{name}={value}"));
    }
    let name = if options.mode == Mode::Fetch {
        // To the end of each partition: offsets without a record, as transactions end with, make counting useless.
        command.args(["-C", "-o", "beginning", "-e"]);
        command.args((0..topic.partitions).flat_map(|partition| ["-p".to_owned(), partition.to_string()]));
        "fetch"
    } else {
        let (size, count) = (options.record_bytes.to_string(), options.records.to_string());
        command.args(["-P", "-a", "-1", "-X", "enable.idempotence=true", "-s", &size, "-c", &count]);
        "produce"
    };
    let done = finish(command, needs, &options.limit())?;
    let totals = performance::totals(&String::from_utf8_lossy(&done.stdout), options.records, options.record_bytes)?;
    let (count, bytes, failed) = (totals.count, totals.bytes, totals.failed);
    ensure!(count > 0, "no records came through in {name} of topic {}", topic.name);
    Ok(Measured {
        client_version: performance::version(&String::from_utf8_lossy(&usage)).unwrap_or_default(),
        seconds: totals.seconds,
        quantities: vec![Quantity { name: name.into(), count, bytes, failed, ..Quantity::default() }],
        failed,
    })
}

/// A line for each quantity.
fn table(run: &Run) -> Result<String> {
    let mut out = format!("{} through {} {}\n", run.mode, run.client, run.client_version);
    for quantity in &run.quantities {
        let (count, bytes) = (quantity.count as f64 / run.seconds, quantity.bytes as f64 / 1e6 / run.seconds);
        out += &format!("{}: {}/s, {} MB/s", quantity.name, axis::count(count), axis::short(bytes));
        if let Some(all) = histogram::decode(&quantity.latency_ns)?.filter(|all| !all.is_empty()) {
            for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
                out += &format!(", {name} {}", axis::nanos(all.value_at_quantile(share) as f64));
            }
        }
        out.push('\n');
    }
    Ok(out)
}

/// Where the tests of this repository keep what they fetch.
fn cache() -> PathBuf {
    let given = std::env::var_os("ONCILLA_CACHE").map(PathBuf::from);
    given.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/oncilla"))
}

#[cfg(test)]
mod tests;
