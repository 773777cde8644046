//! `oncilla check`: every preflight check, as a table or as JSON; exits with 1 when one stops a start.

use std::process::ExitCode;

use super::output::{self, Format};
use super::settings::SettingsArgs;
use crate::preflight;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    settings: SettingsArgs,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Prints what was found.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = args.settings.load()?;
    let findings = preflight::all(&config);
    match args.format {
        // Not a table of fixed width: the sentences are there to be copied.
        Format::Table => {
            for finding in &findings {
                output::line(format!("{:4}  {:14}  {}", finding.verdict, finding.check, finding.sentence))?;
            }
        }
        Format::Json => output::line(serde_json::to_string(&findings)?)?,
    }
    Ok(if preflight::stops(&findings) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
