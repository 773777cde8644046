//! `oncilla serve`: settings, logs, preflight, and then the broker until it is told to end.

use std::process::ExitCode;

use super::settings::SettingsArgs;
use crate::config::Config;
use crate::preflight::{self, Verdict};
use crate::{logs, metrics};

/// Starts logging, refuses what preflight stops, and hands over to `serve`.
pub fn run(args: &SettingsArgs, serve: impl FnOnce(Config) -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    metrics::start_clock();
    let config = args.load()?;
    let rust_log = std::env::var("RUST_LOG").ok();
    logs::start(&config.log_level, rust_log.as_deref(), config.log_format).map_err(anyhow::Error::msg)?;
    let ended = checked(config, serve);
    if let Err(error) = &ended {
        tracing::error!("{error:#}");
    }
    logs::flush();
    // The reason is in the log already.
    Ok(if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn checked(config: Config, serve: impl FnOnce(Config) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let findings = preflight::at_start(&config);
    for finding in &findings {
        match finding.verdict {
            Verdict::Ok => tracing::debug!("{}: {}", finding.check, finding.sentence),
            Verdict::Warn => tracing::warn!("{}: {}", finding.check, finding.sentence),
            Verdict::Stop => tracing::error!("{}: {}", finding.check, finding.sentence),
        }
    }
    anyhow::ensure!(!preflight::stops(&findings), "this machine cannot run the broker as it is; see above");
    serve(config)
}
