"""Members of consumer groups: what ConsumerGroupHeartbeat and ConsumerGroupDescribe refuse and tell, static members,
and their commits. Contract G11, G15, G16, G17.
"""

import time

from groups_find import alter
from table import by_version, case, settle


def pair(o, partitions=1, **more):
    """A group with one member A at epoch 2, and its topic."""
    g = o.group()
    topic = o.group_topic(g, "t", partitions)
    a = g.consumer("A", [topic], **more)
    assert a.beat(0)[0] == 0
    return g, topic, a


def full(g, member, epoch, **more):
    return g.tidy(member.ask(epoch, **more))


@case("G11.1 G11.2 to G11.6 what a heartbeat may not say", "groups")
def _(o):
    g, topic, a = pair(o)
    fresh = lambda **more: g.consumer("N", [topic], **more)
    joins = {
        "rebalance timeout -1": {"RebalanceTimeoutMs": -1},
        "rebalance timeout -2": {"RebalanceTimeoutMs": -2},
        "owned null": {"TopicPartitions": None},
        "owned given": {"TopicPartitions": [{"TopicId": o.cluster.ids[topic], "Partitions": [0]}]},
        "no names": {"SubscribedTopicNames": None},
        "group id empty": {"GroupId": ""},
        "member id empty": {"MemberId": ""},
        "instance id empty": {"InstanceId": ""},
        "rack empty": {"RackId": ""},
        "epoch -2": {"MemberEpoch": -2},
        "epoch -3": {"MemberEpoch": -3},
        "assignor unknown": {"ServerAssignor": "nothing"},
        "assignor empty": {"ServerAssignor": ""},
        "regex bad": {"SubscribedTopicRegex": "("},
        "regex lookahead": {"SubscribedTopicRegex": "a(?!b)"},
        "regex backreference": {"SubscribedTopicRegex": r"(a)\1"},
        "bad assignor and bad regex": {"ServerAssignor": "nothing", "SubscribedTopicRegex": "("},
    }
    out = {}
    for label, given in joins.items():
        versions = (1,) if "Regex" in str(given) else (0, 1)
        if label == "member id empty":
            out[label] = full(g, fresh(), 0, **given)
        else:
            out[label] = by_version(versions, lambda v, m=given: full(g, fresh(v=v), 0, **m))
    out["member id empty, epoch 5"] = by_version((0, 1), lambda v: full(g, fresh(v=v), 5, MemberId=""))
    out["assignor unknown, epoch 2"] = full(g, a, 2, ServerAssignor="nothing")
    out["untouched"] = [g.epochs(), a.beat(2)]
    return out


@case("G11.2 version 0 with an empty member id: the broker makes one", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g)
    a = g.consumer("A", [topic], v=0, id="")
    got = a.ask(0)
    return [g.tidy(got), len(got["MemberId"])]


@case("G11.4 what a join may leave out", "groups")
def _(o):
    out = {}
    allowed = {
        "rebalance timeout 0": {"RebalanceTimeoutMs": 0},
        "no topics": {"SubscribedTopicNames": []},
        "regex empty": {"SubscribedTopicNames": None, "SubscribedTopicRegex": ""},
        "unknown topic": {"SubscribedTopicNames": ["nowhere-at-all"]},
        "illegal topic": {"SubscribedTopicNames": ["a/b", ""]},
    }
    for label, given in allowed.items():
        g = o.group()
        a = g.consumer("A", [])
        out[label] = [full(g, a, 0, **given), g.epochs()]
    return out


@case("G11.8 G11.10 G11.11 unknown groups, members and epochs", "groups")
def _(o):
    g, topic, a = pair(o)
    s = g.consumer("S", [topic], instance="i")
    s.beat(0)
    absent = o.group("absent")
    lonely = absent.consumer("A", [topic])
    out = {
        "absent group": [full(absent, lonely, epoch) for epoch in (1, -1)],
        "unknown member": [full(g, g.consumer("X", [topic], id="nobody"), epoch) for epoch in (1, -1)],
        "unknown instance": full(g, a, 2, InstanceId="j"),
        "instance of another": full(g, a, 2, InstanceId="i"),
        "unknown instance, -2": full(g, a, -2, InstanceId="j"),
        "epoch above": full(g, a, 9),
        "epoch below": full(g, a, 1),
        "instance left out": s.beat(3, InstanceId=None),
    }
    return out


@case("G11.9 a group that is full", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 6)
    members = [g.consumer(str(n), [topic], instance=f"i{n}") for n in range(5)]
    codes = [m.beat(0)[0] for m in members]
    late = g.consumer("late", [topic])
    out = [codes, full(g, late, 0), g.epochs()]
    out.append(members[0].leave(-2))
    again = g.consumer("again", [topic], instance="i0")
    return [*out, again.beat(0), late.beat(0), g.epochs()]


@case("G11.11 the epoch before, with what is owned: a lost answer", "groups")
def _(o):
    g, topic, a = pair(o, 6)
    tid = o.cluster.ids[topic]
    b = g.consumer("B", [topic])
    b.beat(0)
    b.beat(3)
    out = [a.beat(2), a.beat(2, {tid: [0, 1, 2]}), g.epochs()]
    # A is at 3 now; its answer is taken for lost.
    out += [a.beat(2), a.beat(2, {tid: [0, 1]}), a.beat(2, {tid: [0, 1, 2, 3]}), a.beat(2, {}), a.beat(1, {tid: [0]})]
    return out


@case("G12.3 G12.4 when the answer carries the assignment", "groups")
def _(o):
    g, topic, a = pair(o, 2)
    tid = o.cluster.ids[topic]
    everything = {"RebalanceTimeoutMs": 30000, "SubscribedTopicNames": [topic]}
    return [
        a.beat(2),
        a.beat(0),
        a.beat(2, {tid: [0, 1]}, **everything),
        a.beat(2, {tid: [0, 1]}),
        a.beat(2, **everything),
        a.beat(2, {tid: [0, 1]}, RebalanceTimeoutMs=30000),
        a.beat(2, {}, **everything),
        g.epochs(),
    ]


@case("G12.8 leaving, twice, and the last one", "groups")
def _(o):
    g, topic, a = pair(o, 2)
    out = [full(g, a, -1), full(g, a, -1), g.epochs()]
    return [*out, a.beat(0), g.epochs()]


@case("G12.10 sessions of a group with settings of its own", "groups")
def _(o):
    g = o.group()
    pairs = {"consumer.session.timeout.ms": "1200", "consumer.heartbeat.interval.ms": "300"}
    out = [alter(o, g.name, pairs)]
    topic = o.group_topic(g, "t", 2)
    a, b = g.consumer("A", [topic]), g.consumer("B", [topic])
    # The settings are known at the coordinator a moment later.
    settle(lambda: a.ask(0)["HeartbeatIntervalMs"], lambda ms: ms == 300)
    out += [a.ask(0)["HeartbeatIntervalMs"], b.beat(0)]
    for _ in range(8):
        time.sleep(0.3)
        a.beat(g.describe_consumer()["Members"][0]["MemberEpoch"])
    out += [b.beat(3), len(g.describe_consumer()["Members"])]
    return out


@case("G15.1 G15.2 an instance that is in use", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 2)
    s = g.consumer("S", [topic], instance="i")
    return [s.beat(0), full(g, s, 0), full(g, g.consumer("S2", [topic], instance="i"), 0), s.beat(2), g.epochs()]


@case("G15.3 G15.4 an instance that goes and comes back", "groups")
def _(o):
    g = o.group()
    topic, other = o.group_topic(g, "t", 4), o.group_topic(g, "u", 1)
    a = g.consumer("A", [topic])
    s = g.consumer("S", [topic], instance="i")
    a.beat(0), s.beat(0), s.beat(3)
    tid = o.cluster.ids[topic]
    out = {"joined": [a.beat(2), a.beat(2, {tid: [0, 1]}), s.beat(3), g.epochs()]}
    out["gone"] = [full(g, s, -2), g.epochs(), g.describe_consumer(), s.beat(3), a.beat(3), full(g, s, -2)]
    again = g.consumer("S2", [topic], instance="i")
    out["back"] = [again.beat(0), g.epochs()]
    out["the old id"] = [s.beat(e) for e in (3, -1, -2)] + [s.beat(3, InstanceId=None)]
    again.leave(-2)
    third = g.consumer("S3", [topic, other], instance="i")
    out["back with other names"] = [third.beat(0), g.epochs()]
    out["gone for good"] = [third.beat(-1), g.epochs()]
    return out


@case("G15.7 an instance that does not come back", "groups")
def _(o):
    g = o.group()
    pairs = {"consumer.session.timeout.ms": "900", "consumer.heartbeat.interval.ms": "300"}
    alter(o, g.name, pairs)
    topic = o.group_topic(g, "t", 2)
    s = g.consumer("S", [topic], instance="i")
    settle(lambda: s.ask(0)["HeartbeatIntervalMs"] or s.ask(-1) and 0, lambda ms: ms == 300)
    got = s.beat(-2)
    state = settle(lambda: g.epochs()[0], lambda state: state == "Empty")
    return [got, state]


@case("G16.1 G16.3 ConsumerGroupDescribe", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 3)
    a = g.consumer("A", [topic])
    b = g.consumer("B", [topic], instance="i", regex=topic)
    a.beat(0, RackId="r", ServerAssignor="range")
    c = g.consumer("C", None, regex="no-such-topic-.*")
    b.beat(0)
    # Matching runs aside, and raises the epoch at which the next one joins (contract G14.2).
    settle(lambda: g.epochs()[1], lambda epoch: epoch >= 4)
    c.beat(0)

    def shown(v):
        got = g.describe_consumer(v)
        for member in got["Members"]:
            for part in ("Assignment", "TargetAssignment"):
                rows = member[part]["TopicPartitions"]
                member[part] = [[r["TopicName"], r["TopicId"], sorted(r["Partitions"])] for r in rows]
            member["SubscribedTopicRegex"] = g._word(member["SubscribedTopicRegex"])
        del got["GroupEpoch"], got["AssignmentEpoch"], got["GroupState"]
        # Which of several gets which partition has no documented order across assignors.
        return got

    asked = g.describe_consumer(1, IncludeAuthorizedOperations=True)["AuthorizedOperations"]
    return [by_version((0, 1), shown), asked]


@case("G16.4 ConsumerGroupDescribe of what is none", "groups")
def _(o):
    absent, classic = o.group("absent"), o.group("classic")
    classic.member("A", ["t"]).joined()
    ask = lambda v, name: absent.tidy(
        absent.connection.call("ConsumerGroupDescribe", v, {"GroupIds": [name]})["Groups"][0]
    )
    return {
        "absent": by_version((0, 1), absent.describe_consumer),
        "classic": by_version((0, 1), classic.describe_consumer),
        "empty id": by_version((0, 1), lambda v: ask(v, "")),
        "none": absent.connection.call("ConsumerGroupDescribe", 1, {"GroupIds": []})["Groups"],
    }


@case("G17.1 G17.2 commits by members of a consumer group", "groups")
def _(o):
    g, topic, a = pair(o, 2)
    other = o.group_topic(g, "u")
    ids = {t: o.cluster.ids[t] for t in (topic, other)}
    at = lambda v, epoch, **m: a.commit({topic: {0: 1}, other: {0: 1}}, epoch, v, ids=ids, **m)
    calls = {
        "its epoch": lambda v: at(v, 2),
        "epoch above": lambda v: at(v, 3),
        "epoch below": lambda v: at(v, 1),
        "epoch -1": lambda v: at(v, -1),
        "unknown member": lambda v: at(v, 2, member="nobody"),
        "nobody": lambda v: at(v, -1, member=""),
        "an instance of nobody": lambda v: at(v, 2, instance="j"),
    }
    out = {label: by_version(range(2, 11), run) for label, run in calls.items()}
    a.leave()
    out["empty group"] = [g.commit({topic: {0: 5}}), a.commit({topic: {0: 5}}, -1), a.commit({topic: {0: 5}}, 2)]
    out["fetched from an empty group"] = [g.fetch({topic: [0]}, 9, m, e) for m, e in ((None, -1), (a.id, 2), (None, 0))]
    return out


@case("G17.3 a commit at an older epoch counts if all of it was the member's then", "groups")
def _(o):
    g, topic, a = pair(o, 4)
    tid = o.cluster.ids[topic]
    b = g.consumer("B", [topic])
    b.beat(0), b.beat(3)
    out = {"revoking": a.beat(2)}
    # At epoch 2 A has all four; 2 and 3 are being revoked.
    out["its epoch"] = a.commit({topic: {p: p for p in range(4)}}, 2)
    out["acknowledged"] = [a.beat(2, {tid: [0, 1]}), b.beat(3)]
    out["kept partitions"] = a.commit({topic: {0: 10, 1: 11}}, 2)
    out["a given one too"] = a.commit({topic: {0: 20, 3: 23}}, 2)
    out["too long a text beside"] = a.commit({topic: {0: 30, 3: (33, "x" * 5000)}}, 2)
    out["epoch -1"] = a.commit({topic: {0: 40}}, -1)
    out["B at an epoch before it had them"] = b.commit({topic: {2: 50}}, 2)
    out["B at its own"] = b.commit({topic: {2: 60, 0: 61}}, 3)
    out["stored"] = [row[3] for row in g.fetch()[1]]
    return out


@case("G17.4 fetches that name a member", "groups")
def _(o):
    g, topic, a = pair(o)
    a.commit({topic: {0: 7}}, 2)
    asked = [(None, -1), (a.id, 2), (a.id, 1), (a.id, 3), (a.id, -1), ("nobody", 2), ("", -1), (None, 2)]
    out = [g.fetch({topic: [0]}, 9, m, e) for m, e in asked]
    return [out, by_version(range(1, 9), lambda v: g.fetch({topic: [0]}, v))]


@case("G17.6 classic requests with a consumer member's id", "groups")
def _(o):
    g, topic, a = pair(o)
    ask = {"MemberId": a.id, "GenerationId": 2}
    sync = {**ask, "ProtocolType": "consumer", "ProtocolName": "range"}
    out = [g.call("Heartbeat", 4, ask)["ErrorCode"], g.call("SyncGroup", 5, sync)["ErrorCode"], g.state()]
    left = g.call("LeaveGroup", 5, {"Members": [{"MemberId": a.id}, {"MemberId": "nobody"}]})
    return [*out, g.tidy(left), a.beat(2), g.epochs()]
