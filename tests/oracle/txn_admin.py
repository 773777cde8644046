"""DescribeTransactions, ListTransactions, DescribeProducers, FindCoordinator: contract B9, F78."""

from table import by_version, case
from txn import Txn, began, producers


@case("B9 F78 DescribeTransactions: every state, unknown, empty, twice", "txn")
def _(o):
    topic, other = o.topic(3), o.topic()
    out = {}

    def tell(txn):
        got = txn.describe()
        started = got["TransactionStartTimeMs"]
        parts = sorted([[topic, other].index(t["Topic"]), sorted(t["Partitions"])] for t in got["Topics"])
        keys = ("ErrorCode", "TransactionState", "TransactionTimeoutMs", "ProducerEpoch")
        return [*(got[k] for k in keys), started if started < 0 else "set", parts]

    txn = Txn(o)
    txn.init(timeout=12345)
    out["Empty"] = tell(txn)
    txn.add({topic: [2, 0], other: [0]})
    out["Ongoing"] = tell(txn)
    txn.ended(True, 4)
    out["CompleteCommit"] = tell(txn)
    txn.ended(False, 5)
    out["CompleteAbort"] = tell(txn)
    never = Txn(o)
    out["unknown"] = never.state()
    value = lambda *ids: {"TransactionalIds": list(ids)}
    ask = lambda ids: [
        [s["ErrorCode"], s["TransactionState"], s["TransactionStartTimeMs"], s["ProducerId"], s["Topics"]]
        for s in txn.at().call("DescribeTransactions", 0, value(*ids))["TransactionStates"]
    ]
    empty = Txn(o, tid="")
    empty.address = o.cluster.boot
    # Which broker it is asked of does not count: the empty id belongs to none.
    out["empty"] = [empty.describe()[k] for k in ("ErrorCode", "TransactionState", "ProducerId", "ProducerEpoch")]
    out["none"] = ask([])
    out["twice"] = [row[:2] for row in ask([txn.tid, txn.tid])]
    return out


def listed(o, names, version, states=(), pids=(), duration=-1, pattern=None):
    """[code, unknown states, [label, state]...] of the ids in `names`, from every node."""
    value = {"StateFilters": list(states), "ProducerIdFilters": list(pids)}
    if version >= 1:
        value["DurationFilter"] = duration
    if version >= 2:
        value["TransactionalIdPattern"] = pattern
    found, codes, unknown = set(), set(), set()
    for address in {txn.address for txn in names.values()}:
        got = o.cluster.at(address).call("ListTransactions", version, value)
        codes.add(got["ErrorCode"])
        unknown.update(got["UnknownStateFilters"])
        for label, txn in names.items():
            found |= {
                (label, s["TransactionState"], s["ProducerId"] == txn.pid)
                for s in got["TransactionStates"]
                if s["TransactionalId"] == txn.tid
            }
    return [sorted(codes), sorted(unknown), sorted(found)]


@case("B9 F78 ListTransactions and its filters", "txn")
def _(o):
    topic = o.topic()
    names = {label: Txn(o, label) for label in ("empty", "open", "committed", "aborted")}
    for label, txn in names.items():
        txn.init()
        if label != "empty":
            txn.add({topic: [0]})
        if label in ("committed", "aborted"):
            txn.ended(label == "committed", 4)
    pids = {label: txn.pid for label, txn in names.items()}
    run = names["open"].tid.split("-")[2]
    asks = {
        "all": {},
        "Ongoing": {"states": ["Ongoing"]},
        "two states": {"states": ["CompleteCommit", "CompleteAbort"]},
        "a state in other letters": {"states": ["ongoing", "EMPTY"]},
        "unknown states": {"states": ["Nonsense", "", "Ongoing"]},
        "only unknown": {"states": ["Nonsense"]},
        "internal states": {"states": ["Dead", "PrepareEpochFence", "PrepareCommit", "PrepareAbort"]},
        "producer": {"pids": [pids["open"]]},
        "producers": {"pids": [pids["empty"], pids["aborted"], 77777777]},
        "unknown producer": {"pids": [77777777, -1]},
        "producer and state": {"pids": [pids["open"]], "states": ["Empty"]},
    }
    out = {label: by_version(range(0, 3), lambda v, a=ask: listed(o, names, v, **a)) for label, ask in asks.items()}
    for duration in (0, -1, -5, 3600000, 2**62):
        out[f"longer than {duration}"] = by_version((1, 2), lambda v, d=duration: listed(o, names, v, duration=d))
    whole = names["open"].tid
    patterns = {
        "null": None,
        "empty": "",
        "whole": whole,
        "part": whole[:-1],
        "prefix": f"oracle-open-{run}.*",
        "classes": r"oracle-(open|aborted)-\d+-[0-9]+",
        "bad": "a(",
        "look-ahead": "oracle(?=-).*",
        "back-reference": r"(o)racle\1.*",
        "case": "(?i)ORACLE-OPEN-.*",
        "anchors": f"^{whole}$",
    }
    for label, pattern in patterns.items():
        out[f"pattern: {label}"] = listed(o, names, 2, pattern=pattern)
    return out


@case("B9 K61 DescribeProducers: open, ended, fenced, marked", "txn")
def _(o):
    topic = o.topic()
    out = []
    txn = began(o, topic)
    out.append(producers(o, topic))
    txn.produce(topic, 1, 3)
    out.append(producers(o, topic))
    plain = o.cluster.producer_id()
    from batches import batch

    o.cluster.produce(topic, batch(pid=plain[0], epoch=plain[1], seq=0))
    txn.ended(True, 5)
    out.append(producers(o, topic))
    txn.produce(topic)
    txn.ended(False, 4)
    out.append(producers(o, topic))
    txn.init()
    out.append(producers(o, topic))
    never = o.name("never")

    def ask(name, partition):
        value = {"Topics": [{"Name": name, "PartitionIndexes": [partition]}]}
        return o.cluster.call("DescribeProducers", 0, value)["Topics"][0]["Partitions"][0]["ErrorCode"]

    return [out, [ask(topic, 9), ask(never, 0), ask("a b", 0)]]


@case("B1 G2 every id finds one coordinator, and only that one serves it", "txn")
def _(o):
    codes, nodes = [], set()
    for n in range(40):
        txn = Txn(o, tid=f"{o.name('spread')}-{n}")
        codes.append(txn.init()[0])
        again = Txn(o, tid=txn.tid)
        codes.append(again.init()[0])
        nodes.add(txn.address == again.address)
    return [sorted(set(codes)), sorted(nodes)]
