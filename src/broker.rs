//! The broker as a process: shards, lanes and listeners from start to drain.
//!
//! The calling thread becomes the control thread (tokio, current-thread): signals, and whatever the assembly runs
//! there. Shards start together, serve together and leave together: none accepts before all are built, and none closes
//! its lanes before all have drained, because requests in work may need any of them. What fails at the start stops the
//! start with a sentence; nothing is served then.

use std::future::Future;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use oncilla_shards::ids::ShardId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::config::{Config, ListenerMode};
use crate::net::{ConnectionQuota, NetCounters, NetSettings, NetShard, Service, bind_all};
use crate::rt::{
    Cores, Mesh, MeshSeat, Order, OrderWatch, ShardOptions, ShardThread, Signals, exit_now, mesh_seats, sleep,
    start_shard,
};

/// How often a shard looks whether the others are as far as it is.
const BARRIER_POLL_MS: u64 = 2;

/// The shared state of a shard and what serves its requests.
pub type Built<A> = (Rc<<A as Assembly>::Ctx>, Rc<<A as Assembly>::Service>);

/// What makes a broker out of shards, lanes and connections.
pub trait Assembly: Send + Sync + 'static {
    /// What the tasks of one shard share.
    type Ctx: 'static;
    /// What serves its requests.
    type Service: Service;

    /// Builds one shard, on its thread. Other shards may be called only after it has returned.
    fn build(&self, seat: Seat<Self::Ctx>) -> impl Future<Output = anyhow::Result<Built<Self>>>
    where
        Self: Sized;

    /// Does what needs all shards before clients may come, on the thread of one: all are built.
    fn ready(&self, _ctx: Rc<Self::Ctx>) -> impl Future<Output = anyhow::Result<()>> {
        std::future::ready(Ok(()))
    }

    /// Ends one shard, on its thread: all shards have drained, and still answer calls.
    fn finish(&self, ctx: Rc<Self::Ctx>) -> impl Future<Output = ()>;

    /// Starts what runs on the control thread, within its tokio `LocalSet`; returns the address of HTTP if it is on.
    fn control(&self, started: Started) -> impl Future<Output = anyhow::Result<Option<SocketAddr>>>;
}

/// What a shard is built from.
#[derive(Debug)]
pub struct Seat<C: 'static> {
    /// The shard.
    pub id: ShardId,
    /// The way to the others.
    pub mesh: Rc<Mesh<C>>,
    /// The settings.
    pub config: Arc<Config>,
    /// Bound addresses, by core, then by listener.
    pub addresses: Arc<Vec<Vec<SocketAddr>>>,
    /// Given when the broker stops; what is parked should be answered then.
    pub shutdown: Rc<OrderWatch>,
    /// The counters of the shard's connections.
    pub counters: Arc<NetCounters>,
}

/// What the control thread knows of a broker that serves.
#[derive(Clone, Debug)]
pub struct Started {
    /// The settings.
    pub config: Arc<Config>,
    /// Bound addresses, by core, then by listener.
    pub addresses: Arc<Vec<Vec<SocketAddr>>>,
    /// The counters of connections, by core.
    pub counters: Vec<Arc<NetCounters>>,
    /// Limits of connections.
    pub quota: Arc<ConnectionQuota>,
    /// Drains the broker as a signal does.
    pub shutdown: Order,
}

/// Runs a broker until a signal or [`Started::shutdown`] ends it.
pub fn run<A: Assembly>(config: Config, assembly: A) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("control thread")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(Arc::new(config), Arc::new(assembly)))
}

async fn serve<A: Assembly>(config: Arc<Config>, assembly: Arc<A>) -> anyhow::Result<()> {
    let mut signals = Signals::install().context("cannot take over SIGTERM and SIGINT")?;
    let mut shards = start_shards(&config, &assembly)?;
    let served = tokio::select! {
        served = start_serving(&config, &*assembly, &mut shards) => served,
        signal = signals.next() => Err(anyhow!("{signal} before the broker was ready")),
    };
    if served.is_ok() {
        wait_for_order(&mut signals, &mut shards).await;
    }
    shards.started.shutdown.give();
    let left = tokio::select! {
        left = shards.leave() => left,
        signal = signals.next() => exit_now(signal),
    };
    // What a shard says is the cause of what the control thread saw.
    left.and(served)
}

/// How far a shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Built,
    Serving,
    Drained,
    Ended,
}

/// Tells the control thread how far its shard is, and that it has ended however that came about.
struct Progress {
    id: ShardId,
    steps: UnboundedSender<(ShardId, Step)>,
}

impl Progress {
    fn reached(&self, step: Step) {
        // The control thread may have given up on the start.
        let _ = self.steps.send((self.id, step));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.reached(Step::Ended);
    }
}

struct Shards {
    threads: Vec<ShardThread<anyhow::Result<()>>>,
    steps: UnboundedReceiver<(ShardId, Step)>,
    at: Vec<Option<Step>>,
    begin: Order,
    leave: Order,
    started: Started,
}

impl Shards {
    /// Waits until all shards are at `step`; false if one has ended before.
    async fn reach(&mut self, step: Step) -> bool {
        while self.at.iter().any(|at| *at < Some(step)) {
            let Some((id, reached)) = self.steps.recv().await else { return false };
            self.at[usize::from(id.0)] = Some(reached);
            if reached == Step::Ended && step < Step::Ended {
                return false;
            }
        }
        true
    }

    /// Lets drained shards go and collects what they have to say.
    async fn leave(&mut self) -> anyhow::Result<()> {
        self.reach(Step::Drained).await;
        self.leave.give();
        self.reach(Step::Ended).await;
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().map_err(|error| anyhow!("a shard could not run: {error}")).flatten();
            result = result.and(ended);
        }
        result
    }
}

fn start_shards<A: Assembly>(config: &Arc<Config>, assembly: &Arc<A>) -> anyhow::Result<Shards> {
    let cores = Cores::discover().context("cannot find out which cores may be used")?;
    if usize::from(config.shards) > cores.usable() {
        tracing::warn!(shards = config.shards, cores = cores.usable(), "more shards than cores: they share cores");
    }
    let bound = bind_all(&config.listeners, config.listener_mode, config.shards)?;
    let addresses: std::io::Result<Vec<Vec<SocketAddr>>> =
        bound.iter().map(|core| core.iter().map(TcpListener::local_addr).collect()).collect();
    let counters: Vec<Arc<NetCounters>> = bound.iter().map(|_| Arc::default()).collect();
    let started = Started {
        config: config.clone(),
        addresses: Arc::new(addresses.context("a bound listener has no address")?),
        counters: counters.clone(),
        quota: ConnectionQuota::new(config.max_connections, config.max_connections_per_ip),
        shutdown: Order::new(),
    };
    let (sender, steps) = unbounded_channel();
    let (begin, leave) = (Order::new(), Order::new());
    let mut threads = Vec::new();
    for (seat, listeners) in mesh_seats::<A::Ctx>(config.shards).into_iter().zip(bound) {
        let id = seat.id();
        let options =
            ShardOptions { cpu: cores.cpu_of(id, config.shards), spin_us: config.poll_spin_us, ..Default::default() };
        let progress = Progress { id, steps: sender.clone() };
        let shard = Shard { seat, listeners, started: started.clone(), begin: begin.clone(), leave: leave.clone() };
        let assembly = assembly.clone();
        let thread = start_shard(id, options, move || async move { shard.run(&*assembly, &progress).await });
        threads.push(thread.map_err(|error| anyhow!("cannot start the thread of shard {id}: {error}"))?);
    }
    let at = vec![None; threads.len()];
    Ok(Shards { threads, steps, at, begin, leave, started })
}

async fn start_serving<A: Assembly>(config: &Config, assembly: &A, shards: &mut Shards) -> anyhow::Result<()> {
    if !shards.reach(Step::Built).await {
        bail!("a shard could not be built");
    }
    shards.begin.give();
    if !shards.reach(Step::Serving).await {
        bail!("a shard could not serve");
    }
    let http = assembly.control(shards.started.clone()).await?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", ready_line(config, &shards.started.addresses, http))
        .and_then(|()| stdout.flush())
        .context("cannot write the ready line")
}

async fn wait_for_order(signals: &mut Signals, shards: &mut Shards) {
    let shutdown = shards.started.shutdown.clone();
    let ordered = async {
        while !shutdown.is_given() {
            tokio::time::sleep(Duration::from_millis(BARRIER_POLL_MS * 5)).await;
        }
    };
    tokio::select! {
        signal = signals.next() => tracing::info!(signal, "draining"),
        () = ordered => tracing::info!("draining"),
        _ = shards.reach(Step::Drained) => tracing::error!("a shard has ended by itself; draining the others"),
    }
}

fn ready_line(config: &Config, addresses: &[Vec<SocketAddr>], http: Option<SocketAddr>) -> String {
    let cores = match config.listener_mode {
        ListenerMode::PerCore => addresses,
        ListenerMode::Shared => &addresses[..1],
    };
    let kafka: Vec<String> = cores.iter().flatten().map(ToString::to_string).collect();
    format!(
        "oncilla {} ready kafka={} http={} data={} cores={}",
        env!("CARGO_PKG_VERSION"),
        kafka.join(","),
        http.map_or_else(|| "off".to_owned(), |http| http.to_string()),
        config.data_dir.display(),
        config.shards,
    )
}

/// One shard before its thread runs.
struct Shard<C: 'static> {
    seat: MeshSeat<C>,
    listeners: Vec<TcpListener>,
    started: Started,
    begin: Order,
    leave: Order,
}

impl<C: 'static> Shard<C> {
    async fn run<A: Assembly<Ctx = C>>(self, assembly: &A, progress: &Progress) -> anyhow::Result<()> {
        let Self { seat, listeners, started, begin, leave } = self;
        let (id, config, shutdown) = (seat.id(), started.config, started.shutdown.watch());
        let mesh = seat.connect().await;
        let counters = started.counters[usize::from(id.0)].clone();
        let seat = Seat {
            id,
            mesh: mesh.clone(),
            config: config.clone(),
            addresses: started.addresses,
            shutdown: shutdown.clone(),
            counters: counters.clone(),
        };
        let (ctx, service) = assembly.build(seat).await.with_context(|| format!("shard {id}"))?;
        mesh.serve(&ctx);
        progress.reached(Step::Built);
        while !begin.is_given() && !shutdown.is_given() {
            sleep(Duration::from_millis(BARRIER_POLL_MS)).await;
        }
        if !begin.is_given() {
            assembly.finish(ctx).await;
            return Ok(());
        }
        assembly.ready(ctx.clone()).await.with_context(|| format!("shard {id}"))?;
        let net = NetShard::start(service, NetSettings::from(&*config), started.quota, counters, listeners)
            .with_context(|| format!("shard {id} cannot accept"))?;
        progress.reached(Step::Serving);
        shutdown.given().await;
        net.drain(Duration::from_millis(config.shutdown_drain_ms)).await;
        progress.reached(Step::Drained);
        while !leave.is_given() {
            sleep(Duration::from_millis(BARRIER_POLL_MS)).await;
        }
        assembly.finish(ctx).await;
        Ok(())
    }
}
