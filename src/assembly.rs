//! What makes a broker out of shards, lanes and connections: the start of the data directory, the state of each shard,
//! and what runs on the control thread.
//!
//! Everything that can refuse a start runs before the first connection is accepted: the directory's lock, the boot
//! epoch, the topics, groups and transactions, and the recovery of partitions as far as a start waits for it.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use oncilla_shards::ids::{NodeId, ShardId};
use oncilla_shards::image::broker_settings::{FixedSetting, Source as Origin};
use oncilla_shards::image::{BrokerSettings, Image};
use rustix::time::{ClockId, clock_gettime};

use crate::broker::{Assembly, Seat, Started};
use crate::config::{Config, ListenerMode, Source};
use crate::ctx::{Ctx, Node, Seed};
use crate::disk::boot::{Boot, boot_blocking};
use crate::disk::layout::DataDir;
use crate::disk::remove_aside::Remover;
use crate::group_metrics;
use crate::groups;
use crate::metrics::ShardMetrics;
use crate::net::NetCounters;
use crate::partitions::{self, Openers};
use crate::rt::{Mesh, every};
use crate::service::Requests;
use crate::topics_writer;
use crate::txn;
use crate::volume::producer_ids::{self, ProducerIdBlocks};
use crate::web;

/// Nodes of one broker: node id = broker id * this + core.
const NODES_PER_BROKER: i32 = 1000;

/// Period at which a shard shows that it is alive and how busy it was.
const BEAT_MS: u64 = 5;

/// A broker that has taken over its data directory.
pub struct Oncilla {
    boot: Boot,
    data: DataDir,
    image: Arc<Image>,
    metrics: Vec<Arc<ShardMetrics>>,
    remover: Remover,
}

impl Oncilla {
    /// Takes over the data directory; blocks.
    ///
    /// # Errors
    /// If another broker has it, or what it holds is damaged or belongs to another broker.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let data = DataDir::new(&config.data_dir);
        let boot = boot_blocking(&data, |data| producer_ids::create_blocking(data, config.broker_id))?;
        let settings = BrokerSettings::new(fixed_settings(config)).context("a broker setting")?;
        let cluster_id = boot.cluster_id.clone();
        let load = topics_writer::load(&config.data_dir, config.broker_id, config.shards, settings, || cluster_id);
        let image = Arc::new(load?);
        let remover = Remover::start()?;
        topics_writer::remove_leftovers_blocking(&data, &image)?;
        let metrics = (0..config.shards).map(|shard| Arc::new(ShardMetrics::new(ShardId(shard)))).collect();
        Ok(Self { boot, data, image, metrics, remover })
    }

    fn nodes(config: &Config, addresses: &[Vec<SocketAddr>]) -> Vec<Vec<Node>> {
        let cores = match config.listener_mode {
            ListenerMode::PerCore => addresses,
            ListenerMode::Shared => &addresses[..1],
        };
        let mut nodes = Vec::with_capacity(config.listeners.len());
        for (index, listener) in config.listeners.iter().enumerate() {
            let node = |(core, bound): (u16, &Vec<SocketAddr>)| {
                let bound = bound[index];
                let host = listener.advertised_host.clone().unwrap_or_else(|| reachable_host(bound.ip()));
                let port = listener.advertised_port.map_or(bound.port(), |port| port.saturating_add(core));
                Node { id: NodeId(config.broker_id.0 * NODES_PER_BROKER + i32::from(core)), host, port }
            };
            nodes.push((0..).zip(cores).map(node).collect());
        }
        nodes
    }
}

/// What clients can connect to: the address itself, or this machine's name where all addresses are bound.
fn reachable_host(bound: IpAddr) -> String {
    if bound.is_unspecified() {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    } else {
        bound.to_string()
    }
}

fn fixed_settings(config: &Config) -> Vec<FixedSetting> {
    let fixed = |setting: &crate::config::Setting| FixedSetting {
        name: setting.row.name.to_owned(),
        value: setting.value.clone(),
        default: setting.default.clone(),
        source: if setting.source == Source::Default { Origin::Default } else { Origin::File },
    };
    config.settings.iter().map(fixed).collect()
}

impl Assembly for Oncilla {
    type Ctx = Ctx;
    type Service = Requests;

    async fn build(&self, seat: Seat<Ctx>) -> anyhow::Result<(Rc<Ctx>, Rc<Requests>)> {
        let seed = Seed {
            nodes: Self::nodes(&seat.config, &seat.addresses),
            config: seat.config,
            boot_epoch: self.boot.epoch,
            image: self.image.clone(),
        };
        let blocks = match seat.id {
            ShardId(0) => Some(ProducerIdBlocks::open_blocking(&self.data, seed.config.broker_id)?),
            _ => None,
        };
        let metrics = self.metrics[usize::from(seat.id.0)].clone();
        let session_seed = uuid::Uuid::new_v4().as_fields().0;
        let remover = self.remover.clone();
        let mesh = seat.mesh.clone();
        let ctx = Rc::new(Ctx::new(seat.id, seed, Some(mesh), blocks, metrics, remover, session_seed));
        partitions::expect_all(&ctx)?;
        partitions::start_housekeeping(&ctx);
        partitions::start_cleaner(&ctx);
        groups::load_all(&ctx)?;
        groups::start_housekeeping(&ctx);
        txn::load_all(&ctx)?;
        txn::start_housekeeping(&ctx);
        group_metrics::start(&ctx);
        beat(&ctx, seat.mesh, seat.counters);
        let stopping = ctx.clone();
        crate::rt::spawn(async move {
            seat.shutdown.given().await;
            stopping.stop();
        });
        Ok((ctx.clone(), Rc::new(Requests(ctx))))
    }

    async fn ready(&self, ctx: Rc<Ctx>) -> anyhow::Result<()> {
        let mut openers = Openers::start(&ctx)?;
        if openers.open_most(&ctx).await? {
            txn::reconcile(&ctx).await;
        } else {
            let ctx = ctx.clone();
            crate::rt::spawn(async move {
                openers.open_rest(&ctx).await;
                txn::reconcile(&ctx).await;
            });
        }
        txn::start_looking(&ctx);
        Ok(())
    }

    async fn finish(&self, ctx: Rc<Ctx>) {
        ctx.metrics.serving.set(0);
        txn::close_all(&ctx).await;
        groups::close_all(&ctx).await;
        partitions::close_all(&ctx).await;
    }

    async fn control(&self, started: Started) -> anyhow::Result<Option<SocketAddr>> {
        for shard in &self.metrics {
            shard.serving.set(1);
        }
        let Some(address) = started.config.http_listen else { return Ok(None) };
        let (listener, bound) =
            web::bind(address).with_context(|| format!("cannot listen on http.listen = {address}"))?;
        let state = Arc::new(web::State { shards: self.metrics.clone() });
        tokio::task::spawn_local(async move {
            let error = web::serve(listener, state).await;
            tracing::error!("metrics are not served any more: {error}");
        });
        Ok(Some(bound))
    }
}

/// Shows that the shard is alive, lets time pass for its groups and transactions, and takes over what the runtime and
/// the connections count.
fn beat(ctx: &Rc<Ctx>, mesh: Rc<Mesh<Ctx>>, net: Arc<NetCounters>) {
    let (ctx, metrics) = (ctx.clone(), ctx.metrics.clone());
    every(Duration::from_millis(BEAT_MS), move || {
        groups::tick(&ctx);
        txn::tick(&ctx);
        metrics.beat();
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        metrics.cpu_busy_us.store(cpu.tv_sec as u64 * 1_000_000 + cpu.tv_nsec as u64 / 1_000);
        metrics.lane_frames.store(mesh.frames_sent());
        metrics.lane_overflow.store(mesh.overflow_high());
        metrics.connections_active.set(net.connections.get());
        metrics.connections_accepted.store(net.accepted.get());
        metrics.connections_rejected.store(net.refused.get());
        metrics.connections_malformed.store(net.refusals.get());
        metrics.connections_idle_closed.store(net.idle_cut.get());
        metrics.received_bytes.store(net.bytes_in.get());
        metrics.sent_bytes.store(net.bytes_out.get());
        true
    });
}
