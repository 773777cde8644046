//! Who may commit and fetch offsets of a consumer group (contract G17).

use std::cmp::Ordering;

use super::Consumer;
use super::member::Member;
use crate::code::ErrorCode;
use crate::groups::offsets::metadata_fits;
use crate::groups::turn::Turn;
use crate::groups::{Commit, FetchOffsets};
use crate::ids::PartitionKey;

/// Version of OffsetCommit from which a member of KIP-848 may use it.
const COMMIT_VERSION_MIN: i16 = 9;

impl Consumer {
    /// Contract G17.1 to G17.3 and G17.7. All partitions or none.
    pub fn check_commit(&mut self, commit: &Commit, turn: &mut Turn<'_>) -> Result<(), ErrorCode> {
        if self.members.is_empty() && commit.generation < 0 {
            return Ok(());
        }
        let member = self.members.get(&*commit.member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if !member.is_classic() && commit.version < COMMIT_VERSION_MIN {
            return Err(ErrorCode::UnsupportedVersion);
        }
        let epoch = member.current.epoch;
        if commit.generation == epoch {
            return Ok(());
        }
        let stale = stale_code(member);
        if commit.generation > epoch {
            return Err(stale);
        }
        let units_max = turn.settings.offset_metadata_units_max;
        let fits = |text: &Option<String>| {
            text.as_ref().is_none_or(|text| text.len() <= units_max || text.encode_utf16().count() <= units_max)
        };
        // What is refused for its metadata has been by now, and does not fail the others.
        let mut partitions = commit.partitions.iter().filter(|partition| fits(&partition.metadata));
        let is_theirs = partitions.all(|partition| is_held(member, partition.key, commit.generation));
        if is_theirs { Ok(()) } else { Err(stale) }
    }

    /// Eos contract C4.3, for a commit that names a membership; the instance id is not looked at.
    /// All partitions or none.
    pub fn check_txn_commit(&self, commit: &Commit, turn: &Turn<'_>) -> Result<(), ErrorCode> {
        if self.members.is_empty() && commit.generation < 0 {
            return Ok(());
        }
        let member = self.members.get(&*commit.member_id).ok_or(ErrorCode::UnknownMemberId)?;
        let mut partitions = commit.partitions.iter().filter(|partition| metadata_fits(partition, turn.settings));
        let is_theirs = match commit.generation.cmp(&member.current.epoch) {
            Ordering::Equal => true,
            Ordering::Greater => false,
            Ordering::Less => partitions.all(|partition| is_held(member, partition.key, commit.generation)),
        };
        if is_theirs { Ok(()) } else { Err(ErrorCode::IllegalGeneration) }
    }

    /// Contract G17.4.
    pub fn check_fetch(&self, fetch: &FetchOffsets) -> Result<(), ErrorCode> {
        let Some(id) = &fetch.member_id else {
            return if fetch.member_epoch < 0 { Ok(()) } else { Err(ErrorCode::UnknownServerError) };
        };
        let member = self.members.get(&**id).ok_or(ErrorCode::UnknownMemberId)?;
        if fetch.member_epoch == member.current.epoch { Ok(()) } else { Err(stale_code(member)) }
    }
}

/// Whether the member had the partition, and may not have lost it yet, at this epoch.
fn is_held(member: &Member, key: PartitionKey, epoch: i32) -> bool {
    let since = member.current.assigned.since(key).or_else(|| member.current.revoking.since(key));
    since.is_some_and(|since| since <= epoch)
}

/// Classic members know generations, not epochs.
fn stale_code(member: &Member) -> ErrorCode {
    if member.is_classic() { ErrorCode::IllegalGeneration } else { ErrorCode::StaleMemberEpoch }
}
