//! The transaction coordinator of one shard, carried out: requests reach the owner of their transactional id, answers
//! their requests, entries the disk, markers the partitions, and fences every shard.
//!
//! The core in `oncilla_shards::txn` decides; what waits for what is told there. A request waits here until its answer
//! comes; who goes away meanwhile leaves a number behind that its answer removes. [`ask`] is for clients: where cores
//! are nodes it answers NOT_COORDINATOR for ids of other cores. [`ask_owner`] is for the broker itself, which finds the
//! owner on whatever core it is.
//! Limits: those of the core; one waiting request for each connection. Failure: a slot whose disk fails answers
//! COORDINATOR_NOT_AVAILABLE until the next start; what was sent to a shard that is closing is sent again by the start.

mod add;
mod fences;
mod kind;
mod markers;
mod offsets;
mod producer_ids;
mod reconcile;
mod settings;
#[cfg(test)]
mod shards_tests;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{LeaderEpoch, ProducerEpoch, ProducerId, ShardId};
use oncilla_shards::image::Image;
use oncilla_shards::limits::TXN_PARK_MS;
use oncilla_shards::partition::WaiterId;
use oncilla_shards::slot::{owner, slot_of};
use oncilla_shards::txn::{
    Adopt, Adopted, Ask, Effect, Effects, Fence, ListFilter, Listing, Now, OpenTxn, Reply, Request, Transactions,
    TxnSettings,
};

pub use self::add::{Begun, Early, begin_add};
use self::fences::FenceTable;
pub use self::kind::DIRECTORY;
use self::kind::TxnSlots;
pub use self::offsets::CommitsInFlight;
pub use self::producer_ids::next as next_producer_id;
pub use self::reconcile::{reconcile, start_looking};
pub use self::settings::settings;
use crate::config::Config;
use crate::ctx::Ctx;
use crate::disk::DiskError;
use crate::rt::{OneshotReceiver, OneshotSender, join_all, now, now_ms, oneshot, sleep, spawn};
use crate::slots;

/// Pause before a partition asks again about an open transaction whose id is busy.
const ADOPT_PAUSE_MS: u64 = 20;

/// Time between two looks for the oldest open transaction, which goes through all of them.
const LOOK_PERIOD_MS: u64 = 1_000;

type Answer = Result<Reply, ErrorCode>;

/// A request whose answer has not come.
struct Waiting {
    answer: OneshotSender<Answer>,
    granted: Option<OneshotSender<()>>,
}

/// The transactional ids of one shard, who waits for them, and the fences of its partitions.
pub struct Host {
    core: RefCell<Transactions>,
    files: slots::Files,
    waiting: RefCell<HashMap<u64, Waiting, FixedState>>,
    next_waiter: Cell<u64>,
    /// Answers to adds whose write has begun, until they are asked for.
    early: RefCell<HashMap<u64, OneshotReceiver<Answer>, FixedState>>,
    fences: FenceTable,
    /// Offset commits that ask their coordinator.
    pub commits: CommitsInFlight,
    /// What the start owes: there is no executor when slots are loaded.
    owed: RefCell<Effects>,
    since: Instant,
    is_closed: Cell<bool>,
    /// When the oldest transaction was looked for.
    looked_ms: Cell<u64>,
}

impl Host {
    /// A shard whose slots are not loaded yet. Markers carry the epoch of the start.
    pub fn new(config: &Config, epoch: LeaderEpoch, settings: TxnSettings, image: Arc<Image>) -> Self {
        Self {
            core: RefCell::new(Transactions::new(settings, epoch.0, image)),
            files: slots::Files::new(config, kind::DIRECTORY, epoch),
            waiting: RefCell::default(),
            next_waiter: Cell::new(0),
            early: RefCell::default(),
            fences: FenceTable::new(config),
            commits: CommitsInFlight::default(),
            owed: RefCell::default(),
            since: now(),
            is_closed: Cell::new(false),
            looked_ms: Cell::new(0),
        }
    }

    /// Whether a batch may be written as far as fences are concerned: every append of a producer with an id asks.
    ///
    /// # Errors
    /// INVALID_PRODUCER_EPOCH if a fence is up against it.
    pub fn check_fence(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> Result<(), ErrorCode> {
        self.fences.check(producer_id, epoch)
    }

    /// Requests whose answer has not come.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Which open transactions this shard's coordinator knows, if it can tell.
    fn knows(&self, asked: &[OpenTxn]) -> Option<Vec<bool>> {
        if self.is_closed.get() { None } else { self.core.borrow().knows(asked) }
    }

    /// Pause between two looks: no transaction of a client may be open for longer than `transaction.max.timeout.ms`.
    fn look_interval_ms(&self) -> u64 {
        let core = self.core.borrow();
        let longest_ms = u64::try_from(core.settings().timeout_ms_max).unwrap_or(0);
        core.settings().abort_interval_ms.max(longest_ms)
    }

    fn now(&self) -> Now {
        Now { wall: now_ms(), mono_ms: self.mono_ms(now()) }
    }

    fn mono_ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes a place in line.
    fn open(&self, waiting: Waiting) -> WaiterId {
        let id = self.next_waiter.get();
        self.next_waiter.set(id + 1);
        self.waiting.borrow_mut().insert(id, waiting);
        WaiterId(id)
    }

    fn settle(&self, waiter: WaiterId, answer: Answer) {
        let waiting = self.waiting.borrow_mut().remove(&waiter.0);
        if let Some(waiting) = waiting {
            waiting.answer.send(answer);
        }
    }

    fn grant(&self, waiter: WaiterId) {
        let granted = self.waiting.borrow_mut().get_mut(&waiter.0).and_then(|waiting| waiting.granted.take());
        if let Some(granted) = granted {
            granted.send(());
        }
    }
}

/// Until when a request of a client waits for a transaction that is completing.
#[must_use]
pub fn deadline() -> Instant {
    now() + Duration::from_millis(TXN_PARK_MS)
}

fn owner_of(ctx: &Ctx, id: &str) -> ShardId {
    owner(slot_of(id.as_bytes()), ctx.image().shards)
}

/// Has the owner of a transactional id decide about a client's request, and waits for its answer.
///
/// # Errors
/// The code of the answer; NOT_COORDINATOR if this node does not answer for the id.
pub async fn ask(ctx: &Rc<Ctx>, id: &str, request: Request, deadline: Instant) -> Answer {
    if ctx.forwards() {
        return ask_owner(ctx, id, request, deadline).await;
    }
    // The core refuses ids of other cores, but first what no coordinator would take (contract B1).
    ask_here(ctx, id, request, deadline).await
}

/// The same on behalf of the broker: the owner is reached wherever it is.
///
/// # Errors
/// The code of the answer.
pub async fn ask_owner(ctx: &Rc<Ctx>, id: &str, request: Request, deadline: Instant) -> Answer {
    let id = id.to_owned();
    ctx.call(owner_of(ctx, &id), async move |ctx: Rc<Ctx>| ask_here(&ctx, &id, request, deadline).await).await
}

async fn ask_here(ctx: &Rc<Ctx>, id: &str, request: Request, deadline: Instant) -> Answer {
    let started = now();
    let is_end = matches!(request, Request::End(_));
    let (sender, receiver) = oneshot();
    submit(ctx, id, request, deadline, Waiting { answer: sender, granted: None }).await;
    let answer = receiver.await.unwrap_or(Err(ErrorCode::CoordinatorNotAvailable));
    if is_end && answer.is_ok() {
        ctx.metrics.txn_prepare_us.observe(micros_since(started));
    }
    if answer == Err(ErrorCode::ProducerFenced) {
        ctx.metrics.txn_fenced_requests.add(1);
    }
    answer
}

/// Hands a request to the core of this shard.
async fn submit(ctx: &Rc<Ctx>, id: &str, request: Request, deadline: Instant, waiting: Waiting) {
    if matches!(request, Request::Init(_) | Request::End(_)) && !ctx.txn.core.borrow().has_producer_ids() {
        producer_ids::stock(ctx).await;
    }
    let host = &ctx.txn;
    pay(ctx);
    let ask = Ask { request, until_ms: host.mono_ms(deadline) };
    let waiter = host.open(waiting);
    step(ctx, |core, now, effects| core.ask(id, ask, waiter, now, effects));
}

fn micros_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// One step of the core, and what follows from it. After the end nothing is decided any more.
fn step(ctx: &Rc<Ctx>, step: impl FnOnce(&mut Transactions, Now, &mut Effects)) {
    let host = &ctx.txn;
    if host.is_closed.get() {
        return;
    }
    let mut effects = Effects::new();
    step(&mut host.core.borrow_mut(), host.now(), &mut effects);
    carry_out(ctx, effects);
}

/// Carries out what the core asked for.
fn carry_out(ctx: &Rc<Ctx>, effects: Effects) {
    for effect in effects {
        match effect {
            Effect::Reply(waiter, answer) => ctx.txn.settle(waiter, answer),
            Effect::Granted(waiter) => ctx.txn.grant(waiter),
            Effect::StartWriter(slot) => slots::start_writer(ctx, &TxnSlots, slot),
            Effect::SendMarkers(batch) => markers::send(ctx, batch),
            Effect::QueueMarkers(file) => unreachable!("all partitions are on this broker: {file:?}"),
            Effect::OffsetsHook(hook) => markers::send_hook(ctx, hook),
            Effect::Fence { slot, id, fence } => {
                let ctx = ctx.clone();
                spawn(async move {
                    put_up(&ctx, fence).await;
                    step(&ctx, |core, now, effects| core.fenced(slot, id, now, effects));
                });
            }
            Effect::WantProducerIds => producer_ids::start_stocking(ctx),
        }
    }
}

/// Puts a fence up on every shard and in the fence log.
async fn put_up(ctx: &Rc<Ctx>, fence: Fence) {
    ctx.metrics.txn_fences.add(1);
    let set = |shard| ctx.call(ShardId(shard), async move |ctx: Rc<Ctx>| fences::set(&ctx, fence).await);
    join_all((0..ctx.image().shards).map(set)).await;
}

/// All ids that the node answers for and the filter lets through: of this shard, or of all shards if they are one node.
pub async fn list(
    ctx: &Rc<Ctx>,
    filter: ListFilter,
    wanted: impl Fn(&str) -> bool + Clone + Send + 'static,
) -> Vec<Listing> {
    let shards = if ctx.forwards() { 0..ctx.image().shards } else { ctx.id.0..ctx.id.0 + 1 };
    let mut all = Vec::new();
    for shard in shards {
        let (filter, wanted) = (filter.clone(), wanted.clone());
        let part = ctx.call(ShardId(shard), async move |ctx: Rc<Ctx>| {
            ctx.txn.core.borrow().list(&filter, ctx.txn.now(), &wanted)
        });
        all.extend(part.await);
    }
    all
}

/// Asks about a transaction that a partition found open when it was loaded, until there is an answer.
pub async fn adopt(ctx: &Rc<Ctx>, found: Adopt) -> Adopted {
    let producer_id = found.producer.producer_id;
    let owner_at =
        |shard| ctx.call(ShardId(shard), async move |ctx: Rc<Ctx>| ctx.txn.core.borrow().owner_of(producer_id));
    let owners = join_all((0..ctx.image().shards).map(owner_at)).await;
    let Some(id) = owners.into_iter().flatten().next() else { return Adopted::Abort(found.producer.epoch) };
    loop {
        match ask_owner(ctx, &id, Request::Adopt(found.clone()), deadline()).await {
            Ok(Reply::Adopted(adopted)) => return adopted,
            Ok(other) => unreachable!("the coordinator answered another request: {other:?}"),
            Err(_) => sleep(Duration::from_millis(ADOPT_PAUSE_MS)).await,
        }
    }
}

/// Restores the slots of this shard and the fences from their files; blocks. Before anything is served, and behind the
/// partitions and groups that markers may be sent to.
///
/// # Errors
/// If the files of a slot, or the fence log, cannot be read or are not all there.
pub fn load_all(ctx: &Ctx) -> Result<(), DiskError> {
    ctx.txn.fences.load_blocking(ctx)?;
    slots::load_all(ctx, &TxnSlots)
}

/// Makes everything durable and closes the files; all requests are answered.
pub async fn close_all(ctx: &Rc<Ctx>) {
    ctx.txn.is_closed.set(true);
    slots::close_all(ctx, &TxnSlots).await;
}

/// Carries out what the start owes: markers of what is decided, and producer ids at hand.
pub fn start_housekeeping(ctx: &Rc<Ctx>) {
    pay(ctx);
}

fn pay(ctx: &Rc<Ctx>) {
    let owed = std::mem::take(&mut *ctx.txn.owed.borrow_mut());
    carry_out(ctx, owed);
}

/// Lets time pass once clients can be served.
pub fn tick(ctx: &Rc<Ctx>) {
    if ctx.metrics.serving.get() == 0 {
        return;
    }
    step(ctx, |core, now, effects| core.tick(now, effects));
    let core = ctx.txn.core.borrow();
    let (counts, metrics) = (core.counts(), &ctx.metrics);
    metrics.txn_ids.set(counts.ids as u64);
    metrics.txn_open.set(counts.open as u64);
    metrics.txn_completing.set(counts.completing as u64);
    metrics.txn_parked.set(counts.parked as u64);
    metrics.txn_timed_out.store(counts.timed_out);
    metrics.txn_taken_over.store(counts.taken_over);
    let now_ms = ctx.txn.now().mono_ms;
    if ctx.txn.looked_ms.get() + LOOK_PERIOD_MS <= now_ms {
        ctx.txn.looked_ms.set(now_ms);
        let age_ms = core.oldest_open().map_or(0, |start| ctx.txn.now().wall.0.saturating_sub(start.0));
        metrics.txn_oldest_ms.set(u64::try_from(age_ms).unwrap_or(0));
    }
}

/// Takes over what a newer image says: where partitions are, and settings that were changed.
pub fn install(ctx: &Rc<Ctx>, before: &Image, image: &Arc<Image>) {
    if before.features != image.features {
        ctx.txn.core.borrow_mut().set_settings(settings(&ctx.config, image));
    }
    step(ctx, |core, now, effects| core.set_places(image.clone(), now, effects));
}
