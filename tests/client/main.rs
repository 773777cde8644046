//! The native producer against this broker as a process of its own, which is killed with SIGKILL in the middle.

mod broker;
mod hostile;
mod idempotent;
mod proxy;
mod read;
mod transactions;
