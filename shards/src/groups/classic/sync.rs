//! SyncGroup (contract G3) and Heartbeat (G4).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::roster::{Member, Parked};
use super::{Classic, State};
use crate::code::ErrorCode;
use crate::groups::turn::Turn;
use crate::groups::{Heartbeat, Join, Reply, Sync, Synced};
use crate::partition::WaiterId;

/// What a stored generation takes beside its members, and a member beside its texts and bytes: lengths and numbers.
const GENERATION_BYTES: usize = 128;
const MEMBER_BYTES: usize = 24;

impl Classic {
    pub fn sync(&mut self, group: &Arc<str>, sync: Sync, waiter: WaiterId, turn: &mut Turn<'_>) {
        if let Err(code) = self.check_sync_member(&sync) {
            return turn.reply(waiter, Reply::Sync(Synced::refused(code)));
        }
        let id = sync.member_id.as_str();
        let member = self.roster.get_mut(id).expect("it was checked");
        member.has_synced = true;
        if self.state == State::Stable {
            self.restart_session(id, turn.now);
            return turn.reply(waiter, Reply::Sync(self.synced(id)));
        }
        // Of a client that asks twice only the last request is waited for; the one before may be retried.
        let before = self.roster.park(id, Parked::Sync(waiter));
        Self::refuse_parked(before, ErrorCode::RebalanceInProgress, id, turn);
        if self.is_leader(id) {
            self.assign(group, sync.assignments, turn);
        }
    }

    fn check_sync_member(&self, sync: &Sync) -> Result<(), ErrorCode> {
        self.check_member(&sync.member_id, sync.instance_id.as_deref())?;
        if sync.generation != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs = |given: &Option<String>, own: Option<&str>| given.is_some() && given.as_deref() != own;
        if differs(&sync.protocol_type, Some(&self.protocol_type))
            || differs(&sync.protocol_name, self.protocol.as_deref())
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        if self.state == State::Preparing { Err(ErrorCode::RebalanceInProgress) } else { Ok(()) }
    }

    /// The leader has assigned: everybody that waits hears its part (contract G3.8, G3.12).
    fn assign(&mut self, group: &Arc<str>, assignments: Vec<(String, Bytes)>, turn: &mut Turn<'_>) {
        let assigned: HashMap<_, _> = assignments.into_iter().collect();
        for member in self.roster.iter_mut() {
            // Copied: a member does not keep the leader's whole request in memory.
            member.assignment = assigned.get(&*member.id).map(|part| Bytes::copy_from_slice(part)).unwrap_or_default();
        }
        if self.record_bytes() > turn.settings.record_bytes_max {
            self.refuse_syncs(ErrorCode::UnknownServerError, turn);
            return self.rebalance(group, turn);
        }
        self.state = State::Stable;
        self.record(group, turn);
        for (id, parked) in self.roster.unpark(Parked::is_sync) {
            let Parked::Sync(waiter) = parked else { unreachable!("nobody joins in a sync phase") };
            turn.reply(waiter, Reply::Sync(self.synced(&id)));
            self.restart_session(&id, turn.now);
        }
    }

    fn synced(&self, member_id: &str) -> Synced {
        Synced {
            code: ErrorCode::None,
            protocol_type: Some(self.protocol_type.to_string()),
            protocol_name: self.protocol.as_deref().map(str::to_owned),
            assignment: self.roster.get(member_id).map(|member| member.assignment.clone()).unwrap_or_default(),
        }
    }

    /// Size of the generation as it is stored, without the overhead of the encoding.
    fn record_bytes(&self) -> usize {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let member = |member: &Member| {
            let texts = [&*member.id, &member.client.id, &member.client.host, member.instance.as_deref().unwrap_or("")];
            let texts: usize = texts.iter().map(|text| text.len()).sum();
            MEMBER_BYTES + texts + member.metadata(protocol).len() + member.assignment.len()
        };
        GENERATION_BYTES + self.protocol_type.len() + protocol.len() + self.roster.iter().map(member).sum::<usize>()
    }

    /// Whether the generation can still be stored when a member has the metadata of a join.
    pub(super) fn fits_after(&self, id: &str, join: &Join, bytes_max: usize) -> bool {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let before = self.roster.get(id).map_or(0, |member| member.metadata(protocol).len());
        let after = join.protocols.iter().find(|(name, _)| name == protocol).map_or(0, |(_, bytes)| bytes.len());
        after <= before || self.record_bytes() - before + after <= bytes_max
    }

    pub fn heartbeat(&mut self, beat: &Heartbeat, turn: &mut Turn<'_>) -> ErrorCode {
        if let Err(code) = self.check_member(&beat.member_id, beat.instance_id.as_deref()) {
            return code;
        }
        if beat.generation != self.generation {
            return ErrorCode::IllegalGeneration;
        }
        self.restart_session(&beat.member_id, turn.now);
        if self.state == State::Preparing { ErrorCode::RebalanceInProgress } else { ErrorCode::None }
    }
}
