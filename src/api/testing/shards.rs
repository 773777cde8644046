//! All shards of one broker for tests: each on a thread of its own, with the lanes, files and housekeeping that the
//! assembly of the real broker gives it. Sockets are missing: requests are handed to a shard.
//!
//! The test runs on the first shard and reaches the others as the broker does. Failure: a shard that panics, and a test
//! that waits for ever, end at a deadline; files are not closed then.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use futures_lite::future;
use oncilla_shards::ids::ShardId;

use crate::assembly::Oncilla;
use crate::broker::{Assembly, Seat, Started};
use crate::config::Config;
use crate::ctx::Ctx;
use crate::net::ConnectionQuota;
use crate::rt::{MeshSeat, Order, ShardOptions, ShardThread, mesh_seats, sleep, start_shard};

/// A condition that does not hold by then never will.
const CONDITION_WAIT: Duration = Duration::from_secs(20);

/// A test that has not ended by then never will.
const TEST_WAIT: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(1);

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < CONDITION_WAIT, "it should have come to this: {what}");
        sleep(LOOK_PERIOD).await;
    }
}

/// Runs a test on the first of `shards` shards, with a new data directory, and gives what it gives.
pub fn with_shards<T, F>(
    shards: u16,
    change: impl FnOnce(&mut Config),
    test: impl FnOnce(Rc<Ctx>) -> F + Send + 'static,
) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut config = super::config(dir.path());
    config.shards = shards;
    change(&mut config);
    let broker = Broker::new(config);
    let mut seats = mesh_seats(shards);
    let others = seats.split_off(1).into_iter().map(|seat| broker.start(seat, async |_| ()));
    let others: Vec<_> = others.collect();
    let first = broker.start(seats.pop().expect("there is a first one"), move |ctx| within(TEST_WAIT, test(ctx)));
    let tested = first.join();
    if tested.is_err() {
        broker.is_broken.give();
        broker.started.shutdown.give();
    }
    let served: Vec<_> = others.into_iter().map(ShardThread::join).collect();
    let tested = tested.unwrap_or_else(|error| panic!("the test: {error}; the other shards: {served:?}"));
    assert!(served.iter().all(Result::is_ok), "{served:?}");
    tested
}

async fn within<T>(wait: Duration, work: impl Future<Output = T>) -> T {
    let too_long = async {
        sleep(wait).await;
        panic!("not ended within {wait:?}")
    };
    future::or(work, too_long).await
}

/// How far a shard is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Built,
    Ready,
    Done,
}

/// What the threads of one broker share.
#[derive(Clone)]
struct Broker {
    oncilla: Arc<Oncilla>,
    started: Started,
    /// How many shards have come to each step.
    reached: Arc<[AtomicU16; 3]>,
    /// The first shard is gone, and those that wait for it need not.
    is_broken: Order,
}

impl Broker {
    fn new(config: Config) -> Self {
        let oncilla = Oncilla::new(&config).expect("a data directory of its own");
        let addresses = vec![config.listeners.iter().map(|listener| listener.bind).collect(); config.shards.into()];
        let started = Started {
            addresses: Arc::new(addresses),
            counters: (0..config.shards).map(|_| Arc::default()).collect(),
            quota: ConnectionQuota::new(config.max_connections, config.max_connections_per_ip),
            shutdown: Order::new(),
            config: Arc::new(config),
        };
        Self { oncilla: Arc::new(oncilla), started, reached: Arc::default(), is_broken: Order::new() }
    }

    fn start<T, F>(&self, seat: MeshSeat<Ctx>, work: impl FnOnce(Rc<Ctx>) -> F + Send + 'static) -> ShardThread<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let broker = self.clone();
        let thread =
            start_shard(seat.id(), ShardOptions::default(), move || async move { broker.run(seat, work).await });
        thread.expect("a thread")
    }

    /// A shard from its start to its end, which the first one gives with that of its work.
    async fn run<T, F: Future<Output = T>>(self, seat: MeshSeat<Ctx>, work: impl FnOnce(Rc<Ctx>) -> F) -> T {
        let id = seat.id();
        let mesh = seat.connect().await;
        let shutdown = self.started.shutdown.watch();
        let seat = Seat {
            id,
            mesh: mesh.clone(),
            config: self.started.config.clone(),
            addresses: self.started.addresses.clone(),
            shutdown: shutdown.clone(),
            counters: self.started.counters[usize::from(id.0)].clone(),
        };
        let (ctx, _requests) = self.oncilla.build(seat).await.expect("a shard");
        mesh.serve(&ctx);
        self.all_reach(Step::Built).await;
        self.oncilla.ready(ctx.clone()).await.expect("ready");
        self.all_reach(Step::Ready).await;
        self.oncilla.control(self.started.clone()).await.expect("there is no HTTP");
        let done = work(ctx.clone()).await;
        if id == ShardId(0) {
            self.started.shutdown.give();
        }
        shutdown.given().await;
        self.all_reach(Step::Done).await;
        if !self.is_broken.is_given() {
            self.oncilla.finish(ctx).await;
        }
        done
    }

    async fn all_reach(&self, step: Step) {
        let reached = &self.reached[step as usize];
        reached.fetch_add(1, Ordering::AcqRel);
        let shards = self.started.config.shards;
        let what = format!("all shards at {step:?}");
        until(&what, async || self.is_broken.is_given() || reached.load(Ordering::Acquire) == shards).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::make_topic;

    #[test]
    fn every_shard_has_its_own_partitions_and_answers_over_the_lanes() {
        let counts = with_shards(
            3,
            |_| (),
            async |ctx: Rc<Ctx>| {
                make_topic(&ctx, "t", 7).await;
                let mut counts = Vec::new();
                for shard in (0..3).map(ShardId) {
                    let ask = async |ctx: Rc<Ctx>| (ctx.id, ctx.shard.borrow().len(), ctx.metrics.serving.get());
                    counts.push(ctx.call(shard, ask).await);
                }
                assert!(ctx.mesh.as_ref().is_some_and(|mesh| mesh.frames_sent() > 0));
                counts
            },
        );
        assert_eq!(counts, [(ShardId(0), 3, 1), (ShardId(1), 2, 1), (ShardId(2), 2, 1)]);
    }

    #[test]
    #[should_panic(expected = "this is what it says")]
    fn a_test_that_fails_says_why_and_leaves_nobody_waiting() {
        with_shards(2, |_| (), async |_| assert_eq!(1, 2, "this is what it says"));
    }
}
