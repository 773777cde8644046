"""Fetch (contract C1), ListOffsets (C2), OffsetForLeaderEpoch (K23), DeleteRecords (K21)."""

import time

from batches import batch
from table import by_version, case, fetched, outcome

FETCH = range(4, 19)


def body(o, version, parts, wait_ms=0, min_bytes=1, max_bytes=1 << 20, session=(0, -1), isolation=0, forget=()):
    """`parts`: (topic, partition, offset, partition_max_bytes, more) with what is left out taken as usual."""
    topics = []
    for topic, partition, offset, *rest in parts:
        part = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": rest[0] if rest else 1 << 20}
        part.update(rest[1] if len(rest) > 1 else {})
        part = {k: v for k, v in part.items() if k != "LastFetchedEpoch" or version >= 12}
        topics.append({"Partitions": [part], **named(o, version, topic)})
    out = {
        "MaxWaitMs": wait_ms,
        "MinBytes": min_bytes,
        "MaxBytes": max_bytes,
        "IsolationLevel": isolation,
        "Topics": topics,
    }
    if version >= 7:
        out.update({"SessionId": session[0], "SessionEpoch": session[1]})
        gone = [{"Partitions": [p], **named(o, version, t)} for t, p in forget]
        out["ForgottenTopicsData"] = gone
    return out


def named(o, version, topic):
    if version >= 13:
        return {"TopicId": topic if isinstance(topic, bytes) else o.cluster.ids[topic]}
    return {"Topic": topic}


def parts_of(answer, ordered=False):
    got = [[p["PartitionIndex"], fetched(p)] for t in answer["Responses"] for p in t["Partitions"]]
    return got if ordered else sorted(got, key=str)


def fetch(o, topic, version, parts, **more):
    return o.cluster.to_leader(topic, 0, "Fetch", version, body(o, version, parts, **more))


@case("C1 positions: start, middle, end, beyond, negative")
def _(o):
    topic = o.topic()
    o.fill(topic, 3, records=2)
    return {
        str(at): by_version(FETCH, lambda v, a=at: parts_of(fetch(o, topic, v, [(topic, 0, a)])))
        for at in (0, 1, 3, 5, 6, 7, 1000, -1, -2, 2**63 - 1)
    }


@case("C1 positions below the log start")
def _(o):
    topic = o.topic()
    o.fill(topic, 5)
    delete_records(o, topic, 3)
    return {
        str(at): by_version((4, 11, 12, 18), lambda v, a=at: parts_of(fetch(o, topic, v, [(topic, 0, a)])))
        for at in (0, 2, 3, 5)
    }


@case("C1 an empty log")
def _(o):
    topic = o.topic()
    return by_version(FETCH, lambda v: parts_of(fetch(o, topic, v, [(topic, 0, 0)], wait_ms=30)))


@case("C1 read_committed without transactions")
def _(o):
    topic = o.topic()
    o.fill(topic, 2)
    return by_version(
        FETCH, lambda v: [parts_of(fetch(o, topic, v, [(topic, 0, at)], isolation=1)) for at in (0, 2, 9)]
    )


@case("C1 isolation level 2")
def _(o):
    topic = o.topic()
    o.fill(topic)
    return parts_of(fetch(o, topic, 12, [(topic, 0, 0)], isolation=2))


@case("C1 unknown topic, partition and id")
def _(o):
    topic = o.topic()
    out = {}
    for version in (4, 12):
        out[f"topic v{version}"] = parts_of(fetch(o, topic, version, [("no-such-topic", 0, 0)]))
        out[f"partition v{version}"] = parts_of(fetch(o, topic, version, [(topic, 7, 0)]))
    for version in (13, 18):
        out[f"id v{version}"] = parts_of(fetch(o, topic, version, [(b"\2" * 16, 0, 0)]))
        out[f"zero id v{version}"] = parts_of(fetch(o, topic, version, [(bytes(16), 0, 0)]))
        out[f"partition v{version}"] = parts_of(fetch(o, topic, version, [(topic, 7, 0)]))
    return out


@case("C1 no topics")
def _(o):
    began = time.monotonic()
    got = by_version(FETCH, lambda v: parts_of(o.call("Fetch", v, body(o, v, [], wait_ms=3000))))
    return [got, time.monotonic() - began < 2]


@case("C1 sizes: one whole batch even for a limit of 0, then what fits")
def _(o):
    topic = o.topic()
    o.fill(topic, 4, size=400)
    size = len(batch([b"v" * 400]))
    out = {}
    for label, limit in (
        ("0", 0),
        ("1", 1),
        ("one less", size - 1),
        ("equal", size),
        ("two", 2 * size),
        ("all", 9 * size),
    ):
        out[f"partition {label}"] = parts_of(fetch(o, topic, 12, [(topic, 0, 0, limit)]))
        out[f"answer {label}"] = parts_of(fetch(o, topic, 12, [(topic, 0, 0)], max_bytes=limit))
    return out


@case("C1 negative max bytes")
def _(o):
    topic = o.topic()
    o.fill(topic)
    return [
        parts_of(fetch(o, topic, 12, [(topic, 0, 0, -1)])),
        parts_of(fetch(o, topic, 12, [(topic, 0, 0)], max_bytes=-1)),
    ]


@case("C1 waits: when an answer comes at once and when at max_wait")
def _(o):
    topic = o.topic()
    o.fill(topic)

    def timed(**more):
        began = time.monotonic()
        fetch(o, topic, 12, more.pop("parts", [(topic, 0, 1)]), **more)
        return "at once" if time.monotonic() - began < 0.3 else "waits"

    return {
        "empty": timed(wait_ms=600),
        "min_bytes 0": timed(wait_ms=600, min_bytes=0),
        "min_bytes -1": timed(wait_ms=600, min_bytes=-1),
        "max_wait 0": timed(wait_ms=0),
        "max_wait -1": timed(wait_ms=-1),
        "data": timed(wait_ms=600, parts=[(topic, 0, 0)]),
        "too little data": timed(wait_ms=600, min_bytes=5000, parts=[(topic, 0, 0)]),
        "min_bytes above max_bytes": timed(wait_ms=600, min_bytes=5000, max_bytes=10, parts=[(topic, 0, 0)]),
        "out of range": timed(wait_ms=600, parts=[(topic, 0, 1), (topic, 0, 99)]),
        "unknown partition": timed(wait_ms=600, parts=[(topic, 0, 1), (topic, 8, 0)]),
    }


@case("C1 a waiting fetch is woken by a record")
def _(o):
    topic = o.topic()
    connection = o.connect(topic)
    began = time.monotonic()
    connection.send(connection.request("Fetch", 12, body(o, 12, [(topic, 0, 0)], wait_ms=5000)))
    time.sleep(0.2)
    o.fill(topic)
    from wire import decode_answer

    got = parts_of(decode_answer("Fetch", 12, connection.answer()[1]))
    return [got, time.monotonic() - began < 3]


@case("C1 a partition twice: the last counts")
def _(o):
    topic = o.topic()
    o.fill(topic, 4)
    return parts_of(fetch(o, topic, 12, [(topic, 0, 0), (topic, 0, 3)]))


def leader_epoch(o, topic):
    answer = o.call("Metadata", 12, {"Topics": [{"Name": topic}]})
    return answer["Topics"][0]["Partitions"][0]["LeaderEpoch"]


@case("C1 leader epochs")
def _(o):
    topic = o.topic()
    o.fill(topic, 2)
    now = leader_epoch(o, topic)
    out = {}
    # An epoch below the present one exists only where it is above 0; -2 stands for "negative: not checked".
    for label, epoch in (("current", now), ("above", now + 1), ("far above", now + 1000), ("-1", -1), ("-2", -2)):
        out[label] = by_version(
            (9, 12, 15),
            lambda v, e=epoch: parts_of(fetch(o, topic, v, [(topic, 0, 0, 1 << 20, {"CurrentLeaderEpoch": e})])),
        )
    for label, epoch in (("current", now), ("above", now + 1), ("-1", -1)):
        got = by_version(
            (12, 16), lambda v, e=epoch: parts_of(fetch(o, topic, v, [(topic, 0, 0, 1 << 20, {"LastFetchedEpoch": e})]))
        )
        out[f"last fetched {label}"] = got
    return out


def session(o, topic, steps, version=12):
    """Each step: (epoch or name, parts, forget). `id` of the first answer is reused."""
    known, out = 0, []
    for epoch, parts, *rest in steps:
        forget = rest[0] if rest else ()
        use = {"unknown": 123456789, "zero": 0}.get(rest[1] if len(rest) > 1 else "", known)
        answer = fetch(o, topic, rest[2] if len(rest) > 2 else version, parts, session=(use, epoch), forget=forget)
        if epoch == 0 and answer["ErrorCode"] == 0:
            known = answer["SessionId"]
        told = {0: "none"}.get(answer["SessionId"], "the session" if answer["SessionId"] == known else "another")
        out.append([answer["ErrorCode"], told, parts_of(answer)])
    return out


@case("C1 sessions: only what changed is told")
def _(o):
    topic = o.topic()
    o.fill(topic, 2)
    at = [(topic, 0, 0)]
    return {
        str(v): session(
            o,
            topic,
            [(0, at), (1, []), (2, []), (3, [(topic, 0, 2)]), (4, []), (5, [(topic, 0, 1)]), (-1, at), (6, [])],
            v,
        )
        for v in (7, 12, 13, 18)
    }


@case("C1 sessions: wrong epochs and ids")
def _(o):
    topic = o.topic()
    o.fill(topic)
    at = [(topic, 0, 1)]
    return session(
        o,
        topic,
        [(0, at), (5, []), (1, []), (1, []), (-2, []), (2, []), (3, [], (), "unknown"), (1, [], (), "zero"), (3, [])],
    )


@case("C1 sessions: names and ids do not mix")
def _(o):
    topic = o.topic()
    o.fill(topic)
    at = [(topic, 0, 1)]
    return [
        session(o, topic, [(0, at), (1, [], (), "", 13), (1, [])]),
        session(o, topic, [(0, at, (), "", 13), (1, [], (), "", 12), (1, [], (), "", 13)]),
    ]


@case("C1 sessions: forgetting, and an end when none is left")
def _(o):
    topic = o.topic()
    o.fill(topic)
    return session(
        o,
        topic,
        [
            (0, [(topic, 0, 1), (topic, 7, 0)]),
            (1, []),
            (2, [], [(topic, 7)]),
            (3, []),
            (4, [], [("never-there", 0)]),
            (5, [], [(topic, 0)]),
            (6, []),
        ],
    )


@case("C1 sessions: an error is told every time")
def _(o):
    topic = o.topic()
    o.fill(topic)
    return session(o, topic, [(0, [(topic, 0, 99)]), (1, []), (2, []), (3, [(topic, 0, 1)]), (4, [])])


def list_offsets(o, topic, version, timestamp, partition=0, isolation=0, epoch=-1, twice=False):
    part = {"PartitionIndex": partition, "Timestamp": timestamp}
    if version >= 4:
        part["CurrentLeaderEpoch"] = epoch
    value = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [part] * (2 if twice else 1)}]}
    if version >= 2:
        value["IsolationLevel"] = isolation
    answer = o.cluster.to_leader(o.led, 0, "ListOffsets", version, value)
    return [
        [p["ErrorCode"], p["Offset"], p["Timestamp"], p.get("LeaderEpoch", "absent") in ("absent", -1)]
        for t in answer["Topics"]
        for p in t["Partitions"]
    ]


SPECIAL = {
    "latest": -1,
    "earliest": -2,
    "max timestamp": -3,
    "earliest local": -4,
    "latest tiered": -5,
    "earliest pending upload": -6,
    "-7": -7,
    "i64 min": -(2**63),
}
T = 1_600_000_000_000


@case("C2 special timestamps of an empty log")
def _(o):
    topic = o.led = o.topic()
    return {n: by_version(range(1, 12), lambda v, t=t: list_offsets(o, topic, v, t)) for n, t in SPECIAL.items()}


@case("C2 special timestamps of a log with records")
def _(o):
    topic = o.led = o.topic()
    o.cluster.produce(topic, batch([b"a", b"b", b"c"], timestamp=T, timestamps=[T, T + 50, T + 20]))
    o.cluster.produce(topic, batch([b"d", b"e"], timestamp=T + 10, timestamps=[T + 10, T + 50]))
    return {n: by_version(range(1, 12), lambda v, t=t: list_offsets(o, topic, v, t)) for n, t in SPECIAL.items()}


@case("C2 lookups by time")
def _(o):
    topic = o.led = o.topic()
    o.cluster.produce(topic, batch([b"a", b"b", b"c"], timestamp=T, timestamps=[T, T + 50, T + 20]))
    o.cluster.produce(topic, batch([b"d", b"e"], timestamp=T + 10, timestamps=[T + 10, T + 60], codec="gzip"))
    o.cluster.produce(topic, batch([b"f"], timestamp=T + 5))
    out = {
        str(d): by_version(range(1, 12), lambda v, t=T + d: list_offsets(o, topic, v, t))
        for d in (-1000, 0, 1, 20, 21, 50, 51, 60, 61, 10**9)
    }
    out["0"] = list_offsets(o, topic, 7, 0)
    out["read committed"] = list_offsets(o, topic, 7, T + 51, isolation=1)
    delete_records(o, topic, 3)
    out["after DeleteRecords"] = [list_offsets(o, topic, 7, t) for t in (0, T, T + 50, -2)]
    return out


@case("C2 errors")
def _(o):
    topic = o.led = o.topic()
    now = leader_epoch(o, topic)
    return {
        "topic": by_version((1, 7, 11), lambda v: list_offsets(o, "no-such-topic", v, -1)),
        "partition": by_version((1, 7, 11), lambda v: list_offsets(o, topic, v, -1, partition=9)),
        "twice": by_version((1, 7, 11), lambda v: list_offsets(o, topic, v, -1, twice=True)),
        "epoch": by_version((4, 7, 11), lambda v: list_offsets(o, topic, v, -1, epoch=now)),
        "epoch above": by_version((4, 7, 11), lambda v: list_offsets(o, topic, v, -1, epoch=now + 1)),
        "epoch negative": by_version((4, 7, 11), lambda v: list_offsets(o, topic, v, -1, epoch=-5)),
        "isolation 2": outcome(lambda: list_offsets(o, topic, 7, -1, isolation=2)),
    }


@case("K23 OffsetForLeaderEpoch")
def _(o):
    topic = o.topic()

    def ask(version, epoch, current=-1, name=topic, partition=0, times=1):
        part = {"Partition": partition, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}
        value = {"Topics": [{"Topic": name, "Partitions": [part] * times}]}
        if version >= 3:
            value["ReplicaId"] = -1
        answer = o.cluster.to_leader(topic, 0, "OffsetForLeaderEpoch", version, value)
        return [
            [p["ErrorCode"], "current" if p["LeaderEpoch"] == now else p["LeaderEpoch"], p["EndOffset"]]
            for t in answer["Topics"]
            for p in t["Partitions"]
        ]

    now = leader_epoch(o, topic)
    versions = (2, 3, 4)
    out = {"K23.4 empty log": by_version(versions, lambda v: ask(v, now))}
    o.fill(topic, 3)
    out["K23.4 current"] = by_version(versions, lambda v: ask(v, now))
    out["K23.6 above"] = by_version(versions, lambda v: ask(v, now + 1))
    out["K23.6 -1"] = by_version(versions, lambda v: ask(v, -1))
    out["K23.3 current right"] = by_version(versions, lambda v: ask(v, now, now))
    out["K23.3 current negative"] = by_version(versions, lambda v: ask(v, now, -5))
    out["K23.3 current too high"] = by_version(versions, lambda v: ask(v, now, now + 1))
    out["K23.1 topic"] = by_version(versions, lambda v: ask(v, now, name="no-such-topic"))
    out["K23.1 partition"] = by_version(versions, lambda v: ask(v, now, partition=9))
    out["K23.7 twice"] = by_version(versions, lambda v: ask(v, now, times=2))
    return out


def delete_records(o, topic, *offsets, version=2, name=None, partition=0, timeout_ms=5000):
    parts = [{"PartitionIndex": partition, "Offset": at} for at in offsets]
    answer = o.cluster.to_leader(
        topic,
        0,
        "DeleteRecords",
        version,
        {"TimeoutMs": timeout_ms, "Topics": [{"Name": name or topic, "Partitions": parts}]},
    )
    return [[p["ErrorCode"], p["LowWatermark"]] for t in answer["Topics"] for p in t["Partitions"]]


@case("K21 DeleteRecords")
def _(o):
    topic = o.topic()
    o.fill(topic, 10)
    out = {}
    for label, offsets in (
        ("K21.5 above", [11]),
        ("K21.5 -2", [-2]),
        ("K21.7 three", [3]),
        ("K21.6 lower", [1]),
        ("K21.6 same", [3]),
        ("K21.8 twice", [4, 6]),
        ("K21.6 all", [-1]),
        ("K21.5 again", [11]),
    ):
        out[label] = [delete_records(o, topic, *offsets), o.cluster.offset(topic, timestamp=-2)]
    out["K21.1 topic"] = delete_records(o, topic, 1, name="no-such-topic")
    out["K21.1 partition"] = delete_records(o, topic, 1, partition=9)
    out["K21.8 timeout 0"] = delete_records(o, topic, 2, timeout_ms=0)
    out["versions"] = by_version((0, 1, 2), lambda v: delete_records(o, topic, 5, version=v))
    out["K21.8 none"] = o.call("DeleteRecords", 2, {"TimeoutMs": 100, "Topics": []})["Topics"]
    out["K21.7 log start in Produce"] = o.cluster.produce(topic, batch())["LogStartOffset"]
    return out
