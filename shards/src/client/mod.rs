//! The native producer's decisions: what to send where, in which order, under which sequence, and what became of it.
//! Beside it, in [`member`], those of a member of a consumer group.
//!
//! Owner: one [`Machine`] for each producer; an edge owns its sockets and its clock, carries out [`Output`]s and
//! brings answers and losses back. What it guarantees, whatever the network does: a record reported [`Delivered`] is in
//! the log once and in the order of its partition; a record reported failed for certain is not in the log; only
//! [`Written::Unknown`] may be either, and at most once. How:
//!
//! - A batch that was sent keeps producer id, epoch and sequence through all its tries, so that the broker tells a
//!   repetition. It gets other ones only when every try was refused for certain.
//! - The unit of retry is the batch. In a partition only the first batch that has no answer is sent again, and nothing
//!   new is sent behind a batch that waits for its retry, or over another connection than what is under way.
//! - When a sequence will never be filled, the epoch goes up, locally and for all partitions; but each partition
//!   crosses over alone, when nothing of its old epoch is without an answer.
//! - Until a partition has acknowledged something of this producer id, one batch of it is under way: a broker that does
//!   not know a producer takes any first sequence (contract A5.6), also that of a second batch whose first it refused.
//!
//! Limits: [`Settings`]. Failure: a transport fault is a retry until the delivery timeout; what the broker answers is
//! classified in `verdict`.

mod answers;
mod batch;
mod control;
mod drain;
mod error;
mod lane;
mod machine;
pub mod member;
mod message;
mod metadata;
mod nodes;
mod ops;
mod partitioner;
mod payload;
mod settings;
mod topic;
mod txn;
mod verdict;

pub use error::{ClientFailure, Next, Reason, SendError, Written};
pub use machine::Machine;
pub use message::{
    Answer, CallId, ConnectionId, Delivered, GroupMember, Identity, MetadataAnswer, NewRecord, OffsetToCommit, OpId,
    Output, PartitionAnswer, PartitionMetadata, ProduceAnswer, ProducePart, RecordId, Request, TopicMetadata,
};
pub use partitioner::partition_of;
pub use payload::Payload;
pub use settings::Settings;

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod sim_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod txn_tests;
