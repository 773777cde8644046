//! Fetch sessions (KIP-227): what a client asked for before, so that it need not ask again.
//!
//! Owned by the shard that the session's connection came to; bound to no connection. Limits: `slots_max` sessions a
//! shard; when all are taken the one idle longest is dropped if it was idle for [`IDLE_EVICT_MS`], else the new one is
//! declined with id 0, which every client takes as "go on without". Sessions do not survive a restart.

use std::collections::BTreeMap;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::code::ErrorCode;
use crate::ids::{Offset, TimestampMs, TopicId};

/// A session idle for this long gives way to a new one.
pub const IDLE_EVICT_MS: i64 = 120_000;

/// Id of a session; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i32);

/// How a request names a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// By name, up to v12.
    Name(Bytes),
    /// By id, from v13.
    Id(TopicId),
}

/// One partition of a Fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// The topic, as the request names it.
    pub topic: TopicKey,
    /// Partition within the topic.
    pub index: i32,
    /// Offset to read from.
    pub offset: Offset,
    /// Leader epoch that the client knows, or -1.
    pub current_epoch: i32,
    /// Epoch of the last record that the client has, or -1.
    pub last_fetched_epoch: i32,
    /// Most bytes for this partition.
    pub bytes_max: i32,
}

/// What a request's session fields ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// Session id; 0 for none.
    pub id: SessionId,
    /// -1 no session, 0 a new one, else the next epoch of the one named.
    pub epoch: i32,
    /// Whether topics are named by id (v13 and later).
    pub by_id: bool,
}

/// How to answer a request.
#[derive(Debug)]
pub enum Begun {
    /// Everything asked, in full.
    Full {
        /// Partitions in the order of the request.
        partitions: Vec<FetchPartition>,
        /// Id to answer; 0 without a session.
        id: SessionId,
    },
    /// The session's partitions; only what changed is told.
    Incremental {
        /// All partitions of the session, in its order.
        partitions: Vec<FetchPartition>,
        /// Id to answer; 0 if the session ended because nothing is left in it.
        id: SessionId,
    },
    /// The request is refused whole.
    Refused(ErrorCode),
}

/// What was told about a partition last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    high_watermark: Option<Offset>,
    log_start: Option<Offset>,
}

#[derive(Debug)]
struct Entry {
    order: u64,
    asked: FetchPartition,
    told: Told,
}

type Key = (TopicKey, i32);

#[derive(Debug)]
struct Session {
    /// Epoch that the next request must carry.
    next_epoch: i32,
    by_id: bool,
    used_at: TimestampMs,
    entries: HashMap<Key, Entry, FixedState>,
    order: BTreeMap<u64, Key>,
    order_next: u64,
}

/// What one partition's answer holds, as far as a session cares.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Whether it carries an error or a diverging epoch.
    pub notable: bool,
    /// Bytes of records.
    pub bytes: usize,
    /// High watermark; -1 with an error.
    pub high_watermark: Offset,
    /// Log start; -1 with an error.
    pub log_start: Offset,
}

/// The sessions of one shard.
#[derive(Debug)]
pub struct Sessions {
    sessions: HashMap<SessionId, Session, FixedState>,
    slots_max: usize,
    id_next: i32,
}

impl Session {
    fn new(by_id: bool, now: TimestampMs) -> Self {
        Self { next_epoch: 1, by_id, used_at: now, entries: HashMap::default(), order: BTreeMap::new(), order_next: 0 }
    }

    fn put(&mut self, asked: FetchPartition) {
        let key = (asked.topic.clone(), asked.index);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.asked = asked;
            return;
        }
        let order = self.order_next;
        self.order_next += 1;
        self.order.insert(order, key.clone());
        self.entries.insert(key, Entry { order, asked, told: Told::default() });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.order);
        }
    }

    fn move_to_back(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.order.remove(&entry.order);
            entry.order = self.order_next;
            self.order.insert(self.order_next, key.clone());
            self.order_next += 1;
        }
    }

    fn list(&self) -> Vec<FetchPartition> {
        self.order.values().map(|key| self.entries[key].asked.clone()).collect()
    }
}

impl Sessions {
    /// No sessions yet; ids count up from `id_seed`, which differs between starts so that old ids are not met again.
    #[must_use]
    pub fn new(slots_max: usize, id_seed: u32) -> Self {
        Self { sessions: HashMap::default(), slots_max, id_next: (id_seed & 0x3fff_ffff) as i32 + 1 }
    }

    /// Takes in a request: the table of contract C1.
    pub fn begin(
        &mut self,
        request: SessionRequest,
        asked: Vec<FetchPartition>,
        forgotten: &[(TopicKey, i32)],
        now: TimestampMs,
    ) -> Begun {
        match request.epoch {
            -1 => {
                self.sessions.remove(&request.id);
                Begun::Full { partitions: last_of_each(asked), id: SessionId(0) }
            }
            0 => {
                self.sessions.remove(&request.id);
                let partitions = last_of_each(asked);
                let id = self.open(&partitions, request.by_id, now);
                Begun::Full { partitions, id }
            }
            _ => self.advance(request, asked, forgotten, now),
        }
    }

    fn open(&mut self, partitions: &[FetchPartition], by_id: bool, now: TimestampMs) -> SessionId {
        if partitions.is_empty() || !self.make_room(now) {
            return SessionId(0);
        }
        let mut session = Session::new(by_id, now);
        for partition in partitions {
            session.put(partition.clone());
        }
        let mut id = SessionId(self.id_next);
        while self.sessions.contains_key(&id) {
            id = SessionId(if id.0 == i32::MAX { 1 } else { id.0 + 1 });
        }
        self.id_next = if id.0 == i32::MAX { 1 } else { id.0 + 1 };
        self.sessions.insert(id, session);
        id
    }

    fn make_room(&mut self, now: TimestampMs) -> bool {
        if self.sessions.len() < self.slots_max {
            return true;
        }
        let oldest = self.sessions.iter().map(|(id, session)| (session.used_at, *id)).min();
        match oldest {
            Some((used_at, id)) if now.0 - used_at.0 >= IDLE_EVICT_MS => {
                self.sessions.remove(&id);
                true
            }
            _ => false,
        }
    }

    fn advance(
        &mut self,
        request: SessionRequest,
        asked: Vec<FetchPartition>,
        forgotten: &[(TopicKey, i32)],
        now: TimestampMs,
    ) -> Begun {
        let Some(session) = self.sessions.get_mut(&request.id) else {
            return Begun::Refused(ErrorCode::FetchSessionIdNotFound);
        };
        if session.next_epoch != request.epoch {
            return Begun::Refused(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != request.by_id {
            return Begun::Refused(ErrorCode::FetchSessionTopicIdError);
        }
        session.next_epoch = if request.epoch == i32::MAX { 1 } else { request.epoch + 1 };
        session.used_at = now;
        for partition in asked {
            session.put(partition);
        }
        for key in forgotten {
            session.remove(key);
        }
        if session.entries.is_empty() {
            self.sessions.remove(&request.id);
            return Begun::Incremental { partitions: Vec::new(), id: SessionId(0) };
        }
        Begun::Incremental { partitions: session.list(), id: request.id }
    }

    /// Notes what is about to be told of one partition; returns whether an incremental answer must list it.
    ///
    /// Partitions that returned data go to the end of the session's order, so that a small byte limit turns through
    /// all.
    pub fn note(&mut self, id: SessionId, partition: &FetchPartition, outcome: Outcome) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return true };
        let key = (partition.topic.clone(), partition.index);
        let Some(entry) = session.entries.get_mut(&key) else { return true };
        let now = Told { high_watermark: Some(outcome.high_watermark), log_start: Some(outcome.log_start) };
        let changed = outcome.notable || outcome.bytes > 0 || entry.told != now;
        entry.told = if outcome.notable { Told::default() } else { now };
        if outcome.bytes > 0 {
            session.move_to_back(&key);
        }
        changed
    }

    /// Number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are no sessions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

/// One partition named twice in a request: the last counts (contract C1).
fn last_of_each(asked: Vec<FetchPartition>) -> Vec<FetchPartition> {
    if asked.len() < 2 {
        return asked;
    }
    let mut at: HashMap<Key, usize, FixedState> = HashMap::default();
    let mut list: Vec<FetchPartition> = Vec::with_capacity(asked.len());
    for partition in asked {
        match at.entry((partition.topic.clone(), partition.index)) {
            hashbrown::hash_map::Entry::Occupied(seen) => list[*seen.get()] = partition,
            hashbrown::hash_map::Entry::Vacant(free) => {
                free.insert(list.len());
                list.push(partition);
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = TimestampMs(1_000);

    fn ask(index: i32, offset: i64) -> FetchPartition {
        FetchPartition {
            topic: TopicKey::Id(TopicId(7)),
            index,
            offset: Offset(offset),
            current_epoch: -1,
            last_fetched_epoch: -1,
            bytes_max: 1 << 20,
        }
    }

    fn request(id: SessionId, epoch: i32) -> SessionRequest {
        SessionRequest { id, epoch, by_id: true }
    }

    fn opened(sessions: &mut Sessions, asked: Vec<FetchPartition>) -> SessionId {
        match sessions.begin(request(SessionId(0), 0), asked, &[], NOW) {
            Begun::Full { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    fn indexes(begun: &Begun) -> Vec<i32> {
        match begun {
            Begun::Full { partitions, .. } | Begun::Incremental { partitions, .. } => {
                partitions.iter().map(|p| p.index).collect()
            }
            Begun::Refused(code) => panic!("{code:?}"),
        }
    }

    fn refused(begun: Begun) -> ErrorCode {
        match begun {
            Begun::Refused(code) => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn c1_an_epoch_is_spent_once_and_only_in_order() {
        let mut sessions = Sessions::new(10, 5);
        let id = opened(&mut sessions, vec![ask(0, 0), ask(1, 0)]);
        assert_ne!(id, SessionId(0));
        assert_eq!(indexes(&sessions.begin(request(id, 1), vec![], &[], NOW)), [0, 1]);
        for wrong in [1, 3, -2] {
            let begun = sessions.begin(request(id, wrong), vec![], &[], NOW);
            assert_eq!(refused(begun), ErrorCode::InvalidFetchSessionEpoch, "epoch {wrong}");
        }
        assert_eq!(indexes(&sessions.begin(request(id, 2), vec![], &[], NOW)), [0, 1], "the session stays");
    }

    #[test]
    fn c1_an_unknown_session_is_70_and_a_mixed_one_106() {
        let mut sessions = Sessions::new(10, 5);
        let begun = sessions.begin(request(SessionId(99), 1), vec![], &[], NOW);
        assert_eq!(refused(begun), ErrorCode::FetchSessionIdNotFound);
        let id = opened(&mut sessions, vec![ask(0, 0)]);
        let begun = sessions.begin(SessionRequest { id, epoch: 1, by_id: false }, vec![], &[], NOW);
        assert_eq!(refused(begun), ErrorCode::FetchSessionTopicIdError);
        assert_eq!(indexes(&sessions.begin(request(id, 1), vec![], &[], NOW)), [0], "session and epoch stay");
    }

    #[test]
    fn c1_partitions_are_added_replaced_and_forgotten() {
        let mut sessions = Sessions::new(10, 5);
        let id = opened(&mut sessions, vec![ask(0, 0)]);
        let begun = sessions.begin(request(id, 1), vec![ask(0, 9), ask(1, 0)], &[], NOW);
        assert_eq!(indexes(&begun), [0, 1]);
        let Begun::Incremental { partitions, .. } = begun else { panic!() };
        assert_eq!(partitions[0].offset, Offset(9));
        let all = [(TopicKey::Id(TopicId(7)), 0), (TopicKey::Id(TopicId(7)), 1), (TopicKey::Id(TopicId(8)), 4)];
        let begun = sessions.begin(request(id, 2), vec![], &all, NOW);
        assert!(matches!(begun, Begun::Incremental { id: SessionId(0), .. }), "nothing left: the session ends");
        assert!(sessions.is_empty());
    }

    #[test]
    fn c1_only_what_changed_is_told_and_errors_every_time() {
        let mut sessions = Sessions::new(10, 5);
        let id = opened(&mut sessions, vec![ask(0, 0)]);
        let quiet = Outcome { notable: false, bytes: 0, high_watermark: Offset(5), log_start: Offset(0) };
        assert!(sessions.note(id, &ask(0, 0), quiet), "the first answer tells it");
        assert!(!sessions.note(id, &ask(0, 0), quiet));
        assert!(sessions.note(id, &ask(0, 0), Outcome { high_watermark: Offset(6), ..quiet }));
        assert!(sessions.note(id, &ask(0, 0), Outcome { log_start: Offset(2), high_watermark: Offset(6), ..quiet }));
        let error = Outcome { notable: true, ..quiet };
        assert!(sessions.note(id, &ask(0, 0), error));
        assert!(sessions.note(id, &ask(0, 0), error));
        assert!(sessions.note(id, &ask(0, 0), quiet), "the end of an error is told");
    }

    #[test]
    fn c1_partitions_with_data_go_to_the_end_of_the_order() {
        let mut sessions = Sessions::new(10, 5);
        let id = opened(&mut sessions, vec![ask(0, 0), ask(1, 0), ask(2, 0)]);
        let data = Outcome { notable: false, bytes: 10, high_watermark: Offset(5), log_start: Offset(0) };
        sessions.note(id, &ask(0, 0), data);
        assert_eq!(indexes(&sessions.begin(request(id, 1), vec![], &[], NOW)), [1, 2, 0]);
    }

    #[test]
    fn a_new_session_is_declined_while_all_slots_are_in_use() {
        let mut sessions = Sessions::new(1, 5);
        let first = opened(&mut sessions, vec![ask(0, 0)]);
        assert_eq!(opened(&mut sessions, vec![ask(0, 0)]), SessionId(0));
        let later = TimestampMs(NOW.0 + IDLE_EVICT_MS);
        let begun = sessions.begin(request(SessionId(0), 0), vec![ask(0, 0)], &[], later);
        assert!(matches!(begun, Begun::Full { id, .. } if id != SessionId(0) && id != first));
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn c1_a_partition_named_twice_counts_once_with_its_last_offset() {
        let list = last_of_each(vec![ask(0, 1), ask(1, 2), ask(0, 3)]);
        assert_eq!(list.iter().map(|p| (p.index, p.offset.0)).collect::<Vec<_>>(), [(0, 3), (1, 2)]);
    }
}
