//! `oncilla produce`: every line of standard input is a record, sent by the native producer: idempotent, and with a
//! transactional id in transactions. Silent unless something goes wrong, or `-v`.
//!
//! Limits: lines that have no outcome are [`LINES_MAX`] or [`BYTES_MAX`]; what is more stays in the pipe. Failure: the
//! first line that fails ends it with its number, after every line before has its outcome; an open transaction is
//! aborted, also by Ctrl-C.

mod lines;
mod sender;

use std::time::{Duration, Instant};

use anyhow::Context;
use oncilla_shards::code::ErrorCode;

use super::interrupt::Interrupt;
use super::settings::key_value;
use super::topic::ClusterArgs;
use crate::client::native::{Producer, Record};
use crate::client::{Client, ClientError};
use lines::Line;
use sender::Sender;

/// Lines, and bytes of lines, that may be without an outcome; a longer line goes alone.
const LINES_MAX: usize = 16_384;
const BYTES_MAX: usize = 8 << 20;

/// Longest line, and with that largest record, unless `-X max.request.size` says otherwise: the broker has its own.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Size from which a batch is sent although more is waiting.
const BATCH_BYTES: usize = 128 << 10;

/// Longest wait for one answer of the broker; then it is asked over another connection.
const REQUEST_TIMEOUT_MS: u64 = 10_000;

/// How long a topic that is not there is waited for: one that the broker has just created may be unknown for a moment.
const TOPIC_WAIT: Duration = Duration::from_secs(5);
const TOPIC_PAUSE: Duration = Duration::from_millis(100);

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
    /// Who must have a record before it counts: always all, because records are produced idempotently
    #[arg(long, default_value = "all", value_parser = acks, allow_hyphen_values = true)]
    acks: String,
    /// Longest time for a record with all its tries, and for each step of a transaction, in seconds; sets
    /// delivery.timeout.ms and max.block.ms
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Produce all of the input in one transaction of this id: committed at the end of the input, aborted when a line
    /// fails or on Ctrl-C
    #[arg(long, value_name = "ID")]
    transactional_id: Option<String>,
    /// Commit after each N records, and begin the next transaction
    #[arg(long, value_name = "N", requires = "transactional_id")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    transaction_records: Option<u64>,
    /// Any setting of the producer by its name in Java, for example -X compression.type=zstd
    #[arg(short = 'X', value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Print partition and offset of every batch
    #[arg(short, long)]
    verbose: bool,
}

fn acks(text: &str) -> Result<String, String> {
    match text {
        "all" | "-1" => Ok("all".into()),
        "1" | "0" => Err("only all is served: an idempotent record counts when it is on disk".into()),
        _ => Err("must be all".into()),
    }
}

impl Args {
    /// Settings by Java's names; those of -X win.
    fn settings(&self) -> Vec<(String, String)> {
        let timeout_ms = self.timeout * 1000;
        let linger_ms = 5;
        let own = [
            ("acks", self.acks.clone()),
            ("linger.ms", linger_ms.to_string()),
            ("batch.size", BATCH_BYTES.to_string()),
            ("max.request.size", LINE_BYTES_MAX.to_string()),
            ("buffer.memory", (4 * LINE_BYTES_MAX).to_string()),
            ("request.timeout.ms", REQUEST_TIMEOUT_MS.min(timeout_ms - linger_ms).to_string()),
            ("delivery.timeout.ms", timeout_ms.to_string()),
            ("max.block.ms", timeout_ms.to_string()),
        ];
        let id = self.transactional_id.iter().map(|id| ("transactional.id", id.clone()));
        let own = own.into_iter().chain(id).map(|(name, value)| (name.to_owned(), value));
        own.chain(self.set.iter().cloned()).collect()
    }

    fn is_transactional(&self) -> bool {
        self.transactional_id.is_some() || self.set.iter().any(|(name, _)| name == "transactional.id")
    }

    fn record(&self, line: Vec<u8>) -> Record {
        let record = self
            .headers
            .iter()
            .fold(Record::to(&*self.topic), |record, (name, value)| record.header(&**name, &**value));
        let record = Record { partition: self.partition, ..record };
        let separator = self.key_separator.as_deref().filter(|text| !text.is_empty());
        if let Some(separator) = separator.map(str::as_bytes)
            && let Some(at) = line.windows(separator.len()).position(|window| window == separator)
        {
            return record.key(&line[..at]).value(&line[at + separator.len()..]);
        }
        record.value(line)
    }
}

/// Runs it until standard input ends.
pub fn run(args: &Args) -> anyhow::Result<()> {
    find_topic(args)?;
    let interrupt = Interrupt::listen()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(produce(args, interrupt))
}

/// Finds the topic, which the broker may create: a broker that is away and a partition that is not there are told
/// before a line is read.
fn find_topic(args: &Args) -> anyhow::Result<()> {
    let timeout = Duration::from_secs(args.timeout);
    let mut client = Client::connect_within(&args.cluster.bootstrap, timeout)?;
    let until = Instant::now() + timeout.min(TOPIC_WAIT);
    let topic = loop {
        let late = Instant::now() >= until;
        match client.topic(&args.topic, true) {
            // A topic made by this very request may have no leader yet; the producer waits for that.
            Ok(topic) if !topic.partitions.is_empty() => break topic,
            Ok(topic) if late => anyhow::bail!("topic {} has no partitions", topic.name),
            Err(error) if late || !error.is_retriable() || matches!(error, ClientError::Io { .. }) => {
                let unknown = matches!(error, ClientError::Refused { code, .. }
                    if code == ErrorCode::UnknownTopicOrPartition.wire());
                let error = anyhow::Error::from(error);
                return Err(if unknown { error.context("the broker does not create the topic") } else { error });
            }
            _ => std::thread::sleep(TOPIC_PAUSE),
        }
    };
    match args.partition {
        Some(index) if !topic.partitions.iter().any(|known| known.index == index) => {
            anyhow::bail!("topic {} has no partition {index}", topic.name)
        }
        _ => Ok(()),
    }
}

async fn produce(args: &Args, mut interrupt: Interrupt) -> anyhow::Result<()> {
    let builder = Producer::builder().set("bootstrap.servers", &args.cluster.bootstrap);
    let builder = args.settings().into_iter().fold(builder, |builder, (name, value)| builder.set(name, value));
    let producer = builder.build()?;
    if args.is_transactional() {
        tokio::select! {
            biased;
            () = interrupt.come() => anyhow::bail!("interrupted"),
            done = producer.init_transactions() => done.context("the transactional id cannot be taken")?,
        }
    }
    let mut lines = lines::read()?;
    let mut sender = Sender::new(&producer, args);
    loop {
        tokio::select! {
            biased;
            () = interrupt.come() => return sender.give_up(anyhow::anyhow!("interrupted")).await,
            settled = sender.settle_one(), if sender.waits() => {
                if let Err(error) = settled {
                    return sender.give_up(error).await;
                }
            }
            line = lines.recv(), if sender.has_room() => {
                let Some(Line { number, text }) = line else { break };
                let sent = match text.context("standard input") {
                    Ok(text) => sender.send(number, args.record(text)).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = sent {
                    return sender.give_up(error).await;
                }
                if sender.is_transaction_full()
                    && let Err(error) = sender.commit(&mut interrupt).await
                {
                    return sender.give_up(error).await;
                }
            }
        }
    }
    match sender.commit(&mut interrupt).await {
        Ok(()) => Ok(producer.close().await?),
        Err(error) => sender.give_up(error).await,
    }
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

    fn parse(more: &[&str]) -> Result<Args, clap::Error> {
        Only::try_parse_from(["produce", "t"].iter().chain(more)).map(|only| only.args)
    }

    fn args(more: &[&str]) -> Args {
        parse(more).expect("right")
    }

    #[test]
    fn a_line_is_split_at_the_first_separator() {
        let with = args(&["-k", "::", "-H", "a=b", "-p", "3"]);
        let expected = Record::to("t").partition(3).header("a", "b");
        assert_eq!(with.record(b"k::v::w".to_vec()), expected.clone().key("k").value("v::w"));
        assert_eq!(with.record(b"none".to_vec()), expected.value("none"));
        assert_eq!(args(&[]).record(b"k::v".to_vec()), Record::to("t").value("k::v"));
    }

    #[test]
    fn the_settings_agree_with_each_other_and_dash_x_wins() {
        for more in [&["--timeout", "1"][..], &[], &["--timeout", "120", "-X", "linger.ms=100"]] {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let _inside = runtime.enter();
            let builder = Producer::builder().set("bootstrap.servers", "127.0.0.1:1");
            let all = args(more).settings();
            let built = all.into_iter().fold(builder, |builder, (name, value)| builder.set(name, value)).build();
            built.expect("settings that the producer takes");
        }
        let last = |name: &str, all: Vec<(String, String)>| all.into_iter().rfind(|(known, _)| known == name);
        let all = args(&["--timeout", "7", "-X", "delivery.timeout.ms=20000"]).settings();
        assert_eq!(last("delivery.timeout.ms", all.clone()).map(|(_, value)| value).as_deref(), Some("20000"));
        assert_eq!(last("max.block.ms", all).map(|(_, value)| value).as_deref(), Some("7000"));
    }

    #[test]
    fn what_is_not_served_is_said() {
        let said = |more: &[&str]| parse(more).expect_err("it is refused").to_string();
        assert!(said(&["--acks", "1"]).contains("only all is served"));
        assert!(said(&["--acks", "2"]).contains("must be all"));
        assert_eq!(args(&["--acks", "-1"]).acks, "all");
        assert!(said(&["--transaction-records", "5"]).contains("--transactional-id"));
        assert!(said(&["--transactional-id", "x", "--transaction-records", "0"]).contains("0"));
        assert!(args(&["-X", "transactional.id=x"]).is_transactional() && !args(&[]).is_transactional());
    }
}
