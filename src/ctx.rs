//! What every task of one shard shares: its core state, its view of the topics, its files, and the way to other shards.
//!
//! Owned by the shard's executor; never leaves its thread. No borrow of the core outlives a statement that awaits.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use oncilla_shards::ids::{LeaderEpoch, NodeId, Offset, PartitionKey, ShardId};
use oncilla_shards::image::Image;
use oncilla_shards::session::Sessions;
use oncilla_shards::shard::{Effect, Effects, Shard};

use crate::api::ProduceWaiters;
use crate::config::{Config, ListenerMode};
use crate::disk::remove_aside::Remover;
use crate::groups;
use crate::metrics::ShardMetrics;
use crate::partitions::{self, Files, Watches};
use crate::rt::Mesh;
use crate::topics_writer::TopicsWriter;
use crate::txn;
use crate::volume::producer_ids::{ProducerIdBlock, ProducerIdBlocks};

/// A Kafka node as Metadata lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Node id.
    pub id: NodeId,
    /// Advertised host.
    pub host: String,
    /// Advertised port.
    pub port: u16,
}

/// What other APIs than Produce and Fetch tell about a partition of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Its leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// Bytes of its segments.
    pub size_bytes: i64,
    /// First offset.
    pub log_start: Offset,
    /// Offset after the last durable record.
    pub end: Offset,
}

/// What a start has found out before any shard runs.
#[derive(Clone)]
pub struct Seed {
    /// The settings.
    pub config: Arc<Config>,
    /// Nodes as clients of each listener see them, in node order; index = listener.
    pub nodes: Vec<Vec<Node>>,
    /// Epoch of this start, which is the leader epoch of every partition.
    pub boot_epoch: LeaderEpoch,
    /// The topics.
    pub image: Arc<Image>,
}

/// The shared state of one shard.
pub struct Ctx {
    /// This shard.
    pub id: ShardId,
    /// The settings.
    pub config: Arc<Config>,
    /// The way to other shards; `None` where there are none.
    pub mesh: Option<Rc<Mesh<Ctx>>>,
    /// Nodes as clients of each listener see them, in node order; index = listener.
    pub nodes: Vec<Vec<Node>>,
    /// Epoch of this start, which is the leader epoch of every partition.
    pub boot_epoch: LeaderEpoch,
    /// The one writer of topics; used on shard 0 only.
    pub topics_writer: TopicsWriter,
    /// The core: partitions and fetch sessions.
    pub shard: RefCell<Shard>,
    /// Files of this shard's partitions.
    pub files: Files,
    /// Produce requests that wait for their records to be durable.
    pub produces: ProduceWaiters,
    /// Fetch requests that wait for records.
    pub watches: Watches,
    /// Consumer groups of this shard.
    pub groups: groups::Host,
    /// Transactional ids of this shard, and the fences of its partitions.
    pub txn: txn::Host,
    /// Counters of this shard.
    pub metrics: Arc<ShardMetrics>,
    /// Where producer ids come from; on shard 0 only.
    pub producer_id_blocks: Option<ProducerIdBlocks>,
    /// Producer ids that this shard hands out.
    pub producer_ids: RefCell<ProducerIdBlock>,
    /// Removes files that are not needed any more, on a thread of its own.
    pub remover: Remover,
    /// Whether the broker is going down: nothing new is parked.
    pub stopping: Cell<bool>,
    image: RefCell<Arc<Image>>,
}

impl Ctx {
    /// The state of a shard that starts with `seed`, before its partitions are opened.
    pub fn new(
        id: ShardId,
        seed: Seed,
        mesh: Option<Rc<Mesh<Self>>>,
        producer_id_blocks: Option<ProducerIdBlocks>,
        metrics: Arc<ShardMetrics>,
        remover: Remover,
        session_seed: u32,
    ) -> Self {
        let sessions = Sessions::new(seed.config.fetch_session_slots, session_seed);
        let group_settings = groups::settings(&seed.config, &seed.image, node_of(id, &seed.config, &seed.nodes));
        let txn_settings = txn::settings(&seed.config, &seed.image);
        let tail_bytes_max = seed.config.log_cache_bytes / usize::from(seed.config.shards);
        Self {
            id,
            mesh,
            boot_epoch: seed.boot_epoch,
            topics_writer: TopicsWriter::new(seed.image.clone()),
            shard: RefCell::new(Shard::new(tail_bytes_max, sessions)),
            files: Files::new(&seed.config),
            produces: ProduceWaiters::default(),
            watches: Watches::default(),
            groups: groups::Host::new(&seed.config, seed.boot_epoch, group_settings),
            txn: txn::Host::new(&seed.config, seed.boot_epoch, txn_settings, seed.image.clone()),
            metrics,
            producer_id_blocks,
            producer_ids: RefCell::new(ProducerIdBlock::empty()),
            remover,
            stopping: Cell::new(false),
            image: RefCell::new(seed.image),
            nodes: seed.nodes,
            config: seed.config,
        }
    }

    /// The topics as this shard knows them now.
    pub fn image(&self) -> Arc<Image> {
        self.image.borrow().clone()
    }

    /// Takes a newer image; returns when this shard serves it and writes to no file of a topic that is gone.
    pub async fn install(self: &Rc<Self>, image: Arc<Image>) {
        let gone = partitions::install(self, &image);
        let before = self.image.replace(image.clone());
        groups::install(self, &before, &image);
        txn::install(self, &before, &image);
        self.files.writing_ended(&gone).await;
    }

    /// The broker is going down: whoever waits for records is answered with what there is, whoever waits
    /// for members of a group is sent to look again.
    pub fn stop(self: &Rc<Self>) {
        self.stopping.set(true);
        self.watches.wake_all();
        groups::stop(self);
    }

    /// The node that clients know this shard as.
    pub fn node(&self) -> NodeId {
        node_of(self.id, &self.config, &self.nodes)
    }

    /// Whether requests for partitions of other shards are passed on to them.
    pub fn forwards(&self) -> bool {
        self.config.listener_mode == ListenerMode::Shared
    }

    /// A partition of this shard, if it is open here.
    pub fn partition_view(&self, key: &PartitionKey) -> Option<PartitionView> {
        let shard = self.shard.borrow();
        let partition = shard.partition(key)?;
        Some(PartitionView {
            leader_epoch: partition.epoch(),
            size_bytes: i64::try_from(partition.segments().bytes()).unwrap_or(i64::MAX),
            log_start: partition.log_start(),
            end: partition.high_watermark(),
        })
    }

    /// Runs `job` on shard `to` and waits for what it gives.
    pub async fn call<T, F, Fut>(self: &Rc<Self>, to: ShardId, job: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(Rc<Ctx>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        if to == self.id {
            return job(self.clone()).await;
        }
        let mesh = self.mesh.as_ref().expect("another shard is reached over the mesh");
        match mesh.call(self, to, job).await {
            Ok(value) => value,
            // Lanes close after the drain, when no connection is left that could be told.
            Err(_) => std::future::pending().await,
        }
    }

    /// Runs `job` on shard `to` without waiting for it.
    pub fn post<F, Fut>(self: &Rc<Self>, to: ShardId, job: F)
    where
        F: FnOnce(Rc<Ctx>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let mesh = self.mesh.as_ref().expect("another shard is reached over the mesh");
        if let Err(error) = mesh.post(self, to, job) {
            tracing::debug!(%error, "a message to another shard is dropped at the end");
        }
    }

    /// Carries out what the core asked for.
    pub fn carry_out(self: &Rc<Self>, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::StartWriter(key) => partitions::start_writer(self, key),
                Effect::Settled(waiter, result) => self.produces.settle(self, waiter, result),
                Effect::Wake(watch) => self.watches.wake(self, watch),
                Effect::Snapshot(key, offset, bytes) => partitions::save_snapshot(self, key, offset, bytes),
            }
        }
    }
}

fn node_of(shard: ShardId, config: &Config, nodes: &[Vec<Node>]) -> NodeId {
    let node = match config.listener_mode {
        ListenerMode::PerCore => usize::from(shard.0),
        ListenerMode::Shared => 0,
    };
    nodes[0][node].id
}
