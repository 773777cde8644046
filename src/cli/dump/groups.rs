//! What a start would know of groups, from the slots of a data directory: their checkpoints and journals.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use oncilla_shards::groups::{Entry, OffsetRow, OffsetsEntry, TopicText};
use oncilla_shards::ids::{ProducerEpoch, ProducerId, TimestampMs};
use oncilla_shards::txn::Outcome;
use serde_json::json;

use super::log::time;
use super::slots::read;
use crate::cli::output::{self, Format};
use crate::disk::layout::{DataDir, checkpoint_name};
use crate::disk::slot_files::list_blocking;

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
        let read = read::<Entry>(&directory, &checkpoint_name(slot), &files)?;
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

/// One committed offset: group, topic id, partition, offset, leader epoch, metadata, time.
type Row = (String, String, i32, i64, i32, String, i64);

type Key = (String, String, i32);

/// What the entries of groups add up to: committed offsets with the place of their entry, and those of transactions
/// that have not ended, which are not told.
#[derive(Default)]
struct Sum {
    committed: BTreeMap<Key, (usize, Row)>,
    pending: BTreeMap<(ProducerId, Key), (ProducerEpoch, usize, Row)>,
}

impl Sum {
    fn offsets(&mut self, place: usize, group: &str, entry: OffsetsEntry) {
        let rows_of = |at: TimestampMs, topics: Vec<(TopicText, Vec<OffsetRow>)>| {
            let rows = topics.into_iter().flat_map(|(topic, rows)| rows.into_iter().map(move |row| (topic, row)));
            rows.map(move |(topic, row)| {
                let topic = topic.0.to_base64();
                let key = (group.to_owned(), topic.clone(), row.0);
                (key, (group.to_owned(), topic, row.0, row.1, row.2, row.3, at.0))
            })
        };
        match entry {
            OffsetsEntry::Committed { at, topics, .. } => {
                self.committed.extend(rows_of(at, topics).map(|(key, row)| (key, (place, row))));
            }
            OffsetsEntry::Pending { producer_id, epoch, at, topics } => {
                let rows = rows_of(at, topics).map(|(key, row)| ((producer_id, key), (epoch, place, row)));
                self.pending.extend(rows);
            }
            OffsetsEntry::Ended { producer_id, epoch, version, outcome } => {
                let is_over = |at: ProducerEpoch| if version >= 2 { at < epoch } else { at <= epoch };
                let ends = |(id, key): &(ProducerId, Key), pending: &mut (ProducerEpoch, usize, Row)| {
                    *id == producer_id && key.0 == group && is_over(pending.0)
                };
                for ((_, key), (_, place, row)) in self.pending.extract_if(.., ends) {
                    let is_later = self.committed.get(&key).is_none_or(|(before, _)| *before < place);
                    if outcome == Outcome::Commit && is_later {
                        self.committed.insert(key, (place, row));
                    }
                }
            }
            OffsetsEntry::Forgotten { topics } => {
                for (topic, indexes) in topics {
                    let topic = topic.0.to_base64();
                    let is_meant = |key: &Key| key.0 == group && key.1 == topic && indexes.contains(&key.2);
                    self.committed.retain(|key, _| !is_meant(key));
                    self.pending.retain(|(_, key), _| !is_meant(key));
                }
            }
        }
    }
}

/// The offsets that are committed after all entries.
fn offsets(entries: impl Iterator<Item = Entry>) -> Vec<Row> {
    let mut sum = Sum::default();
    for (place, entry) in entries.enumerate() {
        let group = entry.group().to_string();
        match entry {
            Entry::Gone { .. } => {
                sum.committed.retain(|(name, ..), _| *name != group);
                sum.pending.retain(|(_, (name, ..)), _| *name != group);
            }
            Entry::Offsets { entry, .. } => sum.offsets(place, &group, entry),
            // Members are shown as entries: what they add up to is the broker's business.
            Entry::Classic { .. } | Entry::Consumer { .. } => {}
        }
    }
    sum.committed.into_values().map(|(_, row)| row).collect()
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
    use oncilla_shards::ids::{LeaderEpoch, SlotId, TopicId};
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
    fn f71_offsets_of_a_transaction_are_told_when_it_has_committed_and_nothing_later_is_there() {
        let row = |offset| vec![(TopicText(TopicId(1)), vec![OffsetRow(0, offset, -1, String::new())])];
        let pending = |id, offset| {
            let (producer_id, epoch, at) = (ProducerId(id), ProducerEpoch(0), TimestampMs(5));
            let entry = OffsetsEntry::Pending { producer_id, epoch, at, topics: row(offset) };
            Entry::Offsets { group: "a".into(), entry }
        };
        let ended = |id, outcome| {
            let (producer_id, epoch) = (ProducerId(id), ProducerEpoch(0));
            let entry = OffsetsEntry::Ended { producer_id, epoch, version: 0, outcome };
            Entry::Offsets { group: "a".into(), entry }
        };
        let told = |entries: Vec<Entry>| offsets(entries.into_iter()).iter().map(|row| row.3).collect::<Vec<_>>();
        assert_eq!(told(vec![committed("a", 1), pending(1, 2)]), [1]);
        assert_eq!(told(vec![committed("a", 1), pending(1, 2), ended(1, Outcome::Abort)]), [1]);
        assert_eq!(told(vec![committed("a", 1), pending(1, 2), ended(1, Outcome::Commit)]), [2]);
        assert_eq!(told(vec![pending(1, 2), committed("a", 1), ended(1, Outcome::Commit)]), [1]);
        let (x, y) = (ended(1, Outcome::Commit), ended(2, Outcome::Commit));
        assert_eq!(told(vec![pending(1, 2), pending(2, 3), y, x]), [3]);
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
        let read = read::<Entry>(&directory, &checkpoint_name(slot), &files).expect("read");
        assert!(read.damaged.len() == 1 && read.damaged[0].contains(&format!("byte {whole}")), "{:?}", read.damaged);
        let rows = offsets(read.entries.into_iter());
        assert_eq!(rows, [("a".to_owned(), TopicId(1).to_base64(), 0, 9, -1, "m".to_owned(), 5)]);
        assert_eq!(std::fs::read(&path).expect("there").len(), journal.len() - 3, "nothing is changed");
    }
}
