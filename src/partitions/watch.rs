//! Readers that wait for something new in partitions, of this shard or of another one.
//!
//! A watch is a number that partitions hold: each wakes it at most once, and its owner takes it off again.
//! Limits: one for each parked Fetch request, which the connections bound.

use std::cell::RefCell;
use std::collections::BTreeMap;
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
pub struct Watches {
    slots: RefCell<Slab<Watcher>>,
    /// Slot of each watch that another shard has here.
    there: RefCell<BTreeMap<(ShardId, u64), usize>>,
}

impl Watches {
    /// A watch that wakes `notify`.
    pub fn open(&self, notify: Rc<Notify>) -> WatchId {
        WatchId(self.slots.borrow_mut().insert(Watcher::Here(notify)) as u64)
    }

    /// Wakes whoever waits on the watch, if somebody still does.
    pub fn wake(&self, ctx: &Rc<Ctx>, id: WatchId) {
        let watcher = self.slots.borrow().get(id.0 as usize).cloned();
        match watcher {
            Some(Watcher::Here(notify)) => notify.notify(),
            Some(Watcher::There(shard, token)) => {
                ctx.post(shard, move |ctx| async move { ctx.watches.wake(&ctx, WatchId(token)) });
            }
            None => {}
        }
    }

    /// Wakes every request of this shard that waits.
    pub fn wake_all(&self) {
        for (_, watcher) in self.slots.borrow().iter() {
            if let Watcher::Here(notify) = watcher {
                notify.notify();
            }
        }
    }

    /// The watch here that stands for watch `id` of shard `origin`; the same one as long as it is not closed.
    fn open_there(&self, origin: ShardId, id: WatchId) -> WatchId {
        let mut there = self.there.borrow_mut();
        let slot = there.entry((origin, id.0));
        let slot = slot.or_insert_with(|| self.slots.borrow_mut().insert(Watcher::There(origin, id.0)));
        WatchId(*slot as u64)
    }

    fn close_there(&self, origin: ShardId, id: WatchId) -> Option<WatchId> {
        let slot = self.there.borrow_mut().remove(&(origin, id.0))?;
        self.slots.borrow_mut().remove(slot);
        Some(WatchId(slot as u64))
    }

    /// Ends a watch of a request of this shard.
    pub fn close(&self, id: WatchId) {
        self.slots.borrow_mut().remove(id.0 as usize);
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
        let there = ctx.watches.open_there(origin, id);
        register(&ctx, &keys, there);
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
        if let Some(there) = ctx.watches.close_there(origin, id) {
            unregister(&ctx, &keys, there);
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
