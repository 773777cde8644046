//! The edges of Oncilla: sockets, files, threads and the command line around the synchronous core of `oncilla-shards`.

pub mod api;
pub mod broker;
pub mod cli;
pub mod config;
pub mod ctx;
pub mod disk;
pub mod metrics;
pub mod net;
pub mod rt;
pub mod volume;
pub mod web;
