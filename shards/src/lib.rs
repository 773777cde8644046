//! The synchronous core of Oncilla.
//!
//! Everything that decides lives here: plain code that never awaits, reads no clock, opens no file, owns no socket and
//! draws no random number. Time is an argument, what must happen outside is returned as data, and the edges in the
//! `oncilla` crate carry it out. The same code runs under the seeded simulator.

pub mod batch;
pub mod client;
pub mod code;
pub mod compaction;
pub mod groups;
pub mod ids;
pub mod image;
pub mod limits;
pub mod opening;
pub mod partition;
pub mod producers;
pub mod read_ahead;
pub mod session;
pub mod shard;
pub mod slot;
pub mod txn;
pub mod wire;
