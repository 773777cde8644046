//! The flags that set settings, and from them the settings themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;

use crate::config::{Config, Inputs, Machine, Resolved, resolve};

/// Flags of every command that reads the broker's settings.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SettingsArgs {
    /// Settings file (TOML with Kafka's names)
    #[arg(long, value_name = "FILE", env = "ONCILLA_CONFIG")]
    config: Option<PathBuf>,
    /// Data directory [default: ./oncilla-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address for clients; core k adds k to the port [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Cores to use [default: all]
    #[arg(long, value_name = "N")]
    cores: Option<u16>,
    /// Any setting, for example -X log.retention.hours=24
    #[arg(short = 'X', value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

/// Reads `key=value`.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("\"{text}\" must be KEY=VALUE"))?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

impl SettingsArgs {
    /// What settings are made from: these flags, the process's environment and the file.
    fn inputs(&self) -> anyhow::Result<Inputs> {
        let file = match &self.config {
            Some(path) => {
                let shown = path.display().to_string();
                let text = std::fs::read_to_string(path).with_context(|| format!("settings file {shown}"))?;
                Some((shown, text))
            }
            None => None,
        };
        let env: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
            .collect();
        Ok(Inputs { file, env, flags: self.flags() })
    }

    fn flags(&self) -> Vec<(String, String)> {
        let mut flags = self.set.clone();
        // A flag of its own is more deliberate than -X, so it comes last.
        let own = [
            ("log.dirs", self.data.as_ref().map(|path| path.display().to_string())),
            ("listeners", self.listen.clone()),
            ("shard.count", self.cores.map(|cores| cores.to_string())),
        ];
        flags.extend(own.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))));
        flags
    }

    /// The settings, typed.
    pub fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&self.inputs()?, &Machine::read())?)
    }

    /// The settings that hold without any of these flags, file and environment.
    pub fn defaults() -> Resolved {
        resolve::resolve(&Inputs::default(), &Machine::read()).expect("the defaults of the table are allowed")
    }
}
