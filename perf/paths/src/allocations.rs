//! How often a path asks for memory.
//!
//! [`Counting`] is made the global allocator by each binary that counts. Counts are kept by thread, so that a test
//! harness does not disturb them. A block that grows counts as one more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt;

use crate::{Path, Visit, warm_up};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system allocator, counting.
pub struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches a thread-local cell that needs no
// allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises about the layout are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: memory came from the system allocator with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// What `work` gives, and how often it asked for memory.
pub fn counted<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = work();
    (ALLOCATIONS.with(Cell::get) - before, result)
}

/// A mean over many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hundredths(pub usize);

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// Allocations of each call of [`Path::serve`] in the steady state.
pub fn of(path: &mut impl Path) -> Hundredths {
    const CALLS: usize = 2_000;
    warm_up(path);
    let mut sum = 0;
    for _ in 0..CALLS {
        let mut input = path.prepare();
        let (count, answer) = counted(|| path.serve(&mut input));
        sum += count;
        drop(answer);
    }
    Hundredths(sum * 100 / CALLS)
}

/// Takes down what each path needs that is visited.
#[derive(Debug, Default)]
pub struct Table(pub Vec<(&'static str, Hundredths)>);

impl Visit for Table {
    fn visit<P: Path>(&mut self, name: &'static str, mut path: P) {
        self.0.push((name, of(&mut path)));
    }
}
