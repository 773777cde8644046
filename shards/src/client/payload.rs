//! Bytes of a batch on its way: finished by whoever first asks for them.
//!
//! A batch gets its sequence while its machine decides, and whoever calls the machine waits for that. Compression and
//! checksum take longer than all of the deciding, and need nothing of the machine: they are done where the bytes are
//! put on a connection.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use crate::batch::BatchBuilder;

/// The bytes of one batch, shared by its machine and the requests that it is in.
#[derive(Clone)]
pub struct Payload(Arc<Inner>);

struct Inner {
    finished: OnceLock<Bytes>,
    /// What they are made of; `None` from then on.
    unfinished: Mutex<Option<BatchBuilder>>,
}

impl Payload {
    /// A batch that has all its records and its stamp.
    pub(super) fn of(batch: BatchBuilder) -> Self {
        Self(Arc::new(Inner { finished: OnceLock::new(), unfinished: Mutex::new(Some(batch)) }))
    }

    /// A batch that is finished.
    #[must_use]
    pub fn finished(bytes: Vec<u8>) -> Self {
        let finished = OnceLock::from(Bytes::from(bytes));
        Self(Arc::new(Inner { finished, unfinished: Mutex::new(None) }))
    }

    /// The bytes to send, the same each time.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        self.0.finished.get_or_init(|| {
            let batch = self.0.unfinished.lock().unwrap_or_else(PoisonError::into_inner).take();
            Bytes::from(batch.expect("it is finished once").build())
        })
    }

    /// The bytes of a batch that goes out under another stamp.
    pub(super) fn into_vec(self) -> Vec<u8> {
        let bytes = self.bytes().clone();
        drop(self);
        Vec::from(bytes)
    }

    /// The memory, empty, if nobody else has it.
    pub(super) fn into_memory(self) -> Option<Vec<u8>> {
        let bytes = Arc::into_inner(self.0)?.finished.into_inner()?;
        let mut bytes = bytes.try_into_mut().ok()?;
        bytes.clear();
        Some(Vec::from(bytes))
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Payload").field(&self.0.finished.get().map(Bytes::len)).finish()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Payload {}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> BatchBuilder {
        BatchBuilder::new().producer(7, 1, 5).records(3)
    }

    #[test]
    fn it_is_the_finished_batch_for_everybody_who_asks() {
        let payload = Payload::of(batch());
        let other = payload.clone();
        assert_eq!(&payload.bytes()[..], batch().build());
        assert_eq!(other.bytes().as_ptr(), payload.bytes().as_ptr(), "it is finished once");
        assert_eq!(payload, Payload::finished(batch().build()));
    }

    #[test]
    fn memory_comes_back_only_when_nobody_has_it() {
        let payload = Payload::of(batch());
        let length = payload.bytes().len();
        let request = payload.clone();
        assert!(payload.into_memory().is_none(), "a request has it");
        let sent = request.bytes().clone();
        assert!(request.into_memory().is_none(), "its bytes are being sent");
        let memory = Payload::finished(Vec::from(sent)).into_memory().expect("nobody else has it");
        assert!(memory.is_empty() && memory.capacity() >= length);
    }

    #[test]
    fn another_stamp_does_not_change_what_was_sent() {
        let payload = Payload::of(batch());
        let sent = payload.clone();
        let mut again = payload.into_vec();
        again.fill(0);
        assert_eq!(&sent.bytes()[..], batch().build());
    }
}
