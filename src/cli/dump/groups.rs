//! What a start would know of groups, from the slots of a data directory: their checkpoints and journals.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use oncilla_shards::groups::{Entry, OffsetsEntry};
use oncilla_shards::slot::rebuild::Rebuild;
use serde_json::json;

use super::log::time;
use crate::cli::output::{self, Format};
use crate::disk::layout::{DataDir, checkpoint_name};
use crate::disk::slot_files::{SlotFiles, list_blocking};

/// What to read and how to print it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The data directory
    data: PathBuf,
    /// Only this group [default: all]
    #[arg(short, long)]
    group: Option<String>,
    /// Print the entries as they are stored, one JSON object a line, instead of what they add up to
    #[arg(short, long)]
    entries: bool,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Prints the offsets of every group, or all entries; exits with 1 when a journal or checkpoint is damaged.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.data.is_dir(), "{}: no directory", args.data.display());
    let directory = DataDir::new(&args.data).slots("group_state");
    let mut code = ExitCode::SUCCESS;
    let mut rows = Vec::new();
    for (slot, files) in list_blocking(&directory, |_| true)? {
        let read = read(&directory, &checkpoint_name(slot), &files)?;
        for damage in &read.damaged {
            eprintln!("{damage}");
            code = ExitCode::FAILURE;
        }
        let wanted = |entry: &Entry| args.group.as_ref().is_none_or(|group| **group == **entry.group());
        let entries = read.entries.into_iter().filter(wanted);
        if args.entries {
            for entry in entries {
                output::line(json!({ "slot": slot, "entry": entry }))?;
            }
        } else {
            rows.extend(offsets(entries));
        }
    }
    if !args.entries {
        rows.sort_unstable();
        print(&rows, args.format)?;
    }
    Ok(code)
}

/// A slot as its files tell it, up to the first damage.
struct Read {
    entries: Vec<Entry>,
    damaged: Vec<String>,
}

fn read(directory: &Path, checkpoint: &str, files: &SlotFiles) -> anyhow::Result<Read> {
    let mut damaged = Vec::new();
    let path = directory.join(checkpoint);
    let stored = files.checkpoint.then(|| std::fs::read(&path)).transpose();
    let stored = stored.with_context(|| path.display().to_string())?;
    let mut rebuild = match Rebuild::<Entry>::new(stored.as_deref()) {
        Ok(rebuild) => rebuild,
        Err(error) => return Ok(Read { entries: Vec::new(), damaged: vec![format!("{}: {error}", path.display())] }),
    };
    for journal in &files.journals {
        let path = directory.join(journal.file());
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        match rebuild.journal(&bytes) {
            Ok(end) if end.stop.is_clean() => {}
            Ok(end) => damaged.push(format!("{}: ends at byte {}: {}", path.display(), end.bytes, end.stop)),
            Err(error) => {
                damaged.push(format!("{}: {error}", path.display()));
                break;
            }
        }
    }
    Ok(Read { entries: rebuild.finish().1, damaged })
}

/// One committed offset: group, topic id, partition, offset, leader epoch, metadata, time.
type Row = (String, String, i32, i64, i32, String, i64);

/// What the entries of groups add up to.
fn offsets(entries: impl Iterator<Item = Entry>) -> Vec<Row> {
    let mut rows: BTreeMap<(String, String, i32), Row> = BTreeMap::new();
    for entry in entries {
        let group = entry.group().to_string();
        match entry {
            Entry::Gone { .. } => rows.retain(|(name, ..), _| *name != group),
            Entry::Offsets { entry: OffsetsEntry::Committed { at, topics, .. }, .. } => {
                for (topic, of_topic) in topics {
                    let topic = topic.0.to_base64();
                    for row in of_topic {
                        let key = (group.clone(), topic.clone(), row.0);
                        rows.insert(key, (group.clone(), topic.clone(), row.0, row.1, row.2, row.3, at.0));
                    }
                }
            }
            Entry::Offsets { entry: OffsetsEntry::Forgotten { topics }, .. } => {
                for (topic, indexes) in topics {
                    let topic = topic.0.to_base64();
                    indexes.into_iter().for_each(|index| drop(rows.remove(&(group.clone(), topic.clone(), index))));
                }
            }
            // Members are shown as entries: what they add up to is the broker's business.
            Entry::Classic { .. } | Entry::Consumer { .. } => {}
        }
    }
    rows.into_values().collect()
}

fn print(rows: &[Row], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Table => {
            let row = |(group, topic, partition, offset, epoch, metadata, at): &Row| {
                let (partition, offset, epoch) = (partition.to_string(), offset.to_string(), epoch.to_string());
                [group.clone(), topic.clone(), partition, offset, epoch, time(*at), metadata.clone()]
            };
            let names = ["group", "topic id", "partition", "offset", "epoch", "committed", "metadata"];
            output::table(names, rows.iter().map(row))?;
        }
        Format::Json => {
            for (group, topic, partition, offset, epoch, metadata, at) in rows {
                output::line(json!({
                    "group": group,
                    "topic_id": topic,
                    "partition": partition,
                    "offset": offset,
                    "leader_epoch": epoch,
                    "metadata": metadata,
                    "committed": at,
                }))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use oncilla_shards::groups::{OffsetRow, TopicText};
    use oncilla_shards::ids::{LeaderEpoch, SlotId, TimestampMs, TopicId};
    use oncilla_shards::slot::Position;
    use oncilla_shards::slot::checkpoint;
    use oncilla_shards::slot::line::write_line;

    use super::*;
    use crate::disk::layout::JournalId;

    fn committed(group: &str, offset: i64) -> Entry {
        let topics = vec![(TopicText(TopicId(1)), vec![OffsetRow(0, offset, -1, "m".into())])];
        let entry = OffsetsEntry::Committed { at: TimestampMs(5), expires: None, topics };
        Entry::Offsets { group: group.into(), entry }
    }

    #[test]
    fn a_slot_is_its_checkpoint_and_its_journals_up_to_the_damage() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = DataDir::new(dir.path()).slots("group_state");
        std::fs::create_dir_all(&directory).expect("made");
        let slot = SlotId(3);
        let stored = checkpoint::encode(Position(2), &[committed("a", 1), committed("b", 2)]);
        std::fs::write(directory.join(checkpoint_name(slot)), stored).expect("written");
        let mut journal = Vec::new();
        write_line(Position(3), &committed("a", 9), &mut journal);
        write_line(Position(4), &Entry::Gone { group: "b".into() }, &mut journal);
        let whole = journal.len();
        write_line(Position(5), &committed("c", 1), &mut journal);
        let path = directory.join(JournalId { slot, epoch: LeaderEpoch(1), roll: 0 }.file());
        std::fs::write(&path, &journal[..journal.len() - 3]).expect("written");
        let files = list_blocking(&directory, |_| true).expect("listed").remove(&slot).expect("the slot");
        let read = read(&directory, &checkpoint_name(slot), &files).expect("read");
        assert!(read.damaged.len() == 1 && read.damaged[0].contains(&format!("byte {whole}")), "{:?}", read.damaged);
        let rows = offsets(read.entries.into_iter());
        assert_eq!(rows, [("a".to_owned(), TopicId(1).to_base64(), 0, 9, -1, "m".to_owned(), 5)]);
        assert_eq!(std::fs::read(&path).expect("there").len(), journal.len() - 3, "nothing is changed");
    }
}
