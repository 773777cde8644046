//! Requests and answers in few words.

use bytes::Bytes;

use crate::code::ErrorCode;
use crate::groups::testing::Harness;
use crate::groups::{Ask, Client, Commit, Description, Heartbeat, Join, Joined, Leaving, Reply, Sync, Synced};
use crate::partition::WaiterId;

pub const G: &str = "g";

/// A member's JoinGroup with one protocol; fields of it are changed by the tests.
pub fn join_as(member_id: &str) -> Join {
    Join {
        version: 9,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: member_id.to_owned(),
        instance_id: None,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), subscription(&["t"]))],
        client: Client { id: "c".to_owned(), host: "/127.0.0.1".to_owned() },
        fresh: 0,
    }
}

pub fn static_join(instance: &str) -> Join {
    Join { instance_id: Some(instance.to_owned()), ..join_as("") }
}

/// A subscription of version 0.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0, 0, 0, 0, topics.len() as u8];
    for topic in topics {
        bytes.extend([0, topic.len() as u8]);
        bytes.extend(topic.as_bytes());
    }
    bytes.extend([0xff; 4]);
    bytes.into()
}

pub fn protocols(names: &[&str]) -> Vec<(String, Bytes)> {
    names.iter().map(|name| ((*name).to_owned(), subscription(&["t"]))).collect()
}

impl Harness {
    pub fn join(&mut self, mut join: Join) -> WaiterId {
        join.fresh = self.fresh();
        self.ask(G, Ask::Join(join))
    }

    #[track_caller]
    pub fn joined(&mut self, waiter: WaiterId) -> Joined {
        match self.take(waiter) {
            Some(Reply::Join(joined)) => joined,
            other => panic!("{other:?} instead of a JoinGroup answer"),
        }
    }

    #[track_caller]
    pub fn join_now(&mut self, join: Join) -> Joined {
        let waiter = self.join(join);
        self.joined(waiter)
    }

    /// A newcomer gets its id and joins with it.
    #[track_caller]
    pub fn newcomer(&mut self, join: Join) -> (String, WaiterId) {
        let told = self.join_now(join.clone());
        assert_eq!(told.code, ErrorCode::MemberIdRequired);
        let id = told.member_id;
        let waiter = self.join(Join { member_id: id.clone(), ..join });
        (id, waiter)
    }

    #[track_caller]
    pub fn sync(&mut self, member_id: &str, generation: i32, assignments: &[(&str, &str)]) -> WaiterId {
        let assignments =
            assignments.iter().map(|(id, bytes)| ((*id).to_owned(), Bytes::copy_from_slice(bytes.as_bytes())));
        let sync = Sync {
            version: 5,
            member_id: member_id.to_owned(),
            generation,
            instance_id: None,
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some("range".to_owned()),
            assignments: assignments.collect(),
        };
        self.ask(G, Ask::Sync(sync))
    }

    #[track_caller]
    pub fn synced(&mut self, waiter: WaiterId) -> Synced {
        match self.take(waiter) {
            Some(Reply::Sync(synced)) => synced,
            other => panic!("{other:?} instead of a SyncGroup answer"),
        }
    }

    #[track_caller]
    pub fn sync_code(&mut self, member_id: &str, generation: i32) -> ErrorCode {
        let waiter = self.sync(member_id, generation, &[]);
        self.synced(waiter).code
    }

    #[track_caller]
    pub fn beat(&mut self, member_id: &str, generation: i32) -> ErrorCode {
        self.beat_as(member_id, generation, None)
    }

    #[track_caller]
    pub fn beat_as(&mut self, member_id: &str, generation: i32, instance: Option<&str>) -> ErrorCode {
        let instance_id = instance.map(str::to_owned);
        let beat = Heartbeat { member_id: member_id.to_owned(), generation, instance_id };
        match self.answer(G, Ask::Heartbeat(beat)) {
            Reply::Heartbeat(code) => code,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn leave(&mut self, leaving: &[(&str, Option<&str>)]) -> Vec<ErrorCode> {
        let leaving = leaving
            .iter()
            .map(|(id, instance)| Leaving { member_id: (*id).to_owned(), instance_id: instance.map(str::to_owned) });
        match self.answer(G, Ask::Leave(leaving.collect())) {
            Reply::Leave(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn described(&mut self) -> Description {
        match self.answer(G, Ask::Describe) {
            Reply::Describe(described) => described.expect("a classic group"),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn state(&mut self) -> &'static str {
        self.described().state
    }

    #[track_caller]
    pub fn delete(&mut self) -> ErrorCode {
        match self.answer(G, Ask::Delete) {
            Reply::Delete(code) => code,
            other => panic!("{other:?}"),
        }
    }

    /// The group's word on a commit, of one partition.
    #[track_caller]
    pub fn commit(&mut self, member_id: &str, generation: i32, instance: Option<&str>) -> ErrorCode {
        let partition = crate::groups::CommitPartition {
            key: crate::ids::PartitionKey { topic: crate::ids::TopicId(1), index: 0 },
            offset: 1,
            leader_epoch: -1,
            metadata: None,
        };
        let commit = Commit {
            version: 9,
            member_id: member_id.to_owned(),
            generation,
            instance_id: instance.map(str::to_owned),
            retention_ms: -1,
            partitions: vec![partition],
        };
        match self.answer(G, Ask::Commit(commit)) {
            Reply::Commit(codes) => codes[0],
            other => panic!("{other:?}"),
        }
    }

    /// A Stable group of one member at generation 1.
    #[track_caller]
    pub fn lone(&mut self, join: Join) -> String {
        let (id, waiter) = match join.instance_id {
            Some(_) => (String::new(), self.join(join)),
            None => self.newcomer(join),
        };
        let joined = self.joined(waiter);
        assert_eq!((joined.code, &joined.leader), (ErrorCode::None, &joined.member_id));
        assert!(id.is_empty() || id == joined.member_id);
        let id = joined.member_id;
        let sync = self.sync(&id, joined.generation, &[(&id, "all")]);
        assert_eq!(self.synced(sync).assignment, "all");
        id
    }

    /// A Stable group of two members at generation 2: A leads and has "a", B has "b".
    #[track_caller]
    pub fn pair(&mut self, a: Join, b: Join) -> (String, String) {
        let id_a = self.lone(a.clone());
        let (id_b, wait_b) = match b.instance_id {
            Some(_) => (String::new(), self.join(b)),
            None => self.newcomer(b),
        };
        let joined_a = self.join_now(Join { member_id: id_a.clone(), ..a });
        let joined_b = self.joined(wait_b);
        assert!(id_b.is_empty() || id_b == joined_b.member_id);
        let id_b = joined_b.member_id;
        assert_eq!((joined_a.generation, joined_b.generation), (2, 2));
        assert_eq!((&joined_a.leader, &joined_b.leader), (&id_a, &id_a));
        let wait_b = self.sync(&id_b, 2, &[]);
        let wait_a = self.sync(&id_a, 2, &[(&id_a, "a"), (&id_b, "b")]);
        assert_eq!((self.synced(wait_a).assignment, self.synced(wait_b).assignment), ("a".into(), "b".into()));
        (id_a, id_b)
    }
}
