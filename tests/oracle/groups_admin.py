"""DescribeGroups, ListGroups, DeleteGroups: contract G7."""

from groups import settle_members, subscription
from table import by_version, case

ALL = range(0, 7)
# Kafka's mask of the operations on a group that everybody has who is not asked.
OPERATIONS = "AuthorizedOperations"


def one_of_each_state(o):
    """Groups in every state that lasts, by label."""
    topic = o.topic()
    groups = {label: o.group(label) for label in ("empty", "simple", "preparing", "completing", "stable", "consumer")}
    for label in ("empty", "preparing", "completing", "stable"):
        g = groups[label]
        a = g.member("A", ["t"])
        a.joined()
        if label != "completing":
            a.synced({a: b"x"})
        if label == "empty":
            a.leave()
        if label == "preparing":
            g.member("B", ["t"]).join()
    groups["simple"].commit({topic: {0: 1}})
    groups["consumer"].consumer("C", [topic]).beat(0)
    return groups


@case("G7.1 G7.2 G7.3 DescribeGroups in every state, at every version", "groups")
def _(o):
    groups = one_of_each_state(o)
    groups["absent"] = o.group("absent")
    out = {label: by_version(ALL, lambda v, g=g: g.describe(v)) for label, g in groups.items()}
    nameless = o.group(name="")
    empty = lambda v: nameless.connection.call("DescribeGroups", v, {"Groups": [""]})["Groups"][0]
    out["empty id"] = by_version(ALL, lambda v: {**empty(v), "ErrorMessage": None})
    return out


@case("G7.4 authorized operations when they are asked for", "groups")
def _(o):
    groups = one_of_each_state(o)
    groups["absent"] = o.group("absent")
    ask = lambda g, v: g.describe(v, IncludeAuthorizedOperations=True)[OPERATIONS]
    return {label: by_version(range(3, 7), lambda v, g=g: ask(g, v)) for label, g in groups.items()}


def listed(o, groups, version, **more):
    """The groups of this case as ListGroups tells them, from every node."""
    names = {g.name: label for label, g in groups.items()}
    seen = {}
    for address in {g.address for g in groups.values()}:
        from wire import Connection

        connection = Connection(address)
        answer = connection.call("ListGroups", version, more)
        connection.close()
        assert answer["ErrorCode"] == 0, answer
        for row in answer["Groups"]:
            if row["GroupId"] in names:
                seen[names[row.pop("GroupId")]] = row
    return {label: seen[label] for label in sorted(seen)}


@case("G7.6 ListGroups at every version", "groups")
def _(o):
    groups = one_of_each_state(o)
    return by_version(range(0, 6), lambda v: listed(o, groups, v))


@case("G7.7 filters of ListGroups", "groups")
def _(o):
    groups = one_of_each_state(o)
    shown = lambda **more: list(listed(o, groups, 5, **more))
    return {
        "one state": by_version((4, 5), lambda v: list(listed(o, groups, v, StatesFilter=["Stable"]))),
        "two states": shown(StatesFilter=["Empty", "PreparingRebalance"]),
        "any case": shown(StatesFilter=["sTABLE"]),
        "spaces": shown(StatesFilter=[" Empty "]),
        "unknown state": shown(StatesFilter=["Nothing"]),
        "unknown and known": shown(StatesFilter=["Nothing", "CompletingRebalance"]),
        "classic": shown(TypesFilter=["classic"]),
        "consumer, any case": shown(TypesFilter=["Consumer"]),
        "share": shown(TypesFilter=["share"]),
        "unknown type": shown(TypesFilter=["nothing"]),
        "both": shown(TypesFilter=["consumer"], StatesFilter=["Stable"]),
        "both, one does not hold": shown(TypesFilter=["consumer"], StatesFilter=["Empty"]),
    }


@case("G7.8 DeleteGroups in every state, at every version", "groups")
def _(o):
    def told(version):
        groups = one_of_each_state(o)
        groups["absent"] = o.group("absent")
        pending = groups["pending"] = o.group("pending")
        p = pending.member("P", ["t"])
        p.id = pending.call("JoinGroup", 9, p.ask_join())["MemberId"]
        out = {label: [g.delete(version), g.delete(version), g.fetch()] for label, g in groups.items()}
        for row in out.values():
            row[2][1] = len(row[2][1])
        out["pending afterwards"] = pending.call("JoinGroup", 9, p.ask_join())["ErrorCode"]
        return out

    return by_version(range(0, 3), told)


@case("G7.8 an id twice, the empty id, none", "groups")
def _(o):
    topic = o.topic()
    g = o.group()
    g.commit({topic: {0: 1}})
    call = lambda *names: [
        r["ErrorCode"] for r in g.connection.call("DeleteGroups", 2, {"GroupsNames": list(names)})["Results"]
    ]
    out = [call(g.name, g.name), call(), g.state()]
    nameless = o.group(name="")
    nameless.commit({topic: {0: 1}})
    return [*out, nameless.delete(), nameless.delete()]


@case("G2.17 a deleted group begins again at its first generation", "groups")
def _(o):
    g = o.group()
    a = g.member("A", ["t"])
    settle_members(a)
    a.joined(a.join())
    out = [a.generation, a.leave(), g.state(), g.delete(), g.state()]
    b = g.member("B", protocols=[("other", subscription(["t"]))], kind="connect")
    out += [b.joined()["GenerationId"], g.describe()["ProtocolType"], b.leave()]
    # Another type may take an Empty group (G6.10).
    c = g.member("C", ["t"])
    return [*out, c.joined()["GenerationId"], g.describe()["ProtocolType"]]
