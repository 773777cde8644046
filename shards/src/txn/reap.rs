//! What ends by itself: transactions that stay open too long (contract B6), and ids that nobody uses (B8).
//!
//! Failure: an abort that needs a producer id and gets none is tried again at the next look.

use super::ask::Outcome;
use super::end::{self, Bump};
use super::entry::Change;
use super::slot::Slot;
use super::turn::Turn;

impl Slot {
    pub(super) fn reap(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        if self.abort_due_ms <= now_ms {
            self.abort_due_ms = now_ms.saturating_add(turn.settings.abort_interval_ms);
            self.abort_overdue(turn);
        }
        if self.remove_due_ms <= now_ms {
            self.remove_due_ms = now_ms.saturating_add(turn.settings.remove_interval_ms);
            self.remove_expired(turn);
        }
    }

    fn abort_overdue(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.wall;
        let overdue = |name: &_| self.at_rest(name).is_some_and(|head| head.is_overdue(now));
        let names: Vec<_> = self.open.iter().filter(|name| overdue(name)).cloned().collect();
        for name in names {
            let head = self.at_rest(&name).expect("just seen");
            let bump = Bump::of_server(turn.settings.version);
            if let Ok(change) = end::prepare(head, Outcome::Abort, bump, turn.producer_ids, now) {
                self.timed_out += 1;
                self.record(&name, change, None, None, turn);
            }
        }
    }

    fn remove_expired(&mut self, turn: &mut Turn<'_>) {
        let before = turn.now.wall.0.saturating_sub(turn.settings.id_expiration_ms);
        let is_expired =
            |name: &_| self.at_rest(name).is_some_and(|head| head.state.is_idle() && head.update.0 <= before);
        let mut names: Vec<_> = self.ids().map(|(name, _)| name).filter(|name| is_expired(name)).cloned().collect();
        names.sort_unstable();
        for name in names {
            self.record(&name, Change::Gone, None, None, turn);
        }
    }
}
