//! Transactions on real files: what a start, a damaged list and a clean leave of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use oncilla_shards::batch::records::Records;
use oncilla_shards::batch::{AppendRules, BatchBuilder, ControlKind, headers};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{ProducerEpoch, ProducerId, TopicId};
use oncilla_shards::image::Change;
use oncilla_shards::partition::EndMarker;
use oncilla_shards::shard::Sent;

use super::*;
use crate::api::testing::{ctx_with, restarted};
use crate::rt::file::test_block_on;
use crate::rt::now_ms;
use crate::topics_writer;

const TOPIC: TopicId = TopicId(7);
const KEY: PartitionKey = PartitionKey { topic: TOPIC, index: 0 };

/// Runs a test on a shard with the topic `t`, whose segments hold a few batches.
fn with_topic<F: Future<Output = ()>>(overrides: &[(&str, &str)], test: impl FnOnce(Rc<Ctx>, PathBuf) -> F) {
    let (ctx, _dir) = ctx_with(|config| {
        config.producer_id_expiration_ms = i64::MAX;
        config.producer_ids_max = 100;
    });
    let overrides = overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    test_block_on(async {
        fs::create_dir_all(ctx.files.data.topics()).expect("creatable");
        let create = Change::CreateTopic { id: TOPIC, name: "t".to_owned(), partitions: 1, placement: 0, overrides };
        topics_writer::update(&ctx, |_| (vec![create], ())).await.expect("written");
        let directory = ctx.files.directory(&ctx, &KEY).expect("its topic is there");
        small_segments(&ctx);
        test(ctx, directory).await;
    });
}

fn small_segments(ctx: &Ctx) {
    let mut shard = ctx.shard.borrow_mut();
    let partition = shard.partition_mut(&KEY).expect("open");
    let rules = partition.rules().clone();
    let append = AppendRules { segment_bytes: 300, ..rules.append };
    partition.set_rules(LogRules { append, ..rules });
}

/// Writes one record of a transaction, durably.
async fn write(ctx: &Rc<Ctx>, producer: i64, sequence: i32, key: &str) {
    let batch = BatchBuilder::new().producer(producer, 0, sequence).transactional();
    let value = format!("{producer}.{sequence}");
    let batch = Bytes::from(batch.record_at(now_ms(), Some(key.as_bytes()), Some(value.as_bytes()), &[]).build());
    let mut effects = Effects::new();
    let appended = ctx.shard.borrow_mut().append(&KEY, Sent::unchecked(&batch, 13), now_ms(), None, &mut effects);
    assert!(matches!(appended, oncilla_shards::shard::Appended::Waiting(_)), "{appended:?}");
    ctx.carry_out(effects);
    ctx.files.writing_ended(&[KEY]).await;
}

async fn end(ctx: &Rc<Ctx>, producer: i64, kind: ControlKind) {
    let (producer_id, epoch) = (ProducerId(producer), ProducerEpoch(0));
    let marker = EndMarker { producer_id, epoch, coordinator_epoch: 1, transaction_version: 0, kind };
    let answers = write_markers(ctx, vec![(KEY, marker)]).await;
    assert_eq!(answers[0].code, ErrorCode::None);
}

/// What a partition tells of its transactions: last stable offset, who is open, and the list of every fetch offset.
#[derive(Debug, PartialEq)]
struct Told {
    stable: i64,
    open: Vec<(i64, i64)>,
    lists: Vec<Vec<(i64, i64, i64)>>,
}

fn told(ctx: &Ctx) -> Told {
    let shard = ctx.shard.borrow();
    let partition = shard.partition(&KEY).expect("open");
    let list = |from: i64| {
        let aborted = partition.aborted(Offset(from), partition.high_watermark());
        aborted.iter().map(|a| (a.producer_id.0, a.first_offset.0, a.marker_offset.0)).collect()
    };
    let open = partition.producers().describe();
    Told {
        stable: partition.last_stable_offset().0,
        open: open.filter_map(|view| Some((view.producer_id.0, view.txn_start_offset?.0))).collect(),
        lists: (0..partition.high_watermark().0).map(list).collect(),
    }
}

/// The values that a client at read_committed keeps, one batch at a time.
async fn visible(ctx: &Rc<Ctx>) -> Vec<String> {
    let stable = Offset(told(ctx).stable);
    let (mut next, mut values) = (Offset(0), Vec::new());
    while next < stable {
        let (chunks, aborted) = read_committed(ctx, &KEY, next, stable, 1, true).await.expect("readable");
        let mut skipped = BTreeSet::new();
        for chunk in chunks {
            let mut at = 0;
            for header in headers(&chunk) {
                let begun = aborted.iter().filter(|a| a.first_offset <= header.last_offset());
                skipped.extend(begun.map(|a| a.producer_id));
                let batch = &chunk[at..at + header.total_bytes()];
                let is_skipped = header.attributes.is_transactional() && skipped.contains(&header.producer_id);
                if !header.attributes.is_control() && !is_skipped {
                    let records = Records::open(batch).expect("opens");
                    let value = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.expect("there")).into_owned();
                    values.extend(records.iter().map(|record| value(record.expect("parses").value)));
                }
                at += header.total_bytes();
                next = header.next_offset();
            }
        }
    }
    values
}

fn lists_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("readable").flatten().map(|entry| entry.path());
    let mut lists: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "txnindex")).collect();
    lists.sort();
    lists
}

/// Transactions that abort, commit and stay open, over many segments.
async fn many_transactions(ctx: &Rc<Ctx>, directory: &Path) {
    write(ctx, 9, 0, "open").await;
    for round in 0..6 {
        write(ctx, 1, round * 2, "a").await;
        write(ctx, 2, round, "b").await;
        write(ctx, 1, round * 2 + 1, "c").await;
        end(ctx, 1, if round % 2 == 0 { ControlKind::Abort } else { ControlKind::Commit }).await;
        end(ctx, 2, if round % 3 == 0 { ControlKind::Abort } else { ControlKind::Commit }).await;
    }
    write(ctx, 3, 0, "open").await;
    settled(ctx, directory).await;
}

/// Waits until what follows rolled segments, behind the appends, is done. A broker that was killed does not go on with
/// it, but one that only plays dead would, in the directory of the next.
async fn settled(ctx: &Ctx, directory: &Path) {
    let (segments, active) = {
        let shard = ctx.shard.borrow();
        let all = shard.partition(&KEY).expect("open").segments().all();
        (all.len(), all.last().map_or(0, |segment| segment.id.base.0))
    };
    let began = std::time::Instant::now();
    loop {
        let names = fs::read_dir(directory).expect("readable").flatten().map(|entry| entry.file_name());
        let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        let snapshots = names.iter().filter_map(|name| name.strip_suffix(".snapshot")?.parse::<i64>().ok());
        let is_behind = snapshots.max().unwrap_or(0) < active || lists_of(directory).len() + 1 < segments;
        if !is_behind && !names.iter().any(|name| name.contains(".tmp-")) {
            return;
        }
        assert!(
            began.elapsed() < std::time::Duration::from_secs(20),
            "{segments} segments, the last at {active}: {names:?}"
        );
        crate::rt::sleep(std::time::Duration::from_millis(2)).await;
    }
}

fn start_again(ctx: &Ctx) -> Rc<Ctx> {
    let again = restarted(ctx);
    open_all_blocking(&again).expect("opens");
    small_segments(&again);
    again
}

#[test]
fn a8_case_133_a_crash_keeps_what_is_open_and_what_was_aborted() {
    with_topic(&[], |ctx, directory| async move {
        many_transactions(&ctx, &directory).await;
        let before = told(&ctx);
        assert_eq!((before.stable, before.open.len()), (0, 2));
        assert!(before.lists[0].len() == 5 && before.lists.last().is_some_and(Vec::is_empty), "{before:?}");
        let crashed = start_again(&ctx);
        assert_eq!(told(&crashed), before, "after a crash");
        let adopts = crashed.shard.borrow().doubted();
        assert_eq!(adopts.iter().map(|adopt| adopt.producer.producer_id.0).collect::<Vec<_>>(), [3, 9]);
        assert!(adopts.iter().all(|adopt| adopt.partitions == [KEY]));
        crashed.shard.borrow_mut().adopted(&adopts[0]);
        assert_eq!(crashed.shard.borrow().doubted(), adopts[1..]);

        let segments = crashed.shard.borrow().partition(&KEY).expect("open").segments().all().len();
        let good: Vec<_> = lists_of(&directory).iter().map(|path| fs::read(path).expect("readable")).collect();
        assert_eq!((good.len(), segments > 3), (segments, true), "one a segment");
        for at in 0..segments {
            for damage in 0..3 {
                let path = &lists_of(&directory)[at];
                match damage {
                    0 => fs::remove_file(path).expect("there"),
                    1 => fs::write(path, &good[at][..good[at].len() - 1]).expect("written"),
                    _ => fs::write(path, good[(at + 1) % segments].clone()).expect("written"),
                }
                assert_eq!(told(&start_again(&crashed)), before, "list {at}, damage {damage}");
                assert_eq!(fs::read(&lists_of(&directory)[at]).expect("readable"), good[at], "it is written anew");
            }
        }
        lists_of(&directory).iter().for_each(|path| fs::remove_file(path).expect("there"));
        let again = start_again(&crashed);
        assert_eq!(told(&again), before, "a directory of a broker that knew no lists");
        end(&again, 9, ControlKind::Abort).await;
        assert_eq!(told(&again).stable, before.lists.len() as i64 - 1, "f15: a marker ends what a crash kept");
        assert_eq!(told(&again).lists[0].len(), 6);
        close_all(&again).await;
        assert_eq!(told(&start_again(&again)), told(&again), "after an orderly end");
    });
}

#[test]
fn a10_a_list_goes_with_its_segment() {
    with_topic(&[], |ctx, directory| async move {
        many_transactions(&ctx, &directory).await;
        end(&ctx, 9, ControlKind::Commit).await;
        end(&ctx, 3, ControlKind::Commit).await;
        let end = Offset(told(&ctx).stable);
        start_log_at(&ctx, KEY, end).await.expect("written");
        let began = std::time::Instant::now();
        while !lists_of(&directory).is_empty() {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", lists_of(&directory));
            crate::rt::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(told(&ctx).lists.concat(), []);
    });
}

#[test]
fn a8_f18_a_start_knows_the_producers_and_the_ends_of_what_retention_has_taken() {
    with_topic(&[], |ctx, _| async move {
        write(&ctx, 9, 0, "a").await;
        write(&ctx, 9, 1, "a").await;
        end(&ctx, 9, ControlKind::Commit).await;
        write(&ctx, 9, 2, "a").await;
        end(&ctx, 9, ControlKind::Commit).await;
        let before = told(&ctx);
        start_log_at(&ctx, KEY, Offset(before.stable)).await.expect("written");
        let logs = |directory: &Path| {
            let names = fs::read_dir(directory).expect("readable").flatten().map(|entry| entry.path());
            names.filter(|path| path.extension().is_some_and(|e| e == "log")).count()
        };
        let directory = ctx.files.directory(&ctx, &KEY).expect("its topic is there");
        while logs(&directory) > 0 {
            crate::rt::sleep(std::time::Duration::from_millis(5)).await;
        }
        settled(&ctx, &directory).await;
        let again = start_again(&ctx);
        assert_eq!((told(&again).stable, told(&again).open), (before.stable, vec![]));
        let sequence = |ctx: &Ctx| {
            let shard = ctx.shard.borrow();
            shard.partition(&KEY).expect("open").producers().describe().map(|view| view.last_sequence.0).next()
        };
        assert_eq!(sequence(&again), Some(2));
        write(&again, 9, 3, "a").await;
    });
}

#[test]
fn a8_producers_of_deleted_segments_are_known_although_the_snapshots_of_their_rolls_failed() {
    with_topic(&[], |ctx, directory| async move {
        for sequence in 0..6 {
            write(&ctx, 9, sequence, "a").await;
        }
        end(&ctx, 9, ControlKind::Commit).await;
        let of_nine = Offset(told(&ctx).stable);
        for sequence in 0..6 {
            write(&ctx, 3, sequence, "b").await;
        }
        end(&ctx, 3, ControlKind::Commit).await;
        settled(&ctx, &directory).await;
        let files = || fs::read_dir(&directory).expect("readable").flatten().map(|entry| entry.path());
        for path in files().filter(|path| path.extension().is_some_and(|e| e == "snapshot")) {
            fs::remove_file(path).expect("it is there");
        }
        // Behind the segment that holds the last of them too.
        start_log_at(&ctx, KEY, of_nine.plus(4)).await.expect("written");
        let left = ctx.shard.borrow().partition(&KEY).expect("open").segments().all().len();
        let logs = || files().filter(|path| path.extension().is_some_and(|e| e == "log")).count();
        assert!(left < 12, "some have gone");
        let began = std::time::Instant::now();
        while logs() > left {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "{} logs", logs());
            crate::rt::sleep(std::time::Duration::from_millis(5)).await;
        }
        let again = start_again(&ctx);
        let shard = again.shard.borrow();
        let views = shard.partition(&KEY).expect("open").producers().describe();
        let last: Vec<_> = views.map(|view| (view.producer_id.0, view.last_sequence.0)).collect();
        assert_eq!(last, [(3, 5), (9, 5)]);
    });
}

#[test]
fn case_104_a10_a_clean_keeps_what_is_committed_and_the_list_of_what_is_left() {
    let overrides = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.0"), ("delete.retention.ms", "0")];
    with_topic(&overrides, |ctx, directory| async move {
        write(&ctx, 1, 0, "a").await;
        end(&ctx, 1, ControlKind::Commit).await;
        write(&ctx, 1, 1, "a").await;
        write(&ctx, 2, 0, "b").await;
        end(&ctx, 1, ControlKind::Abort).await;
        end(&ctx, 2, ControlKind::Abort).await;
        write(&ctx, 1, 2, "c").await;
        end(&ctx, 1, ControlKind::Commit).await;
        write(&ctx, 3, 0, "d").await;
        end(&ctx, 3, ControlKind::Commit).await;
        let expected = visible(&ctx).await;
        assert_eq!(expected, ["1.0", "1.2", "3.0"], "case 105");
        let mut ctx = ctx;
        assert_eq!(told(&ctx).lists[0].len(), 2);
        for round in 0..4 {
            clean_now(&ctx, KEY).await.expect("cleaned");
            assert_eq!(visible(&ctx).await, expected, "round {round}");
            let before = told(&ctx).lists;
            settled(&ctx, &directory).await;
            ctx = start_again(&ctx);
            assert_eq!(visible(&ctx).await, expected, "round {round}, after a crash");
            // What a crash loses of a list are transactions without data: the replay does not meet them any more.
            let is_subset = |(after, before): (&Vec<_>, &Vec<_>)| after.iter().all(|entry| before.contains(entry));
            assert!(told(&ctx).lists.iter().zip(&before).all(is_subset), "{before:?}");
            // Dirties the log, so that there is something to clean.
            for other in 4..8 {
                write(&ctx, other, round, "e").await;
                end(&ctx, other, ControlKind::Abort).await;
            }
        }
        let shard = ctx.shard.borrow();
        let partition = shard.partition(&KEY).expect("open");
        let sealed = partition.segments().all().iter().filter(|segment| segment.id.generation > 0).count();
        assert!(sealed > 0 && lists_of(&directory).len() >= sealed, "cleaned segments have lists");
        let left = told(&ctx).lists[0].iter().filter(|(producer, ..)| *producer == 1).count();
        assert_eq!(left, 0, "a transaction without a marker is not listed");
    });
}

#[test]
fn a10_metrics_tell_of_open_transactions() {
    with_topic(&[], |ctx, _| async move {
        write(&ctx, 1, 0, "a").await;
        write(&ctx, 2, 0, "a").await;
        super::housekeeping::note_transactions(&ctx);
        let seen = |ctx: &Ctx| (ctx.metrics.open_transactions.get(), ctx.metrics.last_stable_offset_lag_max.get());
        assert_eq!(seen(&ctx), (2, 2));
        crate::rt::sleep(std::time::Duration::from_millis(10)).await;
        super::housekeeping::note_transactions(&ctx);
        assert!(ctx.metrics.open_transaction_age_ms_max.get() >= 10);
        end(&ctx, 1, ControlKind::Commit).await;
        end(&ctx, 2, ControlKind::Commit).await;
        super::housekeeping::note_transactions(&ctx);
        assert_eq!((seen(&ctx), ctx.metrics.open_transaction_age_ms_max.get()), ((0, 0), 0));
    });
}
