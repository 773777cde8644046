//! Connections over real sockets, against a service that echoes after the delay that the request asks for.
//!
//! One shard on one thread for each test; clients are plain blocking sockets.

mod bounds;
mod broker;
mod ends;
mod order;
mod toy;
