"""Produce with transactional batches: contract A2, A4, A5, F9 to F12, F23, F30 to F37."""

from batches import batch
from table import by_version, case, produced, settle
from txn import Txn, began, fence, producers

VERSIONS = range(3, 14)


def added(o, topic, partitions=(0,), version=3):
    txn = Txn(o)
    txn.init()
    txn.add({topic: list(partitions)}, version)
    return txn


@case("A4 F30 F35 F49 codes by version and by what the coordinator says", "txn")
def _(o):
    topic = o.topic()
    out = {}

    def ready(how):
        txn = Txn(o)
        txn.init()
        if how == "unknown id":
            txn.tid, txn.address = o.name("never"), None
        elif how == "foreign producer":
            txn.pid += 1000000
        elif how == "future epoch":
            txn.epoch += 1
        elif how == "stale epoch":
            txn.init()
            txn.epoch -= 1
        elif how == "added":
            txn.add({topic: [0]})
        elif how == "group added":
            txn.add_group("g")
        elif how == "aborted by a fence":
            txn.add({topic: [0]})
            fence(txn)
            txn.epoch -= 1
        elif how == "ended, old epoch":
            txn.add({topic: [0]})
            txn.ended(True, 5)
            txn.epoch -= 1
        elif how == "ended, same epoch":
            txn.add({topic: [0]})
            txn.ended(True, 4)
        return txn

    for how in (
        "not added",
        "added",
        "group added",
        "unknown id",
        "foreign producer",
        "future epoch",
        "stale epoch",
        "aborted by a fence",
        "ended, old epoch",
        "ended, same epoch",
    ):

        def one(v, how=how):
            txn = ready(how)
            before = o.cluster.offset(topic)
            got = txn.produced(topic, txn.batch(), v)
            return [produced(got, before), txn.state([topic])[1::3]]

        out[how] = by_version(VERSIONS, one)
    return out


@case("A2.2 a transactional batch without an id, and an id without a transactional batch", "txn")
def _(o):
    topic = o.topic()
    txn = added(o, topic)

    def plain(v):
        base = o.cluster.offset(topic)
        return produced(o.cluster.produce(topic, batch(), version=v, transactional_id="nobody-knows-it"), base)

    return {
        "no id": by_version(VERSIONS, lambda v: produced(txn.produced(topic, txn.batch(), v, transactional_id=None))),
        "no batch": by_version(VERSIONS, plain),
        "empty id": by_version(VERSIONS, lambda v: produced(txn.produced(topic, txn.batch(), v, transactional_id=""))),
    }


# Batches that are refused, by the number of their rule in A2.
REFUSED = {
    "A2.4 magic 1": lambda x: x.batch(magic=1),
    "A2.4 two batches": lambda x: x.batch() + x.batch(1),
    "A2.4 cut": lambda x: x.batch()[:-1],
    "A2.5 base offset": lambda x: x.batch(base_offset=1),
    "A2.5 CRC": lambda x: x.batch(crc_xor=1),
    "A2.5 count": lambda x: x.batch(count=2),
    "A2.5 control": lambda x: x.batch(control=True),
    "A2.5 timestamp": lambda x: x.batch(timestamp=4102444800000),
    "A2.5 large": lambda x: batch([b"v" * 3000], pid=x.pid, epoch=x.epoch, seq=0, transactional=True),
    "A5.4 sequence": lambda x: x.batch(5),
    "good": lambda x: x.batch(),
}


@case("A2 A4 what is refused later has been added before: the order of the checks", "txn")
def _(o):
    topic = o.topic(max_message_bytes=2000)
    out = {}
    for label, make in REFUSED.items():
        for acks in (-1, 2):

            def one(v, make=make, acks=acks):
                txn = Txn(o)
                txn.init()
                before = o.cluster.offset(topic)
                got = produced(txn.produced(topic, make(txn), v, acks=acks), before)
                return [got, txn.state([topic])[1:2]]

            out[f"{label}, acks {acks}"] = by_version((11, 12, 13), one)
    return out


@case("A2 A4 A5 the order with stale epochs: 47 of the coordinator before what looks at the batch", "txn")
def _(o):
    topic = o.topic(max_message_bytes=2000)
    out = {}
    for label, make in REFUSED.items():
        for acks in (-1, 2):

            def one(v, make=make, acks=acks):
                txn = Txn(o)
                txn.init(), txn.init()
                txn.epoch -= 1
                return produced(txn.produced(topic, make(txn), v, acks=acks))

            out[f"{label}, acks {acks}"] = by_version((11, 12), one)
    return out


@case("A2.8 internal topics and transactions", "txn")
def _(o):
    o.group().commit({"x": {0: 1}})

    def one(v):
        txn = Txn(o)
        txn.init()
        value = {
            "TransactionalId": txn.tid,
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [
                {"Name": "__consumer_offsets", "PartitionData": [{"Index": 0, "Records": txn.batch()}]},
            ],
        }
        got = o.call("Produce", v, value)["Responses"][0]["PartitionResponses"][0]["ErrorCode"]
        return [got, txn.state()[1]]

    return by_version((11, 12), one)


@case("A2.6 F36 transactional batches of two producers or two epochs", "txn")
def _(o):
    topic = o.topic(6)
    led = [p for p in range(6) if o.cluster.leader(topic, p) == o.cluster.leader(topic, 0)][:3]
    out = {}

    def ask(txn, batches, version):
        data = [{"Index": p, "Records": b} for p, b in zip(led, batches)]
        entry = {"PartitionData": data}
        entry.update({"TopicId": o.cluster.ids[topic]} if version >= 13 else {"Name": topic})
        value = {"TransactionalId": txn.tid, "Acks": -1, "TimeoutMs": 5000, "TopicData": [entry]}
        got = o.cluster.to_leader(topic, 0, "Produce", version, value)["Responses"][0]["PartitionResponses"]
        told = {p["Index"]: [p["ErrorCode"], p.get("ErrorMessage") is not None] for p in got}
        return [told[p] for p, _ in zip(led, batches)]

    one = lambda x, **more: batch(pid=x.pid, epoch=x.epoch, seq=0, transactional=True, **more)
    a, b = added(o, topic, range(6)), added(o, topic, range(6))
    later = batch(pid=a.pid, epoch=a.epoch + 1, seq=0, transactional=True)
    asks = {
        "two producers": [one(a), one(b)],
        "two epochs": [one(a), later],
        "and a plain one": [one(a), one(b), batch()],
    }
    for label, batches in asks.items():
        out[label] = by_version((3, 8, 11, 12, 13), lambda v, b=batches: ask(a, b, v))
    return [out, a.state([topic]), b.state([topic])]


@case("A4 c where its transaction is open nobody asks for the id", "txn")
def _(o):
    topic = o.topic(2)
    a, b = began(o, topic), Txn(o)
    b.init()
    out = {}
    seq = iter(range(1, 100))
    for label, tid in {"unknown": "nobody-knows-it", "another's": b.tid, "empty": ""}.items():
        here = by_version(
            VERSIONS, lambda v: a.produced(topic, a.batch(next(seq)), v, transactional_id=tid)["ErrorCode"]
        )
        there = by_version(VERSIONS, lambda v: a.produced(topic, a.batch(), v, 1, transactional_id=tid)["ErrorCode"])
        out[label] = [here, there]
    return [out, a.state([topic]), b.state([topic])]


# Steps of one producer on one partition; each tells the code and the base offset.
#   (version, sequence, records)  a transactional batch     ("plain", sequence, records)  one that is not
#   "add"  "commit 4"  "abort 4"  "commit 5"  "abort 5"   "init" takes the next epoch   "up" and "down" only claim one
STEPS = {
    "F9 unknown producer, added, any first sequence": ["add", (11, 7, 1), (11, 8, 1), (11, 7, 1), (11, 6, 1)],
    "F10 unknown producer, Produce 12: only 0": [(12, 7, 1), (12, 0, 1), (12, 1, 1)],
    "A5.4 after a bump by EndTxn 5: only 0": [(12, 0, 1), "commit 5", (12, 3, 1), (12, 0, 1), "commit 5"],
    "A5.1 duplicates in an open transaction": [(12, s, 1) for s in range(6)] + [(12, s, 1) for s in range(7)],
    "A5.7 gap and overlap in an open transaction": [(12, 0, 3), (12, 4, 1), (12, 1, 2), (12, 2, 2), (12, 3, 1)],
    "F23 sequences go on after EndTxn 4": ["add", (11, 0, 2), "commit 4", "add", (11, 2, 1), (11, 0, 2), (11, 3, 1)],
    "F23 a duplicate of an ended transaction binds": ["add", (11, 0, 2), "commit 4", "add", (11, 0, 2), (11, 2, 1)],
    "A4 a duplicate of an ended transaction, not added": ["add", (11, 0, 1), "commit 4", (11, 0, 1), (10, 0, 1)],
    "A4 a duplicate of an ended transaction, Produce 12": ["add", (11, 0, 1), "commit 4", (12, 0, 1), "state"],
    "A4 the old epoch after EndTxn 5": [(12, 0, 1), "commit 5", "down", (12, 0, 1), (12, 1, 1), (11, 1, 1)],
    "A4 d a refused attempt binds": [(11, 0, 1), "add", (11, 5, 1), (11, 0, 1), (11, 1, 1)],
    "A4 d a refused attempt at 7 on the old path, then the new": [(11, 7, 1), (12, 7, 1), (12, 8, 1)],
    "A4 d a lower attempt lowers it": [(11, 7, 1), (11, 3, 1), "add", (11, 7, 1), (11, 3, 1), (11, 4, 1)],
    "A4 d a higher epoch replaces it": [(11, 3, 1), "init", "add", (11, 5, 1), (11, 6, 1)],
    "A5.4 A5.5 a refused attempt binds plain batches too": [
        (12, 3, 1),
        ("plain", 3, 1),
        ("plain", 0, 1),
        ("plain", 1, 1),
    ],
    "A5.5 a refused attempt on the old path and plain batches": [(11, 3, 1), ("plain", 5, 1), ("plain", 3, 1)],
    "F12 plain batches in an open transaction": [
        (12, 0, 1),
        ("plain", 1, 1),
        ("plain", 3, 1),
        ("plain", 0, 1),
        "up",
        ("plain", 0, 1),
        "down",
        "commit 5",
        ("plain", 0, 1),
        ("plain", 1, 1),
    ],
    "A5 plain first, then transactional": [("plain", 0, 2), (12, 2, 1), ("plain", 3, 1), (12, 3, 1), "commit 5"],
    "A5.1 the bit does not count for duplicates": [("plain", 0, 1), (12, 0, 1), "state", (12, 1, 1), ("plain", 1, 1)],
    "A5 both paths in one transaction": [(12, 0, 1), (11, 1, 1), (3, 2, 1), (13, 3, 1), "commit 4", "add", (10, 4, 1)],
    "A6.4 abort 4 keeps the sequence": ["add", (11, 0, 1), "abort 4", "add", (11, 0, 1), (11, 1, 1), (11, 2, 1)],
    "A6.4 abort 5 begins anew": [(12, 0, 1), "abort 5", (12, 1, 1), (12, 0, 1), (12, 1, 1), "abort 5"],
    "A5.6 a new epoch in an open partition": [(12, 0, 1), "init", (12, 1, 1), (12, 0, 1), (11, 1, 1)],
    "A5 an epoch that nobody gave": [(12, 0, 1), "up", (12, 0, 1), (11, 0, 1), "down", (12, 1, 1)],
}


def add_steps():
    for name, steps in STEPS.items():

        def run(o, steps=steps):
            topic = o.topic()
            txn = Txn(o)
            out = [txn.init()[0]]
            for step in steps:
                if isinstance(step, tuple):
                    version, seq, count = step
                    is_plain = version == "plain"
                    records = txn.batch(seq, count, transactional=not is_plain)
                    got = txn.produced(topic, records, 9 if is_plain else version)
                    out.append([got["ErrorCode"], got["BaseOffset"], got.get("LogStartOffset")])
                elif step == "add":
                    out.append(txn.add({topic: [0]}))
                elif step == "init":
                    out.append(txn.init())
                elif step == "state":
                    out.append(txn.state([topic]))
                elif step in ("up", "down"):
                    txn.epoch += 1 if step == "up" else -1
                else:
                    kind, version = step.split()
                    out.append(txn.ended(kind == "commit", int(version)))
            return [out, txn.state([topic]), producers(o, topic)]

        case(name, "txn")(run)


add_steps()


@case("A4 several partitions: what fails has its code, the others are written", "txn")
def _(o):
    topic = o.topic(2)
    out = {}

    def one(v):
        txn = added(o, topic, [0])
        parts = [(0, txn.batch()), (9, txn.batch()), (0, txn.batch())]
        data = [{"Index": i, "Records": b} for i, b in parts]
        entry = {"PartitionData": data}
        entry.update({"TopicId": o.cluster.ids[topic]} if v >= 13 else {"Name": topic})
        value = {"TransactionalId": txn.tid, "Acks": -1, "TimeoutMs": 5000, "TopicData": [entry]}
        got = o.cluster.to_leader(topic, 0, "Produce", v, value)["Responses"][0]["PartitionResponses"]
        return [sorted([p["Index"], p["ErrorCode"]] for p in got), txn.state([topic])]

    out["unknown partition"] = by_version((3, 11, 12, 13), one)
    return out


@case("A2.7 acks 1 and 0: an error of the coordinator closes the connection", "txn")
def _(o):
    from table import outcome

    topic = o.topic()
    out = {}
    for version in (11, 12):
        txn = added(o, topic)
        out[f"acks 1, {version}"] = [txn.produce(topic, 0, version=version, acks=1)[0], txn.ended(True, 5)[0]]
        txn = added(o, topic)
        end = o.cluster.offset(topic)
        connection = o.connect(topic)
        frame = lambda epoch, seq: connection.request(
            "Produce",
            version,
            {
                "TransactionalId": txn.tid,
                "Acks": 0,
                "TimeoutMs": 5000,
                "TopicData": [
                    {"Name": topic, "PartitionData": [{"Index": 0, "Records": txn.batch(seq, of=(txn.pid, epoch))}]}
                ],
            },
        )
        connection.send(frame(txn.epoch, 0))
        written = settle(lambda: o.cluster.offset(topic), lambda got: got == end + 1) == end + 1
        alive = outcome(lambda: connection.call("Metadata", 9, {"Topics": []}) and "open")
        # A future epoch: the coordinator refuses it.
        connection.send(frame(txn.epoch + 7, 0))
        dead = outcome(lambda: connection.call("Metadata", 9, {"Topics": []}) and "open")
        out[f"acks 0, {version}"] = [written, alive, dead, txn.ended(False, 5)[0]]
    return out


@case("A5 plain batches of a producer that was fenced and never wrote there", "txn")
def _(o):
    topic = o.topic()
    txn = Txn(o)
    txn.init()
    old = (txn.pid, txn.epoch)
    first = txn.produced(topic, txn.batch(transactional=False), 9)["ErrorCode"]
    txn.init()
    send = lambda seq: txn.produced(topic, txn.batch(seq, of=old, transactional=False), 9)["ErrorCode"]
    return {"before": first, "duplicate": send(0), "next": send(1), "coordinator": txn.produce(topic, 1, of=old)[0]}


@case("A4 F11 F34 a producer that pipelines the first batches of its transactions", "txn")
def _(o):
    from wire import decode_answer

    topic = o.topic()
    txn = Txn(o)
    txn.init()
    out = []
    for round_ in range(3):
        connection = o.connect(topic)
        for seq in range(5):
            value = {
                "TransactionalId": txn.tid,
                "Acks": -1,
                "TimeoutMs": 5000,
                "TopicData": [{"Name": topic, "PartitionData": [{"Index": 0, "Records": txn.batch(seq)}]}],
            }
            connection.send(connection.request("Produce", 12, value))
        codes = []
        for _ in range(5):
            got = decode_answer("Produce", 12, connection.answer()[1])["Responses"][0]["PartitionResponses"][0]
            codes.append([got["ErrorCode"], got["BaseOffset"]])
        out.append([codes, txn.end(round_ != 1, 5)])
        txn.rest()
    return [out, producers(o, topic)]
