//! What happens to connections when nothing happens on them.
//!
//! One task a shard looks at all of its connections a few times a second: silence beyond `connections.max.idle.ms`
//! (contract KC.13; requests in work are waited for), a half-received frame that keeps others from the budget, a reset
//! of a connection that nobody reads at the moment (case 120), and the end of lingering.

use std::rc::Rc;
use std::time::{Duration, Instant};

use oncilla_shards::limits;

use super::connection::Connection;
use super::service::Service;
use super::shard::NetShard;
use crate::rt::{every, now};

const PERIOD_MS_MAX: u64 = 250;
const PERIOD_MS_MIN: u64 = 10;

/// Starts the task; it ends with the shard.
pub fn start<S: Service>(shard: &Rc<NetShard<S>>) {
    let idle_ms = shard.settings.idle_ms.unwrap_or(u64::MAX);
    let period_ms = (idle_ms / 8).clamp(PERIOD_MS_MIN, PERIOD_MS_MAX);
    let shard = Rc::downgrade(shard);
    every(Duration::from_millis(period_ms), move || {
        let Some(shard) = shard.upgrade() else { return false };
        let now = now();
        for connection in shard.connections() {
            look_at(&connection, now);
        }
        true
    });
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
