//! What one step of a group may use: the time, the topics, the settings, and the two ways out of it.

use super::{Entry, GroupSettings, Now, Reply};
use crate::code::ErrorCode;
use crate::image::Image;
use crate::partition::WaiterId;
use crate::slot::Journal;

pub(super) struct Turn<'a> {
    pub now: Now,
    pub image: &'a Image,
    pub settings: &'a GroupSettings,
    pub journal: &'a mut Journal,
    pub replies: &'a mut Vec<(WaiterId, Result<Reply, ErrorCode>)>,
}

impl Turn<'_> {
    /// Answers a request once everything recorded so far is durable.
    pub fn reply(&mut self, waiter: WaiterId, reply: Reply) {
        self.replies.push((waiter, Ok(reply)));
    }

    /// Writes down a change of state that has just been made.
    pub fn record(&mut self, entry: &Entry) {
        self.journal.append(entry);
    }
}
