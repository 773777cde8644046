//! The members of a classic group, and what has to be known of all of them together.
//!
//! Owned by the group. Kept up to date with every change, because joins come in storms: how many members support each
//! protocol, how many are parked in JoinGroup, and which instance ids are taken. Finding a member costs a binary
//! search.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::groups::{Client, Join};
use crate::partition::WaiterId;

/// A request of a member that waits for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::groups) enum Parked {
    /// None.
    #[default]
    No,
    /// JoinGroup, until the join phase is over.
    Join(WaiterId),
    /// SyncGroup, until the leader's has come.
    Sync(WaiterId),
}

impl Parked {
    pub fn is_any(self) -> bool {
        self != Self::No
    }

    pub fn is_join(self) -> bool {
        matches!(self, Self::Join(_))
    }

    pub fn is_sync(self) -> bool {
        matches!(self, Self::Sync(_))
    }
}

/// Names and metadata in the member's order, each name once.
pub(in crate::groups) type Protocols = Vec<(Box<str>, Bytes)>;

/// A member; not a pending one, of which nothing but the id is known.
#[derive(Debug)]
pub(in crate::groups) struct Member {
    pub id: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub client: Client,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    /// From its last SyncGroup.
    pub assignment: Bytes,
    /// Whether it has never had an answer that names its generation (contract G6.9).
    pub is_new: bool,
    /// Whether it has sent SyncGroup in this generation (G6.5).
    pub has_synced: bool,
    /// When its session is over, unless it is parked by then.
    pub expires_ms: u64,
    /// When the group's timers look at it.
    pub queued_ms: Option<u64>,
    protocols: Protocols,
    parked: Parked,
}

/// A member without its waiting requests, in or out of a group.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::groups) struct MemberParts {
    pub id: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub client: Client,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub protocols: Protocols,
    /// From its last SyncGroup; empty if it never had one.
    pub assignment: Bytes,
}

impl Member {
    /// One that is not parked and has no session yet.
    pub fn new(parts: MemberParts) -> Self {
        Self {
            id: parts.id,
            instance: parts.instance,
            client: parts.client,
            session_timeout_ms: parts.session_timeout_ms,
            rebalance_timeout_ms: parts.rebalance_timeout_ms,
            assignment: parts.assignment,
            is_new: false,
            has_synced: true,
            expires_ms: 0,
            queued_ms: None,
            protocols: parts.protocols,
            parked: Parked::No,
        }
    }

    /// One that asks to join.
    pub fn joining(id: Arc<str>, join: &Join) -> Self {
        let member = Self::new(MemberParts {
            id,
            instance: join.instance_id.as_deref().map(Arc::from),
            client: join.client.clone(),
            session_timeout_ms: join.session_timeout_ms,
            rebalance_timeout_ms: rebalance_timeout_ms(join),
            protocols: own_protocols(join),
            assignment: Bytes::new(),
        });
        Self { is_new: true, ..member }
    }

    pub fn parts(&self) -> MemberParts {
        MemberParts {
            id: self.id.clone(),
            instance: self.instance.clone(),
            client: self.client.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            protocols: self.protocols.clone(),
            assignment: self.assignment.clone(),
        }
    }

    pub fn has_joined(&self) -> bool {
        self.parked.is_join()
    }

    /// Whether silence ends its membership: one that waits for the others cannot speak (contract G6.12), but a
    /// newcomer is given up some day, because it may be gone without a trace (G6.9).
    pub fn can_expire(&self) -> bool {
        self.is_new || self.parked == Parked::No
    }

    /// Its metadata of a protocol.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols.iter().find(|(name, _)| &**name == protocol).map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    }

    /// Whether a JoinGroup brings nothing new: names, order, bytes.
    pub fn matches(&self, join: &Join) -> bool {
        let own = self.protocols.iter().map(|(name, bytes)| (&**name, bytes));
        own.eq(join.protocols.iter().map(|(name, bytes)| (name.as_str(), bytes)))
    }
}

/// In version 0 the field is missing and the session timeout counts (contract G2.25).
pub(super) fn rebalance_timeout_ms(join: &Join) -> i32 {
    if join.version == 0 { join.session_timeout_ms } else { join.rebalance_timeout_ms }
}

/// The protocols of a request without the memory of its frame.
pub(super) fn own_protocols(join: &Join) -> Protocols {
    let own = |(name, bytes): &(String, Bytes)| (name.as_str().into(), Bytes::copy_from_slice(bytes));
    join.protocols.iter().map(own).collect()
}

#[derive(Debug, Default)]
pub(in crate::groups) struct Roster {
    /// By id; boxed, so that letting one in moves pointers.
    #[allow(clippy::vec_box)]
    members: Vec<Box<Member>>,
    /// Instance ids in their order, with the member's id.
    instances: Vec<(Arc<str>, Arc<str>)>,
    /// Protocol names in their order, with the number of members that support each.
    supported: Vec<(Box<str>, usize)>,
    joined: usize,
}

impl Roster {
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().map(|member| &**member)
    }

    /// For what a roster does not count: anything but instance, protocols and parked requests, which are closed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().map(|member| &mut **member)
    }

    fn find(&self, id: &str) -> Result<usize, usize> {
        self.members.binary_search_by(|member| (*member.id).cmp(id))
    }

    pub fn get(&self, id: &str) -> Option<&Member> {
        self.find(id).ok().map(|at| &*self.members[at])
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.find(id).ok().map(|at| &mut *self.members[at])
    }

    /// The member id of an instance.
    pub fn of_instance(&self, instance: &str) -> Option<&Arc<str>> {
        let at = self.instances.binary_search_by(|(known, _)| (**known).cmp(instance)).ok()?;
        Some(&self.instances[at].1)
    }

    /// Members that are parked in JoinGroup.
    pub fn joined(&self) -> usize {
        self.joined
    }

    /// # Panics
    /// If the id or the instance id is taken.
    pub fn insert(&mut self, member: Member) {
        let at = self.find(&member.id).expect_err("a member id is given once");
        if let Some(instance) = &member.instance {
            let free = self.instances.binary_search_by(|(known, _)| known.cmp(instance));
            self.instances.insert(free.expect_err("an instance is one member"), (instance.clone(), member.id.clone()));
        }
        self.joined += usize::from(member.has_joined());
        count(&mut self.supported, &member.protocols);
        self.members.insert(at, Box::new(member));
    }

    pub fn remove(&mut self, id: &str) -> Option<Member> {
        let at = self.find(id).ok()?;
        let member = self.members.remove(at);
        if let Some(instance) = &member.instance
            && let Ok(at) = self.instances.binary_search_by(|(known, _)| known.cmp(instance))
        {
            self.instances.remove(at);
        }
        self.joined -= usize::from(member.has_joined());
        discount(&mut self.supported, &member.protocols);
        Some(*member)
    }

    /// Parks a request; the one that it takes the place of is returned.
    pub fn park(&mut self, id: &str, parked: Parked) -> Parked {
        let at = self.find(id).expect("a member");
        let before = std::mem::replace(&mut self.members[at].parked, parked);
        self.joined += usize::from(parked.is_join());
        self.joined -= usize::from(before.is_join());
        before
    }

    /// Takes all requests of a kind out, with the ids of their members.
    pub fn unpark(&mut self, is_meant: impl Fn(Parked) -> bool) -> Vec<(Arc<str>, Parked)> {
        let mut taken = Vec::new();
        for member in self.members.iter_mut().filter(|member| is_meant(member.parked)) {
            self.joined -= usize::from(member.has_joined());
            taken.push((member.id.clone(), std::mem::take(&mut member.parked)));
        }
        taken
    }

    /// Takes over what a member that joins again says of itself.
    pub fn update(&mut self, id: &str, join: &Join) {
        let at = self.find(id).expect("a member");
        let member = &mut *self.members[at];
        member.session_timeout_ms = join.session_timeout_ms;
        member.rebalance_timeout_ms = rebalance_timeout_ms(join);
        let before = std::mem::replace(&mut member.protocols, own_protocols(join));
        discount(&mut self.supported, &before);
        count(&mut self.supported, &self.members[at].protocols);
    }

    fn support(&self, name: &str) -> usize {
        let at = self.supported.binary_search_by(|(known, _)| (**known).cmp(name));
        at.map_or(0, |at| self.supported[at].1)
    }

    /// Whether every member supports one of these protocols.
    pub fn supports_any<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        names.any(|name| self.support(name) == self.members.len())
    }

    /// The protocol that most members prefer among those that all support (contract G2.19); of equal ones the first in
    /// the list of `decides`. With `instead` as it would be if that member had these protocols.
    pub fn choose(&self, decides: Option<&str>, instead: Option<(&str, &Protocols)>) -> Option<Box<str>> {
        let protocols = |member: &'_ Member| match instead {
            Some((id, protocols)) if id == &*member.id => Some(protocols),
            _ => None,
        };
        let is_common = |name: &str| match instead {
            None => self.support(name) == self.members.len(),
            Some((id, protocols)) => {
                let had = self.get(id).is_some_and(|member| has(&member.protocols, name));
                has(protocols, name) && self.support(name) + 1 - usize::from(had) == self.members.len()
            }
        };
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.iter() {
            let mut names = protocols(member).unwrap_or(&member.protocols).iter().map(|(name, _)| &**name);
            if let Some(name) = names.find(|name| is_common(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.retain(|_, votes| *votes == most);
        let decides = decides.and_then(|id| self.get(id));
        let preferred = decides.map(|member| protocols(member).unwrap_or(&member.protocols));
        let preferred = preferred.and_then(|list| list.iter().find(|(name, _)| votes.contains_key(&**name)));
        preferred.map(|(name, _)| name.clone()).or_else(|| votes.keys().next().map(|name| Box::from(*name)))
    }

    /// Largest of the members' rebalance timeouts (contract G6.3).
    pub fn rebalance_timeout_ms(&self) -> u64 {
        self.iter().map(|member| u64::try_from(member.rebalance_timeout_ms).unwrap_or(0)).max().unwrap_or(0)
    }
}

fn has(protocols: &Protocols, wanted: &str) -> bool {
    protocols.iter().any(|(name, _)| &**name == wanted)
}

fn count(supported: &mut Vec<(Box<str>, usize)>, protocols: &Protocols) {
    for (name, _) in protocols {
        match supported.binary_search_by(|(known, _)| known.cmp(name)) {
            Ok(at) => supported[at].1 += 1,
            Err(at) => supported.insert(at, (name.clone(), 1)),
        }
    }
}

fn discount(supported: &mut Vec<(Box<str>, usize)>, protocols: &Protocols) {
    for (name, _) in protocols {
        let at = supported.binary_search_by(|(known, _)| known.cmp(name)).expect("counted when it came");
        supported[at].1 -= 1;
        if supported[at].1 == 0 {
            supported.remove(at);
        }
    }
}
