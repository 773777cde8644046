"""Groups that change their protocol while they live: contract G18."""

import time

from groups import assigned, assignment, settle_members, subscription
from table import case, settle


def classic_pair(o, **more):
    """Classic members A {0, 2} and B {1, 3, 4} at generation 2: of three members each has a share without a tie."""
    g = o.group()
    topic = o.group_topic(g, "t", 5)
    a, b = g.member("A", [topic], **more), g.member("B", [topic], **more)
    settle_members(a, b, give={a: assignment({topic: [0, 2]}), b: assignment({topic: [1, 3, 4]})})
    return g, topic, a, b


def rejoin(g, member, topic, owned):
    """A join that acknowledges `owned`: code, generation, protocol, leader, how many members are told."""
    held = [("range", subscription([topic], owned={topic: owned}, generation=member.generation))]
    answer = member.took(member.join(Protocols=[{"Name": n, "Metadata": m} for n, m in held]).answer())
    member.protocols = held
    told = [answer[k] for k in ("ErrorCode", "GenerationId", "ProtocolName", "Leader")]
    return [*told, len(answer["Members"]), answer["SkipAssignment"]]


def take(g, member):
    """What SyncGroup gives."""
    got = member.sync().answer()
    return [got["ErrorCode"], {g.topics.get(t, t): p for t, p in assigned(got["Assignment"]).items()}]


def newcomer(g, topic):
    """What a classic newcomer is told in the end: code, generation, protocol."""
    n = g.member("N", [topic])
    got = g.call("JoinGroup", 9, n.ask_join())
    if got["ErrorCode"] == 79:
        n.id = got["MemberId"]
        got = n.join().answer()
    return [got[k] for k in ("ErrorCode", "GenerationId", "ProtocolName")]


@case("G18 the table: what converts a group, by its state", "groups")
def _(o):
    topic = o.topic()

    def classic_empty(g):
        a = g.member("A", [topic])
        a.joined(), a.synced({a: b"x"}), a.leave()

    def other_empty(g):
        a = g.member("A", ["t"], kind="connect")
        a.joined(), a.leave()

    def consumer_empty(g):
        c = g.consumer("A", [topic])
        c.beat(0), c.leave()

    def pending(g):
        g.call("JoinGroup", 9, g.member("P", ["t"]).ask_join())

    prepared = {
        "absent": lambda g: None,
        "simple": lambda g: g.commit({topic: {0: 7}}),
        "classic empty": classic_empty,
        "other type empty": other_empty,
        "pending member": pending,
        "other type": lambda g: settle_members(g.member("A", ["t"], kind="connect")),
        "consumer empty": consumer_empty,
        "consumer": lambda g: g.consumer("A", [topic]).beat(0),
    }
    out = {}
    for label, prepare in prepared.items():
        g, h = o.group(), o.group()
        for group in (g, h):
            group.topic("t", topic, o.cluster.ids[topic])
            prepare(group)
            if "empty" in label:
                group.commit({topic: {0: 7}})
        told = newcomer(g, topic)
        heard = h.consumer("N", [topic]).beat(0)
        out[label] = {
            "JoinGroup": [told, g.state(), [r[3] for r in g.fetch()[1]]],
            "heartbeat": [heard, h.epochs(), [r[3] for r in h.fetch()[1]]],
        }
    g = o.group()
    consumer_empty(g)
    stranger = g.member("S", [topic])
    stranger.id = "nobody"
    out["consumer empty, join with a member id"] = [stranger.join().answer()["ErrorCode"], g.epochs()]
    return out


@case("G18.1 G18.3 a consumer joins two classic members, step by step", "groups")
def _(o):
    g, topic, a, b = classic_pair(o)
    a.commit({topic: {0: 11}})
    n = g.consumer("N", [topic])
    out = {"join": [n.beat(0), g.epochs(), g.state()]}
    described = g.describe_consumer()
    out["described"] = [
        [m["MemberId"], m["MemberType"], m["MemberEpoch"]]
        + [[p["Partitions"] for p in m[k]["TopicPartitions"]] for k in ("Assignment", "TargetAssignment")]
        for m in described["Members"]
    ]
    out["A beats"] = [a.beat(), a.beat(GenerationId=1), a.beat(GenerationId=3)]
    out["A joins"] = [rejoin(g, a, topic, [0, 2]), take(g, a), a.beat()]
    out["B beats"] = b.beat()
    out["B joins with all"] = [rejoin(g, b, topic, [1, 3, 4]), take(g, b), b.beat()]
    out["N waits"] = n.beat(3)
    out["B joins with less"] = [rejoin(g, b, topic, [1, 3]), take(g, b), b.beat()]
    out["N"] = [n.beat(3), g.epochs(), a.beat(), b.beat()]
    out["offsets"] = [
        [r[3] for r in g.fetch()[1]],
        a.commit({topic: {0: 12}}),
        a.commit({topic: {0: 13}}, generation=1),
    ]
    out["fetch"] = [g.fetch({topic: [0]}, 9, a.id, a.generation)[0], g.fetch({topic: [0]}, 9, a.id, 1)[0]]
    return out


@case("G18.3 SyncGroup and Heartbeat of a classic member refuse", "groups")
def _(o):
    g, topic, a, b = classic_pair(o)
    g.consumer("N", [topic]).beat(0)
    rejoin(g, a, topic, [0, 2])
    given = {
        "unknown member": {"MemberId": "nobody"},
        "unknown instance": {"GroupInstanceId": "j"},
        "generation below": {"GenerationId": 1},
        "other type": {"ProtocolType": "connect"},
        "other name": {"ProtocolName": "sticky"},
        "fits": {},
    }
    beat = lambda m: a.beat(**{k: v for k, v in m.items() if "Protocol" not in k})
    return {label: [a.synced(**m)[0], beat(m)] for label, m in given.items()}


@case("G18.1 an upgrade answers what was parked with 27", "groups")
def _(o):
    g, topic, a, b = classic_pair(o)
    parked = b.join(Protocols=[{"Name": "range", "Metadata": subscription([topic], data=b"new")}])
    state = g.state()
    n = g.consumer("N", [topic]).beat(0)
    out = [state, n, g.tidy(parked.answer()), a.beat(), b.beat()]
    g, topic, a, b = classic_pair(o)
    parked = a.join()
    b.joined()
    a.joined(parked)
    held = b.sync()
    return [*out, held.waits(), g.consumer("N", [topic]).beat(0), g.tidy(held.answer())]


@case("G18.4 a classic member joins a consumer group", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 4)
    c = g.consumer("C", [topic])
    c.beat(0)
    tid = o.cluster.ids[topic]
    ask = lambda v, **m: g.tidy(g.call("JoinGroup", v, g.member("N", [topic]).ask_join(**m)))
    out = {
        "other type": ask(9, ProtocolType="connect"),
        "no protocols": ask(9, Protocols=[])["ErrorCode"],
        "unreadable": ask(9, Protocols=[{"Name": "range", "Metadata": b"\0"}], MemberId="own")["ErrorCode"],
        "unknown instance with an id": ask(9, MemberId="x", GroupInstanceId="i")["ErrorCode"],
        "newcomer": ask(9),
    }
    n = g.member("N", [topic])
    out["joined"] = [rejoin(g, n, topic, []), g.epochs(), take(g, n), n.beat()]
    out["no common name"] = ask(9, Protocols=[{"Name": "sticky", "Metadata": subscription([topic])}])["ErrorCode"]
    out["C gives up"] = [c.beat(2), c.beat(2, {tid: [0, 1]}), n.beat()]
    out["N takes"] = [rejoin(g, n, topic, []), take(g, n), n.beat(), g.epochs()]
    old = g.member("O", [topic], v=3)
    out["version 3"] = [g.tidy(g.call("JoinGroup", 3, old.ask_join()))[k] for k in ("ErrorCode", "MemberId")]
    out["an id of its own"] = ask(9, MemberId="own")["ErrorCode"]
    return out


@case("G18.4 a static classic member comes back to a full group", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 5)
    c = g.consumer("C", [topic])
    c.beat(0)
    members = [g.member(str(n), [topic], instance=f"i{n}") for n in range(4)]
    out = [m.join().answer()["ErrorCode"] for m in members]
    again = g.member("again", [topic], instance="i0")
    out += [g.tidy(g.call("JoinGroup", 9, again.ask_join())), g.epochs()]
    late = g.consumer("late", [topic], instance="i1")
    return [*out, late.beat(0), g.epochs()]


@case("G18.5 classic groups that cannot be upgraded", "groups")
def _(o):
    topic = o.topic(2)
    made = {
        "fits": (subscription([topic]), assignment({topic: [0]})),
        "subscription unreadable": (b"\0", assignment({topic: [0]})),
        "assignment unreadable": (subscription([topic]), b"\0\1"),
        "assignment with user data": (subscription([topic]), assignment({topic: [0]}, data=b"mine")),
        "subscription with user data": (subscription([topic], data=b"mine"), assignment({topic: [0]})),
        "assignment empty": (subscription([topic]), b""),
        "unknown topic in both": (subscription(["nowhere"]), assignment({"nowhere": [0]})),
    }
    out = {}
    for label, (wants, gets) in made.items():
        g = o.group()
        a = g.member("A", protocols=[("range", wants)])
        settle_members(a, give={a: gets})
        got = g.consumer("N", [topic]).ask(0)
        out[label] = [got["ErrorCode"], got["MemberEpoch"], g.state(), a.beat()]
    return out


@case("G18.6 a member changes its protocol under its own id", "groups")
def _(o):
    g, topic, a, b = classic_pair(o)
    as_consumer = g.consumer("A", [topic], id=a.id)
    out = {"to consumer": [as_consumer.beat(0), g.epochs(), a.beat(), b.beat()]}
    back = g.member("A", [topic])
    back.id = a.id
    out["and back"] = [rejoin(g, back, topic, [0, 2]), take(g, back), back.beat(), g.state(), b.beat()]
    return out


@case("G18.8 static members replace each other across protocols", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 4)
    a, s = g.member("A", [topic]), g.member("S", [topic], instance="s")
    settle_members(a, s, give={a: assignment({topic: [0, 2]}), s: assignment({topic: [1, 3]})})
    c = g.consumer("C", [topic], instance="s")
    out = {"consumer replaces": [c.beat(0), g.epochs(), s.beat(), s.beat(GroupInstanceId=None), a.beat()]}
    s2 = g.member("S2", [topic], instance="s")
    answer = s2.took(s2.join().answer())
    out["classic replaces, the last consumer"] = [
        [answer[k] for k in ("ErrorCode", "GenerationId", "ProtocolName")],
        g.state(),
        c.beat(2),
        s2.beat(),
        a.beat(),
        take(g, s2),
    ]
    return out


@case("G18.9 the last consumer leaves: a downgrade", "groups")
def _(o):
    g, topic, a, b = classic_pair(o)
    n = g.consumer("N", [topic])
    n.beat(0)
    rejoin(g, a, topic, [0, 2]), take(g, a)
    rejoin(g, b, topic, [1, 3]), take(g, b)
    out = [g.epochs(), n.leave(), g.state(), a.beat(), a.beat(GenerationId=2), n.beat(3)]
    out.append(a.beat(GenerationId=4))
    a.generation = b.generation = 4
    parked = a.join()
    out += [parked.waits(), b.joined()["GenerationId"], a.joined(parked)["GenerationId"], g.state()]
    leader = a if a.leader else b
    out += [leader.synced({a: b"x", b: b"y"})[0], g.state()]
    return out


@case("G18.10 a classic member that does not join after a 27 is removed", "groups")
def _(o):
    g, topic, a, b = classic_pair(o, rebalance=800)
    n = g.consumer("N", [topic])
    n.beat(0)
    out = [a.beat(), b.beat()]
    rejoin(g, a, topic, [0, 2]), take(g, a)
    until = time.monotonic() + 5
    while (code := b.beat()) == 27 and time.monotonic() < until:
        time.sleep(0.1)
    return [*out, code, g.epochs()[1], a.beat()]


@case("G18.11 LeaveGroup of both kinds, and an empty group stays consumer", "groups")
def _(o):
    g, topic, a, b = classic_pair(o)
    n = g.consumer("N", [topic])
    n.beat(0)
    members = [{"MemberId": m} for m in (a.id, b.id, "nobody", n.id)]
    left = g.tidy(g.call("LeaveGroup", 5, {"Members": members}))
    return [left, g.epochs(), settle(g.state, lambda s: s == "Dead", 1)]
