//! The runtime of a shard: executors pinned to cores, timers, sockets, and lanes between shards.
//!
//! The only module that names glommio. What it has to work around is pinned in `tests/pins`:
//! a shard can park with runnable tasks (hence the heartbeat), an always-runnable task starves I/O (hence
//! [`yield_by_timer`]), and a cancelled task leaks (hence [`spawn`] detaches and nothing is cancelled from outside).

mod clock;
mod cores;
pub mod file;
mod lane;
mod local;
mod memory;
mod mesh;
mod order;
mod signals;
mod socket;

pub use clock::{every, now, now_ms, sleep, spawn, yield_by_timer};
pub use cores::{Cores, ShardOptions, ShardThread, start_shard};
pub use lane::{LaneCounters, LaneError, LaneReceiver, LaneReceiverSeed, LaneSeed, LaneSender, lane};
pub use local::{Notified, Notify, OneshotReceiver, OneshotSender, join_all, oneshot};
pub use memory::keep_freed_memory;
pub use mesh::{Mesh, MeshError, MeshSeat, mesh_seats};
pub use order::{Order, OrderWatch};
pub use signals::{Signals, exit_now};
pub use socket::{Acceptor, Socket};
