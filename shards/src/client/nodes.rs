//! The nodes that a producer knows, its one connection to each, and the order in which requests go onto it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::lane::LaneId;
use super::message::ConnectionId;
use crate::limits::CLIENT_NODES_MAX;

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub address: Arc<str>,
    pub generation: u64,
    /// Number of the next request on the connection.
    tickets: u64,
    /// Produce requests without an answer.
    pub produces: usize,
    /// Partitions that have something to send when there are fewer.
    pub waiting: VecDeque<LaneId>,
    /// Before this time no connection is tried.
    pub until_ms: u64,
    failures: u32,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    by_id: BTreeMap<i32, Node>,
    /// The node asked last when any would do.
    last: i32,
}

impl Nodes {
    /// Addresses given to begin with have negative ids, until the cluster has told its own.
    pub fn new(bootstrap: &[String]) -> Self {
        let mut nodes = Self { by_id: BTreeMap::new(), last: i32::MIN };
        for (at, address) in bootstrap.iter().enumerate() {
            nodes.learn(-1 - i32::try_from(at).expect("a list of addresses"), address);
        }
        nodes
    }

    /// Takes note of a node, if there are not too many. Under another address it gets another connection; the old one
    /// is returned.
    pub fn learn(&mut self, id: i32, address: &str) -> Option<ConnectionId> {
        if let Some(node) = self.by_id.get_mut(&id) {
            let moved = *node.address != *address;
            if moved {
                node.address = address.into();
                return Some(ConnectionId { node: id, generation: node.generation });
            }
            return None;
        }
        if self.by_id.len() >= CLIENT_NODES_MAX {
            return None;
        }
        let node = Node {
            address: address.into(),
            generation: 0,
            tickets: 0,
            produces: 0,
            waiting: VecDeque::new(),
            until_ms: 0,
            failures: 0,
        };
        self.by_id.insert(id, node);
        None
    }

    pub fn get(&self, id: i32) -> Option<&Node> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: i32) -> Option<&mut Node> {
        self.by_id.get_mut(&id)
    }

    pub fn connection(&self, id: i32) -> Option<ConnectionId> {
        self.by_id.get(&id).map(|node| ConnectionId { node: id, generation: node.generation })
    }

    /// Number of the next request on this connection, and where it goes.
    pub fn ticket(&mut self, connection: ConnectionId) -> (u64, Arc<str>) {
        let node = self.by_id.get_mut(&connection.node).expect("requests go to known nodes");
        assert_eq!(node.generation, connection.generation, "no request goes onto a connection that is lost");
        let ticket = node.tickets;
        node.tickets += 1;
        (ticket, node.address.clone())
    }

    /// A node that may be asked now, another one each time; `Err` with the time at which there will be one.
    pub fn any(&mut self, now_ms: u64) -> Result<i32, u64> {
        let usable = |(id, node): (&i32, &Node)| (node.until_ms <= now_ms).then_some(*id);
        let after = self.by_id.range(self.last.saturating_add(1)..).find_map(usable);
        match after.or_else(|| self.by_id.iter().find_map(usable)) {
            Some(id) => {
                self.last = id;
                Ok(id)
            }
            None => Err(self.by_id.values().map(|node| node.until_ms).min().unwrap_or(u64::MAX)),
        }
    }

    /// An answer came: the node is well.
    pub fn answered(&mut self, id: i32) {
        if let Some(node) = self.by_id.get_mut(&id) {
            node.failures = 0;
        }
    }

    /// Gives the connection up; `false` if it was given up before. The next one is tried after a pause.
    pub fn lost(&mut self, connection: ConnectionId, pause_ms: impl Fn(u32) -> u64, now_ms: u64) -> bool {
        let Some(node) = self.by_id.get_mut(&connection.node) else { return false };
        if node.generation != connection.generation {
            return false;
        }
        node.failures = node.failures.saturating_add(1);
        node.generation += 1;
        node.tickets = 0;
        node.until_ms = now_ms.saturating_add(pause_ms(node.failures));
        true
    }
}
