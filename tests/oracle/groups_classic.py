"""Members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. Contract G2 to G5."""

from groups import settle_members, subscription
from table import by_version, case

JOIN, SYNC, BEAT, LEAVE = range(0, 10), range(0, 6), range(0, 5), range(0, 6)


def stable(o, *labels, **more):
    """A group and its members in one Stable generation; the first leads."""
    g = o.group()
    members = [g.member(label, ["t"], **more) for label in labels]
    settle_members(*members)
    return g, *members


def join_code(g, member, version, **more):
    """What a join that is refused at once answers, in full."""
    return g.tidy(g.call("JoinGroup", version, member.ask_join(**more)))


@case("G2.1 G2.2 empty group id, session timeouts beyond the limits", "groups")
def _(o):
    g = o.group()
    a = g.member("A", ["t"])
    out = {"empty id": by_version(JOIN, lambda v: join_code(g, a, v, GroupId=""))}
    out["empty id and bad session"] = by_version(JOIN, lambda v: join_code(g, a, v, GroupId="", SessionTimeoutMs=1))
    for label, session in {"199": 199, "60001": 60001, "0": 0, "-1": -1}.items():
        out[label] = by_version(JOIN, lambda v, s=session: join_code(g, a, v, SessionTimeoutMs=s)["ErrorCode"])
    for session in (200, 60000):
        out[f"{session}"] = join_code(g, a, 5, SessionTimeoutMs=session)["ErrorCode"]
    return out


@case("G2.6 a member id in a group that does not exist", "groups")
def _(o):
    def told(v, **more):
        g = o.group()
        return [join_code(g, g.member("A", ["t"]), v, MemberId="nobody", **more), g.state()]

    return {
        "alone": by_version(JOIN, told),
        "with an instance": by_version(range(5, 10), lambda v: told(v, GroupInstanceId="i")),
    }


@case("G2.9 G2.10 G2.14 the first member, at every version", "groups")
def _(o):
    def told(v):
        g = o.group()
        a = g.member("A", ["t"], v=v)
        out = []
        if v >= 4:
            got = g.call("JoinGroup", v, a.ask_join())
            a.id = got["MemberId"]
            out.append(g.tidy(got))
        out += [a.joined(), a.synced({a: b"one"}), a.synced({a: b"two"}), a.beat(), g.describe(), a.leave(), g.state()]
        return out

    def static(v):
        g = o.group()
        a = g.member("A", ["t"], v=v, instance="i")
        return [a.joined(), a.synced({a: b"one"}), a.beat(), g.describe()]

    return {"dynamic": by_version(JOIN, told), "static": by_version(range(5, 10), static)}


@case("G2.16 member ids begin with the client id or the instance id", "groups")
def _(o):
    g = o.group()
    a = g.member("A", ["t"])
    first = g.tidy(g.call("JoinGroup", 9, a.ask_join()))["MemberId"]
    b = g.member("B", ["t"], instance="kiosk")
    return [first, g.tidy(b.join().answer())["MemberId"]]


@case("G2.8 protocols that do not fit the group", "groups")
def _(o):
    meta = subscription(["t"])
    lists = {
        "other type": {"ProtocolType": "connect"},
        "type empty": {"ProtocolType": ""},
        "no protocols": {"Protocols": []},
        "no common name": {"Protocols": [{"Name": "sticky", "Metadata": meta}]},
        "one common name": {"Protocols": [{"Name": "sticky", "Metadata": meta}, {"Name": "range", "Metadata": meta}]},
    }
    out = {}
    for label, given in lists.items():
        code = lambda v, given=given: join_code(o.group(), o.group().member("A", ["t"]), v, **given)["ErrorCode"]
        out[f"empty group: {label}"] = by_version(range(4, 10), code)
        g, a = stable(o, "A")
        out[f"group with a member: {label}"] = by_version(
            range(4, 10), lambda v, g=g, given=given: join_code(g, g.member("B", ["t"]), v, **given)
        )
        # Before the member check: an unknown id with a wrong list is a wrong list.
        out[f"an unknown member: {label}"] = join_code(g, a, 9, MemberId="nobody", **given)["ErrorCode"]
        if label != "one common name":
            out[f"the lone member: {label}"] = [join_code(g, a, 9, **given)["ErrorCode"], a.beat()]
    return out


@case("G2.11 a pending member comes back", "groups")
def _(o):
    g = o.group()
    a = g.member("A", ["t"])
    got = g.call("JoinGroup", 9, a.ask_join())
    a.id = got["MemberId"]
    g.label(a.id, "A")
    out = [g.state(), join_code(g, a, 9, GroupInstanceId="i")["ErrorCode"]]
    out += [a.beat(), a.synced(), a.joined(), a.leave()]
    return out


@case("G2.12 instances and members that the group does not know", "groups")
def _(o):
    g, a = stable(o, "A")
    s = g.member("S", ["t"], instance="i")
    settle_members(a, s)
    ask = lambda **m: by_version(range(5, 10), lambda v: join_code(g, a, v, **m))
    return {
        "unknown instance": ask(GroupInstanceId="j"),
        "instance of another": ask(GroupInstanceId="i", MemberId="nobody"),
        "instance of another, known id": ask(GroupInstanceId="i"),
        "unknown member": ask(MemberId="nobody"),
        "stable still": [g.state(), a.beat(), s.beat()],
    }


@case("G2.13 G6.13 a second member, step by step", "groups")
def _(o):
    g = o.group()
    a, b = g.member("A", ["t"]), g.member("B", ["t"])
    out = [a.joined(), g.state(), a.synced({a: b"all"}), g.state()]
    parked = b.join()
    out += [parked.waits(), g.state(), a.beat(), a.synced()]
    out.append(a.joined())
    out += [b.joined(parked), g.state(), a.beat(), b.beat()]
    follower = b.sync()
    out += [follower.waits(), a.synced({a: b"left", b: b"right"}), follower.answer()["Assignment"].decode()]
    out += [g.state(), g.describe()]
    return out


@case("G2.13 a known member joins again, by state", "groups")
def _(o):
    g, a, b = stable(o, "A", "B")
    other = [{"Name": "range", "Metadata": subscription(["u"])}]
    out = {"stable: follower unchanged": b.joined(), "stable after it": g.state()}
    parked = b.join(Protocols=other)
    out["stable: follower changed"] = [parked.waits(), g.state(), a.beat()]
    a.joined()
    out["both again"] = b.joined(parked)
    out["completing: unchanged"] = [b.joined(b.join(Protocols=other)), g.state()]
    parked = b.join()
    out["completing: changed back"] = [parked.waits(), g.state()]
    a.joined()
    b.joined(parked)
    follower = b.sync()
    a.synced({a: b"x", b: b"y"})
    follower.answer()
    parked = a.join()
    out["stable: the leader"] = [parked.waits(), g.state(), b.beat()]
    again = a.join()
    out["preparing: parked twice"] = again.waits()
    b.joined()
    out["the second is answered"] = a.joined(again)
    return out


@case("G2.7 G2.17 a group that is full", "groups")
def _(o):
    g, *members = stable(o, *"ABCDE")
    e = g.member("F", ["t"])
    out = {"dynamic": by_version(JOIN, lambda v: join_code(g, e, v))}
    out["static"] = by_version(range(5, 10), lambda v: join_code(g, e, v, GroupInstanceId="i"))
    out["stable still"] = [g.state(), members[1].beat(), len(g.describe()["Members"])]
    for member in members:
        member.leave()
    out["empty"] = [g.state(), members[0].beat()]
    out["generation after empty"] = e.joined()["GenerationId"]
    return out


@case("G2.18 the leader stays, and when it leaves another leads", "groups")
def _(o):
    g, a, b = stable(o, "A", "B")
    parked = b.join(Protocols=[{"Name": "range", "Metadata": subscription(["u"])}])
    late = a.joined()
    out = [late["Leader"], b.joined(parked)["Leader"]]
    settle_members(a, b)
    out.append(a.leave())
    out += [b.beat(), b.joined()["Leader"]]
    return out


@case("G2.19 which protocol is chosen", "groups")
def _(o):
    def vote(*lists):
        g = o.group()
        members = [
            g.member(str(i), protocols=[(n, subscription(["t"])) for n in names]) for i, names in enumerate(lists)
        ]
        settle_members(*members)
        return g.describe()["ProtocolData"]

    return [
        vote("ab"),
        vote("ab", "ba", "ba"),
        vote("ab", "cb"),
        vote("abc", "cba", "cab"),
        vote("xa", "ya", "za"),
        vote("abx", "bax", "xba", "bxa"),
    ]


@case("G2.20 G2.22 a static member comes back and nothing is rebalanced", "groups")
def _(o):
    def told(v):
        g = o.group()
        a, b = g.member("A", ["t"], v=v, instance="a"), g.member("B", ["t"], v=v, instance="b")
        settle_members(a, b)
        other = [{"Name": "range", "Metadata": subscription(["other"])}]
        again = {
            m.label: g.member(f"{m.label}2", v=v, instance=m.instance, protocols=[("range", subscription(["u"]))])
            for m in (b, a)
        }
        out = {}
        for old in (b, a):
            new = again[old.label]
            out[old.label] = [new.joined(), g.state(), new.synced(), new.beat(), new.beat(GroupInstanceId=None)]
            out[f"old {old.label}"] = [
                old.beat(),
                old.beat(GroupInstanceId=None),
                old.synced(),
                join_code(g, old, v, Protocols=other)["ErrorCode"],
                old.commit({"none": {0: 1}}),
                old.leave(),
                old.leave(by_instance=False),
            ]
        return [out, g.describe()]

    return by_version(range(5, 10), told)


@case("G2.21 a static member comes back with a list that changes the choice", "groups")
def _(o):
    g = o.group()
    meta = subscription(["t"])
    lists = [("range", meta), ("sticky", meta)]
    a = g.member("A", instance="a", protocols=lists)
    settle_members(a)
    new = g.member("A2", instance="a", protocols=lists[::-1])
    return [new.joined(), g.state(), new.synced({new: b"x"}), g.describe(), a.beat()]


@case("G2.22 G2.23 what the old id had parked is answered 82", "groups")
def _(o):
    g = o.group()
    a, s = g.member("A", ["t"]), g.member("S", ["t"], instance="s")
    settle_members(a, s)
    # Parked in JoinGroup, PreparingRebalance.
    old = s.join(Protocols=[{"Name": "range", "Metadata": subscription(["u"])}])
    out = {"preparing": [old.waits(), g.state()]}
    s2 = g.member("S2", ["t"], instance="s")
    new = s2.join()
    out["the old join"] = g.tidy(old.answer())
    out["the new one"] = [new.waits(), g.state()]
    a.joined()
    out["joined"] = s2.joined(new)
    # Parked in SyncGroup, CompletingRebalance.
    held = s2.sync()
    out["completing"] = [held.waits(), g.state()]
    s3 = g.member("S3", ["t"], instance="s")
    new = s3.join()
    out["the old sync"] = g.tidy(held.answer())
    out["a new rebalance"] = [new.waits(), g.state(), a.synced({a: b"x"})]
    a.joined()
    out["last"] = s3.joined(new)
    return out


@case("G2.24 an empty instance id is one like any other", "groups")
def _(o):
    g = o.group()
    a = g.member("A", ["t"], instance="")
    return [a.joined(), a.synced({a: b"x"}), g.member("A2", ["t"], instance="").joined(), a.beat()]


@case("G3 SyncGroup refuses, in order", "groups")
def _(o):
    g, a = stable(o, "A")
    s = g.member("S", ["t"], instance="i")
    settle_members(a, s)
    pending = g.member("P", ["t"])
    pending.id = g.call("JoinGroup", 9, pending.ask_join())["MemberId"]
    ask = lambda v, **m: g.tidy(g.call("SyncGroup", v, a.ask_sync(**m)))
    given = {
        "name null": {"ProtocolName": None},
        "type null": {"ProtocolType": None},
        "name null, empty id": {"ProtocolName": None, "GroupId": ""},
        "empty id": {"GroupId": ""},
        "group absent": {"GroupId": o.name("absent")},
        "unknown instance": {"GroupInstanceId": "j"},
        "instance of another": {"GroupInstanceId": "i"},
        "unknown member": {"MemberId": "nobody", "GenerationId": 77},
        "pending member": {"MemberId": pending.id},
        "generation above": {"GenerationId": a.generation + 1},
        "generation below": {"GenerationId": a.generation - 1},
        "generation -1": {"GenerationId": -1, "ProtocolName": "no such"},
        "other name": {"ProtocolName": "sticky"},
        "other type": {"ProtocolType": "connect"},
        "fits": {},
    }
    return {label: by_version(SYNC, lambda v, m=m: ask(v, **m)) for label, m in given.items()}


@case("G3.3 G3.7 SyncGroup in an Empty and in a preparing group", "groups")
def _(o):
    g, a = stable(o, "A")
    b = g.member("B", ["t"])
    b.join()
    out = [g.state(), a.synced({a: b"x"})]
    g, a = stable(o, "A")
    a.leave()
    return [*out, g.state(), a.synced({a: b"x"})]


@case("G3.8 G3.9 the leader's list is what everybody gets", "groups")
def _(o):
    g = o.group()
    a, b, c = (g.member(label, ["t"]) for label in "ABC")
    settle_members(a)
    waiting = [(m, m.join()) for m in (b, c)]
    a.joined()
    for m, parked in waiting:
        m.joined(parked)
    held = [b.sync({b: b"a follower's own"}), c.sync()]
    stranger = g.member("X", ["t"])
    stranger.id = "made-up"
    out = [[h.waits() for h in held], a.synced({a: b"for a", b: b"for b", stranger: b"x"})]
    out += [[h.answer()["Assignment"].decode() for h in held]]
    out += [m.synced({m: b"too late", a: b"too late"}) for m in (a, b, c)]
    out.append(g.tidy(g.call("SyncGroup", 5, b.ask_sync())))
    return out


@case("G3.10 a rebalance answers parked SyncGroups with 27", "groups")
def _(o):
    g, a, b = stable(o, "A", "B")
    a_again, b_again = a.join(), b.join()
    a.joined(a_again), b.joined(b_again)
    held = b.sync()
    out = [held.waits(), g.state()]
    c = g.member("C", ["t"])
    c.join()
    return [*out, g.tidy(held.answer()), g.state(), a.synced({a: b"x"})]


@case("G3.12 a group that does not fit one record", "groups")
def _(o):
    g = o.group()
    a, b = g.member("A", ["t"]), g.member("B", ["t"])
    settle_members(a, b)
    a_again, b_again = a.join(), b.join()
    a.joined(a_again), b.joined(b_again)
    before = a.generation
    held = b.sync()
    got = a.sync({a: bytes(600_000), b: bytes(600_000)}).answer()
    out = [got["ErrorCode"], len(got["Assignment"]), held.answer()["ErrorCode"], g.state()]
    a_again, b_again = a.join(), b.join()
    a.joined(a_again), b.joined(b_again)
    held = b.sync()
    got = a.sync({a: bytes(500_000), b: bytes(500_000)}).answer()
    out += [a.generation - before, got["ErrorCode"], len(got["Assignment"]), len(held.answer()["Assignment"])]
    return out


# G4.1-G4.5.
@case("G4 Heartbeat refuses, in order", "groups")
def _(o):
    g, a = stable(o, "A")
    s = g.member("S", ["t"], instance="i")
    settle_members(a, s)
    ask = lambda v, **m: g.call("Heartbeat", v, {"GenerationId": a.generation, "MemberId": a.id, **m})["ErrorCode"]
    given = {
        "empty id": {"GroupId": ""},
        "group absent": {"GroupId": o.name("absent")},
        "unknown instance": {"GroupInstanceId": "j"},
        "instance of another": {"GroupInstanceId": "i"},
        "unknown member": {"MemberId": "nobody", "GenerationId": 77},
        "member empty": {"MemberId": ""},
        "generation above": {"GenerationId": a.generation + 1},
        "generation below": {"GenerationId": a.generation - 1},
        "generation -1": {"GenerationId": -1},
        "fits": {},
    }
    out = {label: by_version(BEAT, lambda v, m=m: ask(v, **m)) for label, m in given.items()}
    a_again, s_again = a.join(), s.join()
    a.joined(a_again), s.joined(s_again)
    out["completing"] = [g.state(), a.beat(), s.beat()]
    out["completing, generation below"] = a.beat(GenerationId=a.generation - 1)
    b = g.member("B", ["t"])
    b.join()
    out["preparing"] = [g.state(), a.beat(), a.beat(GenerationId=a.generation - 1), b.beat()]
    return out


@case("G5 LeaveGroup, entry by entry", "groups")
def _(o):
    def leave(g, version, *entries, **more):
        members = [{"MemberId": m, "GroupInstanceId": i} for m, i in entries]
        value = {"Members": members, "MemberId": entries[0][0] if entries else "", **more}
        got = g.tidy(g.call("LeaveGroup", version, value))
        return [got["ErrorCode"], got.get("Members")]

    g, a = stable(o, "A")
    s, u, w = (g.member(label, ["t"], instance=label.lower()) for label in "SUW")
    settle_members(a, s, u, w)
    pending = g.member("P", ["t"])
    pending.id = g.call("JoinGroup", 9, pending.ask_join())["MemberId"]
    g.label(pending.id, "P")
    out = {
        "empty id": by_version(LEAVE, lambda v: leave(g, v, ("x", None), GroupId="")),
        "group absent": by_version(LEAVE, lambda v: leave(g, v, ("x", None), ("y", "i"), GroupId=o.name("absent"))),
        "unknown": by_version(LEAVE, lambda v: leave(g, v, ("nobody", None))),
        "nobody": by_version(range(3, 6), lambda v: leave(g, v)),
        "instances": leave(g, 5, ("", "j"), ("", None), ("nobody", "s"), (a.id, "s"), (a.id, "j")),
        "stable still": [g.state(), a.beat()],
        "pending": [leave(g, 5, (pending.id, None)), g.state()],
        "by instance alone": [leave(g, 5, ("", "s")), g.state(), a.beat(), s.beat()],
        "static by id, twice": leave(g, 5, (u.id, None), (u.id, None)),
        "static by both, and the last": [leave(g, 5, (w.id, "w"), (a.id, None)), g.state()],
        "empty": leave(g, 5, (a.id, None)),
    }
    for v in (0, 1, 2):
        g, a = stable(o, "A")
        out[f"v{v}"] = [leave(g, v, (a.id, None)), leave(g, v, (a.id, None)), g.state()]
    return out


@case("G5.5 leaving begins and ends rebalances", "groups")
def _(o):
    g, a, b, c = stable(o, "A", "B", "C")
    out = [c.leave(), g.state(), a.beat()]
    parked = b.join()
    out += [parked.waits(), a.leave(), b.joined(parked), g.state()]
    held = b.sync({b: b"x"}).answer()["ErrorCode"]
    out.append(held)
    # The removed one was parked.
    d = g.member("D", ["t"])
    parked = d.join()
    out += [parked.waits(), d.leave(), g.tidy(parked.answer()), g.state()]
    out.append(b.joined()["GenerationId"])
    return out
