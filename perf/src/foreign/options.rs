//! Options of `foreign`: those of the modes, by the same names where they mean the same.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::options::{ResultArgs, TargetArgs, setting};
use crate::program::Limit;

/// What a program may take beyond its load: its start, the last answers of a client that waits for them, and the whole
/// of a load that counts records and not seconds.
const GRACE_SECONDS: u32 = 300;

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Client {
    /// The official Java client.
    Java,
    /// librdkafka: through its Python binding where latencies are told, else through its own load generator.
    Librdkafka,
}

/// Which workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Idempotent records; latency from the time each was due.
    Produce,
    /// Everything that is in a topic, from its beginning.
    Fetch,
    /// From the time each record was due to a read_committed reader (Java).
    E2e,
    /// Transactions one after the other for each producer; their phases apart.
    Txn,
}

impl Client {
    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Librdkafka => "librdkafka",
        }
    }
}

impl Mode {
    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Fetch => "fetch",
            Self::E2e => "e2e",
            Self::Txn => "txn",
        }
    }
}

/// Options of `foreign`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The client.
    #[arg(value_enum)]
    pub client: Client,
    /// The workload.
    #[arg(value_enum)]
    pub mode: Mode,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Records a second, on a schedule that nothing moves (produce, e2e).
    #[arg(long, conflicts_with = "saturate", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// As fast as answers come in (produce); fetch and txn always are.
    #[arg(long)]
    pub saturate: bool,
    /// Length of the measured part in whole seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Length of what goes before and is not measured.
    #[arg(long, default_value_t = 2)]
    pub warmup_seconds: u32,
    /// How long the program may take beyond --seconds and --warmup-seconds before it is killed. Fetch, and librdkafka
    /// at saturation, end with their records instead of after seconds: raise it for what is large or slow there.
    #[arg(long, default_value_t = GRACE_SECONDS)]
    pub grace_seconds: u32,
    /// Bytes of each record's value; what fetch takes each record for.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub record_bytes: u64,
    /// Records of a saturating librdkafka, whose load generator counts records and not seconds.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: u64,
    /// Producers with a transactional id each (txn, Java).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub producers: u16,
    /// Records of each transaction (txn).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub records_per_txn: u32,
    /// Abort all transactions instead of committing them (txn).
    #[arg(long)]
    pub abort: bool,
    /// Setting of the client, by its own name.
    #[arg(short = 'X', value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,
    #[command(flatten)]
    pub result: ResultArgs,
    /// Directory with the jars of the Java client [default: kafka/libs in ONCILLA_CACHE].
    #[arg(long, value_name = "DIR")]
    jars: Option<PathBuf>,
    /// A Python that has confluent-kafka [default: that of ONCILLA_CACHE/venv].
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// librdkafka's load generator [default: librdkafka/examples/rdkafka_performance in ONCILLA_CACHE].
    #[arg(long, value_name = "FILE")]
    rdkafka_performance: Option<PathBuf>,
}

impl Options {
    /// Says what cannot be run before anything is.
    pub fn check(&self) -> Result<()> {
        let (paced, saturated) = (self.rate.is_some(), self.saturate);
        match self.mode {
            Mode::Produce => ensure!(paced || saturated, "produce needs --rate or --saturate"),
            Mode::E2e => ensure!(paced && !saturated, "e2e needs --rate"),
            Mode::Fetch => ensure!(self.target.topic.is_some(), "fetch needs --topic: one with records"),
            Mode::Txn => (),
        }
        let name = self.mode.name();
        ensure!(!paced || matches!(self.mode, Mode::Produce | Mode::E2e), "{name} has no --rate: it saturates");
        let java = self.client == Client::Java;
        ensure!(java || self.mode != Mode::E2e, "there is no e2e through librdkafka");
        ensure!(java || self.producers == 1, "librdkafka's txn has one producer");
        Ok(())
    }

    /// The options as results tell them.
    pub fn told(&self, partitions: i32) -> Vec<(String, String)> {
        let mut all = vec![("record-bytes".to_owned(), self.record_bytes.to_string())];
        let mut tell = |name: &str, value: String| all.push((name.to_owned(), value));
        tell("partitions", partitions.to_string());
        let counted = self.client == Client::Librdkafka && self.mode == Mode::Produce && self.saturate;
        if counted {
            tell("records", self.records.to_string());
        } else if self.mode != Mode::Fetch {
            tell("seconds", self.seconds.to_string());
            tell("warmup-seconds", self.warmup_seconds.to_string());
        }
        match self.rate {
            Some(rate) => tell("rate", rate.to_string()),
            None => tell("saturate", "true".into()),
        }
        if self.mode == Mode::Txn {
            tell("producers", self.producers.to_string());
            tell("records-per-txn", self.records_per_txn.to_string());
            tell("abort", self.abort.to_string());
        }
        for (name, value) in &self.target.topic_config {
            tell("topic-config", format!("{name}={value}"));
        }
        for (name, value) in &self.settings {
            tell("X", format!("{name}={value}"));
        }
        all
    }

    /// The longest that the program may take.
    pub fn limit(&self) -> Limit {
        let Self { seconds, warmup_seconds, grace_seconds, .. } = self;
        Limit {
            time: [seconds, warmup_seconds, grace_seconds].map(|one| Duration::from_secs((*one).into())).iter().sum(),
            hint: format!(
                " (--seconds {seconds}, --warmup-seconds {warmup_seconds}, --grace-seconds {grace_seconds}); if the \
                 broker still answers, --grace-seconds gives it longer"
            ),
        }
    }

    /// Directory of the jars.
    pub fn jars(&self) -> PathBuf {
        self.jars.clone().unwrap_or_else(|| super::cache().join("kafka/libs"))
    }

    /// The Python.
    pub fn python(&self) -> PathBuf {
        self.python.clone().unwrap_or_else(|| super::cache().join("venv/bin/python"))
    }

    /// The load generator.
    pub fn rdkafka_performance(&self) -> PathBuf {
        let own = || super::cache().join("librdkafka/examples/rdkafka_performance");
        self.rdkafka_performance.clone().unwrap_or_else(own)
    }
}
