//! Parts that Produce and Fetch share: how a topic is named, and where a partition's leader is.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::error::WireError;
use super::reader::{Reader, share_text};
use super::writer::Writer;
use crate::ids::{LeaderEpoch, NodeId, TopicId};

/// A topic as the request names it: by name, or by id in Produce 13 and Fetch 13 and above.
#[derive(Clone, Debug, PartialEq)]
pub enum TopicRef {
    /// By name.
    Name(StrBytes),
    /// By id; [`TopicId::ZERO`] if the client had none.
    Id(TopicId),
}

impl TopicRef {
    /// The name, if it was asked by name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Id(_) => None,
        }
    }

    /// The id, if it was asked by id.
    #[must_use]
    pub fn id(&self) -> Option<TopicId> {
        match self {
            Self::Name(_) => None,
            Self::Id(id) => Some(*id),
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>, frame: &Bytes, by_id: bool) -> Result<Self, WireError> {
        if by_id {
            reader.topic_id().map(Self::Id)
        } else {
            reader.text().map(|name| Self::Name(share_text(frame, name)))
        }
    }

    /// Writes the topic in the form that the version has.
    ///
    /// # Panics
    /// If the answer names a topic by id where the request named it by name, or the other way round.
    pub(super) fn write(&self, writer: &mut Writer, by_id: bool) {
        match self {
            Self::Name(name) if !by_id => writer.text(name),
            Self::Id(id) if by_id => writer.topic_id(*id),
            _ => panic!("an answer names its topics as the request did, this one has {self:?}"),
        }
    }
}

/// Leader of a partition, told to a client that asked the wrong node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLeader {
    /// The leader, -1 if there is none.
    pub leader: NodeId,
    /// Its epoch.
    pub epoch: LeaderEpoch,
}

impl CurrentLeader {
    /// Bytes of the struct in the flexible encoding.
    pub(super) const BYTES: u32 = 4 + 4 + 1;

    pub(super) fn write(self, writer: &mut Writer) {
        writer.i32(self.leader.0);
        writer.i32(self.epoch.0);
        writer.no_tags();
    }
}

/// Address of a node named by a [`CurrentLeader`].
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEndpoint {
    /// The node.
    pub id: NodeId,
    /// Host name or address that clients reach it by.
    pub host: StrBytes,
    /// Port that clients reach it by.
    pub port: i32,
    /// Rack, if it has one.
    pub rack: Option<StrBytes>,
}

impl NodeEndpoint {
    /// Writes the list as the content of a tag, its length before it.
    pub(super) fn write_tag(endpoints: &[Self], tag: u32, writer: &mut Writer) {
        let mut list = Writer::new(true, 64 * endpoints.len());
        list.count(endpoints.len());
        for endpoint in endpoints {
            list.i32(endpoint.id.0);
            list.text(&endpoint.host);
            list.i32(endpoint.port);
            list.nullable_text(endpoint.rack.as_deref());
            list.no_tags();
        }
        let list = list.finish();
        writer.tag(tag, u32::try_from(list.bytes()).expect("a list of the cluster's nodes is short"));
        for chunk in list.chunks() {
            writer.raw(chunk);
        }
    }
}
