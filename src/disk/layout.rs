//! Names of everything under the data directory: the only place that formats or parses one.
//!
//! A name that does not parse exactly is not ours, and the callers leave it alone.

use std::path::{Path, PathBuf};

use oncilla_shards::ids::{BrokerId, LeaderEpoch, Offset, SlotId, TopicId};
use oncilla_shards::limits::SLOTS;
use oncilla_shards::partition::SegmentId;

/// Longest part of a topic's name that its directory carries. File systems allow 255 bytes, the id and the suffix of
/// a deleted directory need 32, and the id alone tells topics apart.
const DIR_NAME_TOPIC_BYTES_MAX: usize = 200;

/// Suffix of a directory whose topic is deleted.
pub const DELETED_SUFFIX: &str = ".deleted";

/// Suffix of a cleaned segment until it takes its sources' place.
pub const CLEANED_SUFFIX: &str = ".cleaned";

/// Suffix of a file set aside by recovery.
pub const DAMAGED_SUFFIX: &str = ".damaged";

const ID_CHARS: usize = 22;
const OFFSET_DIGITS: usize = 20;

/// The data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir(PathBuf);

impl DataDir {
    /// The data directory at `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Held exclusively by the broker that uses the directory.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.0.join("meta.lock")
    }

    /// Where the topics are.
    #[must_use]
    pub fn topics(&self) -> PathBuf {
        self.0.join("topics")
    }

    /// One topic.
    #[must_use]
    pub fn topic(&self, name: &str, id: TopicId) -> PathBuf {
        self.topics().join(topic_dir_name(name, id))
    }

    /// One partition of a topic.
    #[must_use]
    pub fn partition(&self, name: &str, id: TopicId, index: i32) -> PathBuf {
        self.topic(name, id).join(partition_dir_name(index))
    }

    /// State that belongs to no topic.
    #[must_use]
    pub fn cluster(&self) -> PathBuf {
        self.0.join("__cluster")
    }

    /// The persisted image: topics, settings.
    #[must_use]
    pub fn metadata(&self) -> PathBuf {
        self.cluster().join("metadata.json")
    }

    /// Boot epoch and cluster id.
    #[must_use]
    pub fn epoch(&self) -> PathBuf {
        self.cluster().join("epoch.json")
    }

    /// Where the producer-id blocks are.
    #[must_use]
    pub fn producer_ids_dir(&self) -> PathBuf {
        self.cluster().join("producer_ids")
    }

    /// Where the slots of one kind are.
    #[must_use]
    pub fn slots(&self, kind: &str) -> PathBuf {
        self.cluster().join(kind)
    }

    /// Fence log of one broker.
    #[must_use]
    pub fn producer_fences(&self, broker: BrokerId) -> PathBuf {
        self.cluster().join("producer_fences").join(format!("{broker}.log"))
    }

    /// Producer-id block of one broker.
    #[must_use]
    pub fn producer_ids(&self, broker: BrokerId) -> PathBuf {
        self.producer_ids_dir().join(format!("{broker}.json"))
    }
}

/// `<name>.<topic id>`; of a long name only the beginning, followed by `~`, which no topic name contains.
#[must_use]
pub fn topic_dir_name(name: &str, id: TopicId) -> String {
    match name.get(..DIR_NAME_TOPIC_BYTES_MAX) {
        Some(start) if name.len() > DIR_NAME_TOPIC_BYTES_MAX => format!("{start}~.{id}"),
        _ => format!("{name}.{id}"),
    }
}

/// The topic id in a topic directory's name.
#[must_use]
pub fn parse_topic_dir_name(name: &str) -> Option<TopicId> {
    let dot = name.len().checked_sub(ID_CHARS + 1)?;
    let (topic, id) = (name.get(..dot)?, name.get(dot..)?.strip_prefix('.')?);
    if topic.is_empty() { None } else { TopicId::from_base64(id) }
}

/// The partition's index in decimal.
#[must_use]
pub fn partition_dir_name(index: i32) -> String {
    index.to_string()
}

/// The index in a partition directory's name.
#[must_use]
pub fn parse_partition_dir_name(name: &str) -> Option<i32> {
    let index: i32 = name.parse().ok()?;
    (index >= 0 && index.to_string() == name).then_some(index)
}

/// A file that belongs to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentFile {
    /// The record batches.
    Log,
    /// Offset index.
    Index,
    /// Time index.
    TimeIndex,
    /// Aborted transactions whose markers are in it.
    Aborted,
}

impl SegmentFile {
    /// All of them, the log first.
    pub const ALL: [Self; 4] = [Self::Log, Self::Index, Self::TimeIndex, Self::Aborted];
}

impl SegmentFile {
    fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Index => "index",
            Self::TimeIndex => "timeindex",
            Self::Aborted => "txnindex",
        }
    }
}

/// Names and paths of a segment's files.
pub trait SegmentPaths {
    /// Name of one of the segment's files.
    fn file(self, kind: SegmentFile) -> String;

    /// Path of one of the segment's files.
    fn path(self, partition: &Path, kind: SegmentFile) -> PathBuf;
}

impl SegmentPaths for SegmentId {
    fn file(self, kind: SegmentFile) -> String {
        assert!(self.base.0 >= 0 && self.epoch.0 >= 0, "segment {} of epoch {}", self.base, self.epoch);
        let generation = if self.generation == 0 { String::new() } else { format!(".{}", self.generation) };
        format!("{:020}.{}{generation}.{}", self.base.0, self.epoch, kind.extension())
    }

    fn path(self, partition: &Path, kind: SegmentFile) -> PathBuf {
        partition.join(self.file(kind))
    }
}

/// Reads what [`SegmentPaths::file`] wrote.
#[must_use]
pub fn parse_segment_file(name: &str) -> Option<(SegmentId, SegmentFile)> {
    let (stem, extension) = name.rsplit_once('.')?;
    let (base, epoch) = stem.split_once('.')?;
    let kind = SegmentFile::ALL.into_iter().find(|k| k.extension() == extension)?;
    let (epoch, generation) = match epoch.split_once('.') {
        Some((epoch, generation)) => (epoch, generation.parse().ok()?),
        None => (epoch, 0),
    };
    let segment = SegmentId { base: parse_offset(base)?, epoch: LeaderEpoch(epoch.parse().ok()?), generation };
    (segment.epoch.0 >= 0 && segment.file(kind) == name).then_some((segment, kind))
}

/// Name of the producer snapshot that covers everything before `offset`.
#[must_use]
pub fn snapshot_name(offset: Offset) -> String {
    assert!(offset.0 >= 0, "snapshot at {offset}");
    format!("{:020}.snapshot", offset.0)
}

/// The offset in a snapshot's name.
#[must_use]
pub fn parse_snapshot_name(name: &str) -> Option<Offset> {
    parse_offset(name.strip_suffix(".snapshot")?)
}

/// Name of a slot's checkpoint.
#[must_use]
pub fn checkpoint_name(slot: SlotId) -> String {
    assert!(slot.0 < SLOTS, "there is no slot {slot}");
    format!("slot-{:02}.json", slot.0)
}

/// The slot in a checkpoint's name.
#[must_use]
pub fn parse_checkpoint_name(name: &str) -> Option<SlotId> {
    parse_slot(name.strip_suffix(".json")?)
}

/// A journal of a slot; the order is the one in which a slot's journals were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalId {
    /// Whose it is.
    pub slot: SlotId,
    /// Of the start that wrote it.
    pub epoch: LeaderEpoch,
    /// Which of that start's.
    pub roll: u32,
}

impl JournalId {
    /// Name of the file.
    #[must_use]
    pub fn file(self) -> String {
        assert!(self.slot.0 < SLOTS && self.epoch.0 >= 0, "slot {} of epoch {}", self.slot, self.epoch);
        format!("slot-{:02}.{}.{}.journal", self.slot.0, self.epoch, self.roll)
    }
}

/// Reads what [`JournalId::file`] wrote.
#[must_use]
pub fn parse_journal_name(name: &str) -> Option<JournalId> {
    let mut parts = name.strip_suffix(".journal")?.splitn(3, '.');
    let slot = parse_slot(parts.next()?)?;
    let epoch = LeaderEpoch(parts.next()?.parse().ok()?);
    let journal = JournalId { slot, epoch, roll: parts.next()?.parse().ok()? };
    (epoch.0 >= 0 && journal.file() == name).then_some(journal)
}

fn parse_slot(stem: &str) -> Option<SlotId> {
    let digits = stem.strip_prefix("slot-")?;
    let slot = SlotId(digits.parse().ok()?);
    (slot.0 < SLOTS && format!("{:02}", slot.0) == digits).then_some(slot)
}

/// Name of the file with what compaction did to a partition.
pub const COMPACTION_NAME: &str = "compaction.json";

/// Name of the file with a partition's log start.
pub const LOG_START_NAME: &str = "log-start.json";

fn parse_offset(digits: &str) -> Option<Offset> {
    let all_digits = digits.len() == OFFSET_DIGITS && digits.bytes().all(|c| c.is_ascii_digit());
    if all_digits { digits.parse().ok().map(Offset) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TopicId = TopicId(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);

    #[test]
    fn paths_are_those_of_the_design() {
        let dir = DataDir::new("/d");
        assert_eq!(dir.partition("a.b", ID, 3), Path::new("/d/topics/a.b.ASNFZ4mrze_-3LqYdlQyEA/3"));
        assert_eq!(dir.producer_ids(BrokerId(2)), Path::new("/d/__cluster/producer_ids/2.json"));
        assert_eq!(dir.metadata(), Path::new("/d/__cluster/metadata.json"));
        assert_eq!(dir.epoch(), Path::new("/d/__cluster/epoch.json"));
        assert_eq!(dir.lock_file(), Path::new("/d/meta.lock"));
        let segment = SegmentId::new(Offset(42), LeaderEpoch(7));
        assert_eq!(segment.path(Path::new("/p"), SegmentFile::Log), Path::new("/p/00000000000000000042.7.log"));
        let cleaned = SegmentId { generation: 3, ..segment };
        assert_eq!(cleaned.file(SegmentFile::Index), "00000000000000000042.7.3.index");
        assert_eq!(snapshot_name(Offset(42)), "00000000000000000042.snapshot");
        assert_eq!(dir.slots("group_state"), Path::new("/d/__cluster/group_state"));
        assert_eq!(checkpoint_name(SlotId(7)), "slot-07.json");
        let journal = JournalId { slot: SlotId(49), epoch: LeaderEpoch(3), roll: 12 };
        assert_eq!(journal.file(), "slot-49.3.12.journal");
    }

    #[test]
    fn every_name_parses_back() {
        for (base, epoch, generation) in [(0, 0, 0), (i64::MAX, i32::MAX, u32::MAX), (10, 3, 1)] {
            let segment = SegmentId { base: Offset(base), epoch: LeaderEpoch(epoch), generation };
            for kind in SegmentFile::ALL {
                assert_eq!(parse_segment_file(&segment.file(kind)), Some((segment, kind)));
            }
            assert_eq!(parse_snapshot_name(&snapshot_name(Offset(base))), Some(Offset(base)));
        }
        for (slot, epoch, roll) in [(0, 0, 0), (49, i32::MAX, u32::MAX), (10, 3, 2)] {
            let journal = JournalId { slot: SlotId(slot), epoch: LeaderEpoch(epoch), roll };
            assert_eq!(parse_journal_name(&journal.file()), Some(journal));
            assert_eq!(parse_checkpoint_name(&checkpoint_name(SlotId(slot))), Some(SlotId(slot)));
        }
        assert_eq!(parse_topic_dir_name(&topic_dir_name("x.y-z_", ID)), Some(ID));
        assert_eq!(parse_partition_dir_name(&partition_dir_name(9_999)), Some(9_999));
    }

    #[test]
    fn foreign_names_are_not_ours() {
        for name in [
            "0.1.log",
            "00000000000000000042.log",
            "00000000000000000042.-1.log",
            "00000000000000000042.01.log",
            "00000000000000000042.1.0.log",
            "00000000000000000042.1.2.3.log",
            "00000000000000000042.1.2.log.cleaned",
            "00000000000000000042.1.log.damaged",
            "+0000000000000000042.1.log",
            "99999999999999999999.1.log",
        ] {
            assert_eq!(parse_segment_file(name), None, "{name}");
        }
        for name in [
            "slot-1.1.0.journal",
            "slot-50.1.0.journal",
            "slot-01.-1.0.journal",
            "slot-01.1.journal",
            "slot-01.1.00.journal",
            "slot-01.1.0.0.journal",
            "slot-+1.1.0.journal",
            "slot-01.json",
        ] {
            assert_eq!(parse_journal_name(name), None, "{name}");
        }
        for name in ["slot-1.json", "slot-50.json", "slot-001.json", "slot-01.json.tmp-1-1", "slot-.json"] {
            assert_eq!(parse_checkpoint_name(name), None, "{name}");
        }
        assert_eq!(parse_topic_dir_name(".ASNFZ4mrze_-3LqYdlQyEA"), None);
        assert_eq!(parse_topic_dir_name("t.ASNFZ4mrze_-3LqYdlQyEA.deleted"), None);
        assert_eq!(parse_partition_dir_name("-1"), None);
        assert_eq!(parse_partition_dir_name("01"), None);
    }

    #[test]
    fn k19_5_the_longest_topic_name_fits_a_file_name_even_when_deleted() {
        let name = "n".repeat(oncilla_shards::limits::TOPIC_NAME_BYTES_MAX);
        let dir = topic_dir_name(&name, ID);
        assert!(dir.len() + DELETED_SUFFIX.len() <= 255);
        assert_eq!(parse_topic_dir_name(&dir), Some(ID));
    }
}
