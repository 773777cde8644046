"""DescribeConfigs (contract K32), AlterConfigs and IncrementalAlterConfigs (K33, K44), topic settings (KT)."""

from table import by_version, case, settle

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def node(o):
    return str(o.call("Metadata", 9, {"Topics": []})["ControllerId"])


def describe(o, version, *resources, keys=None, synonyms=False, documentation=False):
    value = {
        "Resources": [{"ResourceType": t, "ResourceName": n, "ConfigurationKeys": keys} for t, n in resources],
        "IncludeSynonyms": synonyms,
    }
    if version >= 3:
        value["IncludeDocumentation"] = documentation
    return o.call("DescribeConfigs", version, value)["Results"]


def values(o, topic, *names):
    got = describe(o, 4, (TOPIC, topic), keys=list(names) or None)[0]["Configs"]
    return {c["Name"]: [c["Value"], c["ConfigSource"]] for c in got}


def alter(o, version, resources, validate=False, api="IncrementalAlterConfigs", address=None):
    """`resources`: (type, name, [(setting, operation, value)])."""
    entries = []
    for kind, name, changes in resources:
        rows = [
            {"Name": n, "Value": v, **({} if api == "AlterConfigs" else {"ConfigOperation": op})}
            for n, op, v in changes
        ]
        entries.append({"ResourceType": kind, "ResourceName": name, "Configs": rows})
    answer = o.call(api, version, {"Resources": entries, "ValidateOnly": validate})
    return [[r["ErrorCode"], r["ErrorMessage"] is None or r["ErrorMessage"] == ""] for r in answer["Responses"]]


@case("K32 KT every topic setting: default, source, type")
def _(o):
    topic = o.topic()

    def one(version):
        got = describe(o, version, (TOPIC, topic))[0]
        return {
            "code": got["ErrorCode"],
            "message": got["ErrorMessage"],
            "settings": {
                c["Name"]: [
                    c["Value"],
                    c["ReadOnly"],
                    c["ConfigSource"],
                    c["IsSensitive"],
                    c.get("ConfigType", "absent"),
                    c.get("Documentation", "absent"),
                    len(c["Synonyms"]),
                ]
                for c in got["Configs"]
            },
        }

    return {str(v): one(v) for v in (1, 4)}


@case("K32.1 topics that are not there, names that are none")
def _(o):
    return {
        label: by_version(
            range(1, 5), lambda v, n=name: [[r["ErrorCode"], len(r["Configs"])] for r in describe(o, v, (TOPIC, n))]
        )
        for label, name in (("unknown", "oracle-never-created"), ("empty", ""), ("invalid", "a/b"))
    }


@case("K32.3 broker names")
def _(o):
    return {
        label: [[r["ErrorCode"], len(r["Configs"]) > 0] for r in describe(o, 4, (BROKER, name))]
        for label, name in (("itself", node(o)), ("word", "abc"), ("unknown", "987654"), ("-1", "-1"))
    }


@case("K32.11 what tools read of a broker")
def _(o):
    names = [
        "auto.create.topics.enable",
        "delete.topic.enable",
        "num.partitions",
        "message.max.bytes",
        "log.retention.ms",
        "log.retention.bytes",
        "log.segment.bytes",
        "socket.request.max.bytes",
        "connections.max.idle.ms",
    ]
    got = describe(o, 4, (BROKER, node(o)), keys=names)[0]["Configs"]
    return {c["Name"]: [c["Value"], c["ConfigType"], c["IsSensitive"]] for c in got}


@case("K32.4 K32.5 K32.6 other types")
def _(o):
    return {
        label: [r["ErrorCode"] for r in describe(o, 4, resource)]
        for label, resource in (
            ("logger empty", (LOGGER, "")),
            ("logger word", (LOGGER, "abc")),
            ("metrics empty", (METRICS, "")),
            ("group empty", (GROUP, "")),
            ("type 0", (0, "x")),
            ("type 1", (1, "x")),
            ("type 3", (3, "x")),
            ("type -1", (-1, "x")),
            ("type 64", (64, "x")),
        )
    }


@case("K32.7 keys")
def _(o):
    topic = o.topic()
    ask = lambda keys: sorted(c["Name"] for c in describe(o, 4, (TOPIC, topic), keys=keys)[0]["Configs"])
    return {
        "one": ask(["retention.ms"]),
        "unknown too": ask(["retention.ms", "no.such"]),
        "only unknown": ask(["no.such"]),
        "twice": ask(["retention.ms", "retention.ms"]),
        "none is all": len(ask([])) == len(ask(None)),
        "resource twice": len(describe(o, 4, (TOPIC, topic), (TOPIC, topic))),
        "no resources": describe(o, 4),
    }


@case("K32.8 synonyms, and documentation only when asked")
def _(o):
    topic = o.topic(retention_ms=5000)
    got = describe(o, 4, (TOPIC, topic), keys=["retention.ms", "max.message.bytes"], synonyms=True, documentation=True)
    return {
        c["Name"]: [[[s["Name"], s["Value"], s["Source"]] for s in c["Synonyms"]][:1], bool(c["Documentation"])]
        for c in got[0]["Configs"]
    }


@case("K44 set, delete, append, subtract")
def _(o):
    topic = o.topic()
    show = lambda name: values(o, topic, name)[name]
    steps = [
        ("set", "retention.ms", SET, "5000"),
        ("set blank", "retention.ms", SET, " 6000 "),
        ("delete", "retention.ms", DELETE, None),
        ("delete again", "retention.ms", DELETE, "ignored"),
        ("append present", "cleanup.policy", APPEND, "delete"),
        ("subtract absent", "cleanup.policy", SUBTRACT, "compact"),
        ("set text", "message.timestamp.type", SET, "LogAppendTime"),
    ]
    out = {}
    for label, name, op, value in steps:
        code = alter(o, 1, [(TOPIC, topic, [(name, op, value)])])
        settle(
            lambda n=name, v=(value or "").strip(): show(n)[0],
            lambda now, v=value, p=op: p != SET or now == v.strip(),
            2,
        )
        out[label] = [code, show(name)]
    return out


@case("K44 errors of one resource")
def _(o):
    topic = o.topic()
    rows = {
        "K44.3 key twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        "K44.3 null": [("retention.ms", SET, None)],
        "K44.3 append null": [("cleanup.policy", APPEND, None)],
        "K44.4 operation 4": [("retention.ms", 4, "1")],
        "K44.4 operation -1": [("retention.ms", -1, "1")],
        "K44.5 append": [("retention.ms", APPEND, "1")],
        "K44.5 subtract": [("retention.ms", SUBTRACT, "1")],
        "K44.5 unknown": [("no.such", APPEND, "1")],
        "K44.7 unknown": [("no.such", SET, "1")],
        "K44.7 value": [("retention.ms", SET, "abc")],
        "K44.7 one of two": [("flush.ms", SET, "9"), ("retention.ms", SET, "x")],
        "K44.15 delete unknown": [("no.such", DELETE, None)],
        "K44.16 none": [],
        "K44.7 cross": [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")],
    }
    out = {}
    for label, changes in rows.items():
        out[label] = [
            by_version((0, 1), lambda v, c=changes: alter(o, v, [(TOPIC, topic, c)])),
            values(o, topic, "retention.ms", "flush.ms"),
        ]
    return out


@case("K44 errors by resource")
def _(o):
    topic = o.topic()
    good = [("flush.ms", SET, "9")]
    one = lambda *resources: alter(o, 1, list(resources))
    return {
        "K44.1 twice": one((TOPIC, topic, good), (TOPIC, topic, [("retention.ms", SET, "9")])),
        "K44.2 type 0": one((0, topic, good)),
        "K44.2 type 3": one((3, topic, good)),
        "K44.6 empty": one((TOPIC, "", good)),
        "K44.6 invalid": one((TOPIC, "a/b", good)),
        "K44.8 unknown": one((TOPIC, "oracle-never-created", good)),
        "K44.8 bad setting of unknown": one((TOPIC, "oracle-never-created", [("no.such", SET, "1")])),
        "K44.9 word": one((BROKER, "abc", good)),
        "K44.9 other node": one((BROKER, "987654", good)),
        "one bad, one good": one((TOPIC, "oracle-never-created", good), (TOPIC, topic, good)),
        "none": one(),
    }


@case("K44.10 a broker setting that cannot change")
def _(o):
    return alter(o, 1, [(BROKER, node(o), [("log.dirs", SET, "/elsewhere")])])


@case("K44.16 validate_only")
def _(o):
    topic = o.topic()
    return [
        alter(o, 1, [(TOPIC, topic, [("retention.ms", SET, "5000")])], validate=True),
        alter(o, 1, [(TOPIC, topic, [("retention.ms", SET, "x")])], validate=True),
        values(o, topic, "retention.ms"),
    ]


@case("K33 AlterConfigs replaces")
def _(o):
    topic = o.topic(flush_ms=77)
    change = lambda v, *rows, t=topic: alter(o, v, [(TOPIC, t, [(n, None, x) for n, x in rows])], api="AlterConfigs")
    show = lambda: values(o, topic, "retention.ms", "flush.ms")
    out = {"set": [change(2, ("retention.ms", "5000")), settle(show, lambda now: now["retention.ms"][0] == "5000")]}
    out["empty"] = [change(2), settle(show, lambda now: now["retention.ms"][0] != "5000")]
    for label, rows in (
        ("null", [("retention.ms", None)]),
        ("twice", [("retention.ms", "1"), ("retention.ms", "2")]),
        ("unknown", [("no.such", "1")]),
        ("value", [("retention.ms", "x")]),
    ):
        out[label] = by_version((0, 1, 2), lambda v, r=rows: change(v, *r))
    out["unknown topic"] = change(2, ("retention.ms", "1"), t="oracle-never-created")
    return out


@case("K33.1 KT.16 a changed max.message.bytes acts")
def _(o):
    from batches import batch

    topic = o.topic()
    size = len(batch([b"v" * 1000]))
    send = lambda: o.cluster.produce(topic, batch([b"v" * 1000]))["ErrorCode"]
    out = [send(), alter(o, 1, [(TOPIC, topic, [("max.message.bytes", SET, str(size - 1))])])]
    out.append(settle(send, lambda code: code != 0))
    out.append(alter(o, 1, [(TOPIC, topic, [("max.message.bytes", DELETE, None)])]))
    out.append(settle(send, lambda code: code == 0))
    return out
