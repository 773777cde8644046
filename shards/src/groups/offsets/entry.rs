//! What the journal holds of offsets: one entry for each request that changed some, whatever the number of partitions.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{PartitionKey, ProducerEpoch, ProducerId, TimestampMs, TopicId};
use crate::txn::Outcome;

/// One change of a group's offsets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffsetsEntry {
    /// These are committed.
    Committed {
        /// When.
        at: TimestampMs,
        /// When they go, whatever the group's retention is (contract G8.14).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires: Option<TimestampMs>,
        /// By topic and index, each partition once.
        topics: Vec<(TopicText, Vec<OffsetRow>)>,
    },
    /// These are committed by a transaction that has not ended (contract C3).
    Pending {
        /// Whose.
        producer_id: ProducerId,
        /// At which epoch.
        epoch: ProducerEpoch,
        /// When.
        at: TimestampMs,
        /// By topic and index, each partition once.
        topics: Vec<(TopicText, Vec<OffsetRow>)>,
    },
    /// A transaction has ended: what it has pending becomes committed, or is forgotten.
    Ended {
        /// Whose.
        producer_id: ProducerId,
        /// Epoch of the marker.
        epoch: ProducerEpoch,
        /// TransactionVersion of contract A6.
        version: i8,
        /// How.
        outcome: Outcome,
    },
    /// These are forgotten: deleted, expired, or of a topic that is gone.
    Forgotten {
        /// By topic and index.
        topics: Vec<(TopicText, Vec<i32>)>,
    },
}

impl OffsetsEntry {
    /// The entry that forgets `keys`, which ascend.
    pub(super) fn forgotten(keys: impl IntoIterator<Item = PartitionKey>) -> Self {
        Self::Forgotten { topics: by_topic(keys.into_iter().map(|key| (key.topic, key.index))) }
    }
}

/// Rows by topic, as they come: equal topics must follow each other.
pub(super) fn by_topic<T>(rows: impl IntoIterator<Item = (TopicId, T)>) -> Vec<(TopicText, Vec<T>)> {
    let mut topics: Vec<(TopicText, Vec<T>)> = Vec::new();
    for (topic, row) in rows {
        match topics.last_mut() {
            Some((last, rows)) if last.0 == topic => rows.push(row),
            _ => topics.push((TopicText(topic), vec![row])),
        }
    }
    topics
}

/// One partition's offset: index, offset, leader epoch, metadata. An array in JSON, because a slot holds many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetRow(pub i32, pub i64, pub i32, pub String);

/// A topic's id in Kafka's text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicText(pub TopicId);

impl Serialize for TopicText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TopicText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        TopicId::from_base64(&text).map(Self).ok_or_else(|| D::Error::custom(format!("{text} is no topic id")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_compact_json_and_round_trip() {
        let topics =
            vec![(TopicText(TopicId(1)), vec![OffsetRow(0, 7, -1, String::new()), OffsetRow(3, -5, 2, "m".into())])];
        let committed = OffsetsEntry::Committed { at: TimestampMs(10), expires: None, topics };
        let text = serde_json::to_string(&committed).expect("JSON");
        let expected = r#"{"committed":{"at":10,"topics":[["AAAAAAAAAAAAAAAAAAAAAQ",[[0,7,-1,""],[3,-5,2,"m"]]]]}}"#;
        assert_eq!(text, expected);
        let key = |index| PartitionKey { topic: TopicId(2), index };
        for entry in [committed, OffsetsEntry::forgotten([key(1), key(4)])] {
            let text = serde_json::to_string(&entry).expect("JSON");
            assert_eq!(serde_json::from_str::<OffsetsEntry>(&text).expect("its own"), entry);
        }
        let stranger = r#"{"forgotten":{"topics":[["x",[1]]]}}"#;
        assert!(serde_json::from_str::<OffsetsEntry>(stranger).is_err());
    }
}
