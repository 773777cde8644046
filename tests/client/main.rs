//! The native producer against this broker as a process of its own, which is killed with SIGKILL in the middle.

mod broker;
mod idempotent;
mod read;
mod transactions;
