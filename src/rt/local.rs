//! Waiting for something within one shard: a one-shot value and a notification for any number of waiters.
//!
//! Single-threaded. A waiter that goes away takes its waker with it, so that short tasks can wait on long-lived
//! objects.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// Wakes everything that waits for it. It stores no permit: check the condition, take [`Notify::notified`], check again
/// only if something can run in between; within one shard nothing does before the first poll.
#[derive(Debug, Default)]
pub struct Notify {
    generation: Cell<u64>,
    wakers: RefCell<Slab<Waker>>,
}

impl Notify {
    /// A notification nobody waits for.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes all waiters of now.
    pub fn notify(&self) {
        self.generation.set(self.generation.get().wrapping_add(1));
        if self.wakers.borrow().is_empty() {
            return;
        }
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        for (_, waker) in wakers {
            waker.wake();
        }
    }

    /// Ready at the first [`Notify::notify`] after this call.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, generation: self.generation.get(), key: None }
    }

    /// How many wait now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.wakers.borrow().len()
    }
}

/// The wait of [`Notify::notified`].
#[derive(Debug)]
pub struct Notified<'a> {
    notify: &'a Notify,
    generation: u64,
    key: Option<usize>,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.notify.generation.get() != self.generation {
            // The notification that changed the generation has emptied the list this key pointed into.
            self.key = None;
            return Poll::Ready(());
        }
        let mut wakers = self.notify.wakers.borrow_mut();
        match self.key {
            Some(key) => wakers[key].clone_from(cx.waker()),
            None => {
                let key = wakers.insert(cx.waker().clone());
                drop(wakers);
                self.key = Some(key);
            }
        }
        Poll::Pending
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && self.notify.generation.get() == self.generation
        {
            self.notify.wakers.borrow_mut().remove(key);
        }
    }
}

/// Waits for all of them together; their outcomes are in their order. For a few: each that moves has all of the others
/// looked at too.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_pending = false;
        for (future, outcome) in all.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ready) => *outcome = Some(ready),
                Poll::Pending => is_pending = true,
            }
        }
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    all.into_iter().map(|(_, outcome)| outcome.expect("all are ready")).collect()
}

#[derive(Debug)]
struct Cargo<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_gone: bool,
}

/// A value that one task hands to another of the same shard, once.
#[must_use]
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let cargo = Rc::new(RefCell::new(Cargo { value: None, waker: None, sender_gone: false }));
    (OneshotSender(cargo.clone()), OneshotReceiver(cargo))
}

/// The giving end; dropped unused, the receiver gets `None`.
#[derive(Debug)]
pub struct OneshotSender<T>(Rc<RefCell<Cargo<T>>>);

impl<T> OneshotSender<T> {
    /// Hands over the value. It is dropped if the receiver has gone.
    pub fn send(self, value: T) {
        self.0.borrow_mut().value = Some(value);
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut cargo = self.0.borrow_mut();
            cargo.sender_gone = true;
            cargo.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The taking end.
#[derive(Debug)]
pub struct OneshotReceiver<T>(Rc<RefCell<Cargo<T>>>);

impl<T> Future for OneshotReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut cargo = self.0.borrow_mut();
        if let Some(value) = cargo.value.take() {
            return Poll::Ready(Some(value));
        }
        if cargo.sender_gone {
            return Poll::Ready(None);
        }
        cargo.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_notification_wakes_all_waiters_of_before_and_none_of_after() {
        let notify = Notify::new();
        let mut first = pin!(notify.notified());
        let mut second = pin!(notify.notified());
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        assert_eq!(notify.waiters(), 2);
        notify.notify();
        let mut third = pin!(notify.notified());
        assert!(poll(first).is_ready());
        assert!(poll(second).is_ready());
        assert!(poll(third.as_mut()).is_pending());
        assert_eq!(notify.waiters(), 1);
    }

    #[test]
    fn a_notification_between_the_call_and_the_first_poll_counts() {
        let notify = Notify::new();
        let waiting = pin!(notify.notified());
        notify.notify();
        assert!(poll(waiting).is_ready());
    }

    #[test]
    fn a_waiter_that_leaves_takes_its_waker_along() {
        let notify = Notify::new();
        for _ in 0..1000 {
            let mut waiting = Box::pin(notify.notified());
            assert!(poll(waiting.as_mut()).is_pending());
        }
        assert_eq!(notify.waiters(), 0);
        let mut old = Box::pin(notify.notified());
        assert!(poll(old.as_mut()).is_pending());
        notify.notify();
        let mut new = Box::pin(notify.notified());
        assert!(poll(new.as_mut()).is_pending());
        drop(old);
        assert_eq!(notify.waiters(), 1, "a woken waiter must not remove the one that took its place");
    }

    #[test]
    fn a_oneshot_delivers_once_and_reports_a_sender_that_left() {
        let (sender, receiver) = oneshot();
        let mut receiver = pin!(receiver);
        assert!(poll(receiver.as_mut()).is_pending());
        sender.send(7);
        assert_eq!(poll(receiver), Poll::Ready(Some(7)));
        let (sender, receiver) = oneshot::<u8>();
        drop(sender);
        assert_eq!(poll(pin!(receiver)), Poll::Ready(None));
    }
}
