//! `oncilla group list|describe|seek|delete|offset-delete`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::UNIX_EPOCH;

use clap::Subcommand;
use serde_json::json;

use super::output::{self, Format};
use super::topic::ClusterArgs;
use crate::client::Client;
use crate::client::groups::{CommittedOffset, Committer, GroupSummary, GroupView, MemberView};
use crate::client::isolation::Isolation;
use crate::client::offsets::{EARLIEST, LATEST};

/// Arguments of `group`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Debug, Subcommand)]
enum GroupCommand {
    /// List groups
    List {
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Show the members of a group, how far it has come in each partition, and how far it is behind
    Describe {
        /// Its id
        group: String,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Change where a group without members goes on
    Seek {
        /// Its id
        group: String,
        /// Where to: start, end, an offset, or a time such as 2026-01-31T12:00:00Z or @1767225600000 (in ms)
        #[arg(long, value_parser = place)]
        to: Place,
        /// Only this topic, once or more [default: all that the group has committed]
        #[arg(short, long = "topic", value_name = "TOPIC")]
        topics: Vec<String>,
        /// Only this partition [default: all]
        #[arg(short, long)]
        partition: Option<i32>,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Delete groups without members, with all they have committed
    Delete {
        /// Their ids
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Forget what a group has committed for a topic that none of its members reads
    OffsetDelete {
        /// Its id
        group: String,
        /// The topic
        #[arg(short, long)]
        topic: String,
        /// Only this partition, once or more [default: all with a committed offset]
        #[arg(short, long = "partition", value_name = "PARTITION")]
        partitions: Vec<i32>,
    },
}

/// Where a group is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    End,
    Offset(i64),
    /// The first record that is not older, in ms since 1970.
    Time(i64),
}

fn place(text: &str) -> Result<Place, String> {
    if let Some(ms) = text.strip_prefix('@') {
        return ms.parse().map(Place::Time).map_err(|_| "a time behind @ is a number of ms since 1970".into());
    }
    match text {
        "start" => Ok(Place::Start),
        "end" => Ok(Place::End),
        text => match text.parse() {
            Ok(offset @ 0..) => Ok(Place::Offset(offset)),
            Ok(_) => Err("an offset is not negative".into()),
            Err(_) => {
                let time = humantime::parse_rfc3339_weak(text);
                let time = time.map_err(|_| "must be start, end, an offset, or a time".to_owned())?;
                let since = time.duration_since(UNIX_EPOCH).map_err(|_| "a time is not before 1970".to_owned())?;
                Ok(Place::Time(i64::try_from(since.as_millis()).map_err(|_| "no such time".to_owned())?))
            }
        },
    }
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut client = Client::connect(&args.cluster.bootstrap)?;
    match &args.command {
        GroupCommand::List { format } => list(&client.groups()?, *format)?,
        GroupCommand::Describe { group, format } => {
            let view = client.group(group)?;
            let rows = progress(&mut client, group, &view)?;
            match format {
                Format::Table => describe(group, &view, &rows)?,
                Format::Json => output::line(serde_json::to_string_pretty(&described(group, &view, &rows))?)?,
            }
        }
        GroupCommand::Seek { group, to, topics, partition, format } => {
            let moved = seek(&mut client, group, *to, topics, *partition)?;
            print_moved(&moved, *format)?;
        }
        GroupCommand::Delete { groups } => {
            for group in groups {
                client.delete_group(group)?;
            }
        }
        GroupCommand::OffsetDelete { group, topic, partitions } => {
            let committed = client.committed(group)?;
            let of_topic = committed.iter().filter(|one| one.topic == *topic).map(|one| one.partition);
            let indexes: Vec<i32> = if partitions.is_empty() { of_topic.collect() } else { partitions.clone() };
            let keys: Vec<_> = indexes.into_iter().map(|index| (topic.clone(), index)).collect();
            client.delete_offsets(group, &keys)?;
        }
    }
    Ok(())
}

fn list(groups: &[GroupSummary], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Table => {
            let row =
                |one: &GroupSummary| [one.name.clone(), one.kind.clone(), one.protocol.clone(), one.state.clone()];
            output::table(["group", "type", "protocol", "state"], groups.iter().map(row))?;
        }
        Format::Json => {
            for GroupSummary { name, kind, protocol, state } in groups {
                output::line(json!({ "group": name, "type": kind, "protocol": protocol, "state": state }))?;
            }
        }
    }
    Ok(())
}

/// How far a group is in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Progress {
    topic: String,
    partition: i32,
    committed: Option<i64>,
    end: Option<i64>,
    member: Option<String>,
}

impl Progress {
    /// Records that the group has not read, `None` where nothing is committed.
    fn lag(&self) -> Option<i64> {
        Some((self.end? - self.committed?).max(0))
    }
}

/// Everything that is committed or assigned, by topic and partition.
fn progress(client: &mut Client, group: &str, view: &GroupView) -> anyhow::Result<Vec<Progress>> {
    let committed = client.committed(group)?;
    let mut rows = merged(&committed, &view.members);
    let topics: BTreeSet<String> = rows.iter().map(|row| row.topic.clone()).collect();
    for name in topics {
        // A topic that is being deleted has no end, and is no reason to show nothing.
        let Ok(topic) = client.topic(&name, false) else { continue };
        let ends = client.offsets_at(&topic, |_| true, LATEST, Isolation::Uncommitted)?;
        for row in rows.iter_mut().filter(|row| row.topic == name) {
            row.end = ends.get(&row.partition).copied();
        }
    }
    Ok(rows)
}

fn merged(committed: &[CommittedOffset], members: &[MemberView]) -> Vec<Progress> {
    let mut rows: BTreeMap<(String, i32), (Option<i64>, Option<String>)> = BTreeMap::new();
    for one in committed {
        rows.entry((one.topic.clone(), one.partition)).or_default().0 = Some(one.offset);
    }
    for member in members {
        for (topic, partitions) in member.assigned.iter().flatten() {
            for partition in partitions {
                rows.entry((topic.clone(), *partition)).or_default().1 = Some(member.id.clone());
            }
        }
    }
    let row = |((topic, partition), (committed, member))| Progress { topic, partition, committed, end: None, member };
    rows.into_iter().map(row).collect()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn describe(group: &str, view: &GroupView, rows: &[Progress]) -> anyhow::Result<()> {
    let total: i64 = rows.iter().filter_map(Progress::lag).sum();
    let assignor = if view.assignor.is_empty() { "-" } else { &view.assignor };
    let (kind, state, members) = (view.kind, &view.state, view.members.len());
    output::line(format!("group {group}  {kind}  {state}  assignor {assignor}  members {members}  lag {total}\n"))?;
    let row = |one: &Progress| {
        let (committed, end, lag) = (or_dash(one.committed), or_dash(one.end), or_dash(one.lag()));
        [one.topic.clone(), one.partition.to_string(), committed, end, lag, or_dash(one.member.as_ref())]
    };
    output::table(["topic", "partition", "committed", "end", "lag", "member"], rows.iter().map(row))?;
    if !view.members.is_empty() {
        output::line("")?;
        let row = |one: &MemberView| {
            let instance = or_dash(one.instance.as_ref());
            let partitions = one.assigned.as_ref().map(|topics| topics.values().map(Vec::len).sum::<usize>());
            [one.id.clone(), instance, one.client.clone(), one.host.clone(), or_dash(one.epoch), or_dash(partitions)]
        };
        let names = ["member", "instance", "client", "host", "epoch", "partitions"];
        output::table(names, view.members.iter().map(row))?;
    }
    Ok(())
}

fn described(group: &str, view: &GroupView, rows: &[Progress]) -> serde_json::Value {
    let partition = |one: &Progress| {
        json!({
            "topic": one.topic,
            "partition": one.partition,
            "committed": one.committed,
            "end": one.end,
            "lag": one.lag(),
            "member": one.member,
        })
    };
    let member = |one: &MemberView| {
        json!({
            "id": one.id,
            "instance": one.instance,
            "client": one.client,
            "host": one.host,
            "epoch": one.epoch,
            "assigned": one.assigned,
        })
    };
    json!({
        "group": group,
        "type": view.kind,
        "state": view.state,
        "assignor": view.assignor,
        "lag": rows.iter().filter_map(Progress::lag).sum::<i64>(),
        "partitions": rows.iter().map(partition).collect::<Vec<_>>(),
        "members": view.members.iter().map(member).collect::<Vec<_>>(),
    })
}

/// A partition in which a group goes on elsewhere: where it was, if anywhere, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moved {
    topic: String,
    partition: i32,
    from: Option<i64>,
    to: i64,
}

fn seek(
    client: &mut Client,
    group: &str,
    to: Place,
    topics: &[String],
    only: Option<i32>,
) -> anyhow::Result<Vec<Moved>> {
    let committed = client.committed(group)?;
    let mut names: BTreeSet<String> = topics.iter().cloned().collect();
    if topics.is_empty() {
        names.extend(committed.iter().map(|one| one.topic.clone()));
        anyhow::ensure!(!names.is_empty(), "group {group} has committed nothing; name a topic with --topic");
    }
    let was: BTreeMap<_, _> = committed.iter().map(|one| ((one.topic.clone(), one.partition), one.offset)).collect();
    let mut offsets = BTreeMap::new();
    for name in names {
        let topic = client.topic(&name, false)?;
        let wanted = |index| {
            let known = !topics.is_empty() || was.contains_key(&(name.clone(), index));
            known && only.is_none_or(|only| only == index)
        };
        let starts = client.offsets_at(&topic, wanted, EARLIEST, Isolation::Uncommitted)?;
        let ends = client.offsets_at(&topic, wanted, LATEST, Isolation::Uncommitted)?;
        let found = match to {
            Place::Time(ms) => client.offsets_at(&topic, wanted, ms, Isolation::Uncommitted)?,
            _ => BTreeMap::new(),
        };
        for (index, start) in starts {
            let end = ends.get(&index).copied().unwrap_or(start);
            let offset = target(to, start, end, found.get(&index).copied());
            let offset = offset.map_err(|why| anyhow::anyhow!("{name}-{index}: {why}"))?;
            offsets.insert((name.clone(), index), offset);
        }
    }
    anyhow::ensure!(!offsets.is_empty(), "no partition to seek in");
    client.commit(group, Committer::OUTSIDE, &offsets)?;
    let moved = |((topic, partition), to): ((String, i32), i64)| {
        let from = was.get(&(topic.clone(), partition)).copied();
        Moved { topic, partition, from, to }
    };
    Ok(offsets.into_iter().map(moved).collect())
}

/// The offset for a partition; `found` is that of the first record that is not older than the time asked for.
fn target(to: Place, start: i64, end: i64, found: Option<i64>) -> Result<i64, String> {
    match to {
        Place::Start => Ok(start),
        Place::End => Ok(end),
        // Nothing that new: what comes next is.
        Place::Time(_) => Ok(found.filter(|offset| *offset >= 0).unwrap_or(end)),
        Place::Offset(offset) if (start..=end).contains(&offset) => Ok(offset),
        Place::Offset(offset) => Err(format!("offset {offset} is not between {start} and {end}")),
    }
}

fn print_moved(moved: &[Moved], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Table => {
            let row =
                |one: &Moved| [one.topic.clone(), one.partition.to_string(), or_dash(one.from), one.to.to_string()];
            output::table(["topic", "partition", "from", "to"], moved.iter().map(row))?;
        }
        Format::Json => {
            for Moved { topic, partition, from, to } in moved {
                output::line(json!({ "topic": topic, "partition": partition, "from": from, "to": to }))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::groups::Assigned;

    #[test]
    fn a_place_is_a_word_an_offset_or_a_time() {
        assert_eq!((place("start"), place("end")), (Ok(Place::Start), Ok(Place::End)));
        assert_eq!(place("17"), Ok(Place::Offset(17)));
        assert_eq!(place("@17"), Ok(Place::Time(17)));
        assert_eq!(place("1970-01-02T00:00:00Z"), Ok(Place::Time(86_400_000)));
        for wrong in ["-1", "", "beginning", "@", "@x", "1960-01-01T00:00:00Z"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_offset_outside_the_log_is_refused_and_a_time_in_the_future_is_the_end() {
        assert_eq!(target(Place::Start, 3, 9, None), Ok(3));
        assert_eq!(target(Place::End, 3, 9, None), Ok(9));
        assert_eq!([3, 9].map(|offset| target(Place::Offset(offset), 3, 9, None)), [Ok(3), Ok(9)]);
        assert!([2, 10].iter().all(|offset| target(Place::Offset(*offset), 3, 9, None).is_err()));
        assert_eq!(target(Place::Time(1), 3, 9, Some(5)), Ok(5));
        assert_eq!(target(Place::Time(1), 3, 9, Some(-1)), Ok(9));
    }

    #[test]
    fn progress_joins_what_is_committed_with_who_has_it() {
        let committed = CommittedOffset { topic: "t".into(), partition: 0, offset: 4, metadata: String::new() };
        let member = MemberView {
            id: "m".into(),
            instance: None,
            client: "c".into(),
            host: "/h".into(),
            epoch: Some(2),
            assigned: Some(Assigned::from([("t".into(), vec![0, 1])])),
        };
        let mut rows = merged(&[committed], std::slice::from_ref(&member));
        rows.iter_mut().for_each(|row| row.end = Some(10));
        let told: Vec<_> = rows.iter().map(|row| (row.partition, row.committed, row.lag())).collect();
        assert_eq!(told, [(0, Some(4), Some(6)), (1, None, None)]);
        assert!(rows.iter().all(|row| row.member.as_deref() == Some("m")));
        let view =
            GroupView { kind: "consumer", state: "Stable".into(), assignor: "uniform".into(), members: vec![member] };
        let told = described("g", &view, &rows);
        assert_eq!((&told["lag"], &told["partitions"][1]["lag"]), (&json!(6), &json!(null)));
        assert_eq!(told["members"][0]["assigned"], json!({ "t": [0, 1] }));
    }
}
