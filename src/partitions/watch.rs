//! Readers that wait for something new in partitions, of this shard or of another one.
//!
//! A watch is a number that partitions hold; it is woken at most once by each partition and forgotten by its owner.
//! Limits: one for each parked Fetch request, which the connections bound.

use std::cell::RefCell;
use std::rc::Rc;

use oncilla_shards::ids::{PartitionKey, ShardId};
use oncilla_shards::partition::WatchId;
use slab::Slab;

use crate::ctx::Ctx;
use crate::rt::Notify;

/// Who is woken.
#[derive(Clone, Debug)]
enum Watcher {
    /// A request of this shard.
    Here(Rc<Notify>),
    /// A watch of another shard.
    There(ShardId, u64),
}

/// The watches of one shard.
#[derive(Debug, Default)]
pub struct Watches(RefCell<Slab<Watcher>>);

impl Watches {
    /// A watch that wakes `notify`.
    pub fn open(&self, notify: Rc<Notify>) -> WatchId {
        WatchId(self.0.borrow_mut().insert(Watcher::Here(notify)) as u64)
    }

    /// Wakes whoever waits on the watch, if somebody still does.
    pub fn wake(&self, ctx: &Rc<Ctx>, id: WatchId) {
        let watcher = self.0.borrow().get(id.0 as usize).cloned();
        match watcher {
            Some(Watcher::Here(notify)) => notify.notify(),
            Some(Watcher::There(shard, token)) => {
                self.0.borrow_mut().remove(id.0 as usize);
                ctx.post(shard, move |ctx| async move { ctx.watches.wake(&ctx, WatchId(token)) });
            }
            None => {}
        }
    }

    /// Wakes every request of this shard that waits.
    pub fn wake_all(&self) {
        for (_, watcher) in self.0.borrow().iter() {
            if let Watcher::Here(notify) = watcher {
                notify.notify();
            }
        }
    }

    /// Ends a watch of a request of this shard.
    pub fn close(&self, id: WatchId) {
        self.0.borrow_mut().remove(id.0 as usize);
    }
}

/// Watches partitions of shard `owner` for watch `id` of this shard.
pub fn watch(ctx: &Rc<Ctx>, owner: ShardId, keys: Vec<PartitionKey>, id: WatchId) {
    if owner == ctx.id {
        register(ctx, &keys, id);
        return;
    }
    let origin = ctx.id;
    ctx.post(owner, move |ctx| async move {
        let there = ctx.watches.0.borrow_mut().insert(Watcher::There(origin, id.0));
        register(&ctx, &keys, WatchId(there as u64));
    });
}

fn register(ctx: &Ctx, keys: &[PartitionKey], id: WatchId) {
    let mut shard = ctx.shard.borrow_mut();
    for key in keys {
        if let Some(partition) = shard.partition_mut(key) {
            partition.watch(id);
        }
    }
}

/// Takes watch `id` of this shard off partitions of shard `owner`.
pub fn unwatch(ctx: &Rc<Ctx>, owner: ShardId, keys: Vec<PartitionKey>, id: WatchId) {
    if owner == ctx.id {
        unregister(ctx, &keys, id);
        return;
    }
    let origin = ctx.id;
    ctx.post(owner, move |ctx| async move {
        let found = ctx.watches.0.borrow().iter().find_map(|(there, watcher)| {
            matches!(watcher, Watcher::There(shard, token) if *shard == origin && *token == id.0).then_some(there)
        });
        if let Some(there) = found {
            ctx.watches.0.borrow_mut().remove(there);
            unregister(&ctx, &keys, WatchId(there as u64));
        }
    });
}

fn unregister(ctx: &Ctx, keys: &[PartitionKey], id: WatchId) {
    let mut shard = ctx.shard.borrow_mut();
    for key in keys {
        if let Some(partition) = shard.partition_mut(key) {
            partition.unwatch(id);
        }
    }
}
