//! Clients of a cluster: what the commands, `oncilla-perf` and tests use.
//!
//! | what | where |
//! |---|---|
//! | topics, their settings, nodes and partitions | [`Client`], [`admin`] |
//! | offsets by time, of beginnings and ends | [`offsets`] |
//! | partitions of a topic from given offsets on, with or without what was aborted | [`consumer`], [`isolation`] |
//! | the same as a member of a group (KIP-848), with commits | [`subscriber`] |
//! | groups, what they have committed, and changing it from outside | [`groups`] |
//! | transactional ids, hanging transactions | [`transactions`], [`hanging`] |
//! | producing, idempotent and transactional, at speed | [`native`] |
//!
//! All but [`native`] is synchronous and small: one blocking socket a node, one request in flight, versions agreed with
//! ApiVersions. It trusts the broker that the user pointed it at, but for the length of a frame. Errors carry what was
//! asked and Kafka's name of the code. What a producer and a member decide is in `oncilla_shards::client`, without
//! sockets and clock; [`native`] and [`subscriber`] carry it out, the one on tokio, the other on a thread.

pub mod admin;
mod connection;
pub mod consumer;
pub mod groups;
pub mod hanging;
pub mod isolation;
mod membership;
pub mod native;
pub mod offsets;
pub mod subscriber;
pub mod transactions;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{BrokerId, MetadataRequest, TopicName};
use kafka_protocol::protocol::{Decodable, HeaderVersion, Request, StrBytes};
use oncilla_shards::code::ErrorCode;

pub use connection::Connection;

/// Longest wait for one answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        cause: std::io::Error,
    },
    /// The broker does not speak as a Kafka broker does.
    #[error("{0}")]
    Protocol(String),
    /// The broker refused.
    #[error("{what}: {}{}", code_name(*.code), detail(.message.as_deref()))]
    Refused {
        /// What was asked.
        what: String,
        /// Kafka's error code.
        code: i16,
        /// What the broker says about it.
        message: Option<String>,
    },
}

impl ClientError {
    fn io(what: impl Into<String>, cause: std::io::Error) -> Self {
        Self::Io { what: what.into(), cause }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Protocol(_) => false,
            Self::Refused { code, .. } => matches!(
                ErrorCode::from_wire(*code),
                Some(
                    ErrorCode::UnknownTopicOrPartition
                        | ErrorCode::LeaderNotAvailable
                        | ErrorCode::NotLeaderOrFollower
                        | ErrorCode::RequestTimedOut
                        | ErrorCode::NotEnoughReplicas
                        | ErrorCode::CoordinatorLoadInProgress
                        | ErrorCode::CoordinatorNotAvailable
                        | ErrorCode::NotCoordinator
                        | ErrorCode::NotController
                        | ErrorCode::UnstableOffsetCommit
                )
            ),
        }
    }
}

fn code_name(code: i16) -> String {
    ErrorCode::from_wire(code).map_or_else(|| format!("error {code}"), |known| format!("{} ({code})", known.name()))
}

fn detail(message: Option<&str>) -> String {
    message.filter(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default()
}

/// An error unless the code is success.
pub(crate) fn accepted(
    code: i16,
    message: Option<&StrBytes>,
    what: impl FnOnce() -> String,
) -> Result<(), ClientError> {
    if code == 0 {
        return Ok(());
    }
    Err(ClientError::Refused { what: what(), code, message: message.map(|text| text.to_string()) })
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_string()))
}

/// One partition as Metadata lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Its index.
    pub index: i32,
    /// Node that leads it.
    pub leader: i32,
    /// Epoch of the leader.
    pub leader_epoch: i32,
    /// Nodes with a copy.
    pub replicas: Vec<i32>,
    /// Kafka's error code, 0 when it can be used.
    pub error: i16,
}

/// One topic as Metadata lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: u128,
    /// Its partitions, by index.
    pub partitions: Vec<PartitionView>,
}

/// The cluster as Metadata lists it.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Host and port of every node.
    pub nodes: BTreeMap<i32, String>,
    /// Node that changes topics.
    pub controller: i32,
    /// Topics that were asked for.
    pub topics: Vec<TopicView>,
}

/// A client of one cluster.
pub struct Client {
    /// Longest wait for a connection and for one answer.
    timeout: Duration,
    bootstrap: Vec<String>,
    connections: HashMap<String, Connection>,
    cluster: Cluster,
}

impl Client {
    /// Connects to the first of the comma-separated addresses that answers.
    pub fn connect(bootstrap: &str) -> Result<Self, ClientError> {
        Self::connect_within(bootstrap, REQUEST_TIMEOUT)
    }

    /// As [`Client::connect`], with a bound of its own for every connection and every answer.
    pub fn connect_within(bootstrap: &str, timeout: Duration) -> Result<Self, ClientError> {
        let bootstrap = bootstrap.split(',').map(|one| one.trim().to_string()).collect();
        let mut client = Self { timeout, bootstrap, connections: HashMap::new(), cluster: Cluster::default() };
        client.refresh(Some(&[]), false)?;
        Ok(client)
    }

    /// The cluster as of the last look.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Asks for nodes and topics; `None` for all topics.
    pub fn refresh(&mut self, topics: Option<&[&str]>, create: bool) -> Result<&Cluster, ClientError> {
        let asked = |names: &[&str]| {
            names
                .iter()
                .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))))
                .collect::<Vec<_>>()
        };
        let request = MetadataRequest::default().with_topics(topics.map(asked)).with_allow_auto_topic_creation(create);
        let mut failed = None;
        for address in self.bootstrap.clone() {
            match self.call_at(&address, &request, i16::MAX) {
                Ok(answer) => {
                    self.cluster = view(answer, topics.is_some())?;
                    return Ok(&self.cluster);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| ClientError::Protocol("no address to connect to".into())))
    }

    /// One topic with its partitions.
    pub fn topic(&mut self, name: &str, create: bool) -> Result<TopicView, ClientError> {
        let cluster = self.refresh(Some(&[name]), create)?;
        let found = cluster.topics.iter().find(|topic| topic.name == name).cloned();
        found.ok_or_else(|| ClientError::Protocol(format!("the broker's answer leaves out the topic {name}")))
    }

    /// Sends a request to a node and waits for the answer.
    pub fn call<R: Request>(&mut self, node: i32, request: &R, version_max: i16) -> Result<R::Response, ClientError> {
        let address = self.address_of(node)?;
        self.call_at(&address, request, version_max)
    }

    fn address_of(&self, node: i32) -> Result<String, ClientError> {
        let known = self.cluster.nodes.get(&node).cloned();
        known.ok_or_else(|| ClientError::Refused {
            what: format!("node {node}"),
            code: ErrorCode::LeaderNotAvailable.wire(),
            message: Some("no address is known for it".into()),
        })
    }

    fn call_at<R: Request>(&mut self, address: &str, request: &R, version_max: i16) -> Result<R::Response, ClientError>
    where
        R::Response: Decodable + HeaderVersion,
    {
        let answer = self.connection(address)?.call(request, version_max);
        if matches!(answer, Err(ClientError::Io { .. } | ClientError::Protocol(_))) {
            // What follows on this connection could belong to the request that failed.
            self.connections.remove(address);
        }
        answer
    }

    fn connection(&mut self, address: &str) -> Result<&mut Connection, ClientError> {
        if !self.connections.contains_key(address) {
            let opened = Connection::open(address, self.timeout)?;
            self.connections.insert(address.to_string(), opened);
        }
        Ok(self.connections.get_mut(address).expect("just put there"))
    }
}

/// A topic with an error is an error when it was asked for by name; in a list of all it is only listed.
fn view(answer: kafka_protocol::messages::MetadataResponse, by_name: bool) -> Result<Cluster, ClientError> {
    accepted(answer.error_code, None, || "Metadata".into())?;
    let nodes = answer.brokers.iter().map(|node| (node.node_id.0, address(&node.host, node.port))).collect();
    let mut topics = Vec::new();
    for topic in answer.topics {
        let name = topic.name.map(|name| name.0.to_string()).unwrap_or_default();
        if by_name {
            accepted(topic.error_code, None, || format!("topic {name}"))?;
        }
        let ids = |nodes: &[BrokerId]| nodes.iter().map(|node| node.0).collect();
        let mut partitions: Vec<_> = topic
            .partitions
            .iter()
            .map(|partition| PartitionView {
                index: partition.partition_index,
                leader: partition.leader_id.0,
                leader_epoch: partition.leader_epoch,
                replicas: ids(&partition.replica_nodes),
                error: partition.error_code,
            })
            .collect();
        partitions.sort_by_key(|partition| partition.index);
        topics.push(TopicView { name, id: topic.topic_id.as_u128(), partitions });
    }
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Cluster { nodes, controller: answer.controller_id.0, topics })
}

fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
