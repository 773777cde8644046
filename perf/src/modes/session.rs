//! What a run of any mode holds: its target, clock, client threads and topics; and how it ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use oncilla::client::native::Producer;

use super::Common;
use crate::load::clock::{Clock, Monotonic};
use crate::load::recorder::{Measured, Recorder, Window};
use crate::load::threads::ClientThreads;
use crate::machine;
use crate::progress;
use crate::result::{FORMAT, Run, Target as TargetOfRun};
use crate::target::{Target, Topic};

/// Exit code after a second interrupt, as shells count it.
const INTERRUPTED: i32 = 130;

/// One run.
pub struct Session {
    pub common: Common,
    pub clock: Monotonic,
    pub threads: ClientThreads,
    /// Told by Ctrl-C: what was measured until then is shown.
    pub stop: Arc<AtomicBool>,
    /// Tells this run's records and names from those of others.
    pub id: u64,
    /// The group of processes that ends with this one, if there is one.
    pub group: Arc<AtomicI32>,
    target: Target,
    options: Vec<(String, String)>,
}

/// What a mode has measured.
#[derive(Default)]
pub struct Outcome {
    pub measured: Vec<Measured>,
    pub figures: Vec<(String, f64)>,
    /// What must not be, a sentence each.
    pub faults: Vec<String>,
    /// Begin of the measured part.
    pub began_ns: u64,
}

impl Outcome {
    pub fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), value));
    }

    /// Figures that say how late the client itself sent the operations of quantity `name`.
    pub fn sent_late(&mut self, name: &str, late: &Histogram<u64>) {
        if late.is_empty() {
            return;
        }
        for (point, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            self.figure(&format!("{name}_sent_late_{point}_us"), late.value_at_quantile(quantile) as f64 / 1000.0);
        }
    }

    /// Takes what a recorder has; failed operations are faults.
    pub fn take(&mut self, recorder: &Recorder, now_ns: u64) {
        let measured = recorder.finish(now_ns);
        if let Some((count, first)) = recorder.failures() {
            let name = &measured.quantity.name;
            let of = measured.quantity.count + count;
            self.faults.push(format!("{count} of {of} operations failed in {name}; the first: {first}"));
        }
        self.measured.push(measured);
    }
}

impl Session {
    pub fn open(common: &Common) -> anyhow::Result<Self> {
        let target = Target::reach(&common.target.bootstrap, common.target.keep)?;
        let threads = ClientThreads::start(usize::from(common.client_threads))?;
        let stop = Arc::new(AtomicBool::new(false));
        let group = Arc::new(AtomicI32::new(0));
        let (told, started) = (stop.clone(), group.clone());
        threads.handle(0).spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                told.store(true, Ordering::Relaxed);
                let _ = tokio::signal::ctrl_c().await;
                if let Some(group) = rustix::process::Pid::from_raw(started.load(Ordering::Relaxed)) {
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                std::process::exit(INTERRUPTED);
            }
        });
        let clock = Monotonic::begin();
        let id = clock.wall_ms(0) << 16 | u64::from(std::process::id() & 0xffff);
        Ok(Self { common: common.clone(), clock, threads, stop, id, group, target, options: Vec::new() })
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Notes an option of the mode for the result.
    pub fn option(&mut self, name: &str, value: impl ToString) {
        self.options.push((name.to_owned(), value.to_string()));
    }

    fn topic_name(&self) -> String {
        self.common.target.topic.clone().unwrap_or_else(|| format!("oncilla-perf-{:x}", self.id))
    }

    /// The topic of the options, made if it is not there.
    pub fn topic(&mut self) -> anyhow::Result<Topic> {
        let (name, partitions) = (self.topic_name(), self.common.target.partitions);
        self.topic_of(&name, partitions)
    }

    /// A topic beside it, named after it.
    pub fn topic_beside(&mut self, suffix: &str, partitions: i32) -> anyhow::Result<Topic> {
        let name = format!("{}-{suffix}", self.topic_name());
        self.topic_of(&name, Some(partitions))
    }

    fn topic_of(&mut self, name: &str, partitions: Option<i32>) -> anyhow::Result<Topic> {
        self.target.topic(name, &self.common.target.new_topic(partitions))
    }

    /// A producer with the options' settings and these.
    pub fn producer(&self, number: usize, more: &[(&str, String)]) -> anyhow::Result<Producer> {
        let _inside = self.threads.handle(number).enter();
        let mut builder = Producer::builder().set("bootstrap.servers", &self.common.target.bootstrap);
        for (name, value) in &self.common.settings {
            builder = builder.set(name, value);
        }
        for (name, value) in more {
            builder = builder.set(*name, value);
        }
        builder.build()
    }

    /// The measured part of a load that begins now.
    pub fn window(&self) -> Window {
        Window::after(self.clock.now_ns(), self.common.warmup_seconds, self.common.seconds)
    }

    pub fn recorder(&self, name: impl Into<String>, window: Window) -> Arc<Recorder> {
        Arc::new(Recorder::new(name, window, self.common.hdr.is_some()))
    }

    /// Shows and writes what was measured. An error if something was wrong with it.
    pub fn close(self, mode: &str, outcome: Outcome) -> anyhow::Result<()> {
        let table = progress::table(&outcome.measured, &outcome.figures);
        let described = self.common.result.target(&self.common.target, None);
        self.common.result.show(&format!("{mode} against {}\n{table}", described.name))?;
        if let Some(directory) = &self.common.hdr {
            std::fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
            let began = self.clock.wall(outcome.began_ns);
            let with_latency = outcome.measured.iter().filter(|one| !one.quantity.latency_ns.is_empty());
            with_latency.into_iter().try_for_each(|one| one.write_log(directory, began))?;
        }
        let faults = outcome.faults.join("; ");
        self.common.result.write(&self.run(mode, described, outcome))?;
        if !faults.is_empty() {
            bail!("{faults}");
        }
        Ok(())
    }

    fn run(&self, mode: &str, target: TargetOfRun, outcome: Outcome) -> Run {
        let seconds = outcome.measured.iter().map(|one| one.seconds).fold(0.0, f64::max);
        Run {
            format: FORMAT,
            mode: mode.to_owned(),
            client: "oncilla".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            target,
            options: [self.common.options(), self.options.clone()].concat(),
            began_ms: self.clock.wall_ms(outcome.began_ns),
            seconds,
            quantities: outcome.measured.into_iter().map(|one| one.quantity).collect(),
            figures: outcome.figures,
            // The floors are measured beside a run by `compare` and `report`, never under its load.
            machine: Some(machine::describe(Path::new("."), 0)),
        }
    }
}
