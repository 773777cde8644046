"""Consumer groups move partitions: epochs, targets, assignors, expressions. Contract G12, G13, G14."""

import time

from table import case, settle


class Mover:
    """A consumer member that does what a client does: it beats at its epoch and gives up what it must."""

    def __init__(self, o, g, label, topics, **more):
        self.o, self.g, self.member = o, g, g.consumer(label, topics, **more)
        self.epoch, self.owned = 0, {}

    def step(self, **more):
        names = {label: key for key, label in self.g.topics.items() if isinstance(key, bytes)}
        held = {names[t]: p for t, p in self.owned.items()} if self.epoch else None
        code, epoch, parts = self.member.beat(self.epoch, held, **more)
        if code == 0:
            self.epoch = epoch
            self.owned = self.owned if parts is None else parts
        return [code, epoch, parts]


def move(*movers, rounds=4):
    """All beat in turn until nothing changes; what each owns then."""
    for _ in range(rounds):
        for mover in movers:
            mover.step()
    return {m.member.label: [m.epoch, m.owned] for m in movers}


@case("G12.5 G13.2 six partitions, three members, step by step", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 6)
    tid = o.cluster.ids[topic]
    a, b, c = (g.consumer(label, [topic]) for label in "ABC")
    out = [a.beat(0), g.epochs(), b.beat(0), g.epochs(), b.beat(3), a.beat(2), a.beat(2)]
    out += [a.beat(2, {tid: [0, 1, 2, 3, 4, 5]}), g.describe_consumer()["Members"][0]["MemberEpoch"]]
    out += [a.beat(2, {tid: [0, 1, 2]}), b.beat(3), g.epochs(), c.beat(0), g.epochs(), a.beat(3), b.beat(3), c.beat(4)]
    out += [a.beat(3, {tid: [0, 1]}), c.beat(4), b.beat(3, {tid: [3, 4]}), c.beat(4), g.epochs()]
    out += [b.beat(-1), g.epochs(), a.beat(4), c.beat(4), g.epochs()]
    return out


@case("G12.1 what raises the group epoch and what does not", "groups")
def _(o):
    g = o.group()
    topic, other = o.group_topic(g, "t", 2), o.group_topic(g, "u", 2)
    a = g.consumer("A", [])
    out = {"no names": [a.beat(0), g.epochs()]}
    out["names"] = [a.beat(1, SubscribedTopicNames=[topic]), g.epochs()]
    out["the same names, twice"] = [a.beat(2, SubscribedTopicNames=[topic, topic]), g.epochs()]
    out["rack"] = [a.beat(2, RackId="r"), g.epochs()]
    out["assignor"] = [a.beat(2, ServerAssignor="range"), g.epochs()]
    out["rebalance timeout"] = [a.beat(2, RebalanceTimeoutMs=40000), g.epochs()]
    out["more names"] = [a.beat(2, SubscribedTopicNames=[other, topic]), g.epochs()]
    out["another order"] = [a.beat(3, SubscribedTopicNames=[topic, other]), g.epochs()]
    out["one dropped"] = [a.beat(3, SubscribedTopicNames=[other]), g.epochs()]
    out["acknowledged"] = [a.beat(3, {o.cluster.ids[other]: [0, 1]}), g.epochs()]
    out["none"] = [a.beat(4, SubscribedTopicNames=[]), a.beat(4, {}), g.epochs()]
    return out


@case("G12.2 a target is computed once in the interval", "timed")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 4)
    a, b = g.consumer("A", [topic]), g.consumer("B", [topic])
    out = [a.beat(0), b.beat(0), g.epochs()]
    time.sleep(0.3)
    out += [b.beat(2), g.epochs()]
    time.sleep(1.1)
    # There is no timer: only a heartbeat computes.
    out += [g.epochs(), b.beat(2), g.epochs(), a.beat(2)]
    out += [a.beat(2, {o.cluster.ids[topic]: [0, 1]}), b.beat(3), g.epochs()]
    return out


@case("G12.6 a member that does not give up in time is removed", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 2)
    a, b = g.consumer("A", [topic], rebalance=700), g.consumer("B", [topic])
    out = [a.beat(0), b.beat(0), a.beat(2)]
    until = time.monotonic() + 5
    while (got := a.beat(2))[0] == 0 and time.monotonic() < until:
        time.sleep(0.1)
    return [*out, got, g.epochs()[1], settle(lambda: b.beat(3) and g.epochs(), lambda e: e[0] == "Stable")]


@case("G12.9 topics that come, grow and go", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 1)
    later = g.topic("later", o.name("later"), b"")
    a = Mover(o, g, "A", [topic, later])
    out = {"before": a.step()}
    o.cluster.create(later, 2)
    o.undo.append(lambda: o.cluster.delete(later))
    g.topic("later", later, o.cluster.ids[later])
    settle(a.step, lambda got: got[2] is not None, 10)
    out["created"] = [a.epoch, a.owned, g.epochs()]
    o.cluster.call(
        "CreatePartitions", 3, {"Topics": [{"Name": topic, "Count": 3, "Assignments": None}], "TimeoutMs": 5000}
    )
    settle(a.step, lambda got: got[2] is not None, 10)
    out["grown"] = [a.epoch, a.owned, g.epochs()]
    o.cluster.delete(later)
    settle(a.step, lambda got: got[2] is not None, 10)
    out["deleted"] = [a.epoch, a.owned]
    settle(a.step, lambda got: got[1] == 5, 5)
    out["acknowledged"] = [a.epoch, a.owned, g.epochs()]
    return out


@case("G13.1 which assignor computes", "groups")
def _(o):
    def told(*named):
        g = o.group()
        topic = o.group_topic(g, "t", 3)
        for n, assignor in enumerate(named):
            g.consumer(str(n), [topic], assignor=assignor).beat(0)
        return g.describe_consumer()["AssignorName"]

    return [told(None), told("range"), told("uniform", "range", "range"), told("range", None, None)]


@case("G13.2 uniform: what each keeps when members come and go", "groups")
def _(o):
    g = o.group()
    topic = o.group_topic(g, "t", 6)
    a, b, c = (Mover(o, g, label, [topic]) for label in "ABC")
    out = [move(a), move(a, b), move(a, b, c)]
    b.member.leave()
    return [*out, move(a, c), g.epochs()]


@case("G13.3 range: two topics, three members", "groups")
def _(o):
    g = o.group()
    four, two = o.group_topic(g, "four", 4), o.group_topic(g, "two", 2)
    movers = [Mover(o, g, label, [four, two], assignor="range") for label in ("AAA", "BBB", "CCC")]
    out = [move(*movers)]
    # Static members come first, by their instance ids.
    static = Mover(o, g, "zzz", [four, two], assignor="range", instance="i")
    return [*out, move(*movers, static)]


@case("G13.4 uniform: subscriptions that differ", "groups")
def _(o):
    g = o.group()
    both, only = o.group_topic(g, "both", 6), o.group_topic(g, "only", 2)
    a, b = Mover(o, g, "A", [both]), Mover(o, g, "B", [both, only])
    got = move(a, b)
    return {label: [epoch, {t: len(p) for t, p in owned.items()}] for label, (epoch, owned) in got.items()}


@case("G14.2 G14.3 G14.5 an expression is matched aside, whole names only", "groups")
def _(o):
    g = o.group()
    mark = o.name("rx")
    for label in ("one", "two"):
        name = g.topic(label, f"{mark}-{label}", b"")
        o.cluster.create(name, 1)
        o.undo.append(lambda n=name: o.cluster.delete(n))
        g.topic(label, name, o.cluster.ids[name])
    named = o.group_topic(g, "named")
    a = Mover(o, g, "A", None, regex=f"{mark}-o.*")
    out = {"join": a.step()}
    settle(a.step, lambda got: got[2])
    out["matched"] = [a.epoch, a.owned, g.epochs()]
    b = Mover(o, g, "B", None, regex=f"{mark}-o.*")
    out["an expression that is known counts at once"] = [b.step()[:2], g.epochs()]
    b.member.leave()
    parts = Mover(o, g, "P", None, regex=f"{mark}-o")
    parts.step()
    time.sleep(0.3)
    out["a part of a name does not match"] = parts.step()
    parts.member.leave()
    a.step()
    a.step(SubscribedTopicNames=[named])
    settle(a.step, lambda _: len(a.owned) == 2)
    out["names and expression together"] = a.owned
    a.step(SubscribedTopicRegex="")
    settle(a.step, lambda _: len(a.owned) == 1)
    out["without the expression"] = a.owned
    return out


@case("G14.1 what RE2 takes", "groups")
def _(o):
    g = o.group()
    tried = ("(?P<n>a)", "(?<n>a)", "(?i)a", "a|b", r"\d+", "[[:alpha:]]", r"\pL", "a{2,3}", "^a$", "", "a**", "a++")
    tried += ("(?=a)", "(?>a)", "[", "a{2,1}", "a{1001}", r"\C", "(?s).", "\\", "*")
    out = {}
    for n, regex in enumerate(tried):
        a = g.consumer(f"{n}", None, regex=regex, id=f"m{n}")
        out[regex] = a.beat(0)[0]
        a.leave()
    return out
