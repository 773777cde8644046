//! `oncilla txn list|describe|find-hanging|abort`.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Subcommand;
use serde_json::json;

use super::output::{self, Format};
use super::topic::ClusterArgs;
use crate::client::Client;
use crate::client::hanging::OpenTxn;
use crate::client::transactions::{TxnSummary, TxnView};

/// Arguments of `txn`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    command: TxnCommand,
}

#[derive(Debug, Subcommand)]
enum TxnCommand {
    /// List transactional ids
    List {
        /// Only those in this state, such as Ongoing; once or more [default: all]
        #[arg(short, long = "state", value_name = "STATE")]
        states: Vec<String>,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Find transactions that are open in a partition and that no coordinator will end
    FindHanging {
        /// Look in this topic only [default: all topics]
        #[arg(long)]
        topic: Option<String>,
        /// Leave out those that were written to within this time; no less than the longest transaction timeout in use
        #[arg(long, value_name = "MS", default_value_t = HANGING_AFTER_MS)]
        older_than_ms: u64,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Abort a transaction in one partition, as find-hanging lists it; others keep what they have of it
    Abort {
        /// Topic of the partition
        #[arg(long)]
        topic: String,
        /// The partition
        #[arg(long)]
        partition: i32,
        /// Where the transaction begins
        #[arg(long, value_name = "OFFSET")]
        start_offset: i64,
    },
    /// Show who a transactional id is, and what its transaction touches
    Describe {
        /// The id
        id: String,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

/// When an open transaction that nobody writes to is looked at: `transaction.max.timeout.ms` by default.
const HANGING_AFTER_MS: u64 = 900_000;

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut client = Client::connect(&args.cluster.bootstrap)?;
    match &args.command {
        TxnCommand::List { states, format } => list(&client.transactions(states)?, *format),
        TxnCommand::Describe { id, format } => describe(id, &client.transaction(id)?, *format),
        TxnCommand::FindHanging { topic, older_than_ms, format } => {
            let quiet_since_ms = now_ms().saturating_sub_unsigned(*older_than_ms);
            hanging(&client.hanging_transactions(topic.as_deref(), quiet_since_ms)?, *format)
        }
        TxnCommand::Abort { topic, partition, start_offset } => {
            let open = client.open_transactions(Some(topic))?;
            let found = open.iter().find(|one| one.partition == *partition && one.start_offset == *start_offset);
            let Some(one) = found else {
                bail!("no transaction is open in {topic} partition {partition} from offset {start_offset} on");
            };
            client.abort_open(one)?;
            output::line(format!("aborted producer {} in {topic} partition {partition}", one.producer_id))?;
            Ok(())
        }
    }
}

fn list(all: &[TxnSummary], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Table => {
            let row = |one: &TxnSummary| [one.id.clone(), one.producer_id.to_string(), one.state.clone()];
            output::table(["transactional id", "producer id", "state"], all.iter().map(row))?;
        }
        Format::Json => {
            for one in all {
                let (id, producer_id, state) = (&one.id, one.producer_id, &one.state);
                output::line(json!({ "transactional_id": id, "producer_id": producer_id, "state": state }))?;
            }
        }
    }
    Ok(())
}

fn describe(id: &str, one: &TxnView, format: Format) -> anyhow::Result<()> {
    let start_ms = (one.start_ms >= 0).then_some(one.start_ms);
    if format == Format::Json {
        let partition = |(topic, partitions): &(String, Vec<i32>)| json!({ "topic": topic, "partitions": partitions });
        output::line(json!({
            "transactional_id": id,
            "producer_id": one.producer_id,
            "epoch": one.epoch,
            "state": one.state,
            "timeout_ms": one.timeout_ms,
            "began": start_ms,
            "topics": one.partitions.iter().map(partition).collect::<Vec<_>>(),
        }))?;
        return Ok(());
    }
    let list = |indexes: &[i32]| indexes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut rows = vec![
        ["state".to_owned(), one.state.clone()],
        ["producer id".to_owned(), one.producer_id.to_string()],
        ["epoch".to_owned(), one.epoch.to_string()],
        ["timeout ms".to_owned(), one.timeout_ms.to_string()],
        ["began".to_owned(), start_ms.map_or_else(|| "-".to_owned(), super::dump::time)],
    ];
    rows.extend(one.partitions.iter().map(|(topic, indexes)| [format!("topic {topic}"), list(indexes)]));
    output::table(["transactional id", id], rows)?;
    Ok(())
}

fn hanging(all: &[OpenTxn], format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        for one in all {
            output::line(json!({
                "topic": one.topic,
                "partition": one.partition,
                "producer_id": one.producer_id,
                "epoch": one.epoch,
                "coordinator_epoch": one.coordinator_epoch,
                "start_offset": one.start_offset,
                "last_write": one.last_ms,
            }))?;
        }
        return Ok(());
    }
    let row = |one: &OpenTxn| {
        [
            one.topic.clone(),
            one.partition.to_string(),
            one.producer_id.to_string(),
            one.epoch.to_string(),
            one.start_offset.to_string(),
            super::dump::time(one.last_ms),
        ]
    };
    output::table(["topic", "partition", "producer id", "epoch", "start offset", "last write"], all.iter().map(row))?;
    Ok(())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_printed() {
        let view = TxnView {
            state: "Ongoing".to_owned(),
            producer_id: 7,
            epoch: 1,
            timeout_ms: 60_000,
            start_ms: -1,
            partitions: vec![("t".to_owned(), vec![0, 2])],
        };
        let all = [TxnSummary { id: "x".to_owned(), producer_id: 7, state: "Ongoing".to_owned() }];
        for format in [Format::Table, Format::Json] {
            describe("x", &view, format).expect("printed");
            list(&all, format).expect("printed");
        }
    }
}
