//! OffsetCommit of one partition by a consumer that assigns its partitions itself: decode, the group's decision, the
//! entry in the slot's journal, the answer when it is durable.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::{OffsetCommitResponse, TopicName};
use kafka_protocol::protocol::Encodable;
use oncilla_shards::groups::{Ask, Commit, CommitPartition, Effect, Effects, GroupSettings, Groups, Now, Reply};
use oncilla_shards::ids::SlotId;
use oncilla_shards::image::Image;
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::{Journal, slot_of};
use oncilla_shards::wire::{Body, TopicRef, apis, offset_commit};

use crate::frame::Frame;
use crate::{NOW, Path, TOPIC_NAME, key, split, write_journal};

/// The last version that names topics by name.
const VERSION: i16 = 9;

/// The slot of all groups here.
pub const SLOT: SlotId = SlotId(7);

const CLOCK: Now = Now { wall: NOW, mono_ms: 0 };
const INDEX: i32 = 3;

/// Groups of the slot.
const GROUPS: usize = 100;

/// A shard with one slot, and the groups that commit to it.
#[derive(Debug)]
pub struct OffsetCommit {
    groups: Groups,
    image: std::sync::Arc<Image>,
    names: Vec<String>,
    at: usize,
    offset: i64,
    effects: Effects,
}

impl Default for OffsetCommit {
    fn default() -> Self {
        Self::new(GROUPS)
    }
}

impl OffsetCommit {
    /// A slot of so many groups, each with a committed offset.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let all = (0..).map(|n| format!("group-{n}"));
        let names: Vec<String> = all.filter(|name| slot_of(name.as_bytes()) == SLOT).take(count).collect();
        let mut groups = Groups::new(GroupSettings::default());
        groups.insert(SLOT, Journal::default(), [], CLOCK);
        let effects = Effects::with_capacity(8);
        let mut path = Self { groups, image: crate::image(), names, at: 0, offset: 0, effects };
        for at in 0..count {
            path.ask(at, commit(0));
            path.write();
        }
        assert_eq!(path.groups.list(&Default::default()).len(), count);
        path
    }

    /// The group whose turn it is. They are asked in a scattered order, so that a large slot misses caches.
    pub fn turn(&mut self) -> (usize, i64) {
        // No common factor with the number of groups.
        self.at = (self.at + 7919) % self.names.len();
        self.offset += 1;
        (self.at, self.offset)
    }

    /// Has a group decide about a commit; the answer comes with [`OffsetCommit::write`].
    pub fn ask(&mut self, at: usize, commit: Commit) {
        let name = &self.names[at];
        self.groups.ask(name, Ask::Commit(commit), WaiterId(1), CLOCK, &self.image, &mut self.effects);
    }

    /// The writer of the slot; gives the last answer that it let go.
    pub fn write(&mut self) -> Option<Reply> {
        write_journal(self.groups.journal_mut(SLOT).expect("owned"));
        self.groups.settled(SLOT, &mut self.effects);
        let reply = |effect| match effect {
            Effect::Reply(_, reply) => Some(reply.expect("success")),
            Effect::StartWriter(_) => None,
        };
        self.effects.drain(..).filter_map(reply).last()
    }
}

/// A commit of one partition.
#[must_use]
pub fn commit(offset: i64) -> Commit {
    let partition = CommitPartition { key: key(INDEX), offset, leader_epoch: 1, metadata: None };
    Commit { version: VERSION, generation: -1, retention_ms: -1, partitions: vec![partition], ..Commit::default() }
}

impl Path for OffsetCommit {
    type Input = (usize, Bytes);

    fn prepare(&mut self) -> (usize, Bytes) {
        let (at, offset) = self.turn();
        let frame = Frame::new(apis::OFFSET_COMMIT, VERSION, 128).text(&self.names[at]).i32(-1).text("").null();
        let frame = frame.count(1).text(TOPIC_NAME).count(1).i32(INDEX).i64(offset).i32(1).null().no_tags();
        (at, frame.no_tags().no_tags().finish())
    }

    fn serve(&mut self, (at, frame): &mut (usize, Bytes)) -> Body {
        let (header, body) = split(frame);
        let asked = offset_commit::decode(header.api_version, &body).expect("a valid body");
        let [asked_topic] = &asked.topics[..] else { panic!("one topic") };
        let TopicRef::Name(name) = &asked_topic.topic else { panic!("by name") };
        let topic = self.image.topic(name).expect("it exists");
        let mut known = Vec::new();
        let partition = |one: &offset_commit::CommittedPartition| {
            assert!(topic.has(one.index));
            let metadata = one.metadata.as_ref().map(ToString::to_string);
            known.push(CommitPartition {
                key: key(one.index),
                offset: one.offset,
                leader_epoch: one.leader_epoch,
                metadata,
            });
            OffsetCommitResponsePartition::default().with_partition_index(one.index)
        };
        let partitions = asked_topic.partitions.iter().map(partition).collect();
        let answer = OffsetCommitResponseTopic::default().with_name(TopicName(name.clone()));
        let mut answer = answer.with_partitions(partitions);
        let commit = Commit {
            version: header.api_version,
            member_id: asked.member_id.to_string(),
            generation: asked.generation,
            instance_id: asked.instance_id.map(|id| id.to_string()),
            retention_ms: asked.retention_ms,
            partitions: known,
        };
        self.ask(*at, commit);
        let Some(Reply::Commit(codes)) = self.write() else { panic!("no answer") };
        for (partition, code) in answer.partitions.iter_mut().zip(codes) {
            partition.error_code = code.wire();
            assert_eq!(partition.error_code, 0);
        }
        let response = OffsetCommitResponse::default().with_topics(vec![answer]);
        let mut bytes = BytesMut::with_capacity(response.compute_size(VERSION).expect("a size"));
        response.encode(&mut bytes, VERSION).expect("it encodes");
        Body::from(bytes.freeze())
    }
}
