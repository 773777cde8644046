//! Connections of Kafka clients: accept, requests in, answers out in request order.
//!
//! Owned by the shard that accepted the connection. What a client can make a shard hold is bounded by bytes: requests
//! by the budgets of shard and connection (not read without), answers by what the client has left unread. What goes
//! wrong on a connection ends that connection and nothing else.

mod accept;
mod admission;
mod answers;
mod connection;
mod counters;
mod frame;
mod listener;
mod quota;
mod reader;
mod service;
mod shard;
mod sweep;
mod writer;

pub use answers::AnswerSlot;
#[cfg(test)]
pub use answers::Answers;
pub use counters::NetCounters;
pub use listener::{BindError, bind_all};
pub use quota::{ConnectionQuota, Permit};
pub use service::{Answer, Body, Peer, Request, Service};
pub use shard::{NetSettings, NetShard};
