//! Opens the partitions of a shard at a start, on threads of their own, while the shard goes on.
//!
//! A start waits for them for `OPEN_WAIT_MS`, which is enough for all that most brokers have. What is not open by then
//! is opened behind the listener, and what clients ask for first (`oncilla_shards::opening`). 10,000 partitions that
//! were killed with 10 GB take 15 s, and took 33 s one after the other: recovery waits for the disk nearly all the
//! time, several times a partition. The threads share the shard's core and yield to it.
//! Failure: while the start waits, a partition that cannot be recovered ends it with the file and the reason; later it
//! is not served (KAFKA_STORAGE_ERROR), and the log says why. Serving it as empty would lose what was acknowledged.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use oncilla_shards::ids::PartitionKey;
use oncilla_shards::image::Topic;
use oncilla_shards::limits::{OPEN_WAIT_MS, OPENERS_PER_SHARD};
use oncilla_shards::partition::Partition;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use super::recover::{Found, Job, recover_blocking};
use super::{owned, rules_of};
use crate::ctx::Ctx;
use crate::disk::layout::parse_partition_dir_name;
use crate::disk::{DiskError, context};
use crate::rt::{now, now_ms, sleep};

/// How often the shard takes over what the threads have done: a fraction of what one partition takes.
const LOOK_MS: u64 = 1;

/// Niceness of the threads: all together they get a fifth of a busy shard's core, and all of an idle one's.
const NICENESS: i32 = 15;

/// Partitions that are handed out: one for each thread, and the next. More would make who asks for one wait longer.
const JOBS_OUT_MAX: usize = 2 * OPENERS_PER_SHARD;

type Done = (Job, Result<Found, DiskError>);

/// Notes every partition of this shard that is on the disk, and serves the others as empty. Blocks for the listings.
pub fn expect_all(ctx: &Rc<Ctx>) -> Result<(), DiskError> {
    let image = ctx.image();
    let node = ctx.node();
    for topic in image.topics() {
        let rules = rules_of(&ctx.config, &image.config_at(topic, node));
        let on_disk = on_disk(ctx, topic)?;
        let mut shard = ctx.shard.borrow_mut();
        for key in owned(ctx, &image, topic) {
            match on_disk.contains(&key.index) {
                true => shard.opening.expect(key),
                false => shard.insert(key, Partition::empty(rules.clone(), ctx.boot_epoch)),
            }
        }
    }
    note_counts(ctx);
    Ok(())
}

/// Indexes of the topic's partitions that have a directory.
fn on_disk(ctx: &Ctx, topic: &Topic) -> Result<HashSet<i32>, DiskError> {
    let directory = ctx.files.data.topic(&topic.name, topic.id);
    if !directory.exists() {
        return Ok(HashSet::new());
    }
    let mut found = HashSet::new();
    for entry in context("list", &directory, fs::read_dir(&directory))? {
        let entry = context("list", &directory, entry)?;
        found.extend(entry.file_name().to_str().and_then(parse_partition_dir_name));
    }
    Ok(found)
}

/// The threads that open the partitions of a shard.
pub struct Openers {
    jobs: Sender<Job>,
    done: Receiver<Done>,
    /// Jobs that were sent and are not done.
    out: usize,
}

impl Openers {
    /// Starts as many threads as there is work for.
    pub fn start(ctx: &Ctx) -> Result<Self, DiskError> {
        let (jobs, queue) = channel::<Job>();
        let (finished, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..OPENERS_PER_SHARD.min(ctx.shard.borrow().opening.left()) {
            let (queue, finished) = (queue.clone(), finished.clone());
            let thread = thread::Builder::new().name("opener".into()).spawn(move || work(&queue, &finished));
            context("start a thread to open partitions", Path::new("topics"), thread)?;
        }
        Ok(Self { jobs, done, out: 0 })
    }

    /// Opens partitions until all are open, or until `OPEN_WAIT_MS` have passed: then the caller has the others opened
    /// by [`Openers::open_rest`].
    ///
    /// # Errors
    /// If a partition cannot be recovered until then.
    pub async fn open_most(&mut self, ctx: &Rc<Ctx>) -> Result<bool, DiskError> {
        let started = now();
        while self.step(ctx, |_, error| Err(error))? {
            if started.elapsed() >= Duration::from_millis(OPEN_WAIT_MS) {
                return Ok(false);
            }
            sleep(Duration::from_millis(LOOK_MS)).await;
        }
        Ok(true)
    }

    /// Opens what is left while the shard serves, until all are open or the broker stops.
    pub async fn open_rest(mut self, ctx: &Rc<Ctx>) {
        let started = now();
        let left = ctx.shard.borrow().opening.left();
        tracing::info!(left, "partitions are opened while the others are served");
        let give_up = |key, error| {
            give_up(ctx, key, &error);
            Ok(())
        };
        while self.step(ctx, give_up).is_ok_and(|goes_on| goes_on) {
            if ctx.stopping.get() {
                return;
            }
            sleep(Duration::from_millis(LOOK_MS)).await;
        }
        tracing::info!(seconds = started.elapsed().as_secs_f32(), "all partitions are open");
    }

    /// Takes over what is done and hands out what comes next; false when nothing is left.
    fn step(
        &mut self,
        ctx: &Rc<Ctx>,
        failed: impl Fn(PartitionKey, DiskError) -> Result<(), DiskError>,
    ) -> Result<bool, DiskError> {
        while let Ok((job, result)) = self.done.try_recv() {
            self.out -= 1;
            ctx.files.writing_ends(&job.key);
            match result {
                Ok(found) => serve(ctx, job.key, found),
                Err(error) => failed(job.key, error)?,
            }
        }
        while self.out < JOBS_OUT_MAX {
            let Some(job) = next_job(ctx) else { break };
            // Until it is done nobody removes the files.
            ctx.files.writing_begins(job.key);
            self.jobs.send(job).expect("the threads live as long as this");
            self.out += 1;
        }
        note_counts(ctx);
        Ok(self.out > 0)
    }
}

fn work(queue: &Mutex<Receiver<Job>>, finished: &Sender<Done>) {
    // Without the right to it the threads are as eager as the shard: slower for its clients, not wrong.
    let _ = setpriority_process(Some(gettid()), NICENESS);
    loop {
        let next = queue.lock().expect("no thread dies with it").recv();
        let Ok(job) = next else { return };
        let found = recover_blocking(&job);
        if finished.send((job, found)).is_err() {
            return;
        }
    }
}

fn next_job(ctx: &Ctx) -> Option<Job> {
    let key = ctx.shard.borrow_mut().opening.take()?;
    let directory = ctx.files.directory(ctx, &key).expect("what is opened has a topic");
    Some(Job { key, directory, producer_ids_max: ctx.config.producer_ids_max })
}

/// Takes a partition over, unless its topic was deleted meanwhile.
fn serve(ctx: &Ctx, key: PartitionKey, found: Found) {
    if !ctx.shard.borrow_mut().opening.opened(&key) {
        return;
    }
    let image = ctx.image();
    let topic = image.topic_by_id(key.topic).expect("what is opened has a topic");
    let rules = rules_of(&ctx.config, &image.config_at(topic, ctx.node()));
    let partition = found.serve(rules, ctx.boot_epoch, now_ms(), ctx.config.producer_id_expiration_ms);
    ctx.shard.borrow_mut().insert(key, partition);
}

fn give_up(ctx: &Ctx, key: PartitionKey, error: &DiskError) {
    if ctx.shard.borrow_mut().opening.failed(key) {
        let image = ctx.image();
        let topic = image.topic_by_id(key.topic).map_or("?", |topic| &topic.name);
        tracing::error!(
            topic,
            partition = key.index,
            "the partition is not served until the broker is restarted: {error}"
        );
        ctx.metrics.partitions_offline.add(1);
    }
}

fn note_counts(ctx: &Ctx) {
    let shard = ctx.shard.borrow();
    ctx.metrics.partitions.set(shard.len() as u64);
    ctx.metrics.partitions_opening.set(shard.opening.left() as u64);
}

/// Opens everything on this thread.
#[cfg(test)]
pub fn open_all_blocking(ctx: &Rc<Ctx>) -> Result<(), DiskError> {
    expect_all(ctx)?;
    while let Some(job) = next_job(ctx) {
        serve(ctx, job.key, recover_blocking(&job)?);
    }
    Ok(())
}

#[cfg(test)]
#[path = "opening_tests.rs"]
mod tests;
