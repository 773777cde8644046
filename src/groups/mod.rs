//! Consumer groups of one shard, carried out: requests reach the owner of their group, answers their requests, entries
//! the disk.
//!
//! The core in `oncilla_shards::groups` decides. A request waits here until its answer comes, which for JoinGroup and
//! SyncGroup can be minutes; who goes away meanwhile leaves a number behind that its answer removes. Time stands still
//! for groups until clients can be served, so a slow start costs no member its session (contract G19.8).
//! Limits: one waiting request for each connection. Failure: a slot whose disk fails answers COORDINATOR_NOT_AVAILABLE;
//! when the broker stops, parked requests are answered NOT_COORDINATOR, which sends their clients looking.

mod settings;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Effect, Effects, GroupSettings, Groups, ListFilter, Listing, Now, Reply};
use oncilla_shards::ids::{ShardId, SlotId, TopicId};
use oncilla_shards::image::Image;
use oncilla_shards::limits::SLOTS;
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::{Journal, owner, slot_of};

pub use self::settings::settings;
use crate::ctx::Ctx;
use crate::rt::{OneshotSender, now, now_ms, oneshot, sleep, spawn};

/// A request whose answer has not come.
struct Waiting {
    answer: OneshotSender<Result<Reply, ErrorCode>>,
    /// Whether it may wait for other members, and so longer than the disk.
    parks: bool,
}

/// The groups of one shard and who waits for them.
pub struct Host {
    core: RefCell<Groups>,
    waiting: RefCell<HashMap<u64, Waiting, FixedState>>,
    next_waiter: Cell<u64>,
    serving_since: Cell<Option<Instant>>,
}

impl Host {
    /// A shard whose slots are not loaded yet.
    pub fn new(settings: GroupSettings) -> Self {
        Self {
            core: RefCell::new(Groups::new(settings)),
            waiting: RefCell::default(),
            next_waiter: Cell::new(0),
            serving_since: Cell::new(None),
        }
    }

    /// Requests whose answer has not come.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// The clock of groups, which begins with the first request or with [`Host::serve`].
    fn now(&self) -> Now {
        let elapsed = self.serving_since.get().map_or(Duration::ZERO, |since| now().saturating_duration_since(since));
        Now { wall: now_ms(), mono_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX) }
    }

    fn serve(&self) {
        if self.serving_since.get().is_none() {
            self.serving_since.set(Some(now()));
        }
    }

    /// Takes a place in line, runs `step` of the core and says where the answer comes.
    fn open(&self, answer: OneshotSender<Result<Reply, ErrorCode>>, parks: bool) -> WaiterId {
        let id = self.next_waiter.get();
        self.next_waiter.set(id + 1);
        self.waiting.borrow_mut().insert(id, Waiting { answer, parks });
        WaiterId(id)
    }

    fn settle(&self, waiter: WaiterId, reply: Result<Reply, ErrorCode>) {
        // Parked requests were answered when the broker began to stop.
        let waiting = self.waiting.borrow_mut().remove(&waiter.0);
        if let Some(waiting) = waiting {
            waiting.answer.send(reply);
        }
    }
}

/// Has the owner of a group decide about a request, and waits for its answer.
///
/// # Errors
/// A code of the request as a whole: NOT_COORDINATOR if this node does not answer for the group, or because the broker
/// stops; COORDINATOR_NOT_AVAILABLE if the disk of the group's slot has failed.
pub async fn ask(ctx: &Rc<Ctx>, group: &str, ask: Ask) -> Result<Reply, ErrorCode> {
    let owner = owner(slot_of(group.as_bytes()), ctx.image().shards);
    if owner == ctx.id {
        return ask_here(ctx, group, ask).await;
    }
    if !ctx.forwards() {
        return Err(ErrorCode::NotCoordinator);
    }
    let group = group.to_owned();
    ctx.call(owner, async move |ctx: Rc<Ctx>| ask_here(&ctx, &group, ask).await).await
}

async fn ask_here(ctx: &Rc<Ctx>, group: &str, ask: Ask) -> Result<Reply, ErrorCode> {
    let parks = matches!(ask, Ask::Join(_) | Ask::Sync(_));
    if parks && ctx.stopping.get() {
        return Err(ErrorCode::NotCoordinator);
    }
    let host = &ctx.groups;
    host.serve();
    let (sender, receiver) = oneshot();
    let waiter = host.open(sender, parks);
    let mut effects = Effects::new();
    host.core.borrow_mut().ask(group, ask, waiter, host.now(), &ctx.image(), &mut effects);
    carry_out(ctx, effects);
    receiver.await.unwrap_or(Err(ErrorCode::CoordinatorNotAvailable))
}

/// All groups that the node answers for and the filter lets through: of this shard, or of all shards if they are one
/// node.
pub async fn list(ctx: &Rc<Ctx>, filter: ListFilter) -> Vec<Listing> {
    if !ctx.forwards() {
        return ctx.groups.core.borrow().list(&filter);
    }
    let mut all = Vec::new();
    for shard in 0..ctx.image().shards {
        let filter = filter.clone();
        let part = ctx.call(ShardId(shard), async move |ctx: Rc<Ctx>| ctx.groups.core.borrow().list(&filter)).await;
        all.extend(part);
    }
    all
}

/// Carries out what the core asked for.
fn carry_out(ctx: &Rc<Ctx>, effects: Effects) {
    for effect in effects {
        match effect {
            Effect::Reply(waiter, reply) => ctx.groups.settle(waiter, reply),
            Effect::StartWriter(slot) => writer::start(ctx, slot),
        }
    }
}

/// Takes over the slots of this shard.
pub fn open_all(ctx: &Ctx) -> anyhow::Result<()> {
    let mut core = ctx.groups.core.borrow_mut();
    let shards = ctx.image().shards;
    for slot in (0..SLOTS).map(SlotId).filter(|slot| owner(*slot, shards) == ctx.id) {
        core.insert(slot, Journal::default(), [], ctx.groups.now());
    }
    Ok(())
}

/// Starts the periodic work of a shard; [`tick`] is called by its heartbeat.
pub fn start_housekeeping(ctx: &Rc<Ctx>) {
    let ctx = ctx.clone();
    spawn(async move {
        while !ctx.stopping.get() {
            sleep(Duration::from_millis(ctx.config.offsets_retention_check_interval_ms)).await;
            expire_offsets(&ctx);
        }
    });
}

/// Lets time pass.
pub fn tick(ctx: &Rc<Ctx>) {
    let host = &ctx.groups;
    if host.serving_since.get().is_none() {
        if ctx.metrics.serving.get() == 0 {
            return;
        }
        host.serve();
    }
    let mut effects = Effects::new();
    host.core.borrow_mut().tick(host.now(), &ctx.image(), &mut effects);
    carry_out(ctx, effects);
}

fn expire_offsets(ctx: &Rc<Ctx>) {
    let host = &ctx.groups;
    let mut effects = Effects::new();
    host.core.borrow_mut().expire_offsets(host.now(), &ctx.image(), &mut effects);
    carry_out(ctx, effects);
}

/// Takes over what a newer image says: settings that were changed, and topics that are gone.
pub fn install(ctx: &Rc<Ctx>, before: &Image, image: &Image) {
    let host = &ctx.groups;
    if before.broker != image.broker {
        host.core.borrow_mut().set_settings(settings(&ctx.config, image, ctx.node()));
    }
    let gone: Vec<TopicId> =
        before.topics().map(|topic| topic.id).filter(|id| image.topic_by_id(*id).is_none()).collect();
    if gone.is_empty() {
        return;
    }
    let mut effects = Effects::new();
    host.core.borrow_mut().topics_deleted(&gone, &mut effects);
    carry_out(ctx, effects);
}

/// The broker is going down: whoever waits for other members is sent to look for another coordinator.
pub fn stop(ctx: &Ctx) {
    let parked: Vec<Waiting> =
        ctx.groups.waiting.borrow_mut().extract_if(|_, waiting| waiting.parks).map(|(_, waiting)| waiting).collect();
    for waiting in parked {
        waiting.answer.send(Err(ErrorCode::NotCoordinator));
    }
}
