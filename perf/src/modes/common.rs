//! Options that all modes have, and those of their pace.

use std::path::PathBuf;

use anyhow::ensure;

use crate::load::payload::STAMP_BYTES;
use crate::load::sender::Pace;
use crate::options::{ResultArgs, TargetArgs, setting};

/// Options of every mode.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Length of the measured part.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Length of what goes before and is not measured.
    #[arg(long, default_value_t = 2.0)]
    pub warmup_seconds: f64,
    /// Bytes of each record's value. They do not compress.
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Setting of the producers, by the name that the Java client gives it.
    #[arg(short = 'X', value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,
    /// Threads that serve the client's sockets.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub client_threads: u16,
    /// Write one HdrHistogram interval log for each quantity into this directory.
    #[arg(long, value_name = "DIR")]
    pub hdr: Option<PathBuf>,
    #[command(flatten)]
    pub result: ResultArgs,
}

/// How fast.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct PaceArgs {
    /// Records (or transactions, or commits) a second, all clients together, on a schedule that nothing moves.
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// As fast as outcomes come in.
    #[arg(long)]
    pub saturate: bool,
}

impl PaceArgs {
    pub fn pace(&self, outstanding: u64) -> Pace {
        self.rate.map_or(Pace::Saturate(outstanding), Pace::Rate)
    }
}

/// A rate above zero.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("a rate is above zero".to_owned()) }
}

impl Common {
    /// Says what cannot be run before anything is.
    pub fn check(&self) -> anyhow::Result<()> {
        let of_the_modes = ["bootstrap.servers", "transactional.id"];
        for (name, value) in &self.settings {
            let own = of_the_modes.contains(&name.as_str());
            ensure!(!own, "-X {name}={value}: that one is set by oncilla-perf");
        }
        let bad = |seconds: f64| !seconds.is_finite() || seconds < 0.0;
        ensure!(!bad(self.seconds) && self.seconds > 0.0, "--seconds {}: it has to be above zero", self.seconds);
        ensure!(!bad(self.warmup_seconds), "--warmup-seconds {}: it cannot be below zero", self.warmup_seconds);
        ensure!(self.record_bytes > 0, "--record-bytes 0: a record has at least one byte");
        ensure!(
            self.target.replication == -1 || self.target.replication > 0,
            "--replication {}: no such number",
            self.target.replication
        );
        Ok(())
    }

    /// For modes whose reader tells records apart.
    pub fn check_stamp(&self) -> anyhow::Result<()> {
        let bytes = self.record_bytes;
        ensure!(bytes >= STAMP_BYTES, "--record-bytes {bytes}: a record that is checked has at least {STAMP_BYTES}");
        Ok(())
    }

    /// The options as results tell them.
    pub fn options(&self) -> Vec<(String, String)> {
        let mut all = vec![
            ("seconds".to_owned(), self.seconds.to_string()),
            ("warmup-seconds".to_owned(), self.warmup_seconds.to_string()),
            ("record-bytes".to_owned(), self.record_bytes.to_string()),
            ("replication".to_owned(), self.target.replication.to_string()),
            ("client-threads".to_owned(), self.client_threads.to_string()),
        ];
        all.extend(self.target.topic.clone().map(|topic| ("topic".to_owned(), topic)));
        all.extend(self.target.partitions.map(|partitions| ("partitions".to_owned(), partitions.to_string())));
        let pairs = |option: &str, pairs: &[(String, String)]| {
            let one = |(name, value): &(String, String)| (option.to_owned(), format!("{name}={value}"));
            pairs.iter().map(one).collect::<Vec<_>>()
        };
        all.extend(pairs("topic-config", &self.target.topic_config));
        all.extend(pairs("X", &self.settings));
        all
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        pace: PaceArgs,
    }

    fn line(options: &[&str]) -> Result<Line, String> {
        let line = Line::try_parse_from([&["perf", "--bootstrap", "x:1"], options].concat());
        let line = line.map_err(|error| error.to_string())?;
        line.common.check().map_err(|error| error.to_string())?;
        Ok(line)
    }

    fn refusal(options: &[&str]) -> String {
        line(options).expect_err("it is refused")
    }

    #[test]
    fn options_that_cannot_be_run_are_named() {
        assert!(refusal(&[]).contains("--rate"));
        assert!(refusal(&["--rate", "5", "--saturate"]).contains("--saturate"));
        assert!(refusal(&["--rate", "0"]).contains("above zero"));
        assert!(refusal(&["--rate", "fast"]).contains("no number"));
        assert!(refusal(&["--rate", "1", "-X", "linger.ms"]).contains("name=value"));
        assert!(refusal(&["--rate", "1", "-X", "transactional.id=a"]).contains("set by oncilla-perf"));
        assert!(refusal(&["--rate", "1", "--seconds", "0"]).contains("--seconds 0"));
        assert!(refusal(&["--rate", "1", "--seconds", "NaN"]).contains("--seconds NaN"));
        assert!(refusal(&["--rate", "1", "--warmup-seconds=-1"]).contains("--warmup-seconds -1"));
        assert!(refusal(&["--rate", "1", "--record-bytes", "0"]).contains("--record-bytes 0"));
        assert!(refusal(&["--rate", "1", "--partitions", "0"]).contains("--partitions"));
        let short = line(&["--rate", "1", "--record-bytes", "23"]).expect("it is enough where nothing is checked");
        assert!(short.common.check_stamp().expect_err("and too short where it is").to_string().contains("at least 24"));
    }

    #[test]
    fn a_result_tells_the_options_it_came_from() {
        let line = line(&["--saturate", "-X", "linger.ms=0", "--partitions", "4"]).expect("a good line");
        assert_eq!(line.pace.pace(7), Pace::Saturate(7));
        let options = line.common.options();
        for (name, value) in [("X", "linger.ms=0"), ("partitions", "4"), ("record-bytes", "1024")] {
            assert!(options.contains(&(name.to_owned(), value.to_owned())), "{options:?}");
        }
    }
}
