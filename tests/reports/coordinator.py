"""Reports about the transaction coordinator."""

import threading
import time

from batches import batch
from report import expect
from scene import put, until
from txn import Txn, mark
from wire import Connection, decode_answer

FENCED = (47, 90)
CONCURRENT = 51


def case_21_an_empty_transaction_is_refused_and_the_id_stays_usable(s):
    topic, txn = s.topic(), s.txn()
    for version in (0, 4):
        expect("ends of nothing", [txn.end(True, version), txn.end(False, version)], [48, 48])
    txn.add({topic: [0]})
    put(txn, topic, b"x", version=11)
    expect("commit", txn.ended(True, 4), 0)
    expect("seen", s.read(topic), [b"x"])


def case_23_an_abort_right_behind_a_commit_is_told_to_wait_and_does_not_fence_itself(s):
    topic, txn = s.topic(), s.txn()
    put(txn, topic, b"x")
    ask = lambda epoch, commit: (
        "EndTxn",
        5,
        {"TransactionalId": txn.tid, "ProducerId": txn.pid, "ProducerEpoch": epoch, "Committed": commit},
    )
    first, second = txn.pipelined([ask(txn.epoch, True), ask(txn.epoch + 1, False)])
    expect("commit", [first["ErrorCode"], first["ProducerEpoch"]], [0, txn.epoch + 1])
    assert second["ErrorCode"] in (0, CONCURRENT), second
    txn.epoch += 1
    if second["ErrorCode"] == CONCURRENT:
        expect("abort, asked again", txn.end(False)[0], 0)
    expect("the id goes on", txn.init()[0], 0)


def case_25_an_end_that_is_asked_again_is_confirmed_and_its_opposite_refused(s):
    topic, txn = s.topic(), s.txn()
    txn.add({topic: [0]})
    put(txn, topic, b"x", version=11)
    expect("twice", [txn.ended(True, 4), txn.ended(True, 4)], [0, 0])
    expect("the opposite", txn.end(False, 4), 48)
    expect("one record, one marker", s.ends(topic), (2, 2))


def case_26_transactions_follow_one_another_without_a_failure(s):
    topic, txn = s.topic(), s.txn()
    waits = 0
    for n in range(500):
        txn.add({topic: [0]})
        put(txn, topic, b"%d" % n, seq=n, version=11)
        while (code := txn.end(True, 4, once=True)) == CONCURRENT:
            waits += 1
        expect("commit", code, 0)
    until("all committed", lambda: s.ends(topic) == (1000, 1000))
    expect("seen", len(s.read(topic)), 500)
    # case 157: the broker waits for the completion, so that clients need not.
    assert waits < 5, f"{waits} of 500 were told to wait"


def case_27_a_commit_that_races_the_timeout_is_either_visible_or_refused(s):
    for n in range(12):
        topic, txn = s.topic(), Txn(s)
        expect("init", txn.init(timeout=200)[0], 0)
        put(txn, topic, b"x")
        time.sleep(0.17 + 0.012 * n)
        code = txn.end(True, keep=False)[0]
        until("it is over", lambda: s.ends(topic) == (2, 2))
        expect("seen", s.read(topic), [b"x"] if code == 0 else [])
        # Contract B6: EndTxn 5 of the epoch that the broker aborted is repeated with the wrong result, 48.
        assert code in (0, 48), code
    

def case_32_a_producer_that_names_itself_is_bumped_once(s):
    txn = s.txn()
    pid, epoch = txn.pid, txn.epoch
    expect("itself", txn.init(given=(pid, epoch), keep=False)[::2], [0, epoch + 1])
    expect("again", txn.init(given=(pid, epoch), keep=False)[::2], [0, epoch + 1])
    expect("another", [txn.init(v, given=(pid + 1, epoch), keep=False)[0] for v in (4, 3)], [90, 47])
    expect("half", [txn.init(given=g, keep=False)[0] for g in ((pid, -1), (-1, 0))], [42, 42])


def case_33_a_new_producer_aborts_what_the_old_one_left_open(s):
    topic, old = s.topic(), s.txn()
    put(old, topic, b"x")
    new = Txn(s, tid=old.tid)
    expect("init", new.init()[0], 0)
    put(new, topic, b"y")
    assert old.end(True, keep=False)[0] in FENCED
    expect("commit", new.ended()[0], 0)
    expect("seen", s.read(topic), [b"y"])


def case_34_of_many_new_producers_one_is_the_last_and_only_it_goes_on(s):
    topic, txn = s.topic(), s.txn()
    made, failed = [], []

    def run():
        try:
            one = Txn(s.apart(), tid=txn.tid)
            if one.init()[0] == 0:
                made.append(one)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed and len(made) == 16, (failed, len(made))
    epochs = [one.epoch for one in made]
    expect("each has an epoch of its own", len(set(epochs)), 16)
    codes = {one.epoch: one.add({topic: [0]}) for one in made}
    expect("who may go on", [e for e, code in codes.items() if code == 0], [max(epochs)])
    assert all(code in FENCED for e, code in codes.items() if e != max(epochs)), codes
    [one.o.cluster.drop() for one in made]


def case_40_a_topic_that_is_deleted_does_not_hold_its_transactions_back(s):
    gone, kept, txn = s.topic(), s.topic(), s.txn()
    put(txn, gone, b"x")
    put(txn, kept, b"y")
    s.cluster.delete(gone)
    expect("commit", txn.ended()[0], 0)
    expect("seen", s.read(kept), [b"y"])
    s.cluster.create(gone)
    expect("the new one is empty", s.ends(gone), (0, 0))
    expect("the id goes on", txn.init()[0], 0)


def case_41_one_unknown_partition_refuses_all_and_starts_nothing(s):
    topic, txn = s.topic(), s.txn()
    expect("codes", txn.add({topic: [0, 99], "no-such-topic": [0]}), [55, 3, 3])
    expect("nothing to commit", txn.end(True, 4), 48)


def case_42_a_timeout_that_is_not_allowed_changes_nothing(s):
    txn = Txn(s)
    for timeout in (900_001, 0, -1):
        expect(timeout, txn.init(timeout=timeout)[0], 50)
    expect("nobody yet", txn.describe()["ErrorCode"], 105)
    expect("the longest", txn.init(timeout=900_000)[0], 0)
    before = txn.pid, txn.epoch
    expect("too long", txn.init(timeout=900_001)[0], 50)
    expect("as before", (txn.describe()["ProducerId"], txn.describe()["ProducerEpoch"]), before)


def case_45_every_request_finds_the_same_coordinator_whatever_the_id_is(s):
    topic = s.topic()
    # Java's hash of the first is the smallest integer; of the next two the forms differ, not the text.
    odd = ["polygenelubricants", "e\u0301", "\u00e9", "\U0001f600", "a\0b", " ", "/", "x" * 1000]
    pids = {}
    for tid in odd:
        txn = s.txn(tid=tid)
        txn.add({topic: [0]})
        expect(tid, txn.ended(False, 4), 0)
        again = s.txn(tid=tid)
        expect("the same producer", again.pid, txn.pid)
        pids[tid] = txn.pid
    expect("each has its own", len(set(pids.values())), len(odd))


def case_49_records_do_not_move_the_end_of_a_transactions_time(s):
    topic, txn = s.topic(), Txn(s)
    expect("init", txn.init(timeout=1000)[0], 0)
    began = time.monotonic()
    code, seq = 0, 0
    while code == 0:
        assert time.monotonic() - began < 8, "it is still open"
        code = txn.produce(topic, seq=seq)[0]
        seq += 1
        time.sleep(0.1)
    assert time.monotonic() - began > 0.9, "too early"
    assert code in (47, 48), code
    expect("commit", txn.end(True, keep=False)[0], 48)
    expect("nothing of it is seen", s.read(topic), [])


def case_50_an_administrators_markers_are_answered_one_by_one(s):
    topic = s.topic(3)
    one = {"ProducerEpoch": 0, "TransactionResult": False, "CoordinatorEpoch": 5}
    place = lambda p: [{"Name": topic, "PartitionIndexes": [p]}]
    for p in range(3):
        markers = [{**one, "ProducerId": 9_000_000 + n, "Topics": place(p)} for n in range(100)]
        got = s.cluster.to_leader(topic, p, "WriteTxnMarkers", 1, {"Markers": markers})["Markers"]
        codes = {m["ProducerId"]: m["Topics"][0]["Partitions"][0]["ErrorCode"] for m in got}
        expect("each has its answer", codes, {9_000_000 + n: 0 for n in range(100)})
    expect("an older coordinator", mark(s, topic, 9_000_000, 0, False, coordinator=4), 52)
    expect("no markers", s.call("WriteTxnMarkers", 1, {"Markers": []})["Markers"], [])


def case_51_an_end_of_the_transaction_before_does_not_end_this_one(s):
    topic, txn = s.topic(), s.txn()
    put(txn, topic, b"x")
    late = txn.pid, txn.epoch
    expect("commit", txn.end()[0], 0)
    put(txn, topic, b"y")
    # EndTxn 5 of the epoch before with the result that was given is confirmed again; with the other it is not known.
    assert txn.end(False, of=late, keep=False)[0] != 0
    until("open still", lambda: s.ends(topic) == (2, 3))
    expect("abort", txn.ended(False)[0], 0)
    expect("seen", s.read(topic), [b"x"])


def case_52_records_outside_of_a_transaction_are_refused(s):
    topic, txn = s.topic(), s.txn()
    expect("Produce 9", txn.produce(topic, version=9), [48, -1])
    expect("Produce 11", txn.produce(topic, version=11), [120, -1])
    expect("nothing was written", s.ends(topic), (0, 0))
    for n in range(40):
        txn.add({topic: [0]})
        records = batch([b"v"], pid=txn.pid, epoch=txn.epoch, seq=0, transactional=True)
        sender = threading.Thread(target=lambda r=records: lone_produce(s, topic, r, txn.tid))
        sender.start()
        expect("abort", txn.ended(False, 4), 0)
        sender.join()
        expect("a new producer", txn.init()[0], 0)
    stable, high = s.ends(topic)
    expect("nothing hangs", stable, high)
    expect("seen", s.read(topic), [])


def lone_produce(s, topic, records, tid):
    with s.apart() as mine:
        mine.cluster.find(topic)
        mine.cluster.produce(topic, records, version=11, transactional_id=tid)


def case_54_first_batches_keep_their_order(s):
    topic = s.topic(2)
    for _ in range(20):
        txn = s.txn()
        base = s.ends(topic, 1)[1]
        connection = Connection(s.cluster.leader(topic, 1))
        sent = []
        for seq in range(5):
            records = batch([b"%d" % seq], pid=txn.pid, epoch=txn.epoch, seq=seq, transactional=True)
            entry = {"Name": topic, "PartitionData": [{"Index": 1, "Records": records}]}
            value = {"TransactionalId": txn.tid, "Acks": -1, "TimeoutMs": 15000, "TopicData": [entry]}
            sent.append(connection.request("Produce", 12, value))
        connection.send(b"".join(sent))
        answers = [decode_answer("Produce", 12, connection.answer()[1]) for _ in sent]
        rows = [a["Responses"][0]["PartitionResponses"][0] for a in answers]
        expect("in order", [(r["ErrorCode"], r["BaseOffset"]) for r in rows], [(0, base + n) for n in range(5)])
        connection.close()
        expect("commit", txn.ended()[0], 0)


def case_58_old_versions_get_old_codes(s):
    """Also F60."""
    topic, group = s.topic(), s.group()
    old = s.txn()
    new = Txn(s, tid=old.tid)
    expect("init", new.init()[0], 0)
    expect("AddPartitionsToTxn", [old.add({topic: [0]}, v) for v in (0, 1, 2, 3)], [47, 47, 90, 90])
    expect("AddOffsetsToTxn", [old.add_group(group.name, v) for v in (0, 1, 2, 3)], [47, 47, 90, 90])
    expect("EndTxn", [old.end(True, v) for v in (0, 1, 2, 4)], [47, 47, 90, 90])
    expect("InitProducerId", [old.init(v, given=0, keep=False)[0] for v in (3, 4)], [47, 90])
    expect("Produce", [old.produce(topic, version=v)[0] for v in (9, 11, 12)], [47, 47, 47])


def case_166_many_producers_share_a_partition(s):
    topic, failed = s.topic(), []

    def run(n):
        try:
            scene = s.apart()
            txn = scene.txn(tid=f"{topic}-{n}")
            for turn in range(15):
                put(txn, topic, b"%d" % n, seq=0)
                expect("commit", txn.end()[0], 0)
            scene.cluster.drop()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(30)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed, failed[:3]
    until("nothing hangs", lambda: len(set(s.ends(topic))) == 1)
    expect("seen", len(s.read(topic)), 30 * 15)


def case_171_fencing_by_an_administrator_needs_one_request(s):
    topic, txn = s.topic(), s.txn()
    put(txn, topic, b"x")
    admin = Txn(s, tid=txn.tid)
    # Kafka answers 51 while it aborts; here the answer may also wait for it.
    assert admin.init(timeout=100, once=True, keep=False)[0] in (0, CONCURRENT)
    assert txn.end(True, keep=False)[0] in FENCED
    until("over", lambda: s.ends(topic) == (2, 2))
    expect("seen", s.read(topic), [])
    for n in range(50):
        expect("an id that nobody had", Txn(s).init(timeout=100, once=True)[0], 0)
