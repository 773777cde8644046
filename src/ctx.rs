//! What every task of one shard shares: its core state, its view of the topics, its files, and the way to other shards.
//!
//! Owned by the shard's executor; never leaves its thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use oncilla_shards::ids::{NodeId, ShardId};

use crate::config::Config;
use crate::rt::Mesh;

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
    image: RefCell<Arc<()>>,
}

impl Ctx {
    /// The topics as this shard knows them now.
    pub fn image(&self) -> Arc<()> {
        self.image.borrow().clone()
    }

    /// The shared handle itself, for tasks.
    pub fn handle(self: &Rc<Self>) -> Rc<Self> {
        self.clone()
    }
}
