"""Levels of transaction.version, and verification turned off: contract 0.5, B2, B6, B11.2, D1, F37, F40, F81.

The level is the cluster's, so each case sets the one it wants and the cases have a broker of their own.
"""

from table import by_version, case, settle
from txn import Txn, began, fence, producers
from txn_reading import read

SERVER = "levels"
CLIENT = {"ClientSoftwareName": "oncilla-tests", "ClientSoftwareVersion": "1.0"}


def finalized(o):
    """[level of transaction.version, 0 if none is told, epoch of the features]."""
    got = o.call("ApiVersions", 4, CLIENT)
    levels = {f["Name"]: f["MaxVersionLevel"] for f in got["FinalizedFeatures"]}
    return [levels.get("transaction.version", 0), got["FinalizedFeaturesEpoch"]]


def set_level(o, level):
    now = finalized(o)[0]
    if now == level:
        return 0
    update = {
        "Feature": "transaction.version",
        "MaxVersionLevel": level,
        # 1 upgrades, 2 downgrades without loss.
        "UpgradeType": 1 if level > now else 2,
    }
    got = o.call("UpdateFeatures", 2, {"timeoutMs": 10000, "FeatureUpdates": [update]})
    settle(lambda: finalized(o)[0], lambda n: n == level)
    return got["ErrorCode"]


def fences(o, topic):
    """What the open transaction of an id comes to, by who is given."""
    out = {}
    for label, given in {"nobody": None, "(PID, E)": 0, "(PID, E+1)": 1, "(PID, E-1)": -1}.items():
        txn = Txn(o)
        txn.init(), txn.init()
        txn.produce(topic, version=11) if txn.add({topic: [0]}) else None
        out[label] = [txn.init(given=given), txn.state()]
    return out


def after_fence(o, topic):
    out = {}
    for label, ask in {
        "commit 4": lambda x: x.end(True, 4),
        "abort 4": lambda x: x.end(False, 4),
        "abort 1": lambda x: x.end(False, 1),
        "abort 4 E+1": lambda x: x.end(False, 4, of=1),
        "abort 5": lambda x: x.end(False, 5),
        "commit 5": lambda x: x.end(True, 5),
        "abort 5 E+1": lambda x: x.end(False, 5, of=1),
        "init (PID, E)": lambda x: x.init(given=0),
        "init (PID, E+1)": lambda x: x.init(given=1),
        "produce": lambda x: x.produce(topic, 1, version=11),
    }.items():
        txn = Txn(o)
        txn.init(), txn.init()
        txn.add({topic: [0]})
        fence(txn)
        txn.epoch -= 1
        told = txn.state()[1:]
        out[label] = [told, ask(txn), txn.rest(), txn.state()[3]]
    return out


def both_paths(o, version):
    """Transactions on either path, with what they leave at the partition."""
    topic = o.topic()
    txn = Txn(o)
    txn.init()
    out = []
    for seq, commit in ((0, True), (1, False)):
        at = seq if version == 4 else 0
        if version == 4:
            out.append(txn.add({topic: [0]}))
        out += [txn.produce(topic, at, version=version + 7), txn.ended(commit, version), txn.state()]
    return [*out, producers(o, topic), read(o, topic)]


@case("0.5 F81 at level 1 either path is served as it is asked for, and the server aborts on the old one", SERVER)
def _(o):
    topic = o.topic()
    out = {"set": set_level(o, 1), "level": finalized(o)[0], "old": both_paths(o, 4), "new": both_paths(o, 5)}
    out["fences"] = fences(o, topic)
    out["after a fence"] = after_fence(o, topic)
    return out


@case("D1 F81 the epoch of the features rises with every change", SERVER)
def _(o):
    set_level(o, 2)
    seen = [finalized(o)[1]]
    for level in (1, 2, 0, 2):
        set_level(o, level)
        seen.append(finalized(o)[1])
    return [a < b for a, b in zip(seen, seen[1:])]


@case("F81 a transaction that is open while the level changes", SERVER)
def _(o):
    out = {}
    for first, second in ((1, 2), (2, 1)):
        set_level(o, first)
        topic = o.topic()
        txn = Txn(o)
        txn.init()
        if first == 1:
            txn.add({topic: [0]})
        told = [txn.produce(topic, version=11 if first == 1 else 12)]
        set_level(o, second)
        if first == 1:
            told += [txn.ended(True, 4), txn.init(given=0), txn.produce(topic), txn.ended(True, 5)]
        else:
            told += [txn.ended(True, 5), txn.add({topic: [0]}), txn.produce(topic, version=11), txn.ended(True, 4)]
        out[f"{first} to {second}"] = [*told, txn.state(), read(o, topic), producers(o, topic)]
    return out


@case("0.5 at level 0 the old path is served", SERVER)
def _(o):
    topic = o.topic()
    out = {"set": set_level(o, 0), "level": finalized(o)[0], "old": both_paths(o, 4)}
    return {**out, "fences": fences(o, topic), "after a fence": after_fence(o, topic)}


@case("0.5 B11.2 at level 0 the new path needs state that has no room", SERVER)
def _(o):
    set_level(o, 0)
    topic = o.topic()
    g = o.group()
    out = {}

    def row(label, asks):
        txn = Txn(o)
        txn.init()
        txn.patient = False
        if label.startswith("open"):
            txn.add({topic: [0]})
        out[label] = [*(ask(txn) for ask in asks), txn.rest(1)]

    row(
        "produce 12",
        [lambda x: x.produce(topic, once=True)[0], lambda x: x.add({topic: [0]}), lambda x: x.end(True, 4)],
    )
    row(
        "batch", [lambda x: x.ask({topic: [0]}, verify=False), lambda x: x.add({topic: [0]}), lambda x: x.end(False, 4)]
    )
    row("offsets 5", [lambda x: x.commit_offsets(g, {topic: {0: 1}}, once=True), lambda x: x.add_group(g.name)])
    row("open, end 5", [lambda x: x.end(True, 5), lambda x: x.end(True, 4)])
    row("open, abort 5", [lambda x: x.end(False, 5), lambda x: x.init(once=True)[0]])
    row("Empty, abort 5", [lambda x: x.end(False, 5), lambda x: x.init(once=True)[0]])
    row("verify", [lambda x: x.ask({topic: [0]}), lambda x: x.add({topic: [0]}), lambda x: x.ask({topic: [0]})])
    return out


def verification(o, value):
    """Sets the switch and waits until it is seen: a batch of a transaction that was not added is taken or refused."""
    config = {"Name": "transaction.partition.verification.enable", "ConfigOperation": 0, "Value": value}
    for broker in o.call("Metadata", 12, {"Topics": []})["Brokers"]:
        resource = {"ResourceType": 4, "ResourceName": str(broker["NodeId"]), "Configs": [config]}
        node = o.cluster.at((broker["Host"], broker["Port"]))
        got = node.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})
        assert got["Responses"][0]["ErrorCode"] == 0, got
    topic = o.topic()

    def taken():
        txn = Txn(o)
        txn.init()
        return txn.produce(topic, version=11)[0] == 0

    settle(taken, lambda got: got == (value == "false"))
    return topic


@case("A4 F37 F79 verification turned off: the old path is not asked, Produce 12 still adds", SERVER)
def _(o):
    set_level(o, 2)
    verification(o, "false")
    topic = o.topic(2)

    def one(v):
        txn = Txn(o)
        txn.init()
        return [txn.produce(topic, 7 if v < 12 else 0, version=v)[0], txn.state([topic])]

    out = {"not added": by_version(range(3, 14), one)}
    nobody = Txn(o)
    nobody.pid, nobody.epoch = o.cluster.producer_id()
    told = [nobody.produce(topic, 0, version=11, partition=1)[0], nobody.produce(topic, 1, version=12, partition=1)[0]]
    told += [read(o, topic, partition=1), nobody.state()[0]]
    out["unknown id"] = told
    other = Txn(o)
    other.pid, other.epoch = o.cluster.producer_id()
    out["unknown id, Produce 12"] = other.produce(topic, 0)[0]
    stale = Txn(o)
    stale.init(), stale.init()
    out["stale epoch, where nobody wrote"] = stale.produce(topic, 0, version=11, of=-1)[0]
    out["stale epoch, Produce 12"] = stale.produce(topic, 0, of=-1)[0]
    from txn import mark

    out["hanging"] = [mark(o, topic, nobody.pid, nobody.epoch, False, 0, 0, (1,)), read(o, topic, partition=1)]
    verification(o, "true")
    again = Txn(o)
    again.init()
    out["on again"] = [again.produce(topic, version=v)[0] for v in (3, 11, 12)]
    return out


@case("D1 the level that is set is told and kept", SERVER)
def _(o):
    out = []
    for level in (3, -1):
        update = {"Feature": "transaction.version", "MaxVersionLevel": level, "UpgradeType": 1 if level > 0 else 2}
        out.append(o.call("UpdateFeatures", 2, {"timeoutMs": 5000, "FeatureUpdates": [update]})["ErrorCode"])
    set_level(o, 2)
    for level, kind in ((1, 1), (0, 1), (2, 1), (2, 2)):
        update = {"Feature": "transaction.version", "MaxVersionLevel": level, "UpgradeType": kind}
        got = o.call("UpdateFeatures", 2, {"timeoutMs": 5000, "FeatureUpdates": [update]})
        out.append([got["ErrorCode"], finalized(o)[0]])
    txn = began(o, o.topic())
    return [*out, txn.ended(True, 5)[0]]
