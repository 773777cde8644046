//! Compaction of real files: what readers, starts and deletions find during and after a clean.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::pin::pin;

use bytes::Bytes;
use futures_lite::future::poll_once;
use oncilla_shards::batch::records::Records;
use oncilla_shards::batch::{AppendRules, BatchBuilder, Codec, headers};
use oncilla_shards::ids::{LeaderEpoch, TopicId};
use oncilla_shards::image::Change;
use oncilla_shards::limits::INDEX_INTERVAL_BYTES;
use oncilla_shards::shard::Sent;

use super::cleaner::{Failed, clean_dirtiest};
use super::*;
use crate::api::testing::ctx_with;
use crate::disk::compaction;
use crate::rt::file::test_block_on;
use crate::rt::now_ms;
use crate::topics_writer;

const TOPIC: TopicId = TopicId(7);
const KEY: PartitionKey = PartitionKey { topic: TOPIC, index: 0 };
const VALUE_BYTES: usize = 900;

/// Runs a test on a shard with the compacted topic `t`, whose segments are small.
fn with_compacted<F: Future<Output = ()>>(test: impl FnOnce(Rc<Ctx>, std::path::PathBuf) -> F) {
    with_cache(0, test);
}

fn with_cache<F: Future<Output = ()>>(cache_bytes: usize, test: impl FnOnce(Rc<Ctx>, std::path::PathBuf) -> F) {
    let (ctx, _dir) = ctx_with(|config| config.log_cache_bytes = cache_bytes);
    test_block_on(async {
        fs::create_dir_all(ctx.files.data.topics()).expect("creatable");
        let overrides = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.1")];
        let overrides = overrides.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let create = Change::CreateTopic { id: TOPIC, name: "t".to_owned(), partitions: 1, placement: 0, overrides };
        topics_writer::update(&ctx, |_| (vec![create], ())).await.expect("written");
        let directory = ctx.files.directory(&ctx, &KEY).expect("its topic is there");
        segments_of(&ctx, 8000);
        test(ctx, directory).await;
    });
}

fn segments_of(ctx: &Rc<Ctx>, segment_bytes: i32) {
    let mut shard = ctx.shard.borrow_mut();
    let partition = shard.partition_mut(&KEY).expect("open");
    let rules = partition.rules().clone();
    let append = AppendRules { segment_bytes, ..rules.append };
    partition.set_rules(LogRules { append, ..rules });
}

/// Appends one batch of records with these keys, and waits until it is durable.
async fn append(ctx: &Rc<Ctx>, keys: &[u32], round: u32) {
    let codec = Codec::ALL[round as usize % Codec::ALL.len()];
    let value = [&round.to_be_bytes()[..], &[7; VALUE_BYTES]].concat();
    let one = |batch: BatchBuilder, key: &u32| batch.record_at(now_ms(), Some(&key.to_be_bytes()), Some(&value), &[]);
    let batch = Bytes::from(keys.iter().fold(BatchBuilder::new().codec(codec), one).build());
    let mut effects = Effects::new();
    let appended = ctx.shard.borrow_mut().append(&KEY, Sent::unchecked(&batch, 9), now_ms(), None, &mut effects);
    assert!(matches!(appended, oncilla_shards::shard::Appended::Waiting(_)), "{appended:?}");
    ctx.carry_out(effects);
    ctx.files.writing_ended(&[KEY]).await;
}

/// Rounds of the same keys; what is newest is in the active segment, or not.
async fn fill(ctx: &Rc<Ctx>, keys: u32, rounds: std::ops::Range<u32>) {
    for round in rounds {
        for key in 0..keys {
            append(ctx, &[key, key + 1000], round).await;
        }
    }
}

type Record = (i64, Vec<u8>, Vec<u8>);

/// Everything that a consumer gets from the start to the high watermark.
async fn consume(ctx: &Rc<Ctx>) -> Vec<Record> {
    let end = ctx.partition_view(&KEY).expect("open").end;
    let (mut next, mut seen) = (Offset(0), Vec::new());
    while next < end {
        let chunks = read(ctx, &KEY, next, end, 3000, true).await.expect("readable");
        assert!(!chunks.is_empty(), "every offset below the end leads further, {next} too");
        for chunk in chunks {
            let mut at = 0;
            for header in headers(&chunk) {
                assert!(header.next_offset() > next, "forward");
                next = header.next_offset();
                for record in &Records::open(&chunk[at..]).expect("opens") {
                    let record = record.expect("parses");
                    let bytes = |field: Option<&[u8]>| field.expect("there").to_vec();
                    seen.push((record.offset.0, bytes(record.key), bytes(record.value)));
                }
                at += header.total_bytes();
            }
        }
    }
    assert_eq!(next, end);
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0));
    seen
}

fn state(seen: &[Record]) -> BTreeMap<Vec<u8>, (i64, Vec<u8>)> {
    seen.iter().map(|(offset, key, value)| (key.clone(), (*offset, value.clone()))).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("readable").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn logs(directory: &Path) -> Vec<String> {
    names(directory).into_iter().filter(|name| name.contains(".log")).collect()
}

fn log_bytes(directory: &Path) -> u64 {
    let bytes = |name: &String| fs::metadata(directory.join(name)).expect("listed").len();
    logs(directory).iter().map(bytes).sum()
}

/// What the next start finds: the log end, the clean part, and the leader epochs.
fn restart(ctx: &Rc<Ctx>) -> (Offset, Offset, Vec<(LeaderEpoch, Offset)>) {
    ctx.shard.borrow_mut().remove(&KEY, &mut Effects::new());
    ctx.files.forget(&KEY);
    open_all_blocking(ctx).expect("recovers");
    let shard = ctx.shard.borrow();
    let partition = shard.partition(&KEY).expect("open");
    (partition.high_watermark(), partition.cleaned_to(), partition.epochs().all().to_vec())
}

#[test]
fn a_compacted_log_has_the_newest_records_at_their_offsets_and_a_start_finds_the_same() {
    with_compacted(|ctx, directory| async move {
        fill(&ctx, 20, 0..6).await;
        let before = consume(&ctx).await;
        let bytes = log_bytes(&directory);
        let end = clean_now(&ctx, KEY).await.expect("goes well").expect("something was dirty");
        let after = consume(&ctx).await;
        assert_eq!(state(&after), state(&before));
        let below: Vec<Record> = before.iter().filter(|record| record.0 < end.0).cloned().collect();
        let newest: Vec<i64> = state(&below).values().map(|(offset, _)| *offset).collect();
        assert!(after.iter().all(|record| newest.contains(&record.0) || record.0 >= end.0), "below it nothing else");
        assert!(log_bytes(&directory) * 3 < bytes * 2, "{} of {bytes} bytes are left", log_bytes(&directory));
        assert_eq!(clean_now(&ctx, KEY).await, Ok(None), "nothing is dirty");
        close_all(&ctx).await;
        let epochs = ctx.shard.borrow().partition(&KEY).expect("open").epochs().all().to_vec();
        assert_eq!(restart(&ctx), (Offset(before.len() as i64), end, epochs));
        assert_eq!(consume(&ctx).await, after);
    });
}

#[test]
fn a_segment_in_which_nothing_changes_is_not_written_and_one_is_written_from_its_first_change_on() {
    with_compacted(|ctx, directory| async move {
        fill(&ctx, 30, 0..1).await;
        let before = logs(&directory);
        let end = clean_now(&ctx, KEY).await.expect("goes well").expect("something was dirty");
        assert_eq!(logs(&directory), before, "every key is there once");
        assert_eq!(ctx.metrics.cleaner_written_bytes.get(), 0);
        let kept = || compaction::read_blocking(&directory).expect("readable");
        assert_eq!((kept().cleaned_to, kept().exchange), (end, None));

        // Of the second segment's batches one in the middle goes; what is around it stays.
        append(&ctx, &[5, 1005], 0).await;
        for key in 100..110 {
            append(&ctx, &[key], 0).await;
        }
        let records = consume(&ctx).await;
        let before = logs(&directory);
        let end = clean_now(&ctx, KEY).await.expect("goes well").expect("something was dirty");
        let left = logs(&directory);
        let gone: Vec<_> = before.iter().filter(|name| !left.contains(name)).collect();
        assert_eq!((gone.len(), left.len()), (1, before.len()), "one segment has changed: {gone:?}");
        let written = ctx.metrics.cleaner_written_bytes.get();
        assert!((4000..8000).contains(&written), "{written} bytes");
        assert_eq!(state(&consume(&ctx).await), state(&records));
        assert_eq!(kept().cleaned_to, end, "the last exchange says so, too");
        close_all(&ctx).await;
        assert_eq!(restart(&ctx).1, end);
        assert_eq!(state(&consume(&ctx).await), state(&records));
    });
}

#[test]
fn a_log_that_is_cleaned_again_and_again_stays_right() {
    with_compacted(|ctx, directory| async move {
        for round in 0..8 {
            fill(&ctx, 7 + round, round..round + 2).await;
            let before = consume(&ctx).await;
            clean_now(&ctx, KEY).await.expect("goes well");
            assert_eq!(state(&consume(&ctx).await), state(&before), "round {round}");
            if round % 3 == 2 {
                close_all(&ctx).await;
                restart(&ctx);
                segments_of(&ctx, 8000);
                assert_eq!(state(&consume(&ctx).await), state(&before), "round {round}, after a start");
            }
        }
        assert!(names(&directory).iter().all(|name| !name.ends_with(".cleaned")));
    });
}

#[test]
fn the_index_of_a_cleaned_segment_leads_to_every_offset() {
    with_compacted(|ctx, _| async move {
        segments_of(&ctx, 1 << 20);
        for round in [0, 5, 10, 15] {
            // Rounds that are not compressed.
            fill(&ctx, 150, round..round + 1).await;
        }
        clean_now(&ctx, KEY).await.expect("goes well").expect("dirty");
        let all = consume(&ctx).await;
        let end = ctx.partition_view(&KEY).expect("open").end;
        let cleaned = ctx.shard.borrow().partition(&KEY).expect("open").segments().all()[0].clone();
        assert!(cleaned.id.generation == 1 && cleaned.bytes() > 2 * INDEX_INTERVAL_BYTES, "{cleaned:?}");
        for from in (0..end.0).step_by(17) {
            let chunks = read(&ctx, &KEY, Offset(from), end, 1, true).await.expect("readable");
            let batch = Records::open(&chunks[0]).expect("opens");
            assert!(batch.header().next_offset() > Offset(from));
            let first = batch.iter().flatten().map(|record| record.offset.0).find(|offset| *offset >= from);
            let expected = all.iter().map(|record| record.0).find(|offset| *offset >= from);
            assert!(first.is_none() || first == expected, "from {from}: {first:?} and not {expected:?}");
        }
    });
}

#[test]
fn readers_in_the_middle_of_a_clean_see_every_newest_record() {
    with_compacted(|ctx, _| async move {
        fill(&ctx, 20, 0..6).await;
        let expected = state(&consume(&ctx).await);
        let mut clean = pin!(clean_now(&ctx, KEY));
        let mut reads = 0;
        while poll_once(clean.as_mut()).await.is_none() {
            assert_eq!(state(&consume(&ctx).await), expected);
            reads += 1;
        }
        assert!(reads > 3, "{reads} reads ran while the clean did");
        assert_eq!(state(&consume(&ctx).await), expected);
    });
}

#[test]
fn a_place_that_was_cleaned_away_is_told_from_damage() {
    with_compacted(|ctx, _| async move {
        fill(&ctx, 20, 0..4).await;
        let source = ctx.shard.borrow().partition(&KEY).expect("open").clean_groups(Offset(1))[0][0];
        let place = Place { key: KEY, segment: source.id, position: 0, segment_bytes: source.bytes };
        clean_now(&ctx, KEY).await.expect("goes well").expect("dirty");
        assert_eq!(scan_step(&ctx, place).await, Err(Unread::Replaced));
    });
}

#[test]
fn a_topic_that_is_deleted_in_the_middle_of_its_clean_goes_away() {
    with_compacted(|ctx, directory| async move {
        fill(&ctx, 20, 0..4).await;
        let mut clean = pin!(clean_now(&ctx, KEY));
        for _ in 0..20 {
            assert!(poll_once(clean.as_mut()).await.is_none(), "it takes longer");
            crate::rt::yield_by_timer().await;
        }
        topics_writer::update(&ctx, |_| (vec![Change::DeleteTopic { id: TOPIC }], ())).await.expect("written");
        assert!(!matches!(clean.await, Ok(Some(_))), "it did not come to its end");
        assert!(!directory.exists());
    });
}

#[test]
fn a_damaged_log_is_not_compacted_and_the_others_are() {
    with_compacted(|ctx, directory| async move {
        fill(&ctx, 20, 0..4).await;
        let log = names(&directory).into_iter().find(|name| name.ends_with(".log")).expect("a segment");
        let mut bytes = fs::read(directory.join(&log)).expect("readable");
        bytes[100] ^= 1;
        fs::write(directory.join(&log), bytes).expect("writable");
        let before = logs(&directory);
        let failed = Failed::default();
        assert!(!clean_dirtiest(&ctx, &failed).await);
        assert!(!clean_dirtiest(&ctx, &failed).await, "it is left alone");
        assert_eq!((ctx.metrics.cleaner_failures.get(), ctx.metrics.cleaner_runs.get()), (1, 0));
        assert_eq!(logs(&directory), before, "nothing is left behind");
        assert_eq!(compaction::read_blocking(&directory).expect("none"), compaction::Compaction::default());
    });
}

#[test]
fn the_dirtiest_log_is_cleaned_until_none_is_due() {
    with_compacted(|ctx, _| async move {
        fill(&ctx, 20, 0..4).await;
        let failed = Failed::default();
        assert!(clean_dirtiest(&ctx, &failed).await);
        assert!(!clean_dirtiest(&ctx, &failed).await, "nothing is dirty now");
        assert_eq!(ctx.metrics.cleaner_runs.get(), 1);
        assert!(ctx.metrics.cleaner_read_bytes.get() > ctx.metrics.cleaner_written_bytes.get());
    });
}

#[test]
fn the_tail_cache_gives_nothing_that_was_cleaned_away() {
    with_cache(1 << 20, |ctx, _| async move {
        fill(&ctx, 20, 0..4).await;
        let held = ctx.shard.borrow().tail_bytes();
        let end = clean_now(&ctx, KEY).await.expect("goes well").expect("dirty");
        let left = ctx.shard.borrow().tail_bytes();
        assert!(0 < left && left < held / 10, "only what was not cleaned stays: {left} of {held}");
        let seen = consume(&ctx).await;
        let newest = state(&seen).len();
        let below = seen.iter().filter(|record| record.0 < end.0).count();
        assert!(below <= newest, "{below} records below {end}, {newest} keys");
        fill(&ctx, 20, 4..6).await;
        assert!(ctx.shard.borrow().tail_bytes() > left, "and the cache goes on");
        assert_eq!(state(&consume(&ctx).await).len(), newest);
    });
}

#[test]
fn kt_1_compact_and_delete_also_removes_by_age() {
    with_compacted(|ctx, directory| async move {
        fill(&ctx, 20, 0..4).await;
        clean_now(&ctx, KEY).await.expect("goes well").expect("dirty");
        {
            let mut shard = ctx.shard.borrow_mut();
            let partition = shard.partition_mut(&KEY).expect("open");
            let rules = LogRules { deletes: true, retention_ms: 0, ..partition.rules().clone() };
            partition.set_rules(rules);
        }
        crate::rt::sleep(std::time::Duration::from_millis(5)).await;
        let target = ctx.shard.borrow().partition(&KEY).expect("open").retention_target(now_ms()).expect("all is old");
        start_log_at(&ctx, KEY, target).await.expect("moved");
        let began = std::time::Instant::now();
        while !logs(&directory).is_empty() {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "not removed: {:?}", logs(&directory));
            crate::rt::sleep(std::time::Duration::from_millis(5)).await;
        }
        let (end, cleaned_to, epochs) = restart(&ctx);
        assert_eq!((end, cleaned_to, epochs), (Offset(160), end.min(cleaned_to), vec![]));
        assert!(consume_from(&ctx, target).await.is_empty(), "{:?}", names(&directory));
    });
}

async fn consume_from(ctx: &Rc<Ctx>, from: Offset) -> Vec<Bytes> {
    let end = ctx.partition_view(&KEY).expect("open").end;
    read(ctx, &KEY, from, end, 1 << 20, true).await.expect("readable").into_vec()
}
