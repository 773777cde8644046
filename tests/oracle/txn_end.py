"""EndTxn beyond the matrix: contract B6, F56 to F60, B11.4."""

from table import by_version, case
from txn import Txn, began, mark


@case("B6 F60 F54 codes by version: unknown id, foreign producer, epochs", "txn")
def _(o):
    topic = o.topic()
    out = {}
    for label, of in {"foreign": "foreign", "below": -1, "above": 1, "two below": -2, "right": None}.items():

        def one(v, commit, of=of):
            txn = Txn(o)
            txn.init(), txn.init(), txn.init()
            txn.labels.clear()
            txn.label(txn.pid)
            txn.add({topic: [0]})
            return [txn.end(commit, v, (txn.pid + 1000000, txn.epoch) if of == "foreign" else of), txn.rest()]

        out[label] = {str(c): by_version(range(0, 6), lambda v, c=c: one(v, c)) for c in (True, False)}
    nobody = Txn(o)
    nobody.pid, nobody.epoch = 1, 0
    out["unknown id"] = by_version(range(0, 6), lambda v: nobody.end(True, v))
    return out


@case("B6 F56 F58 EndTxn 5 again: the retry, the other way, and further away", "txn")
def _(o):
    topic = o.topic()
    out = {}
    for commit in (True, False):
        txn = began(o, topic)
        told = [txn.end(commit, 5), txn.rest(), txn.end(commit, 5, -1), txn.end(commit, 5, -1)]
        told += [txn.end(not commit, 5, -1), txn.end(commit, 5, -2), txn.end(commit, 5, 1), txn.state()]
        told += [
            txn.end(True, 5),
            txn.produce(topic)[0],
            txn.end(commit, 5, -1),
            txn.state([topic]),
            txn.ended(True, 5),
        ]
        out["commit" if commit else "abort"] = told
    return out


@case("B6 F55 F59 aborts with nothing to abort, one after the other", "txn")
def _(o):
    txn = Txn(o)
    txn.init()
    out = [txn.end(False, 5) for _ in range(4)]
    return [out, txn.rest(), txn.state(), txn.end(False, 5, -1), txn.end(False, 4), txn.end(False, 5), txn.state()[2:]]


@case("B6 a late EndTxn ends the next transaction on the old path, and not on the new one", "txn")
def _(o):
    topic = o.topic()
    out = {}
    txn = began(o, topic, version=11)
    txn.ended(True, 4)
    txn.add({topic: [0]}), txn.produce(topic, 1, version=11)
    out["4"] = [txn.end(True, 4), txn.rest(), txn.state()]
    txn = began(o, topic)
    txn.ended(True, 5)
    txn.produce(topic)
    out["5"] = [txn.end(True, 5, -1), txn.rest(), txn.state([topic]), txn.end(True, 5)]
    return out


@case("B6 a zombie is told of a commit that another one made", "txn")
def _(o):
    topic = o.topic()
    txn = began(o, topic)
    txn.ended(True, 4)
    txn.init(given=0)
    txn.add({topic: [0]})
    return [txn.ended(True, 4), txn.end(True, 5, -1, keep=False), txn.end(False, 5, -1, keep=False), txn.state()]


@case("B6 one transaction on both paths: markers carry that of the request that ends it", "txn")
def _(o):
    topic = o.topic(2)
    out = {}
    for add, end in ((3, 4), (3, 5), (5, 4), (5, 5)):
        txn = Txn(o)
        txn.init()
        parts = {topic: [0, 1]}
        told = [txn.add(parts) if add == 3 else txn.ask(parts, verify=False)]
        told += [txn.produce(topic, version=11)[0], txn.produce(topic, version=12, partition=1)[0]]
        told += [txn.ended(True, end), txn.state()]
        # The next one, at the epoch that the end left.
        seq = 0 if end == 5 else 1
        told += [txn.produce(topic, seq)[0], txn.produce(topic, 1, partition=1)[0], txn.state([topic])]
        out[f"add {add}, end {end}"] = [*told, txn.ended(False, end)]
    return out


@case("B6 partitions are cleared by the end, and a start time set", "txn")
def _(o):
    topic = o.topic(2)
    txn = began(o, topic)
    look = lambda: [txn.describe()[k] for k in ("TransactionState", "ProducerEpoch", "Topics")]
    out = [len(look()[2]), txn.ended(True, 5), look()]
    started = txn.describe()["TransactionStartTimeMs"]
    out += [started >= 0, txn.ended(False, 5), look()]
    return [*out, txn.describe()["TransactionStartTimeMs"] >= started]


@case("B11.4 a marker that the partition refuses: its epoch or coordinator is ahead", "txn")
def _(o):
    out = {}
    for label, (epochs, coordinator) in {"epoch": (5, 0), "coordinator": (0, 5000)}.items():
        for version in (4, 5):
            topic = o.topic()
            txn = began(o, topic, version=version + 7)
            told = [mark(o, topic, txn.pid, txn.epoch + epochs, False, coordinator=coordinator)]
            told.append(txn.end(True, version))
            state = txn.rest(1)
            out[f"{label}, EndTxn {version}"] = [*told, state, o.cluster.offset(topic)]
    return out


@case("B7 F63 a topic that is deleted while the transaction is open", "txn")
def _(o):
    out = {}
    for version in (4, 5):
        topic, gone = o.topic(), o.topic()
        txn = began(o, topic, version=version + 7)
        if version == 4:
            txn.add({gone: [0]})
        txn.produce(gone, version=version + 7)
        o.cluster.delete(gone)
        out[str(version)] = [txn.ended(True, version), txn.state(), o.cluster.fetch(topic, 0)["LastStableOffset"]]
    return out


@case("B11.3 a marker is written whatever the topic's largest message is", "txn")
def _(o):
    out = {}
    for version in (4, 5):
        topic = o.topic()
        txn = began(o, topic, version=version + 7)
        resource = {
            "ResourceType": 2,
            "ResourceName": topic,
            "Configs": [{"Name": "max.message.bytes", "ConfigOperation": 0, "Value": "77"}],
        }
        told = [o.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})["Responses"][0]["ErrorCode"]]
        told += [txn.end(True, version), txn.rest(1), o.cluster.fetch(topic, 0)["LastStableOffset"]]
        out[str(version)] = told
    return out
