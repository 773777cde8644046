//! A broker process on a free port with a directory of its own.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use oncilla::client::Client;

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

/// The broker. It ends with this value.
pub struct Broker {
    data: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

impl Broker {
    pub fn start() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let mut broker = Self { data, port: free_port(), process: None };
        broker.restart();
        broker
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
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
        let mut process = Command::new(env!("CARGO_BIN_EXE_oncilla"))
            .arg("serve")
            .arg("--data")
            .arg(self.data.path())
            .args(["--listen", &self.address(), "--cores", &CORES.to_string(), "-X", "http.listen=127.0.0.1:0"])
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
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
