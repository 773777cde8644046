//! `oncilla demo`: a broker of its own, an idempotent producer, committed and aborted transactions, and what readers of
//! both isolation levels see of them; then how long an acknowledgement and a commit take here, beside the disk.
//!
//! Everything is in a temporary directory and is gone when the command ends, also when it fails. The broker is this
//! same program as another process, on one core and a free port of 127.0.0.1. Times are in milliseconds, one request
//! after the other, so nothing is shared between them.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use tokio::signal::unix::{SignalKind, signal};

use super::output;
use crate::client::Client;
use crate::client::consumer::{Consumer, From};
use crate::client::isolation::Isolation;
use crate::client::native::{Producer, Record};

const TOPIC: &str = "demo";
/// Samples of everything that is timed, and those before that only warm up.
const SAMPLES: usize = 500;
const WARM_UP: usize = 50;
/// What one durable write of a small batch is on the disk.
const BLOCK_BYTES: usize = 4096;
const STOP_SECONDS: u64 = 10;
/// Markers follow their decision within milliseconds; a disk that stalls may hold them back.
const MARKERS_WAIT: Duration = Duration::from_secs(30);
/// Longer times count as this.
const TIME_US_MAX: u64 = 60_000_000;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the temporary directory is made: the disk that is measured [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new()
        .prefix("oncilla-demo-")
        .tempdir_in(&parent)
        .with_context(|| format!("no directory can be made in {}", parent.display()))?;
    let floor = disk_floor(directory.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before there is a broker that an interrupt could leave behind.
    let mut interrupt = runtime.block_on(async { signal(SignalKind::interrupt()) })?;
    let broker = Broker::start(directory.path())?;
    output::line(format!("a broker on {}, its data in {}", broker.bootstrap, directory.path().display()))?;
    runtime.block_on(async {
        tokio::select! {
            shown = show(&broker.bootstrap, &floor) => shown,
            _ = interrupt.recv() => bail!("interrupted"),
        }
    })
}

async fn show(bootstrap: &str, floor: &Histogram<u64>) -> anyhow::Result<()> {
    Client::connect(bootstrap)?.create_topic(TOPIC, 1, 1, &[])?;
    let acknowledged = idempotent(bootstrap).await?;
    output::line(format!("\n{SAMPLES} records, each sent when the one before was on disk and acknowledged"))?;
    spread("acknowledged", &acknowledged)?;
    spread("one durable write of 4 KiB", floor)?;

    let producer = Producer::builder()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", "demo")
        .set("linger.ms", 0)
        .build()?;
    producer.init_transactions().await?;
    output::line("\ntransactions over the topic `shown`")?;
    Client::connect(bootstrap)?.create_topic("shown", 1, 1, &[])?;
    for (name, commits) in [("a", true), ("b", false), ("c", true)] {
        producer.begin_transaction()?;
        for n in 1..=3 {
            producer.send(Record::to("shown").value(format!("{name}{n}")))?.await?;
        }
        if commits {
            producer.commit_transaction().await?
        } else {
            producer.abort_transaction().await?
        }
        output::line(format!("  {name}1 {name}2 {name}3   {}", if commits { "committed" } else { "aborted" }))?;
    }
    all_ended(bootstrap).await?;
    for (level, isolation) in [("read_committed", Isolation::Committed), ("read_uncommitted", Isolation::Uncommitted)] {
        output::line(format!("  {level:<16}   sees {}", seen(bootstrap, isolation)?.join(" ")))?;
    }

    let (whole, commit) = commits(&producer).await?;
    output::line(format!("\n{SAMPLES} transactions of one record, one after the other"))?;
    spread("the whole transaction", &whole)?;
    spread("its commit", &commit)?;
    producer.close().await?;
    Ok(())
}

async fn idempotent(bootstrap: &str) -> anyhow::Result<Histogram<u64>> {
    let producer = Producer::builder().set("bootstrap.servers", bootstrap).set("linger.ms", 0).build()?;
    let mut times = histogram();
    for n in 0..WARM_UP + SAMPLES {
        let began = Instant::now();
        producer.send(Record::to(TOPIC).value(format!("record {n}")))?.await?;
        note(&mut times, n, began);
    }
    producer.close().await?;
    Ok(times)
}

async fn commits(producer: &Producer) -> anyhow::Result<(Histogram<u64>, Histogram<u64>)> {
    let (mut whole, mut commit) = (histogram(), histogram());
    for n in 0..WARM_UP + SAMPLES {
        let began = Instant::now();
        producer.begin_transaction()?;
        producer.send(Record::to(TOPIC).value(format!("transaction {n}")))?.await?;
        let ends = Instant::now();
        producer.commit_transaction().await?;
        note(&mut commit, n, ends);
        note(&mut whole, n, began);
    }
    Ok((whole, commit))
}

/// Waits until no transaction is open in the topic `shown`: a commit is answered when it is decided, and readers see
/// its records when its markers have followed.
async fn all_ended(bootstrap: &str) -> anyhow::Result<()> {
    let until = Instant::now() + MARKERS_WAIT;
    let ends = |isolation| {
        let consumer = Consumer::open(Client::connect(bootstrap)?, "shown", None, From::Beginning, isolation);
        consumer.and_then(|mut consumer| consumer.ends())
    };
    while ends(Isolation::Committed)? != ends(Isolation::Uncommitted)? {
        ensure!(Instant::now() < until, "a transaction is still open {} s after its end", MARKERS_WAIT.as_secs());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Values of the topic `shown` that a reader of this level finds.
fn seen(bootstrap: &str, isolation: Isolation) -> anyhow::Result<Vec<String>> {
    let mut consumer = Consumer::open(Client::connect(bootstrap)?, "shown", None, From::Beginning, isolation)?;
    let ends = consumer.ends()?;
    let mut values = Vec::new();
    while consumer.positions().iter().any(|(partition, at)| *at < ends[partition]) {
        let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
        values.extend(consumer.poll()?.into_iter().map(|record| text(record.value)));
    }
    Ok(values)
}

/// One that grows by itself would take what is above its range for what is below it, as long as it is clamped.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_US_MAX, 3).expect("the bounds are in order")
}

fn note(times: &mut Histogram<u64>, number: usize, began: Instant) {
    if number >= WARM_UP {
        times.saturating_record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
}

fn spread(what: &str, times: &Histogram<u64>) -> std::io::Result<()> {
    let ms = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    output::line(format!("  {what:<27}  p50 {:>6.2} ms   p99 {:>6.2} ms", ms(0.5), ms(0.99)))
}

/// How long a durable write over written blocks takes, without a broker.
fn disk_floor(directory: &Path) -> anyhow::Result<Histogram<u64>> {
    let path = directory.join("floor");
    let dsync = i32::try_from(rustix::fs::OFlags::DSYNC.bits()).expect("a flag of open");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).custom_flags(dsync).open(&path)?;
    let block = [b'x'; BLOCK_BYTES];
    let mut times = histogram();
    for n in 0..WARM_UP + SAMPLES {
        // The first round writes the block itself; the others write over it, as a log does that is zeroed ahead.
        file.seek(SeekFrom::Start(0))?;
        let began = Instant::now();
        file.write_all(&block)?;
        note(&mut times, n, began);
    }
    std::fs::remove_file(&path)?;
    Ok(times)
}

/// A broker as another process, which ends with this.
struct Broker {
    process: Child,
    bootstrap: String,
}

impl Broker {
    fn start(directory: &Path) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "--cores", "1", "--listen", &listen, "-X", "http.listen=off", "-X", "log.level=warn"])
            .arg("--data")
            .arg(directory.join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .context("the broker")?;
        let out = process.stdout.take().expect("it is piped");
        let broker = Self { process, bootstrap: listen };
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if !line.contains(" ready ") {
            bail!("the broker did not start; what it says is above, and `oncilla check` tells more");
        }
        Ok(broker)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let until = Instant::now() + Duration::from_secs(STOP_SECONDS);
        while Instant::now() < until {
            if let Ok(Some(_)) = self.process.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_is_not_shown_as_a_fast_one() {
        let mut times = histogram();
        for time_us in [5_000, 300_000, u64::MAX] {
            times.saturating_record(time_us);
        }
        assert_eq!(times.value_at_quantile(0.0) / 1000, 5);
        assert_eq!(times.value_at_quantile(0.5) / 1000, 300);
        assert_eq!(times.max() / 1_000_000, 60);
    }
}
