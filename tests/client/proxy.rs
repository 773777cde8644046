//! A network that lies: connections through it end at random places, in the ways in which a client cannot know what
//! became of its requests.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides at once, in the middle of a request.
    Cut,
    /// Requests arrive, their answers do not.
    Unanswered,
    /// The client is cut off, and what it sent last arrives afterwards.
    Late,
    /// In the middle of an answer.
    HalfAnswer,
}

/// Seeds of the ways in which connections end: one, or as many as `ONCILLA_CLIENT_SEEDS` says.
pub fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("ONCILLA_CLIENT_SEEDS").ok().and_then(|text| text.parse().ok());
    0..count.unwrap_or(1)
}

/// Ports in front of the broker's.
pub struct Proxy {
    faults: Arc<AtomicBool>,
    ends: Arc<AtomicUsize>,
}

impl Proxy {
    /// Serves every one of these ports (from, to), until the process ends.
    pub fn start(ports: &[(u16, u16)], seed: u64) -> Self {
        let proxy = Self { faults: Arc::new(AtomicBool::new(false)), ends: Arc::default() };
        let random = Arc::new(AtomicU64::new(seed));
        for &(from, to) in ports {
            let listener = TcpListener::bind(("127.0.0.1", from)).expect("the port is free");
            let (faults, ends, random) = (proxy.faults.clone(), proxy.ends.clone(), random.clone());
            std::thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    // A broker that is away refuses: so does the proxy.
                    let Ok(broker) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                    serve(&client, &broker, &faults, &ends, &random);
                }
            });
        }
        proxy
    }

    /// From now on connections end.
    pub fn storm(&self) {
        self.faults.store(true, Ordering::SeqCst);
    }

    /// From now on connections last.
    pub fn calm(&self) {
        self.faults.store(false, Ordering::SeqCst);
    }

    /// Connections ended so far.
    pub fn ends(&self) -> usize {
        self.ends.load(Ordering::SeqCst)
    }
}

fn next(random: &AtomicU64) -> u64 {
    let mut z = random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn serve(
    client: &TcpStream,
    broker: &TcpStream,
    faults: &Arc<AtomicBool>,
    ends: &Arc<AtomicUsize>,
    random: &AtomicU64,
) {
    let kinds = [End::Cut, End::Unanswered, End::Late, End::HalfAnswer];
    let end = kinds[(next(random) % 4) as usize];
    // Answers are shorter than requests, but for the first one, which names all APIs.
    let (requests, answers) = (150 + next(random) % 3000, 700 + next(random) % 1500);
    for forward in [true, false] {
        let (client, broker) = (client.try_clone().expect("a socket"), broker.try_clone().expect("a socket"));
        let _ = client.set_nodelay(true).and_then(|()| broker.set_nodelay(true));
        let bytes = if forward { requests } else { answers };
        let pump = Pump { forward, end, bytes, client, broker, faults: faults.clone(), ends: ends.clone() };
        std::thread::spawn(move || pump.run());
    }
}

/// One direction of one connection.
struct Pump {
    forward: bool,
    end: End,
    bytes: u64,
    client: TcpStream,
    broker: TcpStream,
    faults: Arc<AtomicBool>,
    ends: Arc<AtomicUsize>,
}

impl Pump {
    fn run(mut self) {
        let mut buffer = vec![0; 4096];
        let mut seen = 0;
        loop {
            let from = if self.forward { &mut self.client } else { &mut self.broker };
            let read = from.read(&mut buffer).unwrap_or(0);
            seen += read as u64;
            let over = seen > self.bytes && self.faults.load(Ordering::SeqCst);
            if read == 0 || over && self.ends_with(&buffer[..read]) {
                break;
            }
            let to = if self.forward { &mut self.broker } else { &mut self.client };
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.broker.shutdown(Shutdown::Both);
    }

    /// Ends the connection in its way; `false` if the other direction is the one to do it.
    fn ends_with(&mut self, last: &[u8]) -> bool {
        let pause = Duration::from_millis(30);
        match (self.end, self.forward) {
            (End::Cut, true) => {
                let _ = self.broker.write_all(&last[..last.len() / 2]);
            }
            (End::Late, true) => {
                let _ = self.client.shutdown(Shutdown::Both);
                std::thread::sleep(pause);
                let _ = self.broker.write_all(last);
                std::thread::sleep(pause);
            }
            (End::Unanswered, false) => {
                // The other direction goes on meanwhile.
                std::thread::sleep(pause);
            }
            (End::HalfAnswer, false) => {
                let _ = self.client.write_all(&last[..last.len() / 2]);
            }
            _ => return false,
        }
        self.ends.fetch_add(1, Ordering::SeqCst);
        true
    }
}
