//! What must be right about the machine before the broker starts, and what makes it slow or unsafe.
//!
//! Each check is one sentence, and each problem names the command that mends it. `oncilla check` prints them all; a
//! start prints the problems and refuses those that stop it. Nothing here changes the machine; only the process's own
//! soft limits are raised to what it may have.

mod data;
mod kernel;
mod ports;

use std::fmt;

use serde::Serialize;

use crate::config::Config;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The broker runs, slower or less safely than it could.
    Warn,
    /// The broker cannot start.
    Stop,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Stop => "stop",
        })
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it stands.
    pub verdict: Verdict,
    /// One sentence; for a problem with the command that mends it.
    pub sentence: String,
}

impl Finding {
    fn ok(check: &'static str, sentence: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, sentence: sentence.into() }
    }

    fn warn(check: &'static str, sentence: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, sentence: sentence.into() }
    }

    fn stop(check: &'static str, sentence: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Stop, sentence: sentence.into() }
    }
}

/// What a start looks at. The lock and the ports are left to those who take them.
#[must_use]
pub fn at_start(config: &Config) -> Vec<Finding> {
    kernel::raise_limits();
    let mut all = kernel::findings(config.shards);
    all.extend(data::findings(&config.data_dir, config.io_mode));
    all
}

/// What `oncilla check` looks at: all of a start, and whether somebody else has the directory or the ports.
#[must_use]
pub fn all(config: &Config) -> Vec<Finding> {
    let mut all = at_start(config);
    all.push(data::lock(&config.data_dir));
    all.extend(ports::findings(config));
    all
}

/// Whether any of them stops a start.
#[must_use]
pub fn stops(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.verdict == Verdict::Stop)
}
