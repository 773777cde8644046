//! Log lines on stderr, as text or JSON, without a shard ever waiting for it.
//!
//! A line goes into a bounded lane; a thread of its own writes it. A full lane drops the line and counts it. The lane is
//! flushed at the end of the process and before a panic ends it.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use oncilla_shards::limits::LOG_LINES_MAX;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogFormat;

/// Longest wait for the last lines at the end of the process.
const FLUSH_MS: u64 = 1000;

static LANE: OnceLock<Lane> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Item {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// The sender's side of the lane.
#[derive(Clone)]
struct Lane(SyncSender<Item>);

/// Starts logging for the whole process. `filter` has the form of RUST_LOG, which wins when `rust_log` is set.
pub fn start(filter: &str, rust_log: Option<&str>, format: LogFormat) -> Result<(), String> {
    let (name, text) =
        rust_log.filter(|text| !text.is_empty()).map_or(("log.level", filter), |text| ("RUST_LOG", text));
    let filter =
        EnvFilter::try_new(text).map_err(|error| format!("{name} is \"{text}\", which is no filter: {error}"))?;
    let lane = Lane::open(io::stderr(), LOG_LINES_MAX).map_err(|error| format!("no thread for the log: {error}"))?;
    if LANE.set(lane.clone()).is_err() {
        return Err("the log is started already".into());
    }
    let ansi = format == LogFormat::Text && io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lane).with_ansi(ansi);
    let started = match format {
        LogFormat::Text => builder.finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    };
    started.map_err(|error| error.to_string())?;
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        flush();
        print(panic);
    }));
    Ok(())
}

/// Waits until every line so far is written, for a bounded time.
pub fn flush() {
    if let Some(lane) = LANE.get() {
        lane.flush(Duration::from_millis(FLUSH_MS));
    }
}

/// Lines dropped because the lane was full.
#[must_use]
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

impl Lane {
    fn open(out: impl Write + Send + 'static, lines_max: usize) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(lines_max);
        std::thread::Builder::new().name("oncilla-log".into()).spawn(move || write_all(&receiver, out))?;
        Ok(Self(sender))
    }

    fn flush(&self, longest: Duration) {
        let until = Instant::now() + longest;
        let (done, wait) = sync_channel(1);
        let mut item = Item::Flush(done);
        // Not a blocking send: the writer may hang in a stderr that nobody reads.
        while let Err(TrySendError::Full(back)) = self.0.try_send(item) {
            if Instant::now() >= until {
                return;
            }
            item = back;
            std::thread::sleep(Duration::from_millis(1));
        }
        // Whether it was in time or not, there is nothing more to do.
        let _ = wait.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn write_all(lane: &Receiver<Item>, mut out: impl Write) {
    while let Ok(item) = lane.recv() {
        match item {
            // A closed stderr loses lines and must not end the broker.
            Item::Line(line) => drop(out.write_all(&line)),
            Item::Flush(done) => {
                let _ = out.flush();
                let _ = done.try_send(());
            }
        }
    }
}

impl Write for Lane {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.try_send(Item::Line(line.to_vec())).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lane {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    /// Writes into memory, after a token for each line.
    struct Slow(Arc<Mutex<Vec<u8>>>, mpsc::Receiver<()>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.recv().map_err(|_| io::Error::other("the test ended"))?;
            self.0.lock().expect("one writer").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_lane_drops_and_counts_and_what_it_took_is_written_by_a_flush() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (token, tokens) = mpsc::channel();
        let mut lane = Lane::open(Slow(written.clone(), tokens), 2).expect("a thread");
        let before = dropped();
        for _ in 0..10 {
            lane.write_all(b"x\n").expect("never fails");
        }
        // One line may be in the writer's hands, two in the lane.
        let lost = dropped() - before;
        assert!((7..=8).contains(&lost), "{lost}");
        lane.flush(Duration::from_millis(20));
        assert!(written.lock().expect("one writer").is_empty(), "a stuck writer bounds the flush");
        for _ in 0..10 {
            token.send(()).expect("the writer lives");
        }
        lane.flush(Duration::from_secs(10));
        assert_eq!(written.lock().expect("one writer").len() as u64, 2 * (10 - lost));
    }

    #[test]
    fn a_filter_that_does_not_parse_names_its_setting() {
        let error = start("broker=loud=very", None, LogFormat::Text).expect_err("no filter");
        assert!(error.starts_with("log.level is \"broker=loud=very\""), "{error}");
        let error = start("info", Some("a=b=c"), LogFormat::Text).expect_err("no filter");
        assert!(error.starts_with("RUST_LOG is \"a=b=c\""), "{error}");
    }
}
