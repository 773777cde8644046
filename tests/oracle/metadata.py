"""Metadata: contract K3; FindCoordinator as far as it needs no group: contract G2."""

from table import by_version, case, outcome, settle

VERSIONS = range(0, 14)
ZERO = bytes(16)


def brief(topic, known=()):
    """One topic of an answer; an id is only told to be zero or not."""
    parts = [
        [
            p["PartitionIndex"],
            p["ErrorCode"],
            p["LeaderId"] >= 0,
            p["ReplicaNodes"] == [p["LeaderId"]],
            p["IsrNodes"] == [p["LeaderId"]],
            p.get("OfflineReplicas"),
            p.get("LeaderEpoch", -1) >= 0,
        ]
        for p in sorted(topic["Partitions"], key=lambda p: p["PartitionIndex"])
    ]
    name = topic["Name"]
    return {
        "name": known.index(name) if name in known else name,
        "code": topic["ErrorCode"],
        "id": topic["TopicId"] != ZERO if "TopicId" in topic else "absent",
        "internal": topic.get("IsInternal"),
        "operations": topic.get("TopicAuthorizedOperations"),
        "parts": parts,
    }


def ask(o, version, topics, known=(), **more):
    answer = o.call("Metadata", version, {"Topics": topics, **more})
    return sorted((brief(t, known) for t in answer["Topics"]), key=str)


@case("K3.2 fields of each version")
def _(o):
    topic = o.topic(2)

    def one(version):
        answer = o.call("Metadata", version, {"Topics": [{"Name": topic}]})
        cluster = answer.get("ClusterId")
        return [
            sorted(answer),
            sorted(answer["Topics"][0]),
            sorted(answer["Topics"][0]["Partitions"][0]),
            answer.get("ErrorCode"),
            None if cluster is None else len(cluster),
            answer.get("ControllerId", -1) >= 0,
            brief(answer["Topics"][0], [topic]),
        ]

    return by_version(VERSIONS, one)


@case("K3.1 all topics, no topics")
def _(o):
    topic = o.topic()

    def one(version):
        everything = o.call("Metadata", version, {"Topics": [] if version == 0 else None})
        nothing = o.call("Metadata", version, {"Topics": []}) if version else {"Topics": [], "Brokers": [1]}
        return [topic in [t["Name"] for t in everything["Topics"]], len(nothing["Topics"]), bool(nothing["Brokers"])]

    out = by_version(VERSIONS, one)
    connection = o.connect(seconds=3)
    connection.send(connection.request("Metadata", 0, raw=b"\xff\xff\xff\xff"))
    out["v0 null"] = outcome(lambda: "answered" if connection.answer() else "")
    return out


@case("K3.4 unknown and invalid names")
def _(o):
    names = {
        "unknown": "oracle-never-created",
        "empty": "",
        "dot": ".",
        "two dots": "..",
        "slash": "a/b",
        "blank": "a b",
        "not ascii": "ä",
        "249": "x" * 249,
        "250": "x" * 250,
    }

    def one(version, name):
        return [
            {**t, "name": t["name"] == name} for t in ask(o, version, [{"Name": name}], AllowAutoTopicCreation=False)
        ]

    return {label: by_version(range(4, 14), lambda v, n=name: one(v, n)) for label, name in names.items()}


@case("K3.5 a name that is null, or a name and an id, in versions 10 and 11")
def _(o):
    topic = o.topic()
    out = {}
    for version in (10, 11):
        for label, entry in (
            ("null name", {"Name": None}),
            ("name and id", {"Name": topic, "TopicId": b"\1" * 16}),
            ("id alone", {"Name": None, "TopicId": o.cluster.ids[topic]}),
        ):

            def one(v=version, e=entry):
                answer = o.call("Metadata", v, {"Topics": [e]})
                return [
                    len(answer["Brokers"]),
                    answer["ClusterId"],
                    answer["ControllerId"],
                    [t["ErrorCode"] for t in answer["Topics"]],
                ]

            out[f"{label} v{version}"] = outcome(one)
    return out


@case("K3.5 a null name with a zero id")
def _(o):
    def one(version):
        answer = o.call("Metadata", version, {"Topics": [{"Name": None}]})
        return [[t["ErrorCode"] for t in answer["Topics"]], answer.get("ErrorCode")]

    return by_version((12, 13), one)


@case("K3.6 topic ids")
def _(o):
    a, b = o.topic(), o.topic(2)
    known = [a, b]
    ids = o.cluster.ids
    entries = {
        "by id": [{"Name": None, "TopicId": ids[a]}],
        "unknown id": [{"Name": None, "TopicId": b"\3" * 16}],
        "id and a name": [{"Name": None, "TopicId": ids[a]}, {"Name": b}],
        "id with a name beside": [{"Name": b, "TopicId": ids[a]}],
        "unknown id and a name": [{"Name": None, "TopicId": b"\3" * 16}, {"Name": b}],
    }
    return {label: by_version((12, 13), lambda v, e=entry: ask(o, v, e, known)) for label, entry in entries.items()}


@case("K3.7 a topic twice")
def _(o):
    topic = o.topic()
    return by_version(VERSIONS, lambda v: ask(o, v, [{"Name": topic}, {"Name": topic}], [topic]))


@case("K3.8 auto-creation")
def _(o):
    out = {}
    for version in (1, 3, 4, 13):
        name = o.name("auto")
        first = ask(o, version, [{"Name": name}], [name])
        then = settle(lambda v=version, n=name: ask(o, v, [{"Name": n}], [n]), lambda t: t[0]["code"] == 0)
        out[f"v{version}"] = [first[0]["code"] in (0, 3, 5), then]
    name = o.name("auto")
    out["not asked"] = [ask(o, 9, [{"Name": name}], [name], AllowAutoTopicCreation=False) for _ in range(2)][1]
    taken = o.topic()
    other = taken.replace("-", ".", 1)
    dotted = o.cluster.create(other)
    o.undo.append(lambda: o.cluster.delete(dotted))
    out["collides by . and _"] = [[t["code"] for t in ask(o, 9, [{"Name": other.replace(".", "_")}])] for _ in range(3)]
    out["invalid"] = [t["code"] for t in ask(o, 9, [{"Name": "a/b"}])]
    return out


@case("K3.10 authorized operations")
def _(o):
    topic = o.topic()
    names = [{"Name": topic}, {"Name": "oracle-never-created"}]

    def one(version):
        value = {"Topics": names, "AllowAutoTopicCreation": False, "IncludeTopicAuthorizedOperations": True}
        if version <= 10:
            value["IncludeClusterAuthorizedOperations"] = True
        answer = o.call("Metadata", version, value)
        return [answer.get("ClusterAuthorizedOperations"), [t["TopicAuthorizedOperations"] for t in answer["Topics"]]]

    return by_version(range(8, 14), one)


@case("K3.3 the listener answers for itself: brokers can be reached, the controller is one of them")
def _(o):
    answer = o.call("Metadata", 12, {"Topics": []})
    nodes = {b["NodeId"]: b["Port"] for b in answer["Brokers"]}
    reached = [o.cluster.at((b["Host"], b["Port"])).call("Metadata", 12, {"Topics": []}) for b in answer["Brokers"]]
    return [
        answer["ControllerId"] in nodes,
        o.server.port in nodes.values(),
        len(set(nodes.values())) == len(nodes),
        all(r["ClusterId"] == answer["ClusterId"] for r in reached),
    ]


def coordinator(o, version, key, kind, keys=None):
    value = {"CoordinatorKeys": keys if keys is not None else [key]} if version >= 4 else {"Key": key}
    if version >= 1:
        value["KeyType"] = kind
    answer = o.call("FindCoordinator", version, value)
    found = answer["Coordinators"] if version >= 4 else [answer]
    return [[c["ErrorCode"], c["NodeId"] >= 0, c["Host"] != "", c["Port"] > 0] for c in found]


def found(o, version, kind):
    return settle(lambda: coordinator(o, version, "oracle", kind), lambda c: c[0][0] != 15, seconds=20)


@case("G2 FindCoordinator for groups and transactions")
def _(o):
    return {
        label: by_version(versions, lambda v, k=kind: found(o, v, k))
        for label, kind, versions in (("group", 0, range(0, 7)), ("transaction", 1, range(1, 7)))
    }


@case("G2 FindCoordinator: other types, no keys, a key twice, the empty key")
def _(o):
    found(o, 4, 0)
    return {
        "type 3": by_version(range(1, 7), lambda v: coordinator(o, v, "x", 3)),
        "type -1": by_version((1, 4, 6), lambda v: coordinator(o, v, "x", -1)),
        "no keys": coordinator(o, 4, "", 0, keys=[]),
        "twice": coordinator(o, 4, "", 0, keys=["a", "a"]),
        "empty": by_version((0, 3, 4, 6), lambda v: coordinator(o, v, "", 0)),
    }
