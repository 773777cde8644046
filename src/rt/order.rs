//! An order from the control thread to the tasks of every shard: to begin, to drain, to leave.
//!
//! Any thread may give it, once. Shards look at it every few milliseconds: a flag costs nothing and cannot block.

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
pub struct Order(Arc<AtomicBool>);

impl Order {
    /// No order yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the order; again has no effect.
    pub fn give(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was given.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// A view of the flag that tasks of the calling shard can wait on.
    #[must_use]
    pub fn watch(&self) -> Rc<OrderWatch> {
        let watch = Rc::new(OrderWatch { flag: self.clone(), notify: Notify::new() });
        let ticked = Rc::downgrade(&watch);
        every(Duration::from_millis(WATCH_MS), move || {
            let Some(watch) = ticked.upgrade() else { return false };
            let given = watch.is_given();
            if given {
                watch.notify.notify();
            }
            !given
        });
        watch
    }
}

/// The flag within one shard.
#[derive(Debug)]
pub struct OrderWatch {
    flag: Order,
    notify: Notify,
}

impl OrderWatch {
    /// Whether the order was given.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.flag.is_given()
    }

    /// Ready when the order is given.
    pub async fn given(&self) {
        while !self.is_given() {
            self.notify.notified().await;
        }
    }
}
