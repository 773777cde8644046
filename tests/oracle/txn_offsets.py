"""Offsets in transactions: TxnOffsetCommit, pending offsets, OffsetFetch with RequireStable: contract C3 to C5, F70 to
F77."""

from groups import settle_members
from table import by_version, case
from txn import Txn, fence

VERSIONS = range(0, 6)


def joined(o, group, version=5, of=None):
    """A producer whose transaction the group's offsets belong to."""
    txn = Txn(o)
    txn.init()
    if version < 5:
        txn.add_group(group.name)
    return txn


@case("C4.2 F74 F76 codes by version and by what the coordinator says", "txn")
def _(o):
    topic = o.topic()
    out = {}

    def ready(how, group):
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
            txn.add_group(group.name)
        elif how == "another group added":
            txn.add({topic: [0]})
        elif how == "ended, same epoch":
            txn.add_group(group.name)
            txn.ended(True, 4)
        elif how == "ended, old epoch":
            txn.add_group(group.name)
            txn.ended(True, 5)
            txn.epoch -= 1
        elif how == "aborted by a fence":
            txn.add_group(group.name)
            fence(txn)
            txn.epoch -= 1
        return txn

    for how in (
        "not added",
        "added",
        "another group added",
        "unknown id",
        "foreign producer",
        "future epoch",
        "stale epoch",
        "ended, same epoch",
        "ended, old epoch",
        "aborted by a fence",
    ):

        def one(v, how=how):
            g = o.group()
            txn = ready(how, g)
            told = txn.commit_offsets(g, {topic: {0: 5}}, v)
            return [told, txn.state()[1], txn.state()[3], g.fetch({topic: [0]}, 7)[1][0][2:4], g.state()]

        out[how] = by_version(VERSIONS, one)
    return out


@case("C4.1 C4.4 what is left out: unknown topics, long metadata, no group", "txn")
def _(o):
    topic = o.topic(2)
    never = o.name("never")
    asks = {
        "unknown partition": {topic: {0: 5, 9: 6}},
        "unknown topic": {never: {0: 1}, topic: {1: 2}},
        "nothing left": {never: {0: 1}},
        "metadata": {topic: {0: (5, "x" * 4096), 1: (6, "x" * 4097)}},
        "metadata null": {topic: {0: (5, None)}},
        "negative": {topic: {0: -1, 1: -2}},
        "no topics": {},
    }
    out = {}
    for label, parts in asks.items():
        for version in (3, 5):
            g = o.group()
            txn = joined(o, g, version)
            told = [txn.commit_offsets(g, parts, version), txn.state()[1], txn.ended(True, 5)]
            fetched = [[r[0] == topic, *r[1:4], len(r[5] or "")] for r in g.fetch(None, 7)[1]]
            out[f"{label}, {version}"] = [*told, fetched]
    # A bad producer is not seen where nothing is left.
    g, nobody = o.group(), Txn(o)
    nobody.pid, nobody.epoch = 5, 0
    out["nobody"] = [nobody.commit_offsets(g, {never: {0: 1}}, v) for v in (0, 5)]
    out["nobody, known"] = [nobody.commit_offsets(g, {topic: {0: 1}}, v) for v in (0, 5)]
    txn = joined(o, g)
    out["no group"] = by_version(VERSIONS, lambda v: txn.commit_offsets(g, {topic: {0: 1}}, v, GroupId=""))
    return out


@case("C4.3 F72 fencing by a classic group", "txn")
def _(o):
    topic = o.topic()
    out = {}
    g = o.group()
    a, s = g.member("A", ["t"]), g.member("S", ["t"], instance="i")
    settle_members(a, s)
    empty, never = o.group(), o.group
    member = empty.member("E", ["t"])
    member.joined()
    member.leave()
    now = a.generation
    callers = {
        "defaults": {},
        "member": {"member": a.id, "generation": now},
        "generation below": {"member": a.id, "generation": now - 1},
        "generation above": {"member": a.id, "generation": now + 1},
        "generation -1": {"member": a.id},
        "generation alone": {"generation": now},
        "unknown member": {"member": "ghost", "generation": now},
        "unknown member, other generation": {"member": "ghost", "generation": now + 3},
        "static": {"member": s.id, "instance": "i", "generation": now},
        "static of another": {"member": a.id, "instance": "i", "generation": now},
        "unknown instance": {"member": a.id, "instance": "j", "generation": now},
        "instance alone": {"instance": "i", "generation": now},
    }
    for label, given in callers.items():
        for where, group in (("stable", g), ("empty", empty)):
            run = lambda v, x=group, y=given: joined(o, x, v).commit_offsets(x, {topic: {0: 5}}, v, **y)
            out[f"{label}, {where}"] = by_version((2, 3, 4, 5), run)

        def fresh(v, given=given):
            group = never()
            txn = joined(o, group, v)
            return [txn.commit_offsets(group, {topic: {0: 5}}, v, **given), group.state(), txn.state()[1]]

        out[f"{label}, unknown"] = by_version((2, 3, 5), fresh)
    return out


@case("C4.3 a rebalance does not keep transactional offsets out", "txn")
def _(o):
    topic = o.topic()
    g = o.group()
    a, b = g.member("A", ["t"]), g.member("B", ["t"])
    settle_members(a)
    parked = b.join()
    send = lambda: joined(o, g).commit_offsets(g, {topic: {0: 5}}, member=a.id, generation=a.generation)
    out = [g.state(), send()]
    a.joined(), b.joined(parked)
    return [*out, g.state(), send()]


@case("C4.3 F73 fencing by a consumer group", "txn")
def _(o):
    g = o.group()
    topic = o.group_topic(g, partitions=2)
    a = g.consumer("A", [topic])
    epoch = a.beat(0)[1]
    out = {"epoch": epoch}
    callers = {
        "defaults": {},
        "member": {"member": a.id, "generation": epoch},
        "epoch above": {"member": a.id, "generation": epoch + 1},
        "epoch below": {"member": a.id, "generation": epoch - 1},
        "epoch -1": {"member": a.id},
        "unknown member": {"member": "ghost", "generation": epoch},
        "unknown member, instance": {"member": "ghost", "instance": "i", "generation": epoch},
        "epoch alone": {"generation": epoch},
    }
    for label, given in callers.items():
        run = lambda v, y=given: joined(o, g, v).commit_offsets(g, {topic: {0: 5, 1: 6}}, v, **y)
        out[label] = by_version((2, 3, 5), run)
    a.leave()
    for label in ("defaults", "member", "epoch -1", "unknown member"):
        run = lambda v, y=callers[label]: joined(o, g, v).commit_offsets(g, {topic: {0: 5}}, v, **y)
        out[f"empty: {label}"] = by_version((3, 5), run)
    return out


def rows(g, topics, stable, version=7):
    return [r[1:] for r in g.fetch(topics, version, stable=stable)[1]]


@case("C5 F70 pending offsets by RequireStable, before and after the end", "txn")
def _(o):
    topic = o.topic(3)
    out = {}
    for commit in (True, False):
        for version in (4, 5):
            g = o.group()
            g.commit({topic: {0: (1, "old"), 1: 2}})
            txn = joined(o, g, version)
            txn.commit_offsets(g, {topic: {0: (10, "new"), 2: 30}}, version)
            ask = lambda stable: by_version(range(7, 10), lambda v: rows(g, {topic: [0, 1, 2]}, stable, v))
            told = [ask(True), ask(False), rows(g, None, True), rows(g, None, False)]
            told += [txn.ended(commit, version), ask(True), rows(g, None, True), g.state()]
            out[f"{'commit' if commit else 'abort'} {version}"] = told
    return out


@case("C3 F71 which of two values stays: the later record", "txn")
def _(o):
    topic = o.topic()
    part = lambda offset: {topic: {0: offset}}
    look = lambda g: rows(g, {topic: [0]}, False)[0][2]
    out = {}
    g = o.group()
    x = joined(o, g)
    x.commit_offsets(g, part(100))
    g.commit(part(101))
    out["a plain one after"] = [look(g), x.ended(True), look(g)]
    g = o.group()
    g.commit(part(99))
    x = joined(o, g)
    x.commit_offsets(g, part(100))
    x.commit_offsets(g, part(50))
    out["the last of one producer"] = [look(g), x.ended(True), look(g)]
    for first, second in (("x", "y"), ("y", "x")):
        for end in ((True, True), (True, False), (False, True)):
            g = o.group()
            both = {"x": joined(o, g), "y": joined(o, g)}
            both["x"].commit_offsets(g, part(10))
            both["y"].commit_offsets(g, part(20))
            told = []
            for name, commit in zip((first, second), end):
                told += [both[name].ended(commit), look(g), rows(g, {topic: [0]}, True)[0][1]]
            out[f"{first}, then {second}, {end}"] = told
    return out


@case("C3 F77 deleting a group or its offsets takes pending ones along", "txn")
def _(o):
    topic = o.topic(2)
    out = {}
    for label in ("group", "offset"):
        g = o.group()
        g.commit({topic: {0: 1, 1: 2}})
        txn = joined(o, g)
        txn.commit_offsets(g, {topic: {0: 10, 1: 20}})
        if label == "group":
            told = [g.delete()]
        else:
            value = {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}]}
            got = g.call("OffsetDelete", 0, value)
            told = [got["ErrorCode"], [p["ErrorCode"] for t in got["Topics"] for p in t["Partitions"]]]
        told += [rows(g, {topic: [0, 1]}, True), g.state(), txn.ended(True)]
        out[label] = [*told, rows(g, {topic: [0, 1]}, True), g.state()]
    return out


@case("C3 a pending offset makes the group, also if it is aborted", "txn")
def _(o):
    topic = o.topic()
    out = []
    for commit in (True, False):
        g = o.group()
        txn = joined(o, g)
        told = [g.state(), txn.commit_offsets(g, {topic: {0: 5}})]
        described = lambda: [g.describe()[k] for k in ("ErrorCode", "GroupState", "ProtocolType")]
        out.append([*told, described(), txn.ended(commit), described(), rows(g, None, False)])
    return out


@case("F76 C4 offsets of two groups and records in one transaction", "txn")
def _(o):
    topic = o.topic(2)
    out = {}
    for commit in (True, False):
        g, h = o.group(), o.group()
        txn = Txn(o)
        txn.init()
        told = [txn.produce(topic)[0], txn.commit_offsets(g, {topic: {0: 1}}), txn.commit_offsets(h, {topic: {1: 2}})]
        told += [txn.commit_offsets(g, {topic: {0: 9}}, generation=3), txn.state([topic])]
        told += [txn.ended(commit), rows(g, None, True), rows(h, None, True), txn.state()]
        # The next transaction at the bumped epoch; the old epoch is over.
        told += [txn.commit_offsets(g, {topic: {0: 7}}, of=-1), txn.commit_offsets(g, {topic: {0: 7}})]
        out["commit" if commit else "abort"] = [*told, txn.ended(True), rows(g, None, True)]
    return out


@case("A4 c C4.2 on the old path an open partition of offsets asks nobody", "txn")
def _(o):
    topic = o.topic()
    g = o.group()
    txn = joined(o, g, 3)
    out = [txn.commit_offsets(g, {topic: {0: 1}}, 3)]
    out += [txn.commit_offsets(g, {topic: {0: 2}}, v, TransactionalId="nobody-knows-it") for v in (0, 2, 3, 4, 5)]
    other = joined(o, g, 3)
    out += [other.commit_offsets(g, {topic: {0: 3}}, v, TransactionalId="nobody-knows-it") for v in (0, 4, 5)]
    return [*out, txn.ended(True, 4), rows(g, {topic: [0]}, True)]
