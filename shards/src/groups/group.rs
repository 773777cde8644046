//! One group: its offsets, and its members under one of the two protocols.
//!
//! Dispatches each request to the part that decides about it. A group exists from its first member or commit until it
//! is deleted or expires; what is asked of an absent one leaves nothing behind.

use std::sync::Arc;

use super::classic::Classic;
use super::consumer::{Consumer, ConsumerEntry};
use super::offsets::{Offsets, Retention};
use super::turn::Turn;
use super::{
    Ask, Commit, ConsumerHeartbeatReply, Entry, FetchOffsets, GroupSettings, Joined, Listing, Now, Reply, Synced,
    TxnCommit, convert,
};
use crate::code::ErrorCode;
use crate::ids::{PartitionKey, TopicId};
use crate::image::Image;
use crate::partition::WaiterId;
use crate::slot::Journal;

/// Members under one of the two protocols.
#[derive(Debug)]
pub(super) enum Members {
    /// JoinGroup and SyncGroup; also a group that has offsets alone.
    Classic(Box<Classic>),
    /// ConsumerGroupHeartbeat (KIP-848).
    Consumer(Box<Consumer>),
}

/// Topics that a group reads: their offsets are neither deleted nor expired (contract G10.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subscribed {
    /// None: nobody is there.
    Nothing,
    /// These.
    Topics(std::collections::BTreeSet<TopicId>),
    /// All, because a subscription cannot be read.
    Everything,
}

impl Subscribed {
    pub fn has(&self, topic: TopicId) -> bool {
        match self {
            Self::Nothing => false,
            Self::Topics(topics) => topics.contains(&topic),
            Self::Everything => true,
        }
    }
}

#[derive(Debug)]
pub(super) struct Group {
    name: Arc<str>,
    pub(super) members: Members,
    pub(super) offsets: Offsets,
    /// When the slot looks at it again.
    pub(super) scheduled_ms: Option<u64>,
    /// Up to which generation its rebalances are counted.
    pub(super) counted_generation: i32,
    /// Whether it was created: an absent one that is being asked was not.
    exists: bool,
}

impl Group {
    /// A group that is not there yet.
    pub fn new(name: Arc<str>) -> Self {
        let members = Members::Classic(Box::new(Classic::new()));
        Self { name, members, offsets: Offsets::default(), scheduled_ms: None, counted_generation: 0, exists: false }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it is there after what was asked of it.
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// A request to a group that is not there (contract G2.6, G3.3, G4.2, G5.2, G7.3, G7.8, G8.2, G9.2, G10.1, G11.8).
    pub fn ask_absent(&mut self, ask: Ask, waiter: WaiterId, turn: &mut Turn<'_>) {
        if let Some(refused) = refused_by_form(&ask, turn) {
            return turn.reply(waiter, refused);
        }
        let unknown = ErrorCode::UnknownMemberId;
        let absent = ErrorCode::GroupIdNotFound;
        let reply = match ask {
            Ask::Join(join) => {
                if join.member_id.is_empty() {
                    return self.create(Ask::Join(join), waiter, turn);
                }
                Reply::Join(Joined::refused(unknown, join.member_id))
            }
            Ask::Sync(_) => Reply::Sync(Synced::refused(unknown)),
            Ask::Heartbeat(_) => Reply::Heartbeat(unknown),
            Ask::Leave(leaving) => Reply::Leave(vec![unknown; leaving.len()]),
            Ask::Commit(commit) if commit.partitions.is_empty() => Reply::Commit(Vec::new()),
            Ask::Commit(commit) if commit.generation < 0 => return self.create(Ask::Commit(commit), waiter, turn),
            Ask::Commit(commit) => {
                let code = if commit.version >= 9 { absent } else { ErrorCode::IllegalGeneration };
                Reply::Commit(vec![code; commit.partitions.len()])
            }
            Ask::TxnCommit(asked) if asked.commit.generation < 0 => {
                return self.create(Ask::TxnCommit(asked), waiter, turn);
            }
            Ask::TxnCommit(asked) => Reply::Commit(vec![ErrorCode::IllegalGeneration; asked.commit.partitions.len()]),
            Ask::TxnEnd(_) => Reply::TxnEnded,
            Ask::FetchOffsets(fetch) => Reply::FetchOffsets(self.offsets.fetch(&fetch)),
            Ask::DeleteOffsets(_) => Reply::DeleteOffsets(Err(absent)),
            Ask::Delete => Reply::Delete(absent),
            Ask::Describe => Reply::Describe(Err(absent)),
            Ask::ConsumerHeartbeat(beat) if beat.member_epoch == 0 => {
                return self.create(Ask::ConsumerHeartbeat(beat), waiter, turn);
            }
            Ask::ConsumerHeartbeat(beat) => match Consumer::check_form(&beat, turn) {
                Err(refused) => Reply::ConsumerHeartbeat(refused),
                Ok(()) => {
                    let message = format!("Group {} not found.", self.name);
                    Reply::ConsumerHeartbeat(ConsumerHeartbeatReply::refused(absent, message))
                }
            },
            Ask::ConsumerDescribe => Reply::ConsumerDescribe(Err(absent)),
        };
        turn.reply(waiter, reply);
    }

    /// A request that creates the group unless it is refused.
    fn create(&mut self, ask: Ask, waiter: WaiterId, turn: &mut Turn<'_>) {
        self.ask(ask, waiter, turn);
        self.exists = match &self.members {
            Members::Classic(classic) => !classic.is_blank() || self.offsets.any(),
            Members::Consumer(_) => true,
        };
    }

    /// A request to a group that is there.
    pub fn ask(&mut self, ask: Ask, waiter: WaiterId, turn: &mut Turn<'_>) {
        if let Some(refused) = refused_by_form(&ask, turn) {
            return turn.reply(waiter, refused);
        }
        let reply = match ask {
            Ask::Join(join) => return self.join(join, waiter, turn),
            Ask::Sync(sync) => match &mut self.members {
                Members::Classic(classic) => return classic.sync(&self.name, sync, waiter, turn),
                Members::Consumer(consumer) => Reply::Sync(consumer.classic_sync(&self.name, &sync, turn)),
            },
            Ask::Heartbeat(beat) => Reply::Heartbeat(match &mut self.members {
                Members::Classic(classic) => classic.heartbeat(&beat, turn),
                Members::Consumer(consumer) => consumer.classic_heartbeat(&self.name, &beat, turn),
            }),
            Ask::Leave(leaving) => Reply::Leave(match &mut self.members {
                Members::Classic(classic) => classic.leave(&self.name, &leaving, turn),
                Members::Consumer(_) => convert::leave(self, &leaving, turn),
            }),
            Ask::Commit(commit) => Reply::Commit(self.commit(&commit, turn)),
            Ask::TxnCommit(asked) => Reply::Commit(self.txn_commit(&asked, turn)),
            Ask::TxnEnd(end) => {
                self.offsets.end_transaction(&self.name, &end, turn.journal);
                Reply::TxnEnded
            }
            Ask::FetchOffsets(fetch) => Reply::FetchOffsets(self.fetch_offsets(&fetch)),
            Ask::DeleteOffsets(keys) => Reply::DeleteOffsets(self.delete_offsets(&keys, turn)),
            Ask::Delete => Reply::Delete(self.delete(turn)),
            Ask::Describe => Reply::Describe(match &self.members {
                Members::Classic(classic) => Ok(classic.describe()),
                Members::Consumer(_) => Err(ErrorCode::GroupIdNotFound),
            }),
            Ask::ConsumerHeartbeat(beat) => Reply::ConsumerHeartbeat(self.consumer_heartbeat(&beat, turn)),
            Ask::ConsumerDescribe => Reply::ConsumerDescribe(match &self.members {
                Members::Classic(_) => Err(ErrorCode::GroupIdNotFound),
                Members::Consumer(consumer) => Ok(consumer.describe(turn.settings)),
            }),
        };
        turn.reply(waiter, reply);
    }

    fn join(&mut self, join: super::Join, waiter: WaiterId, turn: &mut Turn<'_>) {
        if matches!(&self.members, Members::Consumer(_)) && !convert::to_classic_for_join(self, &join, turn) {
            let joined = convert::join(self, &join, turn);
            return turn.reply(waiter, Reply::Join(joined));
        }
        let Members::Classic(classic) = &mut self.members else { unreachable!("it was converted") };
        classic.join(&self.name, join, waiter, turn);
    }

    fn consumer_heartbeat(&mut self, beat: &super::ConsumerHeartbeat, turn: &mut Turn<'_>) -> ConsumerHeartbeatReply {
        if let Err(refused) = Consumer::check_form(beat, turn) {
            return refused;
        }
        if let Members::Classic(_) = &self.members
            && let Err(refused) = convert::to_consumer(self, beat, turn)
        {
            return refused;
        }
        convert::heartbeat(self, beat, turn)
    }

    fn commit(&mut self, commit: &Commit, turn: &mut Turn<'_>) -> Vec<ErrorCode> {
        let checked = match &mut self.members {
            Members::Classic(classic) => classic.check_commit(commit, turn),
            Members::Consumer(consumer) => consumer.check_commit(commit, turn),
        };
        self.offsets.commit(&self.name, commit, None, checked, turn)
    }

    /// Contract C4.3: who names no membership may commit whatever the group is.
    fn txn_commit(&mut self, asked: &TxnCommit, turn: &mut Turn<'_>) -> Vec<ErrorCode> {
        let commit = &asked.commit;
        let names_member = commit.generation >= 0 || !commit.member_id.is_empty() || commit.instance_id.is_some();
        let checked = match &self.members {
            _ if !names_member => Ok(()),
            Members::Classic(classic) => classic.check_txn_commit(commit),
            Members::Consumer(consumer) => consumer.check_txn_commit(commit, turn),
        };
        self.offsets.commit(&self.name, commit, Some(asked.producer), checked, turn)
    }

    fn fetch_offsets(&self, fetch: &FetchOffsets) -> super::FetchedOffsets {
        let checked = match &self.members {
            Members::Classic(_) => Ok(()),
            Members::Consumer(consumer) => consumer.check_fetch(fetch),
        };
        match checked {
            Ok(()) => self.offsets.fetch(fetch),
            Err(code) => super::FetchedOffsets { code, partitions: Vec::new() },
        }
    }

    fn delete_offsets(&mut self, keys: &[PartitionKey], turn: &mut Turn<'_>) -> Result<Vec<ErrorCode>, ErrorCode> {
        if let Members::Classic(classic) = &self.members
            && classic.has_members()
            && classic.protocol_type() != "consumer"
        {
            return Err(ErrorCode::NonEmptyGroup);
        }
        let subscribed = self.subscribed(turn);
        Ok(self.offsets.delete(&self.name, keys, &subscribed, turn))
    }

    fn delete(&mut self, turn: &mut Turn<'_>) -> ErrorCode {
        if self.has_members() {
            return ErrorCode::NonEmptyGroup;
        }
        self.forget(turn);
        ErrorCode::None
    }

    /// The group is gone; who still waits for it is told by its protocol.
    fn forget(&mut self, turn: &mut Turn<'_>) {
        if let Members::Classic(classic) = &mut self.members {
            classic.dissolve(turn);
        }
        turn.record(&Entry::Gone { group: self.name.clone() });
        self.exists = false;
    }

    fn has_members(&self) -> bool {
        match &self.members {
            Members::Classic(classic) => classic.has_members(),
            Members::Consumer(consumer) => consumer.has_members(),
        }
    }

    fn subscribed(&self, turn: &Turn<'_>) -> Subscribed {
        match &self.members {
            Members::Classic(classic) => classic.subscribed(turn.image),
            Members::Consumer(consumer) => consumer.subscribed(turn.image),
        }
    }

    /// Lets time pass.
    pub fn on_time(&mut self, turn: &mut Turn<'_>) {
        match &mut self.members {
            Members::Classic(classic) => classic.on_time(&self.name, turn),
            Members::Consumer(_) => convert::on_time(self, turn),
        }
    }

    /// No later than the next moment at which [`Group::on_time`] has something to do.
    pub fn deadline_ms(&self) -> Option<u64> {
        match &self.members {
            Members::Classic(classic) => classic.deadline_ms(),
            Members::Consumer(consumer) => consumer.deadline_ms(),
        }
    }

    /// One look at the age of offsets; a group that holds nothing any more goes (contract G10.7 to G10.9).
    pub fn expire_offsets(&mut self, turn: &mut Turn<'_>) {
        let retention = match &self.members {
            Members::Classic(classic) => classic.retention(turn.image),
            Members::Consumer(_) => Retention::SinceCommit(self.subscribed(turn)),
        };
        self.offsets.expire(&self.name, &retention, turn);
        if !self.has_members() && !self.offsets.any() {
            self.forget(turn);
        }
    }

    /// Forgets the offsets of deleted topics.
    pub fn topics_deleted(&mut self, topics: &[TopicId], journal: &mut Journal) {
        self.offsets.topics_deleted(&self.name, topics, journal);
    }

    /// Forgets the offsets of topics that are not there.
    pub fn keep_topics(&mut self, image: &Image, journal: &mut Journal) {
        self.offsets.keep_topics(&self.name, image, journal);
    }

    /// Generation of a classic group, epoch of a consumer group: each rebalance raises it.
    pub fn generation(&self) -> i32 {
        match &self.members {
            Members::Classic(classic) => classic.generation(),
            Members::Consumer(consumer) => consumer.head.epoch,
        }
    }

    /// For ListGroups.
    pub fn listing(&self) -> Listing {
        let group = self.name.to_string();
        match &self.members {
            Members::Classic(classic) => Listing {
                group,
                protocol_type: classic.protocol_type().to_owned(),
                state: classic.state_name(),
                kind: "classic",
            },
            Members::Consumer(consumer) => {
                Listing { group, protocol_type: "consumer".into(), state: consumer.state_name(), kind: "consumer" }
            }
        }
    }

    /// Takes in what was written down.
    pub fn apply(&mut self, entry: Entry) {
        self.exists = true;
        match entry {
            Entry::Gone { .. } => unreachable!("the slot removes groups"),
            Entry::Classic { entry, .. } => {
                if let Members::Consumer(_) = &self.members {
                    self.members = Members::Classic(Box::new(Classic::new()));
                }
                let Members::Classic(classic) = &mut self.members else { unreachable!("just made") };
                classic.apply(entry);
            }
            Entry::Consumer { entry: ConsumerEntry::Dissolved, .. } => {
                self.members = Members::Classic(Box::new(Classic::new()));
            }
            Entry::Consumer { entry, .. } => {
                if let Members::Classic(_) = &self.members {
                    self.members = Members::Consumer(Box::new(Consumer::new()));
                }
                let Members::Consumer(consumer) = &mut self.members else { unreachable!("just made") };
                consumer.apply(entry);
            }
            Entry::Offsets { entry, .. } => self.offsets.apply(entry),
        }
    }

    /// Everything was applied: sessions start now.
    pub fn loaded(&mut self, now: Now, settings: &GroupSettings) {
        match &mut self.members {
            Members::Classic(classic) => classic.loaded(now),
            Members::Consumer(consumer) => consumer.loaded(now, settings),
        }
    }

    /// Entries that rebuild it.
    pub fn snapshot(&self, entries: &mut Vec<Entry>) {
        match &self.members {
            Members::Classic(classic) => classic.snapshot(&self.name, entries),
            Members::Consumer(consumer) => consumer.snapshot(&self.name, entries),
        }
        self.offsets.snapshot(&self.name, entries);
    }
}

/// What a request is refused for whatever the group is (contract G2.2, G3.1).
fn refused_by_form(ask: &Ask, turn: &Turn<'_>) -> Option<Reply> {
    match ask {
        Ask::Join(join) => {
            let code = Classic::check_join(join, turn.settings).err()?;
            Some(Reply::Join(Joined::refused(code, join.member_id.clone())))
        }
        Ask::Sync(sync) => Some(Reply::Sync(Synced::refused(Classic::check_sync(sync).err()?))),
        _ => None,
    }
}
