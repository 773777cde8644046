//! What one measured run gives: written as JSON by the modes, read by `report` and `compare`.
//!
//! Additive only: a reader ignores what it does not know, and every field added later has a default. Histograms travel
//! whole (HdrHistogram V2, deflated, base64), so that percentiles can be taken and runs merged afterwards.

use serde::{Deserialize, Serialize};

/// Version of this format.
pub const FORMAT: u32 = 1;

/// One run of one mode against one target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// The mode: `produce`, `fetch`, `e2e`, `txn`, `offsets`, `connections`, `partitions`, `recovery`.
    pub mode: String,
    /// Who made the load: `oncilla`, `java`, `librdkafka`.
    pub client: String,
    /// Version of that client.
    pub client_version: String,
    /// What was measured.
    pub target: Target,
    /// Options of the run, as given and as defaulted, by name: the command can be repeated from them.
    pub options: Vec<(String, String)>,
    /// When the measured part began, in ms since 1970.
    pub began_ms: u64,
    /// How long the measured part took, in seconds; the warm-up is no part of it.
    pub seconds: f64,
    /// Work that was to be done and was done, by name (`produce`, `fetch`, `commit`).
    pub quantities: Vec<Quantity>,
    /// Single figures that are no latencies, by name with the unit last (`first_answer_ms`).
    #[serde(default)]
    pub figures: Vec<(String, f64)>,
    /// The machine of the client.
    #[serde(default)]
    pub machine: Option<Machine>,
}

/// A broker under load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Target {
    /// As the user calls it; the address without a name.
    pub name: String,
    /// `host:port`.
    pub bootstrap: String,
    /// What it says of itself, if it does.
    #[serde(default)]
    pub version: Option<String>,
    /// What an acknowledgement stands for there, in words.
    #[serde(default)]
    pub durability: Option<String>,
}

/// One measured kind of operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Quantity {
    /// Its name.
    pub name: String,
    /// Operations done in the measured part.
    pub count: u64,
    /// Operations that failed in it.
    pub failed: u64,
    /// Payload bytes of those done.
    pub bytes: u64,
    /// From the intended time to the end of the operation, in ns: HdrHistogram V2 deflate, base64. Empty without one.
    #[serde(default)]
    pub latency_ns: String,
    /// The same by second of the measured part.
    #[serde(default)]
    pub by_second: Vec<Second>,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Operations that ended in it.
    pub count: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// p50 of their latencies, in ns.
    pub p50_ns: u64,
    /// p99 of their latencies, in ns.
    pub p99_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
}

/// What ran the client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Cores this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Clock source of the kernel.
    pub clock_source: String,
    /// File system and device of the working directory.
    pub disk: String,
    /// Floors of the machine in ns, by name (`durable 4 KiB write p50`), if they were measured.
    #[serde(default)]
    pub floors_ns: Vec<(String, f64)>,
}
