"""What time does to transactions, ids and producers: contract A7, B6, B8, F14, F44, F64 to F69."""

import time

from batches import batch, now_ms
from table import case, settle
from txn import Txn, producers

SERVER = "txn timed"
# Of ids and of producers, as the broker of these cases is set.
EXPIRATION_SECONDS = 3


def timing_out(o, topic, timeout=400, version=12):
    txn = Txn(o)
    txn.init(), txn.init(timeout=timeout)
    if version < 12:
        txn.add({topic: [0]})
    txn.produce(topic, version=version)
    return txn


def aborted(txn, seconds=10):
    return settle(txn.describe, lambda d: d["TransactionState"] == "CompleteAbort", seconds)["TransactionState"]


@case("B6 F64 F65 what a producer is told after its transaction timed out", SERVER)
def _(o):
    topic = o.topic(2)
    asks = {
        "produce 12": lambda x: x.produce(topic, 1)[0],
        "produce 11": lambda x: x.produce(topic, 1, version=11)[0],
        "produce elsewhere": lambda x: x.produce(topic, 0, partition=1)[0],
        "add": lambda x: x.add({topic: [1]}),
        "add v1": lambda x: x.add({topic: [1]}, 1),
        "add group": lambda x: x.add_group("g"),
        "commit 4": lambda x: x.end(True, 4),
        "abort 4": lambda x: x.end(False, 4),
        "abort 1": lambda x: x.end(False, 1),
        "commit 4 E+1": lambda x: x.end(True, 4, of=1),
        "abort 4 E+1": lambda x: x.end(False, 4, of=1),
        "commit 5": lambda x: x.end(True, 5),
        "abort 5": lambda x: [x.end(False, 5), x.produce(topic)[0], x.ended(True, 5)],
        "commit 5 E+1": lambda x: x.end(True, 5, of=1),
        "abort 5 E+1": lambda x: x.end(False, 5, of=1),
        "init": lambda x: x.init(),
        "init (PID, E)": lambda x: x.init(given=0),
        "init (PID, E+1)": lambda x: x.init(given=1),
        "init (PID, E-1)": lambda x: x.init(given=-1),
    }
    made = {label: timing_out(o, topic) for label in asks}
    out = {}
    for label, ask in asks.items():
        txn = made[label]
        told = [aborted(txn), txn.state()[3]]
        out[label] = [*told, ask(txn), txn.rest(), txn.state()[3]]
    return out


@case("B6 F67 F69 only an open transaction times out", SERVER)
def _(o):
    topic = o.topic()
    made = {label: Txn(o) for label in ("Empty", "CompleteCommit", "CompleteAbort", "Ongoing", "longer")}
    for label, txn in made.items():
        txn.init(), txn.init(timeout=400 if label != "longer" else 60000)
        if label != "Empty":
            txn.add({topic: [0]})
        if label.startswith("Complete"):
            txn.ended(label == "CompleteCommit", 4)
    first = aborted(made["Ongoing"])
    time.sleep(0.3)
    return [first, {label: txn.state()[1:4] for label, txn in made.items()}]


@case("B8 A7 F14 F44 F68 F69 what expires: ids at rest, idle producers", SERVER)
def _(o):
    topic, open_too = o.topic(), o.topic()
    made = {label: Txn(o) for label in ("Empty", "CompleteCommit", "CompleteAbort", "Ongoing", "given", "verified")}
    for label, txn in made.items():
        txn.init(), txn.init(timeout=60000)
        if label in ("CompleteCommit", "CompleteAbort", "Ongoing"):
            txn.produce(topic)
        if label.startswith("Complete"):
            txn.ended(label == "CompleteCommit", 5)
    # Idle producers: of now, of an old and of a coming record time.
    plain = {label: o.cluster.producer_id()[0] for label in ("now", "old", "coming")}
    stamps = {"now": now_ms(), "old": now_ms() - 86400000, "coming": now_ms() + 1800000}
    for label, pid in plain.items():
        o.cluster.produce(topic, batch(pid=pid, epoch=3, seq=5, timestamp=stamps[label]))
    idle = {"Ongoing"}
    gone = lambda: {label for label, txn in made.items() if txn.state()[0] == 105}
    left = set(made) - settle(gone, lambda g: set(made) - g <= idle, EXPIRATION_SECONDS + 6)
    # The open transaction's producer stays, and the one whose record time is to come.
    known = settle(lambda: len(producers(o, topic)), lambda n: n <= 2, EXPIRATION_SECONDS + 6)
    out = {"left": sorted(left), "producers": known}
    again = lambda label, epoch, seq: o.cluster.produce(topic, batch(pid=plain[label], epoch=epoch, seq=seq))[
        "ErrorCode"
    ]
    out["plain"] = [again("now", 1, 40), again("now", 1, 40), again("coming", 3, 9), again("coming", 3, 6)]
    e = made["Empty"]
    out["gone"] = [e.add({topic: [0]}), e.add({topic: [0]}, 0), e.add_group("g"), e.end(True, 4), e.end(True, 5)]
    out["gone, produce"] = [e.produce(topic, version=v)[0] for v in (3, 10, 11, 12, 13)]
    out["gone, verify"] = e.ask({topic: [0]})
    old = e.pid
    out["anew"] = [e.init()[0], e.epoch, e.pid != old]
    g = made["given"]
    old = (g.pid, g.epoch)
    first = g.init(given=old)
    out["anew, given"] = [first[0], first[2], g.pid != old[0], g.init(given=old, keep=False)[0]]
    o_ = made["Ongoing"]
    out["open"] = [o_.produce(topic, 1)[0], o_.produce(open_too)[0], o_.ended(True, 5)[0]]
    return out
