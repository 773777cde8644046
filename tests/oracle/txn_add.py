"""AddPartitionsToTxn and AddOffsetsToTxn: contract B3, B4, B5, F49 to F53; what the matrix leaves out."""

from table import by_version, case, outcome
from txn import Txn, in_order


def started(o, **more):
    txn = Txn(o, **more)
    txn.init(), txn.init()
    return txn


@case("B3 F49 codes by version: unknown id, foreign producer, epochs", "txn")
def _(o):
    topic = o.topic()
    txn, nobody = started(o), Txn(o)
    nobody.pid, nobody.epoch = 1, 0
    asks = {
        "unknown id": (nobody, None),
        "foreign": (txn, (txn.pid + 1000000, txn.epoch)),
        "below": (txn, -1),
        "above": (txn, 1),
        "foreign and below": (txn, (txn.pid + 1000000, 0)),
        "nobody": (txn, (-1, -1)),
    }
    out = {}
    for label, (who, of) in asks.items():
        out[label] = {
            "partitions": by_version(range(0, 4), lambda v: who.add({topic: [0]}, v, of)),
            "batch": by_version(range(4, 6), lambda v: who.ask({topic: [0]}, v, of, verify=False)),
            "verify": by_version(range(4, 6), lambda v: who.ask({topic: [0]}, v, of)),
            "group": by_version(range(0, 5), lambda v: who.add_group("g", v, of)),
        }
    return [out, txn.state([topic])]


@case("B3 F51 one partition that is not there keeps the others out", "txn")
def _(o):
    topic, other = o.topic(2), o.topic()
    never = o.name("never")
    given = {
        "partition": {topic: [0, 7], other: [0]},
        "negative partition": {topic: [-1, 1]},
        "topic": {never: [0], topic: [0]},
        "all": {never: [0, 1]},
        "twice": {topic: [0, 0]},
    }
    out = {}
    for label, parts in given.items():
        txn = started(o)
        row = {
            "add": by_version(range(0, 4), lambda v: txn.add(parts, v)),
            "state": txn.state([topic, other]),
        }
        txn = started(o)
        row["batch"] = by_version(range(4, 6), lambda v: txn.ask(parts, v, verify=False))
        row["batch state"] = txn.state([topic, other])
        row["verify"] = by_version(range(4, 6), lambda v: txn.ask(parts, v))
        out[label] = row
    txn = started(o)
    out["before the id is looked at"] = txn.add({never: [0]}, of=(5, 5))
    return out


@case("B3 F52 internal topics are not for clients", "txn")
def _(o):
    topic = o.topic()
    txn = started(o)
    out = {}
    for name in ("__consumer_offsets", "__transaction_state"):
        out[name] = by_version(range(0, 4), lambda v, n=name: txn.add({n: [0], topic: [0]}, v))
    return [out, txn.state([topic])]


@case("B3 no topics and a topic without partitions: open without partitions", "txn")
def _(o):
    topic = o.topic()
    out = {}
    for label, parts in {"no topics": {}, "no partitions": {topic: []}}.items():
        for version in (0, 3):
            txn = started(o)
            told = [txn.add(parts, version), txn.state([topic]), txn.end(True, 4), txn.rest(), txn.state()]
            out[f"{label} v{version}"] = told
        txn = started(o)
        out[f"{label} v5"] = [txn.ask(parts, 5, verify=False), txn.state([topic])]
        out[f"{label} verify"] = txn.ask(parts, 5)
    return out


@case("B3.7 F50 the union of what was added, by either way", "txn")
def _(o):
    topic, other = o.topic(4), o.topic(2)
    names = [topic, other]
    txn = started(o)
    out = [txn.add({topic: [1]}), txn.state(names), txn.add({topic: [1]}), txn.add({topic: [0, 1], other: [1]})]
    out += [txn.state(names), txn.ask({topic: [3], other: [1]}, verify=False), txn.state(names)]
    out += [txn.ask({topic: [0, 1, 2, 3], other: [0, 1]}), txn.ended(True, 5), txn.state(names)]
    out += [txn.ask({topic: [0, 1, 2, 3]}), txn.add({topic: [2]}), txn.state(names)]
    return out


@case("B3 several transactions in one request of a broker", "txn")
def _(o):
    topic = o.topic(2)
    all_of = [started(o) for _ in range(4)]
    # Only ids of one coordinator can be asked for together.
    first = all_of[0]
    first.at()
    for txn in all_of[1:]:
        while txn.at() is not first.at():
            txn.tid, txn.address, txn.pid, txn.epoch = o.name("again"), None, -1, -1
            txn.init(), txn.init()
    o.producers.clear()
    a, b, c, d = all_of
    one = lambda txn, parts, verify=False, epoch=None, tid=None: {
        "TransactionalId": txn.tid if tid is None else tid,
        "ProducerId": txn.pid,
        "ProducerEpoch": txn.epoch if epoch is None else epoch,
        "VerifyOnly": verify,
        "Topics": [{"Name": topic, "Partitions": parts}],
    }
    out = {}
    for version in (4, 5):
        asked = [one(a, [0]), one(b, [0], True), one(c, [1], epoch=9), one(d, [0, 9]), one(d, [0], tid="")]
        got = a.at().call("AddPartitionsToTxn", version, {"Transactions": asked})
        told = {r["TransactionalId"]: r["TopicResults"] for r in got["ResultsByTransaction"]}
        names = {a.tid: "a", b.tid: "b", c.tid: "c", d.tid: "d", "": "empty"}
        codes = {names[t]: in_order(r, {topic: [0, 1, 9]}) for t, r in told.items()}
        out[str(version)] = [got["ErrorCode"], codes]
    return [out, [x.state([topic]) for x in all_of]]


@case("B11.7 an empty list of transactions", "txn")
def _(o):
    def ask(version):
        got = o.connect(seconds=1).call("AddPartitionsToTxn", version, {"Transactions": []})
        return [got["ErrorCode"], got["ResultsByTransaction"]]

    return by_version(range(4, 6), ask)


@case("B5 groups: unknown, empty, in one transaction with partitions", "txn")
def _(o):
    topic = o.topic()
    out = {}
    for label, group in {"unknown": o.name("g"), "empty": "", "odd": "a\0b/ä"}.items():
        txn = started(o)
        out[label] = [by_version(range(0, 5), lambda v: txn.add_group(group, v)), txn.state()]
        out[label] += [txn.ended(True, 4), txn.state()]
    txn = started(o)
    out["both"] = [txn.add({topic: [0]}), txn.add_group("g"), txn.state([topic]), txn.ended(False, 5), txn.state()]
    named = lambda: [t["Topic"] for t in txn.describe()["Topics"]]
    txn.add_group("g")
    out["told as"] = named()
    return out


@case("B3 B6 F53 F56 F59 a producer that goes on while its transaction completes", "txn")
def _(o):
    topic = o.topic(3)
    out = {}
    for version in (4, 5):
        txn = started(o)
        epochs = []
        for step in range(5):
            parts = {topic: [0, 1, 2]}
            added = txn.add(parts) if version == 4 else txn.ask(parts, verify=False)
            written = [
                txn.produce(topic, step if version == 4 else 0, version=version + 7, partition=p)[0] for p in (0, 1)
            ]
            epochs.append([added, written, txn.end(step % 2 == 0, version)])
        out[str(version)] = [epochs, txn.rest(), txn.state()]
    return out


@case("A2 B3 requests that name no id at all", "txn")
def _(o):
    topic = o.topic()
    out = {}
    txn = Txn(o, tid="")
    txn.address = o.cluster.boot
    txn.pid, txn.epoch = 1, 0
    out["add"] = outcome(lambda: by_version(range(0, 4), lambda v: txn.add({topic: [0]}, v)))
    out["batch"] = outcome(lambda: by_version(range(4, 6), lambda v: txn.ask({topic: [0]}, v, verify=False)))
    out["group"] = outcome(lambda: by_version(range(0, 5), lambda v: txn.add_group("g", v)))
    out["end"] = outcome(lambda: by_version(range(0, 6), lambda v: txn.end(True, v)))
    return out
