//! The one writer of topic metadata: decides on the newest image, makes the next one durable, and hands it to every
//! shard before the answer leaves (contract 0.8).
//!
//! Owner: shard 0; other shards call it over the mesh. Updates are taken one after the other in the order in which they
//! arrived. Failure: when the file cannot be written the old image stays in force everywhere and the update is answered
//! with the error; whether the file has the change is then unknown until the next update replaces it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use oncilla_shards::ids::{BrokerId, ShardId};
use oncilla_shards::image::persist::DecodeError;
use oncilla_shards::image::{BrokerSettings, Change, Image};

use crate::ctx::Ctx;
use crate::disk::DiskError;
use crate::disk::layout::{DataDir, parse_topic_dir_name};
use crate::disk::replace::{replace, replace_blocking};

/// State of the writer on shard 0.
#[derive(Debug)]
pub struct TopicsWriter {
    newest: RefCell<Arc<Image>>,
    turns: Turns,
}

impl TopicsWriter {
    /// A writer that starts from the image of the file.
    pub fn new(image: Arc<Image>) -> Self {
        Self { newest: RefCell::new(image), turns: Turns::default() }
    }
}

/// Decides on the newest image and carries the changes out: durable, and known to every shard, when this returns.
///
/// May be called on any shard; `decide` runs on shard 0.
pub async fn update<T, D>(ctx: &Rc<Ctx>, decide: D) -> Result<T, DiskError>
where
    T: Send + 'static,
    D: FnOnce(&Image) -> (Vec<Change>, T) + Send + 'static,
{
    ctx.call(ShardId(0), |ctx| async move { write(&ctx, decide).await }).await
}

async fn write<T>(ctx: &Rc<Ctx>, decide: impl FnOnce(&Image) -> (Vec<Change>, T)) -> Result<T, DiskError> {
    let writer = &ctx.topics_writer;
    let _turn = writer.turns.wait().await;
    let newest = writer.newest.borrow().clone();
    let (changes, value) = decide(&newest);
    if changes.is_empty() {
        return Ok(value);
    }
    let next = Arc::new(newest.apply(&changes));
    replace(path(&ctx.config.data_dir), next.encode()).await?;
    writer.newest.replace(next.clone());
    install_everywhere(ctx, &next).await;
    remove_deleted(ctx, &changes, &newest).await;
    Ok(value)
}

/// Removes the files of topics that are gone, which every shard has closed.
async fn remove_deleted(ctx: &Rc<Ctx>, changes: &[Change], before: &Image) {
    for change in changes {
        let Change::DeleteTopic { id } = change else { continue };
        let Some(topic) = before.topic_by_id(*id) else { continue };
        let directory = ctx.files.data.topic(&topic.name, *id);
        if let Err(error) = ctx.remover.remove(directory).await {
            tracing::warn!("files of a deleted topic stay until the next start: {error}");
        }
    }
}

/// Removes what is left of topics that were deleted when the broker went down. Blocks; for the start.
pub fn remove_leftovers_blocking(data: &DataDir, image: &Image) -> Result<(), DiskError> {
    let Ok(entries) = fs::read_dir(data.topics()) else { return Ok(()) };
    for entry in entries.flatten() {
        let id = entry.file_name().to_str().and_then(parse_topic_dir_name);
        if id.is_some_and(|id| image.topic_by_id(id).is_none()) {
            tracing::info!(directory = %entry.path().display(), "removing what is left of a deleted topic");
            crate::disk::remove_aside::set_aside_blocking(&entry.path(), crate::disk::layout::DELETED_SUFFIX)?;
        }
    }
    crate::disk::remove_aside::sweep_blocking(&data.topics()).map(drop)
}

async fn install_everywhere(ctx: &Rc<Ctx>, image: &Arc<Image>) {
    let install = |shard| {
        let (ctx, image) = (ctx.clone(), image.clone());
        Box::pin(async move { ctx.call(ShardId(shard), |ctx| async move { ctx.install(image).await }).await })
    };
    let mut waiting: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::with_capacity(usize::from(image.shards));
    for shard in 0..image.shards {
        waiting.push(install(shard));
    }
    poll_fn(|context| {
        waiting.retain_mut(|install| install.as_mut().poll(context).is_pending());
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Why the topics of a data directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file system failed.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// The first file could not be made durable.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is damaged.
    #[error("{path}: {error}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// There are topics, but not the file that tells what they are.
    #[error("{path} is missing, but {topics} is not empty: refusing to start as if there were no topics")]
    Missing {
        /// The file.
        path: PathBuf,
        /// Where the topics are.
        topics: PathBuf,
    },
    /// The directory is another broker's.
    #[error("{path} belongs to broker.id {stored}, this is broker.id {configured}")]
    OtherBroker {
        /// The file.
        path: PathBuf,
        /// Its broker.
        stored: BrokerId,
        /// This one.
        configured: BrokerId,
    },
}

/// Reads the image of a data directory, or makes the first one durable. Blocks; for the start, before anything serves.
pub fn load(
    data_dir: &Path,
    broker_id: BrokerId,
    shards: u16,
    broker: BrokerSettings,
    new_cluster_id: impl FnOnce() -> String,
) -> Result<Image, LoadError> {
    let path = path(data_dir);
    let io = |error| LoadError::Io { path: path.clone(), error };
    match fs::read(&path) {
        Ok(bytes) => {
            let image = Image::decode(&bytes, shards, broker);
            let image = image.map_err(|error| LoadError::Damaged { path: path.clone(), error })?;
            if image.broker_id != broker_id {
                return Err(LoadError::OtherBroker { path, stored: image.broker_id, configured: broker_id });
            }
            Ok(image)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let topics = data_dir.join("topics");
            if fs::read_dir(&topics).is_ok_and(|mut entries| entries.next().is_some()) {
                return Err(LoadError::Missing { path, topics });
            }
            let image = Image::new(&new_cluster_id(), broker_id, shards, broker);
            fs::create_dir_all(path.parent().expect("the file lies in a folder")).map_err(io)?;
            replace_blocking(&path, &image.encode())?;
            Ok(image)
        }
        Err(error) => Err(io(error)),
    }
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("__cluster").join("metadata.json")
}

/// A lock between tasks of one thread that is given in the order of asking.
#[derive(Debug, Default)]
struct Turns {
    taken: Cell<bool>,
    queue: RefCell<VecDeque<Rc<Waiter>>>,
}

#[derive(Debug, Default)]
struct Waiter {
    granted: Cell<bool>,
    gone: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Turns {
    fn wait(&self) -> Wait<'_> {
        let waiter = Rc::new(Waiter::default());
        if self.taken.replace(true) {
            self.queue.borrow_mut().push_back(waiter.clone());
        } else {
            waiter.granted.set(true);
        }
        Wait { turns: self, waiter, passed: false }
    }

    fn next(&self) {
        loop {
            let Some(waiter) = self.queue.borrow_mut().pop_front() else {
                self.taken.set(false);
                return;
            };
            if !waiter.gone.get() {
                waiter.granted.set(true);
                if let Some(waker) = waiter.waker.take() {
                    waker.wake();
                }
                return;
            }
        }
    }
}

/// Waits for a turn; gives it on if it is dropped before it was used.
struct Wait<'a> {
    turns: &'a Turns,
    waiter: Rc<Waiter>,
    passed: bool,
}

impl<'a> Future for Wait<'a> {
    type Output = Turn<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn<'a>> {
        if self.waiter.granted.get() {
            self.passed = true;
            return Poll::Ready(Turn(self.turns));
        }
        self.waiter.waker.replace(Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waiter.gone.set(true);
        if self.waiter.granted.get() && !self.passed {
            self.turns.next();
        }
    }
}

/// The turn; the next one begins when it is dropped.
struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.next();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::poll_once;
    use oncilla_shards::ids::TopicId;

    use super::*;
    use crate::api::testing;
    use crate::rt::file::test_block_on as block_on;

    fn create(id: u128, name: &str) -> Vec<Change> {
        let (name, overrides) = (name.to_owned(), Default::default());
        vec![Change::CreateTopic { id: TopicId(id), name, partitions: 1, placement: 0, overrides }]
    }

    #[test]
    fn an_update_is_in_the_file_and_on_the_shard_when_it_is_answered() {
        let (ctx, dir) = testing::ctx();
        block_on(update(&ctx, |image| (create(7, "t"), image.version))).expect("written");
        assert!(ctx.image().topic("t").is_some());
        let load = || load(dir.path(), BrokerId(0), 1, BrokerSettings::default(), || unreachable!("there is one"));
        assert_eq!(load().expect("readable"), *ctx.image());
    }

    #[test]
    fn a_failed_write_leaves_the_old_image_in_force() {
        let (ctx, dir) = testing::ctx();
        let folder = dir.path().join("__cluster");
        fs::remove_dir_all(&folder).expect("removable");
        block_on(update(&ctx, |_| (create(7, "t"), ()))).expect_err("the folder is gone");
        assert!(ctx.image().topic("t").is_none());
        fs::create_dir_all(&folder).expect("creatable");
        block_on(update(&ctx, |image| (create(8, "t"), assert!(image.topic("t").is_none())))).expect("written");
        assert_eq!(ctx.image().topic("t").map(|topic| topic.id), Some(TopicId(8)));
    }

    #[test]
    fn topics_without_their_metadata_stop_the_start() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(dir.path().join("topics/t.AAAAAAAAAAAAAAAAAAAAEA")).expect("creatable");
        let id = || "ASNFZ4mrze_-3LqYdlQyEA".to_owned();
        let error = load(dir.path(), BrokerId(0), 1, BrokerSettings::default(), id).expect_err("refused");
        assert!(matches!(error, LoadError::Missing { .. }), "{error}");
    }

    #[test]
    fn another_brokers_directory_and_damage_stop_the_start() {
        let (_, dir) = testing::ctx();
        let load = |broker| load(dir.path(), broker, 1, BrokerSettings::default(), String::new);
        assert!(matches!(load(BrokerId(5)), Err(LoadError::OtherBroker { stored: BrokerId(0), .. })));
        let path = path(dir.path());
        let bytes = fs::read(&path).expect("readable");
        fs::write(&path, &bytes[..bytes.len() - 5]).expect("writable");
        assert!(matches!(load(BrokerId(0)), Err(LoadError::Damaged { error: DecodeError::Form, .. })));
    }

    #[test]
    fn turns_are_given_in_order_and_an_abandoned_one_is_passed_on() {
        block_on(async {
            let turns = Turns::default();
            let first = turns.wait().await;
            let mut second = pin!(turns.wait());
            let abandoned = turns.wait();
            let mut fourth = pin!(turns.wait());
            assert!(poll_once(second.as_mut()).await.is_none());
            assert!(poll_once(fourth.as_mut()).await.is_none());
            drop(first);
            assert!(poll_once(fourth.as_mut()).await.is_none(), "the second is before it");
            let second = poll_once(second.as_mut()).await.expect("its turn");
            drop(abandoned);
            drop(second);
            drop(poll_once(fourth.as_mut()).await.expect("its turn"));
            assert!(!turns.taken.get());
        });
    }
}
