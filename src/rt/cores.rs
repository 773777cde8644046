//! Shards on cores: how many, on which, and the thread of each.
//!
//! A shard is one thread pinned to one core with one executor. Every shard has a heartbeat: the executor can go to
//! sleep with runnable tasks when its preemption timer fires early, and only another timer gets it out of that.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::num::NonZero;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement, PoolPlacement};
use oncilla_shards::ids::ShardId;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::clock::every;

/// Period of the heartbeat, and with it the longest sleep of a shard.
const HEARTBEAT_MS: u64 = 5;

/// Entries of each ring. The kernel finds what waits for a connection in lists, one for every 16 entries (256 at most),
/// and looks through one of them for each timer that the executor cancels, which it does whenever it wakes up. With the
/// executor's own 128 entries there were 8 lists, and 10,000 idle connections took 40 % of the broker's processor
/// time. More than 1024 would need more locked memory than the 512 KiB a core that `preflight` asks for.
const RING_ENTRIES: usize = 1024;

/// Registered memory of each ring. Only direct I/O through the executor's own buffers needs more than the minimum.
const IO_MEMORY_BYTES: usize = 64 << 10;

/// The cores that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    cpus: Vec<usize>,
    usable: usize,
}

impl Cores {
    /// Asks the kernel: the affinity mask says which cores, the cgroup quota how many of them.
    pub fn discover() -> std::io::Result<Self> {
        let mask = sched_getaffinity(None)?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect();
        let usable = std::thread::available_parallelism().map_or(1, NonZero::get).min(cpus.len()).max(1);
        Ok(Self { cpus, usable })
    }

    /// How many shards this machine carries.
    #[must_use]
    pub fn usable(&self) -> usize {
        self.usable
    }

    /// The core of `shard` out of `shards`; `None` when there are more shards than cores and none is pinned.
    #[must_use]
    pub fn cpu_of(&self, shard: ShardId, shards: u16) -> Option<usize> {
        if usize::from(shards) > self.cpus.len() { None } else { self.cpus.get(usize::from(shard.0)).copied() }
    }
}

/// How a shard's thread is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardOptions {
    /// Core to pin to; `None` leaves it to the kernel, and then nothing spins.
    pub cpu: Option<usize>,
    /// How long an idle shard polls before it sleeps (`poll.spin.us`).
    pub spin_us: u64,
    /// The executor's own preemption timer, for tests; `None` for its default of 100 ms.
    pub preempt_ms: Option<u64>,
}

/// The thread of one shard.
pub struct ShardThread<T: Send + 'static>(glommio::ExecutorJoinHandle<T>);

impl<T: Send + 'static> fmt::Debug for ShardThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShardThread")
    }
}

impl<T: Send + 'static> ShardThread<T> {
    /// Waits for the end of the thread. An executor that could not start says so here.
    pub fn join(self) -> Result<T, String> {
        self.0.join().map_err(|error| error.to_string())
    }
}

thread_local! {
    static AT_END: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `hook` on this shard's thread after its main has ended. Tasks that still run then are not always dropped with
/// the executor, so nothing that others wait for may hang on their destructors.
pub(super) fn at_end(hook: impl FnOnce() + 'static) {
    AT_END.with_borrow_mut(|hooks| hooks.push(Box::new(hook)));
}

/// Starts the thread of one shard and runs `main` on it; what `main` leaves running ends with it.
pub fn start_shard<T, F>(
    id: ShardId,
    options: ShardOptions,
    main: impl FnOnce() -> F + Send + 'static,
) -> Result<ShardThread<T>, String>
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let placement = options.cpu.map_or(Placement::Unbound, Placement::Fixed);
    let mut builder = LocalExecutorBuilder::new(placement)
        .name(&format!("shard-{id}"))
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_ENTRIES)
        // Its own choice would put the blocking threads of all shards on the first core.
        .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
        .spin_before_park(Duration::from_micros(options.spin_us));
    if let Some(preempt_ms) = options.preempt_ms {
        builder = builder.preempt_timer(Duration::from_millis(preempt_ms));
    }
    builder
        .spawn(move || async move {
            every(Duration::from_millis(HEARTBEAT_MS), || true);
            let result = main().await;
            for hook in AT_END.take() {
                hook();
            }
            result
        })
        .map(ShardThread)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_get_distinct_cores_and_none_is_pinned_when_they_do_not_fit() {
        let cores = Cores { cpus: vec![2, 5, 7], usable: 3 };
        assert_eq!((0..3).map(|k| cores.cpu_of(ShardId(k), 3)).collect::<Vec<_>>(), [Some(2), Some(5), Some(7)]);
        assert_eq!(cores.cpu_of(ShardId(0), 4), None);
    }

    #[test]
    fn this_machine_has_cores() {
        let cores = Cores::discover().expect("the affinity mask");
        assert!(cores.usable() >= 1 && cores.cpu_of(ShardId(0), 1).is_some());
    }

    #[test]
    fn a_shard_runs_its_main_and_hands_back_what_it_returns() {
        let thread = start_shard(ShardId(0), ShardOptions::default(), || async {
            super::super::sleep(Duration::from_millis(1)).await;
            41 + 1
        });
        assert_eq!(thread.expect("a thread").join(), Ok(42));
    }
}
