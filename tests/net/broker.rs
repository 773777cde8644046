//! The assembly from start to drain, with the toy as its service.

use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use oncilla::broker::{Assembly, Seat, Started, run};
use oncilla::config::{Config, IoMode, Listener, ListenerMode, LogFormat};
use oncilla::rt::Mesh;
use oncilla_shards::ids::{BrokerId, ShardId};

use crate::toy::{Client, FETCH, Toy, Turn, frame};

fn config(listener_mode: ListenerMode) -> Config {
    Config {
        broker_id: BrokerId(0),
        data_dir: "/tmp".into(),
        listeners: vec![Listener {
            name: "PLAINTEXT".to_owned(),
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised_host: None,
            advertised_port: None,
        }],
        listener_mode,
        shards: 2,
        poll_spin_us: 0,
        http_listen: None,
        metrics_groups_max: 100,
        num_partitions: 1,
        default_replication_factor: 1,
        replication_factor_accept_max: 3,
        auto_create_topics: true,
        delete_topic_enable: true,
        socket_request_max_bytes: 100 << 20,
        shard_request_bytes_max: 16 << 20,
        connection_request_bytes_max: 16 << 20,
        connections_max_idle_ms: Some(600_000),
        max_connections: 1000,
        max_connections_per_ip: 1000,
        io_mode: IoMode::Buffered,
        log_cache_bytes: 1 << 20,
        log_read_ahead_bytes: 8 << 20,
        fetch_max_bytes: 1 << 20,
        fetch_session_slots: 10,
        retention_check_interval_ms: 1000,
        producer_id_expiration_ms: 1000,
        producer_id_expiration_check_interval_ms: 1000,
        producer_ids_max: 10,
        groups: Default::default(),
        txn: Default::default(),
        add_partitions_wait_ms_max: 100,
        offsets_retention_check_interval_ms: 600_000,
        cleaner_enable: false,
        cleaner_backoff_ms: 1000,
        cleaner_dedupe_bytes: 1 << 20,
        cleaner_io_bytes_per_second_max: None,
        shutdown_drain_ms: 2000,
        log_level: "info".to_owned(),
        log_format: LogFormat::Text,
        topic_defaults: Default::default(),
        settings: Vec::new(),
        warnings: Vec::new(),
    }
}

struct Ctx {
    mesh: Rc<Mesh<Ctx>>,
}

struct Build {
    started: mpsc::Sender<Started>,
    finished: mpsc::Sender<ShardId>,
    failing: Option<ShardId>,
}

impl Assembly for Build {
    type Ctx = Ctx;
    type Service = Toy;

    async fn build(&self, seat: Seat<Ctx>) -> anyhow::Result<(Rc<Ctx>, Rc<Toy>)> {
        anyhow::ensure!(self.failing != Some(seat.id), "the disk is on fire");
        Ok((Rc::new(Ctx { mesh: seat.mesh }), Rc::default()))
    }

    async fn finish(&self, ctx: Rc<Ctx>) {
        let other = ShardId(1 - ctx.mesh.id().0);
        // Both are here at the same time, so that this may still be answered, or fail, but may not hang.
        let _ = ctx.mesh.call(&ctx, other, async |_| ()).await;
        self.finished.send(ctx.mesh.id()).expect("the test waits");
    }

    async fn control(&self, started: Started) -> anyhow::Result<Option<SocketAddr>> {
        self.started.send(started).expect("the test waits");
        Ok(None)
    }
}

#[test]
fn a_broker_serves_on_every_core_and_drains_on_sigterm() {
    // A signal reaches every broker of the process, and a second one ends the process at once.
    let _turn = Turn::alone();
    for mode in [ListenerMode::PerCore, ListenerMode::Shared] {
        let (started, starts) = mpsc::channel();
        let (finished, finishes) = mpsc::channel();
        let broker = std::thread::spawn(move || run(config(mode), Build { started, finished, failing: None }));
        let started = starts.recv_timeout(Duration::from_secs(20)).expect("ready");
        let ports: std::collections::HashSet<_> = started.addresses.iter().map(|core| core[0].port()).collect();
        assert_eq!(ports.len(), if mode == ListenerMode::PerCore { 2 } else { 1 });
        let mut clients = Vec::new();
        for core in started.addresses.iter() {
            let mut client = Client { stream: TcpStream::connect(core[0]).expect("accepting") };
            client.send(&frame(FETCH, 1, 300, b"in work"));
            clients.push(client);
        }
        while started.counters.iter().map(|counters| counters.requests.get()).sum::<u64>() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).expect("a signal");
        for client in &mut clients {
            assert_eq!(client.receive(), (1, b"in work".to_vec()));
            client.expect_fin();
        }
        drop(clients);
        broker.join().expect("no panic").expect("a clean end");
        assert_eq!(finishes.iter().count(), 2);
    }
}

#[test]
fn a_shard_that_cannot_be_built_stops_the_start_with_its_reason() {
    let _turn = Turn::alone();
    let ((started, starts), (finished, _finishes)) = (mpsc::channel(), mpsc::channel());
    let build = Build { started, finished, failing: Some(ShardId(1)) };
    let error = run(config(ListenerMode::PerCore), build).expect_err("no broker");
    assert!(starts.try_recv().is_err(), "served all the same");
    let text = format!("{error:#}");
    assert!(text.contains("shard 1: the disk is on fire"), "{text}");
}
