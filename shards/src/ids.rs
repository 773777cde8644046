//! Newtypes for everything that would otherwise be a bare integer and could be swapped by accident.
//!
//! Each wraps the integer of the wire with the same width; `.0` is the wire value.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

newtype! {
    /// Position of a record in a partition's log.
    Offset(i64)
}
newtype! {
    /// Generation of a partition's ownership; grows with every start of the owning broker.
    LeaderEpoch(i32)
}
newtype! {
    /// Identity of a producer, unique in the cluster and never handed out twice.
    ProducerId(i64)
}
newtype! {
    /// Generation of a producer id; a higher one fences all lower ones.
    ProducerEpoch(i16)
}
newtype! {
    /// Sequence number of a record within (producer id, epoch, partition).
    Sequence(i32)
}
newtype! {
    /// Number of a core of this broker, 0 to cores - 1.
    ShardId(u16)
}
newtype! {
    /// Number of a broker process in the cluster.
    BrokerId(i32)
}
newtype! {
    /// Node as Kafka clients see it: broker id * 1000 + core in per-core mode.
    NodeId(i32)
}
newtype! {
    /// One of the slots that groups and transactional ids are spread over, 0 to `limits::SLOTS` - 1.
    SlotId(u16)
}
newtype! {
    /// Milliseconds since the Unix epoch, of the broker's clock or of a record.
    TimestampMs(i64)
}

impl Offset {
    /// The offset `count` records further.
    #[must_use]
    pub fn plus(self, count: i64) -> Self {
        Self(self.0 + count)
    }
}

impl ProducerId {
    /// What a batch without an idempotent producer carries.
    pub const NONE: Self = Self(-1);
}

impl ProducerEpoch {
    /// What a batch without an idempotent producer carries.
    pub const NONE: Self = Self(-1);
}

impl Sequence {
    /// "No sequence": control batches, and a producer that has no batch at its epoch yet.
    pub const NONE: Self = Self(-1);

    /// The sequence `count` records further, wrapping from `i32::MAX` to 0 (contract A3).
    #[must_use]
    pub fn plus(self, count: i32) -> Self {
        debug_assert!(count >= 0);
        let sum = i64::from(self.0) + i64::from(count);
        let wrapped = if sum > i64::from(i32::MAX) { sum - (i64::from(i32::MAX) + 1) } else { sum };
        Self(i32::try_from(wrapped).expect("a wrapped sequence fits"))
    }

    /// Whether `next` may follow `self` (contract A3): plain succession, or the wrap from `i32::MAX` to 0.
    #[must_use]
    pub fn is_followed_by(self, next: Self) -> bool {
        if self.0 == i32::MAX { next.0 == 0 } else { next.0 == self.0 + 1 }
    }
}

/// Identity of a topic; a topic re-created under the same name gets another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub u128);

impl TopicId {
    /// The id that requests use for "none".
    pub const ZERO: Self = Self(0);

    /// The 22 characters of unpadded URL-safe base64 that Kafka prints.
    #[must_use]
    pub fn to_base64(self) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        // 128 bits are 21 groups of six and two bits more, which the last character carries in its upper bits.
        (0..22)
            .map(|i| {
                let shift = 122 - 6 * i32::from(i as u8);
                let six = if shift >= 0 { self.0 >> shift } else { self.0 << -shift };
                char::from(ALPHABET[(six & 0x3f) as usize])
            })
            .collect()
    }

    /// Reads what [`TopicId::to_base64`] wrote; `None` for any other text.
    #[must_use]
    pub fn from_base64(text: &str) -> Option<Self> {
        if text.len() != 22 {
            return None;
        }
        let mut id: u128 = 0;
        for (i, c) in text.bytes().enumerate() {
            let six = match c {
                b'A'..=b'Z' => c - b'A',
                b'a'..=b'z' => c - b'a' + 26,
                b'0'..=b'9' => c - b'0' + 52,
                b'-' => 62,
                b'_' => 63,
                _ => return None,
            };
            if i < 21 {
                id = id << 6 | u128::from(six);
            } else if six & 0x0f != 0 {
                return None;
            } else {
                id = id << 2 | u128::from(six >> 4);
            }
        }
        Some(Self(id))
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// One partition of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// The topic.
    pub topic: TopicId,
    /// Index of the partition within the topic, from 0.
    pub index: i32,
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_wraps_to_zero_and_never_goes_negative() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 10).plus(20), Sequence(9));
        assert!(Sequence(i32::MAX).is_followed_by(Sequence(0)));
        assert!(!Sequence(i32::MAX).is_followed_by(Sequence(1)));
        assert!(Sequence::NONE.is_followed_by(Sequence(0)));
    }

    #[test]
    fn topic_id_text_is_kafkas() {
        // Kafka's Uuid.toString of 0x0123456789abcdef_fedcba9876543210.
        let id = TopicId(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(id.to_base64(), "ASNFZ4mrze_-3LqYdlQyEA");
        assert_eq!(TopicId::from_base64("ASNFZ4mrze_-3LqYdlQyEA"), Some(id));
        assert_eq!(TopicId::from_base64("ASNFZ4mrze_-3LqYdlQyEB"), None);
    }
}
