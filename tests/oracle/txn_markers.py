"""Markers, from an administrator and as they lie in the log: contract A6, B7, F19 to F22, F75, F79."""

import struct

from batches import batches
from table import by_version, case
from txn import Txn, began, mark, producers

# Above what any coordinator of the case has written.
AHEAD = 100000


def opened(o, topic, epoch=5):
    """A transaction that is open at an epoch."""
    txn = Txn(o)
    while txn.epoch < epoch:
        txn.init()
    txn.produce(topic)
    return txn


def look(o, topic):
    got = o.cluster.fetch(topic, 0, wait_ms=0, isolation=1)
    aborted = [[o.producers.get(a["ProducerId"]), a["FirstOffset"]] for a in got["AbortedTransactions"]]
    return [got["HighWatermark"], got["LastStableOffset"], aborted, producers(o, topic)]


# [transaction version, or None for the request's version 1, distance of the epoch from that of the transaction].
STEPS = {
    "A6.1 F19 version 1, epochs below, at and above": [(None, -1), (None, 0), (None, 1), (None, 0)],
    "A6.1 F19 version 2 at transaction version 0": [(0, -1), (0, 0), (0, 0), (0, 5), (0, 4)],
    "A6.1 F19 version 2 at transaction version 1": [(1, -1), (1, 0), (1, 1), (1, 0)],
    "A6.1 F20 transaction version 2": [(2, -1), (2, 0), (2, 1), (2, 1), (2, 0), (2, 2)],
    "A6.1 F20 a marker far above": [(2, 9), (2, 8), (0, 9), (2, 10)],
    "A6.1 transaction version 3 acts as 2": [(3, 0), (3, 1), (3, 1), (3, 0)],
    "A6.1 transaction version 127 acts as 2": [(127, 0), (127, 1)],
}


def add_steps():
    for name, steps in STEPS.items():

        def run(o, steps=steps):
            out = {}
            for commit in (True, False):
                topic = o.topic()
                txn = opened(o, topic)
                told = [mark(o, topic, txn.pid, txn.epoch + d, commit, tv, AHEAD) for tv, d in steps]
                seqs = [
                    txn.produced(topic, txn.batch(s, of=d, transactional=False), 9)["ErrorCode"]
                    for d in (0, 1)
                    for s in (3, 1, 0)
                ]
                out["commit" if commit else "abort"] = [told, look(o, topic), seqs]
            return out

        case(name, "txn")(run)


add_steps()


@case("A6 negative producers, epochs and transaction versions", "txn")
def _(o):
    topic = o.topic()
    txn = opened(o, topic, 1)
    out = {}
    for label, (pid, epoch, tv) in {
        "epoch -1": (txn.pid, -1, None),
        "epoch -1, tv 2": (txn.pid, -1, 2),
        "producer -1": (-1, 0, None),
        "producer -2": (-2, 5, 2),
        "transaction version -1": (txn.pid, txn.epoch + 1, -1),
    }.items():
        out[label] = mark(o, topic, pid, epoch, False, tv, AHEAD)
    return [out, look(o, topic)]


@case("A6.2 F21 coordinator epochs", "txn")
def _(o):
    out = {}
    for tv in (None, 0, 2):
        topic = o.topic()
        txn = opened(o, topic)
        at = lambda d, c, tv=tv, t=topic, x=txn: mark(o, t, x.pid, x.epoch + d, False, tv, c)
        step = 1 if tv == 2 else 0
        told = [at(step, AHEAD + 2), at(step, AHEAD + 1), at(step + 1, AHEAD + 1), at(-1, AHEAD + 1), at(-1, AHEAD + 3)]
        out[str(tv)] = [*told, at(step + 1, AHEAD + 3), at(step + 2, AHEAD + 2), look(o, topic)]
    return out


@case("A6.3 F22 a marker for a producer that nobody saw", "txn")
def _(o):
    out = {}
    for tv in (None, 2):
        topic = o.topic()
        txn = Txn(o)
        while txn.epoch < 5:
            txn.init()
        told = [mark(o, topic, txn.pid, txn.epoch, True, tv), look(o, topic)]
        send = lambda d, s: txn.produced(topic, txn.batch(s, of=d, transactional=False), 9)["ErrorCode"]
        told += [send(-1, 0), send(0, 17), send(0, 0), send(0, 1), txn.produce(topic, 2), look(o, topic)]
        out[str(tv)] = told
    return out


@case("A6.4 which sequence may follow a marker", "txn")
def _(o):
    out = {}
    for label, (tv, d) in {"same epoch": (None, 0), "next epoch": (2, 1), "version 1, next": (None, 1)}.items():
        for seq in (0, 1, 2):
            topic = o.topic()
            txn = opened(o, topic, 1)
            told = [mark(o, topic, txn.pid, txn.epoch + d, True, tv)]
            records = lambda s: txn.batch(s, of=d, transactional=False)
            told += [txn.produced(topic, records(s), 9)["ErrorCode"] for s in (seq, seq, seq + 1)]
            out[f"{label}, {seq}"] = told
    return out


@case("B7 F79 codes for an administrator", "txn")
def _(o):
    topic = o.topic(2)
    txn = began(o, topic)

    def ask(version, markers):
        full = [
            {
                "ProducerId": m.get("pid", txn.pid),
                "ProducerEpoch": txn.epoch + m.get("epoch", 0),
                "TransactionResult": False,
                "Topics": [{"Name": t, "PartitionIndexes": p} for t, p in m["parts"].items()],
                "CoordinatorEpoch": AHEAD,
            }
            for m in markers
        ]
        connection = o.connect(topic, seconds=2)
        got = connection.call("WriteTxnMarkers", version, {"Markers": full})["Markers"]
        rows = [
            [o.producers.get(m["ProducerId"], "other"), t["Name"] == topic, p["PartitionIndex"], p["ErrorCode"]]
            for m in got
            for t in m["Topics"]
            for p in t["Partitions"]
        ]
        return [len(got), sorted(rows, key=str)]

    asks = {
        "none": [],
        "no topics": [{"parts": {}}],
        "unknown": [{"parts": {topic: [9, -1], o.name("never"): [0]}}],
        "two of one producer": [{"parts": {topic: [0]}}, {"parts": {topic: [9]}}],
        "two producers": [{"parts": {topic: [0]}}, {"parts": {topic: [0]}, "pid": txn.pid + 1000000}],
        "below": [{"parts": {topic: [0]}, "epoch": -1}],
    }
    return {label: by_version((1, 2), lambda v, m=markers: ask(v, m)) for label, markers in asks.items()}


@case("A6 a marker to the byte: of an administrator, of either path, committing and aborting", "txn")
def _(o):
    out = {}
    for commit in (True, False):
        for how in ("4", "5", "fence", "administrator"):
            for stamp in ("CreateTime", "LogAppendTime"):
                topic = o.topic(message_timestamp_type=stamp, compression_type="producer")
                txn = Txn(o)
                txn.init()
                txn.produce(topic, batch={"codec": "gzip"})
                old = txn.epoch
                if how == "administrator":
                    mark(o, topic, txn.pid, txn.epoch, commit, coordinator=AHEAD)
                elif how == "fence":
                    txn.init()
                else:
                    txn.ended(commit, int(how))
                control = batches(o.cluster.fetch(topic, 0)["Records"])[1]
                record = control.records()[0]
                out[f"{'commit' if commit else 'abort'} {how} {stamp}"] = [
                    control.base_offset,
                    control.length + 12,
                    control.attributes,
                    control.last_delta,
                    control.pid == txn.pid,
                    control.epoch - old,
                    control.seq,
                    control.count,
                    control.crc_holds(),
                    record[2].hex(),
                    # Whose coordinator it was is a broker's own.
                    [record[3][:2].hex(), len(record[3]), struct.unpack(">i", record[3][2:])[0] == AHEAD],
                    record[4],
                    # Between making and appending a marker a millisecond may pass, which LogAppendTime shows.
                    stamp == "LogAppendTime" or control.first_timestamp == control.max_timestamp,
                ]
    return out


@case("A6.5 F33 F34 a marker between a refused attempt and the next", "txn")
def _(o):
    out = {}
    for version in (11, 12):
        for d in (0, 1):
            topic = o.topic()
            txn = Txn(o)
            txn.init()
            told = [txn.produce(topic, 4, version=version)[0], mark(o, topic, txn.pid, txn.epoch + d, False)]
            txn.epoch += d
            told += [txn.produced(topic, txn.batch(s, transactional=False), 9)["ErrorCode"] for s in (5, 0, 1)]
            out[f"{version}, epoch +{d}"] = [*told, producers(o, topic)]
    return out


@case("B7 F79 a transaction that nobody owns is ended by an administrator", "txn")
def _(o):
    topic = o.topic()
    txn = opened(o, topic, 1)
    out = [look(o, topic), mark(o, topic, txn.pid, txn.epoch, False, 0, AHEAD), look(o, topic)]
    # For its coordinator it is open still; its marker finds another coordinator's.
    return [*out, txn.state([topic])]
