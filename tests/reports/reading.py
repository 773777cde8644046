"""Reports about what read_committed consumers see."""

import threading
import time

from report import expect
from scene import READ_UNCOMMITTED, filtered, put, until
from txn import Txn


def case_61_aborted_records_are_never_seen_however_late_the_abort(s):
    topic, seen, done = s.topic(), [], threading.Event()

    def poll():
        scene, offset = s.apart(), 0
        scene.cluster.find(topic)
        while not done.is_set():
            got = scene.cluster.fetch(topic, offset, isolation=1, wait_ms=50)
            values, offset, _ = filtered(got, offset)
            seen.extend(values)
        scene.cluster.drop()

    reader = threading.Thread(target=poll)
    reader.start()
    txn = s.txn()
    for n in range(12):
        put(txn, topic, b"no")
        time.sleep((0, 0.075, 0.1, 0.2)[n % 4])
        expect("abort", txn.ended(False)[0], 0)
    done.set()
    reader.join()
    expect("seen", seen, [])


def case_64_a_reader_is_never_ahead_of_an_outcome(s):
    topic, failed, done = s.topic(), [], threading.Event()

    def poll():
        scene, offset, last = s.apart(), 0, 0
        scene.cluster.find(topic)
        try:
            while not done.is_set() or last > offset:
                got = scene.cluster.fetch(topic, offset, isolation=1, wait_ms=20)
                assert got["LastStableOffset"] >= last, "it went back"
                assert got["LastStableOffset"] <= got["HighWatermark"]
                last = got["LastStableOffset"]
                values, offset, _ = filtered(got, offset)
                assert all(v == b"yes" for v in values), values
        except Exception as error:
            failed.append(error)
        scene.cluster.drop()

    readers = [threading.Thread(target=poll) for _ in range(4)]
    [r.start() for r in readers]
    txn = s.txn()
    for n in range(200):
        put(txn, topic, b"yes" if n % 2 else b"no")
        expect("end", txn.end(n % 2 == 1)[0], 0)
    txn.rest()
    done.set()
    [r.join() for r in readers]
    expect("failures", failed, [])


def case_66_aborted_transactions_are_listed_across_segments(s):
    """Also case 168: the answer's list and data are of one place."""
    topic = s.topic(segment_bytes=1 << 20)
    # Two batches do not fit into a segment, so that data and markers are spread.
    value, want = lambda n: b"%d " % n + b"x" * 600_000, []
    for n in range(9):
        txn = s.txn()
        put(txn, topic, value(n))
        expect("end", txn.ended(n % 3 == 0)[0], 0)
        want += [value(n)] if n % 3 == 0 else []
    expect("seen from the start", s.read(topic), want)
    end = s.ends(topic)[1]
    for offset in range(end):
        got = s.read(topic, offset=offset)
        expect(f"seen from {offset}", got, want[len(want) - len(got) :])
        expect("as many as there are", len(got), len([n for n in (0, 3, 6) if 2 * n >= offset]))


def case_70_the_old_epochs_marker_comes_before_the_new_ones_records(s):
    topic, old = s.topic(), s.txn()
    put(old, topic, b"x")
    new = Txn(s, tid=old.tid)
    expect("init", new.init()[0], 0)
    expect("y comes behind x and its marker", put(new, topic, b"y"), 2)
    expect("commit", new.ended()[0], 0)
    expect("seen", s.read(topic), [b"y"])
    expect("at the other level", s.read(topic, isolation=READ_UNCOMMITTED), [b"x", b"y"])


def case_73_list_offsets_ends_where_the_level_ends(s):
    topic, txn = s.topic(), s.txn()
    put(txn, topic, b"x")
    latest = lambda level: s.cluster.to_leader(
        topic,
        0,
        "ListOffsets",
        5,
        {
            "ReplicaId": -1,
            "IsolationLevel": level,
            "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}],
        },
    )["Topics"][0]["Partitions"][0]["Offset"]
    expect("open", [latest(0), latest(1)], [1, 0])
    expect("commit", txn.ended()[0], 0)
    expect("ended", [latest(0), latest(1)], [2, 2])


def case_76_an_empty_partition_reads_as_empty(s):
    topic = s.topic()
    expect("new", [s.ends(topic), s.read(topic)], [(0, 0), []])
    txn = s.txn()
    put(txn, topic, b"x")
    expect("commit", txn.ended()[0], 0)
    entry = {"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": -1}]}
    got = s.cluster.to_leader(topic, 0, "DeleteRecords", 2, {"Topics": [entry], "TimeoutMs": 10000})
    expect("deleted", got["Topics"][0]["Partitions"][0]["LowWatermark"], 2)
    got = s.cluster.fetch(topic, 2, isolation=1, wait_ms=0)
    expect("all deleted", [got[k] for k in ("ErrorCode", "HighWatermark", "LastStableOffset", "LogStartOffset")], [0, 2, 2, 2])


def case_159_an_end_over_many_partitions_takes_little_longer_than_over_one(s):
    topic = s.topic(50)

    def time_of(partitions):
        took, txn = [], s.txn()
        for _ in range(7):
            txn.add({topic: list(range(partitions))})
            began = time.monotonic()
            expect("commit", txn.end(True, 4, once=True), 0)
            took.append(time.monotonic() - began)
            until("complete", lambda: txn.rest() == "CompleteCommit")
        return sorted(took)[3]

    one, fifty = time_of(1), time_of(50)
    assert fifty < 10 * one + 0.05, f"{one * 1e3:.1f} ms for one, {fifty * 1e3:.1f} ms for fifty"
