//! Transactions under a seeded scheduler: the coordinators, partitions, producers and groups of two shards with
//! everything that their edges do, as messages and durable steps of which chance takes one after the other.
//!
//! Around them: producers of both paths in several instances, lost connections, crashes between any two steps, journals
//! that are torn or full, checkpoints, timeouts, a clock that jumps, partitions that are opened late, and readers at
//! read_committed. [`truth`] checks
//! invariants I1 to I5 of contract F85. A simulator that cannot fail proves nothing: with a [`Mutation`] one durable
//! step is said to be done before it is, and that has to be noticed.

mod checks;
mod client;
mod disks;
mod edges;
mod logs;
mod messages;
mod opening;
mod produce;
mod reconcile;
mod truth;
mod world;

use std::cell::Cell;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::Once;

pub use world::{Mutation, Totals};

/// Steps of one run.
const STEPS: usize = 6_000;

/// One run; panics if an invariant does not hold.
pub fn run(seed: u64, mutation: Option<Mutation>) -> Totals {
    let mut world = world::World::new(seed, mutation);
    for _ in 0..STEPS {
        world.step();
    }
    world.finish()
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What a run with a mutation fails of, if it does.
pub fn failure(seed: u64, mutation: Mutation) -> Option<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                loud(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let failed = catch_unwind(|| run(seed, Some(mutation))).err();
    IS_QUIET.set(false);
    let text = failed?.downcast::<String>().map_or_else(|_| "an assertion".to_owned(), |text| *text);
    Some(text.chars().take(100).collect())
}
