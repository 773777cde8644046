"""Classic groups in time: the initial delay, rebalance and session timeouts. Contract G6, G2.7, G2.18."""

import time

from groups import settle_members, subscription
from table import case, settle

OTHER = [{"Name": "range", "Metadata": subscription(["u"])}]


def member_count(g):
    return len(g.describe()["Members"])


def at_once(g, label, **more):
    """A static member: added by its first request, so that no look for expired groups falls between two of them."""
    return g.member(label, ["t"], instance=label.lower(), **more)


@case("G6.2 the initial delay is served once for all who come in it", "timed")
def _(o):
    out = {}
    # The delay is 1 s. How long it took is told as bounds that hold on a busy machine too.
    for label, rebalance, second in (("alone", 30000, False), ("two", 30000, True), ("shorter timeout", 500, False)):
        g = o.group()
        a, b = (at_once(g, n, rebalance=rebalance) for n in "AB")
        began = time.monotonic()
        parked = a.join()
        if second:
            time.sleep(0.4)
            late = b.join()
        got = a.took(parked.answer())
        took = time.monotonic() - began
        out[label] = [took > (1.8 if second else 0.9), took < 6, got["GenerationId"], len(got["Members"])]
        if second:
            out["the second"] = b.joined(late)["GenerationId"]
    return out


@case("G6.2 leaving in the initial delay, and pending members in it", "timed")
def _(o):
    g = o.group()
    a = at_once(g, "A")
    parked = a.join()
    state = g.state()
    left = a.leave()
    # The Empty group goes at the next look for expired ones.
    out = [
        state,
        left,
        g.tidy(parked.answer()),
        settle(g.state, lambda s: s in ("Empty", "Dead")) != "PreparingRebalance",
    ]
    g = o.group()
    b, pending = at_once(g, "B"), g.member("P", ["t"])
    parked = b.join()
    g.call("JoinGroup", 9, pending.ask_join())
    return [*out, b.joined(parked, seconds=8)["GenerationId"]]


@case("G6.3 who does not join again is removed at the rebalance timeout", "groups")
def _(o):
    g = o.group()
    a, b = g.member("A", ["t"], rebalance=900), g.member("B", ["t"], rebalance=600)
    settle_members(a, b)
    parked = b.join(Protocols=OTHER)
    out = [parked.waits(0.3), a.beat()]
    began = time.monotonic()
    got = b.joined(parked)
    out += [time.monotonic() - began > 0.2, got["Leader"], got["GenerationId"], a.beat(), a.synced(), g.state()]
    return out


@case("G6.3 a static member that does not join stays in the generation", "groups")
def _(o):
    g = o.group()
    a, s = g.member("A", ["t"], rebalance=700), g.member("S", ["t"], instance="s", rebalance=700)
    settle_members(a, s)
    got = a.joined(a.join())
    out = [got["GenerationId"], [m["MemberId"] for m in got["Members"]], s.beat(), a.synced({a: b"x"}), g.state()]
    return out


@case("G6.5 0.5 a member that does not sync is removed at the rebalance timeout", "groups")
def _(o):
    g = o.group()
    a, b = g.member("A", ["t"], rebalance=800), g.member("B", ["t"], rebalance=800)
    a.joined()
    second = b.join()
    a.joined(), b.joined(second)
    out = [a.synced({a: b"x"}), g.state(), b.beat(), a.beat()]
    # Heartbeats do not replace the sync.
    until = time.monotonic() + 4
    while (code := b.beat()) == 0 and time.monotonic() < until:
        time.sleep(0.05)
    return [*out, code, g.state(), a.beat(), member_count(g)]


@case("G6.6 the session timeout, and what begins it anew", "groups")
def _(o):
    topic = o.topic()
    g = o.group()
    a = g.member("A", [topic])
    kept = {"B": 2000, "C": 2000, "D": 2000}
    members = {label: g.member(label, [topic], session=ms) for label, ms in kept.items()}
    settle_members(a, *members.values())
    for _ in range(8):
        time.sleep(0.35)
        members["B"].beat()
        members["C"].commit({topic: {0: 1}})
    out = [settle(g.state, lambda s: s == "PreparingRebalance"), members["D"].beat(), a.beat(), members["B"].beat()]
    out += [members["C"].beat(), members["C"].commit({topic: {0: 2}})]
    return out


@case("G6.7 a pending member holds a rebalance up until its session timeout", "groups")
def _(o):
    g = o.group()
    a, p = g.member("A", ["t"]), g.member("P", ["t"], session=900)
    settle_members(a)
    p.id = g.call("JoinGroup", 9, p.ask_join())["MemberId"]
    parked = a.join()
    out = [parked.waits(0.4), g.state()]
    got = a.joined(parked, seconds=5)
    out += [got["GenerationId"], g.tidy(g.call("JoinGroup", 9, p.ask_join()))["ErrorCode"]]
    # One that leaves lets it go at once.
    p.id = ""
    a.synced({a: b"x"})
    p.id = g.call("JoinGroup", 9, p.ask_join(SessionTimeoutMs=30000))["MemberId"]
    parked = a.join()
    return [*out, parked.waits(), p.leave(), a.joined(parked, seconds=3)["GenerationId"]]


@case("G6.8 a v0 member's rebalance timeout is its session timeout", "groups")
def _(o):
    g = o.group()
    a = g.member("A", ["t"], v=0, session=1000, rebalance=60000)
    a.joined()
    a.synced({a: b"x"})
    b = g.member("B", ["t"], v=0, session=1000, rebalance=60000)
    began = time.monotonic()
    got = b.joined(seconds=5)
    return [0.7 < time.monotonic() - began < 2.5, got["GenerationId"], got["Leader"], a.beat()]


@case("G6.12 a parked member cannot lose its session", "groups")
def _(o):
    g = o.group()
    a, b = g.member("A", ["t"]), g.member("B", ["t"], session=300)
    settle_members(a)
    parked = b.join()
    # A newcomer, then an old member in JoinGroup, then a member in SyncGroup.
    out = [parked.waits(0.8)]
    a.joined(), b.joined(parked)
    held = b.sync()
    out += [held.waits(0.8), a.synced({a: b"x", b: b"y"}), held.answer()["ErrorCode"]]
    return out


@case("G2.7 G6.4 a leader that is late loses the lead", "groups")
def _(o):
    g = o.group()
    a, b, c = (g.member(label, ["t"], rebalance=700) for label in "ABC")
    settle_members(a, b, c)
    parked = [(m, m.join(Protocols=OTHER)) for m in (b, c)]
    answers = [m.joined(p)["ErrorCode"] for m, p in parked]
    leaders = {m.leader for m in (b, c)}
    return [answers, sorted(map(str, leaders)), a.beat()]
