//! The APIs that this broker announces and serves: one line each (contract G1, K18, KU.5).
//!
//! An announced version is answered; whatever is not in this table closes the connection (contract KC.5), with the
//! exception of ApiVersions. Three versions are newer than the crate that encodes them, see [`codec_version`]:
//! ListOffsets 11 has the layout of 10, the answer to WriteTxnMarkers 2 that of 1, and the answer to DescribeLogDirs 5
//! has one field more than that to 4.
//! [`TRANSACTIONS_SERVED`] is the one switch that takes the APIs of transactions in or out of what is announced.

/// What no version reaches.
const NEVER: i16 = i16::MAX;

/// Key of Produce.
pub const PRODUCE: i16 = 0;
/// Key of Fetch.
pub const FETCH: i16 = 1;
/// Key of ListOffsets.
pub const LIST_OFFSETS: i16 = 2;
/// Key of OffsetCommit.
pub const OFFSET_COMMIT: i16 = 8;
/// Key of OffsetFetch.
pub const OFFSET_FETCH: i16 = 9;
/// Key of WriteTxnMarkers.
pub const WRITE_TXN_MARKERS: i16 = 27;
/// Key of DescribeLogDirs.
pub const DESCRIBE_LOG_DIRS: i16 = 35;
/// Key of ApiVersions.
pub const API_VERSIONS: i16 = 18;

/// Oldest Produce that is served. Older ones are announced all the same, because librdkafka before 2.11.1 takes their
/// absence for the absence of compression (contract G2); a request of theirs closes the connection.
pub const PRODUCE_SERVED_MIN: i16 = 3;

/// Newest ListOffsets that the crate kafka-protocol knows.
const LIST_OFFSETS_CODEC_MAX: i16 = 10;
/// Newest WriteTxnMarkers that the crate kafka-protocol knows.
const WRITE_TXN_MARKERS_CODEC_MAX: i16 = 1;
/// Newest DescribeLogDirs that the crate kafka-protocol knows.
const DESCRIBE_LOG_DIRS_CODEC_MAX: i16 = 4;

/// Whether clients may use transactions: their APIs are announced and served, `transaction.version` is a feature, and
/// InitProducerId takes transactional ids. Handlers and encodings are there either way.
pub const TRANSACTIONS_SERVED: bool = true;

/// APIs that are announced only with transactions.
const TRANSACTIONAL: &[i16] = &[24, 25, 26, 27, 28, 65, 66];

/// One announced API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRange {
    /// API key.
    pub key: i16,
    /// Kafka's name.
    pub name: &'static str,
    /// Oldest version announced.
    pub min: i16,
    /// Newest version announced and served.
    pub max: i16,
    /// First version with compact lengths and tag sections.
    pub flexible_from: i16,
}

const fn api(key: i16, name: &'static str, min: i16, max: i16, flexible_from: i16) -> ApiRange {
    ApiRange { key, name, min, max, flexible_from }
}

/// Every API that has a handler, keys ascending.
pub const KNOWN: &[ApiRange] = &[
    api(PRODUCE, "Produce", 0, 13, 9),
    api(FETCH, "Fetch", 4, 18, 12),
    api(LIST_OFFSETS, "ListOffsets", 1, 11, 6),
    api(3, "Metadata", 0, 13, 9),
    api(OFFSET_COMMIT, "OffsetCommit", 2, 10, 8),
    api(OFFSET_FETCH, "OffsetFetch", 1, 10, 6),
    api(10, "FindCoordinator", 0, 6, 3),
    api(11, "JoinGroup", 0, 9, 6),
    api(12, "Heartbeat", 0, 4, 4),
    api(13, "LeaveGroup", 0, 5, 4),
    api(14, "SyncGroup", 0, 5, 4),
    api(15, "DescribeGroups", 0, 6, 5),
    api(16, "ListGroups", 0, 5, 3),
    api(API_VERSIONS, "ApiVersions", 0, 4, 3),
    api(19, "CreateTopics", 2, 7, 5),
    api(20, "DeleteTopics", 1, 6, 4),
    api(21, "DeleteRecords", 0, 2, 2),
    api(22, "InitProducerId", 0, 5, 2),
    api(23, "OffsetForLeaderEpoch", 2, 4, 4),
    api(24, "AddPartitionsToTxn", 0, 5, 3),
    api(25, "AddOffsetsToTxn", 0, 4, 3),
    api(26, "EndTxn", 0, 5, 3),
    api(WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1),
    api(28, "TxnOffsetCommit", 0, 5, 3),
    api(29, "DescribeAcls", 1, 3, 2),
    api(30, "CreateAcls", 1, 3, 2),
    api(31, "DeleteAcls", 1, 3, 2),
    api(32, "DescribeConfigs", 1, 4, 4),
    api(33, "AlterConfigs", 0, 2, 2),
    api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5, 2),
    api(37, "CreatePartitions", 0, 3, 2),
    api(42, "DeleteGroups", 0, 2, 2),
    api(43, "ElectLeaders", 0, 2, 2),
    api(44, "IncrementalAlterConfigs", 0, 1, 1),
    api(45, "AlterPartitionReassignments", 0, 1, 0),
    api(46, "ListPartitionReassignments", 0, 0, 0),
    api(47, "OffsetDelete", 0, 0, NEVER),
    api(48, "DescribeClientQuotas", 0, 1, 1),
    api(49, "AlterClientQuotas", 0, 1, 1),
    api(50, "DescribeUserScramCredentials", 0, 0, 0),
    api(51, "AlterUserScramCredentials", 0, 0, 0),
    api(55, "DescribeQuorum", 0, 2, 0),
    api(57, "UpdateFeatures", 0, 2, 0),
    api(60, "DescribeCluster", 0, 2, 0),
    api(61, "DescribeProducers", 0, 0, 0),
    api(65, "DescribeTransactions", 0, 0, 0),
    api(66, "ListTransactions", 0, 2, 0),
    api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
    api(69, "ConsumerGroupDescribe", 0, 1, 0),
    api(74, "ListConfigResources", 0, 1, 0),
    api(75, "DescribeTopicPartitions", 0, 0, 0),
];

/// Every API of this broker, keys ascending.
pub const ANNOUNCED: &[ApiRange] = if TRANSACTIONS_SERVED { KNOWN } else { &WITHOUT_TRANSACTIONS };

const WITHOUT_TRANSACTIONS: [ApiRange; plain_count()] = without_transactions();

const fn is_transactional(key: i16) -> bool {
    let mut i = 0;
    while i < TRANSACTIONAL.len() {
        if TRANSACTIONAL[i] == key {
            return true;
        }
        i += 1;
    }
    false
}

const fn plain_count() -> usize {
    let (mut count, mut i) = (0, 0);
    while i < KNOWN.len() {
        count += !is_transactional(KNOWN[i].key) as usize;
        i += 1;
    }
    count
}

const fn without_transactions() -> [ApiRange; plain_count()] {
    let mut plain = [KNOWN[0]; plain_count()];
    let (mut count, mut i) = (0, 0);
    while i < KNOWN.len() {
        if !is_transactional(KNOWN[i].key) {
            plain[count] = KNOWN[i];
            count += 1;
        }
        i += 1;
    }
    plain
}

/// Keys from 0 to this one are looked up in a table.
const KEYS: usize = 128;

/// Position in [`KNOWN`] plus one for each key, 0 for keys that have no handler.
static POSITIONS: [u8; KEYS] = positions();

const fn positions() -> [u8; KEYS] {
    let mut positions = [0; KEYS];
    let mut i = 0;
    while i < KNOWN.len() {
        let range = KNOWN[i];
        assert!(i == 0 || KNOWN[i - 1].key < range.key, "keys ascend, each once (contract K18.1)");
        assert!(0 <= range.min && range.min <= range.max && range.max < NEVER);
        positions[range.key as usize] = i as u8 + 1;
        i += 1;
    }
    positions
}

/// The table's line for a key.
#[must_use]
pub fn find(key: i16) -> Option<&'static ApiRange> {
    let position = *POSITIONS.get(usize::try_from(key).ok()?)?;
    KNOWN.get(usize::from(position).checked_sub(1)?)
}

/// Whether a request of this key and version has a handler, announced or not.
#[must_use]
pub fn is_known(key: i16, version: i16) -> bool {
    find(key).is_some_and(|range| {
        let min = if key == PRODUCE { PRODUCE_SERVED_MIN } else { range.min };
        (min..=range.max).contains(&version)
    })
}

/// Whether a request of this key and version is answered by its API.
#[must_use]
pub fn is_served(key: i16, version: i16) -> bool {
    is_known(key, version) && (TRANSACTIONS_SERVED || !is_transactional(key))
}

/// Whether this version has compact lengths and tag sections, in its body and in its request header.
#[must_use]
pub fn is_flexible(key: i16, version: i16) -> bool {
    find(key).is_some_and(|range| version >= range.flexible_from)
}

/// Whether the answer's header ends in a tag section: with flexible versions, never with ApiVersions (contract KC.2,
/// case 116).
#[must_use]
pub fn has_flexible_answer_header(key: i16, version: i16) -> bool {
    key != API_VERSIONS && is_flexible(key, version)
}

/// The version under which the crate kafka-protocol decodes and encodes this one.
#[must_use]
pub fn codec_version(key: i16, version: i16) -> i16 {
    match key {
        LIST_OFFSETS => version.min(LIST_OFFSETS_CODEC_MAX),
        WRITE_TXN_MARKERS => version.min(WRITE_TXN_MARKERS_CODEC_MAX),
        DESCRIBE_LOG_DIRS => version.min(DESCRIBE_LOG_DIRS_CODEC_MAX),
        _ => version,
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiKey;

    use super::*;

    #[test]
    fn g1_every_announced_version_has_the_encoding_that_kafka_protocol_gives_it() {
        for range in KNOWN {
            let key = ApiKey::try_from(range.key).expect("known key");
            assert_eq!(format!("{key:?}"), range.name);
            let min = if range.key == PRODUCE { PRODUCE_SERVED_MIN } else { range.min };
            for version in min..=range.max {
                let codec = codec_version(range.key, version);
                let known = key.valid_versions();
                assert!((known.min..=known.max).contains(&codec), "{range:?} {version}");
                assert_eq!(key.request_header_version(codec) == 2, is_flexible(range.key, version), "{range:?}");
                let flexible_answer = has_flexible_answer_header(range.key, version);
                assert_eq!(key.response_header_version(codec) == 1, flexible_answer, "{range:?} {version}");
            }
        }
    }

    #[test]
    fn kc_5_only_announced_versions_are_served_and_not_the_oldest_produce() {
        for (key, version) in [(0, 2), (0, 0), (0, 14), (1, 3), (22, 6), (4, 0), (53, 0), (999, 0), (-1, 0), (18, 5)] {
            assert!(!is_served(key, version), "{key} {version}");
        }
        for (key, version) in [(0, 3), (0, 13), (1, 4), (1, 18), (2, 11), (18, 0), (18, 4), (75, 0)] {
            assert!(is_served(key, version), "{key} {version}");
        }
        for key in TRANSACTIONAL {
            assert_eq!(is_served(*key, 1), TRANSACTIONS_SERVED && is_known(*key, 1), "{key}");
            assert_eq!(ANNOUNCED.iter().any(|range| range.key == *key), is_served(*key, 0) || is_served(*key, 1));
        }
        assert_eq!(find(PRODUCE).map(|range| range.min), Some(0), "announced from 0 (contract G2)");
    }
}
