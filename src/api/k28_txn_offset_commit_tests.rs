use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestPartition;
use kafka_protocol::messages::{GroupId, OffsetFetchResponse, ProducerId, TopicName, TransactionalId};

use super::*;
use crate::api::codec::text;
use crate::api::testing;
use crate::txn::tests::{add_offsets, end, init, state};

/// Commits partition 0 and 9 of `t`; their codes.
fn commit(ctx: &Rc<Ctx>, version: i16, id: &str, producer: (i64, i16), group: &str, generation: i32) -> Vec<i16> {
    commit_at(ctx, version, id, producer, group, generation, 7)
}

fn commit_at(
    ctx: &Rc<Ctx>,
    version: i16,
    id: &str,
    producer: (i64, i16),
    group: &str,
    generation: i32,
    offset: i64,
) -> Vec<i16> {
    let partition = |index| {
        let partition = TxnOffsetCommitRequestPartition::default().with_partition_index(index);
        partition.with_committed_offset(offset)
    };
    let topic = TxnOffsetCommitRequestTopic::default().with_name(TopicName(text("t")));
    let request = TxnOffsetCommitRequest::default()
        .with_transactional_id(TransactionalId(text(id)))
        .with_group_id(GroupId(text(group)))
        .with_producer_id(ProducerId(producer.0))
        .with_producer_epoch(producer.1)
        .with_topics(vec![topic.with_partitions(vec![partition(0), partition(9)])]);
    let request = if version >= 3 { request.with_generation_id(generation) } else { request };
    let answer: TxnOffsetCommitResponse = testing::ask(ctx, 28, version, &request);
    answer.topics.iter().flat_map(|topic| &topic.partitions).map(|one| one.error_code).collect()
}

/// Offset and code of partition 0 of `t`.
fn read(ctx: &Rc<Ctx>, group: &str, require_stable: bool) -> (i64, i16) {
    let topic = OffsetFetchRequestTopics::default().with_name(TopicName(text("t"))).with_partition_indexes(vec![0]);
    let asked = OffsetFetchRequestGroup::default().with_group_id(GroupId(text(group))).with_topics(Some(vec![topic]));
    let request = OffsetFetchRequest::default().with_groups(vec![asked]).with_require_stable(require_stable);
    let answer: OffsetFetchResponse = testing::ask(ctx, 9, 8, &request);
    let partition = &answer.groups[0].topics[0].partitions[0];
    (partition.committed_offset, partition.error_code)
}

fn fixture() -> (Rc<Ctx>, tempfile::TempDir) {
    let (ctx, dir) = testing::ctx();
    testing::create_topic(&ctx, "t", 1);
    (ctx, dir)
}

#[test]
fn f70_f76_offsets_are_pending_until_the_transaction_ends() {
    for version in 0..=5 {
        let (ctx, _dir) = fixture();
        let producer = init(&ctx, "x");
        if version < 5 {
            let missing = if version < 4 { 48 } else { 120 };
            assert_eq!(commit(&ctx, version, "x", producer, "g", -1), [missing, 3], "not in the transaction");
            assert_eq!(add_offsets(&ctx, "x", producer, "g"), 0);
        }
        assert_eq!(commit(&ctx, version, "x", producer, "g", -1), [0, 3]);
        assert_eq!((read(&ctx, "g", true), read(&ctx, "g", false)), ((-1, 88), (-1, 0)));
        assert_eq!(end(&ctx, version.min(5), "x", producer, true).0, 0);
        assert_eq!((read(&ctx, "g", true), state(&ctx, "x")), ((7, 0), "CompleteCommit".to_owned()));
        assert_eq!(ctx.txn.waiting(), 0);
    }
}

#[test]
fn f70_an_abort_leaves_the_old_value_and_path_b_goes_on_at_the_next_epoch() {
    let (ctx, _dir) = fixture();
    let mut producer = init(&ctx, "x");
    for (commits, offset, expected) in [(true, 1, 1), (false, 2, 1), (true, 3, 3)] {
        assert_eq!(commit_at(&ctx, 5, "x", producer, "g", -1, offset), [0, 3]);
        let (code, id, epoch) = end(&ctx, 5, "x", producer, commits);
        assert_eq!((code, id, epoch), (0, producer.0, producer.1 + 1));
        assert_eq!(read(&ctx, "g", true), (expected, 0));
        assert_eq!(commit(&ctx, 5, "x", producer, "g", -1), [47, 3], "F74: the old epoch");
        producer = (id, epoch);
    }
}

#[test]
fn f74_c4_0_a_wrong_producer_hides_a_wrong_generation_and_unknown_partitions_hide_nothing() {
    let (ctx, _dir) = fixture();
    let (id, epoch) = init(&ctx, "x");
    assert_eq!(add_offsets(&ctx, "x", (id, epoch), "g"), 0);
    for version in 0..=5 {
        for wrong in [epoch - 1, epoch + 1] {
            assert_eq!(commit(&ctx, version, "x", (id, wrong), "g", 3), [47, 3], "version {version}");
        }
        assert_eq!(commit(&ctx, version, "x", (id + 1, epoch), "g", 3), [49, 3]);
        assert_eq!(commit(&ctx, version, "no", (id, epoch), "g", 3), [49, 3]);
        assert_eq!(commit(&ctx, version, "x", (id, epoch), "", -1), [24, 3]);
    }
    assert_eq!(commit(&ctx, 3, "x", (id, epoch), "g", 3), [22, 3]);
}

#[test]
fn f76_a_commit_that_the_group_refuses_leaves_it_in_the_transaction_which_ends_as_usual() {
    let (ctx, _dir) = fixture();
    let producer = init(&ctx, "x");
    assert_eq!(commit(&ctx, 5, "x", producer, "g", 3), [22, 3]);
    assert_eq!(state(&ctx, "x"), "Ongoing");
    assert_eq!(end(&ctx, 5, "x", producer, true).0, 0);
    assert_eq!(state(&ctx, "x"), "CompleteCommit");
}

#[test]
fn c3_pending_offsets_survive_a_crash_and_their_transaction_ends_them_after_it() {
    let (ctx, _dir) = fixture();
    let producer = init(&ctx, "x");
    assert_eq!(commit(&ctx, 5, "x", producer, "g", -1), [0, 3]);
    let ctx = testing::restarted(&ctx);
    assert_eq!(read(&ctx, "g", true), (-1, 88));
    assert_eq!(end(&ctx, 5, "x", producer, true).0, 0);
    assert_eq!(read(&ctx, "g", true), (7, 0));
    let ctx = testing::restarted(&ctx);
    assert_eq!(read(&ctx, "g", true), (7, 0));
}

#[test]
fn b8_a_new_instance_ends_the_open_transaction_and_its_offsets_first() {
    let (ctx, _dir) = fixture();
    let producer = init(&ctx, "x");
    assert_eq!(commit(&ctx, 5, "x", producer, "g", -1), [0, 3]);
    let next = init(&ctx, "x");
    assert_eq!((next.0, next.1), (producer.0, producer.1 + 2), "one for the fence, one for the new instance");
    assert_eq!(read(&ctx, "g", true), (-1, 0));
    assert_eq!(ctx.txn.waiting(), 0);
}
