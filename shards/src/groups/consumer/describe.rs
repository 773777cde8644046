//! A consumer group for ConsumerGroupDescribe (contract G16).

use super::Consumer;
use crate::groups::{ConsumerDescription, ConsumerMemberDescription, GroupSettings};

impl Consumer {
    pub fn describe(&self, settings: &GroupSettings) -> ConsumerDescription {
        ConsumerDescription {
            state: self.state_name(),
            epoch: self.head.epoch,
            assignment_epoch: self.head.assignment_epoch,
            assignor: self.assignor(settings).to_owned(),
            members: self.members.iter().map(|(id, member)| describe_member(id, member)).collect(),
        }
    }
}

fn describe_member(id: &str, member: &super::Member) -> ConsumerMemberDescription {
    let about = &member.about;
    let mut held = member.current.assigned.clone();
    held.extend(&member.current.revoking);
    ConsumerMemberDescription {
        member_id: id.to_owned(),
        instance_id: about.instance_id.as_deref().map(str::to_owned),
        rack_id: about.rack_id.clone(),
        member_epoch: member.current.epoch,
        client: about.client(),
        topics: about.topics.iter().map(|topic| topic.to_string()).collect(),
        regex: about.regex.clone(),
        assignment: held.listed(),
        target: member.target.listed(),
        is_classic: member.is_classic(),
    }
}
