//! What groups are asked and what they answer: the requests of the APIs without their encodings.
//!
//! An API file turns its request into an [`Ask`] and a [`Reply`] into its answer; what differs between versions of the
//! same answer is its business, what differs in the decision is here. Strings of clients are kept as they came.

use bytes::Bytes;

use crate::code::ErrorCode;
use crate::ids::{PartitionKey, TopicId};
use crate::txn::{Identity, Outcome};

/// A request to one group.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// JoinGroup (contract G2).
    Join(Join),
    /// SyncGroup (G3).
    Sync(Sync),
    /// Heartbeat (G4).
    Heartbeat(Heartbeat),
    /// LeaveGroup (G5).
    Leave(Vec<Leaving>),
    /// OffsetCommit (G8), for partitions that exist.
    Commit(Commit),
    /// TxnOffsetCommit (eos contract C4), for partitions that exist, by a transaction that has the group.
    TxnCommit(TxnCommit),
    /// A transaction that has the group has ended (C3).
    TxnEnd(TxnEnd),
    /// OffsetFetch (G9).
    FetchOffsets(FetchOffsets),
    /// OffsetDelete (G10), for partitions that exist.
    DeleteOffsets(Vec<PartitionKey>),
    /// DeleteGroups (G7.8).
    Delete,
    /// DescribeGroups (G7.1).
    Describe,
    /// ConsumerGroupHeartbeat (G11).
    ConsumerHeartbeat(ConsumerHeartbeat),
    /// ConsumerGroupDescribe (G16).
    ConsumerDescribe,
}

/// An answer of one group.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To [`Ask::Join`].
    Join(Joined),
    /// To [`Ask::Sync`].
    Sync(Synced),
    /// To [`Ask::Heartbeat`].
    Heartbeat(ErrorCode),
    /// To [`Ask::Leave`]: a code for each entry, in their order.
    Leave(Vec<ErrorCode>),
    /// To [`Ask::Commit`] and [`Ask::TxnCommit`]: a code for each partition, in their order.
    Commit(Vec<ErrorCode>),
    /// To [`Ask::TxnEnd`].
    TxnEnded,
    /// To [`Ask::FetchOffsets`].
    FetchOffsets(FetchedOffsets),
    /// To [`Ask::DeleteOffsets`]: the code of all, or one for each partition, in their order.
    DeleteOffsets(Result<Vec<ErrorCode>, ErrorCode>),
    /// To [`Ask::Delete`].
    Delete(ErrorCode),
    /// To [`Ask::Describe`]: GROUP_ID_NOT_FOUND if absent or of another type (G7.3).
    Describe(Result<Description, ErrorCode>),
    /// To [`Ask::ConsumerHeartbeat`].
    ConsumerHeartbeat(ConsumerHeartbeatReply),
    /// To [`Ask::ConsumerDescribe`]: GROUP_ID_NOT_FOUND if absent or of another type (G16.4).
    ConsumerDescribe(Result<ConsumerDescription, ErrorCode>),
}

/// Who asks, as DescribeGroups tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Client id of the request's header, "" if there was none.
    pub id: String,
    /// Address with a leading `/`.
    pub host: String,
}

/// A JoinGroup request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Join {
    /// Version of the request: from 4 on a new member gets its id first (G2.10); 9 knows skip_assignment (G2.20).
    pub version: i16,
    /// Silence after which the member is removed.
    pub session_timeout_ms: i32,
    /// How long a rebalance waits for it; in version 0 the session timeout (G2.25).
    pub rebalance_timeout_ms: i32,
    /// "" if it has none yet.
    pub member_id: String,
    /// Of a static member.
    pub instance_id: Option<String>,
    /// Protocol type.
    pub protocol_type: String,
    /// Names and metadata, the preferred one first.
    pub protocols: Vec<(String, Bytes)>,
    /// Who asks.
    pub client: Client,
    /// A random number, unique: a new member id is made of it.
    pub fresh: u128,
}

/// Answer to [`Join`]. On an error only `code` and `member_id` say something (G2.15).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    /// NONE, or why not.
    pub code: ErrorCode,
    /// Generation, -1 on an error.
    pub generation: i32,
    /// Protocol type, `None` on an error.
    pub protocol_type: Option<String>,
    /// Chosen protocol, `None` on an error ("" on the wire up to version 6).
    pub protocol_name: Option<String>,
    /// Member id of the leader.
    pub leader: String,
    /// Whether the leader is not to assign anew.
    pub skip_assignment: bool,
    /// The member's id.
    pub member_id: String,
    /// All members, for the leader only.
    pub members: Vec<JoinedMember>,
}

impl Joined {
    /// A refusal.
    #[must_use]
    pub fn refused(code: ErrorCode, member_id: impl Into<String>) -> Self {
        Self { code, generation: -1, member_id: member_id.into(), ..Self::default() }
    }
}

/// A member as the leader hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: String,
    /// Of a static member.
    pub instance_id: Option<String>,
    /// Its metadata of the chosen protocol.
    pub metadata: Bytes,
}

/// A SyncGroup request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sync {
    /// Version of the request: 5 must name type and protocol (G3.1).
    pub version: i16,
    /// Who.
    pub member_id: String,
    /// Generation that it joined.
    pub generation: i32,
    /// Of a static member.
    pub instance_id: Option<String>,
    /// Protocol type, if given.
    pub protocol_type: Option<String>,
    /// Protocol, if given.
    pub protocol_name: Option<String>,
    /// From the leader: member ids and what they are to do.
    pub assignments: Vec<(String, Bytes)>,
}

/// Answer to [`Sync`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Synced {
    /// NONE, or why not.
    pub code: ErrorCode,
    /// `None` on an error.
    pub protocol_type: Option<String>,
    /// `None` on an error.
    pub protocol_name: Option<String>,
    /// What the member is to do; empty on an error.
    pub assignment: Bytes,
}

impl Synced {
    /// A refusal.
    #[must_use]
    pub fn refused(code: ErrorCode) -> Self {
        Self { code, ..Self::default() }
    }
}

/// A Heartbeat request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who.
    pub member_id: String,
    /// Generation that it is in.
    pub generation: i32,
    /// Of a static member.
    pub instance_id: Option<String>,
}

/// One entry of a LeaveGroup request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Who; "" where an administrator names the instance alone.
    pub member_id: String,
    /// Of a static member.
    pub instance_id: Option<String>,
}

/// An OffsetCommit request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Version of the request: members of KIP-848 need 9 (G17.1).
    pub version: i16,
    /// Who, "" without a group membership.
    pub member_id: String,
    /// Generation or member epoch, -1 without a membership.
    pub generation: i32,
    /// Of a static member.
    pub instance_id: Option<String>,
    /// Retention of these offsets alone; -1: the group's (G8.14).
    pub retention_ms: i64,
    /// What is committed; the last entry of a partition counts.
    pub partitions: Vec<CommitPartition>,
}

/// A TxnOffsetCommit request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnCommit {
    /// Whose transaction.
    pub producer: Identity,
    /// What; its `version` and `retention_ms` say nothing.
    pub commit: Commit,
}

/// The end of a transaction for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnEnd {
    /// Producer id and epoch of the marker.
    pub producer: Identity,
    /// TransactionVersion of contract A6: 2 for path B, else 0.
    pub version: i8,
    /// How.
    pub outcome: Outcome,
}

/// What is committed for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPartition {
    /// Which.
    pub key: PartitionKey,
    /// Next offset to read; any number (G8.10).
    pub offset: i64,
    /// Leader epoch of the record before, -1 unknown.
    pub leader_epoch: i32,
    /// The client's own; null reads back as "".
    pub metadata: Option<String>,
}

/// An OffsetFetch request to one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOffsets {
    /// Who, if given (v9).
    pub member_id: Option<String>,
    /// Member epoch, -1 if not given (v9).
    pub member_epoch: i32,
    /// Whether a partition with a pending transactional offset is refused (C5).
    pub require_stable: bool,
    /// Which; `None`: all that have a committed offset.
    pub partitions: Option<Vec<PartitionKey>>,
}

/// Answer to [`FetchOffsets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffsets {
    /// NONE, or why nothing is told (G9.9).
    pub code: ErrorCode,
    /// In the order asked; by topic id and index where all were asked.
    pub partitions: Vec<FetchedOffset>,
}

/// What is committed for one partition; offset -1 and "" if nothing is (G9.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    /// Which.
    pub key: PartitionKey,
    /// Next offset to read.
    pub offset: i64,
    /// Leader epoch of the record before.
    pub leader_epoch: i32,
    /// The client's own.
    pub metadata: String,
    /// NONE or UNSTABLE_OFFSET_COMMIT.
    pub code: ErrorCode,
}

/// A classic group for DescribeGroups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Name of its state.
    pub state: &'static str,
    /// Protocol type.
    pub protocol_type: String,
    /// Chosen protocol while Stable, else "".
    pub protocol: String,
    /// Its members.
    pub members: Vec<DescribedMember>,
}

/// A member for DescribeGroups.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedMember {
    /// Its id.
    pub member_id: String,
    /// Of a static member.
    pub instance_id: Option<String>,
    /// Whose it is.
    pub client: Client,
    /// Its metadata of the chosen protocol while Stable, else empty.
    pub metadata: Bytes,
    /// Its last assignment.
    pub assignment: Bytes,
}

/// Partitions by topic.
pub type TopicPartitions = Vec<(TopicId, Vec<i32>)>;

/// A ConsumerGroupHeartbeat request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsumerHeartbeat {
    /// Version of the request: from 1 on the client makes the member id (G11.2).
    pub version: i16,
    /// Who.
    pub member_id: String,
    /// 0 joins, -1 leaves, -2 leaves for a while (static).
    pub member_epoch: i32,
    /// Of a static member; null: unchanged.
    pub instance_id: Option<String>,
    /// Where it is; null: unchanged.
    pub rack_id: Option<String>,
    /// How long it may take to give partitions up; -1: unchanged.
    pub rebalance_timeout_ms: i32,
    /// Names of the topics it wants; null: unchanged.
    pub topics: Option<Vec<String>>,
    /// A regular expression for more of them; null: unchanged.
    pub regex: Option<String>,
    /// Assignor it asks for; null: unchanged.
    pub assignor: Option<String>,
    /// What it has; null: unchanged.
    pub owned: Option<TopicPartitions>,
    /// Who asks.
    pub client: Client,
    /// A random number, unique: a new member id is made of it.
    pub fresh: u128,
}

/// Answer to [`ConsumerHeartbeat`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerHeartbeatReply {
    /// NONE, or why not.
    pub code: ErrorCode,
    /// What was wrong.
    pub message: Option<String>,
    /// The member's id; `None` on an error.
    pub member_id: Option<String>,
    /// The member's epoch.
    pub member_epoch: i32,
    /// When to send the next one; 0 on an error and after leaving.
    pub heartbeat_interval_ms: i32,
    /// What it may have now; `None`: as before (G12.4).
    pub assignment: Option<TopicPartitions>,
}

impl ConsumerHeartbeatReply {
    /// A refusal.
    #[must_use]
    pub fn refused(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()), ..Self::default() }
    }
}

/// A consumer group for ConsumerGroupDescribe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsumerDescription {
    /// Name of its state.
    pub state: &'static str,
    /// Group epoch.
    pub epoch: i32,
    /// Epoch of the target assignment.
    pub assignment_epoch: i32,
    /// Assignor.
    pub assignor: String,
    /// Its members.
    pub members: Vec<ConsumerMemberDescription>,
}

/// A member for ConsumerGroupDescribe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsumerMemberDescription {
    /// Its id.
    pub member_id: String,
    /// Of a static member.
    pub instance_id: Option<String>,
    /// Where it is.
    pub rack_id: Option<String>,
    /// Its epoch.
    pub member_epoch: i32,
    /// Whose it is.
    pub client: Client,
    /// Names it wants.
    pub topics: Vec<String>,
    /// Its regular expression, "" if none.
    pub regex: String,
    /// What it has, with what it is giving up.
    pub assignment: TopicPartitions,
    /// What it is to have.
    pub target: TopicPartitions,
    /// Whether it speaks the classic protocol.
    pub is_classic: bool,
}

/// Which groups ListGroups is to tell (G7.7): an empty list lets all through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// States, in any case, blanks around them ignored.
    pub states: Vec<String>,
    /// Types, in any case.
    pub types: Vec<String>,
}

impl ListFilter {
    pub(super) fn admits(&self, listing: &Listing) -> bool {
        let named = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|wanted| wanted.trim().eq_ignore_ascii_case(name))
        };
        named(&self.states, listing.state) && named(&self.types, listing.kind)
    }
}

/// A group for ListGroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its id.
    pub group: String,
    /// Protocol type.
    pub protocol_type: String,
    /// Name of its state.
    pub state: &'static str,
    /// `classic` or `consumer`.
    pub kind: &'static str,
}
