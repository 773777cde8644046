//! Transactions one answer at a time, in both protocols (contract D3, D4; cases 142 to 156, 169, 170).

use super::message::{GroupMember, OffsetToCommit, PartitionAnswer};
use super::testing::{Asked, Script, identity, op, parts, settings};
use super::{Answer, Identity, Next, Reason, Request, Settings, Written};
use crate::code::ErrorCode as E;
use crate::ids::Offset;

const TV1: i16 = 1;
const TV2: i16 = 2;

fn transactional() -> Settings {
    Settings { transactional_id: Some("tx".into()), ..settings() }
}

/// What a request is, for comparing.
fn name(request: &Request) -> &'static str {
    match request {
        Request::Metadata { .. } => "metadata",
        Request::InitProducerId { identity: None, .. } => "init",
        Request::InitProducerId { .. } => "bump",
        Request::Produce { .. } => "produce",
        Request::FindTransactionCoordinator { .. } => "find",
        Request::FindGroupCoordinator { .. } => "find group",
        Request::AddPartitions { .. } => "add",
        Request::AddOffsets { .. } => "add offsets",
        Request::CommitOffsets { .. } => "offsets",
        Request::EndTxn { commit: true, .. } => "commit",
        Request::EndTxn { .. } => "abort",
    }
}

/// The next request that is not of metadata, which must be this one; waits for pauses to end.
fn next(script: &mut Script, expected: &str) -> Asked {
    for _ in 0..100 {
        while let Some(asked) = script.asked.pop_front() {
            if name(&asked.request) == "metadata" {
                script.serve(&asked, &[1, 1]);
            } else {
                assert_eq!(name(&asked.request), expected);
                return asked;
            }
        }
        script.wait(10);
    }
    panic!("{expected} is never asked");
}

fn answer_next(script: &mut Script, expected: &str, answer: Answer) {
    let asked = next(script, expected);
    script.answer(&asked, answer);
}

fn quiet(script: &mut Script) {
    script.wait(200);
    script.asked.retain(|asked| name(&asked.request) != "metadata");
    assert!(script.asked.is_empty(), "{:?}", script.asked);
}

fn coordinator() -> Answer {
    Answer::Coordinator { code: 0, node: 2, address: "node:2".into() }
}

fn given(identity: Identity) -> Answer {
    Answer::Identity { code: 0, identity: Some(identity) }
}

fn code(code: E) -> Answer {
    Answer::Identity { code: code.wire(), identity: None }
}

fn partitions(codes: &[i16]) -> Answer {
    let answer = |code: &i16| PartitionAnswer { topic: "t".into(), partition: 0, code: *code };
    Answer::Partitions(codes.iter().map(answer).collect())
}

fn initialized(settings: Settings, level: i16) -> Script {
    let mut script = Script::new(settings);
    script.machine.learn_feature(1, level);
    script.machine.init_transactions(script.now_ms, op(0));
    script.wait(0);
    answer_next(&mut script, "find", coordinator());
    let asked = next(&mut script, "init");
    assert_eq!(asked.connection.node, 2);
    script.answer(&asked, given(identity(0)));
    assert_eq!(script.done.remove(&0), Some(Ok(())));
    script
}

fn added(script: &mut Script) {
    answer_next(script, "add", partitions(&[0]));
}

fn written(script: &mut Script) -> super::testing::Part {
    let asked = next(script, "produce");
    script.acknowledge(&asked);
    parts(&asked)[0]
}

/// In a transaction of which one record is written.
fn with_one_written(level: i16) -> Script {
    let mut script = initialized(transactional(), level);
    begin(&mut script);
    script.send(0);
    if level == TV1 {
        added(&mut script);
    }
    written(&mut script);
    script
}

/// The next transaction begins with the first sequence of the next epoch.
fn goes_on_with_the_next_epoch(script: &mut Script, level: i16) {
    begin(script);
    script.send(0);
    if level == TV1 {
        added(script);
    }
    assert_eq!(written(script), (0, 1, 0, 1));
}

fn begin(script: &mut Script) {
    script.machine.begin_transaction().expect("it may begin");
}

fn commit(script: &mut Script) {
    script.machine.commit_transaction(script.now_ms, op(1));
    script.wait(0);
}

fn abort(script: &mut Script) {
    script.machine.abort_transaction(script.now_ms, op(2));
    script.wait(0);
}

#[test]
fn d3_protocol_2_writes_at_once_and_takes_the_next_epoch_from_the_end() {
    let mut script = initialized(transactional(), TV2);
    begin(&mut script);
    script.send(0);
    assert_eq!(written(&mut script), (0, 0, 0, 1));
    commit(&mut script);
    let asked = next(&mut script, "commit");
    assert!(matches!(asked.request, Request::EndTxn { tv2: true, .. }));
    script.answer(&asked, given(identity(1)));
    assert_eq!(script.done.get(&1), Some(&Ok(())));
    goes_on_with_the_next_epoch(&mut script, TV2);
}

#[test]
fn d4_protocol_1_adds_a_partition_once_and_goes_on_with_its_sequences() {
    let mut script = initialized(transactional(), TV1);
    for first in [0, 2] {
        begin(&mut script);
        script.send(0);
        added(&mut script);
        assert_eq!(written(&mut script), (0, 0, first, 1));
        script.send(0);
        assert_eq!(written(&mut script), (0, 0, first + 1, 1));
        commit(&mut script);
        let asked = next(&mut script, "commit");
        assert!(matches!(asked.request, Request::EndTxn { tv2: false, .. }));
        script.answer(&asked, Answer::Identity { code: 0, identity: None });
        assert_eq!(script.done.remove(&1), Some(Ok(())));
    }
}

#[test]
fn a_commit_waits_for_every_record() {
    let mut script = initialized(transactional(), TV2);
    begin(&mut script);
    script.send(0);
    commit(&mut script);
    let asked = next(&mut script, "produce");
    quiet(&mut script);
    script.acknowledge(&asked);
    next(&mut script, "commit");
}

#[test]
fn an_empty_transaction_is_nobodys_business() {
    let mut script = initialized(transactional(), TV2);
    begin(&mut script);
    commit(&mut script);
    assert_eq!(script.done.get(&1), Some(&Ok(())));
    begin(&mut script);
    abort(&mut script);
    assert_eq!(script.done.get(&2), Some(&Ok(())));
    quiet(&mut script);
}

#[test]
fn case_142_a_failed_record_lets_no_commit_through() {
    let mut script = initialized(transactional(), TV2);
    begin(&mut script);
    let record = script.send(0);
    commit(&mut script);
    let asked = next(&mut script, "produce");
    script.answer_codes(&asked, &[E::InvalidRecord.wire()]);
    assert!(script.failed.contains_key(&record));
    let result = script.done.remove(&1).expect("the commit ended");
    assert_eq!(result.expect_err("and failed").next, Next::Abort);
    quiet(&mut script);
    commit(&mut script);
    assert!(script.done.remove(&1).expect("ended").is_err());
    abort(&mut script);
    answer_next(&mut script, "abort", given(identity(1)));
    assert_eq!(script.done.get(&2), Some(&Ok(())));
    goes_on_with_the_next_epoch(&mut script, TV2);
}

#[test]
fn cases_143_144_147_an_end_without_an_answer_is_repeated_and_nothing_begins_before_it() {
    let mut script = initialized(Settings { block_ms_max: 500, ..transactional() }, TV2);
    begin(&mut script);
    script.send(0);
    written(&mut script);
    commit(&mut script);
    let first = next(&mut script, "commit");
    script.wait(500);
    let failure = script.done.remove(&1).expect("bounded").expect_err("without a result");
    assert_eq!((failure.reason, failure.written), (Reason::BlockTimeout, Written::Unknown));
    assert!(script.machine.begin_transaction().is_err());
    abort(&mut script);
    assert!(script.done.remove(&2).expect("refused at once").is_err());
    script.lose(first.connection);
    answer_next(&mut script, "find", coordinator());
    let again = next(&mut script, "commit");
    assert_eq!(again.request, first.request);
    script.answer(&again, given(identity(1)));
    assert!(script.machine.begin_transaction().is_err(), "its result was not asked for");
    commit(&mut script);
    assert_eq!(script.done.get(&1), Some(&Ok(())));
    begin(&mut script);
}

#[test]
fn case_148_a_transaction_that_completes_is_waited_for() {
    let mut script = initialized(transactional(), TV1);
    begin(&mut script);
    script.send(0);
    answer_next(&mut script, "add", partitions(&[E::ConcurrentTransactions.wire()]));
    assert!(script.asked.is_empty());
    added(&mut script);
    written(&mut script);
    commit(&mut script);
    answer_next(&mut script, "commit", code(E::ConcurrentTransactions));
    answer_next(&mut script, "commit", code(E::None));
    assert_eq!(script.done.get(&1), Some(&Ok(())));
}

#[test]
fn cases_151_156_after_an_abort_with_something_open_the_next_transaction_has_another_epoch() {
    let mut script = initialized(Settings { delivery_timeout_ms: 1000, ..transactional() }, TV1);
    begin(&mut script);
    let open = script.send(0);
    added(&mut script);
    let silent = next(&mut script, "produce");
    let queued = script.send(0);
    abort(&mut script);
    assert_eq!(script.failed[&queued].written, Written::No);
    assert!(!script.failed.contains_key(&open), "what is under way is waited for");
    script.asked.clear();
    script.wait(1000);
    assert_eq!(script.failed[&open].written, Written::Unknown);
    let _ = silent;
    answer_next(&mut script, "abort", code(E::None));
    assert!(script.done.is_empty());
    answer_next(&mut script, "bump", given(identity(1)));
    assert_eq!(script.done.get(&2), Some(&Ok(())));
    goes_on_with_the_next_epoch(&mut script, TV1);
}

/// In protocol 1 a late EndTxn ends whatever transaction it meets at its epoch.
#[test]
fn case_144_after_an_end_that_may_arrive_again_the_next_transaction_has_another_epoch() {
    let mut script = with_one_written(TV1);
    commit(&mut script);
    let lost = next(&mut script, "commit");
    script.lose(lost.connection);
    answer_next(&mut script, "find", coordinator());
    answer_next(&mut script, "commit", code(E::None));
    assert!(script.done.is_empty());
    answer_next(&mut script, "bump", given(identity(1)));
    assert_eq!(script.done.get(&1), Some(&Ok(())));
    goes_on_with_the_next_epoch(&mut script, TV1);
}

#[test]
fn offsets_that_may_arrive_late_let_no_others_follow() {
    let mut script = initialized(transactional(), TV2);
    begin(&mut script);
    script.machine.send_offsets(script.now_ms, op(3), GroupMember::simple("g"), offsets());
    script.wait(0);
    for lost in [true, false] {
        answer_next(&mut script, "find group", Answer::Coordinator { code: 0, node: 1, address: "node:1".into() });
        let asked = next(&mut script, "offsets");
        if lost {
            script.lose(asked.connection);
        } else {
            script.answer(&asked, partitions(&[0]));
        }
    }
    assert_eq!(script.done.get(&3), Some(&Ok(())));
    let later = vec![OffsetToCommit { offset: Offset(9), ..offsets()[0].clone() }];
    script.machine.send_offsets(script.now_ms, op(4), GroupMember::simple("g"), later);
    script.wait(0);
    assert!(script.done.remove(&4).expect("refused at once").is_err());
    abort(&mut script);
    next(&mut script, "abort");
}

#[test]
fn case_169_an_abort_that_the_broker_did_itself_counts_as_done() {
    for answer in [E::ProducerFenced, E::InvalidProducerEpoch, E::InvalidTxnState] {
        let mut script = with_one_written(TV1);
        abort(&mut script);
        answer_next(&mut script, "abort", code(answer));
        answer_next(&mut script, "bump", given(identity(2)));
        assert_eq!(script.done.get(&2), Some(&Ok(())));
        begin(&mut script);
    }
}

#[test]
fn case_169_unless_somebody_else_has_the_id() {
    let mut script = with_one_written(TV1);
    abort(&mut script);
    answer_next(&mut script, "abort", code(E::ProducerFenced));
    answer_next(&mut script, "bump", code(E::ProducerFenced));
    let failure = script.done.remove(&2).expect("ended").expect_err("fenced");
    assert_eq!(failure.next, Next::Close);
    assert!(script.machine.begin_transaction().is_err());
}

#[test]
fn case_170_nothing_in_a_transaction_suggests_to_send_a_record_again() {
    let mut script = initialized(Settings { delivery_timeout_ms: 1000, ..transactional() }, TV2);
    begin(&mut script);
    let record = script.send(0);
    let asked = next(&mut script, "produce");
    script.answer_codes(&asked, &[E::CoordinatorLoadInProgress.wire()]);
    script.wait(500);
    script.asked.clear();
    script.wait(500);
    assert_eq!(script.failed[&record].next, Next::Abort);
}

#[test]
fn a_code_that_ends_the_producer_ends_it() {
    let mut script = initialized(transactional(), TV2);
    begin(&mut script);
    let record = script.send(0);
    let asked = next(&mut script, "produce");
    script.answer_codes(&asked, &[E::ProducerFenced.wire()]);
    assert!(script.failed.contains_key(&record));
    abort(&mut script);
    assert_eq!(script.done.remove(&2).expect("ended").expect_err("fenced").next, Next::Close);
}

#[test]
fn case_143_a_commit_that_may_have_happened_is_never_told_as_not_done() {
    let mut script = with_one_written(TV2);
    commit(&mut script);
    let lost = next(&mut script, "commit");
    script.lose(lost.connection);
    let asked = next(&mut script, "find");
    let refused =
        Answer::Coordinator { code: E::TransactionalIdAuthorizationFailed.wire(), node: -1, address: String::new() };
    script.answer(&asked, refused);
    assert_eq!(script.done.remove(&1).expect("ended").expect_err("at its end").written, Written::Unknown);
}

fn offsets() -> Vec<OffsetToCommit> {
    vec![OffsetToCommit { topic: "in".into(), partition: 0, offset: Offset(5) }]
}

#[test]
fn offsets_go_to_the_groups_coordinator_and_a_commit_waits_for_them() {
    for (level, way) in [(TV1, &["add offsets", "find group", "offsets"][..]), (TV2, &["find group", "offsets"])] {
        let mut script = initialized(transactional(), level);
        begin(&mut script);
        script.machine.send_offsets(script.now_ms, op(3), GroupMember::simple("g"), offsets());
        commit(&mut script);
        for step in way {
            let asked = next(&mut script, step);
            let answer = match *step {
                "add offsets" => Answer::Code(0),
                "find group" => Answer::Coordinator { code: 0, node: 1, address: "node:1".into() },
                _ => partitions(&[0]),
            };
            assert!(script.done.is_empty());
            script.answer(&asked, answer);
        }
        assert_eq!(script.done.get(&3), Some(&Ok(())));
        answer_next(&mut script, "commit", given(identity(1)));
        assert_eq!(script.done.get(&1), Some(&Ok(())));
    }
}

#[test]
fn offsets_of_a_member_that_is_gone_abort_the_transaction() {
    let mut script = initialized(transactional(), TV2);
    begin(&mut script);
    script.machine.send_offsets(script.now_ms, op(3), GroupMember::simple("g"), offsets());
    script.wait(0);
    answer_next(&mut script, "find group", Answer::Coordinator { code: 0, node: 1, address: "node:1".into() });
    answer_next(&mut script, "offsets", partitions(&[E::IllegalGeneration.wire()]));
    assert_eq!(script.done.remove(&3).expect("ended").expect_err("refused").next, Next::Abort);
    abort(&mut script);
    next(&mut script, "abort");
}

/// F81: the level goes up under a running producer.
#[test]
fn f81_a_new_level_counts_from_the_next_transaction_on_and_with_another_epoch() {
    let mut script = with_one_written(TV1);
    script.machine.learn_feature(2, TV2);
    script.machine.learn_feature(1, TV1);
    commit(&mut script);
    let asked = next(&mut script, "commit");
    assert!(matches!(asked.request, Request::EndTxn { tv2: false, .. }));
    script.answer(&asked, code(E::None));
    answer_next(&mut script, "bump", given(identity(1)));
    begin(&mut script);
    script.send(0);
    let asked = next(&mut script, "produce");
    assert!(matches!(asked.request, Request::Produce { tv2: true, .. }));
}

#[test]
fn records_and_calls_outside_their_place_are_refused() {
    let mut script = Script::new(transactional());
    assert!(script.machine.begin_transaction().is_err(), "not initialized");
    let mut script = initialized(transactional(), TV2);
    assert!(script.try_send(0).is_err(), "outside a transaction");
    commit(&mut script);
    assert!(script.done.remove(&1).expect("ended").is_err());
    begin(&mut script);
    assert!(script.machine.begin_transaction().is_err(), "in one");
    let mut script = Script::ready(settings(), &[1]);
    assert!(script.machine.begin_transaction().is_err(), "without an id");
}

#[test]
fn a_commit_waits_for_no_linger() {
    for level in [TV1, TV2] {
        let mut script = initialized(Settings { linger_ms: 5000, ..transactional() }, level);
        begin(&mut script);
        script.send(0);
        let began_ms = script.now_ms;
        commit(&mut script);
        if level == TV1 {
            added(&mut script);
        }
        written(&mut script);
        next(&mut script, "commit");
        assert!(script.now_ms - began_ms < 100, "{} ms", script.now_ms - began_ms);
    }
}
