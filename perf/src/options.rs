//! Options that every load has, whichever client makes it: the target, and where its result goes.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::result::{self, Run};
use crate::target::NewTopic;

/// What is loaded.
#[derive(Clone, Debug, clap::Args)]
pub struct TargetArgs {
    /// Brokers to begin with, separated by commas.
    #[arg(long, value_name = "HOST:PORT")]
    pub bootstrap: String,
    /// The topic; made if it is not there, unless it is to be read. Without a name, one for this run alone.
    #[arg(long)]
    pub topic: Option<String>,
    /// Partitions of a topic that is made [default: 1].
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub partitions: Option<i32>,
    /// Copies of a topic that is made.
    #[arg(long, default_value_t = 1)]
    pub replication: i16,
    /// Setting of a topic that is made.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub topic_config: Vec<(String, String)>,
    /// Keep the topics that the run made.
    #[arg(long)]
    pub keep: bool,
}

impl TargetArgs {
    /// A topic as the options want it.
    pub fn new_topic(&self, partitions: Option<i32>) -> NewTopic<'_> {
        NewTopic { partitions, replication: self.replication, settings: &self.topic_config }
    }
}

/// Where the result goes, and what it says of the target.
#[derive(Clone, Debug, clap::Args)]
pub struct ResultArgs {
    /// Write the result as JSON; `-` for standard output, the table then goes to standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What the target is called in results [default: its address].
    #[arg(long)]
    name: Option<String>,
    /// Version of the target, as results are to tell it: the protocol does not.
    #[arg(long)]
    target_version: Option<String>,
    /// What an acknowledgement stands for, as results are to tell it [default of foreign: what the topic's
    /// flush.messages says].
    #[arg(long)]
    durability: Option<String>,
}

impl ResultArgs {
    /// The target as results describe it; `durability` is for who did not say it.
    pub fn target(&self, args: &TargetArgs, durability: Option<String>) -> result::Target {
        result::Target {
            name: self.name.clone().unwrap_or_else(|| args.bootstrap.clone()),
            bootstrap: args.bootstrap.clone(),
            version: self.target_version.clone(),
            durability: self.durability.clone().or(durability),
        }
    }

    fn is_piped(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    /// Prints what people read.
    pub fn show(&self, table: &str) -> anyhow::Result<()> {
        if self.is_piped() {
            eprint!("{table}");
            return Ok(());
        }
        write!(std::io::stdout().lock(), "{table}").context("standard output")
    }

    /// Writes what programs read, if it is asked for.
    pub fn write(&self, run: &Run) -> anyhow::Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(run)? + "\n";
        if self.is_piped() {
            return std::io::stdout().lock().write_all(text.as_bytes()).context("standard output");
        }
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
    }
}

/// `name=value`.
pub fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it has the form name=value")?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() { Err("the name is empty".to_owned()) } else { Ok((name.to_owned(), value.to_owned())) }
}
