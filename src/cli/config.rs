//! `oncilla config show` and `oncilla config check`.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::output::{self, Format};
use super::settings::SettingsArgs;
use crate::config::Setting;

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting with its value and where the value came from
    Show {
        #[command(flatten)]
        settings: SettingsArgs,
        /// Print the defaults, and what each setting is for
        #[arg(long)]
        defaults: bool,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Say whether the settings are right
    Check {
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

/// Runs it.
pub fn run(command: &ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Show { settings, defaults, format } => {
            let all = if *defaults { SettingsArgs::defaults().settings } else { settings.load()?.settings };
            match format {
                Format::Json => output::line(serde_json::to_string_pretty(&as_json(&all))?)?,
                Format::Table if *defaults => {
                    let row = |setting: &Setting| [name(setting), setting.shown(), setting.row.doc.to_string()];
                    output::table(["setting", "default", "what it is"], all.iter().map(row))?;
                }
                Format::Table => {
                    let row = |setting: &Setting| [name(setting), setting.shown(), setting.source.to_string()];
                    output::table(["setting", "value", "from"], all.iter().map(row))?;
                }
            }
        }
        ConfigCommand::Check { settings } => {
            for warning in settings.load()?.warnings {
                eprintln!("warning: {warning}");
            }
            output::line("the settings are right")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn name(setting: &Setting) -> String {
    setting.row.name.to_string()
}

fn as_json(all: &[Setting]) -> serde_json::Value {
    let one = |setting: &Setting| {
        let unit = setting.row.kind.unit();
        json!({
            "name": setting.row.name,
            "value": setting.value,
            "unit": if unit.is_empty() { None } else { Some(unit) },
            "from": setting.source.to_string(),
            "doc": setting.row.doc,
        })
    };
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::TABLE;

    #[test]
    fn defaults_show_every_setting_with_value_and_unit() {
        let serde_json::Value::Array(all) = as_json(&SettingsArgs::defaults().settings) else {
            panic!("a list of settings")
        };
        assert_eq!(all.len(), TABLE.len());
        let of = |name: &str| all.iter().find(|one| one["name"] == name).expect(name).clone();
        assert_eq!(of("socket.request.max.bytes")["value"], "104857600");
        assert_eq!(of("socket.request.max.bytes")["unit"], "bytes");
        assert_eq!(of("poll.spin.us")["unit"], "us");
        assert_eq!(of("log.retention.ms")["value"], serde_json::Value::Null, "unset: log.retention.hours holds");
        assert_eq!(of("broker.id")["from"], "default");
    }
}
