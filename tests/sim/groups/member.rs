//! A member of a group, as far as it matters to the coordinator: a client that may stop at any moment.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{
    Ask, Client, Commit, CommitPartition, ConsumerHeartbeat, ConsumerHeartbeatReply, Heartbeat, Join, Joined, Leaving,
    Reply, Sync, Synced,
};
use oncilla_shards::ids::{PartitionKey, TopicId};

/// The topic that everybody reads.
pub const TOPIC: TopicId = TopicId(1);

/// Its name.
pub const TOPIC_NAME: &str = "t";

/// Silence after which a member is removed.
pub const SESSION_MS: u64 = 1_000;

/// How long a rebalance waits: no shorter than a session, so that whoever is removed for it has lost its session too.
pub const REBALANCE_MS: i32 = 1_500;

/// What a member is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    Nothing,
    Join,
    Sync,
    Heartbeat,
    Leave,
    Commit(i32, i64),
}

/// One client.
#[derive(Clone, Debug)]
pub struct Member {
    pub group: usize,
    pub is_classic: bool,
    pub instance_id: Option<String>,
    pub member_id: String,
    /// Generation or member epoch; 0 while it is out.
    pub epoch: i32,
    pub is_leader: bool,
    /// Members that the leader is to give work to.
    pub to_assign: Vec<String>,
    pub needs_sync: bool,
    pub needs_join: bool,
    pub owned: BTreeSet<i32>,
    pub waiting: Waiting,
    /// An answer was lost: the next heartbeat says everything, so that its answer does too (contract G12.4).
    pub tells_all: bool,
    /// When it sent the last heartbeat of KIP-848 that was accepted: what its session counts from.
    pub heard_ms: u64,
    /// When it asked what it waits for.
    asked_ms: u64,
    /// It does nothing until then.
    pub silent_until_ms: u64,
    pub next_beat_ms: u64,
}

impl Member {
    pub fn new(group: usize, is_classic: bool, instance_id: Option<String>) -> Self {
        Self {
            group,
            is_classic,
            instance_id,
            member_id: String::new(),
            epoch: 0,
            is_leader: false,
            to_assign: Vec::new(),
            needs_sync: false,
            needs_join: true,
            owned: BTreeSet::new(),
            waiting: Waiting::Nothing,
            tells_all: false,
            heard_ms: 0,
            asked_ms: 0,
            silent_until_ms: 0,
            next_beat_ms: 0,
        }
    }

    /// The process is gone with all it knew; another one takes its place.
    pub fn restart(&mut self) {
        *self = Self {
            silent_until_ms: self.silent_until_ms,
            ..Self::new(self.group, self.is_classic, self.instance_id.clone())
        };
    }

    /// The broker does not know it (any more).
    fn is_out(&mut self, keeps_id: bool) {
        if !keeps_id {
            self.member_id.clear();
        }
        self.epoch = 0;
        self.owned.clear();
        self.needs_join = true;
        self.needs_sync = false;
    }

    /// What it does next; `None` if there is nothing to do now.
    pub fn next(&mut self, now_ms: u64, fresh: u128, partitions: i32) -> Option<Ask> {
        if self.waiting != Waiting::Nothing || now_ms < self.silent_until_ms {
            return None;
        }
        if !self.is_classic {
            let due = self.needs_join || now_ms >= self.next_beat_ms;
            return due.then(|| self.beat(now_ms, fresh));
        }
        if self.needs_join {
            self.waiting = Waiting::Join;
            return Some(Ask::Join(self.join(fresh)));
        }
        if self.needs_sync {
            self.waiting = Waiting::Sync;
            return Some(Ask::Sync(self.sync(partitions)));
        }
        (now_ms >= self.next_beat_ms).then(|| {
            self.next_beat_ms = now_ms + SESSION_MS / 4;
            self.waiting = Waiting::Heartbeat;
            let (member_id, instance_id) = (self.member_id.clone(), self.instance_id.clone());
            Ask::Heartbeat(Heartbeat { member_id, generation: self.epoch, instance_id })
        })
    }

    fn join(&self, fresh: u128) -> Join {
        Join {
            version: 9,
            session_timeout_ms: SESSION_MS as i32,
            rebalance_timeout_ms: REBALANCE_MS,
            member_id: self.member_id.clone(),
            instance_id: self.instance_id.clone(),
            protocol_type: "consumer".into(),
            protocols: vec![("sim".into(), subscription(&self.owned))],
            client: Client { id: "sim".into(), host: "/sim".into() },
            fresh,
        }
    }

    fn sync(&mut self, partitions: i32) -> Sync {
        let members = std::mem::take(&mut self.to_assign);
        let give = |(at, member): (usize, &String)| {
            let mine = (0..partitions).filter(|index| *index as usize % members.len() == at);
            (member.clone(), assignment(mine))
        };
        Sync {
            version: 5,
            member_id: self.member_id.clone(),
            generation: self.epoch,
            instance_id: self.instance_id.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("sim".into()),
            assignments: members.iter().enumerate().map(give).collect(),
        }
    }

    fn beat(&mut self, now_ms: u64, fresh: u128) -> Ask {
        self.next_beat_ms = now_ms + SESSION_MS / 4;
        self.asked_ms = now_ms;
        self.waiting = Waiting::Heartbeat;
        if self.member_id.is_empty() {
            self.member_id = format!("m{fresh:x}");
        }
        let joins = self.needs_join;
        let all = joins || std::mem::take(&mut self.tells_all);
        Ask::ConsumerHeartbeat(ConsumerHeartbeat {
            version: 1,
            member_id: self.member_id.clone(),
            member_epoch: if joins { 0 } else { self.epoch },
            instance_id: self.instance_id.clone(),
            rebalance_timeout_ms: if all { REBALANCE_MS } else { -1 },
            topics: all.then(|| vec![TOPIC_NAME.to_owned()]),
            owned: Some(if joins || self.owned.is_empty() {
                Vec::new()
            } else {
                vec![(TOPIC, self.owned.iter().copied().collect())]
            }),
            client: Client { id: "sim".into(), host: "/sim".into() },
            fresh,
            ..ConsumerHeartbeat::default()
        })
    }

    /// Leaves for good.
    pub fn leave(&mut self) -> Option<Ask> {
        if self.waiting != Waiting::Nothing || self.needs_join || self.member_id.is_empty() {
            return None;
        }
        self.waiting = Waiting::Leave;
        // Whether or not the broker hears of it, the client has left.
        let member_id = self.member_id.clone();
        self.is_out(false);
        if self.is_classic {
            return Some(Ask::Leave(vec![Leaving { member_id, instance_id: self.instance_id.clone() }]));
        }
        Some(Ask::ConsumerHeartbeat(ConsumerHeartbeat {
            version: 1,
            member_id,
            member_epoch: -1,
            instance_id: self.instance_id.clone(),
            rebalance_timeout_ms: -1,
            ..ConsumerHeartbeat::default()
        }))
    }

    /// Commits the next offset of a partition that it has.
    pub fn commit(&mut self, index: i32, offset: i64) -> Option<Ask> {
        if self.waiting != Waiting::Nothing || self.needs_join || !self.owned.contains(&index) {
            return None;
        }
        self.waiting = Waiting::Commit(index, offset);
        let key = PartitionKey { topic: TOPIC, index };
        Some(Ask::Commit(Commit {
            version: 9,
            member_id: self.member_id.clone(),
            generation: self.epoch,
            instance_id: self.instance_id.clone(),
            retention_ms: -1,
            partitions: vec![CommitPartition { key, offset, leader_epoch: 3, metadata: None }],
        }))
    }

    /// Takes an answer in. Partitions that it has got by it.
    pub fn hear(&mut self, reply: Result<Reply, ErrorCode>, now_ms: u64) -> Vec<i32> {
        let waiting = std::mem::replace(&mut self.waiting, Waiting::Nothing);
        match (waiting, reply) {
            (_, Err(_)) => {
                self.tells_all = true;
                Vec::new()
            }
            (Waiting::Join, Ok(Reply::Join(joined))) => {
                self.joined(joined);
                Vec::new()
            }
            (Waiting::Sync, Ok(Reply::Sync(synced))) => self.synced(&synced),
            (Waiting::Heartbeat, Ok(Reply::Heartbeat(code))) => {
                self.told(code);
                Vec::new()
            }
            (Waiting::Heartbeat, Ok(Reply::ConsumerHeartbeat(reply))) => self.beaten(reply, now_ms),
            (Waiting::Leave, Ok(_)) => Vec::new(),
            (Waiting::Commit(..), Ok(Reply::Commit(codes))) => {
                self.told(codes[0]);
                Vec::new()
            }
            (waiting, reply) => panic!("{waiting:?} was answered with {reply:?}"),
        }
    }

    fn told(&mut self, code: ErrorCode) {
        match code {
            ErrorCode::None => {}
            ErrorCode::RebalanceInProgress => {
                self.needs_join = true;
                self.needs_sync = false;
                // An eager member gives up everything before it joins again.
                self.owned.clear();
            }
            // A commit beside a reconciliation: the next heartbeat brings the epoch.
            ErrorCode::StaleMemberEpoch => {}
            ErrorCode::IllegalGeneration => self.is_out(true),
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId | ErrorCode::FencedMemberEpoch => {
                self.is_out(false)
            }
            ErrorCode::GroupIdNotFound => self.is_out(false),
            code => panic!("unexpected {code:?}"),
        }
    }

    fn joined(&mut self, joined: Joined) {
        match joined.code {
            ErrorCode::None => {
                self.member_id = joined.member_id;
                self.epoch = joined.generation;
                self.needs_join = false;
                self.needs_sync = true;
                self.is_leader = joined.leader == self.member_id && !joined.skip_assignment;
                self.to_assign = joined.members.into_iter().map(|member| member.member_id).collect();
            }
            ErrorCode::MemberIdRequired => self.member_id = joined.member_id,
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => self.is_out(false),
            ErrorCode::RebalanceInProgress => {}
            code => panic!("a join was answered with {code:?}"),
        }
    }

    fn synced(&mut self, synced: &Synced) -> Vec<i32> {
        match synced.code {
            ErrorCode::None => {
                self.needs_sync = false;
                self.owned = partitions_of(&synced.assignment).into_iter().collect();
                self.owned.iter().copied().collect()
            }
            code => {
                self.told(code);
                Vec::new()
            }
        }
    }

    fn beaten(&mut self, reply: ConsumerHeartbeatReply, now_ms: u64) -> Vec<i32> {
        if reply.code == ErrorCode::UnreleasedInstanceId {
            // Its former self is still there: it comes back when that one's session is over.
            self.silent_until_ms = now_ms + SESSION_MS / 2;
            return Vec::new();
        }
        if !reply.code.is_none() {
            self.told(reply.code);
            return Vec::new();
        }
        self.heard_ms = self.asked_ms;
        self.needs_join = false;
        assert!(
            reply.member_epoch >= self.epoch,
            "a member's epoch went from {} to {}",
            self.epoch,
            reply.member_epoch
        );
        self.epoch = reply.member_epoch;
        let Some(assignment) = reply.assignment else { return Vec::new() };
        let now: BTreeSet<i32> = assignment.into_iter().flat_map(|(_, indexes)| indexes).collect();
        let got = now.difference(&self.owned).copied().collect();
        self.owned = now;
        got
    }
}

fn subscription(owned: &BTreeSet<i32>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(1);
    out.put_i32(1);
    out.put_i16(TOPIC_NAME.len() as i16);
    out.put_slice(TOPIC_NAME.as_bytes());
    out.put_i32(-1);
    put_partitions(&mut out, owned.iter().copied());
    out.freeze()
}

fn assignment(indexes: impl Iterator<Item = i32>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(1);
    put_partitions(&mut out, indexes);
    out.put_i32(-1);
    out.freeze()
}

fn put_partitions(out: &mut BytesMut, indexes: impl Iterator<Item = i32>) {
    let indexes: Vec<_> = indexes.collect();
    out.put_i32(1);
    out.put_i16(TOPIC_NAME.len() as i16);
    out.put_slice(TOPIC_NAME.as_bytes());
    out.put_i32(indexes.len() as i32);
    indexes.into_iter().for_each(|index| out.put_i32(index));
}

fn partitions_of(assignment: &[u8]) -> Vec<i32> {
    // Version, one topic and its name come before the count; no bytes are no work.
    let Some(rest) = assignment.get(2 + 4 + 2 + TOPIC_NAME.len()..) else { return Vec::new() };
    let number = |at: usize| i32::from_be_bytes(rest[at..at + 4].try_into().expect("four bytes"));
    (0..number(0)).map(|k| number(4 + 4 * k as usize)).collect()
}
