//! Requests of WriteTxnMarkers 1-2 (contract B7): a codec of its own, because the crate kafka-protocol does not know
//! version 2, whose answer is that to version 1.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::apis;
use super::error::{WireError, WireFault};
use super::reader::{Reader, share_text};
use crate::ids::{ProducerEpoch, ProducerId};

/// First version with a transaction version.
const TRANSACTION_VERSION_FROM: i16 = 2;

/// One marker of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnMarker {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Whether the transaction is committed.
    pub commits: bool,
    /// Topics with the indexes of their partitions.
    pub topics: Vec<(StrBytes, Vec<i32>)>,
    /// Epoch of the coordinator.
    pub coordinator_epoch: i32,
    /// TransactionVersion of contract A6, 0 if not given.
    pub transaction_version: i8,
}

/// Reads the body of a request; bytes behind it are ignored (contract KC.6).
pub fn decode(version: i16, body: &Bytes) -> Result<Vec<TxnMarker>, WireError> {
    let key = apis::WRITE_TXN_MARKERS;
    if !apis::is_known(key, version) {
        return Err(WireError { at: 0, fault: WireFault::UnservedVersion { key, version } });
    }
    let mut reader = Reader::new(body, apis::is_flexible(key, version));
    let mut markers = Vec::new();
    for _ in 0..reader.count()? {
        let producer_id = ProducerId(reader.i64()?);
        let epoch = ProducerEpoch(reader.i16()?);
        let commits = reader.bool()?;
        let mut topics = Vec::new();
        for _ in 0..reader.count()? {
            let topic = share_text(body, reader.text()?);
            let mut indexes = Vec::new();
            for _ in 0..reader.count()? {
                indexes.push(reader.i32()?);
            }
            reader.skip_tags()?;
            topics.push((topic, indexes));
        }
        let coordinator_epoch = reader.i32()?;
        let transaction_version = if version >= TRANSACTION_VERSION_FROM { reader.i8()? } else { 0 };
        reader.skip_tags()?;
        markers.push(TxnMarker { producer_id, epoch, commits, topics, coordinator_epoch, transaction_version });
    }
    reader.skip_tags()?;
    Ok(markers)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn sample(version: i16) -> TxnMarker {
        TxnMarker {
            producer_id: ProducerId(7),
            epoch: ProducerEpoch(3),
            commits: true,
            topics: vec![(StrBytes::from_static_str("t"), vec![0, 4]), (StrBytes::from_static_str(""), vec![])],
            coordinator_epoch: 9,
            transaction_version: if version >= TRANSACTION_VERSION_FROM { 2 } else { 0 },
        }
    }

    /// The bytes of a request with [`sample`] twice.
    pub fn body(version: i16) -> Bytes {
        let mut one = Vec::new();
        one.extend(7i64.to_be_bytes());
        one.extend([0, 3, 1]);
        // Two topics: `t` with two partitions, and one without a name or a partition.
        one.extend([3, 2, b't', 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 1, 0]);
        one.extend(9i32.to_be_bytes());
        if version >= TRANSACTION_VERSION_FROM {
            one.push(2);
        }
        one.push(0);
        Bytes::from([&[3], &one[..], &one, &[0]].concat())
    }

    #[test]
    fn b7_both_versions_are_read() {
        for version in [1, 2] {
            assert_eq!(decode(version, &body(version)), Ok(vec![sample(version); 2]));
        }
    }

    #[test]
    fn kc_6_a_cut_request_and_a_version_that_is_not_served_are_errors() {
        for version in [1, 2] {
            let whole = body(version);
            for length in 0..whole.len() {
                assert!(decode(version, &whole.slice(..length)).is_err(), "{length} bytes of version {version}");
            }
        }
        assert!(decode(0, &body(1)).is_err() && decode(3, &body(2)).is_err());
    }

    #[test]
    fn b7_version_1_is_what_kafka_protocol_encodes() {
        use kafka_protocol::messages::WriteTxnMarkersRequest;
        use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
        use kafka_protocol::protocol::Encodable;
        let topic = |(name, indexes): &(StrBytes, Vec<i32>)| {
            WritableTxnMarkerTopic::default().with_name(name.clone().into()).with_partition_indexes(indexes.clone())
        };
        let sample = sample(1);
        let marker = WritableTxnMarker::default()
            .with_producer_id(sample.producer_id.0.into())
            .with_producer_epoch(sample.epoch.0)
            .with_transaction_result(sample.commits)
            .with_topics(sample.topics.iter().map(topic).collect())
            .with_coordinator_epoch(sample.coordinator_epoch);
        let request = WriteTxnMarkersRequest::default().with_markers(vec![marker.clone(), marker]);
        let mut bytes = bytes::BytesMut::new();
        request.encode(&mut bytes, 1).expect("a version of theirs");
        assert_eq!(bytes.freeze(), body(1));
    }
}
