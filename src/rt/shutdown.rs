//! The order to stop, from the control thread to the tasks of every shard.
//!
//! Any thread may give it, once. Shards see it at their heartbeat's pace: a flag costs nothing and cannot block.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::clock::every;
use super::local::Notify;

/// Period at which a shard looks at the flag.
const WATCH_MS: u64 = 5;

/// The flag, shared by all threads.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(Arc<AtomicBool>);

impl Shutdown {
    /// No order yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the order; again has no effect.
    pub fn order(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was given.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// A view of the flag that tasks of the calling shard can wait on.
    #[must_use]
    pub fn watch(&self) -> Rc<ShutdownWatch> {
        let watch = Rc::new(ShutdownWatch { flag: self.clone(), notify: Notify::new() });
        let ticked = Rc::downgrade(&watch);
        every(Duration::from_millis(WATCH_MS), move || {
            let Some(watch) = ticked.upgrade() else { return false };
            let ordered = watch.is_ordered();
            if ordered {
                watch.notify.notify();
            }
            !ordered
        });
        watch
    }
}

/// The flag within one shard.
#[derive(Debug)]
pub struct ShutdownWatch {
    flag: Shutdown,
    notify: Notify,
}

impl ShutdownWatch {
    /// Whether the order was given.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.flag.is_ordered()
    }

    /// Ready when the order is given.
    pub async fn ordered(&self) {
        while !self.is_ordered() {
            self.notify.notified().await;
        }
    }
}
