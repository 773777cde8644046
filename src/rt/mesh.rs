//! Calls between shards: a job is sent to a shard, runs there on that shard's context, and its result comes back.
//!
//! One lane for each ordered pair of shards. Jobs of one sender start in the order they were sent, and each runs to its
//! first wait before the next one starts. A call never hangs on a shard that has ended: it fails.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::rc::Rc;

use oncilla_shards::ids::ShardId;
use oncilla_shards::limits;
use slab::Slab;

use super::clock::{spawn, yield_by_timer};
use super::cores::at_end;
use super::lane::{LaneError, LaneReceiver, LaneReceiverSeed, LaneSeed, LaneSender, lane};
use super::local::{OneshotSender, oneshot};

type Reply = Box<dyn Any + Send>;
type Job<C> = Box<dyn FnOnce(Rc<C>, Answering<C>) + Send>;

enum Frame<C: 'static> {
    Job { job: Job<C>, ticket: u64 },
    Reply { ticket: u64, value: Reply },
}

/// Why a job did not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// The shard has ended, or ended while the job was there.
    #[error("shard {0} has ended")]
    Ended(ShardId),
    /// Too many frames wait for that shard; only posts are refused for it, calls wait.
    #[error("the lane to shard {0} is full")]
    Full(ShardId),
}

/// Ticket of a job nobody waits for.
const NO_REPLY: u64 = u64::MAX;

/// One shard's place in the mesh before its thread runs.
pub struct MeshSeat<C: 'static> {
    id: ShardId,
    senders: Vec<Option<LaneSeed<Frame<C>>>>,
    receivers: Vec<Option<LaneReceiverSeed<Frame<C>>>>,
}

impl<C> fmt::Debug for MeshSeat<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeshSeat").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The seats of `shards` shards that all reach each other.
#[must_use]
pub fn mesh_seats<C: 'static>(shards: u16) -> Vec<MeshSeat<C>> {
    mesh_seats_with(shards, limits::LANE_FRAMES_MAX)
}

pub(crate) fn mesh_seats_with<C: 'static>(shards: u16, lane_frames: usize) -> Vec<MeshSeat<C>> {
    let n = usize::from(shards);
    let mut seats: Vec<MeshSeat<C>> = (0..shards)
        .map(|id| MeshSeat {
            id: ShardId(id),
            senders: (0..n).map(|_| None).collect(),
            receivers: (0..n).map(|_| None).collect(),
        })
        .collect();
    for from in 0..n {
        for to in (0..n).filter(|&to| to != from) {
            let (sender, receiver) = lane(lane_frames);
            seats[from].senders[to] = Some(sender);
            seats[to].receivers[from] = Some(receiver);
        }
    }
    seats
}

impl<C: 'static> MeshSeat<C> {
    /// This seat's shard.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Connects all lanes; ready when every other shard has come this far or has gone.
    pub async fn connect(self) -> Rc<Mesh<C>> {
        // All ends at once: connected one after the other, two shards would wait for each other.
        let senders: Vec<_> = self.senders.into_iter().map(|seed| seed.map(|s| started(s.connect()))).collect();
        let receivers: Vec<_> = self.receivers.into_iter().map(|seed| seed.map(|r| started(r.connect()))).collect();
        let mut lanes = Vec::with_capacity(senders.len());
        for sender in senders {
            lanes.push(match sender {
                Some(connecting) => Some(connecting.await.expect("connecting ends with a lane")),
                None => None,
            });
        }
        let mut incoming = Vec::with_capacity(receivers.len());
        for (from, receiver) in receivers.into_iter().enumerate() {
            if let Some(connecting) = receiver {
                let from = ShardId(u16::try_from(from).expect("shards are counted in 16 bits"));
                incoming.push((from, connecting.await.expect("connecting ends with a lane")));
            }
        }
        let mesh = Rc::new(Mesh {
            id: self.id,
            lanes,
            incoming: RefCell::new(incoming),
            calls: RefCell::new(Slab::new()),
            issued: Cell::new(0),
        });
        let ending = mesh.clone();
        at_end(move || ending.close());
        mesh
    }
}

fn started<T: 'static>(connecting: impl Future<Output = T> + 'static) -> super::local::OneshotReceiver<T> {
    let (sender, receiver) = oneshot();
    spawn(async move { sender.send(connecting.await) });
    receiver
}

struct Call {
    to: ShardId,
    serial: u32,
    reply: OneshotSender<Reply>,
}

/// The way from one shard to all others.
pub struct Mesh<C: 'static> {
    id: ShardId,
    lanes: Vec<Option<LaneSender<Frame<C>>>>,
    incoming: RefCell<Vec<(ShardId, LaneReceiver<Frame<C>>)>>,
    calls: RefCell<Slab<Call>>,
    issued: Cell<u32>,
}

impl<C> fmt::Debug for Mesh<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mesh").field("id", &self.id).field("calls", &self.calls.borrow().len()).finish_non_exhaustive()
    }
}

/// Gives a call up when its future is dropped, so that no ticket is left behind.
struct Waiting<'a, C: 'static> {
    mesh: &'a Mesh<C>,
    ticket: u64,
}

impl<C> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        drop(self.mesh.take_call(self.ticket));
    }
}

/// Where a job's result goes.
struct Answering<C: 'static> {
    mesh: Rc<Mesh<C>>,
    to: ShardId,
    ticket: u64,
}

impl<C> Answering<C> {
    fn send(self, value: Reply) {
        if self.ticket != NO_REPLY {
            // A caller that has ended needs no answer.
            let _ = self.mesh.lane(self.to).send_always(Frame::Reply { ticket: self.ticket, value });
        }
    }
}

impl<C: 'static> Mesh<C> {
    /// This shard.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// How many shards there are, this one included.
    #[must_use]
    pub fn shards(&self) -> u16 {
        u16::try_from(self.lanes.len()).expect("shards are counted in 16 bits")
    }

    /// Starts working off what other shards send, on `ctx`. Frames that came before wait in their lanes.
    pub fn serve(self: &Rc<Self>, ctx: &Rc<C>) {
        for (from, receiver) in self.incoming.take() {
            spawn(pump(self.clone(), ctx.clone(), from, receiver));
        }
    }

    /// Runs `job` on shard `to` and brings back what it returns; on this shard it runs directly.
    pub async fn call<T, F, Fut>(&self, ctx: &Rc<C>, to: ShardId, job: F) -> Result<T, MeshError>
    where
        T: Send + 'static,
        F: FnOnce(Rc<C>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        if to == self.id {
            return Ok(job(ctx.clone()).await);
        }
        let mut job: Job<C> = Box::new(move |ctx, answering| {
            spawn(async move {
                let value = job(ctx).await;
                answering.send(Box::new(value));
            });
        });
        let lane = self.lane(to);
        let (sender, receiver) = oneshot();
        let ticket = self.issue(to, sender);
        let _waiting = Waiting { mesh: self, ticket };
        loop {
            match lane.send(Frame::Job { job, ticket }) {
                Ok(()) => break,
                Err(LaneError::Full(Frame::Job { job: refused, .. })) => {
                    job = refused;
                    lane.room().await;
                }
                Err(_) => return Err(MeshError::Ended(to)),
            }
        }
        let value = receiver.await.ok_or(MeshError::Ended(to))?;
        Ok(*value.downcast::<T>().expect("a ticket is answered by its own job"))
    }

    /// Runs `job` on shard `to` without waiting for it.
    pub fn post<F, Fut>(&self, ctx: &Rc<C>, to: ShardId, job: F) -> Result<(), MeshError>
    where
        F: FnOnce(Rc<C>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        if to == self.id {
            spawn(job(ctx.clone()));
            return Ok(());
        }
        let job: Job<C> = Box::new(move |ctx, _| spawn(job(ctx)));
        self.lane(to).send(Frame::Job { job, ticket: NO_REPLY }).map_err(|refused| match refused {
            LaneError::Full(_) => MeshError::Full(to),
            LaneError::Ended => MeshError::Ended(to),
        })
    }

    /// Closes the lanes of this shard: other shards' calls to it fail from now on, and its own do.
    pub fn close(&self) {
        for lane in self.lanes.iter().flatten() {
            lane.close();
        }
        drop(std::mem::take(&mut *self.calls.borrow_mut()));
    }

    /// Frames sent to other shards.
    #[must_use]
    pub fn frames_sent(&self) -> u64 {
        self.lanes.iter().flatten().map(|lane| lane.counters().sent.get()).sum()
    }

    /// Most frames that ever waited for room in one lane.
    #[must_use]
    pub fn overflow_high(&self) -> u64 {
        self.lanes.iter().flatten().map(|lane| lane.counters().overflow_high.get()).max().unwrap_or(0)
    }

    fn lane(&self, to: ShardId) -> &LaneSender<Frame<C>> {
        self.lanes[usize::from(to.0)].as_ref().expect("a shard has no lane to itself")
    }

    fn issue(&self, to: ShardId, reply: OneshotSender<Reply>) -> u64 {
        let serial = self.issued.get();
        self.issued.set(serial.wrapping_add(1));
        let key = self.calls.borrow_mut().insert(Call { to, serial, reply });
        // Slots are used again; the serial tells a late reply from the one that is waited for now.
        u64::from(serial) << 32 | u64::try_from(key & 0xffff_ffff).expect("32 bits")
    }

    fn take_call(&self, ticket: u64) -> Option<Call> {
        let key = usize::try_from(ticket & 0xffff_ffff).expect("32 bits");
        let mut calls = self.calls.borrow_mut();
        let serial = calls.get(key)?.serial;
        (u64::from(serial) == ticket >> 32).then(|| calls.remove(key))
    }

    fn fail_calls_to(&self, to: ShardId) {
        let mut failed = Vec::new();
        let mut calls = self.calls.borrow_mut();
        let keys: Vec<usize> = calls.iter().filter(|(_, call)| call.to == to).map(|(key, _)| key).collect();
        failed.extend(keys.into_iter().map(|key| calls.remove(key)));
        drop(calls);
        drop(failed);
    }
}

/// Works off the lane from one shard until that shard ends.
async fn pump<C: 'static>(mesh: Rc<Mesh<C>>, ctx: Rc<C>, from: ShardId, lane: LaneReceiver<Frame<C>>) {
    let mut turn = 0;
    while let Some(frame) = lane.receive().await {
        match frame {
            Frame::Job { job, ticket } => job(ctx.clone(), Answering { mesh: mesh.clone(), to: from, ticket }),
            Frame::Reply { ticket, value } => {
                if let Some(call) = mesh.take_call(ticket) {
                    call.reply.send(value);
                }
            }
        }
        turn += 1;
        if turn == limits::LANE_TURN_FRAMES_MAX {
            turn = 0;
            yield_by_timer().await;
        }
    }
    // The lane back may look open: the receiver of a shard that has ended is not always dropped.
    mesh.lane(from).close();
    mesh.fail_calls_to(from);
}

#[cfg(test)]
#[path = "mesh_tests.rs"]
mod tests;
