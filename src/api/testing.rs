//! A shard for tests of handlers: one core, one listener, a temporary data directory.

pub mod shards;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::{Decodable, Encodable};
use oncilla_shards::ids::{BrokerId, LeaderEpoch, NodeId, ShardId, TopicId};
use oncilla_shards::image::{BrokerSettings, Change, Image};

use super::{Answer, Request, begin_produce, dispatch};
use crate::config::{Config, IoMode, Listener, ListenerMode};
use crate::ctx::{Ctx, Node, Seed};
use crate::disk::layout::DataDir;
use crate::disk::remove_aside::Remover;
use crate::groups;
use crate::metrics::ShardMetrics;
use crate::net::Answers;
pub use crate::rt::file::test_block_on as block_on;
use crate::topics_writer;
use crate::txn;
use crate::volume::producer_ids::{self, ProducerIdBlocks};

/// The cluster id of every test.
pub const CLUSTER: &str = "ASNFZ4mrze_-3LqYdlQyEA";

fn config(data_dir: &std::path::Path) -> Config {
    let listener = Listener {
        name: "PLAINTEXT".to_owned(),
        bind: "127.0.0.1:9092".parse().expect("an address"),
        advertised_host: None,
        advertised_port: None,
    };
    Config {
        broker_id: BrokerId(0),
        data_dir: data_dir.to_owned(),
        listeners: vec![listener],
        listener_mode: ListenerMode::PerCore,
        shards: 1,
        poll_spin_us: 0,
        http_listen: None,
        metrics_groups_max: 100,
        num_partitions: 2,
        default_replication_factor: 1,
        replication_factor_accept_max: 3,
        auto_create_topics: true,
        delete_topic_enable: true,
        socket_request_max_bytes: 1 << 20,
        shard_request_bytes_max: 1 << 20,
        connection_request_bytes_max: 1 << 20,
        connections_max_idle_ms: None,
        max_connections: 100,
        max_connections_per_ip: 100,
        io_mode: IoMode::Buffered,
        log_cache_bytes: 0,
        log_read_ahead_bytes: 8 << 20,
        fetch_max_bytes: 1 << 20,
        fetch_session_slots: 10,
        retention_check_interval_ms: 1000,
        cleaner_enable: true,
        cleaner_backoff_ms: 1000,
        cleaner_dedupe_bytes: 1 << 20,
        cleaner_io_bytes_per_second_max: None,
        producer_id_expiration_ms: 1000,
        producer_id_expiration_check_interval_ms: 1000,
        producer_ids_max: 10,
        groups: Default::default(),
        txn: Default::default(),
        add_partitions_wait_ms_max: 100,
        offsets_retention_check_interval_ms: 600_000,
        shutdown_drain_ms: 0,
        log_level: "info".to_owned(),
        log_format: crate::config::LogFormat::Text,
        topic_defaults: Default::default(),
        settings: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A shard and its data directory.
pub fn ctx() -> (Rc<Ctx>, tempfile::TempDir) {
    ctx_with(|_| {})
}

/// A shard with some settings changed.
pub fn ctx_with(change: impl FnOnce(&mut Config)) -> (Rc<Ctx>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut config = config(dir.path());
    change(&mut config);
    let image =
        topics_writer::load(dir.path(), BrokerId(0), 1, BrokerSettings::default(), || CLUSTER.to_owned()).expect("new");
    let nodes = vec![vec![Node { id: NodeId(0), host: "localhost".to_owned(), port: 9092 }]];
    let data = DataDir::new(dir.path());
    producer_ids::create_blocking(&data, BrokerId(0)).expect("a file of producer ids");
    let blocks = ProducerIdBlocks::open_blocking(&data, BrokerId(0)).expect("it was made above");
    (shard(config, nodes, image, Some(blocks)), dir)
}

fn shard(config: Config, nodes: Vec<Vec<Node>>, image: Image, blocks: Option<ProducerIdBlocks>) -> Rc<Ctx> {
    let seed = Seed { config: Arc::new(config), nodes, boot_epoch: LeaderEpoch(7), image: Arc::new(image) };
    let metrics = Arc::new(ShardMetrics::new(ShardId(0)));
    let remover = Remover::start().expect("a thread");
    let ctx = Rc::new(Ctx::new(ShardId(0), seed, None, blocks, metrics, remover, 1));
    groups::load_all(&ctx).expect("slots");
    txn::load_all(&ctx).expect("slots and fences");
    ctx
}

/// The same shard after a stop or a crash, on the same data directory.
pub fn restarted(before: &Ctx) -> Rc<Ctx> {
    let boot_epoch = LeaderEpoch(before.boot_epoch.0 + 1);
    let (config, nodes, image) = (before.config.clone(), before.nodes.clone(), before.image());
    let seed = Seed { config, nodes, boot_epoch, image };
    let metrics = Arc::new(ShardMetrics::new(ShardId(0)));
    let blocks =
        ProducerIdBlocks::open_blocking(&DataDir::new(&before.config.data_dir), BrokerId(0)).expect("its file");
    let ctx = Rc::new(Ctx::new(ShardId(0), seed, None, Some(blocks), metrics, before.remover.clone(), 1));
    groups::load_all(&ctx).expect("slots");
    txn::load_all(&ctx).expect("slots and fences");
    ctx
}

/// The first of `shards` shards, as nodes of their own or as one, with one topic `t` of four partitions. Only requests
/// that stay on this shard can be asked.
pub fn ctx_of_shards(shards: u16, mode: ListenerMode) -> Rc<Ctx> {
    let mut config = config(std::path::Path::new("unused"));
    config.shards = shards;
    config.listener_mode = mode;
    let change = Change::CreateTopic {
        id: TopicId(1),
        name: "t".to_owned(),
        partitions: 4,
        placement: 1,
        overrides: Default::default(),
    };
    let image = Image::new(CLUSTER, BrokerId(0), shards, BrokerSettings::default()).apply(&[change]);
    let count = if mode == ListenerMode::PerCore { shards } else { 1 };
    let node = |k: u16| Node { id: NodeId(k.into()), host: "localhost".to_owned(), port: 9092 + k };
    let nodes = vec![(0..count).map(node).collect()];
    shard(config, nodes, image, None)
}

/// Encodes a request, has it answered, and decodes the answer.
pub fn ask<R: Decodable>(ctx: &Rc<Ctx>, key: i16, version: i16, request: &impl Encodable) -> R {
    block_on(asked(ctx, key, version, request))
}

/// Has raw bytes answered, and decodes the answer.
pub fn ask_bytes<R: Decodable>(ctx: &Rc<Ctx>, key: i16, version: i16, body: &Bytes) -> R {
    block_on(asked_bytes(ctx, key, version, body.clone()))
}

/// [`ask`] within a task of the shard.
pub async fn asked<R: Decodable>(ctx: &Rc<Ctx>, key: i16, version: i16, request: &impl Encodable) -> R {
    asked_bytes(ctx, key, version, encoded(version, request)).await
}

fn encoded(version: i16, request: &impl Encodable) -> Bytes {
    let mut body = BytesMut::new();
    request.encode(&mut body, version).expect("a request of this version");
    body.freeze()
}

async fn asked_bytes<R: Decodable>(ctx: &Rc<Ctx>, key: i16, version: i16, body: Bytes) -> R {
    let request = Request { key, version, client_id: None, body, listener: 0, peer: None };
    match dispatch(ctx, &request).await {
        Answer::Body(body) => {
            let mut bytes = body.to_bytes();
            let decoded = R::decode(&mut bytes, version).expect("an answer of this version");
            assert!(bytes.is_empty(), "{} bytes behind the answer", bytes.len());
            decoded
        }
        other => panic!("no answer to key {key} version {version}: {other:?}"),
    }
}

/// Begins a Produce request, whose answer [`produced`] waits for.
pub fn producing(ctx: &Rc<Ctx>, version: i16, request: &ProduceRequest) -> Rc<Answers> {
    let body = encoded(version, request);
    let request = Request { key: 0, version, client_id: None, body, listener: 0, peer: None };
    let answers = Rc::new(Answers::default());
    begin_produce(ctx, &request, answers.open(0, false, None));
    answers
}

/// The answer to a Produce request of this version.
pub async fn produced(version: i16, answers: &Answers) -> ProduceResponse {
    while !answers.has_ready() {
        answers.ready.notified().await;
    }
    let mut out = VecDeque::new();
    assert_eq!(answers.take_ready(&mut out), None);
    let mut bytes = Bytes::from(out[0].body.chunks.concat());
    ProduceResponse::decode(&mut bytes, version).expect("an answer of this version")
}

/// Creates a topic through the writer.
pub fn create_topic(ctx: &Rc<Ctx>, name: &str, partitions: i32) {
    block_on(make_topic(ctx, name, partitions));
}

/// [`create_topic`] within a task of the shard.
pub async fn make_topic(ctx: &Rc<Ctx>, name: &str, partitions: i32) {
    let change = Change::CreateTopic {
        id: super::metadata_update::new_topic_id(),
        name: name.to_owned(),
        partitions,
        placement: 0,
        overrides: Default::default(),
    };
    topics_writer::update(ctx, |_| (vec![change], ())).await.expect("written");
}
