//! Consumer groups of one shard, carried out: requests reach the owner of their group, answers their requests, entries
//! the disk.
//!
//! The core in `oncilla_shards::groups` decides. A request waits here until its answer comes, which for JoinGroup and
//! SyncGroup can be minutes; who goes away meanwhile leaves a number behind that its answer removes. Time stands still
//! for groups until clients can be served, so a slow start costs no member its session (contract G19.8). Limits: one
//! waiting request for each connection, and [`GROUP_PARKED_BYTES_MAX`] of those that may be parked. Failure: a slot
//! whose disk fails answers COORDINATOR_NOT_AVAILABLE; when the broker stops, parked requests are answered
//! NOT_COORDINATOR, which sends their clients looking.

mod kind;
mod settings;
#[cfg(test)]
mod tests;
mod transactions;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Effect, Effects, GroupSettings, Groups, ListFilter, Listing, Now, Overview, Reply};
use oncilla_shards::ids::{LeaderEpoch, ShardId, SlotId, TopicId};
use oncilla_shards::image::Image;
use oncilla_shards::limits::GROUP_PARKED_BYTES_MAX;
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::{owner, slot_of};

use self::kind::GroupSlots;
pub use self::settings::settings;
pub use self::transactions::{TxnOffsets, commit_in_transaction, settle_transaction};
use crate::config::Config;
use crate::ctx::Ctx;
use crate::disk::DiskError;
use crate::rt::{OneshotSender, now, now_ms, oneshot, sleep, spawn};
use crate::slots;

/// Groups of one request that are asked beside each other.
const GROUPS_ASKED_AT_ONCE: usize = 32;

/// A request whose answer has not come.
struct Waiting {
    answer: OneshotSender<Result<Reply, ErrorCode>>,
    slot: SlotId,
    /// Whether it may wait for other members, and so longer than the disk.
    parks: bool,
}

/// The groups of one shard and who waits for them.
pub struct Host {
    core: RefCell<Groups>,
    files: slots::Files,
    waiting: RefCell<HashMap<u64, Waiting, FixedState>>,
    next_waiter: Cell<u64>,
    serving_since: Cell<Option<Instant>>,
    parked_bytes: Cell<usize>,
}

/// The bytes of a request that may be parked, counted until dropped.
pub struct Parked<'a> {
    total: &'a Cell<usize>,
    bytes: usize,
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.bytes);
    }
}

impl Host {
    /// A shard whose slots are not loaded yet.
    pub fn new(config: &Config, epoch: LeaderEpoch, settings: GroupSettings) -> Self {
        Self {
            core: RefCell::new(Groups::new(settings)),
            files: slots::Files::new(config, kind::DIRECTORY, epoch),
            waiting: RefCell::default(),
            next_waiter: Cell::new(0),
            serving_since: Cell::new(None),
            parked_bytes: Cell::new(0),
        }
    }

    /// Counts the bytes of a request that may be parked; `None` if there are too many.
    pub fn park(&self, bytes: usize) -> Option<Parked<'_>> {
        let total = self.parked_bytes.get() + bytes;
        if total > GROUP_PARKED_BYTES_MAX {
            return None;
        }
        self.parked_bytes.set(total);
        Some(Parked { total: &self.parked_bytes, bytes })
    }

    /// Requests whose answer has not come.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Whether a member may have this session timeout (contract G2.2).
    pub fn allows_session_timeout(&self, timeout_ms: i32) -> bool {
        let core = self.core.borrow();
        (core.settings().session_timeout_ms_min..=core.settings().session_timeout_ms_max).contains(&timeout_ms)
    }

    /// Whether the protocol of KIP-848 is spoken (contract G11.0, G20.2).
    pub fn speaks_consumer_protocol(&self) -> bool {
        self.core.borrow().settings().consumer_protocol
    }

    /// Rebalances since the start.
    pub fn rebalances(&self) -> u64 {
        self.core.borrow().rebalances()
    }

    /// What metrics tell of the groups of this shard: the first `groups_max`, and how many there are.
    pub fn overview(&self, groups_max: usize) -> (Vec<Overview>, usize) {
        self.core.borrow().overview(groups_max)
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

    /// Takes a place in line.
    fn open(&self, waiting: Waiting) -> WaiterId {
        let id = self.next_waiter.get();
        self.next_waiter.set(id + 1);
        self.waiting.borrow_mut().insert(id, waiting);
        WaiterId(id)
    }

    fn settle(&self, waiter: WaiterId, reply: Result<Reply, ErrorCode>) {
        // It may have been answered already: when the broker began to stop, or when the slot was lost.
        let waiting = self.waiting.borrow_mut().remove(&waiter.0);
        if let Some(waiting) = waiting {
            waiting.answer.send(reply);
        }
    }

    /// Answers all that are like this, whatever the core says of them later.
    fn answer_all(&self, is_meant: impl Fn(&Waiting) -> bool, code: ErrorCode) {
        let meant: Vec<Waiting> =
            self.waiting.borrow_mut().extract_if(|_, waiting| is_meant(waiting)).map(|(_, waiting)| waiting).collect();
        for waiting in meant {
            waiting.answer.send(Err(code));
        }
    }

    /// A slot is offline: its members will not come together any more.
    fn lost(&self, slot: SlotId) {
        self.answer_all(|waiting| waiting.slot == slot, ErrorCode::CoordinatorNotAvailable);
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

/// Asks several groups, some beside each other; answers in the order asked.
pub async fn ask_all(ctx: &Rc<Ctx>, groups: &[impl AsRef<str>], what: Ask) -> Vec<Result<Reply, ErrorCode>> {
    let mut replies = Vec::with_capacity(groups.len());
    for part in groups.chunks(GROUPS_ASKED_AT_ONCE) {
        let mut open: Vec<_> = part.iter().map(|group| Box::pin(ask(ctx, group.as_ref(), what.clone()))).collect();
        let mut answered = vec![None; open.len()];
        poll_fn(|context| {
            for (future, reply) in open.iter_mut().zip(&mut answered).filter(|(_, reply)| reply.is_none()) {
                if let Poll::Ready(ready) = future.as_mut().poll(context) {
                    *reply = Some(ready);
                }
            }
            if answered.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        replies.extend(answered.into_iter().map(|reply| reply.expect("all are answered")));
    }
    replies
}

async fn ask_here(ctx: &Rc<Ctx>, group: &str, ask: Ask) -> Result<Reply, ErrorCode> {
    ctx.groups.serve();
    submit(ctx, group, ask).await
}

/// A request that does not make the clock begin.
async fn submit(ctx: &Rc<Ctx>, group: &str, ask: Ask) -> Result<Reply, ErrorCode> {
    let parks = matches!(ask, Ask::Join(_) | Ask::Sync(_));
    if parks && ctx.stopping.get() {
        return Err(ErrorCode::NotCoordinator);
    }
    let host = &ctx.groups;
    let (sender, receiver) = oneshot();
    let waiter = host.open(Waiting { answer: sender, slot: slot_of(group.as_bytes()), parks });
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
            Effect::StartWriter(slot) => slots::start_writer(ctx, &GroupSlots, slot),
        }
    }
}

/// Restores the slots of this shard from their files; blocks. Before anything is served.
///
/// # Errors
/// If the files of a slot cannot be read or are not all there.
pub fn load_all(ctx: &Ctx) -> Result<(), DiskError> {
    slots::load_all(ctx, &GroupSlots)
}

/// Makes everything durable and closes the files; all requests are answered.
pub async fn close_all(ctx: &Rc<Ctx>) {
    slots::close_all(ctx, &GroupSlots).await;
}

/// Starts the periodic work of a shard; [`tick`] is called by its heartbeat.
pub fn start_housekeeping(ctx: &Rc<Ctx>) {
    // The last run may have ended between the deletion of a topic and that of its offsets.
    let mut effects = Effects::new();
    ctx.groups.core.borrow_mut().keep_topics(&ctx.image(), &mut effects);
    carry_out(ctx, effects);
    let ctx = ctx.clone();
    spawn(async move {
        while !ctx.stopping.get() {
            sleep(Duration::from_millis(ctx.config.offsets_retention_check_interval_ms)).await;
            expire_offsets(&ctx);
        }
    });
}

/// Lets time pass, until the broker stops: what is decided later could not be told to anybody.
pub fn tick(ctx: &Rc<Ctx>) {
    let host = &ctx.groups;
    if ctx.stopping.get() {
        return;
    }
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
    if before.broker != image.broker || before.features != image.features {
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
    ctx.groups.answer_all(|waiting| waiting.parks, ErrorCode::NotCoordinator);
}
