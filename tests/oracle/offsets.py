"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete. Contract G8, G9, G10.1 to G10.6, cases 92 to 94."""

from groups import as_asked, settle_members
from table import by_version, case, settle

COMMIT, FETCH = range(2, 11), range(1, 11)
ZERO = bytes(16)


def known(o, group, topic):
    """Ids by name for version 10, and the topic's label in what comes back."""
    group.topic("t", topic, o.cluster.ids[topic])
    return {topic: o.cluster.ids[topic]}


def row(partition, offset, metadata="", epoch=-1):
    return {
        "PartitionIndex": partition,
        "CommittedOffset": offset,
        "CommittedMetadata": metadata,
        "CommittedLeaderEpoch": epoch,
    }


@case("G8.1 G8.9 unknown topics and partitions stand beside known ones", "groups")
def _(o):
    topic = o.topic(2)

    def told(v):
        g = o.group()
        ids = {**known(o, g, topic), "other": b"x" * 16, "zero": ZERO}
        parts = {topic: {0: 5, 1: 6, 7: 7, -1: 8}, "other": {0: 1}, "zero": {0: 1}}
        codes = g.commit(parts, v, ids=ids)
        return [codes, g.fetch(), g.state()]

    def refused(v):
        g, h = o.group(), o.group()
        settle_members(g.member("A", ["t"]))
        ids = {**known(o, g, topic), "other": b"x" * 16}
        parts = {topic: {0: 5, 7: 7}, "other": {0: 1}}
        return [g.commit(parts, v, ids=ids), h.commit({"other": {0: 1}}, v, ids=ids, generation=3), h.state()]

    return {"accepted": by_version(COMMIT, told), "refused": by_version(COMMIT, refused)}


@case("G8.2 G8.5 G8.6 who may commit", "groups")
def _(o):
    topic = o.topic()
    out = {}
    callers = {
        "simple": {},
        "simple with a member": {"member": "m"},
        "simple with an instance": {"member": "m", "instance": "i"},
        "generation 0": {"generation": 0},
        "generation 3, member": {"generation": 3, "member": "m"},
    }
    for label, given in callers.items():

        def absent(v, given=given):
            g = o.group()
            return [g.commit({topic: {0: 5}}, v, ids=known(o, g, topic), **given), g.state()]

        out[f"absent group: {label}"] = by_version(COMMIT, absent)

    g = o.group()
    a = g.member("A", ["t"])
    s = g.member("S", ["t"], instance="i")
    settle_members(a, s)
    p = g.member("P", ["t"])
    p.id = g.call("JoinGroup", 9, p.ask_join())["MemberId"]
    ids = known(o, g, topic)
    now = a.generation
    callers |= {
        "member": {"member": a.id, "generation": now},
        "member, generation below": {"member": a.id, "generation": now - 1},
        "member, generation above": {"member": a.id, "generation": now + 1},
        "member, generation -1": {"member": a.id},
        "pending member": {"member": p.id, "generation": now},
        "static": {"member": s.id, "instance": "i", "generation": now},
        "instance alone": {"instance": "i", "generation": now},
        "instance of another": {"member": a.id, "instance": "i", "generation": now},
        "unknown instance": {"member": a.id, "instance": "j", "generation": now},
    }
    for label, given in callers.items():
        run = lambda v, given=given: g.commit({topic: {0: 5}}, v, ids=ids, **given)
        out[f"stable group: {label}"] = by_version(COMMIT, run)
    return out


@case("G8.4 G8.7 commits by state of the group", "groups")
def _(o):
    topic = o.topic()
    g = o.group()
    a, b = g.member("A", [topic]), g.member("B", [topic])
    part = {topic: {0: 5}}
    a.joined()
    out = {"completing": [g.state(), a.commit(part)]}
    a.synced({a: b"x"})
    out["stable"] = a.commit(part)
    parked = b.join()
    out["preparing"] = [a.commit(part), b.commit(part, generation=a.generation)]
    a.joined(), b.joined(parked)
    out["completing again"] = [a.commit(part), b.commit(part), a.commit(part, generation=1)]
    a.leave(), b.leave()
    settle(g.state, lambda s: s == "Empty")
    simple = [
        {},
        {"member": "m"},
        {"member": "m", "instance": "i"},
        {"generation": 0},
        {"generation": 9, "member": "m"},
    ]
    out["empty"] = [g.state(), *(g.commit(part, **given) for given in simple)]
    return out


@case("G8.8 case 92: metadata null, empty, at the limit and above", "groups")
def _(o):
    topic = o.topic(8)
    texts = {
        0: None,
        1: "",
        2: "x" * 4096,
        3: "x" * 4097,
        4: "é" * 4096,
        5: "é" * 4097,
        6: "\U0001f600" * 2048,
        7: "\U0001f600" * 2049,
    }

    def told(v):
        g = o.group()
        ids = known(o, g, topic)
        codes = g.commit({topic: {p: (p, text) for p, text in texts.items()}}, v, ids=ids)
        back = g.fetch()[1]
        same = [[p, offset, text == (texts[p] or "")] for _, p, _, offset, _, text in back]
        return [codes, same]

    return by_version(COMMIT, told)


@case("G8.10 offsets are stored as sent", "groups")
def _(o):
    topic = o.topic(4)
    g = o.group()
    parts = {topic: {0: (-1, "a"), 1: (-5, "b"), 2: (2**63 - 1, None, 7), 3: (0, "", 0)}}
    out = [g.commit(parts), g.fetch({topic: [0, 1, 2, 3]})]
    twice = [{"Name": topic, "Partitions": [row(0, 10, "first"), row(0, 20, "second")]}]
    got = g.call("OffsetCommit", 9, {"Topics": twice, "GenerationIdOrMemberEpoch": -1})
    out += [[p["ErrorCode"] for p in got["Topics"][0]["Partitions"]], g.fetch({topic: [0]})]
    known(o, g, topic)
    return [g.tidy(x) if isinstance(x, dict) else x for x in out][:1] + [
        [r[1:] for r in out[1][1]],
        out[2],
        [r[1:] for r in out[3][1]],
    ]


@case("G8.11 case 93: the empty group id", "groups")
def _(o):
    topic = o.topic()
    g = o.group(name="")

    def told(v):
        ids = known(o, g, topic)
        return [g.commit({topic: {0: v}}, v, ids=ids), g.fetch({topic: [0]})[1][0][2:4]]

    out = by_version(COMMIT, lambda v: [told(v)[0], told(v)[1][1] == v])
    g.delete()
    return out


@case("G8.12 the commit of a pending member", "groups")
def _(o):
    topic = o.topic()
    g = o.group()
    p = g.member("P", ["t"])
    p.id = g.call("JoinGroup", 9, p.ask_join())["MemberId"]
    return [p.commit({topic: {0: 5}}), p.commit({topic: {0: 5}}, generation=0), g.state()]


@case("G8.15 no topics", "groups")
def _(o):
    def told(v):
        g = o.group()
        return [g.commit({}, v), g.commit({}, v, generation=7, member="m"), g.state()]

    return by_version(COMMIT, told)


@case("G8.16 a request whose offsets do not fit one batch", "groups")
def _(o):
    topic = o.topic()
    g = o.group()
    rows = [row(0, n, "x" * 100) for n in range(20_000)]
    value = {"Topics": [{"Name": topic, "Partitions": rows}], "GenerationIdOrMemberEpoch": -1}
    got = g.call("OffsetCommit", 9, value, seconds=30)
    codes = {p["ErrorCode"] for p in got["Topics"][0]["Partitions"]}
    return [sorted(codes), len(got["Topics"][0]["Partitions"]), g.fetch()]


@case("G9.1 G9.2 G9.3 G9.4 case 94: what is fetched, at every version", "groups")
def _(o):
    topic, other = o.topic(3), o.topic()
    g, absent = o.group(), o.group("absent")
    for group in (g, absent):
        known(o, group, topic)
        group.topic("u", other, o.cluster.ids[other])
    g.commit({topic: {0: (7, "meta", 3), 2: 0}})

    def ask(group, v, topics, **more):
        ids = {topic: o.cluster.ids[topic], other: o.cluster.ids[other], "gone": b"y" * 16, "zero": ZERO}
        asked = topics and [{"Name": t, "PartitionIndexes": p} for t, p in topics.items()]
        if asked and v >= 8:
            asked = [{**t, "TopicId": ids[t["Name"]]} for t in asked]
        one = {"GroupId": group.name, "Topics": asked, "MemberId": None, "MemberEpoch": -1, **more}
        value = {"Groups": [one]} if v >= 8 else {"GroupId": group.name, "Topics": asked}
        got = group.connection.call("OffsetFetch", v, value)
        return group.tidy(got["Groups"][0] if v >= 8 else got)

    def all_of(group, v):
        return ask(group, v, None)

    some = {topic: [0, 1, 2, 9], other: [0], "gone": [0]}
    return {
        "some": by_version(FETCH, lambda v: ask(g, v, some)),
        "some of an absent group": by_version(FETCH, lambda v: ask(absent, v, {topic: [0, 9], "gone": [0]})),
        "all": by_version(range(2, 11), lambda v: all_of(g, v)),
        "all of an absent group": by_version(range(2, 11), lambda v: all_of(absent, v)),
        "the zero id": ask(g, 10, {"zero": [0, 1]}),
        "no topics": by_version(FETCH, lambda v: ask(g, v, {}) if v > 1 else "not asked"),
        "absent still": absent.state(),
    }


@case("G9.5 classic groups ignore member and epoch", "groups")
def _(o):
    topic = o.topic()
    g = o.group()
    a = g.member("A", [topic])
    settle_members(a)
    a.commit({topic: {0: 9}})
    known(o, g, topic)
    asked = [(None, -1), ("nobody", 0), (a.id, 99), ("", -1), (None, 5)]
    return [g.fetch({topic: [0]}, v, m, e) for v in (9,) for m, e in asked]


@case("G9.6 require_stable without transactions", "groups")
def _(o):
    topic = o.topic()
    g = o.group()
    known(o, g, topic)
    g.commit({topic: {0: 9}})
    return by_version(range(7, 10), lambda v: g.fetch({topic: [0]}, v, stable=True))


@case("G9.8 several groups in one request", "groups")
def _(o):
    topic = o.topic()
    names = [o.name("many") for _ in range(2)]
    groups = {}
    for name in names:
        g = o.group(name=name)
        g.commit({topic: {0: len(groups) + 1}})
        groups[name] = g
    # Only groups of one coordinator can be asked for together.
    here = [g for g in groups.values() if g.address == groups[names[0]].address]
    first = here[0]
    asked = [{"GroupId": g.name, "Topics": None, "MemberEpoch": -1} for g in here[:1] * 2 + here[1:]]
    got = first.connection.call("OffsetFetch", 9, {"Groups": asked})["Groups"]
    order = [r["GroupId"] for r in got] == [a["GroupId"] for a in asked]
    rows = [[r["ErrorCode"], [p["CommittedOffset"] for t in r["Topics"] for p in t["Partitions"]]] for r in got[:2]]
    none = first.connection.call("OffsetFetch", 9, {"Groups": []})
    return [order, rows, none["Groups"]]


def delete(g, parts, **more):
    topics = [{"Name": t, "Partitions": [{"PartitionIndex": p} for p in ps]} for t, ps in parts.items()]
    got = g.call("OffsetDelete", 0, {"Topics": topics, **more})
    return [got["ErrorCode"], [[p["ErrorCode"] for p in partitions] for partitions in as_asked(got["Topics"], parts)]]


@case("G10.1 G10.3 OffsetDelete of a group without members", "groups")
def _(o):
    topic = o.topic(3)
    g = o.group()
    known(o, g, topic)
    out = {
        "absent": delete(o.group(), {topic: [0], "gone": [0]}),
        "empty id": delete(g, {topic: [0]}, GroupId=""),
    }
    g.commit({topic: {0: 1, 1: 2}})
    out["some"] = [delete(g, {topic: [0, 2, 9], "gone": [0]}), g.fetch()]
    out["nothing"] = delete(g, {})
    out["again"] = [delete(g, {topic: [0, 1]}), g.fetch(), g.state()]
    return out


@case("G10.2 G10.4 OffsetDelete of a group with members", "groups")
def _(o):
    topic, other = o.topic(), o.topic()
    out = {}

    def group_of(**more):
        g = o.group()
        a = g.member("A", [topic], **more)
        settle_members(a)
        a.commit({topic: {0: 1}, other: {0: 2}})
        return g, a

    g, a = group_of()
    out["subscribed and not"] = [delete(g, {topic: [0], other: [0]}), len(g.fetch()[1])]
    b = g.member("B", [other])
    b.join()
    out["a parked newcomer does not count"] = [g.state(), delete(g, {other: [0]})]
    a.joined()
    a.leave()
    g, a = group_of(kind="connect")
    out["another type"] = [delete(g, {topic: [0], other: [0]}), len(g.fetch()[1])]
    g, a = group_of(protocols=[("range", b"\0")])
    out["unreadable subscription"] = [delete(g, {topic: [0], other: [0]}), len(g.fetch()[1])]
    a.leave()
    out["empty"] = [g.state(), delete(g, {topic: [0], other: [0]}), len(g.fetch()[1])]
    g = o.group()
    c = g.consumer("C", [topic])
    epoch = c.beat(0)[1]
    c.commit({topic: {0: 1}, other: {0: 2}}, epoch)
    out["consumer group"] = [delete(g, {topic: [0], other: [0]}), len(g.fetch()[1]), c.leave()[:2]]
    out["empty consumer group"] = delete(g, {topic: [0], other: [0]})
    return out


@case("G10.6 a deleted topic takes its offsets along", "groups")
def _(o):
    topic, other = o.topic(), o.topic()
    g = o.group()
    g.commit({topic: {0: 1}, other: {0: 2}})
    o.cluster.delete(topic)
    left = settle(lambda: g.fetch(), lambda got: len(got[1]) == 1)
    return [r[3] for r in left[1]]
