//! A start that serves before everything is open, seen from the requests and from the files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use oncilla_shards::batch::ControlKind;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{Offset, ProducerEpoch, ProducerId};
use oncilla_shards::image::Change;
use oncilla_shards::partition::EndMarker;

use super::*;
use crate::api::testing::restarted;
use crate::disk::layout::LOG_START_NAME;
use crate::disk::snapshot_file;
use crate::partitions::tests::{KEY, append_durably, delete, nothing_is_left, with_topic};
use crate::partitions::{read, write_markers};
use crate::topics_writer;

/// The shard after a crash, with what it found on the disk noted and nothing open.
fn crashed(ctx: &Rc<Ctx>) -> Rc<Ctx> {
    ctx.files.forget(&KEY);
    let next = restarted(ctx);
    expect_all(&next).expect("listed");
    assert_eq!(next.shard.borrow().opening.left(), 1);
    next
}

async fn is_open_soon(ctx: &Rc<Ctx>) {
    assert!(Openers::start(ctx).expect("threads").open_most(ctx).await.expect("it recovers"));
}

fn marker() -> EndMarker {
    EndMarker {
        producer_id: ProducerId(7),
        epoch: ProducerEpoch(0),
        coordinator_epoch: 1,
        transaction_version: 0,
        kind: ControlKind::Abort,
    }
}

async fn reads(ctx: &Rc<Ctx>) -> Result<usize, ErrorCode> {
    read(ctx, &KEY, Offset(0), Offset(1), 1 << 20, true).await.map(|batches| batches.len())
}

#[test]
fn a_partition_is_not_led_until_it_is_open_and_then_has_what_was_written() {
    with_topic(|ctx, _| async move {
        append_durably(&ctx).await;
        let next = crashed(&ctx);
        assert_eq!(reads(&next).await, Err(ErrorCode::NotLeaderOrFollower));
        let answers = write_markers(&next, vec![(KEY, marker())]).await;
        assert_eq!(answers[0].code, ErrorCode::NotLeaderOrFollower, "a coordinator sends it again");
        is_open_soon(&next).await;
        assert_eq!(reads(&next).await, Ok(1));
        assert_eq!((next.metrics.partitions.get(), next.metrics.partitions_opening.get()), (1, 0));
    });
}

#[test]
fn what_a_start_had_to_replay_the_next_one_finds_in_a_snapshot() {
    with_topic(|ctx, _| async move {
        append_durably(&ctx).await;
        let directory = ctx.files.directory(&ctx, &KEY).expect("its topic is there");
        let snapshots = || snapshot_file::list_blocking(&directory).expect("listed");
        assert_eq!(snapshots(), []);
        is_open_soon(&crashed(&ctx)).await;
        let [(offset, path)] = &snapshots()[..] else { panic!("{:?}", snapshots()) };
        assert_eq!(*offset, Offset(1));
        let inode = || fs::metadata(path).expect("there").ino();
        let before = inode();
        is_open_soon(&crashed(&ctx)).await;
        assert_eq!(inode(), before, "nothing was replayed, so nothing is written anew");
    });
}

#[test]
fn what_cannot_be_recovered_ends_a_start_that_waits_for_it() {
    with_topic(|ctx, _| async move {
        append_durably(&ctx).await;
        let directory = ctx.files.directory(&ctx, &KEY).expect("its topic is there");
        fs::write(directory.join(LOG_START_NAME), "{").expect("writable");
        let next = crashed(&ctx);
        let openers = &mut Openers::start(&next).expect("threads");
        let error = openers.open_most(&next).await.expect_err("it is damaged");
        assert!(error.to_string().contains(LOG_START_NAME), "{error}");
    });
}

#[test]
fn what_cannot_be_recovered_behind_the_listener_is_not_served() {
    with_topic(|ctx, _| async move {
        append_durably(&ctx).await;
        let directory = ctx.files.directory(&ctx, &KEY).expect("its topic is there");
        fs::write(directory.join(LOG_START_NAME), "{").expect("writable");
        let next = crashed(&ctx);
        Openers::start(&next).expect("threads").open_rest(&next).await;
        assert_eq!(reads(&next).await, Err(ErrorCode::KafkaStorageError));
        assert_eq!(next.metrics.partitions_offline.get(), 1);
        delete(&next).await;
        assert_eq!(reads(&next).await, Err(ErrorCode::UnknownTopicOrPartition));
    });
}

#[test]
fn a_topic_that_is_deleted_before_it_is_open_is_not_opened_and_leaves_no_file() {
    with_topic(|ctx, root| async move {
        append_durably(&ctx).await;
        let next = crashed(&ctx);
        delete(&next).await;
        is_open_soon(&next).await;
        assert!(next.shard.borrow().is_empty());
        nothing_is_left(&root).await;
    });
}

#[test]
fn a_topic_that_is_deleted_while_it_is_recovered_keeps_its_files_until_then() {
    with_topic(|ctx, root| async move {
        append_durably(&ctx).await;
        let next = crashed(&ctx);
        let mut openers = Openers::start(&next).expect("threads");
        assert!(openers.step(&next, |_, error| Err(error)).expect("nothing is done"), "it is handed out");
        let deleting = next.clone();
        crate::rt::spawn(async move { delete(&deleting).await });
        while next.image().topic_by_id(KEY.topic).is_some() {
            sleep(Duration::from_millis(1)).await;
        }
        // Long enough for a removal that does not wait.
        for _ in 0..100 {
            sleep(Duration::from_millis(1)).await;
            let topic = ctx.files.data.topic("t", KEY.topic);
            assert!(topic.exists(), "its files are in use");
        }
        openers.open_rest(&next).await;
        assert!(next.shard.borrow().is_empty());
        nothing_is_left(&root).await;
    });
}

#[test]
fn a_setting_that_changes_before_a_partition_is_open_holds_when_it_is() {
    with_topic(|ctx, _| async move {
        append_durably(&ctx).await;
        let next = crashed(&ctx);
        let overrides = [("retention.bytes".to_owned(), "4321".to_owned())].into();
        let change = Change::SetTopicOverrides { id: KEY.topic, overrides };
        topics_writer::update(&next, |_| (vec![change], ())).await.expect("written");
        is_open_soon(&next).await;
        let shard = next.shard.borrow();
        assert_eq!(shard.partition(&KEY).expect("open").rules().retention_bytes, 4321);
    });
}
