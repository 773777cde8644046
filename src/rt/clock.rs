//! Clocks, timers and tasks of the shard that calls.
//!
//! Wall time is for timestamps only; every duration is measured on the monotonic clock.

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oncilla_shards::ids::TimestampMs;

/// Shortest timer that really leaves the run queue: a zero sleep is ready at once and never lets I/O in.
const YIELD_TIMER_US: u64 = 5;

/// The monotonic clock.
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock; 0 for a clock before 1970.
#[must_use]
pub fn now_ms() -> TimestampMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Pauses the calling task.
pub async fn sleep(duration: Duration) {
    glommio::timer::sleep(duration).await;
}

/// Gives way to other tasks and to I/O. The executor's own yields keep the task runnable, and beside a runnable task
/// no new I/O is submitted until its preemption timer fires (100 ms).
pub async fn yield_by_timer() {
    glommio::timer::sleep(Duration::from_micros(YIELD_TIMER_US)).await;
}

/// Starts a task of this shard. It runs at once up to its first wait, so no borrow may be held here, and it ends by
/// itself: nothing cancels it.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    drop(glommio::spawn_local(task).detach());
}

/// Starts a task that calls `tick` every `period` until it returns false.
pub fn every(period: Duration, mut tick: impl FnMut() -> bool + 'static) {
    spawn(async move {
        loop {
            sleep(period).await;
            if !tick() {
                return;
            }
        }
    });
}
