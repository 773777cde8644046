//! All connections of one shard, and what they share: budget, receive buffers, counters.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use oncilla_shards::limits;
use slab::Slab;

use super::admission::Budget;
use super::connection::Connection;
use super::counters::NetCounters;
use super::quota::{ConnectionQuota, Permit};
use super::service::{Peer, Service};
use super::{accept, reader, sweep, writer};
use crate::config::Config;
use crate::rt::{Acceptor, Socket, now, sleep, spawn};

/// How often a drain looks whether it is done.
const DRAIN_POLL_MS: u64 = 5;

/// Time for the tasks of connections that were cut off to end.
const ABORT_WAIT_MS: u64 = 500;

/// The settings that connections follow.
#[derive(Clone, Debug)]
pub struct NetSettings {
    /// `socket.request.max.bytes`
    pub request_bytes_max: usize,
    /// `queued.max.request.bytes`, of one shard.
    pub shard_bytes_max: usize,
    /// `connection.max.request.bytes`
    pub connection_bytes_max: usize,
    /// `connections.max.idle.ms`; `None` for never.
    pub idle_ms: Option<u64>,
}

impl From<&Config> for NetSettings {
    fn from(config: &Config) -> Self {
        Self {
            request_bytes_max: config.socket_request_max_bytes,
            shard_bytes_max: config.shard_request_bytes_max,
            connection_bytes_max: config.connection_request_bytes_max,
            idle_ms: config.connections_max_idle_ms,
        }
    }
}

/// The connections of one shard.
pub struct NetShard<S: Service> {
    /// Serves their requests.
    pub service: Rc<S>,
    /// The settings.
    pub settings: NetSettings,
    /// The counters.
    pub counters: Arc<NetCounters>,
    pub(super) budget: Rc<Budget>,
    pub(super) quota: Arc<ConnectionQuota>,
    registry: RefCell<Slab<Option<Rc<Connection<S>>>>>,
    acceptors: RefCell<Vec<Rc<Acceptor>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    stopping: Cell<bool>,
    connected: Cell<u64>,
}

impl<S: Service> NetShard<S> {
    /// Starts accepting on `listeners` (their index is [`Peer::listener`]); must be called on the shard.
    pub fn start(
        service: Rc<S>,
        settings: NetSettings,
        quota: Arc<ConnectionQuota>,
        counters: Arc<NetCounters>,
        listeners: Vec<TcpListener>,
    ) -> io::Result<Rc<Self>> {
        let shard = Rc::new(Self {
            service,
            budget: Budget::new(settings.shard_bytes_max),
            settings,
            counters,
            quota,
            registry: RefCell::default(),
            acceptors: RefCell::default(),
            buffers: RefCell::default(),
            stopping: Cell::new(false),
            connected: Cell::new(0),
        });
        sweep::start(&shard);
        for (index, listener) in listeners.into_iter().enumerate() {
            let acceptor = Rc::new(Acceptor::new(listener)?);
            shard.acceptors.borrow_mut().push(acceptor.clone());
            accept::start(shard.clone(), acceptor, index);
        }
        Ok(shard)
    }

    /// Stops accepting, lets requests in work finish for up to `longest`, then cuts off what is left.
    pub async fn drain(&self, longest: Duration) {
        self.stopping.set(true);
        for acceptor in self.acceptors.take() {
            acceptor.close();
        }
        for connection in self.connections() {
            connection.drain();
        }
        self.wait_for_none(longest).await;
        let left = self.connections();
        if !left.is_empty() {
            tracing::warn!(connections = left.len(), "requests still in work at the end of the drain are cut off");
        }
        for connection in left {
            connection.abort();
        }
        self.wait_for_none(Duration::from_millis(ABORT_WAIT_MS)).await;
    }

    /// Open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.registry.borrow().len()
    }

    async fn wait_for_none(&self, longest: Duration) {
        let deadline = now() + longest;
        while self.open() > 0 && now() < deadline {
            sleep(Duration::from_millis(DRAIN_POLL_MS)).await;
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Serves a connection that was just accepted.
    pub(super) fn adopt(
        self: &Rc<Self>,
        socket: Socket,
        address: SocketAddr,
        local: SocketAddr,
        listener: usize,
        permit: Permit,
    ) {
        let id = self.connected.get();
        self.connected.set(id + 1);
        let peer = Peer::new(id, address, local, listener);
        let key = self.registry.borrow_mut().insert(None);
        let connection = Connection::new(self.clone(), socket, peer, key, permit);
        self.registry.borrow_mut()[key] = Some(connection.clone());
        self.counters.accepted.add(1);
        self.counters.connections.set(self.open() as u64);
        spawn(writer::write(connection.clone()));
        spawn(reader::read(connection));
    }

    pub(super) fn forget(&self, key: usize) {
        let ended = self.registry.borrow_mut().remove(key);
        self.counters.connections.set(self.open() as u64);
        drop(ended);
    }

    pub(super) fn connections(&self) -> Vec<Rc<Connection<S>>> {
        self.registry.borrow().iter().filter_map(|(_, connection)| connection.clone()).collect()
    }

    /// All keys of [`NetShard::connection`] are below.
    pub(super) fn keys_end(&self) -> usize {
        self.registry.borrow().iter().next_back().map_or(0, |(key, _)| key + 1)
    }

    /// The connection with this key.
    pub(super) fn connection(&self, key: usize) -> Option<Rc<Connection<S>>> {
        self.registry.borrow().get(key).cloned().flatten()
    }

    /// An empty buffer to receive into: large while there is budget for what it may bring.
    pub(super) fn receive_buffer(&self) -> Vec<u8> {
        if self.budget.free() < limits::RECEIVE_BYTES_MAX || self.budget.has_waiters() {
            return Vec::with_capacity(limits::RECEIVE_BYTES_MIN);
        }
        self.buffers.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(limits::RECEIVE_BYTES_MAX))
    }

    /// Takes a buffer back, for the next receive of any connection.
    pub(super) fn return_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffer.capacity() >= limits::RECEIVE_BYTES_MAX && buffers.len() < limits::RECEIVE_BUFFERS_MAX {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}
