//! A broker process on a free port with a directory of its own. With `ONCILLA_CLIENT_PEER` set to a program that serves
//! as tests/peer/kafka-peer does, it is an Apache Kafka: for tests that do not kill it, because a Kafka of one node
//! that is killed and comes back may skip markers (contract B11.1), and then a transaction is not what was told of it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use oncilla::client::Client;

use crate::proxy::Proxy;

/// Cores of the broker, and so its ports.
const CORES: u16 = 2;

/// Ports are below those that the kernel gives to clients.
const PORTS: u16 = 10_000;
const FIRST_PORT: u16 = 20_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

fn free_port() -> u16 {
    let own = u16::try_from(std::process::id() * 41 % u32::from(PORTS)).expect("below the bound");
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(CORES, Ordering::Relaxed);
        let port = FIRST_PORT + own.wrapping_add(step) % PORTS;
        let free = (0..CORES).all(|core| TcpListener::bind(("127.0.0.1", port + core)).is_ok());
        if free {
            return port;
        }
    }
    panic!("no free ports");
}

/// Longest start of a Kafka.
const START: Duration = Duration::from_secs(60);

/// Goes with its broker, unless `ONCILLA_CLIENT_KEEP` is set.
fn directory() -> tempfile::TempDir {
    let keep = std::env::var_os("ONCILLA_CLIENT_KEEP").is_some();
    tempfile::Builder::new().prefix("oncilla-client-").disable_cleanup(keep).tempdir().expect("a directory")
}

/// The broker. It ends with this value.
pub struct Broker {
    data: tempfile::TempDir,
    port: u16,
    /// Where clients are sent, which is not where the broker listens if there is a proxy.
    advertised: u16,
    process: Option<Child>,
}

impl Broker {
    pub fn start() -> Self {
        let data = directory();
        let port = free_port();
        let mut broker = Self { data, port, advertised: port, process: None };
        broker.restart();
        broker
    }

    /// A broker that clients reach through a network that lies.
    pub fn behind_proxy(seed: u64) -> (Self, Proxy) {
        let data = directory();
        let (port, advertised) = (free_port(), free_port());
        let mut broker = Self { data, port, advertised, process: None };
        broker.restart();
        let ports: Vec<_> = (0..CORES).map(|core| (advertised + core, port + core)).collect();
        (broker, Proxy::start(&ports, seed))
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.advertised)
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.address()).expect("the broker answers")
    }

    /// SIGKILL, at whatever it is doing.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Starts it on what it left behind; returns when it serves.
    pub fn restart(&mut self) {
        self.kill();
        if let Some(peer) = std::env::var_os("ONCILLA_CLIENT_PEER") {
            self.start_peer(&peer);
            return;
        }
        let mut process = Command::new(env!("CARGO_BIN_EXE_oncilla"))
            .arg("serve")
            .arg("--data")
            .arg(self.data.path())
            .args(["--listen", &format!("127.0.0.1:{}", self.port), "--cores", &CORES.to_string()])
            .args(["-X", "http.listen=127.0.0.1:0", "-X", &self.advertised()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the broker starts");
        let output = process.stdout.take().expect("piped");
        self.process = Some(process);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("it says that it is ready");
        assert!(line.contains(" ready kafka="), "the broker says {line:?}");
    }

    fn advertised(&self) -> String {
        format!("advertised.listeners=PLAINTEXT://127.0.0.1:{}", self.advertised)
    }

    fn start_peer(&mut self, program: &OsStr) {
        let mut peer = Command::new(program);
        let peer = peer.arg("serve").arg(self.port.to_string()).arg(self.data.path()).stdout(Stdio::null());
        peer.env("PEER_SETTINGS", self.advertised());
        self.process = Some(peer.stderr(Stdio::null()).spawn().expect("the peer starts"));
        let until = Instant::now() + START;
        // It listens when it serves, and not before.
        while Client::connect(&format!("127.0.0.1:{}", self.port)).is_err() {
            assert!(Instant::now() < until, "the peer does not serve");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
