"""Expiration of committed offsets, with the retention time that old commits carry: contract G8.14, G10.7, G10.9."""

import time

from groups import settle_members
from table import case, settle


def left(g):
    return sorted(row[3] for row in g.fetch()[1])


def expired(g, count=0, seconds=6):
    """What is left once no more than `count` offsets are there, or at the end of the time."""
    return settle(lambda: left(g), lambda got: len(got) <= count, seconds)


@case("G8.14 G10.7 a retention time in the commit, versions 2 to 4", "timed")
def _(o):
    topic = o.topic(3)
    out = {}
    for v in (2, 3, 4, 5):
        g = o.group()
        codes = g.commit({topic: {0: 1, 1: 2}}, v, retention=200), g.commit({topic: {2: 3}}, v)
        out[f"{v}"] = [codes, left(g) if v == 5 else expired(g, 1), g.state()]
    return out


@case("G10.9 an Empty group goes with its last offset, or at the next look", "timed")
def _(o):
    topic = o.topic()
    g = o.group()
    g.commit({topic: {0: 1}}, 2, retention=200)
    out = [expired(g), settle(g.state, lambda s: s == "Dead", 4)]
    never = o.group()
    a = never.member("A", [topic], instance="a")
    a.joined()
    a.leave()
    pending = o.group()
    p = pending.member("P", [topic])
    pending.call("JoinGroup", 9, p.ask_join())
    out.append([settle(h.state, lambda s: s == "Dead", 6) for h in (never, pending)])
    return out


@case("G10.7 subscribed topics do not expire, those of others do", "timed")
def _(o):
    topic, other = o.topic(), o.topic()
    g = o.group()
    a = g.member("A", [topic], instance="a")
    settle_members(a)
    a.commit({topic: {0: 1}, other: {0: 2}}, 4, retention=200)
    out = [expired(g, 1)]
    time.sleep(1)
    out.append(left(g))
    h = o.group()
    b = h.member("B", [topic], kind="connect", instance="b")
    settle_members(b)
    b.commit({topic: {0: 1}, other: {0: 2}}, 4, retention=200)
    time.sleep(1.5)
    out.append(left(h))
    return [*out, b.leave(), expired(h)]
