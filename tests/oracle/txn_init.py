"""InitProducerId with a transactional id: contract B1, B2, F38 to F48, F80."""

from table import by_version, case, outcome
from txn import Txn, fence

MAX = 2**31 - 1


@case("B2 F38 a new id, again, and again by each version", "txn")
def _(o):
    txn = Txn(o)
    out = [txn.init(0), txn.init(5)]
    return [out, by_version(range(0, 6), lambda v: txn.init(v)[:2]), txn.state()]


@case("B1 B2.4 F38 names of ids: empty, odd, long", "txn")
def _(o):
    out = {}
    for label, tid in {"empty": "", "nul": "a\0b", "slash": "../a", "unicode": "täß€", "long": "x" * 30000}.items():
        suffix = o.name("n") if tid else ""
        txn = Txn(o, tid=tid + suffix)
        if not tid:
            txn.address = o.cluster.boot
            # The broker that is asked may be no coordinator of the empty id: 42 comes before 16.
        out[label] = by_version(range(0, 6), lambda v, t=txn: [t.init(v)[0], t.epoch >= 0])
        if tid:
            out[label]["state"] = txn.state()[:2]
    return out


@case("B2.4 F39 the timeout that is asked for", "txn")
def _(o):
    out = {}
    for timeout in (0, -1, -MAX, 1, 900000, 900001, MAX):
        txn = Txn(o)
        told = by_version(range(0, 6), lambda v, t=txn: t.init(v, timeout=timeout)[0])
        out[str(timeout)] = [told, txn.describe()["TransactionTimeoutMs"]]
    return out


@case("B2 F45 order: half a producer before the timeout, the timeout before a foreign producer", "txn")
def _(o):
    txn = Txn(o)
    txn.init()
    given = {
        "id alone": (txn.pid, -1),
        "epoch alone": (-1, 0),
        "id alone, bad timeout": (txn.pid, -1, 0),
        "foreign, bad timeout": (txn.pid + 1000000, 0, 0),
        "foreign": (txn.pid + 1000000, 0),
        "epoch below -1": (txn.pid, -2),
        "id below -1": (-2, 0),
        "both below -1": (-2, -2),
    }
    out = {}
    for label, (pid, epoch, *timeout) in given.items():
        ask = lambda v: txn.init(v, (pid, epoch), *timeout, keep=False)
        out[label] = by_version(range(3, 6), ask)
    return [out, txn.state()]


@case("B2.8 F41 the same request again, and epochs that are over", "txn")
def _(o):
    out = {}
    for version in (3, 4, 5):
        txn = Txn(o)
        txn.init(), txn.init(), txn.init()
        first = (txn.pid, txn.epoch)
        steps = [txn.init(version, first), txn.init(version, first), txn.state(), txn.init(version, first)]
        # Now the id is at E+1 with lastE = E; what is further away is fenced.
        steps += [txn.init(version, (txn.pid, first[1] + d), keep=False) for d in (-1, 2, -2, 5)]
        steps += [txn.init(version, (txn.pid, txn.epoch)), txn.init(version, first), txn.state()]
        # Nobody given forgets the last epoch.
        bare = (txn.pid, txn.epoch)
        steps += [txn.init(version), txn.init(version, bare), txn.state()]
        out[str(version)] = steps
    return out


@case("B2.8 an epoch that EndTxn 5 took is the last one as well", "txn")
def _(o):
    topic = o.topic()
    out = {}
    for commit in (True, False):
        txn = Txn(o)
        txn.init()
        txn.add({topic: [0]})
        told = txn.ended(commit, 5)
        out["commit" if commit else "abort"] = [told, txn.init(given=-1), txn.init(given=-1, keep=False), txn.state()]
    return out


@case("B2.8 F40 fencing an open transaction, and what the caller is told when it asks again", "txn")
def _(o):
    topic = o.topic()
    again = {
        "nobody": None,
        "(PID, E)": 0,
        "(PID, E+1)": 1,
        "(PID, E-1)": -1,
        "(PID, E+2)": 2,
    }
    out = {}
    for first in again:
        for second in again if first in ("nobody", "(PID, E)") else ("nobody", "(PID, E+1)"):
            txn = Txn(o)
            txn.init(), txn.init()
            txn.add({topic: [0]})
            me = (txn.pid, txn.epoch)
            who = lambda label: None if again[label] is None else (me[0], me[1] + again[label])
            told = [txn.init(given=who(first)), txn.rest(), txn.state()]
            told += [txn.init(given=who(second)), txn.state()]
            out[f"{first}, then {second}"] = told
    return out


@case("B2.8 F40 F45 the first answer to who fences an open transaction", "txn")
def _(o):
    topic = o.topic()
    out = {}
    for version in (0, 3, 5):
        txn = Txn(o)
        txn.init()
        txn.add({topic: [0]})
        out[str(version)] = [txn.init(version, once=True)[0], txn.rest()]
    return out


@case("B2.7 B2.8 a producer that is refused aborts nothing, one with another epoch does", "txn")
def _(o):
    topic = o.topic()
    out = {}
    for label, given in {"foreign": (77777777, 0), "epoch": None}.items():
        for version in (3, 5):
            txn = Txn(o)
            txn.init()
            txn.add({topic: [0]})
            ask = given or (txn.pid, 40)
            told = [txn.init(version, ask, keep=False), txn.rest(), txn.state([topic])]
            out[f"{label} v{version}"] = [*told, txn.init(version, ask, keep=False), txn.state([topic])]
    return out


@case("B6 F40 F80 what is left to the old owner after a fence that nobody took up", "txn")
def _(o):
    topic = o.topic(2)
    asks = {
        "produce 12": lambda x: x.produce(topic, 1),
        "produce 11": lambda x: x.produce(topic, 1, version=11),
        "produce 3": lambda x: x.produce(topic, 1, version=3),
        "produce elsewhere": lambda x: x.produce(topic, 0, partition=1),
        "add": lambda x: x.add({topic: [0]}),
        "add v1": lambda x: x.add({topic: [0]}, 1),
        "add group": lambda x: x.add_group("g"),
        "add E+1": lambda x: x.add({topic: [0]}, of=1),
        "commit 4": lambda x: x.end(True, 4),
        "abort 4": lambda x: x.end(False, 4),
        "abort 1": lambda x: x.end(False, 1),
        "commit 4 E+1": lambda x: x.end(True, 4, of=1),
        "abort 4 E+1": lambda x: x.end(False, 4, of=1),
        "commit 5": lambda x: x.end(True, 5),
        "abort 5": lambda x: x.end(False, 5),
        "commit 5 E+1": lambda x: x.end(True, 5, of=1),
        "abort 5 E+1": lambda x: x.end(False, 5, of=1),
    }
    out = {}
    for label, ask in asks.items():
        txn = Txn(o)
        txn.init()
        txn.produce(topic)
        fence(txn)
        txn.epoch -= 1
        got = ask(txn)
        # Offsets depend on what came before.
        out[label] = [got[0] if label.startswith("produce") else got, txn.rest(), txn.state([topic])]
    # The old owner comes back by ending its transaction, and may go on.
    txn = Txn(o)
    txn.init()
    txn.produce(topic)
    fence(txn)
    txn.epoch -= 1
    out["it comes back"] = [txn.ended(False, 5), txn.produce(topic)[0], txn.ended(True, 5), txn.state()]
    return out


@case("B2 success stores the timeout and clears the rest, a fence stores nothing", "txn")
def _(o):
    topic = o.topic()
    txn = Txn(o)
    out = []

    def look():
        got = txn.describe()
        started = got["TransactionStartTimeMs"]
        out.append([got["TransactionState"], got["TransactionTimeoutMs"], started if started < 0 else "set"])

    txn.init(timeout=11000)
    look()
    txn.add({topic: [0]})
    look()
    txn.init(given=40, timeout=22000, keep=False)
    txn.rest()
    look()
    txn.init(timeout=33000)
    look()
    txn.ended(False, 5)
    look()
    return out


@case("B2 F48 version 6 is not announced and closes the connection", "txn")
def _(o):
    txn = Txn(o)
    txn.init()
    value = {"TransactionalId": txn.tid, "TransactionTimeoutMs": 1000, "KeepPreparedTxn": True}
    return outcome(lambda: o.connect().call("InitProducerId", 6, value)["ErrorCode"])


@case("B1 ids are told apart by all of their name, and producer ids are never shared", "txn")
def _(o):
    base = o.name("same")
    ids = [Txn(o, tid=base + end) for end in ("", " ", "a", "A", "aa")]
    for txn in ids:
        txn.init()
    return [len({x.pid for x in ids}), [x.init()[2] for x in ids[:2]], [x.state()[3] for x in ids]]
