//! What a classic group has to say about offsets: who may commit (contract G8.4 to G8.7, eos contract C4.3), which
//! topics it reads (G10.4), and how old its offsets may get (G10.7).

use std::collections::BTreeSet;

use super::{Classic, State, Topics};
use crate::code::ErrorCode;
use crate::groups::Commit;
use crate::groups::group::Subscribed;
use crate::groups::offsets::Retention;
use crate::groups::subscription::Subscription;
use crate::groups::turn::Turn;
use crate::image::Image;

/// Protocol type whose metadata are subscriptions.
const CONSUMER: &str = "consumer";

impl Classic {
    /// An accepted commit of a member restarts its session.
    pub fn check_commit(&mut self, commit: &Commit, turn: &mut Turn<'_>) -> Result<(), ErrorCode> {
        if self.state == State::Empty && commit.generation < 0 {
            return Ok(());
        }
        let names_member = commit.generation >= 0 || !commit.member_id.is_empty() || commit.instance_id.is_some();
        if names_member {
            self.check_member(&commit.member_id, commit.instance_id.as_deref())?;
            if commit.generation != self.generation {
                return Err(ErrorCode::IllegalGeneration);
            }
        } else {
            return Err(ErrorCode::UnknownMemberId);
        }
        if self.state == State::Completing {
            return Err(ErrorCode::RebalanceInProgress);
        }
        self.restart_session(&commit.member_id, turn.now);
        Ok(())
    }

    /// The fence of KIP-447 for a commit that names a membership. A rebalance is none of its business, and the session
    /// goes on as it was.
    pub fn check_txn_commit(&self, commit: &Commit) -> Result<(), ErrorCode> {
        if self.state == State::Empty && commit.generation < 0 {
            return Ok(());
        }
        self.check_member(&commit.member_id, commit.instance_id.as_deref())?;
        if commit.generation == self.generation { Ok(()) } else { Err(ErrorCode::IllegalGeneration) }
    }

    /// Topics of the members' subscriptions, as the generation that is being completed has them.
    pub(super) fn read_subscriptions(&self) -> Topics {
        if *self.protocol_type != *CONSUMER {
            return if self.roster.is_empty() { Topics::Named(Box::default()) } else { Topics::Unknown };
        }
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let mut topics = BTreeSet::new();
        for member in self.roster.iter() {
            let Some(subscription) = Subscription::parse(&member.metadata(protocol)) else { return Topics::Unknown };
            topics.extend(subscription.topics.into_iter().map(String::into_boxed_str));
        }
        Topics::Named(topics.into_iter().collect())
    }

    pub fn subscribed(&self, image: &Image) -> Subscribed {
        match &self.subscribed {
            Topics::Unknown => Subscribed::Everything,
            Topics::Named(names) if names.is_empty() => Subscribed::Nothing,
            Topics::Named(names) => {
                Subscribed::Topics(names.iter().filter_map(|name| image.topic(name)).map(|topic| topic.id).collect())
            }
        }
    }

    pub fn retention(&self, image: &Image) -> Retention {
        match self.state {
            _ if self.protocol_type.is_empty() => Retention::SinceCommit(Subscribed::Nothing),
            State::Empty => Retention::Since(self.since),
            State::Stable if self.subscribed != Topics::Unknown => Retention::SinceCommit(self.subscribed(image)),
            _ => Retention::Forever,
        }
    }
}
