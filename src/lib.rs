//! The edges of Oncilla: sockets, files, threads and the command line around the synchronous core of `oncilla-shards`.

pub mod api;
pub mod assembly;
pub mod broker;
pub mod cli;
pub mod client;
pub mod config;
pub mod ctx;
pub mod disk;
pub mod group_metrics;
pub mod groups;
pub mod logs;
pub mod metrics;
pub mod net;
pub mod partitions;
pub mod preflight;
pub mod rt;
pub mod service;
pub mod slots;
pub mod topics_writer;
pub mod txn;
pub mod volume;
pub mod web;
