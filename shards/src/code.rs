//! Kafka's error codes, the answer to what a client did wrong.
//!
//! Only codes that this broker can send are listed; the numbers are the wire's.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// An error code of the Kafka protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ErrorCode {
            $($(#[$doc])* $name = $value),*
        }

        impl ErrorCode {
            /// All codes, for tests and metrics.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Kafka's name of the code in upper snake case is derived from this one.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            /// The code of a wire value, if this broker knows it.
            #[must_use]
            pub fn from_wire(value: i16) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// The broker failed inside; never sent on purpose.
    UnknownServerError = -1,
    /// Success.
    None = 0,
    /// Fetch or DeleteRecords outside the log.
    OffsetOutOfRange = 1,
    /// CRC or header of a batch is wrong.
    CorruptMessage = 2,
    /// No such topic or partition.
    UnknownTopicOrPartition = 3,
    /// The partition has no leader yet.
    LeaderNotAvailable = 5,
    /// This node does not own the partition.
    NotLeaderOrFollower = 6,
    /// A wait ended before what was waited for.
    RequestTimedOut = 7,
    /// Batch above max.message.bytes.
    MessageTooLarge = 10,
    /// Offset metadata above its limit.
    OffsetMetadataTooLarge = 12,
    /// State is being read after a start.
    CoordinatorLoadInProgress = 14,
    /// No coordinator for the key now.
    CoordinatorNotAvailable = 15,
    /// This node does not coordinate the key.
    NotCoordinator = 16,
    /// Topic name against the rules, or an internal topic.
    InvalidTopicException = 17,
    /// Batch above segment.bytes.
    RecordListTooLarge = 18,
    /// Too few replicas; retried by every client.
    NotEnoughReplicas = 19,
    /// acks is not -1, 0 or 1.
    InvalidRequiredAcks = 21,
    /// Group generation is not the current one.
    IllegalGeneration = 22,
    /// The group's protocols have none in common with the member's.
    InconsistentGroupProtocol = 23,
    /// Group id is empty or null.
    InvalidGroupId = 24,
    /// Member is not in the group.
    UnknownMemberId = 25,
    /// The session timeout is outside what the broker allows.
    InvalidSessionTimeout = 26,
    /// The group is rebalancing: join again.
    RebalanceInProgress = 27,
    /// Topic access refused.
    TopicAuthorizationFailed = 29,
    /// Group access refused.
    GroupAuthorizationFailed = 30,
    /// Cluster access refused.
    ClusterAuthorizationFailed = 31,
    /// Record timestamp outside the topic's limits.
    InvalidTimestamp = 32,
    /// SASL mechanism not offered.
    UnsupportedSaslMechanism = 33,
    /// SASL request out of order, or SASL is off.
    IllegalSaslState = 34,
    /// Request version or feature not served.
    UnsupportedVersion = 35,
    /// Topic name taken.
    TopicAlreadyExists = 36,
    /// Partition count impossible.
    InvalidPartitions = 37,
    /// Replication factor impossible.
    InvalidReplicationFactor = 38,
    /// Replica assignment impossible.
    InvalidReplicaAssignment = 39,
    /// Setting unknown or value refused.
    InvalidConfig = 40,
    /// Only the controller serves this.
    NotController = 41,
    /// Request contradicts itself.
    InvalidRequest = 42,
    /// Allowed by the protocol, refused by a rule of the broker.
    PolicyViolation = 44,
    /// Sequence does not follow the last one.
    OutOfOrderSequenceNumber = 45,
    /// Producer epoch is older than the current one.
    InvalidProducerEpoch = 47,
    /// Transaction is not in a state for this.
    InvalidTxnState = 48,
    /// Producer id does not belong to the transactional id.
    InvalidProducerIdMapping = 49,
    /// Transaction timeout outside its limits.
    InvalidTransactionTimeout = 50,
    /// The previous transaction is still completing.
    ConcurrentTransactions = 51,
    /// Marker from an old coordinator.
    TransactionCoordinatorFenced = 52,
    /// Transactional id access refused.
    TransactionalIdAuthorizationFailed = 53,
    /// ACL API without an authorizer.
    SecurityDisabled = 54,
    /// Not tried, because another entry failed.
    OperationNotAttempted = 55,
    /// The disk under the partition failed; it is offline.
    KafkaStorageError = 56,
    /// Directory is not one of the broker's.
    LogDirNotFound = 57,
    /// Delegation tokens need another kind of connection.
    DelegationTokenRequestNotAllowed = 64,
    /// Group still has members.
    NonEmptyGroup = 68,
    /// No such group.
    GroupIdNotFound = 69,
    /// Fetch session unknown.
    FetchSessionIdNotFound = 70,
    /// Fetch session epoch is not the next one.
    InvalidFetchSessionEpoch = 71,
    /// delete.topic.enable is false.
    TopicDeletionDisabled = 73,
    /// Client's leader epoch is older than the leader's.
    FencedLeaderEpoch = 74,
    /// Client's leader epoch is newer than the leader's.
    UnknownLeaderEpoch = 75,
    /// Codec not allowed at this request version.
    UnsupportedCompressionType = 76,
    /// Offset not known yet after an election.
    OffsetNotAvailable = 78,
    /// A new member gets its id first and joins with it.
    MemberIdRequired = 79,
    /// Preferred leader cannot lead.
    PreferredLeaderNotAvailable = 80,
    /// The group has as many members as it may have.
    GroupMaxSizeReached = 81,
    /// Static member was replaced.
    FencedInstanceId = 82,
    /// Leader is already the preferred one.
    ElectionNotNeeded = 84,
    /// No reassignment to cancel.
    NoReassignmentInProgress = 85,
    /// The group subscribes to the topic.
    GroupSubscribedToTopic = 86,
    /// A record or batch breaks the format's rules.
    InvalidRecord = 87,
    /// A transaction holds the offset.
    UnstableOffsetCommit = 88,
    /// A newer producer took over.
    ProducerFenced = 90,
    /// No such user or resource.
    ResourceNotFound = 91,
    /// Resource named twice.
    DuplicateResource = 92,
    /// Credential refused.
    UnacceptableCredential = 93,
    /// Feature level cannot change so.
    FeatureUpdateFailed = 95,
    /// No topic with this id.
    UnknownTopicId = 100,
    /// Topic id of a fetch session changed.
    InconsistentTopicId = 103,
    /// Transactional id unknown.
    TransactionalIdNotFound = 105,
    /// Session mixes names and ids.
    FetchSessionTopicIdError = 106,
    /// The member's epoch is not the one that the coordinator gave it: join again.
    FencedMemberEpoch = 110,
    /// The instance id belongs to a member that is still there.
    UnreleasedInstanceId = 111,
    /// The broker has no such assignor.
    UnsupportedAssignor = 112,
    /// The member's epoch is older than the coordinator's.
    StaleMemberEpoch = 113,
    /// Endpoint type is not served here.
    MismatchedEndpointType = 114,
    /// Endpoint type unknown.
    UnsupportedEndpointType = 115,
    /// Telemetry subscription unknown.
    UnknownSubscriptionId = 117,
    /// The transaction can only be aborted.
    TransactionAbortable = 120,
    /// Regular expression does not parse.
    InvalidRegularExpression = 128,
}

impl Default for ErrorCode {
    /// An answer starts as a success.
    fn default() -> Self {
        Self::None
    }
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub fn wire(self) -> i16 {
        self as i16
    }

    /// Whether this is success.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_wire() {
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_wire(code.wire()), Some(code));
        }
        assert_eq!(ErrorCode::from_wire(46), None, "46 is never sent (contract 0.1)");
        assert_eq!(ErrorCode::from_wire(59), None, "59 is never sent (contract 0.1)");
    }
}
