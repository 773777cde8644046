//! Requests and answers of the producer's machine in Kafka's wire format, in versions that both sides know.

use std::collections::HashMap;

use anyhow::{Context, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest,
    InitProducerIdResponse, MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse, RequestHeader,
    ResponseHeader, TransactionalId, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request as Wire, StrBytes};
use oncilla_shards::client::{
    Answer, Identity, MetadataAnswer, PartitionAnswer, PartitionMetadata, ProduceAnswer, ProducePart, Request,
    TopicMetadata,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::outbound::Outbound;
use super::produce;
use crate::client::topic_name;

/// Last version of Produce with topic names; the first one by which a write adds its partition to the transaction.
const PRODUCE_BY_NAME: i16 = 12;
/// Last versions of the older transaction protocol (contract D4).
const PRODUCE_TV1: i16 = 11;
const OFFSETS_TV1: i16 = 4;
const END_TV1: i16 = 4;
/// First versions of the newer one (contract D3).
const OFFSETS_TV2: i16 = 5;
const END_TV2: i16 = 5;
/// Last version of AddPartitionsToTxn for clients.
const ADD_PARTITIONS: i16 = 3;
/// Last version of FindCoordinator with one key.
const FIND_ONE: i16 = 3;
/// Last version of InitProducerId without two-phase commit.
const INIT: i16 = 5;
/// What FindCoordinator calls a group and a transactional id.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// Versions that a node speaks, by API.
pub(super) type Versions = HashMap<i16, (i16, i16)>;

/// How an answer has to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    key: i16,
    version: i16,
}

/// Why a request is not sent: the answer that stands for it.
pub(super) enum Unsendable {
    /// The node speaks no version of it that says what it has to.
    Version(Answer),
    /// It cannot be written.
    Broken(String),
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn transactional(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

/// Writes one request behind its length.
pub(super) struct Encoder<'a> {
    pub client_id: &'a StrBytes,
    pub versions: &'a Versions,
    pub correlation_id: i32,
}

impl Encoder<'_> {
    /// The newest version within bounds that both sides know.
    fn version<R: Wire>(&self, min: i16, max: i16) -> Option<i16> {
        let (known_min, known_max) = self.versions.get(&R::KEY).copied()?;
        let version = R::VERSIONS.max.min(known_max).min(max);
        (version >= R::VERSIONS.min.max(known_min).max(min)).then_some(version)
    }

    fn header<R: Wire>(&self, version: i16, out: &mut BytesMut) -> anyhow::Result<()> {
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(self.client_id.clone()));
        header.encode(out, R::header_version(version))
    }

    fn write<R: Wire>(&self, request: &R, version: i16, out: &mut BytesMut) -> anyhow::Result<Shape> {
        let at = out.len();
        out.put_i32(0);
        self.header::<R>(version, out)?;
        request.encode(out, version)?;
        let length = i32::try_from(out.len() - at - 4).context("a request is longer than the protocol allows")?;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        Ok(Shape { key: R::KEY, version })
    }

    /// Appends the request to `out`.
    pub fn encode(&self, request: &Request, out: &mut Outbound) -> Result<Shape, Unsendable> {
        let start = out.head().len();
        let result = match request {
            Request::Produce { transactional_id, tv2, parts } => {
                self.produce(transactional_id.as_deref(), *tv2, parts, out)
            }
            _ => self.encode_within(request, out.head()),
        };
        if !matches!(result, Ok(Some(_))) {
            out.head().truncate(start);
        }
        match result {
            Ok(Some(shape)) => Ok(shape),
            Ok(None) => Err(Unsendable::Version(unsupported(request))),
            Err(error) => Err(Unsendable::Broken(format!("{error:#}"))),
        }
    }

    fn produce(
        &self,
        transactional_id: Option<&str>,
        tv2: bool,
        parts: &[ProducePart],
        out: &mut Outbound,
    ) -> anyhow::Result<Option<Shape>> {
        let (min, max) = match (transactional_id, tv2) {
            (None, _) => (3, PRODUCE_BY_NAME),
            (Some(_), false) => (3, PRODUCE_TV1),
            (Some(_), true) => (PRODUCE_BY_NAME, PRODUCE_BY_NAME),
        };
        let Some(version) = self.version::<ProduceRequest>(min, max) else { return Ok(None) };
        produce::encode(version, transactional_id, parts, out, |head| self.header::<ProduceRequest>(version, head))?;
        Ok(Some(Shape { key: ProduceRequest::KEY, version }))
    }

    fn encode_within(&self, request: &Request, out: &mut BytesMut) -> anyhow::Result<Option<Shape>> {
        match request {
            Request::Metadata { topics } => {
                let topic =
                    |name: &std::sync::Arc<str>| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
                let request = MetadataRequest::default()
                    .with_topics(Some(topics.iter().map(topic).collect()))
                    .with_allow_auto_topic_creation(true);
                self.put(&request, 1, i16::MAX, out)
            }
            Request::InitProducerId { transactional_id, timeout_ms, identity } => {
                let (id, epoch) = identity.map_or((-1, -1), |identity| (identity.id.0, identity.epoch.0));
                let request = InitProducerIdRequest::default()
                    .with_transactional_id(transactional_id.as_deref().map(transactional))
                    .with_transaction_timeout_ms(*timeout_ms)
                    .with_producer_id(id.into())
                    .with_producer_epoch(epoch);
                self.put(&request, if identity.is_some() { 3 } else { 0 }, INIT, out)
            }
            Request::FindTransactionCoordinator { transactional_id } => {
                let request =
                    FindCoordinatorRequest::default().with_key(text(transactional_id)).with_key_type(TRANSACTION);
                self.put(&request, 1, FIND_ONE, out)
            }
            Request::FindGroupCoordinator { group } => {
                let request = FindCoordinatorRequest::default().with_key(text(group)).with_key_type(GROUP);
                self.put(&request, 1, FIND_ONE, out)
            }
            _ => self.encode_transactional(request, out),
        }
    }

    fn encode_transactional(&self, request: &Request, out: &mut BytesMut) -> anyhow::Result<Option<Shape>> {
        match request {
            Request::AddPartitions { transactional_id, identity, partitions } => {
                let mut by_topic: Vec<AddPartitionsToTxnTopic> = Vec::new();
                for (topic, partition) in partitions {
                    match by_topic.iter_mut().find(|known| *known.name.0 == **topic) {
                        Some(known) => known.partitions.push(*partition),
                        None => by_topic.push(
                            AddPartitionsToTxnTopic::default()
                                .with_name(topic_name(topic))
                                .with_partitions(vec![*partition]),
                        ),
                    }
                }
                let request = AddPartitionsToTxnRequest::default()
                    .with_v3_and_below_transactional_id(transactional(transactional_id))
                    .with_v3_and_below_producer_id(identity.id.0.into())
                    .with_v3_and_below_producer_epoch(identity.epoch.0)
                    .with_v3_and_below_topics(by_topic);
                self.put(&request, 0, ADD_PARTITIONS, out)
            }
            Request::AddOffsets { transactional_id, identity, group } => {
                let request = AddOffsetsToTxnRequest::default()
                    .with_transactional_id(transactional(transactional_id))
                    .with_producer_id(identity.id.0.into())
                    .with_producer_epoch(identity.epoch.0)
                    .with_group_id(text(group).into());
                self.put(&request, 0, i16::MAX, out)
            }
            Request::CommitOffsets { transactional_id, identity, tv2, member, offsets } => {
                let topic = |offset: &oncilla_shards::client::OffsetToCommit| {
                    let partition = TxnOffsetCommitRequestPartition::default()
                        .with_partition_index(offset.partition)
                        .with_committed_offset(offset.offset.0)
                        .with_committed_metadata(Some(StrBytes::default()));
                    TxnOffsetCommitRequestTopic::default()
                        .with_name(topic_name(&offset.topic))
                        .with_partitions(vec![partition])
                };
                let mut request = TxnOffsetCommitRequest::default()
                    .with_transactional_id(transactional(transactional_id))
                    .with_group_id(text(&member.group).into())
                    .with_producer_id(identity.id.0.into())
                    .with_producer_epoch(identity.epoch.0)
                    .with_topics(offsets.iter().map(topic).collect());
                let (min, max) = if *tv2 { (OFFSETS_TV2, i16::MAX) } else { (0, OFFSETS_TV1) };
                let named = self.version::<TxnOffsetCommitRequest>(min, max).is_some_and(|version| version >= 3);
                if named {
                    request = request
                        .with_generation_id(member.generation)
                        .with_member_id(text(&member.member))
                        .with_group_instance_id(member.instance.as_deref().map(text));
                }
                self.put(&request, min, max, out)
            }
            Request::EndTxn { transactional_id, identity, tv2, commit } => {
                let request = EndTxnRequest::default()
                    .with_transactional_id(transactional(transactional_id))
                    .with_producer_id(identity.id.0.into())
                    .with_producer_epoch(identity.epoch.0)
                    .with_committed(*commit);
                let (min, max) = if *tv2 { (END_TV2, i16::MAX) } else { (0, END_TV1) };
                self.put(&request, min, max, out)
            }
            other => bail!("{other:?} is not of transactions"),
        }
    }

    fn put<R: Wire>(&self, request: &R, min: i16, max: i16, out: &mut BytesMut) -> anyhow::Result<Option<Shape>> {
        let Some(version) = self.version::<R>(min, max) else { return Ok(None) };
        self.write(request, version, out).map(Some)
    }
}

/// What a node would say to a request that it does not know.
fn unsupported(request: &Request) -> Answer {
    let code = ErrorCode::UnsupportedVersion.wire();
    match request {
        Request::Metadata { .. } => Answer::Metadata(MetadataAnswer::default()),
        Request::InitProducerId { .. } | Request::EndTxn { .. } => Answer::Identity { code, identity: None },
        Request::Produce { parts, .. } => Answer::Produce(
            parts
                .iter()
                .map(|part| ProduceAnswer {
                    topic: part.topic.to_string(),
                    partition: part.partition,
                    code,
                    base_offset: Offset(-1),
                    timestamp: TimestampMs(-1),
                    leader: None,
                })
                .collect(),
        ),
        Request::FindTransactionCoordinator { .. } | Request::FindGroupCoordinator { .. } => {
            Answer::Coordinator { code, node: -1, address: String::new() }
        }
        Request::AddPartitions { .. } | Request::CommitOffsets { .. } => {
            Answer::Partitions(vec![PartitionAnswer { topic: String::new(), partition: -1, code }])
        }
        Request::AddOffsets { .. } => Answer::Code(code),
    }
}

fn read<R: Decodable + HeaderVersion>(mut frame: Bytes, version: i16, correlation_id: i32) -> anyhow::Result<R> {
    let header = ResponseHeader::decode(&mut frame, R::header_version(version))?;
    let got = header.correlation_id;
    ensure!(got == correlation_id, "an answer to request {got} instead of {correlation_id}");
    let answer = R::decode(&mut frame, version)?;
    ensure!(!frame.has_remaining(), "{} bytes behind an answer", frame.remaining());
    Ok(answer)
}

fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Reads the answer to a request of this shape.
pub(super) fn decode(shape: Shape, frame: Bytes, correlation_id: i32) -> anyhow::Result<Answer> {
    let version = shape.version;
    Ok(match shape.key {
        ProduceRequest::KEY => produced(read(frame, version, correlation_id)?),
        MetadataRequest::KEY => metadata(read(frame, version, correlation_id)?),
        InitProducerIdRequest::KEY => {
            let answer: InitProducerIdResponse = read(frame, version, correlation_id)?;
            identity(answer.error_code, answer.producer_id.0, answer.producer_epoch)
        }
        EndTxnRequest::KEY => {
            let answer: EndTxnResponse = read(frame, version, correlation_id)?;
            identity(answer.error_code, answer.producer_id.0, answer.producer_epoch)
        }
        FindCoordinatorRequest::KEY => {
            let answer: FindCoordinatorResponse = read(frame, version, correlation_id)?;
            let address = address(&answer.host, answer.port);
            Answer::Coordinator { code: answer.error_code, node: answer.node_id.0, address }
        }
        AddPartitionsToTxnRequest::KEY => {
            let answer: AddPartitionsToTxnResponse = read(frame, version, correlation_id)?;
            let of_topics = answer.results_by_topic_v3_and_below.iter().flat_map(|topic| {
                topic.results_by_partition.iter().map(|one| PartitionAnswer {
                    topic: topic.name.to_string(),
                    partition: one.partition_index,
                    code: one.partition_error_code,
                })
            });
            Answer::Partitions(of_topics.collect())
        }
        AddOffsetsToTxnRequest::KEY => {
            let answer: AddOffsetsToTxnResponse = read(frame, version, correlation_id)?;
            Answer::Code(answer.error_code)
        }
        TxnOffsetCommitRequest::KEY => {
            let answer: TxnOffsetCommitResponse = read(frame, version, correlation_id)?;
            let of_topics = answer.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|one| PartitionAnswer {
                    topic: topic.name.to_string(),
                    partition: one.partition_index,
                    code: one.error_code,
                })
            });
            Answer::Partitions(of_topics.collect())
        }
        key => bail!("no request of API {key} is ever sent"),
    })
}

fn identity(code: i16, id: i64, epoch: i16) -> Answer {
    let given = id >= 0 && epoch >= 0;
    let identity = given.then_some(Identity { id: ProducerId(id), epoch: ProducerEpoch(epoch) });
    Answer::Identity { code, identity }
}

fn produced(answer: ProduceResponse) -> Answer {
    let parts = answer.responses.iter().flat_map(|topic| {
        topic.partition_responses.iter().map(|one| ProduceAnswer {
            topic: topic.name.to_string(),
            partition: one.index,
            code: one.error_code,
            base_offset: Offset(one.base_offset),
            timestamp: TimestampMs(one.log_append_time_ms),
            leader: Some((one.current_leader.leader_id.0, one.current_leader.leader_epoch))
                .filter(|(leader, epoch)| *leader >= 0 && *epoch >= 0),
        })
    });
    Answer::Produce(parts.collect())
}

fn metadata(answer: MetadataResponse) -> Answer {
    let nodes = answer.brokers.iter().map(|node| (node.node_id.0, address(&node.host, node.port))).collect();
    let topics = answer.topics.iter().map(|topic| TopicMetadata {
        name: topic.name.as_ref().map(|name| name.to_string()).unwrap_or_default(),
        code: topic.error_code,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| PartitionMetadata {
                index: partition.partition_index,
                leader: if partition.error_code == 0 { partition.leader_id.0 } else { -1 },
                leader_epoch: partition.leader_epoch,
            })
            .collect(),
    });
    Answer::Metadata(MetadataAnswer { nodes, topics: topics.collect() })
}
