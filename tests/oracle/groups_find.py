"""FindCoordinator, and what is announced and set for groups: contract G1, G2.26, G20."""

from table import by_version, case


def found(o, answer):
    """Addresses as "here" when they are those of a broker that Metadata names."""
    nodes = o.call("Metadata", 12, {"Topics": []})["Brokers"]
    known = {(b["NodeId"], b["Host"], b["Port"]) for b in nodes}

    def place(row):
        where = row["NodeId"], row["Host"], row["Port"]
        return [
            row.get("Key"),
            row.get("ErrorCode"),
            "here" if where in known else list(where),
            row.get("ErrorMessage"),
        ]

    return [place(r) for r in answer["Coordinators"]] if "Coordinators" in answer else place(answer)


def find(o, version, keys, kind=0):
    value = {"Key": keys[0] if keys else "", "KeyType": kind, "CoordinatorKeys": keys}
    return found(o, o.call("FindCoordinator", version, value))


def settled(o):
    o.group()


@case("G1.1 one key, or a list that is answered in its order", "groups")
def _(o):
    settled(o)
    return {
        "one": by_version(range(0, 7), lambda v: find(o, v, ["one"])),
        "several": by_version(range(4, 7), lambda v: find(o, v, ["b", "a", "b"])),
        "none": by_version(range(4, 7), lambda v: find(o, v, [])),
    }


@case("G1.2 the empty key is a key", "groups")
def _(o):
    settled(o)
    return by_version(range(0, 7), lambda v: find(o, v, [""]))


@case("G1.3 unknown types and keys that do not fit theirs", "groups")
def _(o):
    settled(o)

    def told(version, keys, kind):
        """Whether there is a text, from version 4 on; before, it is the code's text, which is not compared."""
        rows = find(o, version, keys, kind)
        return [r[:3] for r in (rows if version >= 4 else [rows])]

    return {
        "type 7": by_version(range(1, 7), lambda v: told(v, ["k"], 7)),
        "type -1": by_version(range(1, 7), lambda v: told(v, ["k"], -1)),
        "type 7, two keys": by_version(range(4, 7), lambda v: told(v, ["k", "l"], 7)),
        "share below 6": by_version(range(1, 6), lambda v: told(v, ["g:AAAAAAAAAAAAAAAAAAAAAQ:0"], 2)),
        "share, no such key": told(6, ["k"], 2),
    }


ODD = {
    "slash": "a/b",
    "hash": "g#1",
    "space": "g 1",
    "emoji": "\U0001f600",
    "NUL": "a\0b",
    "dot": ".",
    "dots": "..",
    "climbing": "../../x",
    "249": "n" * 249,
    "250": "n" * 250,
    "255": "n" * 255,
    "5000": "n" * 5000,
    "30000": "n" * 30000,
}


@case("G2.26 case 98: any string is a group id", "groups")
def _(o):
    topic = o.topic()
    out = {}
    for label, name in ODD.items():
        g = o.group(name=name)
        a = g.member("A", [topic])
        first = a.joined()
        steps = [first["ErrorCode"], first["GenerationId"], a.synced({a: b"x"}), a.beat(), a.commit({topic: {0: 5}})]
        fetched = g.fetch({topic: [0]})
        fetched[1] = [row[1:] for row in fetched[1]]
        steps += [fetched, g.state(), a.leave(), g.delete(), g.delete()]
        c = g.consumer("C", [topic])
        got = c.beat(0)
        steps += [got[:2], c.leave()[:2], g.delete()]
        out[label] = steps
    return out


@case("G20.1 versions of the group APIs")
def _(o):
    keys = (8, 9, 10, 11, 12, 13, 14, 15, 16, 28, 42, 47, 68, 69)
    answer = o.call("ApiVersions", 3, {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"})
    return {str(a["ApiKey"]): [a["MinVersion"], a["MaxVersion"]] for a in answer["ApiKeys"] if a["ApiKey"] in keys}


@case("G20.2 group.version is finalized")
def _(o):
    def told(version):
        answer = o.call("ApiVersions", version, {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"})
        pick = lambda rows: [[v for k, v in f.items() if k != "Name"] for f in rows if f["Name"] == "group.version"]
        return [pick(answer["SupportedFeatures"]), pick(answer["FinalizedFeatures"])]

    return by_version((3, 4), told)


def configs(o, kind, name, keys=None):
    asked = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
    answer = o.call("DescribeConfigs", 4, {"Resources": [asked]})["Results"][0]
    rows = {c["Name"]: [c["Value"], c["ConfigSource"], c["ConfigType"], c["ReadOnly"]] for c in answer["Configs"]}
    return [answer["ErrorCode"], rows]


BROKER_SETTINGS = (
    "group.min.session.timeout.ms group.max.session.timeout.ms group.max.size group.consumer.session.timeout.ms "
    "group.consumer.min.session.timeout.ms group.consumer.max.session.timeout.ms "
    "group.consumer.heartbeat.interval.ms group.consumer.min.heartbeat.interval.ms "
    "group.consumer.max.heartbeat.interval.ms group.consumer.max.size group.consumer.assignors "
    "group.consumer.migration.policy offset.metadata.max.bytes offsets.retention.minutes "
    "offsets.retention.check.interval.ms group.consumer.assignment.interval.ms"
).split()


@case("G20.3 the settings of groups and their defaults")
def _(o):
    node = o.call("Metadata", 12, {"Topics": []})["Brokers"][0]["NodeId"]
    code, rows = configs(o, 4, str(node), BROKER_SETTINGS)
    return [code, {name: row[0] for name, row in rows.items()}]


def alter(o, name, pairs, kind=32):
    changes = [{"Name": k, "ConfigOperation": 1 if v is None else 0, "Value": v} for k, v in pairs.items()]
    value = {"Resources": [{"ResourceType": kind, "ResourceName": name, "Configs": changes}]}
    return o.call("IncrementalAlterConfigs", 1, value)["Responses"][0]["ErrorCode"]


GROUP_SETTINGS = [f"consumer.{n}" for n in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")]


@case("G20.4 the settings of one group")
def _(o):
    name = o.name("set")
    shown = lambda: configs(o, 32, name, GROUP_SETTINGS)
    out = {"before": shown()}
    tried = {
        "session within": {"consumer.session.timeout.ms": "50000"},
        "session below the broker's": {"consumer.session.timeout.ms": "44999"},
        "session above the broker's": {"consumer.session.timeout.ms": "60001"},
        "heartbeat within": {"consumer.heartbeat.interval.ms": "6000"},
        "heartbeat below": {"consumer.heartbeat.interval.ms": "4999"},
        "heartbeat above": {"consumer.heartbeat.interval.ms": "15001"},
        "interval within": {"consumer.assignment.interval.ms": "0"},
        "interval above": {"consumer.assignment.interval.ms": "15001"},
        "no number": {"consumer.session.timeout.ms": "x"},
        "unknown name": {"consumer.nothing": "1"},
    }
    out.update({label: alter(o, name, pairs) for label, pairs in tried.items()})
    from table import settle

    out["after"] = settle(shown, lambda got: got[1].get(GROUP_SETTINGS[0], [""])[0] == "50000")
    out["deleted"] = alter(o, name, dict.fromkeys(GROUP_SETTINGS))
    out["again"] = settle(shown, lambda got: got[1].get(GROUP_SETTINGS[0], [""])[0] == "45000")
    return out
