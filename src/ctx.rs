//! What every task of one shard shares: its core state, its view of the topics, its files, and the way to other shards.
//!
//! Owned by the shard's executor; never leaves its thread.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use oncilla_shards::ids::{LeaderEpoch, NodeId, Offset, PartitionKey, ShardId};
use oncilla_shards::image::Image;

use crate::config::{Config, ListenerMode};
use crate::rt::Mesh;
use crate::topics_writer::TopicsWriter;

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

/// The shared state of one shard.
pub struct Ctx {
    /// This shard.
    pub id: ShardId,
    /// The settings.
    pub config: Arc<Config>,
    /// The way to other shards.
    pub mesh: Rc<Mesh<Ctx>>,
    /// Nodes as clients of each listener see them, in node order; index = listener.
    pub nodes: Vec<Vec<Node>>,
    /// Epoch of this start, which is the leader epoch of every partition.
    pub boot_epoch: LeaderEpoch,
    /// The one writer of topics; used on shard 0 only.
    pub topics_writer: TopicsWriter,
    image: RefCell<Arc<Image>>,
}

impl Ctx {
    /// The state of a shard that starts with `image`.
    pub fn new(
        id: ShardId,
        config: Arc<Config>,
        mesh: Mesh,
        nodes: Vec<Vec<Node>>,
        boot_epoch: LeaderEpoch,
        image: Arc<Image>,
    ) -> Self {
        let topics_writer = TopicsWriter::new(image.clone());
        Self { id, config, mesh, nodes, boot_epoch, topics_writer, image: RefCell::new(image) }
    }

    /// The topics as this shard knows them now.
    pub fn image(&self) -> Arc<Image> {
        self.image.borrow().clone()
    }

    /// Takes a newer image; returns when this shard serves it.
    pub async fn install(&self, image: Arc<Image>) {
        self.image.replace(image);
    }

    /// The node that clients know this shard as.
    pub fn node(&self) -> NodeId {
        let node = match self.config.listener_mode {
            ListenerMode::PerCore => usize::from(self.id.0),
            ListenerMode::Shared => 0,
        };
        self.nodes[0][node].id
    }

    /// A partition of this shard, if it is open here.
    pub fn partition_view(&self, _key: &PartitionKey) -> Option<PartitionView> {
        None
    }

    /// Runs `job` on shard `to` and waits for what it gives.
    pub async fn call<T, F, Fut>(self: &Rc<Self>, to: ShardId, job: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(Rc<Ctx>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        self.mesh.call(self, to, job).await
    }

    /// The shared handle itself, for tasks.
    pub fn handle(self: &Rc<Self>) -> Rc<Self> {
        self.clone()
    }
}
