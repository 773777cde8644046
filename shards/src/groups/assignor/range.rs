//! Contiguous ranges of each topic (contract G13.3).
//!
//! Nothing is kept for its own sake, so that partitions of the same index of several topics meet at one member.

use super::Input;
use crate::groups::sets::Partitions;
use crate::ids::PartitionKey;

pub(super) fn assign(input: &Input<'_>) -> Vec<Partitions> {
    let mut all = vec![Partitions::default(); input.members.len()];
    for (topic, mut subscribers) in input.subscribers() {
        // Static members first and by instance, so that a restart under another member id changes nothing.
        subscribers.sort_by_key(|at| {
            let member = &input.members[*at];
            (member.instance_id.is_none(), member.instance_id.unwrap_or(member.id))
        });
        let partitions = input.partitions(topic);
        let members = i32::try_from(subscribers.len()).expect("members of one group");
        let (each, more) = (partitions / members, partitions % members);
        let mut next = 0;
        for (rank, at) in (0..).zip(subscribers) {
            let end = next + each + i32::from(rank < more);
            (next..end).for_each(|index| _ = all[at].insert(PartitionKey { topic, index }));
            next = end;
        }
        assert_eq!(next, partitions, "every partition of {topic} has a member");
    }
    all
}
