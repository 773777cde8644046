//! Broker settings that groups act on (contract G20.3), with Kafka's names and defaults.

/// Which conversions between the protocols are allowed (`group.consumer.migration.policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationPolicy {
    /// Both ways.
    Bidirectional,
    /// From classic to consumer only.
    Upgrade,
    /// From consumer to classic only.
    Downgrade,
    /// None, except of empty groups.
    Disabled,
}

impl MigrationPolicy {
    /// Whether a classic group with members may become a consumer group.
    #[must_use]
    pub fn upgrades(self) -> bool {
        matches!(self, Self::Bidirectional | Self::Upgrade)
    }

    /// Whether a consumer group with members may become a classic one.
    #[must_use]
    pub fn downgrades(self) -> bool {
        matches!(self, Self::Bidirectional | Self::Downgrade)
    }
}

/// Settings of all groups of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// `group.min.session.timeout.ms`
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`
    pub members_max: usize,
    /// `group.consumer.session.timeout.ms`
    pub consumer_session_timeout_ms: i32,
    /// `group.consumer.heartbeat.interval.ms`
    pub consumer_heartbeat_interval_ms: i32,
    /// `group.consumer.assignment.interval.ms`
    pub consumer_assignment_interval_ms: i32,
    /// `group.consumer.max.size`
    pub consumer_members_max: usize,
    /// `group.consumer.assignors`, the first is the default; each is `uniform` or `range`.
    pub consumer_assignors: Vec<String>,
    /// `group.consumer.migration.policy`
    pub migration: MigrationPolicy,
    /// Whether `group.coordinator.rebalance.protocols` names `consumer`.
    pub consumer_protocol: bool,
    /// `offset.metadata.max.bytes`, which counts UTF-16 units (contract G8.8).
    pub offset_metadata_units_max: usize,
    /// `offsets.retention.minutes` in ms.
    pub offsets_retention_ms: i64,
    /// Bytes that one group's state or one commit may take (contract G3.12, G8.16): Kafka's `message.max.bytes`.
    pub record_bytes_max: usize,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            members_max: i32::MAX as usize,
            consumer_session_timeout_ms: 45_000,
            consumer_heartbeat_interval_ms: 5_000,
            consumer_assignment_interval_ms: 1_000,
            consumer_members_max: i32::MAX as usize,
            consumer_assignors: vec!["uniform".into(), "range".into()],
            migration: MigrationPolicy::Bidirectional,
            consumer_protocol: true,
            offset_metadata_units_max: 4096,
            offsets_retention_ms: 10_080 * 60_000,
            record_bytes_max: 1_048_588,
        }
    }
}
