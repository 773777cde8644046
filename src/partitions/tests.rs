//! Partitions whose files are taken away, closed or synced while something uses them.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_lite::future::poll_once;
use oncilla_shards::batch::build::BatchBuilder;
use oncilla_shards::ids::TopicId;
use oncilla_shards::image::Change;
use oncilla_shards::shard::Sent;

use super::*;
use crate::api::testing::ctx_with;
use crate::rt::file::test_block_on;
use crate::rt::{now_ms, sleep};
use crate::topics_writer;

const TOPIC: TopicId = TopicId(7);
pub(super) const KEY: PartitionKey = PartitionKey { topic: TOPIC, index: 0 };
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on a shard with the topic `t`.
pub(super) fn with_topic<F: Future<Output = ()>>(test: impl FnOnce(Rc<Ctx>, std::path::PathBuf) -> F) {
    let (ctx, dir) = ctx_with(|_| {});
    let root = fs::canonicalize(dir.path()).expect("the data directory");
    test_block_on(async {
        fs::create_dir_all(root.join("topics")).expect("creatable");
        let name = "t".to_owned();
        let create =
            Change::CreateTopic { id: TOPIC, name, partitions: 1, placement: 0, overrides: Default::default() };
        topics_writer::update(&ctx, |_| (vec![create], ())).await.expect("written");
        test(ctx, root).await;
    });
}

/// Hands one record to the partition, as a request with acks=0 does; its writer is started.
fn append(ctx: &Rc<Ctx>) {
    let batch = Bytes::from(BatchBuilder::new().record(None, Some(b"v")).build());
    let mut effects = Effects::new();
    let appended = ctx.shard.borrow_mut().append(&KEY, Sent::unchecked(&batch, 9), now_ms(), None, &mut effects);
    assert!(matches!(appended, oncilla_shards::shard::Appended::Waiting(_)), "{appended:?}");
    ctx.carry_out(effects);
}

pub(super) async fn append_durably(ctx: &Rc<Ctx>) {
    append(ctx);
    ctx.files.writing_ended(&[KEY]).await;
    assert_eq!(ctx.partition_view(&KEY).map(|view| view.end), Some(Offset(1)));
}

pub(super) async fn delete(ctx: &Rc<Ctx>) {
    topics_writer::update(ctx, |_| (vec![Change::DeleteTopic { id: TOPIC }], ())).await.expect("written");
}

/// Names of topic files that this process has open.
fn open_files(root: &Path) -> Vec<String> {
    let links = fs::read_dir("/proc/self/fd").expect("readable").flatten();
    let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
    let ours = targets.filter(|target| target.starts_with(root.join("topics")));
    ours.map(|target| target.display().to_string()).collect()
}

/// Files are closed and removed behind the answer, so this may take a moment.
pub(super) async fn nothing_is_left(root: &Path) {
    let began = Instant::now();
    loop {
        let open = open_files(root);
        let files = fs::read_dir(root.join("topics")).expect("readable").count();
        if open.is_empty() && files == 0 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "open: {open:?}; entries: {files}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_topic_that_is_deleted_during_a_write_leaves_no_file_and_none_open() {
    with_topic(|ctx, root| async move {
        append(&ctx);
        assert!(poll_once(pin!(ctx.files.writing_ended(&[KEY]))).await.is_none(), "the write is still to come");
        delete(&ctx).await;
        ctx.files.writing_ended(&[KEY]).await;
        nothing_is_left(&root).await;
    });
}

#[test]
fn a_topic_that_is_deleted_after_it_was_read_from_disk_leaves_no_file_open() {
    with_topic(|ctx, root| async move {
        append_durably(&ctx).await;
        let batches = read(&ctx, &KEY, Offset(0), Offset(1), 1 << 20, true).await.expect("readable");
        assert!(!batches.is_empty());
        assert_eq!(ctx.files.readers.open_files(), 1, "the tail cache holds nothing here");
        delete(&ctx).await;
        assert_eq!(ctx.files.readers.open_files(), 0);
        nothing_is_left(&root).await;
    });
}

#[test]
fn the_first_record_of_a_partition_is_sealed_by_the_close_also_when_nobody_waits_for_it() {
    with_topic(|ctx, _| async move {
        append(&ctx);
        close_all(&ctx).await;
        let directory = ctx.files.directory(&ctx, &KEY).expect("its topic is there");
        let names: Vec<String> = fs::read_dir(&directory)
            .expect("readable")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        assert!(names.contains(&"00000000000000000001.snapshot".to_owned()), "{names:?}");
        assert!(names.iter().any(|name| name.ends_with(".index")), "{names:?}");
        let shard = ctx.shard.borrow();
        assert!(shard.partition(&KEY).is_some_and(|partition| partition.segments().active().is_none()));
    });
}
