//! The service under the tests, the server around it, and a client.
//!
//! A request is `key i16, version i16, correlation i32, delay_ms u32, rest`; it is answered with `rest` after the
//! delay.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::{Buf, Bytes};
use oncilla::config::{Listener, ListenerMode};
use oncilla::net::{
    Answer, AnswerSlot, Body, ConnectionQuota, NetCounters, NetSettings, NetShard, Peer, Request, Service, bind_all,
};
use oncilla::rt::{Order, ShardOptions, ShardThread, sleep, spawn, start_shard};
use oncilla_shards::ids::ShardId;

/// Overlaps with its neighbours.
pub const PRODUCE: i16 = 0;
/// Everything else.
pub const FETCH: i16 = 1;
/// Answered with as many bytes as its delay says, at once.
pub const LARGE: i16 = 2;
/// Closes the connection.
pub const CLOSE: i16 = 3;
/// Never answered; waits for its client to be gone.
pub const PARKED: i16 = 4;
/// Not answered at all, as acks=0.
pub const SILENT: i16 = 5;
/// Dropped without an answer.
pub const DROPPED: i16 = 6;
/// Does not parse.
pub const BROKEN: i16 = 7;

/// What the tests look at from outside.
#[derive(Default)]
pub struct Seen {
    pub served: AtomicU64,
    pub told_gone: AtomicU64,
    pub overlapping_high: AtomicU64,
    pub beside_others: AtomicU64,
}

/// The service.
#[derive(Default)]
pub struct Toy {
    pub seen: Arc<Seen>,
    in_work: Cell<u64>,
}

fn delay_and_rest(mut body: Bytes) -> (u32, Bytes) {
    let delay = body.get_u32();
    (delay, body)
}

impl Service for Toy {
    fn parse(&self, mut frame: Bytes, peer: &Rc<Peer>) -> Result<Request, String> {
        if frame.len() < 12 {
            return Err("header too short".to_owned());
        }
        let (api_key, api_version, correlation_id) = (frame.get_i16(), frame.get_i16(), frame.get_i32());
        if api_key == BROKEN {
            return Err("no such request".to_owned());
        }
        let (client_id, tagged_answer) = (None, api_version > 0);
        Ok(Request { api_key, api_version, correlation_id, client_id, tagged_answer, body: frame, peer: peer.clone() })
    }

    fn overlaps(&self, api_key: i16) -> bool {
        api_key == PRODUCE || api_key == DROPPED
    }

    fn begin(self: &Rc<Self>, request: Request, slot: AnswerSlot) {
        if request.api_key == DROPPED {
            return drop(slot);
        }
        self.in_work.set(self.in_work.get() + 1);
        self.seen.overlapping_high.fetch_max(self.in_work.get(), Ordering::Relaxed);
        let toy = self.clone();
        let (delay, rest) = delay_and_rest(request.body);
        let finish = move || {
            toy.in_work.set(toy.in_work.get() - 1);
            toy.seen.served.fetch_add(1, Ordering::Relaxed);
            slot.fill(Answer::Body(Body::from(rest)));
        };
        if delay == 0 {
            return finish();
        }
        spawn(async move {
            sleep(Duration::from_millis(u64::from(delay))).await;
            finish();
        });
    }

    async fn serve(self: &Rc<Self>, request: Request) -> Answer {
        self.seen.beside_others.fetch_add(self.in_work.get(), Ordering::Relaxed);
        self.in_work.set(self.in_work.get() + 1);
        let (delay, rest) = delay_and_rest(request.body);
        let answer = match request.api_key {
            LARGE => Answer::Body(Body::from(Bytes::from(vec![7; delay as usize]))),
            CLOSE => Answer::Close("asked to".to_owned()),
            SILENT => Answer::Silent,
            PARKED => {
                request.peer.gone().await;
                self.seen.told_gone.fetch_add(1, Ordering::Relaxed);
                Answer::Close("gone".to_owned())
            }
            _ => {
                if delay > 0 {
                    sleep(Duration::from_millis(u64::from(delay))).await;
                }
                Answer::Body(Body::from(rest))
            }
        };
        self.in_work.set(self.in_work.get() - 1);
        self.seen.served.fetch_add(1, Ordering::Relaxed);
        answer
    }
}

/// Defaults that no test but its own runs into.
pub fn settings() -> NetSettings {
    NetSettings {
        request_bytes_max: 100 << 20,
        shard_bytes_max: 64 << 20,
        connection_bytes_max: 32 << 20,
        idle_ms: None,
    }
}

static MEASURING: RwLock<()> = RwLock::new(());

/// Keeps tests that measure the process apart from all others, which run beside each other.
pub enum Turn {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    pub fn shared() -> Self {
        Self::Shared { _guard: MEASURING.read().unwrap_or_else(PoisonError::into_inner) }
    }

    pub fn alone() -> Self {
        Self::Alone { _guard: MEASURING.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// One shard with the toy on it; drained and joined when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub counters: Arc<NetCounters>,
    pub quota: Arc<ConnectionQuota>,
    pub seen: Arc<Seen>,
    shutdown: Order,
    thread: Option<ShardThread<()>>,
    drain_ms: u64,
    _turn: Turn,
}

impl Server {
    pub fn start(settings: NetSettings) -> Self {
        Self::start_with(settings, ConnectionQuota::new(usize::MAX, usize::MAX), 2000)
    }

    /// For tests that look at descriptors or memory of the process.
    pub fn start_alone(settings: NetSettings) -> Self {
        Self::start_in(Turn::alone(), settings, ConnectionQuota::new(usize::MAX, usize::MAX), 2000)
    }

    pub fn start_with(settings: NetSettings, quota: Arc<ConnectionQuota>, drain_ms: u64) -> Self {
        Self::start_in(Turn::shared(), settings, quota, drain_ms)
    }

    fn start_in(turn: Turn, settings: NetSettings, quota: Arc<ConnectionQuota>, drain_ms: u64) -> Self {
        let listener = Listener {
            name: "PLAINTEXT".to_owned(),
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised_host: None,
            advertised_port: None,
        };
        let mut bound = bind_all(&[listener], ListenerMode::PerCore, 1).expect("a free port");
        let listeners = bound.pop().expect("one core");
        let address = listeners[0].local_addr().expect("bound");
        let (counters, seen) = (Arc::new(NetCounters::default()), Arc::new(Seen::default()));
        let shutdown = Order::new();
        let (ready, started) = mpsc::channel();
        let thread = start_shard(ShardId(0), ShardOptions::default(), {
            let (quota, counters, seen, shutdown) = (quota.clone(), counters.clone(), seen.clone(), shutdown.clone());
            move || async move {
                let toy = Rc::new(Toy { seen, in_work: Cell::new(0) });
                let net = NetShard::start(toy, settings, quota, counters, listeners).expect("listening");
                ready.send(()).expect("the test waits");
                shutdown.watch().given().await;
                net.drain(Duration::from_millis(drain_ms)).await;
            }
        });
        started.recv_timeout(Duration::from_secs(10)).expect("the shard serves");
        Self {
            address,
            counters,
            quota,
            seen,
            shutdown,
            thread: Some(thread.expect("a thread")),
            drain_ms,
            _turn: turn,
        }
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).expect("the shard accepts");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Client { stream }
    }

    /// Orders the drain without waiting for it.
    pub fn order_shutdown(&self) {
        self.shutdown.give();
    }

    /// Waits until `condition` holds.
    pub fn eventually(&self, what: &str, mut condition: impl FnMut() -> bool) {
        for _ in 0..1000 {
            if condition() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("never: {what}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.give();
        let joined = self.thread.take().expect("joined once").join();
        assert_eq!(joined, Ok(()), "after a drain of {} ms", self.drain_ms);
    }
}

/// A frame of the toy's protocol.
pub fn frame(key: i16, correlation_id: i32, delay: u32, rest: &[u8]) -> Vec<u8> {
    let size = i32::try_from(12 + rest.len()).expect("small");
    let mut frame = size.to_be_bytes().to_vec();
    frame.extend(key.to_be_bytes());
    frame.extend(0i16.to_be_bytes());
    frame.extend(correlation_id.to_be_bytes());
    frame.extend(delay.to_be_bytes());
    frame.extend(rest);
    frame
}

pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the connection is open");
    }

    /// The next answer: correlation id and body.
    pub fn receive(&mut self) -> (i32, Vec<u8>) {
        let mut head = [0; 8];
        self.stream.read_exact(&mut head).expect("an answer");
        let size = i32::from_be_bytes(head[..4].try_into().expect("four"));
        let mut body = vec![0; usize::try_from(size).expect("positive") - 4];
        self.stream.read_exact(&mut body).expect("its body");
        (i32::from_be_bytes(head[4..].try_into().expect("four")), body)
    }

    /// Asserts that the connection ends with a FIN and without a further byte.
    pub fn expect_fin(&mut self) {
        let mut rest = Vec::new();
        let ended = self.stream.read_to_end(&mut rest);
        assert!(matches!(ended, Ok(0)), "{ended:?}, {} bytes", rest.len());
    }
}
