//! The budget of bytes that requests in work may hold: one for the shard, one for each connection.
//!
//! A frame is read only after its bytes were reserved; without budget it stays with the client's kernel. A large frame
//! reserves its first step on its length alone and the rest when that much has arrived, so that a length costs its
//! sender bytes. Frames that have begun go before frames that have not, each kind first come, first served. One frame
//! at a time may pass the budget: the eldest that has begun. So frames larger than the budget pass, and begun frames
//! that together hold all of it cannot wait for each other. What is in work is at most the budget and one frame.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::rt::Notify;

/// A shard's budget.
#[derive(Debug)]
pub struct Budget {
    capacity: usize,
    used: Cell<usize>,
    elder_out: Cell<bool>,
    begun: RefCell<VecDeque<Rc<Waiter>>>,
    fresh: RefCell<VecDeque<Rc<Waiter>>>,
}

/// A frame in line.
#[derive(Debug)]
pub struct Waiter {
    bytes: usize,
    granted: Cell<Option<Grant>>,
    share: Rc<Share>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    elder: bool,
}

/// A connection's part: what it has in work, and the notification its reader waits on.
#[derive(Debug, Default)]
pub struct Share {
    /// Bytes of its requests that are read or in work.
    pub in_work: Cell<usize>,
    /// Told when there may be room again.
    pub room: Notify,
}

impl Budget {
    /// A budget of `capacity` bytes, all free.
    pub fn new(capacity: usize) -> Rc<Self> {
        assert!(capacity > 0, "without budget nothing is ever read");
        Rc::new(Self {
            capacity,
            used: Cell::new(0),
            elder_out: Cell::new(false),
            begun: RefCell::default(),
            fresh: RefCell::default(),
        })
    }

    /// Bytes not reserved.
    pub fn free(&self) -> usize {
        self.capacity.saturating_sub(self.used.get())
    }

    /// Whether a frame waits.
    pub fn has_waiters(&self) -> bool {
        !self.fresh.borrow().is_empty() || !self.begun.borrow().is_empty()
    }

    /// The largest first step that this budget can grant.
    pub fn step(&self, bytes: usize) -> usize {
        bytes.min(self.capacity)
    }

    /// Reserves now, or stands in line. `begun`: the frame holds a reservation already.
    pub fn ask(self: &Rc<Self>, bytes: usize, begun: bool, share: &Rc<Share>) -> Rc<Waiter> {
        let waiter = Rc::new(Waiter { bytes, granted: Cell::new(None), share: share.clone() });
        let line = if begun { &self.begun } else { &self.fresh };
        line.borrow_mut().push_back(waiter.clone());
        self.grant();
        waiter
    }

    /// What `waiter` was granted; `None` while it is in line.
    pub fn take(self: &Rc<Self>, waiter: &Waiter) -> Option<Reserved> {
        let Grant { elder } = waiter.granted.take()?;
        Some(Reserved { budget: self.clone(), bytes: waiter.bytes, elder })
    }

    /// Leaves the line, or gives back what was granted meanwhile.
    pub fn forget(self: &Rc<Self>, waiter: &Rc<Waiter>) {
        drop(self.take(waiter));
        for line in [&self.begun, &self.fresh] {
            line.borrow_mut().retain(|other| !Rc::ptr_eq(other, waiter));
        }
        self.grant();
    }

    fn grant(&self) {
        loop {
            let begun = self.begun.borrow().front().cloned();
            let waiter = match begun {
                Some(waiter) if waiter.bytes <= self.free() => {
                    self.give(&self.begun, &waiter, false);
                    waiter
                }
                Some(waiter) if !self.elder_out.get() => {
                    self.give(&self.begun, &waiter, true);
                    waiter
                }
                Some(_) => return,
                None => {
                    let fresh = self.fresh.borrow().front().cloned();
                    let Some(waiter) = fresh.filter(|waiter| waiter.bytes <= self.free()) else { return };
                    self.give(&self.fresh, &waiter, false);
                    waiter
                }
            };
            waiter.share.room.notify();
        }
    }

    fn give(&self, line: &RefCell<VecDeque<Rc<Waiter>>>, waiter: &Waiter, elder: bool) {
        line.borrow_mut().pop_front();
        self.used.set(self.used.get() + waiter.bytes);
        self.elder_out.set(self.elder_out.get() || elder);
        waiter.granted.set(Some(Grant { elder }));
    }
}

/// Bytes taken from a budget until dropped.
#[derive(Debug)]
pub struct Reserved {
    budget: Rc<Budget>,
    bytes: usize,
    elder: bool,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes);
        if self.elder {
            self.budget.elder_out.set(false);
        }
        self.budget.grant();
    }
}

/// What one request holds from its first byte to its answer.
#[derive(Debug)]
pub struct Hold {
    share: Rc<Share>,
    bytes: usize,
    first: Option<Reserved>,
    rest: Option<Reserved>,
}

impl Hold {
    /// Counts a frame of `bytes` to its connection; `first` is its reservation so far.
    pub fn new(share: &Rc<Share>, bytes: usize, first: Reserved) -> Self {
        share.in_work.set(share.in_work.get() + bytes);
        Self { share: share.clone(), bytes, first: Some(first), rest: None }
    }

    /// Adds the reservation of the rest.
    pub fn grow(&mut self, rest: Reserved) {
        self.rest = Some(rest);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.share.in_work.set(self.share.in_work.get() - self.bytes);
        self.first = None;
        self.rest = None;
        self.share.room.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share() -> Rc<Share> {
        Rc::default()
    }

    #[test]
    fn fresh_frames_wait_in_line_and_a_small_one_does_not_overtake() {
        let budget = Budget::new(100);
        let share = share();
        let first = budget.take(&budget.ask(80, false, &share)).expect("free");
        let large = budget.ask(50, false, &share);
        let small = budget.ask(10, false, &share);
        assert!(budget.take(&large).is_none() && budget.take(&small).is_none());
        drop(first);
        let (large, small) = (budget.take(&large), budget.take(&small));
        assert!(large.is_some() && small.is_some());
        assert_eq!(budget.free(), 40);
        drop((large, small));
        assert_eq!(budget.free(), 100);
    }

    #[test]
    fn begun_frames_that_hold_everything_finish_one_by_one() {
        let budget = Budget::new(100);
        let share = share();
        let held: Vec<_> = (0..10).map(|_| budget.take(&budget.ask(10, false, &share)).expect("free")).collect();
        let mut waiting: VecDeque<_> = held.into_iter().map(|held| (held, budget.ask(90, true, &share))).collect();
        while let Some((held, waiter)) = waiting.pop_front() {
            let rest = budget.take(&waiter).expect("the eldest is served");
            assert!(waiting.iter().filter(|(_, waiter)| waiter.granted.get().is_some()).count() <= 1);
            drop((held, rest));
        }
        assert_eq!(budget.free(), 100);
        assert!(!budget.elder_out.get());
    }

    #[test]
    fn a_frame_larger_than_the_budget_passes_and_others_wait_for_it() {
        let budget = Budget::new(100);
        let share = share();
        let first = budget.take(&budget.ask(budget.step(64), false, &share)).expect("free");
        let rest = budget.take(&budget.ask(5000, true, &share)).expect("the eldest may pass the budget");
        let other = budget.ask(1, false, &share);
        assert!(budget.take(&other).is_none());
        drop((first, rest));
        assert!(budget.take(&other).is_some());
    }

    #[test]
    fn who_leaves_the_line_leaves_nothing_behind() {
        let budget = Budget::new(100);
        let share = share();
        let all = budget.take(&budget.ask(100, false, &share)).expect("free");
        let leaving = budget.ask(100, false, &share);
        let staying = budget.ask(10, false, &share);
        budget.forget(&leaving);
        drop(all);
        let granted = budget.ask(20, false, &share);
        budget.forget(&granted);
        drop(budget.take(&staying).expect("next in line"));
        assert_eq!(budget.free(), 100);
        assert!(!budget.has_waiters());
    }
}
