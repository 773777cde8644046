//! What administrators are told (contract B9): always what is durable, never a pending step.

use std::sync::Arc;

use super::Now;
use super::ask::Description;
use super::slot::{Id, Slot};
use super::state::State;
use crate::ids::ProducerId;
use crate::slot::Position;

/// Which ids ListTransactions is to tell; an empty list lets all through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Names of states, exactly as Kafka writes them. Dead and PrepareEpochFence are known and match nothing; unknown
    /// ones are told back by the API.
    pub states: Vec<String>,
    /// Producer ids.
    pub producer_ids: Vec<ProducerId>,
    /// Only those that began longer ago than this; ids without a transaction count as that. Negative: all.
    pub duration_ms: i64,
}

impl ListFilter {
    /// Whether a name is that of a state.
    #[must_use]
    pub fn is_state(name: &str) -> bool {
        ["Dead", "PrepareEpochFence"].contains(&name) || State::ALL.iter().any(|state| state.name() == name)
    }
}

/// A transactional id for ListTransactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The id.
    pub id: Arc<str>,
    /// Its producer id.
    pub producer_id: ProducerId,
    /// Name of its state.
    pub state: &'static str,
}

impl Id {
    /// As it is durable, with the members that joined up to a position.
    pub(super) fn describe(&self, durable: Position) -> Option<Description> {
        let head = self.stored.as_ref()?;
        let (mut partitions, mut groups) = (Vec::new(), Vec::new());
        if head.state == State::Ongoing {
            let members = &self.members;
            partitions.extend(members.partitions.iter().filter(|(_, at)| **at <= durable).map(|(key, _)| *key));
            groups.extend(members.groups.iter().filter(|(_, at)| **at <= durable).map(|(group, _)| group.clone()));
        } else if let Some(dispatch) = &self.dispatch {
            partitions.extend(dispatch.partitions());
            groups.extend(dispatch.groups().cloned());
        }
        Some(Description {
            state: head.state.name(),
            producer: head.identity(),
            timeout_ms: head.timeout_ms,
            start: head.start,
            partitions,
            groups,
        })
    }
}

impl Slot {
    pub(super) fn list(&self, filter: &ListFilter, now: Now, wanted: &dyn Fn(&str) -> bool) -> Vec<Listing> {
        let admits = |id: &Id| {
            let Some(head) = &id.stored else { return false };
            let by_state = filter.states.is_empty() || filter.states.iter().any(|name| name == head.state.name());
            let by_producer = filter.producer_ids.is_empty() || filter.producer_ids.contains(&head.producer_id);
            let age_ms = now.wall.0.saturating_sub(head.start.0);
            by_state && by_producer && (filter.duration_ms < 0 || age_ms > filter.duration_ms)
        };
        let mut listed: Vec<_> = self
            .ids()
            .filter(|(name, id)| admits(id) && wanted(name))
            .filter_map(|(name, id)| {
                let head = id.stored.as_ref()?;
                Some(Listing { id: name.clone(), producer_id: head.producer_id, state: head.state.name() })
            })
            .collect();
        listed.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        listed
    }
}
