//! ConsumerGroupHeartbeat (contract G12): a member says what is new, and hears what it may have.

use std::sync::Arc;

use super::check::{Admitted, set_of};
use super::member::{AWAY, About, State};
use super::{Consumer, ConsumerEntry};
use crate::groups::turn::Turn;
use crate::groups::{ConsumerHeartbeat, ConsumerHeartbeatReply};

/// How a subscription differs from the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Difference {
    /// Other names, or another expression.
    pub any: bool,
    /// Topics differ right now: an expression that has not been matched changes nothing yet (contract G14.2).
    pub topics: bool,
}

impl Consumer {
    /// One heartbeat, with all of its checks.
    pub fn heartbeat(
        &mut self,
        group: &Arc<str>,
        beat: &ConsumerHeartbeat,
        turn: &mut Turn<'_>,
    ) -> ConsumerHeartbeatReply {
        let admitted = match self.admit(beat, turn) {
            Ok(admitted) => admitted,
            Err(refused) => return refused,
        };
        let reply = match beat.member_epoch {
            -1 => self.leave(&admitted.id, turn),
            AWAY => self.leave_for_a_while(&admitted.id),
            _ => self.beat(admitted, beat, turn),
        };
        self.match_expressions(turn);
        self.write(group, turn);
        reply
    }

    fn beat(&mut self, admitted: Admitted, beat: &ConsumerHeartbeat, turn: &mut Turn<'_>) -> ConsumerHeartbeatReply {
        let Admitted { id, replaces } = admitted;
        if let Some(old) = replaces {
            self.replace(&old, &id);
        }
        let difference = match self.members.get(&id) {
            Some(member) if says_nothing_new(&member.about, beat) => Difference::default(),
            member => {
                let mut about = member.map(|member| member.about.clone()).unwrap_or_default();
                update(&mut about, beat);
                self.subscribe(&id, about)
            }
        };
        self.refresh_topics(difference.topics, turn.image);
        self.update_targets(turn);
        let owned = beat.owned.as_ref().map(set_of);
        let changed = self.reconcile(&id, difference.any, owned.as_ref(), turn);
        self.restart_session(&id, turn);
        let current = &self.members[&id].current;
        let is_full =
            beat.rebalance_timeout_ms != -1 && (beat.topics.is_some() || beat.regex.is_some()) && beat.owned.is_some();
        ConsumerHeartbeatReply {
            member_id: Some(id.to_string()),
            member_epoch: current.epoch,
            heartbeat_interval_ms: turn.settings.consumer_heartbeat_interval_ms,
            assignment: (is_full || beat.member_epoch == 0 || changed).then(|| current.assigned.listed()),
            ..ConsumerHeartbeatReply::default()
        }
    }

    /// Takes in what a member says of itself, if it differs.
    pub(super) fn subscribe(&mut self, id: &Arc<str>, about: About) -> Difference {
        let nothing = About::default();
        let before = self.members.get(id).map_or(&nothing, |member| &member.about);
        let (names, regex) = (before.topics != about.topics, before.regex != about.regex);
        let is_matched = about.regex.is_empty() || self.wanted.matched(&about.regex).is_some();
        if self.members.get(id).is_none_or(|member| member.about != about) {
            self.put_member(id, about);
        }
        Difference { any: names || regex, topics: names || regex && is_matched }
    }

    /// A static member comes back, maybe under another id: it goes on where it was (contract G15.4, G18.8).
    pub(super) fn replace(&mut self, old: &Arc<str>, id: &Arc<str>) {
        let member = self.members[old].clone();
        let mut current = member.current;
        (current.epoch, current.previous_epoch) = (0, 0);
        self.change(ConsumerEntry::Left { id: old.clone() });
        self.put_member(id, member.about);
        self.put_current(id, current);
        self.put_target(id, member.target);
    }

    /// Leaves for a while: keeps everything but what it was to give up (contract G15.3, G15.6).
    fn leave_for_a_while(&mut self, id: &Arc<str>) -> ConsumerHeartbeatReply {
        let member = self.members.get_mut(id).expect("an admitted member");
        member.timers.revoke_ms = None;
        let mut current = member.current.clone();
        current.epoch = AWAY;
        current.revoking = Default::default();
        if current.state == State::Revoking {
            current.state = State::Stable;
        }
        if current != member.current {
            self.put_current(id, current);
        }
        ConsumerHeartbeatReply {
            member_id: Some(id.to_string()),
            member_epoch: AWAY,
            ..ConsumerHeartbeatReply::default()
        }
    }

    fn leave(&mut self, id: &Arc<str>, turn: &Turn<'_>) -> ConsumerHeartbeatReply {
        self.remove(std::slice::from_ref(id), turn.image);
        ConsumerHeartbeatReply {
            member_id: Some(id.to_string()),
            member_epoch: -1,
            ..ConsumerHeartbeatReply::default()
        }
    }

    /// Matches expressions where it is due. The answer at hand is out of it: its member hears of it with its next
    /// heartbeat (contract G14.2).
    pub(super) fn match_expressions(&mut self, turn: &Turn<'_>) {
        let changes = self.wanted.rematch(turn.now, turn.image);
        let differ = changes.iter().any(|(differs, ..)| *differs);
        for (_, regex, topics) in changes {
            self.step.push(ConsumerEntry::Matched { regex, topics });
        }
        if differ {
            self.refresh_topics(true, turn.image);
        }
    }
}

fn says_nothing_new(about: &About, beat: &ConsumerHeartbeat) -> bool {
    let text = |said: &Option<String>, is: Option<&str>| said.as_deref().is_none_or(|said| is == Some(said));
    about.classic.is_none()
        && text(&beat.instance_id, about.instance_id.as_deref())
        && text(&beat.rack_id, about.rack_id.as_deref())
        && text(&beat.regex, Some(&about.regex))
        && text(&beat.assignor, about.assignor.as_deref())
        && (beat.rebalance_timeout_ms == -1 || beat.rebalance_timeout_ms == about.rebalance_timeout_ms)
        && beat.topics.as_ref().is_none_or(|topics| {
            topics.len() == about.topics.len() && topics.iter().all(|topic| about.topics.contains(&**topic))
        })
        && beat.client.id == about.client_id
        && beat.client.host == about.client_host
}

fn update(about: &mut About, beat: &ConsumerHeartbeat) {
    if let Some(instance) = &beat.instance_id {
        about.instance_id = Some(instance.as_str().into());
    }
    if beat.rack_id.is_some() {
        about.rack_id.clone_from(&beat.rack_id);
    }
    if beat.rebalance_timeout_ms != -1 {
        about.rebalance_timeout_ms = beat.rebalance_timeout_ms;
    }
    if let Some(topics) = &beat.topics {
        about.topics = topics.iter().map(|topic| topic.as_str().into()).collect();
    }
    if let Some(regex) = &beat.regex {
        about.regex.clone_from(regex);
    }
    if beat.assignor.is_some() {
        about.assignor.clone_from(&beat.assignor);
    }
    about.set_client(&beat.client);
    about.classic = None;
}
