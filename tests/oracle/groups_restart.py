"""What the coordinator remembers over kill -9: contract G19, case 99. After its yield a case meets the new broker."""

import time

from groups import settle_members, subscription
from table import case


@case("G19.1 a Stable group is remembered whole", "restart")
def _(o):
    topic = o.topic(3)
    g = o.group()
    g.topic("t", topic, o.cluster.ids[topic])
    a, b = (g.member(label, ["t"], session=60000) for label in "AB")
    settle_members(a, b)
    a.commit({topic: {0: (5, "text", 2), 1: 6}})
    a.commit({topic: {1: 7}})
    before = g.describe(), g.fetch()
    yield
    g.again()
    out = [g.describe() == before[0], g.fetch() == before[1], g.fetch(), a.beat(), b.beat(), a.synced(), b.synced()]
    out += [a.commit({topic: {2: 1}}), b.joined(), g.describe()]
    parked = a.join()
    out += [parked.waits(), b.beat(), b.joined()["GenerationId"], a.joined(parked)["Leader"]]
    yield out


@case("G19.2 case 99: the latest id of a static member", "restart")
def _(o):
    g = o.group()
    a = g.member("A", ["t"], session=60000, instance="a")
    b = g.member("B", ["t"], session=60000, instance="b")
    settle_members(a, b)
    new = g.member("A2", ["t"], session=60000, instance="a")
    new.joined()
    yield
    g.again()
    out = [
        a.beat(),
        a.beat(GroupInstanceId=None),
        new.beat(),
        new.synced(),
        b.beat(),
        g.state(),
        a.commit({"x": {0: 1}}),
    ]
    third = g.member("A3", ["t"], session=60000, instance="a")
    yield [*out, third.joined(), new.beat(), g.state()]


@case("G19.3 what is not remembered", "restart")
def _(o):
    pending, rebalancing, unsynced, first = (
        o.group(label) for label in ("pending", "rebalancing", "unsynced", "first")
    )
    p = pending.member("P", ["t"])
    p.id = pending.call("JoinGroup", 9, p.ask_join())["MemberId"]
    a, late = (rebalancing.member(label, ["t"], session=60000) for label in ("A", "L"))
    settle_members(a)
    late.join()
    u = unsynced.member("U", ["t"], session=60000)
    settle_members(u)
    u.joined(u.join(Protocols=[{"Name": "range", "Metadata": subscription(["u"])}]))
    f = first.member("F", ["t"], session=60000)
    f.joined()
    before = [g.state() for g in (pending, rebalancing, unsynced, first)]
    yield
    for g in (pending, rebalancing, unsynced, first):
        g.again()
    out = {
        "before": before,
        "pending": [pending.state(), p.beat(), pending.call("JoinGroup", 9, p.ask_join())["ErrorCode"]],
        "rebalancing": [rebalancing.state(), a.beat(), late.beat(GenerationId=1)],
        "unsynced": [unsynced.state(), u.beat(), u.beat(GenerationId=u.generation - 1)],
        "first": [first.state(), f.beat()],
    }
    yield out


@case("G19.4 an Empty group keeps its generation", "restart")
def _(o):
    topic = o.topic()
    g = o.group()
    a = g.member("A", ["t"], session=60000)
    settle_members(a)
    a.joined(a.join())
    a.synced({a: b"x"})
    a.commit({topic: {0: 3}})
    a.leave()
    yield
    g.again()
    b = g.member("B", ["t"])
    yield [g.state(), [r[3] for r in g.fetch()[1]], b.joined()["GenerationId"]]


@case("G19.5 of a member only the chosen protocol is kept", "restart")
def _(o):
    g = o.group()
    meta = subscription(["t"])
    a = g.member("A", protocols=[("range", meta), ("sticky", meta)], session=60000)
    settle_members(a)
    yield
    g.again()
    ask = lambda: g.call("JoinGroup", 9, g.member("N", protocols=[("sticky", meta)]).ask_join())["ErrorCode"]
    out = [ask(), g.describe()]
    parked = a.join()
    out.append(a.joined(parked)["GenerationId"])
    yield [*out, ask()]


@case("G19.6 a consumer group is remembered whole", "restart")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 5)
    tid = o.cluster.ids[topic]
    a, b, s = g.consumer("A", [topic]), g.consumer("B", [topic]), g.consumer("S", [topic], instance="s")
    a.beat(0), b.beat(0), a.beat(2)
    a.beat(2, {tid: [0, 1, 2]}), b.beat(3)
    a.commit({topic: {0: 9}}, 3)
    s.beat(0)
    # A is to give one up, and S has gone for a while.
    revoking = a.beat(3)
    s.beat(-2)
    before = g.describe_consumer()
    yield
    g.again()
    out = [g.describe_consumer() == before, before["GroupState"], g.epochs(), revoking]
    out += [a.beat(3), b.beat(3), s.beat(4), g.consumer("S2", [topic], instance="s").beat(0)]
    out += [[r[3] for r in g.fetch()[1]], a.commit({topic: {1: 4}}, 3)]
    yield out


@case("G19.6 expressions that were resolved", "restart")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 1)
    a = g.consumer("A", None, regex=topic)
    a.beat(0)
    until = time.monotonic() + 5
    while a.beat(0)[1] < 2 and time.monotonic() < until:
        time.sleep(0.05)
    yield
    g.again()
    yield [a.beat(0), g.epochs()]


@case("G19.7 deleted groups stay deleted", "restart")
def _(o):
    topic = o.topic()
    g, h = o.group(), o.group()
    g.commit({topic: {0: 3}}), h.commit({topic: {0: 3}})
    g.delete()
    h.call("OffsetDelete", 0, {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}]})
    yield
    g.again(), h.again()
    yield [g.state(), g.fetch(), h.state(), h.fetch()]
