//! What becomes of one kind of operation: counts and latencies, by second and in whole.
//!
//! Whoever ends an operation only counts it into the histogram of the second; full seconds are worked off by
//! [`Recorder::tick`], on a thread that measures nothing. Latencies above [`LATENCY_NS_MAX`] count as that.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::result::{Quantity, Second};

const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// What the longest latency of an interval is divided by in a .hdr log: it is read as ms there.
const HDR_MAX_DIVISOR: f64 = 1_000_000.0;

/// An empty histogram of latencies in ns.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are in order")
}

/// The measured part of a run: an operation belongs to it by its intended time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub begin_ns: u64,
    pub end_ns: u64,
}

impl Window {
    /// So many seconds after a warm-up that begins now.
    pub fn after(now_ns: u64, warmup_seconds: f64, seconds: f64) -> Self {
        let ns = |seconds: f64| (seconds * SECOND_NS as f64) as u64;
        let begin_ns = now_ns.saturating_add(ns(warmup_seconds));
        Self { begin_ns, end_ns: begin_ns.saturating_add(ns(seconds)) }
    }

    pub fn contains(&self, at_ns: u64) -> bool {
        (self.begin_ns..self.end_ns).contains(&at_ns)
    }

    fn second(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.begin_ns) / SECOND_NS
    }
}

/// One second of the measured part.
struct Interval {
    second: u64,
    bytes: u64,
    latency: Histogram<u64>,
}

struct State {
    open: Interval,
    full: Vec<Interval>,
    spare: Vec<Histogram<u64>>,
    failed: u64,
    failed_outside: u64,
    first_error: Option<String>,
    last_ns: u64,
}

impl Interval {
    fn count(&mut self, from_ns: u64, now_ns: u64, bytes: u64) {
        self.bytes += bytes;
        self.latency.saturating_record(now_ns.saturating_sub(from_ns).max(1));
    }
}

impl State {
    /// The interval of this moment.
    fn open_at(&mut self, window: &Window, now_ns: u64) -> &mut Interval {
        self.last_ns = self.last_ns.max(now_ns);
        let second = window.second(now_ns);
        // Two threads may come here in another order than they looked at the clock.
        if second > self.open.second {
            let latency = self.spare.pop().unwrap_or_else(latencies);
            let full = std::mem::replace(&mut self.open, Interval { second, bytes: 0, latency });
            self.full.push(full);
        }
        &mut self.open
    }
}

/// What `tick` has worked off.
struct Worked {
    total: Histogram<u64>,
    bytes: u64,
    seconds: Vec<Second>,
    /// Compressed histograms by second, if there is to be a .hdr log.
    logged: Vec<(u64, Vec<u8>)>,
}

/// The operations of one kind.
pub struct Recorder {
    name: String,
    window: Window,
    keep_log: bool,
    state: Mutex<State>,
    worked: Mutex<Worked>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves numbers that are still numbers.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// `keep_log`: whether [`Measured::write_log`] will be called.
    pub fn new(name: impl Into<String>, window: Window, keep_log: bool) -> Self {
        let open = Interval { second: 0, bytes: 0, latency: latencies() };
        let spare = vec![latencies(), latencies()];
        let (full, first_error) = (Vec::new(), None);
        let state = State { open, full, spare, failed: 0, failed_outside: 0, first_error, last_ns: 0 };
        let worked = Worked { total: latencies(), bytes: 0, seconds: Vec::new(), logged: Vec::new() };
        Self { name: name.into(), window, keep_log, state: Mutex::new(state), worked: Mutex::new(worked) }
    }

    pub fn window(&self) -> Window {
        self.window
    }

    /// An operation that was to begin at `intended_ns` has ended.
    pub fn done(&self, intended_ns: u64, now_ns: u64, bytes: u64) {
        self.phase_done(intended_ns, intended_ns, now_ns, bytes);
    }

    /// A phase of an operation has ended, which counts from its own begin.
    pub fn phase_done(&self, intended_ns: u64, from_ns: u64, now_ns: u64, bytes: u64) {
        if self.window.contains(intended_ns) {
            locked(&self.state).open_at(&self.window, now_ns).count(from_ns, now_ns, bytes);
        }
    }

    /// Operations that were to begin at these times have ended together, each of so many bytes.
    pub fn all_done(&self, intended_ns: &[u64], now_ns: u64, bytes: u64) {
        let mut inside = intended_ns.iter().filter(|at_ns| self.window.contains(**at_ns)).peekable();
        if inside.peek().is_some() {
            let mut state = locked(&self.state);
            let open = state.open_at(&self.window, now_ns);
            inside.for_each(|intended_ns| open.count(*intended_ns, now_ns, bytes));
        }
    }

    /// An operation has failed. Failures of the warm-up are told too, and counted apart.
    pub fn failed(&self, intended_ns: u64, why: impl FnOnce() -> String) {
        let mut state = locked(&self.state);
        if self.window.contains(intended_ns) {
            state.failed += 1;
        } else {
            state.failed_outside += 1;
        }
        if state.first_error.is_none() {
            state.first_error = Some(why());
        }
    }

    /// How many operations failed in all, and the first error.
    pub fn failures(&self) -> Option<(u64, String)> {
        let state = locked(&self.state);
        state.first_error.clone().map(|error| (state.failed + state.failed_outside, error))
    }

    /// Works off what is complete; the newest full second, if one came in.
    pub fn tick(&self) -> Option<Second> {
        let full = std::mem::take(&mut locked(&self.state).full);
        self.work_off(full)
    }

    fn work_off(&self, full: Vec<Interval>) -> Option<Second> {
        let mut worked = locked(&self.worked);
        let mut newest = None;
        for Interval { second, bytes, mut latency } in full {
            let place = usize::try_from(second).expect("seconds of a run fit into memory");
            let length = place.max(worked.seconds.len());
            worked.seconds.resize(length, Second::default());
            let quantile = |of| latency.value_at_quantile(of);
            let (p50_ns, p99_ns, max_ns) = (quantile(0.5), quantile(0.99), latency.max());
            let summary = Second { count: latency.len(), bytes, p50_ns, p99_ns, max_ns };
            worked.seconds.push(summary);
            worked.bytes += bytes;
            worked.total.add(&latency).expect("the bounds are the same");
            if self.keep_log {
                let mut compressed = Vec::new();
                V2DeflateSerializer::new().serialize(&latency, &mut compressed).expect("memory takes it");
                worked.logged.push((second, compressed));
            }
            newest = Some(summary);
            latency.reset();
            locked(&self.state).spare.push(latency);
        }
        newest
    }

    /// Ends it, now. Operations that come later are not counted.
    pub fn finish(&self, now_ns: u64) -> Measured {
        let mut full = std::mem::take(&mut locked(&self.state).full);
        let mut state = locked(&self.state);
        let open = Interval { second: state.open.second + 1, bytes: 0, latency: latencies() };
        let last = std::mem::replace(&mut state.open, open);
        let (failed, last_ns) = (state.failed, state.last_ns);
        drop(state);
        full.extend((!last.latency.is_empty()).then_some(last));
        self.work_off(full);
        let worked = locked(&self.worked);
        let mut compressed = Vec::new();
        V2DeflateSerializer::new().serialize(&worked.total, &mut compressed).expect("memory takes it");
        let quantity = Quantity {
            name: self.name.clone(),
            count: worked.total.len(),
            failed,
            bytes: worked.bytes,
            latency_ns: STANDARD.encode(compressed),
            by_second: worked.seconds.clone(),
        };
        // A run that is interrupted ends before its window does.
        let ended_ns = last_ns.max(self.window.end_ns.min(now_ns));
        let seconds = ended_ns.saturating_sub(self.window.begin_ns) as f64 / SECOND_NS as f64;
        Measured { quantity, seconds, total: worked.total.clone(), logged: worked.logged.clone() }
    }
}

/// A quantity with its histograms.
pub struct Measured {
    pub quantity: Quantity,
    /// From the begin of the measured part to its end, or to the end of its last operation if that was later.
    pub seconds: f64,
    pub total: Histogram<u64>,
    logged: Vec<(u64, Vec<u8>)>,
}

impl Measured {
    /// Something that is only counted.
    pub fn count(name: &str, count: u64, bytes: u64, seconds: f64) -> Self {
        let quantity = Quantity { name: name.to_owned(), count, bytes, ..Quantity::default() };
        Self { quantity, seconds, total: latencies(), logged: Vec::new() }
    }

    /// Writes `<directory>/<name>.hdr`: an interval log with a line for each second, values in ns.
    pub fn write_log(&self, directory: &Path, began: SystemTime) -> anyhow::Result<()> {
        let path = directory.join(format!("{}.hdr", self.quantity.name));
        let mut text = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment(&format!("oncilla-perf: {} latencies in ns", self.quantity.name))
            .with_start_time(began)
            .with_base_time(began)
            .with_max_value_divisor(HDR_MAX_DIVISOR)
            .begin_log_with(&mut text, &mut serializer)?;
        for (second, compressed) in &self.logged {
            let latency: Histogram<u64> =
                Deserializer::new().deserialize(&mut compressed.as_slice()).expect("written by ourselves");
            let written = log.write_histogram(&latency, Duration::from_secs(*second), Duration::from_secs(1), None);
            written.map_err(|error| anyhow::anyhow!("{}: {error:?}", path.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    const MS: u64 = 1_000_000;

    fn recorder() -> Recorder {
        Recorder::new("produce", Window { begin_ns: SECOND_NS, end_ns: 4 * SECOND_NS }, true)
    }

    fn with_two_seconds() -> Recorder {
        let recorder = recorder();
        recorder.done(SECOND_NS - 1, SECOND_NS + 5, 1);
        for n in 0..10 {
            recorder.done(SECOND_NS + n * MS, SECOND_NS + n * MS + 2 * MS, 100);
        }
        recorder.done(3 * SECOND_NS, 3 * SECOND_NS + 500 * MS, 100);
        recorder.done(4 * SECOND_NS, 4 * SECOND_NS + 1, 1);
        recorder
    }

    #[test]
    fn what_was_meant_for_the_window_counts_and_the_rest_does_not() {
        let recorder = with_two_seconds();
        assert_eq!(recorder.tick().expect("a full second").count, 10);
        let measured = recorder.finish(9 * SECOND_NS);
        let counts: Vec<u64> = measured.quantity.by_second.iter().map(|second| second.count).collect();
        assert_eq!(counts, [10, 0, 1], "a second in which nothing ended is there");
        assert_eq!((measured.quantity.count, measured.quantity.bytes), (11, 1100));
        assert!((measured.seconds - 3.0).abs() < 1e-9, "{}", measured.seconds);
        let max_ns = measured.quantity.by_second[2].max_ns;
        assert!(max_ns.abs_diff(500 * MS) < MS, "{max_ns}");
    }

    #[test]
    fn an_end_after_the_window_makes_the_run_longer() {
        let recorder = recorder();
        recorder.done(3 * SECOND_NS, 9 * SECOND_NS, 1);
        let measured = recorder.finish(9 * SECOND_NS);
        assert!((measured.seconds - 8.0).abs() < 1e-9, "{}", measured.seconds);
        assert_eq!(measured.quantity.by_second.len(), 9);
    }

    #[test]
    fn a_phase_counts_from_its_begin_and_belongs_where_its_operation_does() {
        let recorder = recorder();
        recorder.phase_done(3 * SECOND_NS, 5 * SECOND_NS, 5 * SECOND_NS + 2 * MS, 0);
        recorder.phase_done(4 * SECOND_NS, 4 * SECOND_NS, 5 * SECOND_NS, 0);
        let latencies = recorder.finish(9 * SECOND_NS).total;
        assert_eq!((latencies.len(), latencies.max() / MS), (1, 2));
    }

    #[test]
    fn an_interrupted_run_is_as_long_as_it_was() {
        let recorder = recorder();
        recorder.done(SECOND_NS, SECOND_NS + MS, 1);
        let measured = recorder.finish(2 * SECOND_NS);
        assert!((measured.seconds - 1.0).abs() < 1e-9, "{}", measured.seconds);
    }

    #[test]
    fn failures_are_counted_with_the_first_error() {
        let recorder = recorder();
        assert_eq!(recorder.failures(), None);
        recorder.failed(0, || "first".to_owned());
        recorder.failed(2 * SECOND_NS, || "second".to_owned());
        assert_eq!(recorder.failures(), Some((2, "first".to_owned())));
        assert_eq!(recorder.finish(9 * SECOND_NS).quantity.failed, 1, "the other was no part of the window");
    }

    #[test]
    fn the_result_holds_the_whole_histogram() {
        let measured = with_two_seconds().finish(9 * SECOND_NS);
        let bytes = STANDARD.decode(&measured.quantity.latency_ns).expect("base64");
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram");
        assert_eq!(read, measured.total);
        assert_eq!(read.len(), 11);
    }

    #[test]
    fn the_log_is_read_as_an_interval_log() {
        let directory = tempfile::tempdir().expect("a directory");
        with_two_seconds().finish(9 * SECOND_NS).write_log(directory.path(), SystemTime::now()).expect("written");
        let text = std::fs::read(directory.path().join("produce.hdr")).expect("a file");
        let entries: Vec<_> = IntervalLogIterator::new(&text).map(|entry| entry.expect("a line")).collect();
        let intervals: Vec<_> = entries
            .iter()
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some((interval.start_timestamp().as_secs(), interval.max().round())),
                _ => None,
            })
            .collect();
        assert_eq!(intervals, [(0, 2.0), (2, 500.0)]);
    }
}
