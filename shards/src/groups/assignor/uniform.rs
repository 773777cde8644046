//! Equal shares where all members subscribe to the same topics (contract G13.2).
//!
//! All partitions are one pool and shares differ by one at most. A member keeps what it has up to its share, and the
//! shares that are one larger go first to members that have that much already.

use super::Input;
use crate::groups::sets::Partitions;
use crate::ids::PartitionKey;

pub(super) fn assign(input: &Input<'_>) -> Vec<Partitions> {
    let topics = input.subscriptions.first().map_or(&[][..], Vec::as_slice);
    let mut free: Partitions = Partitions::default();
    for topic in topics {
        (0..input.partitions(*topic)).for_each(|index| _ = free.insert(PartitionKey { topic: *topic, index }));
    }
    let (share, mut larger) = (free.len() / input.members.len(), free.len() % input.members.len());
    let mut all = Vec::with_capacity(input.members.len());
    let mut sizes = Vec::with_capacity(input.members.len());
    for member in input.members {
        let mut kept = Partitions::default();
        let mut size = 0;
        for key in member.had.iter() {
            if size == share && larger == 0 || size > share {
                break;
            }
            if free.remove(key) {
                kept.insert(key);
                size += 1;
                larger -= usize::from(size > share);
            }
        }
        all.push(kept);
        sizes.push(size);
    }
    let mut free = free.iter();
    for (kept, size) in all.iter_mut().zip(&mut sizes) {
        while *size < share {
            kept.insert(free.next().expect("shares add up to all partitions"));
            *size += 1;
        }
    }
    for (kept, size) in all.iter_mut().zip(&mut sizes) {
        if larger > 0 && *size == share {
            kept.insert(free.next().expect("shares add up to all partitions"));
            larger -= 1;
        }
    }
    assert!(free.next().is_none() && larger == 0, "every partition has a member");
    all
}
