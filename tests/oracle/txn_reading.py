"""What readers see of transactions: contract A9, A10, C1, C2, F24 to F29."""

import threading

from batches import batch
from reading import body, parts_of
from table import by_version, case
from txn import Txn, began, mark

FETCH = range(4, 19)


def read(o, topic, offset=0, isolation=1, version=12, **more):
    """[code, high watermark, LSO, start, base offsets, aborted as far as the data goes]."""
    got = o.cluster.fetch(topic, offset, version=version, isolation=isolation, wait_ms=0, **more)
    from batches import batches

    found = batches(got["Records"])
    end = found[-1].last_offset if found else -1
    listed = got["AbortedTransactions"]
    # More than the data needs may be listed (A10).
    listed = listed and sorted([a["FirstOffset"], o.producers.get(a["ProducerId"])] for a in listed)
    listed = listed and [a for a in listed if a[0] <= end]
    watermarks = [got["HighWatermark"], got["LastStableOffset"], got.get("LogStartOffset")]
    return [got["ErrorCode"], *watermarks, [b.base_offset for b in found], listed]


def read_on(o, topic):
    """`read` from the start to the end of the log, across what a broker cuts answers at."""
    out = read(o, topic)
    while out[4] and (more := read(o, topic, out[4][-1] + 1))[4]:
        out[4] += more[4]
        out[5] = sorted({tuple(a) for a in out[5] + more[5]})
    return out


def interleaved(o, topic):
    """Four transactions of three producers: [0] a, [1] b, [2] a, [3] plain, a aborts [4], [5] c, b commits [6],
    [7] a again, c aborts [8], a commits [9], [10] b stays open."""
    a, b, c = (Txn(o) for _ in range(3))
    for txn in (a, b, c):
        txn.init()
    o.producers.clear()
    for txn in (a, b, c):
        txn.label(txn.pid)
    a.produce(topic), b.produce(topic), a.produce(topic, 1)
    o.fill(topic)
    a.ended(False, 5)
    c.produce(topic)
    b.ended(True, 5)
    a.produce(topic)
    c.ended(False, 5)
    a.ended(True, 5)
    b.produce(topic)
    return a, b, c


@case("A10 F26 F27 the aborted list from every offset, at each size", "txn")
def _(o):
    topic = o.topic()
    _, b, _ = interleaved(o, topic)
    out = {}
    for size in (1, 300, 1 << 20):
        for isolation in (0, 1):
            out[f"{size}, level {isolation}"] = [read(o, topic, at, isolation, max_bytes=size) for at in range(13)]
    b.ended(False, 4)
    out["decided"] = [read(o, topic, at) for at in range(13)]
    return out


@case("C1 both levels at each version, with an open and an aborted transaction", "txn")
def _(o):
    topic = o.topic()
    interleaved(o, topic)
    return {
        f"{at}, level {isolation}": by_version(FETCH, lambda v, a=at, i=isolation: read(o, topic, a, i, v))
        for at in (0, 4, 9, 10, 11, 12)
        for isolation in (0, 1)
    }


@case("C1 the list is null or empty beside errors, by level", "txn")
def _(o):
    topic = o.topic()
    interleaved(o, topic)
    ask = lambda v, at, level: o.cluster.fetch(topic, at, 0, v, wait_ms=0, isolation=level)["AbortedTransactions"]
    return {
        f"{at}, level {level}": by_version(FETCH, lambda v, a=at, i=level: ask(v, a, i))
        for at in (99, 11)
        for level in (0, 1)
    }


@case("A9 F24 the first unstable offset moves from transaction to transaction", "txn")
def _(o):
    topic = o.topic()
    a, b, c = (Txn(o) for _ in range(3))
    for txn in (a, b, c):
        txn.init()
    look = lambda: read(o, topic)[1:3]
    out = [look()]
    for txn in (a, b, c):
        txn.produce(topic, version=12)
        out.append(look())
    for txn, commit in ((b, True), (a, False), (c, True)):
        txn.ended(commit, 5)
        out.append(look())
    o.fill(topic)
    out.append(look())
    a.produce(topic)
    o.fill(topic)
    out += [look(), a.ended(True, 4), look()]
    return out


@case("C2 F29 ListOffsets by level: latest, earliest, times, the largest time", "txn")
def _(o):
    topic = o.topic()
    a, b = Txn(o), Txn(o)
    a.init(), b.init()
    send = lambda txn, seq, at: txn.produced(topic, txn.batch(seq, timestamp=at))
    base = 1893456000000 - 86400000 * 365 * 4
    send(a, 0, base + 10)
    a.ended(False, 5)
    o.fill(topic, timestamp=base + 20)
    send(b, 0, base + 30)
    o.fill(topic, timestamp=base + 40)
    send(b, 1, base + 5)

    def ask(version, isolation, timestamp):
        part = {"PartitionIndex": 0, "Timestamp": timestamp, "CurrentLeaderEpoch": -1}
        value = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [part]}]}
        if version >= 2:
            value["IsolationLevel"] = isolation
        got = o.cluster.to_leader(topic, 0, "ListOffsets", version, value)["Topics"][0]["Partitions"][0]
        stamp = got["Timestamp"]
        # A marker's time is the broker's.
        return [got["ErrorCode"], got["Offset"], stamp if stamp < 0 else stamp - base if stamp < base + 99 else "now"]

    out = {}
    times = {"latest": -1, "earliest": -2, "largest": -3, **{f"+{t}": base + t for t in (0, 6, 11, 21, 31, 41)}}
    for when in ("open", "ended"):
        for label, timestamp in times.items():
            for isolation in (0, 1):
                run = lambda v, t=timestamp, i=isolation: ask(v, i, t)
                out[f"{when}: {label}, level {isolation}"] = by_version((1, 2, 5, 7, 11), run)
        if when == "open":
            b.ended(True, 5)
    return out


@case("A9 F25 the log start moves into and behind an open transaction", "txn")
def _(o):
    out = {}
    for first in (1, 2, 3, 4, 5, 6):
        topic = o.topic()
        txn = Txn(o)
        txn.init()
        o.fill(topic, records=2)
        txn.produce(topic, 0, 3)
        o.fill(topic, records=2)
        value = {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": first}]}], "TimeoutMs": 5000}
        got = o.cluster.to_leader(topic, 0, "DeleteRecords", 2, value)["Topics"][0]["Partitions"][0]
        seen = read(o, topic, first)
        more = txn.produce(topic, 3)
        out[str(first)] = [
            [got["ErrorCode"], got["LowWatermark"]],
            seen[:4],
            more,
            txn.ended(False, 4),
            read(o, topic, first),
        ]
    return out


@case("A9 DeleteRecords to the high watermark goes through open transactions", "txn")
def _(o):
    topic = o.topic()
    txn = began(o, topic)
    value = {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": -1}]}], "TimeoutMs": 5000}
    got = o.cluster.to_leader(topic, 0, "DeleteRecords", 2, value)["Topics"][0]["Partitions"][0]
    out = [got["ErrorCode"], got["LowWatermark"], read(o, topic, 1), txn.produce(topic, 1), read(o, topic, 1)]
    return [*out, txn.ended(False, 5), read(o, topic, 1), read(o, topic, 0)[0]]


def waits(o, offset, commit):
    """[whether it waits, also after more of the transaction came, what it is told at the end of the transaction]."""
    topic = o.topic()
    txn = Txn(o)
    txn.init()
    txn.produce(topic)
    connection = o.connect(topic)
    got = {}

    def wait():
        value = body(o, 12, [(topic, 0, offset)], wait_ms=8000, isolation=1)
        got["answer"] = connection.call("Fetch", 12, value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.2)
    out = [waiting.is_alive()]
    txn.produce(topic, 1)
    waiting.join(0.2)
    out.append(waiting.is_alive())
    txn.ended(commit, 5)
    waiting.join(7)
    part = parts_of(got["answer"])[0][1]
    return [*out, [part["batches"], [a["FirstOffset"] for a in part["aborted"]], part["lso"]]]


@case("C1 F28 a waiting reader at level 1 is released by the end of a transaction", "txn")
def _(o):
    return {"commit": waits(o, 0, True), "abort": waits(o, 0, False)}


@case("C1 a reader at level 1 that stands beyond the last stable offset", "txn")
def _(o):
    return waits(o, 1, False)


@case("C1 one producer that aborts and commits in turn", "txn")
def _(o):
    topic = o.topic()
    txn = Txn(o)
    txn.init()
    for commit in (False, True, False, True, True):
        txn.produce(topic)
        txn.ended(commit, 5)
    return [read(o, topic, at) for at in range(11)]


@case("A10 F26 a transaction over several segments", "txn")
def _(o):
    topic = o.topic(segment_bytes=1048576)
    a, b = Txn(o), Txn(o)
    a.init(), b.init()
    big = lambda txn, seq: txn.produced(
        topic, batch([b"v" * 400000], pid=txn.pid, epoch=txn.epoch, seq=seq, transactional=True)
    )["ErrorCode"]
    out = [big(a, 0), big(b, 0), *(big(a, s) for s in range(1, 8))]
    a.ended(False, 5)
    out += [big(a, 0), b.ended(False, 4), a.ended(True, 5)[0]]
    return [out, [read(o, topic, at, max_bytes=1) for at in range(14)]]


@case("A6 C1 markers on a partition where nothing was written", "txn")
def _(o):
    topic = o.topic(2)
    txn = Txn(o)
    txn.init()
    txn.add({topic: [0, 1]})
    txn.produce(topic)
    txn.ended(False, 5)
    look = lambda p: read(o, topic, 0, partition=p)
    return [look(0), look(1), mark(o, topic, txn.pid, txn.epoch, False, 2, 100000, (1,)), look(1)]
