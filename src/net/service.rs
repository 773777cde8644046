//! What the connection layer asks of the API layer, and what passes between them.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::answers::AnswerSlot;
use crate::rt::Notify;

/// Serves requests of all connections of one shard.
pub trait Service: 'static {
    /// Reads the header of a frame; the text says why the connection must be closed (contract KC.2 to KC.6).
    fn parse(&self, frame: Bytes, peer: &Rc<Peer>) -> Result<Request, String>;

    /// Whether requests with this key may be in work together with neighbours of the same kind (Produce).
    fn overlaps(&self, api_key: i16) -> bool;

    /// Whether requests with this key may wait for other clients, for minutes: their bytes are given back to the
    /// budgets when they begin, and the service bounds them itself. Otherwise a few of them would keep everybody else
    /// unread.
    fn parks(&self, api_key: i16) -> bool {
        let _ = api_key;
        false
    }

    /// Begins an overlapping request: its order is fixed when this returns, its answer may come at any later time.
    fn begin(self: &Rc<Self>, request: Request, slot: AnswerSlot);

    /// Serves any other request; started when all earlier ones of the connection are answered.
    fn serve(self: &Rc<Self>, request: Request) -> impl Future<Output = Answer>;
}

/// One request with its header read.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which API.
    pub api_key: i16,
    /// Which version of it.
    pub api_version: i16,
    /// Echoed in the answer.
    pub correlation_id: i32,
    /// What the client calls itself; any bytes (contract KC.3).
    pub client_id: Option<Bytes>,
    /// Whether the answer's header has a tag section (contract KC.2).
    pub tagged_answer: bool,
    /// What follows the header.
    pub body: Bytes,
    /// Who sent it.
    pub peer: Rc<Peer>,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This goes out, behind the answer header.
    Body(Body),
    /// Nothing goes out (Produce with acks=0, contract KC.16).
    Silent,
    /// Everything before goes out, then the connection is closed; the text is for the log.
    Close(String),
}

/// An encoded answer without its header: slices that go out one after the other, uncopied.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The slices.
    pub chunks: SmallVec<[Bytes; 4]>,
    /// Their bytes together.
    pub bytes: usize,
}

impl From<Bytes> for Body {
    fn from(chunk: Bytes) -> Self {
        let bytes = chunk.len();
        Self { chunks: SmallVec::from_iter([chunk]), bytes }
    }
}

/// The other side of one connection; what a request that waits can learn about it.
#[derive(Debug)]
pub struct Peer {
    /// Number of the connection within its shard, never used again.
    pub id: u64,
    /// Address of the client.
    pub address: SocketAddr,
    /// Address it connected to.
    pub local: SocketAddr,
    /// Index of the listener it came in on.
    pub listener: usize,
    ended: Cell<bool>,
    gone: Cell<bool>,
    changed: Notify,
}

impl Peer {
    /// A peer that has just connected.
    #[must_use]
    pub fn new(id: u64, address: SocketAddr, local: SocketAddr, listener: usize) -> Self {
        let (ended, gone) = (Cell::new(false), Cell::new(false));
        Self { id, address, local, listener, ended, gone, changed: Notify::new() }
    }

    /// Whether it has sent its last byte; it may still wait for answers (contract KC.10).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Whether the connection is lost: nothing can be answered any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Ready when it has sent its last byte or is gone.
    pub async fn ended(&self) {
        while !self.ended.get() {
            self.changed.notified().await;
        }
    }

    /// Ready when the connection is lost.
    pub async fn gone(&self) {
        while !self.gone.get() {
            self.changed.notified().await;
        }
    }

    pub(super) fn set_ended(&self) {
        self.ended.set(true);
        self.changed.notify();
    }

    pub(super) fn set_gone(&self) {
        self.gone.set(true);
        self.set_ended();
    }
}
