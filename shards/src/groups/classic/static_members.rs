//! Static members that come back: a JoinGroup with a known instance id and no member id takes the member's place under
//! a new id (contract G2.20 to G2.23).

use std::sync::Arc;

use super::roster::{Member, MemberParts, Parked, own_protocols, rebalance_timeout_ms};
use super::{Classic, ClassicEntry, State};
use crate::code::ErrorCode;
use crate::groups::turn::Turn;
use crate::groups::{Entry, Join, Joined, Reply};
use crate::partition::WaiterId;

/// From this version on the leader that comes back is told that it need not assign (contract G2.20).
const SKIP_VERSION: i16 = 9;

impl Classic {
    pub(super) fn replace(
        &mut self,
        group: &Arc<str>,
        from: &Arc<str>,
        to: Arc<str>,
        join: &Join,
        waiter: WaiterId,
        turn: &mut Turn<'_>,
    ) -> Result<(), Joined> {
        let protocols = own_protocols(join);
        let decides = self.leader.as_deref();
        let is_quiet =
            self.state == State::Stable && self.roster.choose(decides, Some((from, &protocols))) == self.protocol;
        if is_quiet && !self.fits_after(from, join, turn.settings.record_bytes_max) {
            return Err(Joined::refused(ErrorCode::UnknownServerError, ""));
        }
        if !is_quiet {
            self.keep();
            self.rename_kept(group, from, &to, turn);
        }
        let leader_before = self.leader.clone();
        self.put_in_place(from, &to, turn);
        self.roster.update(&to, join);
        self.restart_session(&to, turn.now);
        if is_quiet {
            self.record_rejoin(group, from, &to, join, turn);
            let mut joined = self.joined(&to);
            if join.version >= SKIP_VERSION {
                joined.skip_assignment = self.is_leader(&to);
            } else {
                joined.leader = leader_before.as_deref().unwrap_or_default().to_owned();
                joined.members.clear();
            }
            turn.reply(waiter, Reply::Join(joined));
            return Ok(());
        }
        self.roster.park(&to, Parked::Join(waiter));
        self.rebalance(group, turn);
        Ok(())
    }

    /// The member under its new id; whoever waits under the old one is fenced.
    fn put_in_place(&mut self, from: &Arc<str>, to: &Arc<str>, turn: &mut Turn<'_>) {
        let parked = self.roster.park(from, Parked::No);
        Self::refuse_parked(parked, ErrorCode::FencedInstanceId, from, turn);
        let before = self.roster.remove(from).expect("the instance is known");
        let mut member = Member::new(MemberParts { id: to.clone(), ..before.parts() });
        member.has_synced = before.has_synced;
        self.roster.insert(member);
        if self.is_leader(from) {
            self.leader = Some(to.clone());
        }
    }

    fn record_rejoin(&self, group: &Arc<str>, from: &Arc<str>, to: &Arc<str>, join: &Join, turn: &mut Turn<'_>) {
        let protocol = self.protocol.as_deref().expect("a stable group has a protocol");
        let entry = ClassicEntry::Rejoined {
            from: from.clone(),
            to: to.clone(),
            session_timeout_ms: join.session_timeout_ms,
            rebalance_timeout_ms: rebalance_timeout_ms(join),
            metadata: self.roster.get(to).expect("just inserted").metadata(protocol),
        };
        turn.record(&Entry::Classic { group: group.clone(), entry });
    }
}
