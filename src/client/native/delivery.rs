//! Who waits for the outcome of a record, and how it is told: batch by batch, when the lock of the producer is free
//! again, so that who is told can send the next record at once.
//!
//! Outcomes that are awaited have their places in chunks of [`CHUNK`] records, in the order of sending, so a record
//! allocates nothing of its own. A chunk lives as long as the last [`Delivery`] into it.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use oncilla_shards::client::{ClientFailure, Delivered, Next, Reason, RecordId, Written};
use slab::Slab;

use super::Place;

/// Outcomes of one allocation.
const CHUNK: usize = 64;

/// The outcome of a record.
pub(super) type Outcome = Result<Place, ClientFailure>;

/// What is told when nobody is left who could know: the producer's task has ended with its runtime.
pub(super) fn gone() -> ClientFailure {
    ClientFailure { reason: Reason::Closed, written: Written::Unknown, next: Next::Close }
}

/// Takes the outcomes of records that were sent by [`super::Producer::send_to`], each once.
///
/// It is called in the producer's task, as soon as an answer has been read: it has to be short, and may call the
/// producer. Outcomes of records that are left when the runtime ends are not told.
pub trait Outcomes: Send + Sync {
    /// The outcome of the record with this token.
    fn outcome(&self, token: u64, outcome: Result<Place, ClientFailure>);

    /// The outcomes of records that lie behind each other in one batch, which came to one end: the place is that of
    /// the first one. To be implemented by those for whom one call for each record is too much.
    fn outcomes(&self, tokens: &[u64], first: Result<&Place, &ClientFailure>) {
        for (at, token) in (0..).zip(tokens) {
            self.outcome(*token, first.map(|place| place.after(at)).map_err(Clone::clone));
        }
    }
}

impl Place {
    /// The place so many records behind this one in the same batch.
    #[must_use]
    pub fn after(&self, records: i64) -> Self {
        Self { offset: self.offset.map(|offset| offset + records), ..self.clone() }
    }

    fn of(batch: &Delivered) -> Self {
        Self {
            topic: batch.topic.clone(),
            partition: batch.partition,
            offset: batch.base_offset.map(|offset| offset.0),
            timestamp_ms: batch.timestamp.map(|at| at.0),
        }
    }
}

#[derive(Debug)]
enum Slot {
    /// Who is to be woken.
    Open(Option<Waker>),
    Told(Outcome),
    Taken,
}

/// Places of outcomes.
#[derive(Debug)]
struct Chunk([Mutex<Slot>; CHUNK]);

impl Chunk {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(Slot::Open(None))))
    }

    fn slot(&self, at: usize) -> MutexGuard<'_, Slot> {
        // Nothing that panics is done under it.
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a record, to be awaited. Dropping it changes nothing.
#[derive(Debug)]
pub struct Delivery {
    chunk: Arc<Chunk>,
    at: usize,
}

impl Future for Delivery {
    type Output = Result<Place, ClientFailure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.chunk.slot(self.at);
        if let Slot::Open(waker) = &mut *slot {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *slot, Slot::Taken) {
            Slot::Told(outcome) => Poll::Ready(outcome),
            _ => panic!("an outcome is there once"),
        }
    }
}

/// The other side of a [`Delivery`]. Dropped without an outcome it says that nobody knows.
#[derive(Debug)]
struct Teller {
    chunk: Arc<Chunk>,
    at: usize,
}

impl Teller {
    fn tell(&self, outcome: Outcome) {
        let mut slot = self.chunk.slot(self.at);
        let Slot::Open(waker) = &mut *slot else { return };
        let waker = waker.take();
        *slot = Slot::Told(outcome);
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.tell(Err(gone()));
    }
}

#[derive(Debug, Default)]
enum Waiting {
    /// It was told.
    #[default]
    Nobody,
    Awaited(Teller),
    /// With the key of its taker.
    Told(u64, usize),
}

/// Who takes outcomes of records that were sent one behind the other, and how many of them.
struct Taker {
    outcomes: Arc<dyn Outcomes>,
    records: usize,
}

/// Who waits for the outcome of which record. Numbers of records are dense, so a place in a queue finds them.
#[derive(Default)]
pub(super) struct Deliveries {
    /// Number of the record in front.
    first: u64,
    waiting: VecDeque<Waiting>,
    /// The chunk of the next record that is awaited, and its place there.
    chunk: Option<(Arc<Chunk>, usize)>,
    takers: Slab<Taker>,
    last_taker: usize,
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries").field("first", &self.first).field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Deliveries {
    fn push(&mut self, id: RecordId, waiting: Waiting) {
        assert_eq!(id.0, self.first + self.waiting.len() as u64, "records are numbered one by one");
        self.waiting.push_back(waiting);
    }

    /// The outcome of this record will be awaited.
    pub fn awaited(&mut self, id: RecordId) -> Delivery {
        let (chunk, at) = self.chunk.take().unwrap_or_else(|| (Arc::new(Chunk::new()), 0));
        if at + 1 < CHUNK {
            self.chunk = Some((chunk.clone(), at + 1));
        }
        self.push(id, Waiting::Awaited(Teller { chunk: chunk.clone(), at }));
        Delivery { chunk, at }
    }

    /// The outcome of this record will be told under a token.
    pub fn told(&mut self, id: RecordId, token: u64, outcomes: &Arc<dyn Outcomes>) {
        let last = self.takers.get(self.last_taker);
        if !last.is_some_and(|taker| Arc::ptr_eq(&taker.outcomes, outcomes)) {
            self.last_taker = self.takers.insert(Taker { outcomes: outcomes.clone(), records: 0 });
        }
        self.takers[self.last_taker].records += 1;
        self.push(id, Waiting::Told(token, self.last_taker));
    }

    /// Takes out who waits for the records of a batch.
    pub fn take(&mut self, records: &[RecordId], outcome: Result<Delivered, ClientFailure>) -> Telling {
        let mut telling = Telling { outcome, runs: Vec::new(), awaited: Vec::new() };
        for (at, id) in records.iter().enumerate() {
            let place = id.0.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
            match place.and_then(|place| self.waiting.get_mut(place)).map(std::mem::take) {
                None | Some(Waiting::Nobody) => {}
                Some(Waiting::Awaited(teller)) => telling.awaited.push((at as i64, teller)),
                Some(Waiting::Told(token, key)) => {
                    let taker = &mut self.takers[key];
                    taker.records -= 1;
                    telling.add(at, token, &taker.outcomes);
                    if taker.records == 0 {
                        self.takers.remove(key);
                    }
                }
            }
        }
        while let Some(Waiting::Nobody) = self.waiting.front() {
            self.waiting.pop_front();
            self.first += 1;
        }
        telling
    }
}

/// Records that lie behind each other in a batch, and have one taker.
struct Run {
    at: usize,
    tokens: Vec<u64>,
    outcomes: Arc<dyn Outcomes>,
}

/// The outcome of a batch, to be told without the lock.
pub(super) struct Telling {
    outcome: Result<Delivered, ClientFailure>,
    runs: Vec<Run>,
    /// By number in the batch.
    awaited: Vec<(i64, Teller)>,
}

impl Telling {
    fn add(&mut self, at: usize, token: u64, outcomes: &Arc<dyn Outcomes>) {
        match self.runs.last_mut() {
            Some(run) if run.at + run.tokens.len() == at && Arc::ptr_eq(&run.outcomes, outcomes) => {
                run.tokens.push(token);
            }
            _ => self.runs.push(Run { at, tokens: vec![token], outcomes: outcomes.clone() }),
        }
    }

    pub fn tell(self) {
        let outcome = self.outcome.map(|batch| Place::of(&batch));
        for Run { at, tokens, outcomes } in self.runs {
            match &outcome {
                Ok(first) if at == 0 => outcomes.outcomes(&tokens, Ok(first)),
                Ok(first) => outcomes.outcomes(&tokens, Ok(&first.after(at as i64))),
                Err(failure) => outcomes.outcomes(&tokens, Err(failure)),
            }
        }
        for (at, teller) in self.awaited {
            teller.tell(outcome.as_ref().map(|first| first.after(at)).map_err(Clone::clone));
        }
    }
}

#[cfg(test)]
mod tests {
    use oncilla_shards::ids::Offset;

    use super::*;

    fn at(offset: i64) -> Result<Delivered, ClientFailure> {
        Ok(Delivered { topic: "t".into(), partition: 1, base_offset: Some(Offset(offset)), timestamp: None })
    }

    fn poll(delivery: &mut Delivery) -> Poll<Option<i64>> {
        let polled = Pin::new(delivery).poll(&mut Context::from_waker(Waker::noop()));
        polled.map(|outcome| outcome.ok().and_then(|place| place.offset))
    }

    #[derive(Default)]
    struct Noted(Mutex<Vec<(u64, Option<i64>)>>);

    impl Outcomes for Noted {
        fn outcome(&self, token: u64, outcome: Outcome) {
            self.0.lock().expect("no panic").push((token, outcome.ok().and_then(|place| place.offset)));
        }
    }

    impl Noted {
        fn take(&self) -> Vec<(u64, Option<i64>)> {
            std::mem::take(&mut self.0.lock().expect("no panic"))
        }
    }

    #[test]
    fn every_record_has_the_outcome_of_its_own_batch_over_all_chunks() {
        let mut deliveries = Deliveries::default();
        let mut all: Vec<_> = (0..3 * CHUNK as u64).map(|id| deliveries.awaited(RecordId(id))).collect();
        let (odd, even): (Vec<_>, Vec<_>) = (0..3 * CHUNK as u64).map(RecordId).partition(|id| id.0 % 2 == 1);
        deliveries.take(&odd, at(1000)).tell();
        assert_eq!(poll(&mut all[0]), Poll::Pending);
        assert_eq!(deliveries.waiting.len(), 3 * CHUNK, "the record in front has no outcome");
        deliveries.take(&even, at(2000)).tell();
        for (id, delivery) in all.iter_mut().enumerate() {
            let base = if id % 2 == 1 { 1000 } else { 2000 };
            assert_eq!(poll(delivery), Poll::Ready(Some(base + (id / 2) as i64)), "{id}");
        }
        assert!(deliveries.waiting.is_empty());
        assert!(deliveries.take(&odd, at(0)).awaited.is_empty(), "each is told once");
    }

    #[test]
    fn who_is_left_when_the_producer_ends_is_told_so() {
        let mut deliveries = Deliveries::default();
        let mut delivery = deliveries.awaited(RecordId(0));
        assert!(poll(&mut delivery).is_pending());
        drop(deliveries);
        let outcome = Pin::new(&mut delivery).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(outcome, Poll::Ready(Err(gone())));
    }

    #[test]
    fn a_batch_of_several_takers_tells_each_its_own() {
        let mut deliveries = Deliveries::default();
        let noted = [Arc::new(Noted::default()), Arc::new(Noted::default())];
        let outcomes = noted.clone().map(|noted| -> Arc<dyn Outcomes> { noted });
        let mut awaited = None;
        for id in 0..6 {
            match id {
                3 => awaited = Some(deliveries.awaited(RecordId(id))),
                _ => deliveries.told(RecordId(id), id * 10, &outcomes[usize::from(id == 2)]),
            }
        }
        let ids: Vec<RecordId> = (0..6).map(RecordId).collect();
        deliveries.take(&ids[..5], at(70)).tell();
        assert_eq!(noted[0].take(), [(0, Some(70)), (10, Some(71)), (40, Some(74))]);
        assert_eq!(noted[1].take(), [(20, Some(72))]);
        assert_eq!(poll(awaited.as_mut().expect("it was sent")), Poll::Ready(Some(73)));
        deliveries.take(&ids[5..], Err(gone())).tell();
        assert_eq!(noted[0].take(), [(50, None)]);
        assert!(deliveries.takers.is_empty(), "nobody is remembered for whom there is nothing left");
        assert_eq!(Arc::strong_count(&noted[0]), 2, "here and in the list above");
    }
}
