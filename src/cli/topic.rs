//! `oncilla topic create|list|describe|alter-config|delete`.

use clap::Subcommand;
use oncilla_shards::ids::TopicId;
use serde_json::json;

use super::output::{self, Format};
use super::settings::key_value;
use crate::client::admin::TopicSetting;
use crate::client::{Client, PartitionView, TopicView};

/// Where the cluster is.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {
    /// Addresses of the cluster, comma separated; the first that answers tells the rest
    #[arg(short, long, value_name = "HOST:PORT", env = "ONCILLA_BOOTSTRAP", default_value = "127.0.0.1:9092")]
    #[arg(global = true)]
    pub bootstrap: String,
}

/// Arguments of `topic`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    command: TopicCommand,
}

#[derive(Debug, Subcommand)]
enum TopicCommand {
    /// Create a topic
    Create {
        /// Its name
        name: String,
        /// Number of partitions [default: the broker's num.partitions]
        #[arg(short, long, default_value = "-1", hide_default_value = true, allow_hyphen_values = true)]
        partitions: i32,
        /// Number of copies [default: the broker's default.replication.factor]
        #[arg(short, long, default_value = "-1", hide_default_value = true, allow_hyphen_values = true)]
        replication_factor: i16,
        /// A setting of the topic, for example --set retention.ms=60000
        #[arg(short, long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
        set: Vec<(String, String)>,
    },
    /// List topics
    List {
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Show the partitions and settings of a topic
    Describe {
        /// Its name
        name: String,
        /// Show settings that have their default, too
        #[arg(short, long)]
        all: bool,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Change the settings of a topic, all or none
    AlterConfig {
        /// Its name
        name: String,
        /// Set this
        #[arg(short, long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
        set: Vec<(String, String)>,
        /// Return this to its default
        #[arg(short, long = "unset", value_name = "KEY")]
        unset: Vec<String>,
    },
    /// Delete topics with all their records
    Delete {
        /// Their names
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut client = Client::connect(&args.cluster.bootstrap)?;
    match &args.command {
        TopicCommand::Create { name, partitions, replication_factor, set } => {
            client.create_topic(name, *partitions, *replication_factor, set)?;
        }
        TopicCommand::List { format } => list(&mut client, *format)?,
        TopicCommand::Describe { name, all, format } => {
            let topic = client.topic(name, false)?;
            let mut settings = client.topic_settings(name)?;
            settings.retain(|setting| *all || setting.own);
            match format {
                Format::Table => describe(&topic, &settings)?,
                Format::Json => output::line(serde_json::to_string_pretty(&described(&topic, &settings))?)?,
            }
        }
        TopicCommand::AlterConfig { name, set, unset } => {
            anyhow::ensure!(!set.is_empty() || !unset.is_empty(), "nothing to change; give --set or --unset");
            client.alter_topic(name, set, unset)?;
        }
        TopicCommand::Delete { names } => {
            for name in names {
                client.delete_topic(name)?;
            }
        }
    }
    Ok(())
}

fn list(client: &mut Client, format: Format) -> anyhow::Result<()> {
    let topics = &client.refresh(None, false)?.topics;
    match format {
        Format::Table => {
            let row = |topic: &TopicView| {
                [topic.name.clone(), topic.partitions.len().to_string(), TopicId(topic.id).to_string()]
            };
            output::table(["topic", "partitions", "id"], topics.iter().map(row))?;
        }
        Format::Json => {
            for topic in topics {
                output::line(summary(topic))?;
            }
        }
    }
    Ok(())
}

fn describe(topic: &TopicView, settings: &[TopicSetting]) -> anyhow::Result<()> {
    output::line(format!("topic {}  id {}\n", topic.name, TopicId(topic.id)))?;
    let row = |partition: &PartitionView| {
        let replicas: Vec<_> = partition.replicas.iter().map(ToString::to_string).collect();
        let epoch = partition.leader_epoch.to_string();
        [partition.index.to_string(), partition.leader.to_string(), epoch, replicas.join(",")]
    };
    output::table(["partition", "leader", "epoch", "replicas"], topic.partitions.iter().map(row))?;
    if !settings.is_empty() {
        output::line("")?;
        let row = |one: &TopicSetting| {
            let from = if one.own { "topic" } else { "default" };
            [one.name.clone(), one.value.clone().unwrap_or_default(), from.to_string()]
        };
        output::table(["setting", "value", "from"], settings.iter().map(row))?;
    }
    Ok(())
}

fn summary(topic: &TopicView) -> serde_json::Value {
    json!({ "name": topic.name, "id": TopicId(topic.id).to_string(), "partitions": topic.partitions.len() })
}

fn described(topic: &TopicView, settings: &[TopicSetting]) -> serde_json::Value {
    let partitions: Vec<_> = topic
        .partitions
        .iter()
        .map(|one| json!({ "index": one.index, "leader": one.leader, "epoch": one.leader_epoch, "replicas": one.replicas }))
        .collect();
    let settings: serde_json::Map<_, _> =
        settings.iter().map(|one| (one.name.clone(), json!({ "value": one.value, "own": one.own }))).collect();
    json!({
        "name": topic.name,
        "id": TopicId(topic.id).to_string(),
        "partitions": partitions,
        "settings": settings,
    })
}
