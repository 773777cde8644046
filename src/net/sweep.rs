//! What happens to connections when nothing happens on them.
//!
//! One task a shard looks at all of its connections a few times a second: silence beyond `connections.max.idle.ms`
//! (contract KC.13; requests in work are waited for), a half-received frame that keeps others from the budget, a reset
//! of a connection that nobody reads at the moment (case 120), and the end of lingering.
//!
//! It looks at some of them at a time, because silent connections are in no cache: 10,000 at once doubled the p99 of a
//! producer beside them (2.0 ms against 0.9, medians of three).

use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use oncilla_shards::limits;

use super::connection::Connection;
use super::service::Service;
use super::shard::NetShard;
use crate::rt::{now, sleep, spawn};

/// Time in which each connection is looked at once.
const PERIOD_MS_MAX: u64 = 250;
const PERIOD_MS_MIN: u64 = 10;

/// Connections looked at in one turn, unless that took more turns than `TURNS_MAX`.
const TURN_CONNECTIONS: usize = 100;

/// Turns of one period: one in 2.5 ms at most.
const TURNS_MAX: usize = 100;

/// Starts the task; it ends with the shard.
pub fn start<S: Service>(shard: &Rc<NetShard<S>>) {
    let idle_ms = shard.settings.idle_ms.unwrap_or(u64::MAX);
    let period = Duration::from_millis((idle_ms / 8).clamp(PERIOD_MS_MIN, PERIOD_MS_MAX));
    let shard = Rc::downgrade(shard);
    spawn(async move { while look_at_all(&shard, period).await {} });
}

/// Looks at each connection once in the course of `period`; false when the shard has gone.
async fn look_at_all<S: Service>(shard: &Weak<NetShard<S>>, period: Duration) -> bool {
    let Some(keys) = shard.upgrade().map(|shard| shard.keys_end()) else { return false };
    let turns = keys.div_ceil(TURN_CONNECTIONS).clamp(1, TURNS_MAX);
    for turn in 0..turns {
        sleep(period / turns as u32).await;
        let Some(shard) = shard.upgrade() else { return false };
        let now = now();
        for key in keys * turn / turns..keys * (turn + 1) / turns {
            if let Some(connection) = shard.connection(key) {
                look_at(&connection, now);
            }
        }
    }
    true
}

fn look_at<S: Service>(connection: &Connection<S>, now: Instant) {
    if let Some(until) = connection.linger_until.get() {
        if now >= until {
            connection.socket.shutdown_both();
        }
        return;
    }
    let silent = now.saturating_duration_since(connection.last_byte());
    let shard = &connection.shard;
    let in_work = connection.answers.unfilled() > 0;
    let idle_max = shard.settings.idle_ms.map(Duration::from_millis);
    if !in_work && idle_max.is_some_and(|idle_max| silent > idle_max) {
        tracing::debug!(client = %connection.peer.address, "connections.max.idle.ms reached");
        shard.counters.idle_cut.add(1);
        connection.abort();
    } else if connection.in_frame.get()
        && connection.listening.get()
        && silent > Duration::from_millis(limits::FRAME_STALL_MS)
        && shard.budget.has_waiters()
    {
        tracing::warn!(client = %connection.peer.address, "closing the connection: half a request, and others wait");
        shard.counters.idle_cut.add(1);
        connection.abort();
    } else if !connection.listening.get() && connection.socket.is_reset() {
        tracing::debug!(client = %connection.peer.address, "connection reset while it was not read");
        connection.abort();
    }
}
