//! `oncilla txn list|describe`.

use clap::Subcommand;
use serde_json::json;

use super::output::{self, Format};
use super::topic::ClusterArgs;
use crate::client::Client;
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
    /// Show who a transactional id is, and what its transaction touches
    Describe {
        /// The id
        id: String,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut client = Client::connect(&args.cluster.bootstrap)?;
    match &args.command {
        TxnCommand::List { states, format } => list(&client.transactions(states)?, *format),
        TxnCommand::Describe { id, format } => describe(id, &client.transaction(id)?, *format),
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
