"""CreateTopics (contract K19), DeleteTopics (K20), CreatePartitions (K37), DescribeTopicPartitions (K75)."""

from table import by_version, case, outcome, settle

ZERO = bytes(16)
CREATE = range(2, 8)


def create(o, version, topics, timeout_ms=10000, validate=False):
    entries = [{"ReplicationFactor": 1, "NumPartitions": 1, **t} for t in topics]
    answer = o.call("CreateTopics", version, {"Topics": entries, "timeoutMs": timeout_ms, "validateOnly": validate})
    made = [t["Name"] for t in topics if t["Name"].startswith("oracle")]
    o.undo.append(lambda: [o.cluster.delete(n) for n in made])
    return [
        [
            t["ErrorCode"],
            t.get("NumPartitions"),
            t.get("ReplicationFactor"),
            len(t["Configs"]) > 0 if t.get("Configs") is not None else None,
            t["TopicId"] != ZERO if "TopicId" in t else "absent",
            t["ErrorMessage"] is None,
        ]
        for t in sorted(answer["Topics"], key=lambda t: t["Name"])
    ]


def codes(o, version, topics, **more):
    return [row[0] for row in create(o, version, topics, **more)]


def configs(**pairs):
    return [{"Name": k.replace("_", "."), "Value": v} for k, v in pairs.items()]


def is_there(o, name):
    answer = o.call("Metadata", 9, {"Topics": [{"Name": name}], "AllowAutoTopicCreation": False})
    return answer["Topics"][0]["ErrorCode"] == 0


@case("K19.14 created, at every version")
def _(o):
    return by_version(CREATE, lambda v: create(o, v, [{"Name": o.name(), "NumPartitions": 3}]))


@case("K19.14 counts -1")
def _(o):
    return by_version(
        CREATE, lambda v: create(o, v, [{"Name": o.name(), "NumPartitions": -1, "ReplicationFactor": -1}])
    )


@case("K19.1 a name twice")
def _(o):
    name, other = o.name("a"), o.name("b")
    got = by_version(CREATE, lambda v: codes(o, v, [{"Name": name}, {"Name": name}]))
    return [got, codes(o, 7, [{"Name": name}, {"Name": other}, {"Name": name}]), is_there(o, name)]


@case("K19.3 timeouts")
def _(o):
    out = {}
    for timeout in (0, -1, 1):
        name = o.name()
        out[str(timeout)] = (
            by_version(CREATE, lambda v, t=timeout, n=name: codes(o, v, [{"Name": f"{n}-{v}"}], timeout_ms=t))
            if timeout < 1
            else None
        )
    name = o.name()
    create(o, 7, [{"Name": name}], timeout_ms=0)
    out["there"] = is_there(o, name)
    return out


@case("K19.4 too many partitions")
def _(o):
    return {
        "one topic": codes(o, 7, [{"Name": o.name(), "NumPartitions": 10001}]),
        "together": codes(o, 7, [{"Name": o.name(), "NumPartitions": 6000}, {"Name": o.name(), "NumPartitions": 4001}]),
    }


@case("K19.2 K19.5 names")
def _(o):
    names = {
        "cluster metadata": "__cluster_metadata",
        "empty": "",
        "dot": ".",
        "dots": "..",
        "slash": "a/b",
        "blank": " ",
        "colon": "a:b",
        "not ascii": "ä",
        "250": "o" * 250,
        "zero byte": "a\0b",
    }
    out = {label: by_version(CREATE, lambda v, n=name: codes(o, v, [{"Name": n}])) for label, name in names.items()}
    long = "oracle" + "x" * 243
    out["249"] = codes(o, 7, [{"Name": long}])
    out["three dots"] = codes(o, 7, [{"Name": "..."}])
    o.cluster.delete("...")
    return out


@case("K19.6 K19.7 names that are taken")
def _(o):
    name = o.name("a.b")
    codes(o, 7, [{"Name": name}])
    return {
        "same": by_version(CREATE, lambda v: codes(o, v, [{"Name": name}])),
        "collides": by_version(CREATE, lambda v: codes(o, v, [{"Name": name.replace(".", "_")}])),
        "upper case": codes(o, 7, [{"Name": name.replace("a.b", "A.B")}]),
    }


@case("K19.6 two colliding names new in one request")
def _(o):
    name = o.name("a.b")
    return codes(o, 7, [{"Name": name}, {"Name": name.replace(".", "_")}])


CONFIGS = {
    "unknown": {"no_such_setting": "1"},
    "null": {"retention_ms": None},
    "not a number": {"retention_ms": "abc"},
    "below": {"retention_ms": "-2"},
    "at the limit": {"retention_ms": "-1"},
    "blanks": {"retention_ms": " 5000 "},
    "segment.bytes small": {"segment_bytes": "1048575"},
    "segment.bytes least": {"segment_bytes": "1048576"},
    "policy": {"cleanup_policy": "shred"},
    "delete": {"cleanup_policy": "delete"},
    "time type": {"message_timestamp_type": "Wall"},
    "time type case": {"message_timestamp_type": "createtime"},
    "codec": {"compression_type": "rar"},
    "codec producer": {"compression_type": "producer"},
    "boolean": {"preallocate": "yes"},
    "boolean case": {"preallocate": "TRUE"},
    "flush 0": {"flush_messages": "0"},
    "flush 1": {"flush_messages": "1"},
    "ratio": {"min_cleanable_dirty_ratio": "1.5"},
    "ratio 1": {"min_cleanable_dirty_ratio": "1"},
    "old name": {"message_format_version": "3.0"},
    "old name 2": {"message_timestamp_difference_max_ms": "1"},
    "min insync": {"min_insync_replicas": "0"},
    "min insync 3": {"min_insync_replicas": "3"},
    "max message": {"max_message_bytes": "-1"},
    "max message 0": {"max_message_bytes": "0"},
    "max message huge": {"max_message_bytes": "2147483648"},
    "before": {"message_timestamp_before_max_ms": "-1"},
    "segment ms 0": {"segment_ms": "0"},
    "index": {"segment_index_bytes": "3"},
    "interval": {"index_interval_bytes": "-1"},
    "cross check": {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
    "tiered": {"remote_storage_enable": "true"},
    "gzip level 0": {"compression_gzip_level": "0"},
    "gzip level 9": {"compression_gzip_level": "9"},
    "throttled": {"leader_replication_throttled_replicas": "x"},
    "throttled all": {"leader_replication_throttled_replicas": "*"},
    "empty name": {"": "1"},
    "policy empty": {"cleanup_policy": ""},
}


@case("K19.8 settings")
def _(o):
    return {label: codes(o, 7, [{"Name": o.name(), "Configs": configs(**pairs)}]) for label, pairs in CONFIGS.items()}


@case("K19.8 cleanup.policy compact")
def _(o):
    return {
        p: codes(o, 7, [{"Name": o.name(), "Configs": configs(cleanup_policy=p)}])
        for p in ("compact", "compact,delete")
    }


@case("K19.8 compression.type other than producer")
def _(o):
    return {
        p: codes(o, 7, [{"Name": o.name(), "Configs": configs(compression_type=p)}])
        for p in ("gzip", "lz4", "snappy", "zstd", "uncompressed")
    }


@case("K19.8 a setting twice: the last counts")
def _(o):
    pairs = configs(retention_ms="abc") + configs(retention_ms="77000")
    return [
        codes(o, 7, [{"Name": o.name(), "Configs": pairs}]),
        codes(o, 7, [{"Name": o.name(), "Configs": pairs[::-1]}]),
    ]


def placed(o, lists, **more):
    node = o.call("Metadata", 9, {"Topics": []})["ControllerId"]
    parts = [{"PartitionIndex": i, "BrokerIds": [node if b == "me" else b for b in ids]} for i, ids in lists]
    return {"Name": o.name(), "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": parts, **more}


@case("K19.9 K19.10 assignments")
def _(o):
    lists = {
        "right": [(0, ["me"])],
        "partition twice": [(0, ["me"]), (0, ["me"])],
        "no replicas": [(0, [])],
        "node twice": [(0, ["me", "me"])],
        "unknown node": [(0, [987654])],
        "starts at 1": [(1, ["me"])],
        "gap": [(0, ["me"]), (2, ["me"])],
        "negative": [(-1, ["me"])],
    }
    out = {label: codes(o, 7, [placed(o, given)]) for label, given in lists.items()}
    out["replication factor too"] = codes(o, 7, [placed(o, [(0, ["me"])], ReplicationFactor=1)])
    out["partitions too"] = codes(o, 7, [placed(o, [(0, ["me"])], NumPartitions=1)])
    return out


@case("K19.11 K19.12 counts")
def _(o):
    return {
        f"{p} partitions, factor {r}": by_version(
            CREATE, lambda v, p=p, r=r: codes(o, v, [{"Name": o.name(), "NumPartitions": p, "ReplicationFactor": r}])
        )
        for p, r in ((0, 1), (-2, 1), (-(2**31), 1), (1, 0), (1, -2), (0, 0))
    }


@case("K19.13 replication factor above the nodes")
def _(o):
    return {str(r): codes(o, 7, [{"Name": o.name(), "ReplicationFactor": r}]) for r in (2, 3, 4, 32767)}


@case("K19.15 the settings of a new topic")
def _(o):
    name = o.name()
    o.undo.append(lambda: o.cluster.delete(name))
    answer = o.call(
        "CreateTopics",
        7,
        {
            "timeoutMs": 10000,
            "Topics": [
                {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1, "Configs": configs(retention_ms="5000")}
            ],
        },
    )
    return {
        c["Name"]: [c["Value"], c["ReadOnly"], c["ConfigSource"], c["IsSensitive"]]
        for c in answer["Topics"][0]["Configs"]
    }


@case("K19.16 validate_only")
def _(o):
    name = o.name()
    return [
        by_version(CREATE, lambda v: create(o, v, [{"Name": name}], validate=True)),
        is_there(o, name),
        codes(o, 7, [{"Name": "a/b"}], validate=True),
        create(o, 7, []),
    ]


def delete(o, version, names=(), ids=(), timeout_ms=10000, both=()):
    if version >= 6:
        topics = [{"Name": n} for n in names] + [{"Name": None, "TopicId": i} for i in ids]
        topics += [{"Name": n, "TopicId": i} for n, i in both]
        value = {"Topics": topics, "TimeoutMs": timeout_ms}
    else:
        value = {"TopicNames": list(names), "TimeoutMs": timeout_ms}
    answer = o.call("DeleteTopics", version, value)
    return [
        [t["ErrorCode"], t["Name"] is None, t.get("TopicId", ZERO) != ZERO, t.get("ErrorMessage") is None]
        for t in answer["Responses"]
    ]


@case("K20 DeleteTopics")
def _(o):
    out = {
        "K20.5 by name": by_version(range(1, 7), lambda v: delete(o, v, [o.topic()])),
        "K20.4 unknown": by_version(range(1, 7), lambda v: delete(o, v, ["oracle-never-created"])),
        "K20.4 invalid": by_version(range(1, 7), lambda v: delete(o, v, ["a/b"])),
        "K20.4 unknown id": delete(o, 6, ids=[b"\5" * 16]),
        "K20.1 neither": delete(o, 6, ids=[ZERO]),
    }
    topic = o.topic()
    topic_id = o.cluster.ids[topic]
    out["K20.1 both"] = delete(o, 6, both=[(topic, topic_id)])
    out["K20.2 twice"] = delete(o, 6, [topic, topic])
    out["K20.2 name and id"] = delete(o, 6, [topic], [topic_id])
    out["K20.2 id twice"] = delete(o, 6, ids=[topic_id, topic_id])
    out["K20.3 timeout 0"] = delete(o, 6, [topic], timeout_ms=0)
    out["still there"] = is_there(o, topic)
    out["by id"] = delete(o, 6, ids=[topic_id])
    out["none"] = delete(o, 6)
    return out


@case("K20.6 a topic deleted and created again inherits nothing")
def _(o):
    topic = o.topic()
    o.fill(topic, 3)
    old = o.cluster.ids[topic]
    pid, epoch = o.cluster.producer_id()
    from batches import batch

    o.cluster.produce(topic, batch(pid=pid, epoch=epoch, seq=0))
    delete(o, 6, [topic])
    gone = settle(lambda: is_there(o, topic), lambda there: not there)
    o.cluster.create(topic)
    settle(lambda: outcome(lambda: o.code_of_end(topic)), lambda code: code == 0)
    by_old_id = o.call("Metadata", 12, {"Topics": [{"Name": None, "TopicId": old}]})["Topics"][0]["ErrorCode"]
    first = o.cluster.produce(topic, batch(pid=pid, epoch=epoch, seq=5))
    return [
        gone,
        o.cluster.ids[topic] != old,
        by_old_id,
        first["ErrorCode"],
        first["BaseOffset"],
        o.cluster.offset(topic, timestamp=-2),
    ]


def grow(o, version, *entries, timeout_ms=10000, validate=False):
    topics = [{"Name": n, "Count": c, "Assignments": a} for n, c, a in entries]
    answer = o.call("CreatePartitions", version, {"Topics": topics, "TimeoutMs": timeout_ms, "ValidateOnly": validate})
    return [[t["ErrorCode"], t["ErrorMessage"] is None] for t in sorted(answer["Results"], key=lambda t: t["Name"])]


def count_of(o, topic):
    return len(o.call("Metadata", 9, {"Topics": [{"Name": topic}]})["Topics"][0]["Partitions"])


@case("K37 CreatePartitions")
def _(o):
    topic = o.topic(2)
    node = o.call("Metadata", 9, {"Topics": []})["ControllerId"]
    place = lambda *lists: [{"BrokerIds": list(ids)} for ids in lists]
    out = {
        "K37.1 twice": grow(o, 3, (topic, 3, None), (topic, 4, None)),
        "K37.2 timeout": grow(o, 3, (topic, 3, None), timeout_ms=0),
        "K37.3 unknown": grow(o, 3, ("oracle-never-created", 3, None)),
        "K37.3 invalid": grow(o, 3, ("a/b", 3, None)),
        "K37.5 too few": grow(o, 3, (topic, 4, place([node]))),
        "K37.5 too many": grow(o, 3, (topic, 3, place([node], [node]))),
        "K37.5 unknown node": grow(o, 3, (topic, 3, place([98765]))),
        "K37.5 empty": grow(o, 3, (topic, 3, place([]))),
        "K37.7 validate": grow(o, 3, (topic, 5, None), validate=True),
    }
    for count in (2, 1, 0, -1, -(2**31)):
        out[f"K37.4 count {count}"] = by_version(range(0, 4), lambda v, c=count: grow(o, v, (topic, c, None)))
    out["still two"] = count_of(o, topic)
    out["K37.6 grown"] = by_version(range(0, 4), lambda v: grow(o, v, (topic, 3 + v, None)))
    out["six"] = settle(lambda: count_of(o, topic), lambda n: n == 6)
    out["placed"] = grow(o, 3, (topic, 7, place([node])))
    o.cluster.find(topic, 7)
    settle(lambda: o.code_of_end(topic, 6), lambda code: code == 0)
    o.fill(topic, partition=6)
    out["usable"] = o.cluster.offset(topic, 6)
    return out


@case("K75 DescribeTopicPartitions")
def _(o):
    a, b = sorted((o.topic(3), o.topic(2)))
    known = [a, b]

    def ask(names, limit=2000, cursor=None):
        answer = o.call(
            "DescribeTopicPartitions",
            0,
            {
                "Topics": [{"Name": n} for n in names],
                "ResponsePartitionLimit": limit,
                "Cursor": None if cursor is None else {"TopicName": cursor[0], "PartitionIndex": cursor[1]},
            },
        )
        short = [
            [
                known.index(t["Name"]) if t["Name"] in known else t["Name"],
                t["ErrorCode"],
                t["IsInternal"],
                t["TopicId"] != ZERO,
                t["TopicAuthorizedOperations"],
                [
                    [
                        p["PartitionIndex"],
                        p["ErrorCode"],
                        p["LeaderId"] >= 0,
                        p["EligibleLeaderReplicas"],
                        p["LastKnownElr"],
                        p["OfflineReplicas"],
                    ]
                    for p in t["Partitions"]
                ],
            ]
            for t in answer["Topics"]
        ]
        then = answer["NextCursor"]
        return [short, then and [known.index(then["TopicName"]), then["PartitionIndex"]]]

    return {
        "K75.1 both": ask([b, a]),
        "twice": ask([a, a]),
        "unknown": ask(["oracle-never-created"]),
        "invalid": ask(["a/b"]),
        "limit 1": ask([a, b], 1),
        "limit 0": ask([a, b], 0),
        "limit -5": ask([a, b], -5),
        "limit 4": ask([a, b], 4),
        "limit 3": ask([a, b], 3),
        "K75.2 cursor": ask([a, b], 2000, (a, 2)),
        "cursor at b": ask([a, b], 2000, (b, 0)),
        "cursor beyond": ask([a, b], 2000, (a, 99)),
        "cursor negative": ask([a, b], 2000, (a, -1)),
        "cursor unknown": ask([a], 2000, (b, 0)),
    }
