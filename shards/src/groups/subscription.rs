//! The bytes that classic consumers exchange: subscriptions and assignments of protocol type `consumer`.
//!
//! The broker carries them unread, except where the contract has it look: G10.4 (which topics a group subscribes to)
//! and G18 (conversion between the protocols). Versions above the known ones are read as the highest known one, as
//! Kafka does. What does not parse is `None`, whatever the bytes (contract 0.10).

use bytes::{BufMut, Bytes, BytesMut};

use crate::wire::Reader;

/// Versions of both formats that are understood.
const VERSION_MAX: i16 = 3;

/// What a member wants and has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Version of the bytes.
    pub version: i16,
    /// Topics it wants, as sent.
    pub topics: Vec<String>,
    /// What its assignor added.
    pub user_data: Option<Bytes>,
    /// What it has, by topic name (v1).
    pub owned: Vec<(String, Vec<i32>)>,
    /// Generation that it has it from (v2), else -1.
    pub generation: i32,
    /// Where it is (v3).
    pub rack: Option<String>,
}

/// What a member is to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Version of the bytes.
    pub version: i16,
    /// Partitions by topic name.
    pub partitions: Vec<(String, Vec<i32>)>,
    /// What the assignor added.
    pub user_data: Option<Bytes>,
}

fn text(reader: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(reader.text().ok()?.to_vec()).ok()
}

fn topic_partitions(reader: &mut Reader<'_>) -> Option<Vec<(String, Vec<i32>)>> {
    let count = reader.count().ok()?;
    (0..count)
        .map(|_| {
            let topic = text(reader)?;
            let partitions = reader.count().ok()?;
            let partitions = (0..partitions).map(|_| reader.i32().ok()).collect::<Option<_>>()?;
            Some((topic, partitions))
        })
        .collect()
}

fn user_data(reader: &mut Reader<'_>) -> Option<Option<Bytes>> {
    Some(reader.nullable_bytes().ok()?.map(Bytes::copy_from_slice))
}

impl Subscription {
    /// Reads a subscription.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes, false);
        let version = reader.i16().ok().filter(|version| *version >= 0)?;
        let known = version.min(VERSION_MAX);
        let count = reader.count().ok()?;
        let topics = (0..count).map(|_| text(&mut reader)).collect::<Option<_>>()?;
        let user_data = user_data(&mut reader)?;
        let owned = if known >= 1 { topic_partitions(&mut reader)? } else { Vec::new() };
        let generation = if known >= 2 { reader.i32().ok()? } else { -1 };
        let rack = match known >= 3 {
            true => reader.nullable_text().ok()?.map(|rack| String::from_utf8_lossy(rack).into_owned()),
            false => None,
        };
        Some(Self { version, topics, user_data, owned, generation, rack })
    }
}

impl Assignment {
    /// Reads an assignment; no bytes are an assignment of nothing.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let mut reader = Reader::new(bytes, false);
        let version = reader.i16().ok().filter(|version| *version >= 0)?;
        let partitions = topic_partitions(&mut reader)?;
        Some(Self { version, partitions, user_data: user_data(&mut reader)? })
    }

    /// Writes an assignment.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_i16(self.version.min(VERSION_MAX));
        out.put_i32(i32::try_from(self.partitions.len()).expect("topics of one member"));
        for (topic, partitions) in &self.partitions {
            out.put_i16(i16::try_from(topic.len()).expect("a topic's name"));
            out.put_slice(topic.as_bytes());
            out.put_i32(i32::try_from(partitions.len()).expect("partitions of one topic"));
            partitions.iter().for_each(|index| out.put_i32(*index));
        }
        match &self.user_data {
            Some(data) => {
                out.put_i32(i32::try_from(data.len()).expect("came in one frame"));
                out.put_slice(data);
            }
            None => out.put_i32(-1),
        }
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription_v1() -> Vec<u8> {
        let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 9];
        bytes.extend([0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5]);
        bytes
    }

    #[test]
    fn a_subscription_with_owned_partitions_is_read() {
        let parsed = Subscription::parse(&subscription_v1()).expect("well formed");
        assert_eq!((parsed.version, parsed.generation), (1, -1));
        assert_eq!(parsed.topics, ["t"]);
        assert_eq!(parsed.owned, [("t".to_owned(), vec![0, 5])]);
        assert_eq!(parsed.user_data.as_deref(), Some(&[9][..]));
    }

    #[test]
    fn g0_10_whatever_does_not_parse_is_none_and_nothing_is_allocated_for_it() {
        let whole = subscription_v1();
        for end in 0..whole.len() {
            assert_eq!(Subscription::parse(&whole[..end]), None, "{end} bytes");
        }
        for bytes in [&b"changed"[..], b"", &[0, 0, 0x7f, 0xff, 0xff, 0xff], &[0xff, 0xff, 0, 0, 0, 0]] {
            assert_eq!(Subscription::parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn an_assignment_survives_the_wire() {
        let assignment = Assignment {
            version: 1,
            partitions: vec![("a".into(), vec![1, 2]), ("b".into(), vec![])],
            user_data: Some(Bytes::from_static(b"x")),
        };
        assert_eq!(Assignment::parse(&assignment.encode()), Some(assignment));
        assert_eq!(Assignment::parse(b""), Some(Assignment::default()));
    }
}
