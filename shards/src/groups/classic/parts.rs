//! A classic group taken apart and put together: what a conversion between the protocols needs (contract G18).

use super::roster::{Member, MemberParts, Parked, Roster};
use super::{Classic, State};
use crate::code::ErrorCode;
use crate::groups::Now;
use crate::groups::turn::Turn;

/// A classic group with members.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::groups) struct Parts {
    pub generation: i32,
    pub protocol_type: Box<str>,
    /// The chosen one, which all members support; `None` until the first join phase is over.
    pub protocol: Option<Box<str>>,
    /// In the order of their ids.
    pub members: Vec<MemberParts>,
}

#[allow(dead_code)]
impl Classic {
    /// What it consists of. Pending members are not among its members.
    pub fn parts(&self) -> Parts {
        Parts {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            members: self.roster.iter().map(Member::parts).collect(),
        }
    }

    /// Ends it in favour of another protocol: whoever waits is told to rebalance (contract G18.1).
    pub fn release(&mut self, turn: &mut Turn<'_>) {
        for (id, parked) in self.roster.unpark(Parked::is_any) {
            Self::refuse_parked(parked, ErrorCode::RebalanceInProgress, &id, turn);
        }
        *self = Self::new();
    }

    /// A Stable group of these members, whose sessions start now; the first of them leads. The caller writes it down
    /// with [`Classic::record`], and has it rebalance with [`Classic::rebalance`] where the contract says so (G18.8,
    /// G18.9).
    ///
    /// # Panics
    /// Without members, or without a protocol that all of them support.
    pub fn from_parts(parts: Parts, now: Now) -> Self {
        let leader = parts.members.first().expect("a group without members is not converted").id.clone();
        let mut roster = Roster::default();
        parts.members.into_iter().for_each(|member| roster.insert(Member::new(member)));
        let protocol = parts.protocol.expect("classic members share a protocol");
        assert!(roster.supports_any(std::iter::once(&*protocol)), "classic members share a protocol");
        let mut classic = Self {
            state: State::Stable,
            generation: parts.generation,
            protocol_type: parts.protocol_type,
            protocol: Some(protocol),
            leader: Some(leader),
            roster,
            ..Self::new()
        };
        classic.loaded(now);
        classic
    }

    /// The chosen protocol for members of a consumer group: the one that [`Classic::from_parts`] needs.
    pub fn common_protocol(members: &[MemberParts]) -> Option<Box<str>> {
        let mut roster = Roster::default();
        members.iter().for_each(|member| roster.insert(Member::new(member.clone())));
        roster.choose(members.first().map(|member| &*member.id), None)
    }
}
